"""Residuals are derivatives, and a row's residuals are its own wherever it stands."""

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.models.descent.score_head import ABSENT, Huber, Logistic, Softmax, Squared, row_sums


def losses(head: object, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    match head:
        case Softmax():
            return np.log(np.exp(scores).sum(axis=0)) - scores[targets, np.arange(len(targets))]
        case Logistic():
            return np.logaddexp(0, scores[0]) - targets * scores[0]
        case Huber(width=width):
            error = np.abs(scores[0] - targets)
            return np.where(error <= width, error**2 / 2, width * (error - width / 2))
    return (scores[0] - targets) ** 2 / 2


@pytest.mark.parametrize("head", [Softmax(4), Logistic(), Squared(), Huber(width=0.3)], ids=lambda head: head.name)
def test_residuals_are_the_derivative_of_the_loss(head: object) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(head.outputs, 50))
    targets = rng.integers(0, max(head.outputs, 2), 50) if head.name in ("softmax", "logistic") else rng.normal(size=50)

    found = head.compute_residuals(scores, targets)

    for output in range(head.outputs):
        up, down = scores.copy(), scores.copy()
        up[output] += 1e-6
        down[output] -= 1e-6
        numeric = (losses(head, up, targets) - losses(head, down, targets)) / 2e-6
        assert np.allclose(found[output], numeric, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("head", [Softmax(10), Softmax(100), Logistic()], ids=lambda head: f"{head.name}{head.outputs}")
def test_a_rows_residuals_do_not_depend_on_its_place_in_the_batch(head: object, kind: type) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(scale=5, size=(head.outputs, 1031)).astype(kind)
    targets = rng.integers(0, 2, 1031)
    whole = head.compute_residuals(scores, targets)

    order = rng.permutation(1031)
    assert (head.compute_residuals(scores[:, order].copy(), targets[order]) == whole[:, order]).all()
    alone = [(place, place + 1) for place in range(0, 1031, 5)]
    for start, stop in [*alone, (5, 22), (1000, 1031), (3, 1030), (7, 9)]:
        assert (head.compute_residuals(scores[:, start:stop].copy(), targets[start:stop]) == whole[:, start:stop]).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_over_outputs_are_taken_one_after_the_other(kind: type) -> None:
    values = np.random.default_rng(2).random((100, 40)).astype(kind)
    expected = values[0].copy()
    for output in values[1:]:
        expected += output

    assert (row_sums(values) == expected).all()
    assert (row_sums(np.asfortranarray(values)) == expected).all()
    assert all(row_sums(values[:, [row]])[0] == expected[row] for row in range(40))
    assert row_sums(values[:, :0]).shape == (0,)
    assert np.allclose(row_sums(values, 3.0), expected + 3)
    # What NumPy does with a row alone, and why it is not asked to.
    assert any(np.add.reduce(values[:, [row]], axis=0)[0] != expected[row] for row in range(40))


@pytest.mark.parametrize("head", [Softmax(3), Logistic()], ids=lambda head: head.name)
def test_a_row_of_no_declared_class_counts_for_nothing_and_is_never_right(head: object) -> None:
    scores = np.ones((head.outputs, 2))
    targets = np.array([ABSENT, 1])

    assert (head.compute_residuals(scores, targets)[:, 0] == 0).all()
    assert not head.find_correct(scores, targets)[0]


@pytest.mark.parametrize("head", [Softmax(3), Logistic()], ids=lambda head: head.name)
def test_huge_scores_do_not_overflow(head: object) -> None:
    scores = np.full((head.outputs, 2), 1e6) * np.array([1, -1])

    assert np.isfinite(head.compute_residuals(scores, np.array([0, 1]))).all()


def test_the_curvature_bounds_the_second_derivative() -> None:
    rng = np.random.default_rng(2)
    odds = rng.dirichlet(np.full(5, 0.3), size=2000)

    largest = max(float(np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1]) for p in odds)

    assert largest <= Softmax(5).curvature
    assert (odds[:, 0] * (1 - odds[:, 0])).max() <= Logistic().curvature


def test_regression_is_neither_right_nor_wrong() -> None:
    with pytest.raises(InvalidRequest):
        Squared().find_correct(np.zeros((1, 1)), np.zeros(1))
