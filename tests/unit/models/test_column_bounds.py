"""Public bounds of columns are two finite numbers each, in order or by name."""

from typing import Any

import numpy as np
import pytest

from expost import InvalidRequest
from expost.models.estimator import is_interval, read_column_bounds


def test_bounds_are_taken_in_order_or_by_name() -> None:
    assert read_column_bounds([(0, 1), (2, np.float32(3))], 2, None) == ((0.0, 2.0), (1.0, 3.0))
    assert read_column_bounds({"b": (2, 3), "a": (0, 1)}, 2, ("a", "b")) == ((0.0, 2.0), (1.0, 3.0))
    assert read_column_bounds((0, 1), 3, None) == read_column_bounds([(0, 1)] * 3, 3, None)  # one pair for all
    assert read_column_bounds(None, 2, None) == (None, None)


@pytest.mark.parametrize(
    "bounds",
    [
        5,
        "ab",
        [(0, 1)],
        [(0, 1)] * 3,
        [(1, 0)] * 2,
        [(0, 1), 3],
        {"a": (0, 1)},
        [(0, float("inf"))] * 2,
        [("0", "1")] * 2,
    ],
    ids=str,
)
def test_anything_else_is_refused(bounds: Any) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        read_column_bounds(bounds, 2, ("a", "b"))


def test_ends_too_close_to_divide_by_are_no_interval() -> None:
    assert is_interval((0, 1e-300)) and not is_interval((0, 1e-310))
    assert not is_interval((-1e200, 1e200))
