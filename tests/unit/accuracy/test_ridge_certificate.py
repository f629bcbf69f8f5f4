"""Certificates for ridge regression hold at least as often as promised."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost.accuracy.noise_envelope import OFFSETS, NoiseEnvelope
from expost.accuracy.ridge_certificate import (
    CELLS,
    CLIMB_COST,
    REMAINDER_RATIO,
    THRESHOLDS,
    ExcessRiskCertificate,
    SquaredErrorCertificate,
    acceptance,
    is_short,
    largest_scale,
    log_chance,
)
from expost.core import Ladder, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, SeededBits

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


def noisy_lengths(exact: np.ndarray, draws: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).laplace(size=(draws, len(exact)))
    return np.linalg.norm(exact + noise, axis=1)


@pytest.mark.parametrize("dimension", [1, 3, 30])
@pytest.mark.parametrize("shape", ["axis", "diagonal"])
def test_the_chance_of_looking_short_is_bounded(dimension: int, shape: str) -> None:
    direction = np.ones(dimension) if shape == "diagonal" else np.eye(dimension)[0]
    for length in (2.0, 5.0, 9.0):
        lengths = noisy_lengths(direction / np.linalg.norm(direction) * length, 20_000)
        for share in (0.5, 0.1, 0.01):
            seen = float(np.quantile(lengths, share))
            assert log_chance(seen, length, dimension) >= math.log(share) - 0.1


def test_an_axis_is_the_worst_direction() -> None:
    axis, diagonal = (noisy_lengths(v, 100_000) for v in (np.eye(9)[0] * 7, np.full(9, 7 / 3)))

    assert np.quantile(axis, 0.01) < np.quantile(diagonal, 0.01)


def test_noise_alone_is_recognised_as_short_long_before_its_own_length() -> None:
    lengths = noisy_lengths(np.zeros(77), 300)

    recognised = np.mean([is_short(float(each), 16.0, 77, 0.003) for each in lengths])

    assert recognised > 0.7
    # The triangle inequality could only say that the exact vector is shorter than noise and noisy vector together.
    assert np.median(lengths) + np.quantile(lengths, 0.997) > 25


def test_longer_vectors_and_shorter_readings_are_less_likely() -> None:
    assert log_chance(10.0, 9.0, 20) < log_chance(10.0, 8.0, 20) < log_chance(11.0, 8.0, 20) <= 0


FIRST = 10_000  # the noise of the first rung, in grid units
LEVELS = Ladder(tuple(Fraction(1, FIRST) * REMAINDER_RATIO**rung for rung in range(len(THRESHOLDS))))


@pytest.fixture(scope="module")
def rungs() -> np.ndarray:
    """Noise of whole paths, one column a path, in units of the first rung's."""
    bits, size = SeededBits(11), 200_000
    # Each coordinate of a path has its own coins; with sensitivity 1 a level is a rate.
    path = DiscreteLaplacePath(Sealed(np.zeros(size, dtype=np.int64), Sensitivity(1)), LEVELS, bits=bits)
    return path.block(0, len(THRESHOLDS)) / FIRST


def highest_accepted(rungs: np.ndarray) -> np.ndarray:
    """The largest remainder that some rung of each path accepts."""
    return (np.array([float(each) for each in THRESHOLDS])[:, None] - rungs).max(axis=0)


def test_no_remainder_is_accepted_more_often_than_bounded(rungs: np.ndarray) -> None:
    accepted = highest_accepted(rungs)
    for remainder in (0.5, 1.0, 2.0, 3.0, 4.0, 6.0):
        share = float(np.mean(accepted >= remainder))
        bound = float(acceptance(np.array([remainder]))[0])
        error = np.sqrt(share * (1 - share) / len(accepted))
        assert share <= bound + 3 * error
        # Noise a tenth larger would break the bound.
        if remainder >= 3:
            assert bound < share * 1.05
            assert float(np.mean(accepted * 1.1 >= remainder)) > bound + 3 * error


def test_a_climb_over_nothing_costs_what_is_planned_and_hardly_ever_fails(rungs: np.ndarray) -> None:
    accepts = rungs <= np.array([float(each) for each in THRESHOLDS])[:, None]
    stopped = np.where(accepts.any(axis=0), accepts.argmax(axis=0), len(THRESHOLDS) - 1)

    assert np.mean(float(REMAINDER_RATIO) ** stopped) == pytest.approx(CLIMB_COST, rel=0.02)
    assert np.mean(~accepts.any(axis=0)) < 0.005


@pytest.mark.parametrize("failure", [0.02, 0.1, 0.3])
def test_the_worst_dependence_of_remainder_on_room_uses_the_failures_up(rungs: np.ndarray, failure: float) -> None:
    # The room is 100 minus a square of an exponential: P(known > t) is exact. The remainder is as large as the room.
    known = np.log(1 / CELLS) ** 2 * 5
    scale = largest_scale(100 - known, Fraction(failure), grid=1e-6)
    assert scale is not None
    draws = np.random.default_rng(0).exponential(size=rungs.shape[1]) ** 2 * 5

    failed = np.mean(highest_accepted(rungs) * scale >= 100 - draws)

    assert 0.9 * failure < failed <= failure + 3 * np.sqrt(failure / rungs.shape[1])


def test_no_noise_is_found_where_the_known_part_fails_too_often_by_itself() -> None:
    assert largest_scale(np.full(len(CELLS), -1.0), Fraction(1, 10), grid=1e-6) is None


def test_a_coarse_grid_costs_noise_and_never_failures() -> None:
    rooms = np.full(len(CELLS), 50.0)
    fine, coarse = (largest_scale(rooms, Fraction(1, 10), grid=grid) for grid in (1e-9, 1e-3))

    assert fine is not None and coarse is not None and coarse < fine
