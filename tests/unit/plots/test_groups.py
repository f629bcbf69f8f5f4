"""The picture of groups."""

import datetime
from fractions import Fraction

import numpy as np
import pytest

from expost.core import PureGuarantee, PureLoss, Receipt, Release
from expost.plots.release_plot import draw_groups
from expost.stats import Group, GroupRelease, Groups

RECEIPT = Receipt(question="count of rows by city", method="m", promise=PureGuarantee(1), bill=PureLoss(0.5))


def release(count: int, *, met: bool = True) -> GroupRelease:
    rows = tuple(
        Group(f"city {k}", 10.0 * k, low=10.0 * k - 2, high=10.0 * k + 3, epsilon=Fraction(1), met=met or k > 0)
        for k in range(count)
    )
    return GroupRelease(Groups(("city",), rows), RECEIPT)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_groups_are_drawn_to_a_file(ending: str, tmp_path) -> None:
    draw_groups(release(5), path=tmp_path / f"groups.{ending}")

    assert (tmp_path / f"groups.{ending}").stat().st_size > 1000


def test_groups_that_missed_are_marked_and_too_many_are_counted() -> None:
    figure = draw_groups(release(80, met=False))
    (axes,) = figure.axes

    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["value and interval", "target not met"]
    assert "20 more groups not shown" in axes.get_title(loc="left")
    assert len(axes.get_yticks()) == 60


def test_a_matrix_is_drawn_entry_by_entry_beside_the_scale_of_its_colours() -> None:
    value = np.array([[4.0, 1.0], [1.0, 9.0]])
    matrix, scale = draw_groups(Release(value, RECEIPT, (value - 1, value + 1))).axes

    assert [text.get_text() for text in matrix.texts][:2] == ["4\n± 1", "1\n± 1"]
    assert scale.get_ylabel() == "as a correlation"


def test_counts_over_time_are_a_line_with_a_band_from_left_to_right() -> None:
    days = [datetime.date(2024, 3, 1), datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]
    rows = tuple(Group(day, 5.0, low=4.0, high=7.0, epsilon=Fraction(1), met=True) for day in days)
    (axes,) = draw_groups(GroupRelease(Groups(("when",), rows), RECEIPT)).axes

    assert list(axes.lines[0].get_xdata()) == sorted(days)
    assert len(axes.collections) == 1 and axes.get_ylim()[0] == 0


def test_an_interval_without_limits_has_no_bar() -> None:
    lost = Group("Rome", 5.0, low=-np.inf, high=np.inf, epsilon=Fraction(1), met=True)
    figure = draw_groups(GroupRelease(Groups(("city",), (lost,)), RECEIPT))

    figure.canvas.draw()
    assert np.isfinite(figure.axes[0].get_xlim()).all()
