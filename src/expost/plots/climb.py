"""The climb of one release: rung, interval, target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from expost.core import InvalidRequest, Measure, Release
from expost.plots.style import BLUE, GREEN, GREY, ORANGE, new_figure, save

__all__ = ["draw_climb"]


def draw_climb(release: Release[Any], *, path: str | Path | None = None) -> Figure:
    """Released value and interval at each rung, and the band the target asks for.

    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="count", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> draw_climb(Release(1, receipt))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a release that climbed a ladder. Ask with within= to see a climb.
    """
    if not release.climb:
        raise InvalidRequest("Expected a release that climbed a ladder", do="Ask with within= to see a climb")
    figure, axes = new_figure()
    levels = [float(step.epsilon) for step in release.climb]
    middle = [step.value for step in release.climb]
    axes.fill_between(
        levels,
        [step.low for step in release.climb],
        [step.high for step in release.climb],
        color=BLUE,
        alpha=0.2,
        linewidth=0,
        label=_band(release),
    )
    axes.plot(levels, middle, color=BLUE, marker=".", linewidth=1, label="released value")
    _draw_target(axes, release)
    axes.axvline(levels[-1], color=GREEN, linestyle="--", linewidth=1.2, label=f"stopped at epsilon {levels[-1]:.4g}")
    axes.set_xscale("log")
    _frame(axes, release)
    axes.set_xlabel("privacy level of the rung, epsilon (log scale; left is more private)")
    axes.set_ylabel(release.receipt.question, wrap=True)
    axes.set_title(_title(release), fontsize=10, loc="left")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    return save(figure, path)


def _band(release: Release[Any]) -> str:
    target = release.receipt.target
    sure = "" if target is None else f" ({100 * float(target.confidence):.4g} % sure)"
    return f"where the exact answer lies{sure}"


def _title(release: Release[Any]) -> str:
    receipt = release.receipt
    return f"{receipt.outcome.value}: paid {receipt.bill}, at most {receipt.promise}"


def _draw_target(axes: Any, release: Release[Any]) -> None:
    target = release.receipt.target
    if target is None or not isinstance(release.value, int | float):
        return
    tolerance = float(target.tolerance)
    if target.measure is Measure.RELATIVE_ERROR:
        tolerance *= abs(float(release.value))
    elif target.measure is not Measure.ABSOLUTE_ERROR:
        return
    value = float(release.value)
    axes.axhline(value - tolerance, color=ORANGE, linewidth=1, label=f"target: {target}")
    axes.axhline(value + tolerance, color=ORANGE, linewidth=1)
    axes.axhline(value, color=GREY, linewidth=0.6)


def _frame(axes: Any, release: Release[Any]) -> None:
    # The first rungs are so noisy that they would flatten the rest: keep the last decade of widths in view.
    last = release.climb[-1]
    reach = max(20 * last.width / 2, 1.0)
    axes.set_ylim(last.value - reach, last.value + reach)
