"""False alarms against missed detections of the best attacker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from expost.core import InvalidRequest
from expost.plots.style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save

__all__ = ["draw_tradeoff"]

_COLOURS = (BLUE, ORANGE, GREEN, RED)
_DASHES = ("-", "--", "-.", ":")


def draw_tradeoff(subject: Any, *, path: str | Path | None = None, title: str | None = None) -> Figure:
    """One trade-off curve, or several in a mapping by name; the diagonal is an attacker who learns nothing.

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
    axes.set_aspect("equal")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("false alarms: says a unit is in the data when it is not")
    axes.set_ylabel("missed detections, at least")
    axes.set_title(title or "What an attacker can tell about one unit", fontsize=10, loc="left")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    return save(figure, path)
