"""Each row is in a Poisson sample by an exact coin of its own."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise.coin import _flip_coins, _RowDistances, sample_rows

ROWS = 200_000


class Words:
    """A source that hands out given words, first short ones, then 64-bit ones."""

    def __init__(self, *batches: list[int], integers: tuple[int, ...] = ()) -> None:
        self._batches, self._integers = list(batches), list(integers)

    def words(self, count: int, dtype: type = np.uint64) -> np.ndarray:
        return np.array(self._batches.pop(0), dtype)

    def integer(self, length: int) -> int:
        return self._integers.pop(0)


@pytest.mark.parametrize("rate", [Fraction(1, 400), Fraction(256, 60_000), Fraction(1, 3), Fraction(255, 256)])
def test_the_size_is_binomial(rate: Fraction) -> None:
    sizes = [len(sample_rows(rate, ROWS, bits=SeededBits(seed))) for seed in range(20)]

    together = stats.binomtest(sum(sizes), 20 * ROWS, float(rate)).pvalue
    assert together > 1e-6
    for wrong in (0.9, 1.1):
        if float(rate) * wrong < 1:
            assert stats.binomtest(sum(sizes), 20 * ROWS, float(rate) * wrong).pvalue < 1e-9


def test_every_row_has_the_same_chance() -> None:
    counts = sum(
        np.bincount(sample_rows(Fraction(1, 5), 100, bits=SeededBits(seed)), minlength=100) for seed in range(2000)
    )

    chi = ((counts - 400) ** 2 / (2000 * 0.2 * 0.8)).sum()
    assert stats.chi2.sf(chi, 100) > 1e-6


def test_a_byte_that_ties_is_decided_by_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expost.noise.coin.resolve_bits", lambda bits: bits)
    third = (1 << 64) // 3  # the digits of 1/3 go on as they began

    sample = sample_rows(Fraction(1, 3), 4, bits=Words([84, 85, 85, 86], [third - 1, third + 1]))

    assert sample.tolist() == [0, 1]


def test_a_word_that_ties_is_decided_by_exact_digits() -> None:
    border = (1 << 64) // 3

    assert _flip_coins(Fraction(1, 3), 1, Words([border], integers=(border - 1,)))[0]
    assert not _flip_coins(Fraction(1, 3), 1, Words([border], integers=(border + 1,)))[0]


@pytest.mark.parametrize("rate", [Fraction(1, 32), Fraction(256, 20_000), Fraction(77, 12_345), Fraction(1, 2**32)])
def test_the_borders_of_distances_are_exact(rate: Fraction) -> None:
    distances = _RowDistances(rate)

    out = Fraction(1)
    for floor in distances._borders.tolist():
        out *= 1 - rate
        assert floor == math.floor((1 - out) * 2**64)
    assert len(distances._borders) == distances._reach == min(512, math.ceil(4 / rate))
    assert distances._step == pytest.approx(float((1 - out) / rate))


@pytest.mark.parametrize("rate", [Fraction(1, 32), Fraction(256, 20_000), Fraction(1, 3000)])
def test_the_first_bits_tell_a_distance_only_where_all_reals_agree(rate: Fraction) -> None:
    distances = _RowDistances(rate)
    first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    ends = [np.searchsorted(distances._borders, first | np.uint64(rest), side="left") for rest in (0, 2**48 - 1)]
    ties = [np.isin(first | np.uint64(rest), distances._borders) for rest in (0, 2**48 - 1)]

    sure = (ends[0] == ends[1]) & ~ties[0] & ~ties[1]

    assert (distances._guide == np.where(sure, ends[0], -1)).all()
    assert np.count_nonzero(~sure) <= distances._reach


@pytest.mark.parametrize("rate", [Fraction(1, 32), Fraction(1, 400), Fraction(1, 5000)])
def test_distances_are_geometric(rate: Fraction) -> None:
    samples = [sample_rows(rate, int(25_000 / rate), bits=SeededBits(seed)) for seed in range(4)]
    found = np.concatenate([np.diff(sample) for sample in samples])
    # Those that end behind the last row are not seen; so few that the law does not show it.
    cuts = stats.geom.ppf(np.linspace(0, 1, 21)[1:-1], float(rate))

    def p_value(wanted: float) -> float:
        shares = np.diff(stats.geom.cdf(cuts, wanted), prepend=0.0, append=1.0)
        counts = np.bincount(np.searchsorted(cuts, found, side="left"), minlength=20)
        return float(stats.chisquare(counts, shares * len(found)).pvalue)

    assert p_value(float(rate)) > 1e-4
    assert p_value(float(rate) * 0.9) < 1e-6 and p_value(float(rate) * 1.1) < 1e-6


def test_every_row_has_the_same_small_chance_and_neighbours_are_strangers() -> None:
    rate, rows = Fraction(1, 40), 120
    seen = np.zeros((8000, rows), bool)
    for seed in range(8000):
        seen[seed, sample_rows(rate, rows, bits=SeededBits(seed))] = True

    counts, expected = seen.sum(axis=0), 8000 / 40
    assert stats.chi2.sf(((counts - expected) ** 2 / (expected * 39 / 40)).sum(), rows) > 1e-6
    assert stats.chi2.sf(((counts * 1.1 - expected) ** 2 / (expected * 39 / 40)).sum(), rows) < 1e-6
    for lag in (1, 2, 7):
        pairs = (seen[:, lag:] & seen[:, :-lag]).sum()
        assert stats.binomtest(int(pairs), 8000 * (rows - lag), 1 / 1600).pvalue > 1e-4


def test_a_distance_on_a_border_is_decided_by_exact_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = Fraction(256, 20_000)
    distances = _RowDistances(rate)
    border = int(distances._borders[6])
    word, rest = border >> 48, (border & (1 << 48) - 1) << 16
    assert distances._guide[word] == -1

    exact = (1 - (1 - rate) ** 7) * 2**128
    further = math.floor(exact) - (border << 64)

    for digits, number in ((further - 1, 6), (further + 1, 7)):
        found = distances.count_borders(1, Words([word], [rest], integers=(digits,)))
        assert found.tolist() == [number]


def test_reals_above_all_borders_say_that_the_next_rows_are_out() -> None:
    distances = _RowDistances(Fraction(1, 100))
    far = (1 << 16) - 1
    # 400 rows out, then row 400 in, then row 800, which is behind the last.
    words = [far, 0, *[far] * 20]

    assert distances._reach == 400 and distances._guide[far] == 400 and distances._guide[0] == 0
    assert distances.sample(800, Words(words, [])).tolist() == [400]


def test_rates_on_both_sides_of_the_border_have_the_same_law() -> None:
    for rate in (Fraction(1, 31), Fraction(1, 33)):
        sizes = [len(sample_rows(rate, ROWS, bits=SeededBits(seed))) for seed in range(20)]
        assert stats.binomtest(sum(sizes), 20 * ROWS, float(rate)).pvalue > 1e-4
        assert (
            stats.kstest([(size - ROWS * rate) / math.sqrt(ROWS * rate * (1 - rate)) for size in sizes], "norm").pvalue
            > 1e-3
        )


def test_the_ends_are_certain() -> None:
    assert sample_rows(Fraction(1), 7).tolist() == list(range(7))
    assert sample_rows(Fraction(0), 1000).tolist() == []
    assert sample_rows(Fraction(1, 2), 0).tolist() == []
    assert sample_rows(Fraction(1, 50), 0).tolist() == []
    assert sample_rows(Fraction(1, 2**40), 1000).tolist() == []


def test_a_rate_that_is_no_probability_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        sample_rows(Fraction(3, 2), 10)
