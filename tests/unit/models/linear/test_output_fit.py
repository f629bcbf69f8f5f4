"""Output perturbation: the noise has the priced scale, and the bound holds for any data."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost import InvalidRequest
from expost.accuracy.noise_norm import curved_gaussian_bound, curved_noise_bound, curved_spherical_bound
from expost.core import ApproxLoss, Norm, PureLoss, Sealed, Sensitivity
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall, grid_numbers
from expost.models.linear.classifier_fit import grid_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.output_perturbation import GaussianOutput, LaplaceOutput, OutputFit, SphericalOutput, Valley
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, TruncatedSquare
from expost.noise import SeededBits, SphericalLaplaceMechanism
from expost.noise.mechanism import largest_mu
from expost.noise.spherical_noise import largest_scale


def table(rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    return x, np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * rng.normal(size=rows), -1, 1)


def request_for(loss, *, norm: Norm = Norm.L1, delta: Fraction | None = None, **terms) -> OutputFit:
    aim = Aim.of(failure_probability=0.2, max_epsilon=1e6, **terms)
    grid = grid_numbers(1.0) if isinstance(loss, TruncatedSquare) else grid_labels((-1.0, 1.0))
    return OutputFit(Problem(UnitBall(3, norm), 2000, 0.05, aim), loss, grid, delta=delta)


@pytest.mark.parametrize("delta", [None, Fraction(1, 100)])
@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("loss", [LogisticLoss(), HuberHinge(0.5), TruncatedSquare(1.0)], ids=repr)
def test_the_excess_risk_meets_the_target_as_often_as_promised(loss, norm: Norm, delta: Fraction | None) -> None:
    x, y = table()
    y = y if isinstance(loss, TruncatedSquare) else np.sign(y)
    plain = TruncatedSquare(1e9) if isinstance(loss, TruncatedSquare) else loss
    request = request_for(loss, norm=norm, excess_risk=0.01, delta=delta)
    rows, bits = request.measure(read_rows(x, y)), SeededBits(3)

    def value(theta: np.ndarray) -> float:
        return float(plain.value_at(x @ theta, y).mean() + 0.025 * theta @ theta)

    best = request_for(loss, norm=norm, epsilon=1e5)
    lowest = value(best.climb(best.measure(read_rows(x, y)), SeededBits(0)).value.coefficients)
    missed = [value(request.climb(rows, bits).value.coefficients) - lowest > 0.01 for _ in range(60)]

    assert np.mean(missed) <= 0.2


@pytest.mark.parametrize("loss", [LogisticLoss(), TruncatedSquare(1.0)], ids=repr)
def test_one_row_moves_the_minimum_by_no_more_than_declared(loss) -> None:
    x, y = table()
    y = y if isinstance(loss, TruncatedSquare) else np.sign(y)
    request = request_for(loss, epsilon=1e5)
    others = [(sign * unit, label) for unit in np.eye(3) for sign in (-1, 1) for label in (-1.0, 1.0)]

    def minimum(row: np.ndarray, label: float) -> np.ndarray:
        rows = request.measure(read_rows(np.vstack([x[1:], row]), np.append(y[1:], label)))
        return request.climb(rows, SeededBits(0)).value.coefficients

    minima = [minimum(row, label) for row, label in others]

    furthest = max(np.linalg.norm(a - b) for a in minima for b in minima)
    assert 0 < furthest <= request._valley.distance


LAWS = {
    "laplace": lambda valley: LaplaceOutput(valley),
    "spherical": lambda valley: SphericalOutput(valley),
    "gaussian": lambda valley: GaussianOutput(valley, Fraction(1, 1000)),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_noise_has_the_priced_scale(law: str) -> None:
    valley = Valley(3, Norm.L1, 0.05, 0.25, 0.02, 1e-12)
    noise = LAWS[law](valley)

    def zero(step: float, units: int, norm: Norm) -> Sealed:
        return Sealed(np.zeros(3, np.int64), Sensitivity(units, norm))

    bits = SeededBits(5)
    values = np.array([noise.release(zero, Fraction(1, 2), bits) for _ in range(1000)])

    # The mean square of a coordinate: 2 scale^2 of Laplace noise, (n + 1) scale^2 of spherical, the variance of Gaussian.
    scale = 0.02 / 0.5
    expected = {
        "laplace": 2 * 3 * scale**2,
        "spherical": 4 * scale**2,
        "gaussian": (0.02 / largest_mu(0.5, 1e-3)) ** 2,
    }
    ratio = math.sqrt((values**2).mean() / expected[law])
    assert abs(ratio - 1) < 0.05  # 10 % more or less would be noticed


def test_the_cheapest_law_is_chosen_and_delta_never_makes_it_dearer() -> None:
    pure = request_for(LogisticLoss(), excess_risk=0.01)
    for exponent in (1, 3, 6, 12, 30):
        request = request_for(LogisticLoss(), excess_risk=0.01, delta=Fraction(1, 10**exponent))
        assert request.worst_case.amounts()["epsilon"] <= pure.worst_case.amounts()["epsilon"]
    assert isinstance(request_for(LogisticLoss(), excess_risk=0.01, delta=Fraction(1, 10)).worst_case, ApproxLoss)
    assert isinstance(request_for(LogisticLoss(), excess_risk=0.01, delta=Fraction(1, 10**30)).worst_case, PureLoss)


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.0, 0.0)])
@pytest.mark.parametrize("law", ["gaussian", "spherical"])
def test_the_bound_on_curved_round_noise_covers_all_weights(law: str, weights: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(100_000, 3))
    if law == "spherical":
        noise *= (rng.gamma(3, size=100_000) / np.linalg.norm(noise, axis=1))[:, None]
    bound = (curved_gaussian_bound if law == "gaussian" else curved_spherical_bound)(3, 20.0, 0.1)

    sums = ((1 + 20.0 * np.array(weights)) * noise**2).sum(axis=1)

    assert (sums > bound).mean() <= 0.1
    if weights[0] == 1:
        assert (sums > 0.4 * bound).mean() > 0.1


@pytest.mark.parametrize("failure", [0.2, 0.01])
def test_the_bound_on_curved_gaussian_noise_is_the_conditional_value_at_risk(failure: float) -> None:
    noise = np.random.default_rng(1).normal(size=(1_000_000, 4))
    sums = np.sort((np.array([8.0, 1, 1, 1]) * noise**2).sum(axis=1))

    simulated = sums[-int(failure * len(sums)) :].mean()

    assert curved_gaussian_bound(4, 7.0, failure) == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.0, 0.0)])
def test_the_bound_on_curved_noise_covers_all_weights(weights: tuple[float, ...]) -> None:
    noise = np.random.default_rng(0).laplace(size=(100_000, 3))
    sums = ((1 + 20.0 * np.array(weights)) * noise**2).sum(axis=1)

    assert (sums > curved_noise_bound(3, 20.0, 0.1)).mean() <= 0.1
    assert (sums > 0.4 * curved_noise_bound(3, 20.0, 0.1)).mean() > (0.1 if weights[0] == 1 else 0)


def test_scores_are_not_for_output_perturbation() -> None:
    with pytest.raises(InvalidRequest):
        request_for(LogisticLoss(), score=("accuracy", 0.9))


def test_the_bill_is_known_before_the_run() -> None:
    request = request_for(LogisticLoss(), excess_risk=0.01)
    x, y = table()

    release = request.climb(request.measure(read_rows(x, np.sign(y))), SeededBits(1))

    assert release.receipt.bill == request.worst_case
    assert release.receipt.achieved == pytest.approx(0.01, rel=1e-5)
    assert release.receipt.breakdown["testing"] == Fraction(0)


def test_a_minimum_close_to_zero_is_solved_as_exactly_as_any_other() -> None:
    x, _ = table()
    y = 1e-3 * x[:, 0]
    request = request_for(TruncatedSquare(1.0), epsilon=1e6)

    released = request.climb(request.measure(read_rows(x, y)), SeededBits(4)).value.coefficients

    exact = np.linalg.solve(x.T @ x / len(y) + 0.05 * np.eye(3), x.T @ y / len(y))
    assert np.abs(exact).max() > 1e-4
    assert np.allclose(released, exact, atol=2e-5)


def test_the_noise_of_the_least_epsilon_can_be_drawn_exactly() -> None:
    """A fit with less is refused before anything is charged, so none fails once it is paid for."""
    with pytest.raises(InvalidRequest, match="at least 1e-9"):
        request_for(TruncatedSquare(1.0), epsilon=Fraction(1, 10**9 + 1))
    for loss in (TruncatedSquare(1.0), LogisticLoss(), HuberHinge(0.5)):
        law = SphericalOutput(request_for(loss, epsilon=Fraction(1, 10**9))._valley)
        mechanism = SphericalLaplaceMechanism(Fraction(1, 10**9))
        assert mechanism.scale(law._row_sensitivity, coordinates=3) < largest_scale(3)
        seal = lambda step, units, norm: Sealed(np.zeros(3, int), Sensitivity(units, norm))  # noqa: E731
        noisy = law.release(seal, Fraction(1, 10**9), SeededBits(1))
        assert np.isfinite(noisy).all()
