from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from tests.unit.noise.scripted import ScriptedBits, words

from expost.noise import BitSource, SeededBits
from expost.noise.enclosure import MINUS_LOG_ERROR, UniformReals, bound_ratio

EDGES = [0, 1, 2, 2**20, 2**44 - 1, 2**44, 2**44 + 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2**11, 2**64 - 2, 2**64 - 1]


def draw_reals(count: int, bits: BitSource) -> UniformReals:
    return UniformReals(bits.words(count), bits)


def test_float_logarithms_stay_within_their_error() -> None:
    spread = np.random.default_rng(1)
    random = spread.integers(0, 2**64, 3000, dtype=np.uint64) >> spread.integers(0, 64, 3000, dtype=np.uint64)
    script = np.concatenate([words(*EDGES), random])
    reals = draw_reals(len(script), ScriptedBits(script))

    floats = reals.minus_log()

    worst = 0
    for index, value in enumerate(floats.tolist()):
        prefix, length = reals.digits(index)
        with mpmath.workprec(length + 100):
            whole = mpmath.mpf(2) ** length
            ends = [-mpmath.log((prefix + 1) / whole), -mpmath.log(prefix / whole)]
            worst = max(worst, *(abs(end - value) for end in ends))
    assert worst < MINUS_LOG_ERROR


def test_small_words_are_refined() -> None:
    reals = draw_reals(3, ScriptedBits(words(0, 5, 2**50), words(0, 2**30, 77, 88)))

    reals.minus_log()

    assert reals.digits(0) == ((2**30 << 64) + 77, 256)  # until the number has more than 64 bits to speak of
    assert reals.digits(1) == ((5 << 64) + 88, 128)
    assert reals.digits(2) == (2**50, 64)


def test_refining_keeps_the_digits_already_drawn() -> None:
    reals = draw_reals(1, SeededBits(1))
    first, _ = reals.digits(0)

    for _ in range(3):
        reals.refine(0)

    prefix, length = reals.digits(0)
    assert length == 256
    assert prefix >> 192 == first


@pytest.mark.parametrize("indices", [(0,), (1, 2), tuple(range(40))])
@pytest.mark.parametrize("length", [10, 96, 400])
def test_bounds_of_sums_enclose_the_sum(indices: tuple[int, ...], length: int) -> None:
    reals = draw_reals(40, SeededBits(2))
    low, high = reals.minus_log_bounds(indices, length)

    with mpmath.workprec(2000):
        ends = []
        for shift in (0, 1):
            parts = [-mpmath.log(mpmath.mpf(reals.digits(i)[0] + shift) / 2**64) for i in indices]
            ends.append(mpmath.fsum(parts) * mpmath.mpf(2) ** length)
    assert low <= ends[1] <= ends[0] <= high


def test_bounds_tighten_as_digits_are_drawn() -> None:
    reals = draw_reals(2, SeededBits(3))
    low, high = reals.minus_log_bounds((0, 1), 150)
    reals.refine(0)
    reals.refine(1)
    finer_low, finer_high = reals.minus_log_bounds((0, 1), 150)

    assert low <= finer_low <= finer_high <= high
    assert finer_high - finer_low < (high - low) / 2**40


def test_coins_do_not_depend_on_where_the_filter_gives_up() -> None:
    thresholds = np.linspace(0, 3, 500)

    def exact(index: int) -> partial:
        return partial(bound_ratio, Fraction(thresholds[index]))

    quick = draw_reals(500, SeededBits(4)).exceed(thresholds, 0.0, exact)
    slow = draw_reals(500, SeededBits(4)).exceed(thresholds, 10.0, exact)

    assert (quick == slow).all()
    assert quick[0]
    assert not quick.all()


def test_a_threshold_at_the_word_itself_is_decided_by_new_digits() -> None:
    border = 2**63 + 12345  # exp(-threshold) falls inside the cell of this word
    with mpmath.workprec(300):
        threshold = Fraction(int(-mpmath.log((border + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64) * 2**250), 2**250)
    below, above = (
        draw_reals(1, ScriptedBits(words(border), words(second))).exceed(
            np.array([float(threshold)]), 0.0, lambda _: partial(bound_ratio, threshold)
        )[0]
        for second in (2**62, 3 * 2**62)
    )

    assert below  # U below the middle of the cell: -ln U above the threshold
    assert not above
