"""Radii of weighted sums of Laplace noises: safe, and hardly wider than needed."""

import numpy as np
import pytest

from expost.accuracy.weighted_noise import continuous_radius, equal_sum_factors, laplace_sum_radius, lower_radius


def draw_noise(rng: np.random.Generator, scale: float, size: tuple[int, ...]) -> np.ndarray:
    chance = 1 - np.exp(-1 / scale)
    return rng.geometric(chance, size) - rng.geometric(chance, size)


@pytest.mark.parametrize(
    ("weights", "slack"),
    [
        ([1.0], 0.03),
        ([1.0, 0.5], 0.03),
        ([1.0, 1.0], 0.06),
        ([1.0, -1.0, 1.0], 0.1),
        ([1.0, 0.0, 0.3, 0.3], 0.06),
        ([1.0] * 7, 0.03),
        ([1.0] * 16, 0.03),
        ([1.0] + [0.3] * 40, 0.03),
    ],
)
@pytest.mark.parametrize("level", [0.05, 0.005])
def test_a_sum_exceeds_its_radius_about_as_often_as_asked(weights: list[float], slack: float, level: float) -> None:
    rng, draws = np.random.default_rng(7), 100_000
    noise = np.abs(np.array(weights) @ draw_noise(rng, 40.0, (len(weights), draws)))

    radius = laplace_sum_radius(np.array(weights)[:, None], 40.0, level)[0]

    # Five standard errors: a false alarm in 3e-7 of all seeds. A radius that is 10 % too small would fail.
    assert np.mean(noise > radius) <= level + 5 * np.sqrt(level / draws)
    assert radius <= np.quantile(noise, 1 - level) * (1.06 + slack)


def test_a_radius_grows_with_every_weight_and_with_confidence() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.uniform(0, 1, (5, 200))
    larger = sizes * rng.uniform(1, 1.5, sizes.shape)

    assert (continuous_radius(larger, 0.01) >= continuous_radius(sizes, 0.01) * (1 - 1e-9)).all()
    assert (continuous_radius(sizes, 0.001) >= continuous_radius(sizes, 0.01)).all()


@pytest.mark.parametrize("sizes", [[1.0] * 5, [1.0, 1e-3, 1e-3, 1e-3, 1e-3], [1.0] * 3 + [0.2] * 90])
@pytest.mark.parametrize("level", [0.3, 0.01, 1e-4, 1e-9])
def test_the_series_of_many_noises_is_never_below_the_root_of_their_tail(sizes: list[float], level: float) -> None:
    # The exact tail of equal noises is a mixture of Erlang laws; others are compared with one noise alone, which they exceed.
    radius = continuous_radius(np.array(sizes)[:, None], level)[0]

    equal = sizes.count(1.0)
    exact, _ = equal_sum_factors(equal, level)
    assert radius >= exact * (1 - 1e-9)
    if equal == len(sizes) and level > 1e-8:
        assert radius <= exact * 1.001


def test_a_single_noise_has_its_exact_radius_and_no_noise_has_none() -> None:
    assert continuous_radius(np.array([[2.0]]), 0.05)[0] == pytest.approx(2 * np.log(20))
    assert laplace_sum_radius(np.zeros((3, 2)), 10.0, 0.05).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("level", [1e-3, 1e-6, 1e-9, 1e-12])
def test_tiny_levels_fall_back_to_a_bound_that_floats_can_keep(level: float) -> None:
    sizes = np.ones((20, 1))
    radius = continuous_radius(sizes, level)[0]
    multiplier = np.linspace(0.001, 0.999, 999)

    best = ((-20 * np.log1p(-(multiplier**2)) + np.log(2 / level)) / multiplier).min()

    assert np.log(1 / level) < radius <= best * 1.01


@pytest.mark.parametrize("level", [0.3, 0.01, 1e-9])
def test_radii_are_lowered_to_the_root_of_the_tail_and_not_below_it(level: float) -> None:
    scales = np.array([0.2, 1.0, 50.0])

    def tail(radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = (1 + radius / (2 * scales)) * np.exp(-radius / scales)  # of the sum of two noises of one scale
        return parts, (1 + radius / scales) * np.exp(-radius / scales) / (2 * scales)

    radius = lower_radius(2 * scales * np.log(2 / level), tail, level)

    assert (tail(radius)[0] <= level).all()
    assert (tail(radius * (1 - 1e-4))[0] > level).all()
