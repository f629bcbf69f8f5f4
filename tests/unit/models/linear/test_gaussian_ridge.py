"""Ridge under Gaussian noise: targets hold, bills are in zCDP, and no row moves the moments further than declared."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import expost
from expost import open_ledger
from expost.accounting.concentrated import ConcentratedTotal
from expost.accuracy.noise_envelope import GaussianEnvelope
from expost.core import Norm, Outcome, ZeroConcentratedLoss
from expost.data.row_source import read_rows
from expost.data.second_moment import EuclideanLayout
from expost.data.unit_ball import UnitBall, UnitRows, grid_numbers
from expost.models import Ridge
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_moments import GaussianRidge, rho_for
from expost.noise import GaussianPath, SeededBits

PENALTY, DELTA = 0.02, Fraction(1, 10**6)


def table(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    return x, np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * rng.normal(size=rows), -1, 1)


def request_for(**terms: object) -> GaussianRidge:
    aim = Aim.of(failure_probability=0.2, max_epsilon=terms.pop("max_epsilon", 20.0), **terms)
    return GaussianRidge(Problem(UnitBall(3), 4000, PENALTY, aim), DELTA)


def excess(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    gram = x.T @ x / len(y) + PENALTY * np.eye(3)
    away = theta - np.linalg.solve(gram, x.T @ y / len(y))
    return float(away @ gram @ away) / 2


def test_the_excess_risk_meets_the_target_as_often_as_promised() -> None:
    x, y = table()
    request = request_for(excess_risk=0.01)
    sealed, bits = request.measure(read_rows(x, y)), SeededBits(1)

    releases = [request.climb(sealed, bits) for _ in range(40)]

    assert all(release.receipt.outcome is Outcome.CERTIFIED for release in releases)
    assert np.mean([excess(x, y, release.value.coefficients) > 0.01 for release in releases]) <= 0.2
    assert all(
        release.receipt.bill == ZeroConcentratedLoss(request._ladder[release.receipt.rung]) for release in releases
    )


def test_the_noise_has_the_deviation_that_the_certificate_assumes() -> None:
    x, y = table(200)
    layout = EuclideanLayout(UnitBall(3))
    sealed = layout.measure(UnitRows(read_rows(x, y), layout.ball, grid_numbers(1.0)))
    bits, rho = SeededBits(3), Fraction(1, 2)

    seen = [layout.unpack(GaussianPath(sealed, [rho], bits=bits).at(0), 200) for _ in range(500)]

    deviation = np.sqrt(4.5 / (2 * 0.5)) / 200
    gram = np.array([each.gram for each in seen]) - x.T @ x / 200
    diagonal, off = gram[:, range(3), range(3)], gram[:, [0, 0, 1], [1, 2, 2]]
    cross = np.array([each.cross for each in seen]) - x.T @ y / 200
    for part, share in ((diagonal, 1.0), (off, 5 / 7), (cross, 1.0)):
        # 1,500 values: the deviation is known to 1.8 %, so 10 % are noticed.
        assert part.std() == pytest.approx(share * deviation, rel=0.08)


def test_no_replaced_row_moves_the_vector_further_than_declared() -> None:
    layout = EuclideanLayout(UnitBall(2, Norm.L2))
    angles = np.linspace(0, 2 * np.pi, 25)
    records = []
    for angle, y in itertools.product(angles, (-1.0, 0.0, 1.0)):
        x = np.array([np.cos(angle), np.sin(angle)])
        outer = np.outer(x, x)
        records.append(np.array([5 * outer[0, 0], 7 * outer[0, 1], 5 * outer[1, 1], 5 * x[0] * y, 5 * x[1] * y]))

    furthest = max(np.linalg.norm(a - b) for a, b in itertools.combinations(records, 2))

    declared = float(layout.sensitivity.amount) / 4.0**20
    assert 0.97 * declared < furthest <= declared * (1 + 1e-12)


@pytest.mark.parametrize("dimension", [1, 4, 30])
def test_the_envelope_covers_gaussian_noise(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    envelope = GaussianEnvelope.of(dimension, 0.1)
    outside = 0
    for _ in range(400):
        half = rng.normal(size=(dimension, dimension)) * 5 / 7
        matrix = np.triu(half, 1) + np.triu(half, 1).T + np.diag(rng.normal(size=dimension))
        outside += (
            np.linalg.norm(matrix, 2) > envelope.matrix or np.linalg.norm(rng.normal(size=dimension)) > envelope.vector
        )

    assert outside / 400 <= 0.1
    assert np.sqrt(dimension) < envelope.vector < np.sqrt(dimension) + 3


def test_the_cap_implies_the_epsilon_asked_for_and_hardly_less() -> None:
    rho = rho_for(Fraction(1), DELTA)

    assert ConcentratedTotal(rho, Fraction(0)).epsilon(DELTA) <= 1
    assert ConcentratedTotal(rho * Fraction(1001, 1000), Fraction(0)).epsilon(DELTA) > 1


def test_a_missed_target_is_flagged() -> None:
    x, y = table()
    request = request_for(excess_risk=1e-5, max_epsilon=0.5)

    release = request.climb(request.measure(read_rows(x, y)), SeededBits(2))

    assert release.receipt.outcome is Outcome.NOT_MET
    assert release.receipt.bill == request.worst_case


def test_the_estimator_bills_an_account_in_zcdp(tmp_path) -> None:
    x, y = table()
    path = str(tmp_path / "table.ledger")
    ledger = open_ledger(path)
    ledger.open_account("dataset:table", expost.zcdp(10))

    model = Ridge(
        epsilon=2.0, delta=1e-6, regularization=PENALTY, ledger=path, feature_bound=1.0, target_bounds=1.0
    ).fit(x, y)

    assert ledger.spent("dataset:table") == model.receipt_.bill
    assert model.receipt_.terms["epsilon at delta"] <= 2.0
    assert model.repenalised(0.1).coef_.shape == (3,)


def test_a_delta_makes_no_target_dearer() -> None:
    x, y = table()
    terms = {"excess_risk": 0.05, "regularization": PENALTY, "max_epsilon": 8.0, "simulation_seed": 3}
    terms |= {"feature_bound": 1.0, "target_bounds": 1.0}

    plain, loose = Ridge(**terms).fit(x, y), Ridge(delta=1e-6, **terms).fit(x, y)
    moments = Ridge(delta=1e-6, method="certificate", **terms).fit(x, y)

    assert loose.receipt_.bill == plain.receipt_.bill
    assert loose.receipt_.epsilon < moments.receipt_.terms["epsilon at delta"]


def test_gaussian_moments_are_taken_where_a_tilt_does_not_fit_the_cap() -> None:
    x, y = table()
    terms = {"excess_risk": 0.05, "regularization": PENALTY, "max_epsilon": 0.01, "simulation_seed": 3}

    with pytest.raises(expost.BudgetExceeded):
        Ridge(feature_bound=1.0, target_bounds=1.0, **terms).fit(x, y)
    with pytest.raises(expost.TargetNotMet) as missed:
        Ridge(delta=1e-6, feature_bound=1.0, target_bounds=1.0, **terms).fit(x, y)
    assert missed.value.receipt.bill.definition == "zcdp"
