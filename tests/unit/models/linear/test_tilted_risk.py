"""The tilted minimum has the law that the proof says, and that law is private."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import kstest

from expost import InvalidRequest
from expost.core import Norm
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall, UnitRows
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss, TruncatedSquare
from expost.models.linear.tilted_risk import LaplaceTilt, TiltedRisk, draws_to_floats
from expost.noise import SeededBits

EPSILON = Fraction(1, 2)
LOSSES = [LogisticLoss(), HuberHinge(0.5), TruncatedSquare(1.0)]
Table = tuple[np.ndarray, np.ndarray]


def table(loss: RowLoss, rows: int, width: int) -> Table:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (rows, width)) / width
    y = rng.uniform(-1, 1, rows)
    return x, y if isinstance(loss, TruncatedSquare) else np.sign(y)


def log_density(loss: RowLoss, data: Table, penalty: float, scale: float, at: np.ndarray) -> float:
    """Of the exact minimum: the noise that puts it at this point, times the Jacobian; without the constant."""
    x, y = data
    scores = x @ at
    gradient = loss.slope_at(scores, y) @ x + len(y) * penalty * at
    jacobian = (x.T * loss.curvature_at(scores, y)) @ x + len(y) * penalty * np.eye(len(at))
    return float(-np.abs(gradient).sum() / scale + np.linalg.slogdet(jacobian)[1])


def worst_ratio(loss: RowLoss, scale: float) -> float:
    """The largest density ratio over replaced rows at the corners of what is allowed, and over many outputs."""
    penalty, rows = 0.25, 12
    corners = [(sign * unit, label) for unit in np.eye(2) for sign in (-1, 1) for label in (-1.0, 1.0)]
    points = [np.array([a, b]) for a in (-30, -9, -3, -1, 0, 1, 3, 9, 30) for b in (-30, -9, -3, -1, 0, 1, 3, 9, 30)]
    x, y = table(loss, rows, 2)

    def at_all_points(corner: tuple[np.ndarray, float]) -> list[float]:
        data = np.vstack([x[1:], corner[0]]), np.append(y[1:], corner[1])
        return [log_density(loss, data, penalty, scale, point) for point in points]

    logs = np.array([at_all_points(corner) for corner in corners])
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_exact_minimum_is_private_and_a_tenth_less_noise_is_not(loss: RowLoss) -> None:
    prices = TiltedRisk(loss, UnitBall(2), 12, 0.25).prices
    tilt, _ = prices.split(EPSILON)
    claimed = float(tilt + prices.jacobian)
    scale = float(TiltedRisk(loss, UnitBall(2), 12, 0.25).law.scale_at(tilt))

    assert worst_ratio(loss, scale) <= claimed
    assert worst_ratio(loss, 0.5 * scale) > claimed
    if isinstance(loss, LogisticLoss):  # far from the data the slopes are steepest and the Jacobians agree: tight there
        assert worst_ratio(loss, 0.7 * scale) > claimed


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_released_minimum_carries_a_tilt_of_the_priced_scale(loss: RowLoss) -> None:
    x, y = table(loss, 60, 25)
    risk = TiltedRisk(loss, UnitBall(25), 60, 0.25)
    rows = UnitRows(read_rows(x, y), risk.ball, lambda labels: np.asarray(labels, dtype=np.float64))
    bits = SeededBits(11)

    released = [risk.release(rows, EPSILON, bits=bits) for _ in range(400)]

    # What the minimum was tilted by can be read off its gradient.
    tilts = np.array([-(loss.slope_at(x @ theta, y) @ x + 60 * 0.25 * theta) for theta in released]).ravel()
    scale = float(risk.law.scale_at(risk.prices.split(EPSILON)[0]))
    assert kstest(tilts, "laplace", args=(0, scale)).pvalue > 1e-3
    # |tilt| has mean and deviation scale: a scale wrong by 10 % is 10 deviations of the mean away, 4 are allowed.
    deviations = (np.abs(tilts).mean() / np.array([0.9, 1.0, 1.1]) / scale - 1) * math.sqrt(len(tilts))
    assert np.all((np.abs(deviations) < 4) == [False, True, False])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_solvers_that_stop_elsewhere_are_covered_by_the_output_noise(loss: RowLoss) -> None:
    risk = TiltedRisk(loss, UnitBall(3), 1000, 0.01)
    prices = risk.prices

    assert 0 < prices.bound_distance(EPSILON) < 1e-6
    assert prices.output_sensitivity(EPSILON) == pytest.approx(2 * math.sqrt(3) * prices.bound_distance(EPSILON))
    assert sum(prices.split(EPSILON)) + prices.jacobian == EPSILON


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
def test_the_excess_risk_stays_within_its_price_as_often_as_promised(norm: Norm) -> None:
    rng = np.random.default_rng(6)
    x = rng.uniform(-1, 1, (500, 3)) / 3
    y = np.sign(x @ [3.0, -2.0, 1.0] + 0.2 * rng.normal(size=500))
    risk = TiltedRisk(LogisticLoss(), UnitBall(3, norm), 500, 0.01)
    rows = UnitRows(read_rows(x, y), risk.ball, lambda labels: np.asarray(labels, dtype=np.float64))
    failure, runs = Fraction(1, 5), 200
    epsilon = risk.prices.epsilon_for(0.02, failure)

    def value(theta: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (x @ theta)).mean() + 0.005 * theta @ theta)

    lowest = min(value(risk.release(rows, Fraction(10**6), bits=SeededBits(0))), value(np.zeros(3)))
    bits = SeededBits(7)
    missed = np.mean([value(risk.release(rows, epsilon, bits=bits)) - lowest > 0.02 for _ in range(runs)])

    assert risk.prices.excess_risk(epsilon, failure) <= 0.02
    assert missed <= float(failure) + 3 * math.sqrt(0.2 * 0.8 / runs)
    # In the flat directions the bound is nearly an equality, so a tenth of epsilon less would show.
    less = risk.prices.excess_risk(epsilon * Fraction(9, 10), failure)
    assert less > 0.02


def test_more_epsilon_never_buys_less_accuracy() -> None:
    prices = TiltedRisk(LogisticLoss(), UnitBall(5), 1000, 0.01).prices
    bounds = [prices.excess_risk(Fraction(level, 10), Fraction(1, 10)) for level in range(1, 30)]

    assert bounds == sorted(bounds, reverse=True)


def test_an_epsilon_below_the_jacobian_is_refused() -> None:
    prices = TiltedRisk(LogisticLoss(), UnitBall(5), 10, 0.01).prices

    with pytest.raises(InvalidRequest, match="epsilon above"):
        prices.split(Fraction(1, 10))


def exact_cut_minimum(loss: RowLoss, x: np.ndarray, y: float, penalty: float, tilt: np.ndarray, reach: float) -> list:
    """For a table of one row, in 60 digits: theta = -(tilt + s x) / penalty, where the slope s solves one equation."""
    with mpmath.workdps(60):
        xs, b = [mpmath.mpf(float(v)) for v in x], [mpmath.mpf(float(v)) for v in tilt]
        square, along = mpmath.fdot(xs, xs), mpmath.fdot(xs, b)

        def slope(score):
            if isinstance(loss, LogisticLoss):
                return -y / (1 + mpmath.exp(y * score))
            if isinstance(loss, HuberHinge):
                short = (1 + mpmath.mpf(loss.width) - y * score) / (2 * mpmath.mpf(loss.width))
                return -y * max(mpmath.mpf(0), min(mpmath.mpf(1), short))
            return max(-mpmath.mpf(loss.reach), min(mpmath.mpf(loss.reach), score - y))

        middle, room = -along / penalty, 2 * loss.steepest * square / penalty + 1
        low, high = middle - room, middle + room
        for _ in range(260):
            score = (low + high) / 2
            low, high = (low, score) if penalty * score + along + slope(score) * square > 0 else (score, high)
        theta = [-(each + slope(score) * v) / mpmath.mpf(penalty) for each, v in zip(b, xs, strict=True)]
        length = mpmath.sqrt(mpmath.fdot(theta, theta))
        return [each * min(1, reach / length) for each in theta]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 7.0, 1e3, 1e8, 1e14, 1e16, 1e30, 1e140, 1e290])
def test_however_long_the_tilt_the_solver_stays_within_its_distance(loss: RowLoss, size: float) -> None:
    x, y, penalty = np.array([0.5, -0.25, 0.125]), 1.0, 2.0**-6
    risk = TiltedRisk(loss, UnitBall(3), 1, penalty)
    epsilon = Fraction(6)
    rows = UnitRows(read_rows(x[None], np.array([y])), risk.ball, lambda labels: np.asarray(labels, dtype=np.float64))
    reach, distance = risk.prices.reach(epsilon), risk.prices.bound_distance(epsilon)
    for direction in ([1.0, 0.0, 0.0], [0.3, -0.2, 0.9], [-0.5, 0.25, -0.125]):
        tilt = size * np.array(direction)

        found = risk._cut_minimum(rows, tilt, epsilon, 1.0)

        exact = exact_cut_minimum(loss, x, y, penalty, tilt, reach)
        off = mpmath.sqrt(sum((mpmath.mpf(float(a)) - b) ** 2 for a, b in zip(found, exact, strict=True)))
        assert off <= distance
        assert np.linalg.norm(found) <= reach * (1 + 1e-12)


class Huge(LaplaceTilt):
    """A tilt as no run will ever draw it."""

    def draw_tilt(self, epsilon: Fraction, bits: object) -> np.ndarray:
        return draws_to_floats(np.array([3 << 900, -(4 << 900), 0], dtype=object), Fraction(1, 1024))


def test_a_tilt_beyond_all_floats_is_released_like_any_other() -> None:
    risk = TiltedRisk(LogisticLoss(), UnitBall(3), 4, 0.25, Huge(3, 1.0, 1.0))
    rows = UnitRows(read_rows(np.eye(4, 3), np.ones(4)), risk.ball, lambda labels: np.asarray(labels, dtype=np.float64))

    released = risk.release(rows, Fraction(1), bits=SeededBits(2))

    assert np.allclose(released, risk.prices.reach(Fraction(1)) * np.array([-0.6, 0.8, 0]), atol=1e-6)


def test_a_penalty_that_float64_cannot_resolve_is_refused() -> None:
    prices = TiltedRisk(LogisticLoss(), UnitBall(1000), 10**9, 1e-15).prices

    with pytest.raises(InvalidRequest, match="float64"):
        prices.bound_distance(Fraction(10**7))
