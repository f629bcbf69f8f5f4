"""How far discrete Laplace noise strays: exact tails, radii and the level that a radius needs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.rational import rational, round_up

__all__ = ["epsilon_for_radius", "noise_radii", "noise_radius", "noise_tail", "shared_level"]

_SLACK = 1e-12  # relative error allowed for the float formulas below; always spent on the safe side


def noise_tail(radius: int, scale: float | Fraction) -> float:
    """The probability that discrete Laplace noise of this scale exceeds ``radius`` in absolute value, rounded up.

    With a = exp(-1/scale) the law is (1-a)/(1+a) a^|k|, so the tail is 2 a^(radius+1) / (1+a) (GRS09, Definition 2).

    >>> round(noise_tail(3, 1.0), 6)
    0.02678
    """
    if radius < 0:
        return 1.0
    rate = 1 / float(scale)
    return 2 * math.exp(-rate * (radius + 1)) / (1 + math.exp(-rate)) * (1 + _SLACK)


def noise_radius(failure_probability: float | Fraction, scale: float | Fraction) -> int:
    """The smallest radius that discrete Laplace noise exceeds with at most this probability.

    >>> noise_radius(0.05, 10)
    30
    """
    failure, rate = float(failure_probability), 1 / float(scale)
    if not 0 < failure < 1:
        raise InvalidRequest("Expected a failure probability between 0 and 1", got=failure, do="Pass a probability")
    guess = math.ceil(math.log(2 / (failure * (1 + math.exp(-rate)))) / rate) - 1
    radius = max(guess - 1, 0)
    while noise_tail(radius, scale) > failure:
        radius += 1
    return radius


def noise_radii(failure_probability: float, rates: NDArray[np.float64]) -> NDArray[np.int64]:
    """The radius of each rate (1 / scale), as ``noise_radius`` but for many rates at once.

    >>> noise_radii(0.05, np.array([0.1, 10.0])).tolist()
    [30, 0]
    """
    logs = np.log(2 / failure_probability) - np.log1p(np.exp(-rates))
    radii: NDArray[np.int64] = np.maximum(np.ceil(logs / rates * (1 + _SLACK)) - 1, 0).astype(np.int64)
    return radii


def epsilon_for_radius(radius: int, failure_probability: Fraction, sensitivity: Fraction | int = 1) -> Fraction:
    """The smallest level whose noise stays within ``radius`` except with this probability, rounded up.

    >>> float(epsilon_for_radius(100, Fraction(1, 20)))
    0.029...
    """
    failure = float(failure_probability)
    low, high = 0.0, 2 * math.log(2 / failure) + 1
    while high - low > 1e-14 * high:
        rate = (low + high) / 2
        low, high = (low, rate) if noise_tail(radius, 1 / rate) <= failure else (rate, high)
    return rational(round_up(high) * Fraction(sensitivity), "epsilon")


def shared_level(failure_probability: Fraction, count: int) -> Fraction:
    """The failure probability of each of ``count`` independent events such that together they fail with at most this.

    For independent noise 1 - (1 - p)^(1/count) is exact (Sidak), a little more than an even split; rounded down.

    >>> float(shared_level(Fraction(1, 20), 2))
    0.0253...
    """
    if count == 1:
        return failure_probability
    exact = -math.expm1(math.log1p(-float(failure_probability)) / count)
    return max(Fraction(exact * (1 - 1e-9)).limit_denominator(10**15), failure_probability / count)
