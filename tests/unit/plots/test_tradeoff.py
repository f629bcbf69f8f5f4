"""The picture of a trade-off curve."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from expost.accounting import GaussianEvent, PureEvent, account
from expost.core import InvalidRequest
from expost.plots.curve_plot import draw_tradeoff


def test_one_curve_and_the_blind_guess_are_drawn(tmp_path: Path) -> None:
    figure = draw_tradeoff(account(GaussianEvent(1)).tradeoff(), path=tmp_path / "curve.png")
    lines = figure.axes[0].get_lines()

    assert (tmp_path / "curve.png").stat().st_size > 5000
    assert [line.get_label() for line in lines] == ["best attacker", "guessing blindly"]
    assert all(0 <= y <= 1 for y in lines[0].get_ydata())


def test_several_curves_have_their_names() -> None:
    curves = {"weak": account(PureEvent(2)).tradeoff(), "strong": account(PureEvent(0.1)).tradeoff()}
    axes = draw_tradeoff(curves, title="two promises").axes[0]

    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["weak", "strong", "guessing blindly"]
    assert axes.get_title(loc="left") == "two promises"
    assert "false alarms" in axes.get_xlabel()


def test_what_is_no_curve_is_refused() -> None:
    for wrong in ({}, None, {"a": 1}):
        with pytest.raises(InvalidRequest, match="trade-off curve"):
            draw_tradeoff(wrong)
