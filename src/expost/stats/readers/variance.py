"""Variances from three shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
from expost.data import Clamp
from expost.stats.readers.contract import ClimbedReader
from expost.stats.reading import Reading

__all__ = ["DeviationReader", "SquareMeanReader", "VarianceReader"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VarianceReader(ClimbedReader):
    """Reads the variance (of the rows, divided by their number) off the shares t^2, 2 t (steps - t), (steps - t)^2.

    For any m the sum of (f - m)^2 over the rows is linear in the shares, with weights (1 - m)^2, -m (1 - m), m^2, and
    the variance is its mean at the exact mean, which is its minimum over m (docs/proofs/shares.md).

    >>> reader = VarianceReader(Clamp.of((0, 10), whole=True))
    >>> reader.read(np.array([[50_000], [0], [50_000]]), scale=1.0, level=0.05).value.tolist()
    [25.0]
    """

    clamp: Clamp

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell; where nothing is certain, the interval is the whole range."""
        shares, error = _shares(noisy, self.clamp, scale, level)
        middle = np.clip(shares[0] + shares[1] / 2, 0, 1)
        weights = np.stack([(1 - middle) ** 2, -middle * (1 - middle), middle**2])
        value = np.clip((weights * shares).sum(axis=0), 0, 0.25)
        above = value + error * _spread(weights, np.minimum(value + 2.75 * error, 1.0))
        below = value - error * _spread(weights, above) - (1.5 * error) ** 2
        return _scaled(Reading(value, below, above), self.clamp)


@dataclass(frozen=True)
class SquareMeanReader(ClimbedReader):
    """Reads the mean off the same three shares.

    >>> reader = SquareMeanReader(Clamp.of((0, 10), whole=True))
    >>> reader.read(np.array([[50_000], [0], [50_000]]), scale=1.0, level=0.05).value.tolist()
    [5.0]
    """

    clamp: Clamp

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell; where nothing is certain, the interval is the whole range."""
        shares, error = _shares(noisy, self.clamp, scale, level)
        share = shares[0] + shares[1] / 2
        low, width, rounding = float(self.clamp.low), float(self.clamp.high - self.clamp.low), self.clamp.rounding
        ends = (low + width * np.clip(end, 0, 1) for end in (share, share - 1.5 * error, share + 1.5 * error))
        value, below, above = ends
        return Reading(value, below - float(rounding), above + float(rounding))


@dataclass(frozen=True)
class DeviationReader(ClimbedReader):
    """Reads the standard deviation: the root of the variance and of its ends.

    >>> reader = DeviationReader(Clamp.of((0, 10), whole=True))
    >>> reader.read(np.array([[50_000], [0], [50_000]]), scale=1.0, level=0.05).value.tolist()
    [5.0]
    """

    clamp: Clamp

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell."""
        squared = VarianceReader(self.clamp).read(noisy, scale, level)
        return Reading(np.sqrt(squared.value), np.sqrt(squared.low), np.sqrt(squared.high))


def _shares(noisy: NDArray[Any], clamp: Clamp, scale: float, level: float) -> tuple[Floats, Floats]:
    """Return the three shares of the noisy total, and how far each noise can be from none, as a share of it."""
    # All three noises stay within the radius except with ``level``: they are independent.
    radius = noise_radius(-np.expm1(np.log1p(-level) / 3), scale)
    floats = np.array(noisy / clamp.steps**2, dtype=np.float64)
    error = radius / clamp.steps**2
    # No share is negative, whatever the rows. Where one seems to be by more than the noise can do, nothing is certain: the
    # interval is the whole range, and the value still what the noisy shares say.
    certain = (floats.sum(axis=0) > error) & (floats >= -error).all(axis=0)
    floats = np.where(floats.sum(axis=0) > 0, floats, np.maximum(floats, 0.0))
    total = floats.sum(axis=0)
    divisor = np.where(total > 0, total, 1.0)
    return np.where(total > 0, floats / divisor, 1 / 3), np.where(certain, error / divisor, 1.0)


def _spread(weights: Floats, variance: Floats) -> Floats:
    """The largest factor with which the three noises move the mean square, whatever it is up to ``variance``."""
    # Noise i moves it by (weight_i - exact mean square) / total; the sum of sizes is convex in the exact value.
    spread: Floats = np.maximum(np.abs(weights).sum(axis=0), np.abs(weights - variance).sum(axis=0))
    return spread


def _scaled(reading: Reading, clamp: Clamp) -> Reading:
    squared = float(clamp.high - clamp.low) ** 2
    slack = float(clamp.rounding) * float(clamp.high - clamp.low) * 2
    low, high = np.clip(reading.low, 0, 0.25) * squared, np.clip(reading.high, 0, 0.25) * squared
    return Reading(reading.value * squared, np.maximum(low - slack, 0), high + slack)
