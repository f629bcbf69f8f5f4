"""One style for all pictures: safe for color-blind readers, readable at half width."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from expost.core import InvalidRequest
from expost.core.whole_file import write_file

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "RED", "Picture", "new_figure", "save"]

# Okabe and Ito's palette, told apart with every common colour blindness.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"

_KINDS = frozenset({"png", "svg", "pdf", "jpg", "jpeg", "webp", "eps", ""})  # without an ending: PNG


class Picture(Figure):
    """A figure that notebooks display without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def new_figure(width: float = 7.0, height: float = 4.2) -> tuple[Picture, Any]:
    """Create an empty figure with one pair of axes, independent of pyplot's global state."""
    figure = Picture(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def save(figure: Figure, path: str | Path | None) -> Figure:
    """Write the figure where asked; PNG, SVG, PDF, ... by the file's ending.

    >>> save(new_figure()[0], "budget.xyz")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a file name ending in .png or .svg, got 'budget.xyz'. Rename it.
    """
    if path is None:
        return figure
    if not isinstance(path, str | Path):
        raise InvalidRequest("Expected the name of a file", got=type(path).__name__, do='Pass e.g. "picture.png"')
    if Path(path).suffix.lower().removeprefix(".") not in _KINDS or "\0" in str(path):
        raise InvalidRequest("Expected a file name ending in .png or .svg", got=str(path), do="Rename it")
    drawn = BytesIO()
    figure.savefig(drawn, dpi=150, format=Path(path).suffix.lower().removeprefix(".") or "png")
    try:
        write_file(path if Path(path).suffix else f"{path}.png", drawn.getvalue())
    except OSError:
        wanted = "Expected a file that can be written"
        raise InvalidRequest(wanted, got=str(path), do="Create its folder first") from None
    return figure
