"""Pictures of one release: its climb, its groups, its matrix."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

from expost.core import InvalidRequest, Measure, Release, Step
from expost.plots.figure import BLUE, GREEN, GREY, ORANGE, new_figure, save

__all__ = ["draw_climb", "draw_groups", "draw_matrix"]

_ERRORS = (Measure.ABSOLUTE_ERROR, Measure.RELATIVE_ERROR)


def draw_climb(release: Release[Any], *, path: str | Path | None = None) -> Figure:
    """Draw what each rung of a climb showed, and where it stopped.

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
    """Caption what the picture leaves out."""
    hidden = len(release.climb) - len(_in_view(release)) if _has_interval(release) else 0
    if not hidden:
        return ""
    rungs = f"{hidden} noisier {'rung' if hidden == 1 else 'rungs'}"
    return f"\n{rungs}, from epsilon {float(release.climb[0].epsilon):.2g}, not shown"


def _mark_levels(axes: Any) -> None:
    """Set ticks in plain decimals, however few decades are in view: powers of ten alone would leave one or none."""
    low, high = axes.get_xlim()
    decades = LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,))
    axes.xaxis.set_major_locator(MaxNLocator(5) if high < 5 * low else decades)
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _in_view(release: Release[Any]) -> tuple[Step, ...]:
    """Select the rungs from the first whose interval is less than twenty times as wide as the last one's."""
    reach = 20 * release.climb[-1].width
    return tuple(itertools.dropwhile(lambda step: not step.width <= reach, release.climb))


def _draw_certified(axes: Any, release: Release[Any]) -> None:
    target = release.receipt.target
    assert target is not None
    levels, bounds = [float(step.epsilon) for step in release.climb], [step.high for step in release.climb]
    measure = target.measure.value
    axes.plot(levels, bounds, color=BLUE, marker=".", linewidth=1, label=f"certified {measure}")
    axes.axhline(float(target.tolerance), color=ORANGE, linewidth=1, label=f"target: {target}")
    axes.set(yscale="log", ylabel=f"{measure} of the released model, at most")


def _draw_interval(axes: Any, release: Release[Any], steps: Sequence[Step]) -> None:
    target = release.receipt.target
    sure = "" if target is None else f" ({100 * float(target.confidence):.4g} % sure at each rung)"
    levels, values = [float(step.epsilon) for step in steps], [step.value for step in steps]
    lows, highs = [step.low for step in steps], [step.high for step in steps]
    band = {"color": BLUE, "alpha": 0.2, "linewidth": 0}
    axes.fill_between(levels, lows, highs, label=f"where the exact answer lies{sure}", **band)
    axes.plot(levels, values, color=BLUE, marker=".", linewidth=1, label="released value")
    _draw_target(axes, release)
    # All that is released stays in view, and of the intervals those of the last rungs: the first would flatten the rest.
    last = steps[-1]
    reach = max(10 * last.width / 2, *(1.1 * abs(step.value - last.value) for step in steps)) or 1.0
    axes.set_ylim(last.value - reach, last.value + 1.15 * reach)
    axes.set_ylabel(release.receipt.question, wrap=True)


def _draw_target(axes: Any, release: Release[Any]) -> None:
    target = release.receipt.target
    if target is None or not isinstance(release.value, int | float):
        return
    value = float(release.value)
    tolerance = float(target.tolerance) * (abs(value) if target.measure is Measure.RELATIVE_ERROR else 1)
    axes.axhline(value - tolerance, color=ORANGE, linewidth=1, label=f"target: {target}")
    axes.axhline(value + tolerance, color=ORANGE, linewidth=1)
    axes.axhline(value, color=GREY, linewidth=0.6, label="the answer")


_MOST = 60  # groups that fit on one picture
_ROW = 0.26  # inches of one group
_LOOKS = ((True, BLUE, "o", "value and interval"), (False, ORANGE, "X", "target not met"))


@dataclass(frozen=True)
class _Line:
    """One line of the picture."""

    label: Any
    value: Any
    low: Any
    high: Any
    met: bool


def draw_groups(
    release: Release[Any], *, path: str | Path | None = None, edges: Sequence[float] | None = None
) -> Figure:
    """Draw one line per group: value, interval, and a cross where the target was not met; one answer is one line.

    A matrix becomes a table of its entries, counts over time a line with a band. With the ``edges`` of a histogram without groups the counts are bars.

    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="count", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> draw_groups(Release(None, receipt))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a release with an answer. Ask with by= to get one of groups.
    """
    if getattr(release.value, "ndim", 0) == 2:
        return draw_matrix(release, path=path)
    lines = _lines(release)
    if not lines:
        raise InvalidRequest("Expected a release with an answer", do="Ask with by= to get one of groups")
    series = len(lines) > 1 and all(isinstance(line.label, datetime.date) and line.low is not None for line in lines)
    upright = series or (edges is not None and len(edges) == len(lines) + 1)
    shown = lines[:_MOST]
    figure, axes = new_figure(height=4.2 if upright else max(2.2, 1.5 + _ROW * len(shown)))
    if series:
        _draw_series(axes, lines, release)
    elif upright and edges is not None:
        _draw_histogram(axes, lines, edges, release)
    else:
        _draw_lines(axes, shown, release)
    more = f"; {len(lines) - len(shown)} more groups not shown" if len(lines) > len(shown) and not upright else ""
    axes.set_title(f"{release.receipt.outcome.value}: paid {release.receipt.bill}{more}", fontsize=10, loc="left")
    if len(axes.get_legend_handles_labels()[1]):
        figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    return save(figure, path)


def _lines(release: Release[Any]) -> list[_Line]:
    rows = getattr(release.value, "rows", None)
    if rows is not None:
        return [_Line(row.label, row.value, row.low, row.high, row.met) for row in rows]
    value, met = release.value, release.receipt.outcome.met
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return [_Line("from", value[0], None, None, met), _Line("to", value[1], None, None, met)]  # bounds
    if isinstance(value, tuple):
        return [_Line(key, "shown", None, None, met) for key in value]  # keys
    low, high = release.interval or (None, None)
    return [] if value is None else [_Line("answer", value, low, high, met)]


def _draw_lines(axes: Any, shown: list[_Line], release: Release[Any]) -> None:
    for met, colour, marker, name in _LOOKS:
        places = [place for place, line in enumerate(shown) if line.met is met]
        some = [shown[place] for place in places]
        if not some:
            continue
        look = {"fmt": marker, "color": colour, "markersize": 5, "capsize": 2}
        if any(line.low is None or line.high is None for line in some):
            look["label"] = "answer" if met else name
        else:
            look |= {"label": name, "xerr": _error_bars(some)}
        axes.errorbar([line.value for line in some], places, **look)
    axes.set_yticks(range(len(shown)), [_label(line.label) for line in shown], fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel(release.receipt.question, wrap=True)
    columns = getattr(release.value, "columns", ())
    axes.set_ylabel(", ".join(columns), fontsize=8)


def _error_bars(lines: list[_Line]) -> list[list[float]]:
    """Compute how far each interval reaches below and above its value."""
    below, above = ([line.value - line.low for line in lines], [line.high - line.value for line in lines])
    # An end without a limit has no bar.
    return [[max(each, 0.0) if math.isfinite(each) else math.nan for each in side] for side in (below, above)]


def _draw_histogram(axes: Any, lines: list[_Line], edges: Sequence[float], release: Release[Any]) -> None:
    widths = [high - low for low, high in itertools.pairwise(edges)]
    values = [max(line.value, 0.0) for line in lines]
    axes.bar(edges[:-1], values, widths, align="edge", color=BLUE, alpha=0.35, edgecolor=BLUE, linewidth=0.8)
    middles = [low + width / 2 for low, width in zip(edges, widths, strict=False)]
    for met, colour, marker, name in _LOOKS:
        some = [(middle, line) for middle, line in zip(middles, lines, strict=False) if line.met is met]
        if some:
            at, shown = [middle for middle, _ in some], [line for _, line in some]
            look = {"fmt": marker, "color": colour, "markersize": 4, "capsize": 3, "label": name}
            axes.errorbar(at, [line.value for line in shown], yerr=_error_bars(shown), **look)
    axes.axhline(0, color=GREY, linewidth=0.6)
    axes.set_xlabel(", ".join(getattr(release.value, "columns", ())))
    axes.set_ylabel(release.receipt.question, wrap=True)


def _draw_series(axes: Any, lines: list[_Line], release: Release[Any]) -> None:
    """Draw periods from left to right, with a band for the intervals."""
    ordered = sorted(lines, key=lambda line: line.label)
    at = [line.label for line in ordered]
    axes.fill_between(
        at, [line.low for line in ordered], [line.high for line in ordered], color=BLUE, alpha=0.2, linewidth=0
    )
    axes.plot(at, [line.value for line in ordered], color=GREY, linewidth=0.8)
    for met, colour, marker, name in _LOOKS:
        some = [line for line in ordered if line.met is met]
        if some:
            look = {"color": colour, "linestyle": "", "markersize": 3, "label": name}
            axes.plot([line.label for line in some], [line.value for line in some], marker=marker, **look)
    if min(line.low for line in lines) >= 0:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(", ".join(getattr(release.value, "columns", ())))
    axes.set_ylabel(release.receipt.question, wrap=True)
    axes.figure.autofmt_xdate()


def _label(label: Any) -> str:
    parts = label if isinstance(label, tuple) else (label,)
    return ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def draw_matrix(release: Release[Any], *, path: str | Path | None = None) -> Figure:
    """Draw every entry with its error, coloured by the correlation it amounts to: blue below zero, orange above."""
    value = np.asarray(release.value, dtype=float)
    size, names = len(value), getattr(release, "columns", ()) or tuple(map(str, range(len(value))))
    figure, axes = new_figure(width=2.6 + 1.3 * size, height=2.2 + 0.9 * size)
    spread = np.sqrt(np.maximum(np.diag(value), 1e-300))
    correlations = np.clip(value / np.outer(spread, spread), -1, 1)
    image = axes.imshow(correlations, cmap="PuOr_r", vmin=-1, vmax=1, alpha=0.6)  # pale enough for numbers on top
    low, high = (value, value) if release.interval is None else release.interval
    for i in range(size):
        for j in range(size):
            error = "" if release.interval is None else f"\n\u00b1 {(high[i][j] - low[i][j]) / 2:.3g}"
            axes.text(j, i, f"{value[i, j]:.4g}{error}", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(size), names, fontsize=8)
    axes.set_yticks(range(size), names, fontsize=8)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, shrink=0.8, label="as a correlation")
    title = f"{release.receipt.question}\n{release.receipt.outcome.value}: paid {release.receipt.bill}"
    axes.set_title(title, fontsize=9, loc="left", wrap=True)
    return save(figure, path)
