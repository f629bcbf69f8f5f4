"""Clamping to whole steps."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.data.clamp import MOST_STEPS, Clamp

NUMBERS = st.floats(allow_nan=False, allow_infinity=True, width=64)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_every_number_lands_on_a_whole_step_between_the_bounds(numbers: list[float]) -> None:
    steps = Clamp.of((-3.7, 11.1)).to_steps(np.array(numbers))

    assert (steps == np.rint(steps)).all()
    assert ((steps >= 0) & (steps <= MOST_STEPS)).all()


@given(st.integers(-60, 300))
def test_whole_numbers_in_a_short_range_are_kept_as_they_are(number: int) -> None:
    clamp = Clamp.of((-60, 300), whole=True)

    assert clamp.to_value(clamp.to_steps(np.array([float(number)]))[0]) == number
    assert clamp.rounding == 0


@given(st.floats(0, 1))
def test_a_real_number_moves_by_at_most_half_a_step(number: float) -> None:
    clamp = Clamp.of((0, 1))

    moved = abs(clamp.to_value(clamp.to_steps(np.array([number]))[0]) - number)

    assert moved <= float(clamp.rounding) * (1 + 1e-9)
    assert clamp.rounding == Fraction(1, 2 * MOST_STEPS)


def test_a_value_becomes_the_same_step_in_any_company() -> None:
    numbers = np.random.default_rng(1).normal(size=1001)
    clamp = Clamp.of((-2, 2))

    alone = np.array([clamp.to_steps(numbers[k : k + 1])[0] for k in range(len(numbers))])

    np.testing.assert_array_equal(alone, clamp.to_steps(numbers))
    np.testing.assert_array_equal(alone, clamp.to_steps(numbers[::-1])[::-1])


def test_extreme_numbers_warn_nobody() -> None:
    numbers = np.array([1.7e308, -1.7e308, np.inf, -np.inf, 5e-324])

    assert Clamp.of((-1e18, 1)).to_steps(numbers).tolist() == [MOST_STEPS, 0, MOST_STEPS, 0, MOST_STEPS]


@pytest.mark.parametrize("bounds", [None, 5, (1, 1), (2, 1), (0, float("nan")), (0, float("inf")), ("a", "b"), (1,)])
def test_bounds_that_make_no_sense_are_refused(bounds: object) -> None:
    with pytest.raises(InvalidRequest):
        Clamp.of(bounds)


@given(st.integers(-5_000, 12_000), st.sampled_from([0, 1, 2]), st.sampled_from([(-6_000, 13_000), (-5000.7, 12345.6)]))
def test_decimals_further_apart_than_a_step_are_found_again(
    number: int, digits: int, bounds: tuple[float, float]
) -> None:
    scale = 10**digits
    clamp = Clamp.of((bounds[0] / scale, bounds[1] / scale))
    value = number / scale

    assert clamp.to_roundest(int(clamp.to_steps(np.array([value]))[0])) == value


@given(st.integers(0, MOST_STEPS), st.sampled_from([(0, 120), (-1e-9, 3e-9), (1e6, 1e6 + 1e-3), (-1e17, 1e17)]))
def test_the_roundest_number_of_a_step_counts_as_that_step(step: int, bounds: tuple[float, float]) -> None:
    clamp = Clamp.of(bounds)

    assert clamp.to_steps(np.array([clamp.to_roundest(step)]))[0] == step
    assert clamp.to_roundest(0) == bounds[0] and clamp.to_roundest(MOST_STEPS) == bounds[1]
