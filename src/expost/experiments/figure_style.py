"""Pictures of the experiments: one panel a table, one line a method, one legend below."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator, NullFormatter, StrMethodFormatter

from expost.experiments.experiment_report import Average
from expost.plots.figure import BLUE, GREEN, GREY, ORANGE, RED

__all__ = ["Line", "LOOKS", "draw_lines", "draw_panels", "save_both", "wrapped_panels"]

_TYPE = 13  # points: half a page wide, two columns of panels are still read
PURPLE, BLACK = "#CC79A7", "#000000"  # two more of Okabe and Ito's palette


@dataclass(frozen=True)
class Look:
    """How one method is drawn; colour never carries a meaning alone."""

    color: str
    style: str = "-"
    marker: str = ""
    width: float = 1.8
    label: str = ""


LOOKS = {
    "theory, covariance": Look(GREY, "--", label="theory: covariance perturbation"),
    "theory, covariance, corrected": Look(GREY, ":", label="theory: covariance, corrected"),
    "theory, output": Look(PURPLE, "--", label="theory: output perturbation"),
    "theory, output, corrected": Look(PURPLE, ":", label="theory: output, corrected"),
    "theory, SGD": Look(BLACK, "--", width=1.2, label="theory: SGD (delta 1e-6)"),
    "doubling (code)": Look(ORANGE, "-", "s", label="doubling"),
    "noise reduction (text)": Look(BLUE, ":", label="noise reduction, paper's text"),
    "noise reduction (code)": Look(BLUE, "-", "^", label="noise reduction, authors' code"),
    "expost, certificate": Look(RED, "-", "D", label="expost: free certificate"),
    "expost, objective": Look(GREEN, "-", "o", label="expost: objective perturbation"),
    "oracle": Look(BLACK, "-.", width=1.2, label="oracle on the 2017 path"),
}


@dataclass(frozen=True)
class Line:
    """One curve: which look, and its points."""

    method: str
    x: Sequence[float]
    y: Sequence[float]


def lines_of(rows: Iterable[Average], value: Callable[[Average], float], methods: Sequence[str]) -> list[Line]:
    """Build the lines of one table, in the order of the legend."""
    found: dict[str, list[Average]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return [
        Line(name, [row.tolerance for row in found[name]], [value(row) for row in found[name]])
        for name in methods
        if name in found
    ]


def draw_lines(axes: Any, lines: Iterable[Line], *, every: int = 5) -> None:
    """Draw curves in their looks; points that do not exist leave gaps."""
    for line in lines:
        look, marks = LOOKS[line.method], {"markevery": max(1, len(line.x) // every), "markersize": 5}
        drawn = {"color": look.color, "marker": look.marker, "linewidth": look.width, "label": look.label}
        shown = [value if math.isfinite(value) else math.nan for value in line.y]
        axes.plot(line.x, shown, look.style, **drawn, **marks)


def draw_panels(
    rows: int,
    columns: int,
    draw: Callable[[Any, int, int], None],
    *,
    title: str,
    panel: tuple[float, float] = (4.3, 3.5),
    count: int | None = None,
) -> Figure:
    """Draw a grid of panels with one legend for all; two columns and large type survive half width.

    Where ``count`` panels leave cells over, the legend goes into the first of them; otherwise it goes below the grid.
    """
    count = rows * columns if count is None else count
    spare = count < rows * columns
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows + (0.4 if spare else 1.1)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    cells = list(grid.ravel())
    for index, axes in enumerate(cells[:count]):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        draw(axes, index // columns, index % columns)
        axes.tick_params(labelsize=_TYPE - 1)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_fontsize(_TYPE)
    figure.suptitle(title, fontsize=_TYPE + 2, x=0.01, ha="left")
    _plain_ticks(cells[:count])
    _draw_legend(figure, cells, count, columns)
    return figure


def wrapped_panels(count: int, draw: Callable[[Any, int], None], *, title: str) -> Figure:
    """Draw panels in two columns, one after the other."""
    columns = min(count, 2)

    def draw_panel(axes: Any, row: int, column: int) -> None:
        draw(axes, row * columns + column)

    return draw_panels(math.ceil(count / columns), columns, draw_panel, title=title, count=count)


def _draw_legend(figure: Figure, cells: Sequence[Any], count: int, columns: int) -> None:
    """Show one entry per label, whichever panel it is in."""
    handles: dict[str, Any] = {}
    for axes in cells[:count]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    look = {"fontsize": _TYPE - 1, "frameon": False}
    for axes in cells[count:]:
        axes.set_axis_off()
    if count < len(cells):
        cells[count].legend(handles.values(), handles.keys(), loc="center", **look)
    else:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, **look)


def _plain_ticks(panels: Sequence[Any]) -> None:
    """Label few, round numbers; powers of ten are written out."""
    for axes in panels:
        if axes.get_xscale() == "linear":
            small = axes.get_xlim()[1] - axes.get_xlim()[0] <= 0.5
            axes.xaxis.set_major_locator(MultipleLocator(0.05) if small else MaxNLocator(5, steps=[1, 2, 5, 10]))
        for name in ("x", "y"):
            axis = getattr(axes, f"{name}axis")
            if axis.get_scale() == "log":
                axis.set_major_formatter(StrMethodFormatter("{x:g}"))
                axis.set_minor_formatter(NullFormatter())


def save_both(figure: Figure, stem: Path) -> list[Path]:
    """Save the picture as PNG and as SVG."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    figure.savefig(paths[0], dpi=150)
    figure.set_layout_engine("none")  # what was laid out for the first file stays, which takes half of the time
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
