"""Panels of experiments."""

import pytest

from expost.experiments.figures import draw_panels, save_both


@pytest.mark.parametrize("reach", [0.2, 500.0])
def test_every_range_has_a_handful_of_ticks(reach: float, tmp_path) -> None:
    figure = draw_panels(1, 1, lambda axes, row, column: axes.plot([0, reach], [1, 2], label="line"), title="t")

    assert [path.suffix for path in save_both(figure, tmp_path / "panel")] == [".png", ".svg"]
    assert 3 <= len(figure.axes[0].get_xticks()) <= 8
