"""Pictures of curves: a budget over time, trade-off curves, trainings."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from expost.core import Guarantee, InvalidRequest
from expost.plots.figure import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save

__all__ = ["draw_budget", "draw_prices", "draw_tradeoff", "draw_training"]


def draw_budget(entries: Sequence[Any], *, account: str, budget: Guarantee, path: str | Path | None = None) -> Figure:
    """Draw what an account had spent after each entry, against its budget; open holds count at their worst case.

    >>> from expost.core import epsilon
    >>> draw_budget([], account="dataset:flights", budget=epsilon(1))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected entries that charge the account. Ask a question first.
    """
    charged = [entry for entry in entries if account in entry.spent]
    if not charged:
        raise InvalidRequest("Expected entries that charge the account", do="Ask a question first")
    name, total = next(iter(budget.amounts().items()))
    when = _places([datetime.fromisoformat(entry.at) for entry in charged])
    spent = [float(entry.spent[account].amounts()[name]) for entry in charged]
    figure, axes = new_figure()
    axes.step(when, spent, where="post", color=BLUE, marker=".", label="spent (open holds at their worst case)")
    axes.axhline(float(total), color=RED, linestyle="--", label=f"budget: {budget}")
    settled = [index for index, entry in enumerate(charged) if entry.kind.value == "settle"]
    times, amounts = [when[index] for index in settled], [spent[index] for index in settled]
    axes.plot(times, amounts, "o", color=ORANGE, label="settled")
    axes.set(xlabel="time of the entry", ylabel=name, ylim=(0, max(float(total), *spent) * 1.08))
    axes.set_xlim(min(when), max(when) + timedelta(minutes=1))
    axes.set_title(f"{account}: {spent[-1]:.4g} of {float(total):.4g} spent", fontsize=10, loc="left")
    ticks = AutoDateLocator(maxticks=7)
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(ticks))
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    return save(figure, path)


def _places(minutes: Sequence[datetime]) -> list[datetime]:
    """Spread the entries of one minute over it, in order: the ledger stores minutes only."""
    counts, seen = Counter(minutes), Counter[datetime]()
    places = []
    for minute in minutes:
        places.append(minute + timedelta(minutes=seen[minute] / counts[minute]))
        seen[minute] += 1
    return places


_COLOURS = (BLUE, ORANGE, GREEN, RED)
_DASHES = ("-", "--", "-.", ":")


def draw_tradeoff(subject: Any, *, path: str | Path | None = None, title: str | None = None) -> Figure:
    """Draw one trade-off curve, or several in a mapping by name; the diagonal is an attacker who learns nothing.

    >>> draw_tradeoff({})
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a trade-off curve, or several by name. Pass account(...).tradeoff().
    """
    curves = dict(subject) if isinstance(subject, Mapping) else {"best attacker": subject}
    if not curves or not all(hasattr(curve, "missed_detection") for curve in curves.values()):
        raise InvalidRequest("Expected a trade-off curve, or several by name", do="Pass account(...).tradeoff()")
    figure, axes = new_figure(width=5.2, height=4.6)
    alarm = np.unique(np.concatenate([np.linspace(0, 1, 401), np.geomspace(1e-6, 1, 200)]))
    for index, (name, curve) in enumerate(curves.items()):
        look = {"color": _COLOURS[index % 4], "linestyle": _DASHES[index // 4 % 4]}
        axes.plot(alarm, curve.missed_detection(alarm), linewidth=1.8, label=name, **look)
    axes.plot([0, 1], [1, 0], color=GREY, linewidth=1, linestyle=":", label="guessing blindly")
    false_alarms = "false alarms: says a unit is in the data when it is not"
    axes.set(aspect="equal", xlim=(0, 1), ylim=(0, 1), xlabel=false_alarms, ylabel="missed detections, at least")
    axes.set_title(title or "What an attacker can tell about one unit", fontsize=10, loc="left")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    return save(figure, path)


def draw_prices(rows: Sequence[Mapping[str, Any]], *, title: str = "", path: str | Path | None = None) -> Figure:
    """Draw what a question costs at several accuracies; ``rows`` are those of ``PriceCurve.to_arrow``.

    >>> draw_prices([{"within": "5%", "definition": "pure", "at most": 1.0, "probably": 0.1}]).axes[0].get_yscale()
    'log'
    """
    if not rows:
        raise InvalidRequest("Expected at least one accuracy", do="Pass within=[...]")
    figure, axes = new_figure()
    places = range(len(rows))
    axes.plot(places, [row["at most"] for row in rows], color=GREY, marker="_", linestyle=":", label="at most")
    known = [(place, row["probably"]) for place, row in zip(places, rows, strict=True) if row["probably"] is not None]
    if known:
        axes.plot(*zip(*known, strict=True), color=BLUE, marker="o", label="probably about")
    axes.set_yscale("log")
    axes.set_xticks(places, [str(row["within"]) for row in rows])
    unit = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu squared"}[rows[0]["definition"]]
    axes.set(xlabel="error allowed", ylabel=f"price, {unit} (log scale)")
    axes.set_title(title, fontsize=10, loc="left")
    axes.legend(fontsize=8)
    return save(figure, path)


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
    """Draw scores against the epsilon that trainings paid, one color per method; runs at one epsilon are averaged.

    ``runs`` maps a name to (epsilon, score) pairs. Scores must be public: taken on public rows, or released and billed.

    >>> draw_training({"epsilon given": [(0.1, 0.95), (0.1, 0.96), (1.0, 0.97)]}, target=0.95).axes[0].get_xscale()
    'log'
    """
    if not runs or not all(points and all(epsilon > 0 for epsilon, _ in points) for points in runs.values()):
        raise InvalidRequest("Expected runs by name, each (epsilon, score)", do='Pass {"fixed": [(0.5, 0.97)]}')
    figure, axes = new_figure()
    for (name, points), (colour, marker) in zip(runs.items(), _LOOKS * len(runs), strict=False):
        axes.plot(*zip(*points, strict=True), linestyle="", marker=marker, color=colour, alpha=0.5, markersize=5)
        groups = itertools.groupby(sorted(points, key=itemgetter(0)), key=itemgetter(0))
        means = [(epsilon, fmean(score for _, score in group)) for epsilon, group in groups]
        line = "-" if len(means) > 1 else ""
        axes.plot(*zip(*means, strict=True), linestyle=line, marker=marker, color=colour, markersize=7, label=name)
    if target is not None:
        axes.axhline(target, color=GREY, linewidth=1, linestyle="--", label=f"target {target:g}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    paid = [epsilon for points in runs.values() for epsilon, _ in points]
    narrow = max(paid) < _DECADE * min(paid)  # without small ticks one label, or none, would be left
    axes.xaxis.set_minor_formatter("{x:g}" if narrow else "")
    axes.set(xlabel="epsilon paid (log scale; left is more private)", ylabel=score)
    axes.set_title(title or "What accuracy each epsilon bought", fontsize=10, loc="left")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    return save(figure, path)
