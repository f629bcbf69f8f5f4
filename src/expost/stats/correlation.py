"""Pearson's correlation of two columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.stats.covariance import CovarianceReader, fit_moments
from expost.stats.gradual_plan import Design, GradualQuery
from expost.stats.query_terms import Column, read_list, statistic
from expost.stats.reader import CellReading

__all__ = ["Correlation", "CorrelationReader"]

Floats = NDArray[np.float64]
Interval = tuple[Floats, Floats]

_MEAN_PART, _SPREAD_PART = 0.1, 0.1  # of the level: for the means, and for the ratio of the deviations
_REFINEMENTS = 3  # of an interval whose radius depends on the exact answer: each one uses the interval before


@dataclass(frozen=True)
class CorrelationReader(CovarianceReader):
    """Reads the correlation of two columns off the coordinates of their covariance matrix.

    With the exact means a, b, the ratio t of the deviations (second over first) and the correlation r, the sum of
    (x - a)(y - b) - r/2 (t (x - a)^2 + (y - b)^2 / t) over the rows is zero, and it is linear in all coordinates. So its noisy value
    is a weighted sum of noises, whose radius is that of the correlation up to terms of second order
    (docs/proofs/correlation.md).
    """

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell; the interval is [-1, 1] where nothing is certain."""
        moments = self.read_moments(noisy, scale, _MEAN_PART * level)
        (first, product, second), errors, ends = moments.raw, moments.errors, moments.ends
        spread = _SPREAD_PART * level / 2
        firsts, seconds = (moments.find_variance(column, spread) for column in (0, 1))
        known = moments.known & (first > 0) & (second > 0) & (firsts[0] > 0) & (seconds[0] > 0)
        size = np.sqrt(np.where(known, first * second, 1.0))
        raw = np.where(known, product / size, 0.0)
        safe = [tuple(np.where(known, end, 1.0) for end in ends) for ends in (firsts, seconds)]
        ratio = np.sqrt(safe[1][0] / safe[0][1]), np.sqrt(safe[1][1] / safe[0][0])
        guess = np.sqrt(np.where(known, second / np.where(known, first, 1.0), 1.0))
        # The mean of the noisy variances over the exact ones, in proportion to their geometric mean: 1 or a little more.
        bulge = np.maximum(*(np.cosh(np.log(end / guess)) for end in ratio))
        low, high = np.full_like(raw, -1.0), np.full_like(raw, 1.0)
        for _ in range(_REFINEMENTS):
            radius = moments.find_zero_radius((low, high), ratio, ends, (1 - _MEAN_PART - _SPREAD_PART) * level)
            farthest = np.maximum(np.abs(low), np.abs(high))
            squares = ratio[1] * errors[0] ** 2 + errors[1] ** 2 / ratio[0]
            radius = (radius + errors[0] * errors[1] + farthest / 2 * squares) / size
            # The exact correlation times the bulge is within the radius of the noisy one.
            below, above = raw - radius, raw + radius
            low = np.maximum(low, np.where(below < 0, below, below / bulge))
            high = np.minimum(high, np.where(above > 0, above, above / bulge))
        certain = known & (low <= high)
        # The angle between a column and its rounded values has at most this sine, and a cosine changes no faster.
        steps = [2 * float(clamp.rounding / (clamp.high - clamp.low)) for clamp in self.form.clamps]
        moved = sum(np.arcsin(np.minimum(step / np.sqrt(each[0]), 1.0)) for step, each in zip(steps, safe, strict=True))
        low, high = np.where(certain, low - moved, -1.0), np.where(certain, high + moved, 1.0)
        return CellReading(*(np.clip(end, -1.0, 1.0) for end in (raw, low, high)))


@statistic
class Correlation(GradualQuery):
    """Pearson's correlation of two columns' clipped values, in all or in each group; rows that miss one are left out.

    It is read off the release that ``Covariance`` of the two columns makes, so asking for both pays once.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: as ``Covariance`` of two columns.
    Accuracy: intervals cover the correlations of the clipped values, of all groups at once. A column without spread has
        the interval [-1, 1].
    Numerics: values become whole steps before they are multiplied and added; sums are exact integers.
    Reference: docs/proofs/correlation.md (intervals); docs/proofs/shares.md (shares and products).

    Parameters
    ----------
    x, y : str or Expression
        Two numeric columns.
    within : float or str, optional
        The error allowed in the correlation, which has no units, or a share such as ``"5%"``. Give either this or ``epsilon``.
    bounds : pair of (float, float) or None, optional
        The limits to which each column is clipped, in its units. Default: those declared for the columns.

    Examples
    --------
    >>> Correlation("age", "income", within=0.1, max_epsilon=1, by="city").question
    'correlation of age and income by city'
    """

    x: Column
    y: Column
    bounds: Sequence[Sequence[float] | None] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounds is not None and len(read_list(self.bounds, "bounds", do="Pass [(0, 99), (0, 1)]")) != 2:
            raise InvalidRequest("Expected bounds for both columns", do="Pass bounds=[(0, 99), (0, 1)], or None")

    @property
    def subject(self) -> str:
        return f"correlation of {self.x} and {self.y}"

    def design(self, dataset: Dataset) -> Design:
        form, measured = fit_moments(dataset, (self.x, self.y), self.bounds)
        return self.fit_design(dataset, form, CorrelationReader(form), measured=measured)
