"""The table draws the very law of the discrete Gaussian, and every border in it is certain."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.distribution.goodness import SAMPLES, WRONG, follows, gaussian_cdf, p_value

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise.gaussian_table import GaussianTable, _cell, gaussian_table

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


def largest_member(cell: int, shift: int) -> int:
    """The member of a cell that is nearest to zero, in magnitude."""
    return cell << shift if cell >= 0 else ((-cell - 1) << shift) + 1


@pytest.mark.parametrize("variance", [Fraction(256), Fraction(10_001, 3), Fraction(2**40 + 1)])
def test_every_border_is_the_floor_of_the_exact_sum(variance: Fraction) -> None:
    table = GaussianTable(variance)
    inverse = mpmath.mpf(variance.denominator) / (2 * mpmath.mpf(variance.numerator))
    cells = [cell for half in range(3000) for cell in (half, -half - 1)]
    weights = [mpmath.exp(-(mpmath.mpf(largest_member(cell, table._shift)) ** 2) * inverse) for cell in cells]
    total, below = mpmath.fsum(weights), mpmath.mpf(0)

    expected = []
    for weight in weights[: len(table._borders)]:
        below += weight
        expected.append(int(mpmath.floor(below / total * 2**64)))

    assert table._borders.tolist() == expected


def test_cells_are_numbered_from_the_middle_outwards() -> None:
    assert _cell(np.arange(6)).tolist() == [0, -1, 1, -2, 2, -3]


def test_the_lookup_never_contradicts_the_borders() -> None:
    table = GaussianTable(10**8)
    sure = np.flatnonzero(table._entries & 0xFFFF)
    cells = table._entries[sure] >> 16

    begins = sure.astype(np.uint64) << np.uint64(48)
    first = np.searchsorted(table._borders, begins, side="left")
    last = np.searchsorted(table._borders, begins + np.uint64((1 << 48) - 1), side="left")

    assert (first == last).all()
    assert (cells == _cell(first)).all()
    assert len(sure) > 60_000


@pytest.mark.parametrize("word", [1000, 30_000, 60_000, 65_400])
def test_a_sure_coin_is_below_every_acceptance_of_its_cell(word: int) -> None:
    table = GaussianTable(10**8)
    entry = int(table._entries[word])
    cell, sure = entry >> 16, entry & 0xFFFF
    a, place = largest_member(cell, table._shift), (1 << table._shift) - 1

    assert mpmath.mpf(sure) / 2**16 < mpmath.exp(-mpmath.mpf((2 * a + place) * place) / (2 * 10**8))


def test_a_tie_of_64_bits_is_decided_by_the_next_ones() -> None:
    table = GaussianTable(10**6)
    tied = int(table._borders[10])
    rest = table._floors(128)[10] - (tied << 64)

    assert table._exact_number(tied, 64, Scripted([rest - 1])) == 10
    assert table._exact_number(tied, 64, Scripted([rest + 1])) == 11


def test_the_far_tail_is_reached_beyond_the_listed_cells() -> None:
    table = GaussianTable(10**6)
    last = (1 << 64) - 1

    number = table._exact_number(last, 64, Scripted([last, 0]))

    assert number >= len(table._borders) - 1
    assert abs(int(_cell(np.array([number]))[0])) << table._shift > 9 * 1000


@pytest.mark.parametrize("cell", [200, -201])
def test_close_coins_are_decided_exactly(cell: int) -> None:
    table = GaussianTable(10**8)
    width, inside = 1 << table._shift, 50
    place = inside if cell >= 0 else width - 1 - inside
    a = largest_member(cell, table._shift)
    nearest = int(mpmath.exp(-mpmath.mpf((2 * a + inside) * inside) / (2 * 10**8)) * 2**64)
    word = np.array([(place << (64 - table._shift)) | ((nearest >> 48) << 16)], np.uint64)

    class Near:
        def __init__(self, coin: int) -> None:
            self.coin = coin

        def words(self, count: int) -> np.ndarray:
            return np.array([(self.coin & ((1 << 48) - 1)) << 16], np.uint64)

        def integer(self, length: int) -> int:
            return 0

    cells = np.array([cell])
    assert table._kept(cells, word, Near(nearest - 1))[0]
    assert not table._kept(cells, word, Near(nearest + 1))[0]


def test_positive_and_negative_values_are_mirrored() -> None:
    sample = GaussianTable(10**6).draw(400_000, SeededBits(9))

    assert abs(np.mean(np.sign(sample))) < 5 / math.sqrt(400_000)
    assert p_value(-sample, gaussian_cdf(1e6)) > 1e-6


def test_small_counts_and_no_count_work() -> None:
    table = gaussian_table(Fraction(400))

    assert table.draw(0, SeededBits(1)).shape == (0,)
    assert table.draw(1, SeededBits(1)).dtype == np.int64
    assert gaussian_table(Fraction(400)) is table


def test_tiny_variances_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="variance of at least 256"):
        GaussianTable(100)


def test_zero_is_as_likely_as_it_should_be() -> None:
    sample = GaussianTable(256).draw(400_000, SeededBits(5))
    share = float(np.mean(sample == 0))
    expected = 1 / math.sqrt(2 * math.pi * 256)

    assert abs(share - expected) < 5 * math.sqrt(expected / 400_000)
    assert p_value(sample, gaussian_cdf(256.0)) > 1e-6
