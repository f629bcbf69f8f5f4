"""Bars of what ways of doing the same thing pay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from expost.core import InvalidRequest
from expost.plots.figure import BLUE, GREY, new_figure, save

__all__ = ["draw_bars"]

_ROW = 0.55  # inches of height per bar


def draw_bars(
    paid: Mapping[str, float], *, ours: str, title: str | None = None, path: str | Path | None = None
) -> Figure:
    """Draw the epsilon that each way paid as bars on a log scale, smallest at the top; ``ours`` stands out.

    >>> draw_bars({"expost": 0.1, "doubling": 0.4}, ours="expost").axes[0].get_xscale()
    'log'
    """
    if not paid or min(paid.values()) <= 0:
        raise InvalidRequest("Expected what each way paid, above 0", do='Pass {"expost": 0.1, "doubling": 0.4}')
    figure, axes = new_figure(7.0, 1.3 + _ROW * len(paid))
    names = sorted(paid, key=lambda name: paid[name])
    values = [paid[name] for name in names]
    bars = axes.barh(names, values, color=[BLUE if name == ours else GREY for name in names], height=0.6)
    axes.bar_label(bars, [f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in values], padding=4, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 3, max(values) * 3)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("epsilon paid (log scale; shorter is more private)")
    figure.suptitle(title or "Privacy paid for the same result", fontsize=10, x=0.01, horizontalalignment="left")
    return save(figure, path)
