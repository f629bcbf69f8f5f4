"""Panels of experiments."""

import pytest

from expost.experiments.figure_style import draw_panels, save_both, wrapped_panels


@pytest.mark.parametrize("reach", [0.2, 500.0])
def test_every_range_has_a_handful_of_ticks(reach: float, tmp_path) -> None:
    figure = draw_panels(1, 1, lambda axes, row, column: axes.plot([0, reach], [1, 2], label="line"), title="t")

    assert [path.suffix for path in save_both(figure, tmp_path / "panel")] == [".png", ".svg"]
    assert 3 <= len(figure.axes[0].get_xticks()) <= 8


@pytest.mark.parametrize(("count", "cells", "legends_inside"), [(1, 1, 0), (2, 2, 0), (3, 4, 1), (4, 4, 0)])
def test_a_spare_cell_holds_the_legend_and_nothing_is_drawn_twice(count: int, cells: int, legends_inside: int) -> None:
    drawn = []

    def draw(axes: object, place: int) -> None:
        drawn.append(place)
        axes.plot([0, 1], [0, 1], label=f"line {place % 2}")

    figure = wrapped_panels(count, draw, title="t")

    assert drawn == list(range(count)) and len(figure.axes) == cells
    inside = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert len(inside) == legends_inside and len(figure.legends) == 1 - legends_inside
    (legend,) = inside or figure.legends
    assert len(legend.get_texts()) == min(count, 2)
