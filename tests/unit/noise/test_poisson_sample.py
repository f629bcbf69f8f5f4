"""Each row is in a Poisson sample by an exact coin of its own."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise.poisson_sample import _coins, poisson_sample

ROWS = 200_000


class Words:
    """A source that hands out given words, first bytes, then 64-bit ones."""

    def __init__(self, *batches: list[int], integers: tuple[int, ...] = ()) -> None:
        self._batches, self._integers = list(batches), list(integers)

    def words(self, count: int, dtype: type = np.uint64) -> np.ndarray:
        return np.array(self._batches.pop(0), dtype)

    def integer(self, length: int) -> int:
        return self._integers.pop(0)


@pytest.mark.parametrize("rate", [Fraction(1, 400), Fraction(256, 60_000), Fraction(1, 3), Fraction(255, 256)])
def test_the_size_is_binomial(rate: Fraction) -> None:
    sizes = [len(poisson_sample(rate, ROWS, bits=SeededBits(seed))) for seed in range(20)]

    together = stats.binomtest(sum(sizes), 20 * ROWS, float(rate)).pvalue
    assert together > 1e-6
    for wrong in (0.9, 1.1):
        if float(rate) * wrong < 1:
            assert stats.binomtest(sum(sizes), 20 * ROWS, float(rate) * wrong).pvalue < 1e-9


def test_every_row_has_the_same_chance() -> None:
    counts = sum(
        np.bincount(poisson_sample(Fraction(1, 5), 100, bits=SeededBits(seed)), minlength=100) for seed in range(2000)
    )

    chi = ((counts - 400) ** 2 / (2000 * 0.2 * 0.8)).sum()
    assert stats.chi2.sf(chi, 100) > 1e-6


def test_a_byte_that_ties_is_decided_by_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expost.noise.poisson_sample.source_of", lambda bits: bits)
    third = (1 << 64) // 3  # the digits of 1/3 go on as they began

    sample = poisson_sample(Fraction(1, 3), 4, bits=Words([84, 85, 85, 86], [third - 1, third + 1]))

    assert sample.tolist() == [0, 1]


def test_a_word_that_ties_is_decided_by_exact_digits() -> None:
    border = (1 << 64) // 3

    assert _coins(Fraction(1, 3), 1, Words([border], integers=(border - 1,)))[0]
    assert not _coins(Fraction(1, 3), 1, Words([border], integers=(border + 1,)))[0]


def test_the_ends_are_certain() -> None:
    assert poisson_sample(Fraction(1), 7).tolist() == list(range(7))
    assert poisson_sample(Fraction(0), 1000).tolist() == []
    assert poisson_sample(Fraction(1, 2), 0).tolist() == []


def test_a_rate_that_is_no_probability_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        poisson_sample(Fraction(3, 2), 10)
