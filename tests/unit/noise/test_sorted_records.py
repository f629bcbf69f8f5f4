from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Sensitivity
from expost.noise.exponential_quantile import LatticeBounds, SortedRecords, read_share, records_per_unit


def test_records_are_clamped_and_sorted():
    assert SortedRecords.read([9, -5, 3], LatticeBounds(0, 5)).values.tolist() == [0, 3, 5]


def test_no_records_have_a_quantile_too():
    empty = SortedRecords.read(np.array([], dtype=int), LatticeBounds(2, 5))

    assert empty.rank(Fraction(1, 2)) == 0
    assert empty.at(np.array([0, 1])).tolist() == [2, 5]


@pytest.mark.parametrize(("share", "rank"), [(Fraction(1, 2), 3), (Fraction(1, 5), 1), (Fraction(81, 100), 5)])
def test_the_rank_is_the_smallest_that_covers_the_share(share, rank):
    assert SortedRecords.read(range(5), LatticeBounds(0, 9)).rank(share) == rank


def test_windows_slide_over_the_rank():
    records = SortedRecords.read([0, 1, 5, 6, 20], LatticeBounds(0, 20))

    assert records.widest_window(3, 1) == 4
    assert records.widest_window(3, 2) == 15


@pytest.mark.parametrize("ends", [(5, 5), (6, 5), (0.0, 1.0), (0, 1 << 60)])
def test_senseless_bounds_are_refused(ends):
    with pytest.raises(InvalidRequest):
        LatticeBounds(*ends)


def test_a_share_too_fine_for_64_bits_is_refused():
    with pytest.raises(InvalidRequest, match="six decimals"):
        read_share(0.12345678)


def test_half_a_record_a_unit_is_refused():
    with pytest.raises(InvalidRequest, match="whole number"):
        records_per_unit(Sensitivity(Fraction(1, 2)))
