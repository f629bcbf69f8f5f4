"""What accuracy each epsilon bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from expost.core import InvalidRequest
from expost.plots.style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save

__all__ = ["draw_training"]

_LOOKS = ((BLUE, "o"), (RED, "D"), (GREEN, "s"), (ORANGE, "^"))

_DECADE = 12.0  # largest over smallest epsilon of a picture whose small ticks are named too


def draw_training(
    runs: Mapping[str, Sequence[tuple[float, float]]],
    *,
    target: float | None = None,
    score: str = "test accuracy",
    title: str | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Scores against the epsilons that trainings paid, one colour a way of training; several runs at one epsilon are joined by their mean.

    ``runs`` maps a name to (epsilon, score) pairs. Scores must be public: taken on public rows, or released and billed.

    >>> draw_training({"epsilon given": [(0.1, 0.95), (0.1, 0.96), (1.0, 0.97)]}, target=0.95).axes[0].get_xscale()
    'log'
    """
    if not runs or not all(points and all(epsilon > 0 for epsilon, _ in points) for points in runs.values()):
        raise InvalidRequest("Expected runs by name, each (epsilon, score)", do='Pass {"fixed": [(0.5, 0.97)]}')
    figure, axes = new_figure()
    for (name, points), (colour, marker) in zip(runs.items(), _LOOKS * len(runs), strict=False):
        axes.plot(*zip(*points, strict=True), linestyle="", marker=marker, color=colour, alpha=0.5, markersize=5)
        means = _means(points)
        line = "-" if len(means) > 1 else ""
        axes.plot(*zip(*means, strict=True), linestyle=line, marker=marker, color=colour, markersize=7, label=name)
    if target is not None:
        axes.axhline(target, color=GREY, linewidth=1, linestyle="--", label=f"target {target:g}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    paid = [epsilon for points in runs.values() for epsilon, _ in points]
    axes.xaxis.set_minor_formatter(
        "{x:g}" if max(paid) < _DECADE * min(paid) else ""
    )  # else one label, or none, is left
    axes.set_xlabel("epsilon paid (log scale; left is more private)")
    axes.set_ylabel(score)
    axes.set_title(title or "What accuracy each epsilon bought", fontsize=10, loc="left")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    return save(figure, path)


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    by_epsilon: dict[float, list[float]] = {}
    for epsilon, score in points:
        by_epsilon.setdefault(epsilon, []).append(score)
    return [(epsilon, sum(scores) / len(scores)) for epsilon, scores in sorted(by_epsilon.items(), key=_first)]


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]
