"""A long vector is hardly ever taken for a short one, wherever it points; a short one is recognised."""

import math

import numpy as np
import pytest

from expost.accuracy.short_vector import is_short, log_chance


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
