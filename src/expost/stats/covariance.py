"""Covariance matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import parts_for_rates
from expost.accuracy.weighted_noise import laplace_sum_radius
from expost.core import InvalidRequest, Receipt, Release
from expost.data import Clamp, Dataset
from expost.data.clamp import MOST_STEPS
from expost.data.sealed_form import MomentForm
from expost.data.tally import Measured
from expost.stats.gradual_plan import Design, GradualQuery, release_entries
from expost.stats.gradual_release import ClimbResult
from expost.stats.query_terms import Column, read_list, statistic
from expost.stats.reader import CLEAR_OF_NOISE, CellReading, ClimbedReader
from expost.stats.table_release import MatrixRelease

__all__ = ["Covariance", "CovarianceReader", "MomentReading", "fit_moments"]

Floats = NDArray[np.float64]
Interval = tuple[Floats, Floats]

_MEAN_PART = 0.1  # of the level: for the errors of the means, which count multiplied
_NOMINAL, _NOMINAL_LEVEL = 1_000_000, 0.05  # rows and level at which intervals of entries are compared beforehand
_REFINEMENTS = 3  # of an interval whose radius depends on the exact answer: each one uses the interval before


@dataclass(frozen=True)
class CovarianceReader(ClimbedReader):
    """Reads all entries (0,0), (0,1), ..., (1,1), ... of a covariance matrix off each cell's coordinates.

    With every coordinate's noise within one radius, which fails with at most the level, each mean of shares and of
    products errs by a known multiple of the radius over the noisy total (docs/proofs/shares.md). Rounding to steps
    moves an entry by at most the product of a range and a step, which is added.

    The level is split evenly between the entries, or, if ``uneven``, in favour of those with the widest intervals at equal
    levels. Only public facts decide: the bounds of the columns.
    """

    form: MomentForm
    uneven: bool = False

    @cached_property
    def parts(self) -> Floats:
        """Return each entry's part of the level."""
        count = len(self.form.clamps) * (len(self.form.clamps) + 1) // 2
        parts = np.full(count, 1 / count)
        if self.uneven:
            equal = replace(self, uneven=False)
            rows = equal.add_rows(np.zeros((self.form.size, 1)), _NOMINAL * self.form.row_size)
            reading = equal.read(rows, float(self.form.row_size), _NOMINAL_LEVEL)
            parts = parts_for_rates(reading.largest_error(relative=False), _NOMINAL_LEVEL).parts
        return parts

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        columns = len(self.form.clamps)
        return np.asarray(noisy[: 3 * columns].sum(axis=0) > CLEAR_OF_NOISE * columns * scale)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return equal shares of uncorrelated columns."""
        shares = 3 * len(self.form.clamps)
        return np.concatenate([super().add_rows(noisy[:shares], amount), np.zeros_like(noisy[shares:])])

    def read_moments(self, noisy: NDArray[Any], scale: float, level: float) -> MomentReading:
        """Return means and central moments of values in [-1, 1]; the errors of all means hold at once at this level."""
        columns = len(self.form.clamps)
        shares = (noisy[: 3 * columns] / self.form.share_scale).astype(np.float64).reshape(columns, 3, -1)
        products = (noisy[3 * columns :] / self.form.scale).astype(np.float64)
        i, j = np.triu_indices(columns)
        total = shares.sum(axis=1).mean(axis=0)
        known = total > 0
        safe = np.where(known, total, 1.0)
        # A total that is not positive says nothing of the moments.
        second = np.empty((len(i), noisy.shape[1]))
        second[i == j] = shares[:, 0] - shares[:, 1] + shares[:, 2]
        second[i != j] = products
        second = np.where(known, second / safe, 0.0)
        middles = np.where(known, (shares[:, 0] - shares[:, 2]) / safe, 0.0)
        noise = _MomentNoise(columns, safe * self.form.share_scale, scale, self.form.share_scale / self.form.scale)
        errors = noise.find_mean_errors(middles, level / columns)
        return MomentReading(known, middles, errors, second - middles[i] * middles[j], noise)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each entry of the upper triangle, cell after cell."""
        moments = self.read_moments(noisy, scale, _MEAN_PART * level)
        i, j = np.triu_indices(len(self.form.clamps))
        raw, errors, noise = moments.raw, moments.errors, moments.noise
        # No covariance of values in [-1, 1] is larger; clipping brings the value nearer to every exact one.
        least = np.where(i == j, 0.0, -1.0)[:, None]
        covariance, low, high = np.clip(raw, least, 1.0), np.empty_like(raw), np.empty_like(raw)
        for place, pair in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
            beyond = errors[pair[0]] * errors[pair[1]]
            radius = noise.find_radius(
                pair, moments.ends, raw[place], beyond, (1 - _MEAN_PART) * level * self.parts[place]
            )
            # The noisy variance is below the ratio at the exact mean; a covariance may be on either side of it.
            low[place] = raw[place] - radius - (beyond if pair[0] != pair[1] else 0.0)
            high[place] = raw[place] + radius + beyond
        # An interval beyond every covariance there is shows that the noise exceeded its radius: nothing is certain.
        certain = moments.known & (high >= least) & (low <= 1.0)
        low, high = (np.clip(np.where(certain, end, side), least, 1.0) for end, side in ((low, -1.0), (high, 1.0)))
        # Back from y in [-1, 1] to the columns' units, and what rounding may have moved an entry.
        ranges = np.array([float(clamp.high - clamp.low) for clamp in self.form.clamps])
        steps = np.array([float(clamp.rounding * 2) for clamp in self.form.clamps])
        area, rounding = (ranges[i] * ranges[j] / 4)[:, None], (steps[i] * ranges[j] + steps[j] * ranges[i])[:, None]
        found = covariance * area, low * area - rounding, high * area + rounding
        return CellReading(*(each.T.ravel() for each in found))


@dataclass(frozen=True)
class MomentReading:
    """What the noisy coordinates of each cell show of values in [-1, 1], and their noise.

    ``raw`` has the noisy central moments (0,0), (0,1), ..., (1,1), ...; ``errors`` is how far each mean in ``middles`` may be off.
    """

    known: NDArray[np.bool_]
    middles: Floats
    errors: Floats
    raw: Floats
    noise: _MomentNoise

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Return the intervals of the means."""
        return np.clip(self.middles - self.errors, -1, 1), np.clip(self.middles + self.errors, -1, 1)

    def find_variance(self, column: int, level: float) -> tuple[Floats, Floats]:
        """Return the interval of one of two columns' variances."""
        raw, beyond = self.raw[2 * column], self.errors[column] ** 2
        radius = self.noise.find_radius((column, column), self.ends, raw, beyond, level)
        return raw - radius, np.minimum(raw + radius + beyond, 1.0)

    def find_zero_radius(self, correlation: Interval, ratio: Interval, means: Interval, level: float) -> Floats:
        """Return the radius of the sum over rows that is zero at the exact correlation, as a part of the total.

        All arguments are intervals. The sum is that of (x - a)(y - b) - r/2 (t (x - a)^2 + (y - b)^2 / t), of two columns.
        """
        a, b = ((means[0][column], means[1][column]) for column in (0, 1))
        steep, flat = _multiply(correlation, ratio), _multiply(correlation, (1 / ratio[1], 1 / ratio[0]))
        halves = [_multiply(each, _multiply(mean, mean)) for each, mean in ((steep, a), (flat, b))]
        product = _multiply(a, b)
        low = product[0] - (halves[0][1] + halves[1][1]) / 2
        high = product[1] - (halves[0][0] + halves[1][0]) / 2
        weights = self.noise.spread(low / 2, high / 2)
        for column, square, own, other in ((0, steep, a, b), (1, flat, b, a)):
            line = _multiply(square, own)
            ends = line[0] - other[1], line[1] - other[0]
            self.noise.add(weights, column, *((end, 0.0 * end, -end) for end in ends))
            self.noise.add(weights, column, *((-end / 2, end / 2, -end / 2) for end in square))
        return self.noise.find_part(weights, level, product=True)


def _multiply(first: Interval, second: Interval) -> Interval:
    """Return the interval of the products of two numbers that lie in intervals."""
    corners = np.stack([a * b for a in first for b in second])
    return corners.min(axis=0), corners.max(axis=0)


@dataclass(frozen=True)
class _MomentNoise:
    """The noises of a covariance matrix: three shares per column, one product per pair.

    ``total`` and ``scale`` are in lattice units of the shares, and a unit of a product is worth ``product_weight`` of them.
    """

    columns: int
    total: Floats
    scale: float
    product_weight: float

    def find_mean_errors(self, middles: Floats, level: float) -> Floats:
        """Return how far each column's noisy mean may be off, as a mean of values in [-1, 1]."""
        errors = np.empty_like(middles)
        for column, middle in enumerate(middles):
            low, high = np.full_like(middle, -1.0), np.full_like(middle, 1.0)
            for _ in range(_REFINEMENTS):
                weights = self.spread(-high / self.columns, -low / self.columns)
                self.add(weights, column, (1.0, 0.0, -1.0))
                errors[column] = self.find_part(weights, level)
                low, high = np.clip(middle - errors[column], -1, 1), np.clip(middle + errors[column], -1, 1)
        return errors

    def find_radius(
        self, pair: tuple[int, int], ends: tuple[Floats, Floats], raw: Floats, beyond: Floats, level: float
    ) -> Floats:
        """Return how far the noisy covariance at the exact means may be off.

        With means a, b and the covariance c, sum (x - a) (y - b) - c rows is zero and linear in all coordinates.
        """
        (i, j), (lower, upper) = pair, ends
        corners = np.stack([a[i] * b[j] for a in ends for b in ends])
        products = corners.min(axis=0), corners.max(axis=0)
        if i == j:
            products = np.where(lower[i] * upper[i] < 0, 0.0, products[0]), products[1]
        low, high = np.full_like(raw, 0.0 if i == j else -1.0), np.ones_like(raw)
        radius = np.zeros_like(raw)
        for _ in range(_REFINEMENTS):
            weights = self.spread((products[0] - high) / self.columns, (products[1] - low) / self.columns)
            if i == j:
                self.add(weights, i, (1.0, -1.0, 1.0))
                self.add(weights, i, (-2 * lower[i], 0.0, 2 * lower[i]), (-2 * upper[i], 0.0, 2 * upper[i]))
            else:
                for own, other in ((i, j), (j, i)):
                    self.add(weights, own, (-lower[other], 0.0, lower[other]), (-upper[other], 0.0, upper[other]))
            radius = self.find_part(weights, level, product=i != j)
            low = np.maximum(low, raw - radius - beyond)
            high = np.minimum(high, raw + radius + beyond)
        return radius

    def spread(self, low: Floats, high: Floats) -> Floats:
        """Return weights of all shares that lie in one interval: (ends, columns, shares, cells)."""
        return np.stack([np.broadcast_to(end, (self.columns, 3, len(low))) for end in (low, high)]).copy()

    def add(self, weights: Floats, column: int, one: Sequence[Any], other: Sequence[Any] | None = None) -> None:
        """Add to the weights of a column's shares numbers that lie between two."""
        for place, (first, second) in enumerate(zip(one, other or one, strict=True)):
            weights[0, column, place] += np.minimum(first, second)
            weights[1, column, place] += np.maximum(first, second)

    def find_part(self, weights: Floats, level: float, *, product: bool = False) -> Floats:
        """Return the radius of the weighted sum of shares, and of one product, as a part of the total."""
        sizes = np.abs(weights).max(axis=0).reshape(3 * self.columns, -1)
        if product:
            sizes = np.concatenate([sizes, np.full((1, sizes.shape[1]), self.product_weight)])
        return laplace_sum_radius(sizes, self.scale, level) / self.total


@statistic
class Covariance(GradualQuery):
    """The covariance matrix of several columns' clipped values; rows that miss one of them are left out.

    In all, the answer is a matrix. With groups it is a long table: one row for each group and pair of columns.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: one share for each column and each pair, times the rows a unit may have (L1, all groups together).
    Accuracy: intervals cover all entries (of all groups) at once, and a target holds for all of a group.
    Numerics: values become whole steps before they are multiplied and added; sums are exact integers.
    Reference: docs/proofs/shares.md (shares and products, intervals).

    Parameters
    ----------
    columns : sequence of str or Expression
        Two or more numeric columns.
    within : float or str, optional
        The error allowed, in the product of two columns' units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
    bounds : sequence of (float, float) or None, optional
        The limits to which each column is clipped, in its units. Default: those declared for the columns.

    Examples
    --------
    >>> Covariance(["age", "income"], epsilon=1, by="city").question
    'covariance of age, income by city'
    """

    columns: Sequence[Column]
    bounds: Sequence[Sequence[float] | None] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = read_list(self.columns, "columns", do='Pass ["age", "pay"]')
        if len(columns) < 2 or (
            self.bounds is not None
            and len(read_list(self.bounds, "bounds", do="Pass one pair per column")) != len(columns)
        ):
            raise InvalidRequest("Expected two columns or more, and bounds for each or none", do="Name the columns")
        object.__setattr__(self, "columns", columns)

    @property
    def subject(self) -> str:
        return "covariance of " + ", ".join(map(str, self.columns))

    def design(self, dataset: Dataset) -> Design:
        form, measured = fit_moments(dataset, self.columns, self.bounds)
        return self.fit_design(
            dataset, form, CovarianceReader(form, uneven=not self.accuracy.relative), measured=measured
        )

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Put the entries into a matrix, or into one row per group and pair of columns."""
        names, upper = tuple(map(str, self.columns)), np.triu_indices(len(self.columns))
        if not design.axes:
            reading, matrices = result.reading, np.zeros((3, len(names), len(names)))
            entries = np.stack([reading.value, reading.low, reading.high])
            matrices[:, upper[0], upper[1]] = matrices[:, upper[1], upper[0]] = entries
            return MatrixRelease(matrices[0], receipt, (matrices[1], matrices[2]), columns=names)
        pairs = [(names[i], names[j]) for i, j in zip(*upper, strict=True)]
        return release_entries(design, result, receipt, ("first", "second"), pairs)


def fit_moments(
    dataset: Dataset, columns: Sequence[Column], bounds: Sequence[Sequence[float] | None] | None
) -> tuple[MomentForm, list[Measured]]:
    """Return the form of the second moments of some columns, with the clipped columns."""
    expressions = [dataset.expression(column) for column in columns]
    limits = bounds if bounds is not None else (None,) * len(expressions)
    clamps = tuple(dataset.clamp(each, ends) for each, ends in zip(expressions, limits, strict=True))
    if math.lcm(*(clamp.steps for clamp in clamps)) > MOST_STEPS:
        # A common multiple of their own steps would be too long: cut all into the same number.
        clamps = tuple(Clamp(clamp.low, clamp.high, MOST_STEPS) for clamp in clamps)
    return MomentForm(clamps), [Measured(each, clamp) for each, clamp in zip(expressions, clamps, strict=True)]
