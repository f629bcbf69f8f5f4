"""The table draws the very law of the discrete Gaussian, and every border in it is certain."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.distribution.goodness import SAMPLES, WRONG, follows, gaussian_cdf, p_value

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise.gaussian_table import GaussianTable, gaussian_table

mpmath.mp.dps = 60


class Scripted:
    """Bits that are given in advance."""

    def __init__(self, integers: list[int]) -> None:
        self._integers = integers

    def integer(self, length: int) -> int:
        return self._integers.pop(0)


@pytest.mark.parametrize("deviation", [17, 100, 200, 5000.5, 2**29])
def test_samples_follow_the_law(deviation: float) -> None:
    table = GaussianTable(Fraction(deviation) ** 2)

    sample = table.draw(SAMPLES, SeededBits(1))

    assert follows(sample, gaussian_cdf(deviation**2))


def test_a_deviation_ten_percent_off_is_noticed() -> None:
    cdf = gaussian_cdf(100.0**2)

    for factor in WRONG:
        wrong = GaussianTable(Fraction(round(100 * factor)) ** 2).draw(SAMPLES, SeededBits(2))
        assert not follows(wrong, cdf)


def test_low_bits_are_uniform_where_cells_are_wide() -> None:
    sample = GaussianTable(2**50).draw(200_000, SeededBits(3))

    counts = np.bincount(sample & 15, minlength=16)
    chi = ((counts - 12_500) ** 2 / 12_500).sum()
    assert chi < 50  # fifteen degrees of freedom: exceeded with probability 1e-5


@pytest.mark.parametrize("variance", [Fraction(256), Fraction(10_001, 3), Fraction(2**40 + 1)])
def test_every_border_is_the_floor_of_the_exact_sum(variance: Fraction) -> None:
    table = GaussianTable(variance)
    width = mpmath.mpf(2) ** table._shift
    inverse = mpmath.mpf(variance.denominator) / (2 * mpmath.mpf(variance.numerator))
    weights = [mpmath.exp(-((h * width) ** 2) * inverse) for h in range(3000)]
    total, below = mpmath.fsum(weights), mpmath.mpf(0)

    expected = []
    for weight in weights[: len(table._borders)]:
        below += weight
        expected.append(int(mpmath.floor(below / total * 2**64)))

    assert table._borders.tolist() == expected


def test_the_lookup_never_contradicts_the_borders() -> None:
    table = GaussianTable(10**8)
    sure = np.flatnonzero(table._entries & 0xFFFF)
    cells = table._entries[sure] >> 16

    first = np.searchsorted(table._borders, sure.astype(np.uint64) << np.uint64(48), side="left")
    last = np.searchsorted(table._borders, ((sure.astype(np.uint64) + np.uint64(1)) << np.uint64(48)) - np.uint64(1))

    assert (cells == first).all() and (cells == last).all()
    assert len(sure) > 60_000


def test_a_sure_coin_is_below_every_acceptance_of_its_cell() -> None:
    table = GaussianTable(10**8)
    for word in (1000, 30_000, 60_000, 65_500):
        entry = int(table._entries[word])
        cell, sure = entry >> 16, entry & 0xFFFF
        start, place = cell << table._shift, (1 << table._shift) - 1
        worst = mpmath.exp(-mpmath.mpf((2 * start + place) * place) / (2 * 10**8))
        assert mpmath.mpf(sure) / 2**16 < worst


def test_a_tie_of_64_bits_is_decided_by_the_next_ones() -> None:
    table = GaussianTable(10**6)
    tied = int(table._borders[10])
    longer = table._floors(128)[10]
    rest = longer - (tied << 64)

    assert table._exact_cell(tied, 64, Scripted([rest - 1])) == 10
    assert table._exact_cell(tied, 64, Scripted([rest + 1])) == 11


def test_the_far_tail_is_reached_beyond_the_listed_cells() -> None:
    table = GaussianTable(10**6)
    last = (1 << 64) - 1

    cell = table._exact_cell(last, 64, Scripted([last, 0]))

    assert cell >= len(table._borders) - 1
    assert cell << table._shift > 9 * 1000


def test_close_coins_are_decided_exactly() -> None:
    table = GaussianTable(10**8)
    cell, place = 200, 50
    word = np.array([(0x1234 << 17) | (place << (64 - table._shift))], np.uint64)
    chance = mpmath.exp(-mpmath.mpf((2 * (cell << table._shift) + place) * place) / (2 * 10**8))
    nearest = int(chance * 2**64)

    class Near:
        def __init__(self, coin: int, more: int) -> None:
            self.coin, self.more = coin, more

        def words(self, count: int) -> np.ndarray:
            return np.array([(self.coin & ((1 << 48) - 1)) << 16], np.uint64)

        def integer(self, length: int) -> int:
            return self.more

    word = (word & ~np.uint64(0xFFFF << 17)) | np.uint64((nearest >> 48) << 17)
    cells = np.array([cell], np.uint64)

    assert table._kept(cells, word, Near(nearest - 1, 0))[0]
    assert not table._kept(cells, word, Near(nearest + 1, 0))[0]


def test_small_counts_and_no_count_work() -> None:
    table = gaussian_table(Fraction(400))

    assert table.draw(0, SeededBits(1)).shape == (0,)
    assert table.draw(1, SeededBits(1)).dtype == np.int64
    assert gaussian_table(Fraction(400)) is table


def test_tiny_variances_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="variance of at least 256"):
        GaussianTable(100)


def test_zero_has_one_sign_only() -> None:
    sample = GaussianTable(256).draw(400_000, SeededBits(5))
    share = float(np.mean(sample == 0))
    expected = 1 / math.sqrt(2 * math.pi * 256)

    assert abs(share - expected) < 5 * math.sqrt(expected / 400_000)
    assert p_value(sample, gaussian_cdf(256.0)) > 1e-6
