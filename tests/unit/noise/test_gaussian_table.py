"""The table draws the very law of the discrete Gaussian, and every border in it is certain."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.distribution.goodness import SAMPLES, WRONG, follows, gaussian_cdf, p_value

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise.gaussian_stream import GaussianTable, _cell_of, gaussian_table

mpmath.mp.dps = 60


class Scripted:
    """Bits that are given in advance."""

    def __init__(self, integers: list[int]) -> None:
        self._integers = integers

    def integer(self, length: int) -> int:
        return self._integers.pop(0)

    def words(self, count: int) -> np.ndarray:
        raise AssertionError("No further words are needed.")


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


@pytest.mark.parametrize(
    ("power", "place", "kind"), [(42, 2, np.int32), (44, 2, np.int32), (46, 4, np.int32), (58, 8, np.int64)]
)
def test_all_bits_of_a_place_are_uniform_whatever_words_it_is_drawn_from(power: int, place: int, kind: type) -> None:
    table = GaussianTable(2**power)
    sample = table.draw(200_000, SeededBits(3))

    assert (table._places.itemsize, sample.dtype) == (place, kind)
    for low in range(table._shift - 3):
        counts = np.bincount((sample >> low) & 15, minlength=16)
        chi = ((counts - 12_500) ** 2 / 12_500).sum()
        assert chi < 60  # fifteen degrees of freedom: exceeded with probability 3e-7


@pytest.mark.parametrize("power", [42, 44, 46])
def test_a_place_does_not_depend_on_the_cell_or_on_its_neighbours_place(power: int) -> None:
    table = GaussianTable(2**power)
    sample = table.draw(200_000, SeededBits(6))
    places, cells = (sample & ((1 << table._shift) - 1)).astype(float), (sample >> table._shift).astype(float)

    for one, two in ((places, cells), (places[1:], places[:-1]), (places[1:], cells[:-1]), (places, np.abs(cells))):
        assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(200_000)


def test_values_of_32_bits_leave_room_for_a_sum_of_two() -> None:
    class Far(GaussianTable):
        def _find_numbers(self, uniform, bits):  # type: ignore[no-untyped-def]
            numbers = super()._find_numbers(uniform, bits)
            numbers[0] = 2 * (2**30 >> self._shift) + self.further
            return numbers

        def _flip_coins(self, numbers, offsets, coins, bits):  # type: ignore[no-untyped-def]
            return np.ones(len(numbers), bool)

    table = Far(2**40)
    table.further = -2
    assert table.draw(5000, SeededBits(4)).dtype == np.int32
    table.further = 0
    assert table.draw(5000, SeededBits(4)).dtype == np.int64


def largest_member(cell: int, shift: int) -> int:
    """The member of a cell that is nearest to zero, in magnitude."""
    return cell << shift if cell >= 0 else ((-cell - 1) << shift) + 1


class Law:
    """Probabilities of the cells by brute force, in the order of their numbers."""

    def __init__(self, table: GaussianTable) -> None:
        self.inverse = mpmath.mpf(table.variance.denominator) / (2 * mpmath.mpf(table.variance.numerator))
        cells = [cell for half in range(3000) for cell in (half, -half - 1)]
        self.largest = [largest_member(cell, table._shift) for cell in cells]
        weights = [mpmath.exp(-(mpmath.mpf(a) ** 2) * self.inverse) for a in self.largest]
        total = mpmath.fsum(weights)
        self.chances = [weight / total for weight in weights]

    def exponent(self, number: int, further: int) -> mpmath.mpf:
        return (2 * self.largest[number] + further) * further * self.inverse


VARIANCES = [Fraction(256), Fraction(10_001, 3), Fraction(2**40 + 1), Fraction(2**58 - 7)]


@pytest.mark.parametrize("variance", VARIANCES)
def test_every_border_is_the_floor_of_the_exact_sum(variance: Fraction) -> None:
    table, below, expected = GaussianTable(variance), mpmath.mpf(0), []
    left = 1 - mpmath.mpf(sum(table._counts)) / 2**16
    counts = table._counts + [0] * len(table._borders)

    for chance, count in zip(Law(table).chances, counts[: len(table._borders)], strict=False):
        below += chance - mpmath.mpf(count) / 2**16
        expected.append(int(mpmath.floor(below / left * 2**64)))

    assert table._borders.tolist() == expected


@pytest.mark.parametrize("variance", VARIANCES)
def test_no_step_is_higher_than_the_law_anywhere_in_its_cell(variance: Fraction) -> None:
    table, used = GaussianTable(variance), 0
    law, last = Law(table), (1 << table._shift) - 1

    for number, count in enumerate(table._counts):
        lowest = law.chances[number] * mpmath.exp(-law.exponent(number, last))
        assert mpmath.mpf(count) / 2**16 <= lowest
        used += count

    assert 0.98 * 2**16 < used < 2**16  # so that nearly all values are drawn by the table


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_entries_are_the_cells_as_often_as_they_were_counted(variance: Fraction) -> None:
    table = GaussianTable(variance)
    cells, counts = np.unique(table._entries[: table._named], return_counts=True)

    expected = {int(_cell_of(np.array(j))) << table._shift: count for j, count in enumerate(table._counts) if count}

    assert dict(zip(cells.tolist(), counts.tolist(), strict=True)) == expected
    assert table._named == sum(table._counts) < len(table._entries) == 2**16


@pytest.mark.parametrize("number", [0, 1, 2, 77, 130, 333, 600])
def test_steps_and_coins_together_give_every_member_its_probability(number: int) -> None:
    table = GaussianTable(10**8)
    law, one = Law(table), mpmath.mpf(2) ** 200
    step = mpmath.mpf(table._counts[number]) / 2**16

    for further in (0, 1, 40, (1 << table._shift) - 1):
        exponent = Fraction((2 * law.largest[number] + further) * further, 2 * 10**8)
        low, high = table._bound_acceptance(number, exponent, 200)
        wanted = law.chances[number] * mpmath.exp(-law.exponent(number, further))
        drawn = [step + (law.chances[number] - step) * bound / one for bound in (low, high)]

        assert drawn[0] <= wanted * (1 + mpmath.mpf(10) ** -50)
        assert drawn[1] >= wanted * (1 - mpmath.mpf(10) ** -50)
        assert drawn[1] - drawn[0] < mpmath.mpf(2) ** -195


def test_cells_are_numbered_from_the_middle_outwards() -> None:
    assert _cell_of(np.arange(6)).tolist() == [0, -1, 1, -2, 2, -3]


def test_the_guide_never_contradicts_the_borders() -> None:
    table = GaussianTable(10**8)
    shift = np.uint64(64 - 14)
    sure = np.flatnonzero(table._guide >= 0)
    begins = sure.astype(np.uint64) << shift

    first = np.searchsorted(table._borders, begins, side="left")
    last = np.searchsorted(table._borders, begins + np.uint64((1 << 50) - 1), side="left")

    assert (first == last).all()
    assert (table._guide[sure] == first).all()
    assert len(sure) > 15_000


def test_a_tie_of_64_bits_is_decided_by_the_next_ones() -> None:
    table = GaussianTable(10**6)
    tied = int(table._borders[10])
    rest = table._compute_floors(128)[10] - (tied << 64)

    assert table._exact_number(tied, 64, Scripted([rest - 1])) == 10
    assert table._exact_number(tied, 64, Scripted([rest + 1])) == 11
    assert table._find_numbers(np.array([tied - 1, tied, tied + 1], np.uint64), Scripted([rest + 1])).tolist() == [
        10,
        11,
        11,
    ]


def test_the_far_tail_is_reached_beyond_the_listed_cells() -> None:
    table = GaussianTable(10**6)
    last = (1 << 64) - 1

    number = table._exact_number(last, 64, Scripted([last, 0]))

    assert number >= len(table._borders) - 1
    assert abs(int(_cell_of(np.array([number]))[0])) << table._shift > 9 * 1000


@pytest.mark.parametrize("number", [0, 400, 401, 1000])
def test_close_coins_are_decided_exactly(number: int) -> None:
    table = GaussianTable(10**8)
    law, further = Law(table), 50
    offset = np.array([further if number % 2 == 0 else (1 << table._shift) - 1 - further])
    share = mpmath.mpf(table._counts[number]) / 2**16 / law.chances[number]
    nearest = int((mpmath.exp(-law.exponent(number, further)) - share) / (1 - share) * 2**64)

    def kept(coin: int) -> bool:
        return bool(table._flip_coins(np.array([number]), offset, np.array([coin], np.uint64), Scripted([]))[0])

    assert kept(nearest - 1)
    assert not kept(nearest + 1)


def test_refused_values_are_replaced_by_fresh_ones_even_if_many_are() -> None:
    class Picky(GaussianTable):
        def _fill(self, out, scratch, bits):  # type: ignore[no-untyped-def]
            left_open = super()._fill(out, scratch, bits)
            if len(out) < 40:
                return left_open
            return np.union1d(left_open, np.arange(0, len(out), 3))

        def _draw_above_steps(self, count, bits):  # type: ignore[no-untyped-def]
            found, kept = super()._draw_above_steps(count, bits)
            refused = np.arange(count) % 8 > 0 if count > 10 else ~kept
            return np.where(refused, 10**9, found), ~refused & kept

    sample = Picky(10**6).draw(3000, SeededBits(4))

    assert sample.shape == (3000,)
    assert np.abs(sample).max() < 10**4
    assert 900 < sample.std() < 1100


def test_a_value_that_32_bits_cannot_hold_is_drawn_all_the_same() -> None:
    class Far(GaussianTable):
        def _find_numbers(self, uniform, bits):  # type: ignore[no-untyped-def]
            numbers = super()._find_numbers(uniform, bits)
            numbers[0] = 2**30
            return numbers

        def _flip_coins(self, numbers, offsets, coins, bits):  # type: ignore[no-untyped-def]
            return np.ones(len(numbers), bool)

    sample = Far(2**40).draw(5000, SeededBits(4))

    assert sample.dtype == np.int64
    assert 2**29 <= int(sample.max()) >> Far(2**40)._shift < 2**29 + 1
    assert np.sort(sample)[-2] < 10 * 2**20


def test_positive_and_negative_values_are_mirrored() -> None:
    sample = GaussianTable(10**6).draw(400_000, SeededBits(9))

    assert abs(np.mean(np.sign(sample))) < 5 / math.sqrt(400_000)
    assert p_value(-sample, gaussian_cdf(1e6)) > 1e-6


def test_small_counts_and_no_count_work() -> None:
    table = gaussian_table(Fraction(400))

    assert table.draw(0, SeededBits(1)).shape == (0,)
    assert table.draw(1, SeededBits(1)).dtype == np.int32
    assert GaussianTable(2**58).draw(1, SeededBits(1)).dtype == np.int64
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


@pytest.mark.parametrize("count", [0, 1, 5000, 150_000])
def test_values_drawn_in_a_used_buffer_are_those_drawn_in_a_new_one(count: int) -> None:
    table = GaussianTable(10**8)
    buffer = table.make_buffer(count)
    buffer[:] = 77

    found = table.draw(count, SeededBits(4), buffer=buffer)

    assert np.shares_memory(found, buffer) or not count
    assert (found == table.draw(count, SeededBits(4))).all()
