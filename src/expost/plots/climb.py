"""The climb of one release: rung, interval, target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

from expost.core import InvalidRequest, Measure, Release, Step
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
    figure, axes = new_figure(height=4.8)
    axes.set_xscale("log")
    if _has_interval(release):
        _draw_interval(axes, release, _in_view(release))
    else:
        _draw_certified(axes, release)
    last = float(release.climb[-1].epsilon)
    axes.axvline(last, color=GREEN, linestyle="--", linewidth=1.2, label=f"stopped at epsilon {last:.4g}")
    axes.set_xlabel("privacy level of the rung, epsilon (log scale; left is more private)" + _hidden(release))
    _mark_levels(axes)
    receipt = release.receipt
    axes.set_title(f"{receipt.outcome.value}: paid {receipt.bill}, at most {receipt.promise}", fontsize=10, loc="left")
    figure.legend(loc="outside lower left", ncols=2, fontsize=8, frameon=False)  # below: the climb uses all its frame
    return save(figure, path)


def _has_interval(release: Release[Any]) -> bool:
    target = release.receipt.target
    return target is None or target.measure in _ERRORS


def _hidden(release: Release[Any]) -> str:
    """What the picture leaves out, in words."""
    hidden = len(release.climb) - len(_in_view(release)) if _has_interval(release) else 0
    if not hidden:
        return ""
    rungs = f"{hidden} noisier {'rung' if hidden == 1 else 'rungs'}"
    return f"\n{rungs}, from epsilon {float(release.climb[0].epsilon):.2g}, not shown"


def _mark_levels(axes: Any) -> None:
    """Ticks in plain decimals, however few decades are in view: powers of ten alone would leave one or none."""
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(
        MaxNLocator(5) if high < 5 * low else LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,))
    )
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _levels(steps: Sequence[Step]) -> list[float]:
    return [float(step.epsilon) for step in steps]


def _in_view(release: Release[Any]) -> tuple[Step, ...]:
    """The rungs from the first whose interval is less than twenty times as wide as the last; those before are noise."""
    climb = release.climb
    reach = 20 * climb[-1].width
    first = next(place for place, step in enumerate(climb) if step.width <= reach)
    return climb[first:]


def _draw_certified(axes: Any, release: Release[Any]) -> None:
    target = release.receipt.target
    assert target is not None
    bounds = [step.high for step in release.climb]
    axes.plot(
        _levels(release.climb), bounds, color=BLUE, marker=".", linewidth=1, label=f"certified {target.measure.value}"
    )
    axes.axhline(float(target.tolerance), color=ORANGE, linewidth=1, label=f"target: {target}")
    axes.set_yscale("log")
    axes.set_ylabel(f"{target.measure.value} of the released model, at most")


def _draw_interval(axes: Any, release: Release[Any], steps: Sequence[Step]) -> None:
    levels, values = _levels(steps), [step.value for step in steps]
    lows, highs = [step.low for step in steps], [step.high for step in steps]
    axes.fill_between(levels, lows, highs, color=BLUE, alpha=0.2, linewidth=0, label=_band(release))
    axes.plot(levels, values, color=BLUE, marker=".", linewidth=1, label="released value")
    _draw_target(axes, release)
    _frame(axes, steps)
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
    axes.axhline(value, color=GREY, linewidth=0.6, label="the answer")


def _frame(axes: Any, steps: Sequence[Step]) -> None:
    # All that is released stays in view, and of the intervals those of the last rungs: the first would flatten the rest.
    last = steps[-1]
    reach = max(10 * last.width / 2, *(1.1 * abs(step.value - last.value) for step in steps)) or 1.0
    axes.set_ylim(last.value - reach, last.value + 1.15 * reach)
