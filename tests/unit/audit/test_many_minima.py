from fractions import Fraction

import numpy as np
import pytest

from expost.audit.fit_views import ManyMinima
from expost.core import Norm
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear import TiltedRisk
from expost.models.linear.classifier_fit import grid_labels
from expost.models.linear.risk_minimum import Objective, minimize_objective
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, TruncatedSquare
from expost.models.linear.tilted_risk import GaussianTilt, LaplaceTilt, SphericalTilt
from expost.noise import SeededBits

GRID = 2.0**-GRID_BITS


def rows(columns=2):
    generator = np.random.default_rng(1)
    features, target = generator.uniform(-0.5, 0.5, (9, columns)), generator.choice([-1.0, 1.0], 9)
    return read_rows(features, target)


@pytest.mark.parametrize("loss", [LogisticLoss(), HuberHinge(), TruncatedSquare(1.0)], ids=lambda loss: loss.name)
def test_many_minima_are_those_of_the_solver(loss):
    square = isinstance(loss, TruncatedSquare)
    table = UnitRows(rows(), UnitBall(2), grid_numbers(1.0) if square else grid_labels((-1.0, 1.0)))
    scale = GRID if square else 1.0
    tilts = np.random.default_rng(2).normal(0, 3, (200, 2))
    found = ManyMinima(table, loss, 0.3, scale)(tilts)
    one_by_one = [minimize_objective(Objective(table, loss, 0.3, tilt, scale)) for tilt in tilts]

    np.testing.assert_allclose(found, one_by_one, atol=1e-7)


def test_slopes_lead_back_to_the_tilt():
    minima = ManyMinima(UnitRows(rows(), UnitBall(2), grid_labels((-1.0, 1.0))), LogisticLoss(), 0.3)
    tilts = np.random.default_rng(3).normal(0, 2, (100, 2))

    np.testing.assert_allclose(minima.slopes(minima(tilts)), tilts, atol=1e-8)


@pytest.mark.parametrize(
    "law",
    [
        LaplaceTilt(2, 1.0, 1.0),
        SphericalTilt(2, 1.0),
        GaussianTilt(2, 1.0, Fraction(1, 20), one_sided=True),
    ],
    ids=lambda law: law.name,
)
def test_simulated_releases_have_the_law_of_releases(law):
    """Means of 400 single releases and of 20,000 simulated ones: within five standard errors, at fixed seeds."""
    risk = TiltedRisk(LogisticLoss(), UnitBall(2, Norm.L2), 9, 0.5, law)
    table = UnitRows(rows(), risk.ball, grid_labels((-1.0, 1.0)))
    bits = SeededBits(5)
    single = np.array([risk.release(table, Fraction(2), bits=bits) for _ in range(400)])
    many = risk.simulate(ManyMinima(table, LogisticLoss(), 0.5), Fraction(2), runs=20_000, bits=bits)

    for of in (lambda values: values, np.abs):
        difference = np.abs(of(single).mean(axis=0) - of(many).mean(axis=0))
        assert (difference < 5 * of(single).std(axis=0) / 20).all()
