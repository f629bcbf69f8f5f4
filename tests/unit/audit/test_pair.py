import numpy as np
import pytest

from expost.audit.pair_attack import Outcomes, repeat
from expost.core import InvalidRequest
from expost.noise import SeededBits


def test_one_number_a_run_becomes_a_column():
    assert Outcomes.of([1, 2, 3]).values.shape == (3, 1)
    assert Outcomes.of(np.zeros((3, 2, 2))).values.shape == (3, 4)


def test_a_bill_a_run_is_required():
    with pytest.raises(InvalidRequest, match="one bill per run"):
        Outcomes.of([1, 2, 3], [0.5])


def test_rows_keep_values_and_bills_together():
    some = Outcomes.of([1, 2, 3], [10, 20, 30]).rows(1, 3)

    assert some.values.ravel().tolist() == [2, 3]
    assert some.bills.tolist() == [20, 30]


def test_single_runs_are_gathered():
    numbers = repeat(lambda bits: bits.integer(3))(5, SeededBits(1))
    vectors = repeat(lambda bits: (1, 2))(5, SeededBits(1))
    billed = repeat(lambda bits: Outcomes.of([[1, 2]], [0.5]))(5, SeededBits(1))

    assert numbers.values.shape == (5, 1)
    assert vectors.values.shape == (5, 2)
    assert billed.bills.tolist() == [0.5] * 5


def test_a_bill_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidRequest, match="bills that are numbers"):
        Outcomes.of([1, 2], [1.0, float("nan")])
