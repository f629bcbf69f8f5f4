"""Answers with their intervals: many groups, one answer, a histogram."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from expost.core import InvalidRequest, Release
from expost.plots.matrix import draw_matrix
from expost.plots.style import BLUE, GREY, ORANGE, new_figure, save

__all__ = ["draw_groups"]

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
    """One line a group: value, interval, and a cross where the target was not met; one answer is one line.

    A matrix becomes a table of its entries. With the ``edges`` of a histogram without groups the counts are bars.

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
    upright = edges is not None and len(edges) == len(lines) + 1
    shown = lines[:_MOST]
    figure, axes = new_figure(height=4.2 if upright else max(2.2, 1.5 + _ROW * len(shown)))
    if upright and edges is not None:
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
        if places:
            _draw_bars(axes, shown, places, colour, marker, name)
    axes.set_yticks(range(len(shown)), [_label(line.label) for line in shown], fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel(release.receipt.question, wrap=True)
    columns = getattr(release.value, "columns", ())
    axes.set_ylabel(", ".join(columns), fontsize=8)


def _draw_bars(axes: Any, lines: list[_Line], places: list[int], colour: str, marker: str, name: str) -> None:
    some = [lines[place] for place in places]
    look = {"fmt": marker, "color": colour, "markersize": 5, "capsize": 2}
    if any(line.low is None or line.high is None for line in some):
        label = "answer" if name == _LOOKS[0][3] else name
        axes.errorbar([line.value for line in some], places, label=label, **look)
        return
    below = [max(line.value - line.low, 0.0) for line in some]
    above = [max(line.high - line.value, 0.0) for line in some]
    axes.errorbar([line.value for line in some], places, xerr=[below, above], label=name, **look)


def _draw_histogram(axes: Any, lines: list[_Line], edges: Sequence[float], release: Release[Any]) -> None:
    widths = [high - low for low, high in itertools.pairwise(edges)]
    values = [max(line.value, 0.0) for line in lines]
    axes.bar(edges[:-1], values, widths, align="edge", color=BLUE, alpha=0.35, edgecolor=BLUE, linewidth=0.8)
    middles = [low + width / 2 for low, width in zip(edges, widths, strict=False)]
    for met, colour, marker, name in _LOOKS:
        places = [place for place, line in enumerate(lines) if line.met is met]
        if places:
            below = [max(lines[place].value - lines[place].low, 0.0) for place in places]
            above = [max(lines[place].high - lines[place].value, 0.0) for place in places]
            at, heights = [middles[place] for place in places], [lines[place].value for place in places]
            axes.errorbar(
                at, heights, yerr=[below, above], fmt=marker, color=colour, markersize=4, capsize=3, label=name
            )
    axes.axhline(0, color=GREY, linewidth=0.6)
    axes.set_xlabel(", ".join(getattr(release.value, "columns", ())))
    axes.set_ylabel(release.receipt.question, wrap=True)


def _label(label: Any) -> str:
    parts = label if isinstance(label, tuple) else (label,)
    return ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)
