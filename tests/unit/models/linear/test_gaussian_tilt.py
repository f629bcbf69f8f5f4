"""A Gaussian tilt keeps its delta, by integration of the densities, and carries the accuracy it promises."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import kstest

from expost import InvalidRequest
from expost.core import ApproxLoss, Norm, PureLoss
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall, UnitRows
from expost.models.linear.classifier_fit import TiltedClassifier, grid_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss, TruncatedSquare
from expost.models.linear.tilted_risk import GaussianTilt, SphericalTilt, TiltedRisk, pure_tilt
from expost.noise import SeededBits
from expost.noise.mechanism import gaussian_delta

EPSILON, DELTA = Fraction(1), Fraction(1, 100)
LOSSES = [LogisticLoss(), HuberHinge(0.5), TruncatedSquare(1.0)]


def worst_delta(loss: RowLoss, deviation: float, epsilon: float, penalty: float = 0.25) -> float:
    """The largest delta over replaced rows at the corners of what is allowed, in one dimension, on a fine grid."""
    rows = 8
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, rows - 1), np.sign(rng.normal(size=rows - 1))
    at = np.linspace(-8, 8, 40_001) * deviation / (rows * penalty)

    def density(row: float, label: float) -> np.ndarray:
        features, labels = np.append(x, row)[:, None], np.append(y, label)[:, None]
        scores = features * at
        gradient = (loss.slope_at(scores, labels) * features).sum(axis=0) + rows * penalty * at
        jacobian = (loss.curvature_at(scores, labels) * features**2).sum(axis=0) + rows * penalty
        return np.exp(-((gradient / deviation) ** 2) / 2) * jacobian / (deviation * math.sqrt(2 * math.pi))

    laws = [density(row, label) for row, label in product((-1.0, 0.0, 1.0), (-1.0, 1.0))]
    step = at[1] - at[0]
    assert all(law.sum() * step == pytest.approx(1, abs=1e-3) for law in laws)
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum() * step) for a in laws for b in laws)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_exact_minimum_keeps_its_delta(loss: RowLoss) -> None:
    tilt = GaussianTilt(1, loss.steepest, DELTA, one_sided=loss.one_sided)
    jacobian = math.log1p(loss.sharpest / (8 * 0.25))
    deviation = tilt.deviation_at(EPSILON)

    assert worst_delta(loss, deviation, float(EPSILON) + jacobian) <= float(DELTA)


def test_the_delta_is_tight_and_a_tenth_less_noise_breaks_it() -> None:
    # With this penalty minima stay where the hinge is straight: two labels pull in opposite directions, all the way.
    deviation = GaussianTilt(1, 1.0, DELTA, one_sided=True).deviation_at(EPSILON)

    assert worst_delta(HuberHinge(0.5), deviation, float(EPSILON), 8.0) <= float(DELTA)
    assert worst_delta(HuberHinge(0.5), 0.9 * deviation, float(EPSILON), 8.0) > float(DELTA)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_two_short_moves_never_cost_more_than_one_long_one(epsilon: float, delta: float) -> None:
    tilt = GaussianTilt(1, 1.0, Fraction(delta), one_sided=False)
    longest = 2 / tilt.deviation_at(Fraction(epsilon))
    for share in np.linspace(0.02, 0.98, 25):
        first, second = math.sqrt(share) * longest, math.sqrt(1 - share) * longest
        both = gaussian_delta(epsilon, first) + gaussian_delta(epsilon, second)
        assert 2 * both <= delta * (1 + 1e-6)


def test_one_sided_slopes_need_less_noise() -> None:
    one, two = (
        GaussianTilt(1, 1.0, Fraction(1, 10**6), one_sided=sided).deviation_at(EPSILON) for sided in (True, False)
    )

    assert 2 * 4.22 < one < 1.001 * 2 * 4.23 < two  # twice the deviation of a single Gaussian at (1, 1e-6)


@pytest.mark.parametrize("law", ["gaussian", "spherical"])
def test_the_released_minimum_carries_a_tilt_of_the_priced_size(law: str) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1, 1, (60, 25)) / 25, np.sign(rng.normal(size=60))
    chosen = (
        GaussianTilt(25, 1.0, DELTA, one_sided=True) if law == "gaussian" else pure_tilt(UnitBall(25, Norm.L2), 1.0)
    )
    risk = TiltedRisk(LogisticLoss(), UnitBall(25, Norm.L2), 60, 0.25, chosen)
    rows = UnitRows(read_rows(x, y), risk.ball, lambda labels: np.asarray(labels, dtype=np.float64))
    share, bits = risk.prices.split(EPSILON)[0], SeededBits(11)

    released = [risk.release(rows, EPSILON, bits=bits) for _ in range(200)]

    tilts = np.array([-(LogisticLoss().slope_at(x @ theta, y) @ x + 60 * 0.25 * theta) for theta in released])
    if isinstance(chosen, GaussianTilt):
        assert kstest(tilts.ravel(), "norm", args=(0, chosen.deviation_at(share))).pvalue > 1e-3
        assert kstest(tilts.ravel(), "norm", args=(0, 1.1 * chosen.deviation_at(share))).pvalue < 1e-3
    else:
        scale = 2 / float(share)
        lengths = np.linalg.norm(tilts, axis=1)
        assert kstest(lengths, "gamma", args=(25, 0, scale)).pvalue > 1e-3
        assert kstest(lengths, "gamma", args=(25, 0, 1.1 * scale)).pvalue < 1e-3


@pytest.mark.parametrize("law", ["gaussian", "spherical"])
def test_the_excess_risk_stays_within_its_price_as_often_as_promised(law: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.uniform(-1, 1, (500, 3)) / 3
    y = np.sign(x @ [3.0, -2.0, 1.0] + 0.2 * rng.normal(size=500))
    chosen = GaussianTilt(3, 1.0, DELTA, one_sided=True) if law == "gaussian" else SphericalTilt(3, 1.0)
    risk = TiltedRisk(LogisticLoss(), UnitBall(3, Norm.L2), 500, 0.01, chosen)
    rows = UnitRows(read_rows(x, y), risk.ball, lambda labels: np.asarray(labels, dtype=np.float64))
    failure, runs = Fraction(1, 5), 200
    epsilon = risk.prices.epsilon_for(0.02, failure)

    def value(theta: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (x @ theta)).mean() + 0.005 * theta @ theta)

    lowest = value(TiltedRisk(LogisticLoss(), risk.ball, 500, 0.01).release(rows, Fraction(10**6), bits=SeededBits(0)))
    bits = SeededBits(7)
    missed = np.mean([value(risk.release(rows, epsilon, bits=bits)) - lowest > 0.02 for _ in range(runs)])

    assert risk.prices.excess_risk(epsilon, failure) <= 0.02 < risk.prices.excess_risk(epsilon * 9 / 10, failure)
    assert missed <= float(failure) + 3 * math.sqrt(0.2 * 0.8 / runs)


def classifier(delta: Fraction | None, *, norm: Norm = Norm.L2, **aim) -> TiltedClassifier:
    problem = Problem(UnitBall(30, norm), 5000, 0.01, Aim.of(failure_probability=0.1, max_epsilon=1e6, **aim))
    return TiltedClassifier(problem, LogisticLoss(), grid_labels((-1, 1)), delta=delta)


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
def test_a_delta_never_makes_a_fit_dearer_or_worse(norm: Norm) -> None:
    pure = classifier(None, norm=norm, excess_risk=0.01)
    fixed = classifier(None, norm=norm, epsilon=1.0)
    for delta in (Fraction(1, 10**exponent) for exponent in (1, 3, 6, 12, 30)):
        assert classifier(delta, norm=norm, excess_risk=0.01).epsilon <= pure.epsilon
        assert classifier(delta, norm=norm, epsilon=1.0).excess_risk <= fixed.excess_risk


def test_the_bill_names_the_delta_that_was_used_and_only_then() -> None:
    assert classifier(DELTA, excess_risk=0.01).worst_case == ApproxLoss(
        classifier(DELTA, excess_risk=0.01).epsilon, DELTA
    )
    assert isinstance(classifier(Fraction(1, 10**30), norm=Norm.L1, excess_risk=0.01).worst_case, PureLoss)


def test_an_epsilon_without_room_for_noise_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="this noise can reach"):
        GaussianTilt(1, 1.0, DELTA, one_sided=True).deviation_at(Fraction(1, 10**20))
