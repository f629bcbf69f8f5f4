import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.odd_numbers import answers

from expost.core import InvalidRequest, Norm, Sensitivity
from expost.noise import Grid, LaplaceMechanism, SeededBits

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(finite, st.integers(-5, 40))
def test_a_number_lands_on_the_next_point_toward_zero(value, bits):
    grid = Grid(-1000.0, 1000.0, bits=bits) if bits <= 40 else None
    inside = Fraction(min(max(value, -1000.0), 1000.0))

    assert int(grid.to_lattice(value)) == math.trunc(inside / grid.step)


@given(finite, finite, st.integers(0, 30))
def test_two_numbers_land_at_most_one_step_further_apart_than_they_are(x, y, bits):
    grid = Grid(-8.0, 8.0, bits=bits)
    left, right = (int(grid.to_lattice(value)) for value in (x, y))

    assert abs(left - right) <= abs(Fraction(x) - Fraction(y)) / grid.step + 1


def test_not_a_number_and_infinities_are_bounds():
    grid = Grid(-2.0, 3.0, bits=4)

    assert grid.to_lattice([math.nan, math.inf, -math.inf]).tolist() == [-32, 48, -32]


def test_rounding_never_makes_a_norm_larger():
    values = np.linspace(-3, 3, 1001)
    grid = Grid(-3.0, 3.0, bits=7)

    assert (np.abs(grid.to_float(grid.to_lattice(values))) <= np.abs(values)).all()


def test_the_rounding_is_inside_the_sensitivity():
    grid = Grid(-1.0, 1.0, bits=10)

    assert grid.rounded(Sensitivity(1), coordinates=3).amount == 1024 + 3
    assert grid.rounded(Sensitivity(1, Norm.LINF), coordinates=3).amount == 1024 + 1
    l2 = grid.rounded(Sensitivity(1, Norm.L2), coordinates=3).amount
    assert 1024 + math.sqrt(3) <= l2 <= 1024 + math.sqrt(3) + 1e-9


def test_neighbours_at_full_distance_stay_within_the_rounded_sensitivity():
    grid, rng = Grid(-1.0, 1.0, bits=6), np.random.default_rng(1)
    for _ in range(300):
        left = rng.uniform(-1, 1, 5)
        step = rng.normal(size=5)
        right = np.clip(left + 0.3 * step / np.abs(step).sum(), -1, 1)
        moved = np.abs(grid.to_lattice(left) - grid.to_lattice(right)).sum()
        assert moved <= grid.rounded(Sensitivity(Fraction(3, 10)), coordinates=5).amount


def test_floats_go_through_the_grid_to_a_mechanism_and_back():
    grid = Grid(0.0, 10.0, bits=20)
    sealed = grid.seal([2.5, 7.25], Sensitivity(1))
    released = grid.to_float(LaplaceMechanism(50).release(sealed, bits=SeededBits(1)))

    assert np.abs(released - [2.5, 7.25]).max() < 0.5


def test_a_record_moves_a_sum_by_its_largest_lattice_value():
    grid = Grid(-1.5, 4.0, bits=2)

    assert grid.largest_step_sum(replace=False) == 16
    assert grid.largest_step_sum(replace=True) == 22


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (-math.inf, 1.0), (math.nan, 1.0), (0.0, 1e300)])
def test_senseless_bounds_are_refused(bounds):
    with pytest.raises(InvalidRequest):
        Grid(*bounds)


def test_no_number_ends_in_an_error_that_is_not_ours():
    for argument, value, grid in answers(Grid, {"low": -1.0, "high": 1.0, "bits": 3}):
        assert grid.lattice_low <= grid.to_lattice(0.3) <= grid.lattice_high, (argument, value)
    for call, usual in ((Grid(-1, 1).to_lattice, {"values": [0.5]}), (Grid(-1, 1).to_float, {"steps": [2]})):
        for argument, value, numbers in answers(call, usual):
            assert numbers.dtype.kind in "if", (argument, value)


@pytest.mark.parametrize("bits", [1.5, True, 100, -100])
def test_a_senseless_number_of_bits_is_refused(bits):
    with pytest.raises(InvalidRequest):
        Grid(0.0, 1.0, bits=bits)
