"""Tails and radii of discrete Laplace noise against direct sums of the law."""

import math
from fractions import Fraction

import pytest

from expost.accuracy.interval import epsilon_for_radius, noise_radius, noise_tail


def summed_tail(radius: int, scale: float) -> float:
    a = math.exp(-1 / scale)
    far = radius + 1 + int(60 * scale)
    return 2 * math.fsum((1 - a) / (1 + a) * a**k for k in range(radius + 1, far))


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5, 100.0])
@pytest.mark.parametrize("radius", [0, 1, 5, 40])
def test_the_tail_is_the_sum_of_the_law(scale: float, radius: int) -> None:
    assert noise_tail(radius, scale) == pytest.approx(summed_tail(radius, scale), rel=1e-9)


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5, 1000.0])
@pytest.mark.parametrize("failure", [0.5, 0.05, 1e-6])
def test_a_radius_is_enough_and_one_less_is_not(scale: float, failure: float) -> None:
    radius = noise_radius(failure, scale)

    assert noise_tail(radius, scale) <= failure
    assert radius == 0 or noise_tail(radius - 1, scale) > failure


@pytest.mark.parametrize("radius", [0, 1, 10, 1000])
@pytest.mark.parametrize("sensitivity", [1, 50])
def test_the_level_for_a_radius_is_enough_and_nearly_the_least(radius: int, sensitivity: int) -> None:
    level = epsilon_for_radius(radius, Fraction(1, 20), sensitivity)

    assert noise_tail(radius, sensitivity / level) <= 0.05
    assert noise_tail(radius, sensitivity / (level * Fraction(99999, 100000))) > 0.05
