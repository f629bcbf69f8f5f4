"""The law of a test statistic with its noise inside: a normal number plus independent Laplace numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["noisy_normal_quantile", "noisy_normal_tail"]

Floats = NDArray[np.float64]

_APART = 1.005  # scales closer than this are moved apart, upwards: more noise in the reference, never less


def noisy_normal_tail(at: Any, deviation: Any, scales: list[Any]) -> Floats:
    """P(Z > at) for Z = Normal(0, deviation^2) + the sum of Laplace(scale) over ``scales``; broadcasts.

    With different scales the characteristic function of the Laplace part splits into partial fractions,
    prod 1/(1 + b_i^2 t^2) = sum w_i / (1 + b_i^2 t^2), w_i = prod_{j != i} b_i^2 / (b_i^2 - b_j^2), so the tail is a
    weighted sum of tails of normal plus one Laplace, each in closed form. Discrete Laplace noise of scale b = 1/e has
    the moment generating function 1/(1 - (sinh(t/2)/sinh(e/2))^2) <= 1/(1 - (t/e)^2), so the reference is not narrower
    than the noise that was added.

    >>> float(noisy_normal_tail(0.0, 1.0, [2.0]))
    0.5
    >>> round(float(noisy_normal_tail(3.0, 1.0, [2.0, 0.5])), 4)
    0.1342
    """
    x, s = np.asarray(at, np.float64), np.asarray(deviation, np.float64)
    parts = _separated([np.asarray(scale, np.float64) for scale in scales if np.any(np.asarray(scale) > 0)])
    if not parts:
        normal: Floats = special.ndtr(-x / np.maximum(s, 1e-300))
        return normal
    widest = parts[-1]
    s = np.maximum(s, widest * 1e-9)
    total: Floats = np.zeros(np.broadcast_shapes(x.shape, s.shape, *(part.shape for part in parts)))
    for index, b in enumerate(parts):
        weight = np.ones_like(b)
        for other, c in enumerate(parts):
            if other != index:
                weight = weight * b**2 / (b**2 - c**2)
        total = total + weight * _one_tail(x, s, b)
    return np.clip(total, 0.0, 1.0)


def noisy_normal_quantile(tail: float, deviation: float, scales: list[float]) -> float:
    """The point that the same sum exceeds with probability ``tail`` < 1/2; found by bisection, rounded outwards.

    >>> round(noisy_normal_quantile(0.025, 1.0, []), 3)
    1.96
    """
    spread = deviation + sum(scales)
    low, high = 0.0, spread
    while float(noisy_normal_tail(high, deviation, scales)) > tail:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if float(noisy_normal_tail(middle, deviation, scales)) > tail else (low, middle)
    return high


def _separated(scales: list[Floats]) -> list[Floats]:
    """The scales in rising order, each at least a little above the one before."""
    if not scales:
        return []
    ordered = np.sort(np.stack(np.broadcast_arrays(*scales)), axis=0)
    apart = [np.maximum(ordered[0], ordered[-1] * 1e-6)]
    for scale in ordered[1:]:
        apart.append(np.maximum(scale, _APART * apart[-1]))
    return apart


def _one_tail(x: Floats, s: Floats, b: Floats) -> Floats:
    """P(Normal(0, s^2) + Laplace(b) > x): the Gaussian tail plus two exponentially tilted ones."""
    log_tilt = s**2 / (2 * b**2)
    up = np.exp(np.minimum(log_tilt - x / b + special.log_ndtr(x / s - s / b), 0.0))
    down = np.exp(np.minimum(log_tilt + x / b + special.log_ndtr(-x / s - s / b), 0.0))
    tail: Floats = special.ndtr(-x / s) + (up - down) / 2
    return tail
