"""Doubling bins: the corrected threshold, and bounds that hold the data."""

import math

import numpy as np
import pytest

from expost.data.axis import LogBins
from expost.data.expression import Expression
from expost.stats.private_bounds import bin_threshold, outer_bounds


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0, 500.0])
@pytest.mark.parametrize("bins", [1, 8, 82])
@pytest.mark.parametrize("success", [0.5, 0.9, 0.999])
def test_the_threshold_is_the_smallest_that_keeps_empty_bins_down(scale: float, bins: int, success: float) -> None:
    threshold = bin_threshold(success, scale, bins)
    a = math.exp(-1 / scale)

    def all_down(t: int) -> float:
        return (1 - a ** (t + 1) / (1 + a)) ** bins

    assert all_down(threshold) >= success * (1 - 1e-9)
    assert threshold == 0 or all_down(threshold - 1) < success


def test_the_threshold_approaches_the_corrected_formula() -> None:
    # 4 bins on each side, success 0.9, scale 1: 3.64, not 3.5 and not negative.
    fine = bin_threshold(0.9, 1e5, 8) / 1e5

    assert fine == pytest.approx(math.log(1 / (2 * (1 - 0.9 ** (1 / 8)))), abs=1e-3) == pytest.approx(3.64, abs=0.01)


@pytest.mark.parametrize(
    ("filled", "bounds"),
    [
        ([4], (0.0, 1.0)),
        ([5, 6], (1.0, 4.0)),
        ([3], (-1.0, 0.0)),
        ([0, 7], (-8.0, 8.0)),
        ([1, 2], (-4.0, -1.0)),
    ],
)
def test_bounds_are_the_outer_ends_of_the_outermost_filled_bins(filled: list[int], bounds: tuple[float, float]) -> None:
    noisy = np.zeros(8)
    noisy[filled] = 100

    found = outer_bounds(noisy, 10, LogBins(Expression(), 1.0, 4))

    assert found == bounds


def test_nothing_is_found_where_nothing_stands_out() -> None:
    assert outer_bounds(np.full(8, 10), 10, LogBins(Expression(), 1.0, 4)) is None
