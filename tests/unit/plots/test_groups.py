"""The picture of groups."""

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
