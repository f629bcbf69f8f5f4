"""The answers of many groups with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from expost.core import InvalidRequest, Release
from expost.plots.style import BLUE, ORANGE, new_figure, save

__all__ = ["draw_groups"]

_MOST = 60  # groups that fit on one picture
_ROW = 0.26  # inches of one group


def draw_groups(release: Release[Any], *, path: str | Path | None = None) -> Figure:
    """One line a group: value, interval, and a mark where the target was not met.

    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="count", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> draw_groups(Release(1, receipt))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a release of groups. Ask with by= to get one.
    """
    rows = getattr(release.value, "rows", None)
    if not rows:
        raise InvalidRequest("Expected a release of groups", do="Ask with by= to get one")
    shown = rows[:_MOST]
    figure, axes = new_figure(height=max(2.2, 1.2 + _ROW * len(shown)))
    for met, colour, name in ((True, BLUE, "value and interval"), (False, ORANGE, "target not met")):
        places = [place for place, row in enumerate(shown) if row.met is met]
        if places:
            _draw_bars(axes, shown, places, colour, name)
    axes.set_yticks(range(len(shown)), [_label(row.label) for row in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(release.receipt.question, wrap=True)
    more = f"; {len(rows) - len(shown)} more groups not shown" if len(rows) > len(shown) else ""
    axes.set_title(f"{release.receipt.outcome.value}: paid {release.receipt.bill}{more}", fontsize=10, loc="left")
    axes.legend(loc="best", fontsize=8, framealpha=0.9)
    return save(figure, path)


def _draw_bars(axes: Any, rows: Any, places: list[int], colour: str, name: str) -> None:
    values = [rows[place].value for place in places]
    below = [max(rows[place].value - rows[place].low, 0.0) for place in places]
    above = [max(rows[place].high - rows[place].value, 0.0) for place in places]
    axes.errorbar(values, places, xerr=[below, above], fmt="o", color=colour, markersize=4, capsize=2, label=name)


def _label(label: Any) -> str:
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)
