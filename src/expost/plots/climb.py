"""The climb of one release: rung, interval, target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from expost.core import InvalidRequest, Measure, Release
from expost.plots.style import BLUE, GREEN, GREY, ORANGE, new_figure, save

__all__ = ["draw_climb"]

_ERRORS = (Measure.ABSOLUTE_ERROR, Measure.RELATIVE_ERROR)


def draw_climb(release: Release[Any], *, path: str | Path | None = None) -> Figure:
    """What each rung of a climb showed, and where it stopped.

    An answer that is a number is drawn with its interval and the band that the target asks for; a model with the risk
    that its rung certified, against the risk asked for.

    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="count", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> draw_climb(Release(1, receipt))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a release that climbed a ladder. Ask with within= to see a climb.
    """
    if not release.climb:
        raise InvalidRequest("Expected a release that climbed a ladder", do="Ask with within= to see a climb")
    figure, axes = new_figure()
    target = release.receipt.target
    if target is None or target.measure in _ERRORS:
        _draw_interval(axes, release)
    else:
        _draw_certified(axes, release)
    last = float(release.climb[-1].epsilon)
    axes.axvline(last, color=GREEN, linestyle="--", linewidth=1.2, label=f"stopped at epsilon {last:.4g}")
    axes.set_xscale("log")
    axes.set_xlabel("privacy level of the rung, epsilon (log scale; left is more private)")
    receipt = release.receipt
    axes.set_title(f"{receipt.outcome.value}: paid {receipt.bill}, at most {receipt.promise}", fontsize=10, loc="left")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    return save(figure, path)


def _levels(release: Release[Any]) -> list[float]:
    return [float(step.epsilon) for step in release.climb]


def _draw_certified(axes: Any, release: Release[Any]) -> None:
    target = release.receipt.target
    assert target is not None
    bounds = [step.high for step in release.climb]
    axes.plot(_levels(release), bounds, color=BLUE, marker=".", linewidth=1, label=f"certified {target.measure.value}")
    axes.axhline(float(target.tolerance), color=ORANGE, linewidth=1, label=f"target: {target}")
    axes.set_yscale("log")
    axes.set_ylabel(f"{target.measure.value} of the released model, at most")


def _draw_interval(axes: Any, release: Release[Any]) -> None:
    axes.fill_between(
        _levels(release),
        [step.low for step in release.climb],
        [step.high for step in release.climb],
        color=BLUE,
        alpha=0.2,
        linewidth=0,
        label=_band(release),
    )
    values = [step.value for step in release.climb]
    axes.plot(_levels(release), values, color=BLUE, marker=".", linewidth=1, label="released value")
    _draw_target(axes, release)
    _frame(axes, release)
    axes.set_ylabel(release.receipt.question, wrap=True)


def _band(release: Release[Any]) -> str:
    target = release.receipt.target
    sure = "" if target is None else f" ({100 * float(target.confidence):.4g} % sure at each rung)"
    return f"where the exact answer lies{sure}"


def _draw_target(axes: Any, release: Release[Any]) -> None:
    target = release.receipt.target
    if target is None or not isinstance(release.value, int | float):
        return
    value = float(release.value)
    tolerance = float(target.tolerance) * (abs(value) if target.measure is Measure.RELATIVE_ERROR else 1)
    axes.axhline(value - tolerance, color=ORANGE, linewidth=1, label=f"target: {target}")
    axes.axhline(value + tolerance, color=ORANGE, linewidth=1)
    axes.axhline(value, color=GREY, linewidth=0.6)


def _frame(axes: Any, release: Release[Any]) -> None:
    # The first rungs are so noisy that they would flatten the rest: keep the last decade of widths in view.
    last = release.climb[-1]
    reach = max(20 * last.width / 2, 1.0)
    axes.set_ylim(last.value - reach, last.value + reach)
