"""Sums of bounded vectors: exact integers that one unit moves by the declared sensitivity at most."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.data.unit_share import share_weights
from expost.models.tabular.lattice_sum import LatticeSum
from expost.noise.bits import SeededBits

LENGTH = 2**20


def sum_of(rule: LatticeSum, vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    total = rule.start()
    rule.add(total, vectors, weights)
    return total


def squared(vector: np.ndarray) -> int:
    return sum(int(value) ** 2 for value in vector)


def hostile_unit(rule: LatticeSum, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a unit that rounding makes as long as it can: longest vectors, entries just above a half."""
    weights = np.full(rows, share_weights(rows)[rows])
    steps = np.floor(rng.random(rule.size) * LENGTH * weights[0] / math.sqrt(rule.size)) + 0.5 + 2.0**-12
    vectors = np.tile(steps / weights[0] / rule.unit, (rows, 1))
    lengths = np.linalg.norm(vectors, axis=1)
    vectors[:, 0] += np.sqrt(np.maximum(rule.longest**2 * (1 - 1e-15) - lengths**2, 0))
    return vectors * np.minimum(1, rule.longest / np.linalg.norm(vectors, axis=1))[:, None], weights


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 400), st.floats(1e-3, 1e3), st.integers(1, 300), st.booleans(), st.data(), st.integers(0, 2**32 - 1)
)
def test_one_unit_moves_the_sum_by_the_sensitivity_at_most(size, longest, most, floor, data, seed) -> None:
    rule = LatticeSum(size, longest, most, floor_first=floor)
    rows = data.draw(st.integers(1, most))
    rng = np.random.default_rng(seed)
    units = [hostile_unit(rule, rows, rng)]
    wild = rng.normal(size=(rows, size))
    units.append((wild / np.linalg.norm(wild, axis=1)[:, None] * longest, units[0][1]))
    units.append((units[0][0] * -1, units[0][1]))

    for vectors, weights in units:
        assert squared(sum_of(rule, vectors, weights)) <= int(rule.sensitivity.amount) ** 2


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_vectors_longer_than_declared_do_not_break_the_sensitivity(size, rows, seed) -> None:
    rule = LatticeSum(size, 1.0, rows)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(rows, size))
    vectors *= (1 + rng.choice([2.0**-31, 1e-9, 1e-7, 1e-5, 1e-3, 1], rows)[:, None]) / np.linalg.norm(vectors, axis=1)[
        :, None
    ]
    vectors = vectors[np.argmax(vectors[:, :1], axis=0)].repeat(rows, axis=0)
    weights = np.full(rows, share_weights(rows)[rows])

    # Even the longest vectors that are let through, all in one direction.
    assert squared(sum_of(rule, vectors, weights)) <= int(rule.sensitivity.amount) ** 2


def test_the_slack_that_lets_vectors_through_is_part_of_the_sensitivity() -> None:
    rows = 1 << 20
    rule = LatticeSum(1, 1.0, rows)
    weights = np.full(rows, 2.0**-20)
    vectors = np.full((rows, 1), 1.5 + 2.0**-11)

    assert squared(sum_of(rule, vectors, weights)) <= int(rule.sensitivity.amount) ** 2


def test_the_rounding_of_a_units_rows_is_needed_in_the_sensitivity() -> None:
    rule = LatticeSum(64, 1.0, 1000)
    vectors, weights = hostile_unit(rule, 1000, np.random.default_rng(1))
    moved = math.sqrt(squared(sum_of(rule, vectors, weights)))

    assert LENGTH + 300 < moved <= rule.sensitivity.amount


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e300, 2.0])
@pytest.mark.parametrize("floor", [False, True])
def test_a_vector_that_is_too_long_or_not_a_number_contributes_zero(odd: float, floor: bool) -> None:
    rule = LatticeSum(2, 1.0, floor_first=floor)
    for vector in ([odd, 0.0], [0.0, odd]):
        with np.errstate(all="ignore"):
            assert sum_of(rule, np.array([vector, [0.5, 0.5]]), np.ones(2)).tolist() == [LENGTH // 2, LENGTH // 2]


def test_the_sum_is_the_same_in_any_order_and_in_any_parts() -> None:
    rng = np.random.default_rng(3)
    rule = LatticeSum(5, 2.0, 7)
    vectors = rng.normal(size=(20_000, 5))
    vectors *= 2 / np.linalg.norm(vectors, axis=1)[:, None]
    weights = share_weights(7)[rng.integers(1, 8, 20_000)]
    whole = sum_of(rule, vectors, weights)
    order = rng.permutation(20_000)

    parts = rule.start()
    for part in np.array_split(order, [0, 1, 2, 77, 8193, 19_999]):
        rule.add(parts, vectors[part].astype(np.float64), weights[part])

    assert parts.tolist() == whole.tolist() == sum_of(rule, vectors[::-1], weights[::-1]).tolist()
    assert (whole - sum_of(rule, vectors[1:], weights[1:])).tolist() == sum_of(rule, vectors[:1], weights[:1]).tolist()


def test_no_rows_have_the_sum_zero() -> None:
    rule = LatticeSum(3, 1.0)
    assert sum_of(rule, np.zeros((0, 3)), np.zeros(0)).tolist() == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-0.7, 0.7), min_size=1, max_size=40), st.integers(1, 5))
def test_a_first_entry_that_is_rounded_down_never_sums_to_more_than_the_exact_one(values, most) -> None:
    rule = LatticeSum(2, 1.0, most, floor_first=True)
    weights = np.full(len(values), share_weights(most)[most])
    exact = sum(Fraction(value) * Fraction(float(weights[0])) * LENGTH for value in values)

    found = int(sum_of(rule, np.column_stack([values, np.zeros(len(values))]), weights)[0])

    assert exact - len(values) <= found <= exact + Fraction(1, 1000)


def test_released_sums_have_noise_of_the_stated_deviation() -> None:
    rule = LatticeSum(4000, 3.0)
    noise = Fraction(5, 2)
    released = rule.release(rule.start(), noise, SeededBits(2))

    assert 0.95 < released.std() / rule.deviation(noise) < 1.05
    assert rule.deviation(noise) == pytest.approx(2.5 * 3, rel=1e-3)


def test_noise_that_cannot_be_drawn_is_refused_from_public_numbers() -> None:
    rule = LatticeSum(3, 1.0)
    rule.check_noise(Fraction(10**5))
    with pytest.raises(InvalidRequest, match="noise"):
        rule.check_noise(Fraction(10**7))
