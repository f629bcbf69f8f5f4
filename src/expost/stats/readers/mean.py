"""Means from two shares: no count is released and divided by, both come from the same two numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data import Clamp
from expost.stats.readers.contract import CLEAR, ClimbedReader
from expost.stats.reading import Reading

__all__ = ["CentredMeanReader", "MeanReader", "weighted_radius"]

Floats = NDArray[np.float64]

_HALVINGS = 24  # the upper end is returned, so what is left of the bracket is on the safe side


@dataclass(frozen=True)
class MeanReader(ClimbedReader):
    """Reads the mean of clamped values off the shares (sum of t, sum of steps - t).

    With f the exact share of t in the total and noises X, Y, the noisy share F of the noisy total T misses by
    F - f = ((1 - f) X - f Y) / T, a weighted sum of two independent noises over a *known* number. So the interval is
    that of a ratio without any division by an unknown (docs/proofs/shares.md).

    >>> reader = MeanReader(Clamp.of((0, 10), whole=True))
    >>> reader.read(np.array([[4000], [6000]]), scale=10.0, level=0.05).value.tolist()
    [4.0]
    """

    clamp: Clamp

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell; where nothing is certain, the interval is the whole range.

        The value is always the noisy ratio, moved into the bounds: every exact mean is nearer to it than before.
        """
        up, down = noisy.astype(np.float64)
        share, low, high = share_interval(up, down, scale, level)
        width = float(self.clamp.high - self.clamp.low)
        rounding = float(self.clamp.rounding)
        value, low, high = (float(self.clamp.low) + width * end for end in (share, low, high))
        return Reading(value, low - rounding, high + rounding)


@dataclass(frozen=True)
class CentredMeanReader(ClimbedReader):
    """Reads the mean off a centred sum and a count in steps, for tables in which rows are replaced.

    With y in [-1, 1] the exact mean counted from the middle in half ranges, and noises X, Y, the ratio F of the noisy
    sum and the noisy count T misses by F - y = (X - y Y) / T, once more over a known number (docs/proofs/shares.md).

    >>> reader = CentredMeanReader(Clamp.of((0, 10), whole=True))
    >>> reader.read(np.array([[-2000], [10000]]), scale=10.0, level=0.05).value.tolist()
    [4.0]
    """

    clamp: Clamp

    def informed(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Whether the noisy number of rows is clear of the noise."""
        return np.asarray(noisy[1] > CLEAR * scale)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each cell, as ``MeanReader`` reads them."""
        centred, total = noisy[0].astype(np.float64), noisy[1].astype(np.float64)
        known = total > 0
        safe = np.where(known, total, 1.0)
        ratio = np.where(known, centred / safe, 0.0)
        first = np.where(known, _centred_radius(np.ones_like(safe), scale, level) / safe, 2.0)
        # Whatever lies outside the first interval is excluded, and the radius grows with the size of the mean.
        farthest = np.minimum(np.abs(ratio) + first, 1.0)
        error = _centred_radius(farthest, scale, level) / safe
        # A mean that cannot be one shows that the noise is beyond its radius: then nothing is certain.
        certain = known & (np.abs(ratio) - error <= 1)
        value = 2 * _positive_share(total + centred, total - centred) - 1
        low, high = np.where(certain, ratio - error, -1.0), np.where(certain, ratio + error, 1.0)
        middle, half = float(self.clamp.low + self.clamp.high) / 2, float(self.clamp.high - self.clamp.low) / 2
        value, low, high = (middle + half * np.clip(end, -1, 1) for end in (value, low, high))
        rounding = float(self.clamp.rounding)
        return Reading(value, low - rounding, high + rounding)


def _centred_radius(size: Floats, scale: float, level: float) -> Floats:
    """The radius of X - y Y for |y| = size: (1 + y) times that of a pair whose weights add up to one."""
    return (1 + size) * weighted_radius(size / (1 + size), scale, level)


def share_interval(up: Floats, down: Floats, scale: float, level: float) -> tuple[Floats, Floats, Floats]:
    """Return the share of the first number in the total, and the ends of its interval at this level."""
    total = up + down
    known = total > 0
    safe = np.where(known, total, 1.0)
    share = np.where(known, up / safe, 0.5)
    alone = scale * np.log(1 / level) + 1  # the radius of one noise alone, which no pair exceeds
    bound = np.where(known, alone / safe, 1.0)
    # Whatever lies outside this first interval is excluded; inside it the weights, and so the radius, are smaller.
    farthest = np.clip(np.maximum(np.abs(share - 0.5) + bound, 0.0), 0.0, 0.5)
    error = weighted_radius(0.5 - farthest, scale, level) / safe
    # A share that cannot be one shows that the noise is beyond its radius: then nothing is certain.
    certain = known & (share + error >= 0) & (share - error <= 1)
    low, high = np.where(certain, share - error, 0.0), np.where(certain, share + error, 1.0)
    return _positive_share(up, down), np.clip(low, 0, 1), np.clip(high, 0, 1)


def _positive_share(up: Floats, down: Floats) -> Floats:
    """Return up / (up + down) moved into [0, 1]; where the sum is not positive, the end that the larger number is for.

    Only where neither number is positive there is nothing to choose by, and the middle is returned.
    """
    up, down = np.maximum(up, 0.0), np.maximum(down, 0.0)
    total = up + down
    return np.where(total > 0, up / np.where(total > 0, total, 1.0), 0.5)


def weighted_radius(share: Floats, scale: float, level: float) -> Floats:
    """The radius of (1 - f) X - f Y for discrete Laplace X, Y of one scale; it is symmetric in f and least at 1/2.

    For continuous noise of scales a > c, P(|S| > y) = (a^2 e^(-y/a) - c^2 e^(-y/c)) / (a^2 - c^2). Discrete noise is
    the difference of two rounded-down exponentials, so it is coupled to continuous noise within one lattice unit
    (docs/proofs/shares.md), which is added.
    """
    small = np.minimum(share, 1 - share)
    wide, narrow = scale * (1 - small), scale * small
    low, high = np.zeros_like(small), np.full_like(small, 2 * scale * np.log(2 / level))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = _two_laplace_tail(middle, wide, narrow) <= level
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high + 1


def _two_laplace_tail(radius: Floats, wide: Floats, narrow: Floats) -> Floats:
    near = narrow > wide * (1 - 1e-6)
    below = np.where(near, wide / 2, np.maximum(narrow, wide * 1e-9))  # a wider second noise is on the safe side
    apart = (wide**2 * np.exp(-radius / wide) - below**2 * np.exp(-radius / below)) / (wide**2 - below**2)
    equal = (1 + radius / (2 * wide)) * np.exp(-radius / wide) * (1 + 1e-5)
    return np.where(near, equal, apart)
