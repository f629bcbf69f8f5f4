"""Gradients and curvatures together are exact integers that one row moves by a public length at most."""

import math

import numpy as np
import pytest

from expost.core import Adjacency, InvalidRequest, Norm, unseal
from expost.models.descent import clipped_gradient
from expost.models.descent.clipped_gradient import CurvedGradient, check_curved
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.score_head import Huber, Logistic, Squared

HEADS = [Logistic(), Squared(), Huber(width=0.2)]
ROWS = 200


class Case:
    """A table, weights, and the sums over them."""

    def __init__(self, head: object = HEADS[0], *, clip: float = 0.5, noise: float = 3.0) -> None:
        rng = np.random.default_rng(5)
        self.raw = rng.normal(size=(ROWS, 6)) * rng.lognormal(size=(ROWS, 1)) * 2
        self.targets = rng.integers(0, 2, ROWS) if head.name == "logistic" else rng.uniform(-1, 1, ROWS)
        self.weights = rng.normal(size=(1, 7))
        self.grid = FeatureGrid(6, bound=2.0)
        self.rows = self.grid.encode_rows(self.raw)
        self.rule = CurvedGradient(self.grid, head, clip, noise)

    def total(self, index: object = slice(None)) -> np.ndarray:
        return unseal(self.rule.measure(self.rows, self.targets, self.weights, index))  # type: ignore[arg-type]

    def lengths(self) -> list[int]:
        """The squared lengths of each row's vector, in exact integers."""
        alone = [self.total(np.array([row])) for row in range(ROWS)]
        return [sum(int(value) ** 2 for value in vector) for vector in alone]


@pytest.mark.parametrize("noise", [0.1, 3.0, 500.0])
@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_neighbours_differ_by_the_joint_sensitivity_at_most(head: object, noise: float) -> None:
    case = Case(head, noise=noise)
    whole, limit = case.total(), case.rule.sensitivity
    assert (limit.norm, limit.adjacency) == (Norm.L2, Adjacency.ADD_REMOVE)

    for row in range(0, ROWS, 10):
        without = case.total(np.delete(np.arange(ROWS), row))
        moved = sum(int(value) ** 2 for value in whole - without)
        assert moved <= int(limit.amount) ** 2
    assert max(case.lengths()) <= int(limit.amount) ** 2


def test_each_part_stays_within_its_own_limit_and_the_joint_one_is_their_root_of_squares() -> None:
    rule = Case().rule
    slope, bend, joint = int(rule.gradient.sensitivity.amount), rule.curvature_limit, int(rule.sensitivity.amount)

    assert (joint - 1) ** 2 < slope**2 + bend**2 <= joint**2


def test_the_joint_sensitivity_is_reached_but_for_a_few_percent() -> None:
    # A row along one axis at the score with the largest curvature: |upper triangle| = |u|^2, and the gradient is clipped.
    grid = FeatureGrid(1, bound=2.0, intercept=False)
    rule = CurvedGradient(grid, Squared(), 0.5, 3.0)
    vector = unseal(rule.measure(grid.encode_rows(np.array([[2.0]])), np.array([1.0]), np.zeros((1, 1)), slice(None)))

    assert 0.97 < np.linalg.norm(vector.astype(float)) / float(rule.sensitivity.amount) <= 1


def test_rows_that_are_not_cut_to_the_limit_would_break_the_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Squared())
    monkeypatch.setattr(
        CurvedGradient,
        "_clip_rows",
        lambda self, features, curvatures: np.rint(2 * features * (np.sqrt(curvatures) * self.row_unit)[:, None]),
    )

    assert max(case.lengths()) > int(case.rule.sensitivity.amount) ** 2


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_the_sum_is_the_sum_of_its_rows_in_any_order_and_chunks(head: object, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(head)
    alone = sum(case.total(np.array([row])) for row in range(ROWS))

    assert (case.total() == alone).all()
    assert (case.total(np.random.default_rng(0).permutation(ROWS)) == alone).all()
    monkeypatch.setattr(clipped_gradient, "_MOST_ROWS", 7)
    assert (case.total() == alone).all()


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_without_noise_the_parts_are_the_derivatives_of_the_loss(head: object) -> None:
    case = Case(head, clip=100.0, noise=0.01)
    x = case.rows.integers() / case.grid.unit
    scores = (x @ case.weights[0])[None, :]
    slope, bend = case.rule.split(case.total())

    assert np.allclose(slope, head.compute_residuals(scores, case.targets)[0] @ x, atol=0.05)
    assert np.allclose(bend, (x.T * head.compute_curvatures(scores, case.targets)[0]) @ x, rtol=1e-2, atol=0.1)
    assert (bend == bend.T).all()


@pytest.mark.parametrize("head", HEADS[:2], ids=lambda head: head.name)
def test_curvatures_are_the_slopes_of_the_residuals_and_within_their_bound(head: object) -> None:
    scores, targets, step = np.linspace(-40, 40, 401)[None, :], np.zeros(401, int), 1e-5
    slopes = (head.compute_residuals(scores + step, targets) - head.compute_residuals(scores - step, targets)) / (
        2 * step
    )
    found = head.compute_curvatures(scores, targets)

    assert np.allclose(found, slopes, atol=1e-6)
    assert ((found >= 0) & (found <= head.curvature)).all()


def test_a_row_without_a_declared_class_counts_for_nothing() -> None:
    case = Case()
    case.targets = np.full(ROWS, -1)

    assert not case.total().any()


def test_an_empty_batch_is_a_vector_of_zeros() -> None:
    case = Case()

    assert case.total(np.array([], np.intp)).tolist() == [0] * case.rule.size
    assert case.rule.size == 7 + 28


@pytest.mark.parametrize("noise", [0.1, 1.0, 50.0, 2000.0])
def test_the_lattice_leaves_room_for_the_noise_of_both_parts(noise: float) -> None:
    rule = Case(noise=noise).rule

    assert float(rule.sensitivity.amount) * noise <= 2.0**29.01
    assert math.sqrt(rule.curvature_limit) > 16 * math.sqrt(7)


def test_what_newton_steps_cannot_do_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 512 columns"):
        check_curved(Logistic(), 513)
    with pytest.raises(InvalidRequest, match="noise multiplier"):
        Case(noise=1e6)
