"""Slopes and curvatures are derivatives, and stay within the bounds that privacy rests on."""

import numpy as np
import pytest

from expost import InvalidRequest
from expost.models.linear.risk_minimum import sum_logistic_losses
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss, TruncatedSquare

LOSSES = [LogisticLoss(), HuberHinge(0.5), HuberHinge(0.1), HuberHinge(2.0), TruncatedSquare(1.0), TruncatedSquare(2.5)]
SCORES = np.linspace(-30, 30, 6001) + 1e-4  # off the corners
TARGETS = [np.full_like(SCORES, value) for value in (-1.0, 1.0)]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("target", TARGETS, ids=["negative", "positive"])
def test_slope_and_curvature_are_the_derivatives(loss: RowLoss, target: np.ndarray) -> None:
    step = 1e-5

    slope = (loss.value_at(SCORES + step, target) - loss.value_at(SCORES - step, target)) / (2 * step)
    curvature = (loss.slope_at(SCORES + step, target) - loss.slope_at(SCORES - step, target)) / (2 * step)

    assert np.allclose(slope, loss.slope_at(SCORES, target), atol=1e-6)
    assert np.allclose(curvature, loss.curvature_at(SCORES, target), atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("target", TARGETS, ids=["negative", "positive"])
def test_the_bounds_hold_and_are_reached(loss: RowLoss, target: np.ndarray) -> None:
    slopes, curvatures = np.abs(loss.slope_at(SCORES, target)), loss.curvature_at(SCORES, target)

    assert slopes.max() <= loss.steepest <= slopes.max() * 1.001
    assert curvatures.max() <= loss.sharpest <= curvatures.max() * 1.001
    assert loss.value_at(np.zeros(1), target[:1])[0] <= loss.at_zero
    assert (loss.value_at(SCORES, target) >= 0).all()


def test_a_hinge_without_a_rounded_corner_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        HuberHinge(0.0)


def test_totals_of_the_logistic_loss_are_sums_of_its_values() -> None:
    rng = np.random.default_rng(0)
    scores, signs = rng.normal(size=(700, 5)) * [0.01, 1.0, 10.0, 100.0, 1000.0], rng.choice([-1.0, 1.0], 700)

    expected = LogisticLoss().value_at(scores, signs[:, None]).sum(axis=0)

    assert np.allclose(sum_logistic_losses(scores.copy(), signs), expected, rtol=1e-12)
