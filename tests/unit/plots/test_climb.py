"""What the picture of a climb shows, and what it says that it leaves out."""

from fractions import Fraction

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from expost.core import PureGuarantee, PureLoss, Receipt, Release, Step, Target
from expost.plots.release_plot import draw_climb

LEVELS = [Fraction(1, 10**8) * 2**rung for rung in range(20)]


def climbed(levels: list[Fraction], last: float = 1000.0) -> Release[float]:
    steps = [
        Step(level, last + 0.3 * n, last + 0.3 * n - n, last + 0.3 * n + n)
        for level in levels
        for n in [1 / float(level)]
    ]
    receipt = Receipt(
        question="count of rows",
        method="m",
        promise=PureGuarantee(1),
        bill=PureLoss(levels[-1]),
        target=Target.within("1%"),
    )
    return Release(last, receipt, interval=(steps[-1].low, steps[-1].high), climb=tuple(steps))


def test_rungs_that_are_noise_are_left_out_and_counted() -> None:
    axes = draw_climb(climbed(LEVELS)).axes[0]

    low, high = axes.get_xlim()
    assert float(LEVELS[-1]) / 32 < low < high < 2 * float(LEVELS[-1])
    assert "15 noisier rungs, from epsilon 1e-08, not shown" in axes.get_xlabel()
    assert "not shown" not in draw_climb(climbed(LEVELS[-3:])).axes[0].get_xlabel()


@pytest.mark.parametrize("levels", [LEVELS, LEVELS[-1:], LEVELS[-2:]])
def test_every_value_that_is_drawn_is_in_the_frame_and_no_line_leaves_it(levels: list[Fraction]) -> None:
    axes = draw_climb(climbed(levels)).axes[0]

    low, high = axes.get_ylim()
    (values,) = (line for line in axes.lines if line.get_label() == "released value")
    assert all(low < value < high for value in np.asarray(values.get_ydata()))
    assert len(axes.get_xticks()) >= 2


@pytest.mark.parametrize("width", [4.0, 7.0, 14.0])
def test_the_legend_explains_every_line_and_covers_nothing(width: float) -> None:
    figure = draw_climb(climbed(LEVELS))
    figure.set_size_inches(width, 4.8)
    figure.canvas.draw()

    (legend,) = figure.legends
    said = " ".join(text.get_text() for text in legend.get_texts())
    for words in ("where the exact answer lies", "released value", "target", "the answer", "stopped at epsilon"):
        assert words in said
    assert Bbox.intersection(legend.get_window_extent(), figure.axes[0].get_window_extent()) is None
