"""A certificate never promises more accuracy than there is, whatever noise and data."""

import numpy as np
import pytest

from expost.accuracy.noise_envelope import OFFSETS, NoiseEnvelope
from expost.accuracy.ridge_certificate import ExcessRiskCertificate, SquaredErrorCertificate

PENALTY, WIDTH = 0.05, 4


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, WIDTH)) * rng.uniform(0.05, 0.5, WIDTH)
    y = np.clip(x @ rng.normal(size=WIDTH) + 0.1 * rng.normal(size=30), -1, 1)
    return x.T @ x / 30, x.T @ y / 30, float(y @ y / 30)


def noise(seed: int) -> tuple[np.ndarray, np.ndarray, NoiseEnvelope]:
    """Noise and an envelope that is exactly as large as this noise: the event that the proof assumes."""
    rng = np.random.default_rng(1000 + seed)
    half = rng.laplace(size=(WIDTH, WIDTH)) / 2
    matrix = np.triu(half, 1) + np.triu(half, 1).T + np.diag(rng.laplace(size=WIDTH))
    vector = rng.laplace(size=WIDTH)
    stretches = np.array([np.linalg.norm(np.column_stack([matrix, vector / offset]), 2) for offset in OFFSETS])
    return matrix, vector, NoiseEnvelope(stretches, float(np.linalg.norm(matrix, 2)))


@pytest.mark.parametrize("scale", [0.0003, 0.003, 0.03, 0.3])
def test_the_excess_risk_is_never_above_its_bound(scale: float) -> None:
    tight = []
    for seed in range(100):
        gram, cross, _ = problem(seed)
        matrix, vector, envelope = noise(seed)

        best = ExcessRiskCertificate(PENALTY, envelope).best(gram + scale * matrix, cross + scale * vector, scale=scale)

        curvature = gram + PENALTY * np.eye(WIDTH)
        away = best.theta - np.linalg.solve(curvature, cross)
        excess = away @ curvature @ away / 2
        assert excess <= best.bound
        tight.append(excess / best.bound)
    assert max(tight) > 0.02  # not a bound that would hold for anything


@pytest.mark.parametrize("scale", [0.0003, 0.003, 0.03])
def test_the_squared_error_is_never_above_its_bound(scale: float) -> None:
    for seed in range(100):
        gram, cross, square = problem(seed)
        matrix, vector, envelope = noise(seed)
        own = float(np.random.default_rng(seed).laplace())

        best = SquaredErrorCertificate(1e-6, envelope, max(-own, 0.0)).best(
            gram + scale * matrix, cross + scale * vector, square + scale * own, scale=scale
        )

        error = square - 2 * best.theta @ cross + best.theta @ gram @ best.theta
        assert error <= best.bound + 1e-12


def test_zero_is_chosen_when_there_is_nothing_but_noise() -> None:
    certificate = ExcessRiskCertificate(PENALTY, NoiseEnvelope.of(WIDTH, 0.01))

    best = certificate.best(np.zeros((WIDTH, WIDTH)), np.zeros(WIDTH), scale=0.01)

    assert not best.theta.any()


def test_less_noise_certifies_more() -> None:
    gram, cross, square = problem(0)
    envelope = NoiseEnvelope.of(WIDTH, 0.01)
    scales = (0.1, 0.01, 0.001, 0.0001)

    excess = [ExcessRiskCertificate(PENALTY, envelope).best(gram, cross, scale=scale).bound for scale in scales]
    error = [
        SquaredErrorCertificate(1e-6, envelope, 3.0).best(gram, cross, square, scale=scale).bound for scale in scales
    ]

    assert excess == sorted(excess, reverse=True)
    assert error == sorted(error, reverse=True)


def test_a_well_curved_problem_uses_its_curvature() -> None:
    envelope = NoiseEnvelope.of(WIDTH, 0.01)
    gram = np.eye(WIDTH)

    curved = ExcessRiskCertificate(1e-6, envelope).best(gram, np.full(WIDTH, 0.3), scale=1e-4)

    assert curved.bound < 1e-4  # by the penalty alone it would be about 1
