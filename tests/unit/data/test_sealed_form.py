"""What one row adds is bounded exactly as each form says, and what is sealed gives the statistic back."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.data.clamp import Clamp
from expost.data.sealed_form import (
    CountForm,
    MomentForm,
    ShareForm,
    SquareForm,
    TotalForm,
    TreeForm,
    sealed_integers,
)
from expost.data.tally import PowerSums

SMALL = Clamp.of((-3, 5), whole=True)
ODD = Clamp(Fraction(-1, 10), Fraction(37, 10), 7)
ONE_COLUMN = [TotalForm(SMALL), TotalForm(ODD), ShareForm(SMALL), ShareForm(ODD), SquareForm(SMALL), SquareForm(ODD)]


def row(form, clamps, steps) -> np.ndarray:
    """What one row of these steps adds."""
    values = np.array([[float(step)] for step in steps])
    return form.coordinates(PowerSums.of(None, values, cells=1, degree=2))[:, 0]


@pytest.mark.parametrize("form", ONE_COLUMN, ids=repr)
def test_row_size_and_spread_are_attained_and_never_exceeded(form) -> None:
    vectors = [row(form, (form.clamp,), (step,)) for step in range(form.clamp.steps + 1)]
    sizes = [int(np.abs(vector).sum()) for vector in vectors]
    spreads = [int(np.abs(a - b).sum()) for a in vectors for b in vectors]

    assert max(sizes) == form.row_size
    assert max(spreads) == form.row_spread


def test_moments_of_several_columns_stay_within_their_row_size() -> None:
    form = MomentForm((SMALL, ODD))
    vectors = [row(form, form.clamps, (a, b)) for a in range(SMALL.steps + 1) for b in range(ODD.steps + 1)]

    assert max(int(np.abs(vector).sum()) for vector in vectors) == form.row_size
    assert all(len(vector) == form.size for vector in vectors)


def test_a_count_adds_one() -> None:
    assert row(CountForm(), (), (0,)).tolist() == [1]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=30))
def test_shares_give_count_sum_and_squares_back(steps: list[int]) -> None:
    sums = PowerSums.of(None, np.array([steps], dtype=float), cells=1, degree=2)
    values = [float(ODD.low + step * ODD.step) for step in steps]

    up, down = ShareForm(ODD).coordinates(sums)[:, 0]
    square, cross, rest = SquareForm(ODD).coordinates(sums)[:, 0]
    total = TotalForm(ODD).coordinates(sums)[0, 0] * TotalForm(ODD).unit

    assert up + down == 7 * len(steps) and square + cross + rest == 49 * len(steps)
    assert float(total) == pytest.approx(sum(values))
    assert (square + cross / 2) / 49 == pytest.approx(up / 7)
    assert square == sum(step * step for step in steps)


@pytest.mark.parametrize("branches", [(8,), (8, 8), (2, 3, 5)])
def test_prefixes_of_a_tree_are_cumulated_leaves(branches: tuple[int, ...]) -> None:
    form = TreeForm(branches)
    counts = np.random.default_rng(2).integers(0, 9, 2 * form.leaves)

    nodes = form.coordinates(PowerSums(counts, np.zeros((0, 0)), np.zeros((0, 0))))

    leaves = counts.reshape(2, -1)
    expected = np.concatenate([np.zeros((1, 2)), np.cumsum(leaves.T, axis=0)])
    np.testing.assert_array_equal(form.prefixes(nodes), expected)
    one = np.zeros(2 * form.leaves, int)
    one[3] = 1
    assert form.coordinates(PowerSums(one, np.zeros((0, 0)), np.zeros((0, 0)))).sum() == form.row_size


@pytest.mark.parametrize("branches", [(8,), (4, 6), (2, 3, 5)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_weights_of_an_edge_are_those_of_its_prefix(branches: tuple[int, ...], share: float) -> None:
    form = TreeForm(branches)
    before = form.prefixes(np.eye(form.size))  # one column per node

    found = np.sort(np.abs(before - share * before[-1]).T, axis=0)[::-1]

    listed = np.sort(form.edge_weights(share), axis=0)[::-1]
    kept = min(len(listed), len(found))
    np.testing.assert_allclose(listed[:kept], found[:kept], atol=1e-12)
    assert not found[kept:].any() and not listed[kept:].any()


def test_a_noisy_parent_lowers_the_noise_of_its_children() -> None:
    form = TreeForm((8, 8))
    before = form.prefixes(np.eye(form.size))

    # Without the parent, seven children of one node and the nodes before them would count with a weight of one each.
    assert (before[7] ** 2).sum() < 7 and (before[15] ** 2).sum() < 1 + 7


@pytest.mark.parametrize("scale", [1, 2**31, 2**53, 2**62, 2**63, 2**70])
def test_the_sealed_type_depends_on_the_form_and_not_on_the_sums(scale: int) -> None:
    whole, real = Clamp.of((0, 120), whole=True), Clamp.of((-1, 1))
    forms = {
        CountForm(): np.int64,
        TotalForm(whole): np.int64,
        ShareForm(real): np.int64,
        TotalForm(Clamp(Fraction(0), Fraction(1), 1 << 37)): object,
        SquareForm(real): object,
        MomentForm((whole, real)): object,
    }
    for form, kind in forms.items():
        for value in (0, scale - 1, scale, scale + 1):
            sums = PowerSums(*(np.full(shape, value, dtype=object) for shape in ((2,), (2, 2), (3, 2))))
            assert sealed_integers(form, sums).dtype == kind
