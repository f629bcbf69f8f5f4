"""How values and intervals are read off noisy integers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
from expost.accuracy.weighted_noise import laplace_sum_radius, lower_radius
from expost.core import Measure, Target
from expost.data import Clamp

__all__ = [
    "CLEAR_OF_NOISE",
    "CellReading",
    "CentredMeanReader",
    "ClimbedReader",
    "ClippedReader",
    "CombinationReader",
    "DeviationReader",
    "MeanReader",
    "Reader",
    "SquareMeanReader",
    "TotalReader",
    "VarianceReader",
    "weighted_radius",
]

Floats = NDArray[np.float64]

CLEAR_OF_NOISE = 8.0
"""A number of rows above this many noise scales is large compared with the sum of a few noises."""

_MEAN_PART = 0.1  # of a variance's level: for the error of the mean, which counts squared
_REFINEMENTS = 3  # of an interval whose radius depends on the exact answer: each one uses the interval before


@dataclass(frozen=True)
class CellReading:
    """One value and interval per cell. The interval covers the exact answer at the level it was read with.

    >>> reading = CellReading(np.array([100.0]), np.array([96.0]), np.array([104.0]))
    >>> reading.reaches_target(Target.within(5)).tolist(), reading.reaches_target(Target.within("4%")).tolist()
    ([True], [False])
    """

    value: Floats
    low: Floats
    high: Floats

    def largest_error(self, *, relative: bool) -> Floats:
        """Return the largest error that the interval leaves possible, absolute or as a share of the exact answer."""
        below, above = self.value - self.low, self.high - self.value
        if relative:
            # |v - c| / |c| over an interval without zero is largest at one of its ends.
            signed = self.low * self.high > 0
            low, high = np.where(signed, np.abs(self.low), 1.0), np.where(signed, np.abs(self.high), 1.0)
            ends = np.maximum(below / low, above / high)
            return np.where(signed, ends, np.where((below > 0) | (above > 0), np.inf, 0.0))
        return np.maximum(below, above)

    def reaches_target(self, target: Target) -> NDArray[np.bool_]:
        """Return whether every exact answer in the interval is within the target of the value."""
        relative = target.measure is Measure.RELATIVE_ERROR
        reached: NDArray[np.bool_] = self.largest_error(relative=relative) <= float(target.tolerance) * (1 + 1e-12)
        return reached

    def balance_values(self) -> CellReading:
        """Move each value to the harmonic middle of its interval, where the relative error is smallest.

        For 0 < low < high, the v with (high - v) / high = (v - low) / low is 2 low high / (low + high).
        """
        fits = self.low * self.high > 0
        total = np.where(fits, self.low + self.high, 1.0)
        return CellReading(np.where(fits, 2 * self.low * self.high / total, self.value), self.low, self.high)

    def fit_values(self, tolerance: float) -> CellReading:
        """Move each value as little as makes it within an absolute error of both ends of its interval.

        Where the interval is too wide for that, the value is its middle, where the error is smallest.

        >>> CellReading(np.array([9.0]), np.array([2.0]), np.array([10.0])).fit_values(5.0).value.tolist()
        [7.0]
        """
        middle = (self.low + self.high) / 2
        least, most = np.minimum(self.high - tolerance, middle), np.maximum(self.low + tolerance, middle)
        return CellReading(np.clip(self.value, least, most), self.low, self.high)

    def choose_cells(self, flags: NDArray[np.bool_], other: CellReading) -> CellReading:
        """Return these numbers for the flagged cells, another reading's for the rest."""
        each = np.repeat(flags, len(self.value) // len(flags))
        return CellReading(
            np.where(each, self.value, other.value),
            np.where(each, self.low, other.low),
            np.where(each, self.high, other.high),
        )


class Reader(Protocol):
    """Reads a statistic off the noisy coordinates of all cells. Every number here is public."""

    @property
    def linear(self) -> bool:
        """Return whether the value is one coordinate times a constant, so that its error is known before the run."""
        ...

    @property
    def unit(self) -> Fraction:
        """Return the value of one lattice unit of a linear statistic."""
        ...

    @property
    def signed(self) -> bool:
        """Return whether a linear statistic may be negative."""
        ...

    @property
    def slack(self) -> Fraction:
        """Return how far rounding can move the exact integers of a linear statistic from its answer."""
        ...

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Return whether the noisy number of rows of each cell is well above noise of this ``scale``."""
        ...

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return what favourable rows would give, as many as there are if the noise lowered every number by ``amount``.

        A cell that would miss the target with these is out of reach.
        """
        ...

    @property
    def widening(self) -> float:
        """Return by which factor noise widens an interval, beyond that of exact numbers at the same scale."""
        ...

    def smooth(self, noisy: NDArray[Any], scale: float) -> NDArray[Any]:
        """Return the numbers that noisy ones make plausible, for a forecast at a finer scale."""
        ...

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return values and intervals; ``noisy`` has one row per coordinate and one column per cell.

        Each interval covers its exact answer with probability at least 1 - ``level`` over discrete Laplace noise of
        this ``scale``, drawn independently for each coordinate.
        """
        ...


class ClimbedReader:
    """Base of readers whose error depends on the rows, so that the privacy level is found by climbing.

    Their coordinates are shares of rows: they add up to the number of rows in lattice units.
    """

    linear = False
    signed = True
    unit = Fraction(1)
    slack = Fraction(0)
    widening = 1.0

    def smooth(self, noisy: NDArray[Any], scale: float) -> NDArray[Any]:
        """Return the noisy numbers: a few of them show no more than they say."""
        return noisy

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Return whether the noisy number of rows is well above the noise."""
        return np.asarray(noisy.sum(axis=0) > CLEAR_OF_NOISE * scale)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return equal shares: noisy ones that contradict each other would say nothing at a finer scale."""
        total = np.maximum(noisy.sum(axis=0), 0) + amount * len(noisy)
        return np.broadcast_to(total // len(noisy), noisy.shape)


@dataclass(frozen=True)
class ClippedReader(ClimbedReader):
    """Base of readers of one column whose values are clipped."""

    clamp: Clamp

    @cached_property
    def limits(self) -> tuple[float, float, float]:
        """Return lower bound, width and rounding as floats."""
        return float(self.clamp.low), float(self.clamp.high - self.clamp.low), float(self.clamp.rounding)


# Counts and sums -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TotalReader:
    """Reads a count or a sum: one coordinate per cell.

    ``least`` and ``most`` are public limits of the exact answer. ``slack`` is how far rounding to the grid can have
    moved it; intervals are wider by it.

    >>> reading = TotalReader(least=0).read(np.array([[3, 50]]), scale=2.0, level=0.05)
    >>> reading.low.tolist(), reading.high.tolist()
    ([0.0, 44.0], [9.0, 56.0])
    """

    unit: Fraction = Fraction(1)
    least: float = -np.inf
    most: float = np.inf
    slack: Fraction = Fraction(0)
    linear = True
    widening = 1.0

    def smooth(self, noisy: NDArray[Any], scale: float) -> NDArray[Any]:
        """Return the noisy total."""
        return noisy

    @property
    def signed(self) -> bool:
        """Return whether the exact answer may be negative."""
        return self.least < 0

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Return whether the noisy total is well above the noise."""
        return np.asarray(np.abs(noisy[0]) > CLEAR_OF_NOISE * scale)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return totals that are larger by ``amount``."""
        return np.asarray(np.maximum(noisy, 0) + amount)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell, by the exact tail of the noise."""
        return self.read_within(noisy, noise_radius(level, scale))

    def read_within(self, noisy: NDArray[Any], radius: float) -> CellReading:
        """Return value and interval of each cell whose noise is within a radius, in lattice units."""
        unit = float(self.unit)
        value, radius = noisy[0].astype(np.float64) * unit, radius * unit + float(self.slack)
        ends = (np.clip(end, self.least, self.most) for end in (value, value - radius, value + radius))
        return CellReading(*ends)


@dataclass(frozen=True)
class CombinationReader(ClimbedReader):
    """Reads a fixed linear combination of the coordinates: a sum off the shares of a mean or a variance.

    ``rounding`` is how far each row can be from the grid, and ``rows`` the combination that counts the rows; half of
    the level is then spent on how many there can be.

    >>> reader = CombinationReader((Fraction(1, 10), Fraction(1, 10)))
    >>> reader.read(np.array([[300], [700]]), scale=10.0, level=0.05).value.tolist()
    [100.0]
    """

    weights: tuple[Fraction, ...]
    least: float = -np.inf
    most: float = np.inf
    rows: tuple[Fraction, ...] = ()
    rounding: float = 0.0

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell."""
        floats = noisy.astype(np.float64)
        weights = np.array([float(weight) for weight in self.weights])
        value, radius = weights @ floats, np.zeros(noisy.shape[1])
        if self.rounding:
            level = level / 2
            counts = np.array([float(weight) for weight in self.rows])
            most_rows = counts @ floats + _radius_of(counts, scale, level)
            radius = np.maximum(most_rows, 0.0) * self.rounding
        radius = radius + _radius_of(weights, scale, level)
        ends = (np.clip(end, self.least, self.most) for end in (value, value - radius, value + radius))
        return CellReading(*ends)


def _radius_of(weights: Floats, scale: float, level: float) -> float:
    """Return the radius of one weighted sum of noises."""
    return float(laplace_sum_radius(weights[:, None], scale, level)[0])


# Means ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanReader(ClippedReader):
    """Reads the mean of clamped values off the shares (sum of t, sum of steps - t).

    With f the exact share of t in the total and noises X, Y, the noisy share F of the noisy total T misses by
    F - f = ((1 - f) X - f Y) / T, a weighted sum of two independent noises over a *known* number. So the interval is
    that of a ratio without any division by an unknown (docs/proofs/shares.md).

    >>> reader = MeanReader(Clamp.of((0, 10), whole=True))
    >>> reader.read(np.array([[4000], [6000]]), scale=10.0, level=0.05).value.tolist()
    [4.0]
    """

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell; where nothing is certain, the interval is the whole range.

        The value is always the noisy ratio, clipped to the bounds: that brings it nearer to every exact mean.
        """
        up, down = noisy.astype(np.float64)
        total = up + down
        known = total > 0
        safe = np.where(known, total, 1.0)
        share = np.where(known, up / safe, 0.5)
        alone = scale * np.log(1 / level) + 1  # the radius of one noise alone, which no pair exceeds
        bound = np.where(known, alone / safe, 1.0)
        # Whatever lies outside this first interval is excluded; inside it the weights, and so the radius, are smaller.
        farthest = np.clip(np.maximum(np.abs(share - 0.5) + bound, 0.0), 0.0, 0.5)
        error = weighted_radius(0.5 - farthest, scale, level) / safe
        # A share outside [0, 1] by more than its error shows that the noise exceeded its radius: nothing is certain.
        certain = known & (share + error >= 0) & (share - error <= 1)
        low, high = np.where(certain, share - error, 0.0), np.where(certain, share + error, 1.0)
        ends = (_clipped_share(up, down), np.clip(low, 0, 1), np.clip(high, 0, 1))
        lower, width, rounding = self.limits
        value, low, high = (lower + width * end for end in ends)
        return CellReading(value, low - rounding, high + rounding)


@dataclass(frozen=True)
class CentredMeanReader(ClippedReader):
    """Reads the mean off a centred sum and a count in steps, for tables in which rows are replaced.

    With y in [-1, 1] the exact mean counted from the middle in half ranges, and noises X, Y, the ratio F of the noisy
    sum and the noisy count T misses by F - y = (X - y Y) / T, once more over a known number (docs/proofs/shares.md).
    """

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        return np.asarray(noisy[1] > CLEAR_OF_NOISE * scale)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return a larger count with the centred sum that is nearest to the noisy one."""
        total = np.maximum(noisy[1], 0) + amount
        return np.stack([np.clip(noisy[0], -total, total), total])

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell, as ``MeanReader`` does."""
        centred, total = noisy[0].astype(np.float64), noisy[1].astype(np.float64)
        known = total > 0
        safe = np.where(known, total, 1.0)
        ratio = np.where(known, centred / safe, 0.0)
        first = np.where(known, _centred_radius(np.ones_like(safe), scale, level) / safe, 2.0)
        # Whatever lies outside the first interval is excluded, and the radius grows with the size of the mean.
        farthest = np.minimum(np.abs(ratio) + first, 1.0)
        error = _centred_radius(farthest, scale, level) / safe
        # A mean outside [-1, 1] by more than its error shows that the noise exceeded its radius: nothing is certain.
        certain = known & (np.abs(ratio) - error <= 1)
        value = 2 * _clipped_share(total + centred, total - centred) - 1
        low, high = np.where(certain, ratio - error, -1.0), np.where(certain, ratio + error, 1.0)
        _, width, rounding = self.limits
        middle, half = float(self.clamp.low + self.clamp.high) / 2, width / 2
        value, low, high = (middle + half * np.clip(end, -1, 1) for end in (value, low, high))
        return CellReading(value, low - rounding, high + rounding)


def _centred_radius(size: Floats, scale: float, level: float) -> Floats:
    """Return the radius of X - y Y for |y| = size: (1 + y) times that of a pair whose weights add up to one."""
    return (1 + size) * weighted_radius(size / (1 + size), scale, level)


def _clipped_share(up: Floats, down: Floats) -> Floats:
    """Return up / (up + down) clipped to [0, 1]; the middle where neither number is positive.

    Where the sum is not positive, it is the end that the larger number stands for.
    """
    up, down = np.maximum(up, 0.0), np.maximum(down, 0.0)
    total = up + down
    return np.where(total > 0, up / np.where(total > 0, total, 1.0), 0.5)


def weighted_radius(share: Floats, scale: float, level: float) -> Floats:
    """Return the radius of (1 - f) X - f Y for discrete Laplace X, Y of one scale; symmetric in f and least at 1/2.

    For continuous noise of scales a > c, P(|S| > y) = (a^2 e^(-y/a) - c^2 e^(-y/c)) / (a^2 - c^2). Discrete noise is
    the difference of two rounded-down exponentials, so it is coupled to continuous noise within one lattice unit
    (docs/proofs/shares.md), which is added.
    """
    small = np.minimum(share, 1 - share)
    wide, narrow = scale * (1 - small), scale * small
    near = narrow > wide * (1 - 1e-6)
    below = np.where(near, wide / 2, np.maximum(narrow, wide * 1e-9))  # a wider second noise only widens the radius
    squares = wide**2, below**2

    def tail(radius: Floats) -> tuple[Floats, Floats]:
        first, second = np.exp(-radius / wide), np.exp(-radius / below)
        difference = squares[0] - squares[1]
        apart = (squares[0] * first - squares[1] * second) / difference, (wide * first - below * second) / difference
        even = (1 + radius / (2 * wide)) * first, (1 + radius / wide) * first / (2 * wide)
        return np.where(near, even[0] * (1 + 1e-5), apart[0]), np.where(near, even[1], apart[1])

    return lower_radius(np.full_like(small, 2 * scale * np.log(2 / level)), tail, level) + 1


# Variances -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VarianceReader(ClippedReader):
    """Reads the variance (of the rows, divided by their number) off the shares t^2, 2 t (steps - t), (steps - t)^2.

    For any m the sum of (f - m)^2 over the rows is linear in the shares, with weights (1 - m)^2, -m (1 - m), m^2. At the
    exact mean it is the variance v times the rows, so its noisy ratio misses v by a weighted sum of the noises over a known
    number; the noisy variance is below that ratio by the squared error of the noisy mean (docs/proofs/shares.md).
    """

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell; where nothing is certain, the interval is the whole range."""
        shares = _Shares.read(noisy, self.clamp, scale, level)
        middle, error = shares.read_mean(_MEAN_PART * level)
        raw = shares.parts[0] - middle**2
        means = np.clip(middle - error, 0, 1), np.clip(middle + error, 0, 1)
        low, high, certain = np.zeros_like(raw), np.full_like(raw, 0.25), shares.certain
        for _ in range(_REFINEMENTS):
            radius = shares.radius(_square_weights(means, (low, high)), (1 - _MEAN_PART) * level)
            certain = certain & (raw + radius + error**2 >= 0) & (raw - radius <= 0.25)
            low, high = np.clip(raw - radius, 0, 0.25), np.clip(raw + radius + error**2, 0, 0.25)
        low, high = np.where(certain, low, 0.0), np.where(certain, high, 0.25)
        _, width, rounding = self.limits
        squared, slack = width**2, rounding * width * 2
        return CellReading(
            np.clip(raw, 0, 0.25) * squared, np.maximum(low * squared - slack, 0), high * squared + slack
        )


@dataclass(frozen=True)
class SquareMeanReader(ClippedReader):
    """Reads the mean off the same three shares."""

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell; where nothing is certain, the interval is the whole range."""
        shares = _Shares.read(noisy, self.clamp, scale, level)
        middle, error = shares.read_mean(level)
        below, above = np.where(shares.certain, middle - error, 0.0), np.where(shares.certain, middle + error, 1.0)
        low, width, rounding = self.limits
        value, below, above = (low + width * np.clip(end, 0, 1) for end in (middle, below, above))
        return CellReading(value, below - rounding, above + rounding)


@dataclass(frozen=True)
class DeviationReader(ClippedReader):
    """Reads the standard deviation: the root of the variance and of its ends."""

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell."""
        squared = VarianceReader(self.clamp).read(noisy, scale, level)
        return CellReading(np.sqrt(squared.value), np.sqrt(squared.low), np.sqrt(squared.high))


@dataclass(frozen=True)
class _Shares:
    """The three noisy shares of each cell, as parts of their total, and the noise of one of them.

    ``certain`` is false where the shares contradict every table: their noise was then beyond its radius.
    """

    parts: Floats
    total: Floats
    scale: float
    certain: NDArray[np.bool_]

    @classmethod
    def read(cls, noisy: NDArray[Any], clamp: Clamp, scale: float, level: float) -> _Shares:
        size = clamp.steps**2
        floats = np.array(noisy / size, dtype=np.float64)
        # No share is negative, whatever the rows. Where one is by more than its noise, nothing is certain: the interval
        # is the whole range, and the value is still computed from the noisy shares.
        error = noise_radius(-np.expm1(np.log1p(-level) / 3), scale) / size
        certain = (floats.sum(axis=0) > 0) & (floats >= -error).all(axis=0)
        floats = np.where(floats.sum(axis=0) > 0, floats, np.maximum(floats, 0.0))
        total = floats.sum(axis=0)
        divisor = np.where(total > 0, total, 1.0)
        return cls(np.where(total > 0, floats / divisor, 1 / 3), divisor * size, scale, certain)

    def radius(self, weights: Floats, level: float) -> Floats:
        """Return the radius of a weighted sum of the three noises, as a part of the total."""
        return laplace_sum_radius(weights, self.scale, level) / self.total

    def read_mean(self, level: float) -> tuple[Floats, Floats]:
        """Return the noisy mean, and its error at this level."""
        middle = self.parts[0] + self.parts[1] / 2
        low, high = np.zeros_like(middle), np.ones_like(middle)
        error = np.zeros_like(middle)
        for _ in range(_REFINEMENTS):
            # The noises have the weights 1 - m, 1/2 - m and -m, where m is the exact mean.
            weights = np.stack([1 - low, np.maximum(np.abs(0.5 - low), np.abs(0.5 - high)), high])
            error = self.radius(weights, level)
            low, high = np.clip(middle - error, 0, 1), np.clip(middle + error, 0, 1)
        return middle, error


def _square_weights(means: tuple[Floats, Floats], variances: tuple[Floats, Floats]) -> Floats:
    """Return the largest sizes of the noises' weights, w_i(m) - v, for means m and variances v in these intervals."""
    low, high = means
    largest = np.where((low <= 0.5) & (high >= 0.5), 0.25, np.maximum(low * (1 - low), high * (1 - high)))
    weights: list[tuple[Floats, Floats]] = [
        ((1 - high) ** 2, (1 - low) ** 2),
        (-largest, np.zeros_like(largest)),
        (low**2, high**2),
    ]
    return np.stack([np.maximum(np.abs(top - variances[0]), np.abs(bottom - variances[1])) for bottom, top in weights])
