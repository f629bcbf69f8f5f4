"""Scores are drawn where they were reached."""

from pathlib import Path

import numpy as np
import pytest

from expost import InvalidRequest
from expost.plots.curve_plot import draw_training

RUNS = {"epsilon given": [(0.1, 0.95), (0.1, 0.97), (1.0, 0.98)], "accuracy asked for": [(0.09, 0.955)]}


def test_runs_at_one_epsilon_are_joined_by_their_mean() -> None:
    axes = draw_training(RUNS, target=0.95).axes[0]
    means = axes.lines[1].get_xydata()

    assert np.allclose(means, [(0.1, 0.96), (1.0, 0.98)])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*RUNS, "target 0.95"]


def test_it_is_written_where_asked(tmp_path: Path) -> None:
    draw_training(RUNS, path=tmp_path / "runs.png")

    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("wrong", [{}, {"none": []}, {"zero": [(0.0, 0.5)]}])
def test_nothing_to_draw_is_refused(wrong: dict[str, list[tuple[float, float]]]) -> None:
    with pytest.raises(InvalidRequest):
        draw_training(wrong)
