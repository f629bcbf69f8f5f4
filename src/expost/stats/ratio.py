"""Ratios of two sums: rates, shares of a total, amounts per unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Receipt, Release
from expost.data import Dataset
from expost.data.sealed_form import RatioForm
from expost.data.tally import Measured
from expost.stats.column_statistic import refine_clamp, rounding_of_rows
from expost.stats.gradual_plan import Design, GradualQuery
from expost.stats.gradual_release import ClimbResult
from expost.stats.query_terms import Column, read_list, statistic
from expost.stats.reader import CLEAR_OF_NOISE, CellReading, ClimbedReader, weighted_radius

__all__ = ["Ratio", "RatioReader"]

Floats = NDArray[np.float64]

UNKNOWN = 1e100
"""Stands for an end of an interval without a limit: a float whose square is finite. Releases show infinity."""

_REFINEMENTS = 3  # of an interval whose radius depends on the exact ratio: each one uses the interval before


@dataclass(frozen=True)
class RatioReader(ClimbedReader):
    """Reads the ratio of two sums off their noisy totals.

    With the exact ratio r and the noises X, Y of the two, the noisy totals N, D satisfy N - r D = X - r Y. So r lies where
    |N - r D| is at most the radius of X - r Y, which grows with the size of r (docs/proofs/ratios.md). ``slack`` is how far
    rounding can move each sum.
    """

    form: RatioForm
    sizes: tuple[Fraction, Fraction]
    slacks: tuple[Fraction, Fraction]
    least: float
    most: float

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        return np.asarray(noisy[1].astype(np.float64) > CLEAR_OF_NOISE * scale)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return a larger denominator, with a numerator of a sign that it can have."""
        least, most = (0 if end == 0 else None for end in (self.least, self.most))
        numerator = noisy[0] if least is most is None else np.clip(noisy[0], least, most)
        return np.stack([numerator, np.maximum(noisy[1], 0) + amount])

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each cell; without a limit where the denominator is lost in the noise."""
        up, down = (float(size) for size in self.sizes)
        numerator, denominator = noisy[0].astype(np.float64) * up, noisy[1].astype(np.float64) * down
        moved, shifted = (float(slack) for slack in self.slacks)
        # No pair of noises whose weights add up to one has a larger radius than one noise alone.
        alone = scale * np.log(1 / level) + 1
        known = denominator > down * alone + shifted
        safe = np.where(known, denominator - down * alone - shifted, 1.0)
        largest = np.where(known, (np.abs(numerator) + up * alone + moved) / safe, UNKNOWN)
        value = numerator / np.maximum(denominator, down * alone + shifted)
        middle = np.where(known, numerator / np.where(known, denominator, 1.0), 0.0)
        radius = np.full_like(middle, UNKNOWN)
        for _ in range(_REFINEMENTS):
            weights = up + largest * down
            widest = weights * weighted_radius(largest * down / weights, scale, level) + moved + largest * shifted
            radius = np.where(known, widest / np.where(known, denominator, 1.0), UNKNOWN)
            largest = np.minimum(largest, np.abs(middle) + radius)
        low, high = np.maximum(middle - radius, self.least), np.minimum(middle + radius, self.most)
        # An interval beyond every ratio there is shows that the noise exceeded its radius: nothing is certain.
        certain = known & (low <= high)
        low, high = np.where(certain, low, -UNKNOWN), np.where(certain, high, UNKNOWN)
        return CellReading(np.clip(value, max(self.least, -UNKNOWN), min(self.most, UNKNOWN)), low, high)


@statistic
class Ratio(GradualQuery):
    """The ratio of the sums of two columns' clipped values, in all or in each group, as one question.

    A rate such as accidents per kilometre is ``Ratio("accidents", "kilometres", ...)``. Rows that miss one of the two are
    left out. Both sums are released together and divided after the noise. Where all weights of a mean are between 0 and a
    bound, a weighted mean (``Mean(..., weight=)``) is more accurate.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the larger bound in size of each column, in its own multiple, times the rows a unit may have (L1, over all
        groups together).
    Accuracy: intervals cover the ratios of the sums of clipped values, of all groups at once; they include the rounding to
        the grid, for up to 2^29 rows where the number of rows is not public. An interval without a limit means that the
        denominator is lost in the noise.
    Numerics: values become whole steps before they are added; sums are exact integers, sampling is exact.
    Reference: docs/proofs/ratios.md (intervals).

    Parameters
    ----------
    numerator : str or Expression
        The column whose sum is divided.
    denominator : str or Expression
        The column by whose sum it is divided. Its lower bound must be at least 0.
    within : float or str, optional
        The error allowed in the ratio, or a share of it such as ``"5%"``. Give either this or ``epsilon``.
    bounds : pair of (float, float) or None, optional
        The limits to which numerator and denominator are clipped, in their units. Default: those declared for them.

    Examples
    --------
    >>> Ratio("accidents", "kilometres", within="5%", max_epsilon=1, by="city").question
    'sum of accidents per sum of kilometres by city'
    """

    numerator: Column
    denominator: Column
    bounds: Sequence[Sequence[float] | None] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounds is not None and len(read_list(self.bounds, "bounds", do="Pass [(0, 1), (0, 100)]")) != 2:
            raise InvalidRequest("Expected bounds for both columns", do="Pass bounds=[(0, 1), (0, 100)], or None")

    @property
    def subject(self) -> str:
        return f"sum of {self.numerator} per sum of {self.denominator}"

    def design(self, dataset: Dataset) -> Design:
        expressions = [dataset.expression(column) for column in (self.numerator, self.denominator)]
        limits = (None, None) if self.bounds is None else tuple(self.bounds)
        declared = [dataset.clamp(each, bounds) for each, bounds in zip(expressions, limits, strict=True)]
        if declared[1].low < 0:
            raise InvalidRequest(
                f"Expected a denominator that is never negative, got bounds of {expressions[1]!r} that begin below 0",
                do="Pass bounds=[None, (0, 100)], or ask for the two sums",
            )
        clamps = [refine_clamp(clamp, dataset) for clamp in declared]
        form = RatioForm(*clamps)
        sizes = [part.unit / times for part, times in zip(form.totals, form.multiples, strict=True)]
        slacks = [rounding_of_rows(old, new, dataset) for old, new in zip(declared, clamps, strict=True)]
        least, most = _ratio_limits(declared[0].low, declared[1].low), _ratio_limits(-declared[0].high, declared[1].low)
        reader = RatioReader(form, (sizes[0], sizes[1]), (slacks[0], slacks[1]), least, -most)
        measured = [Measured(each, clamp) for each, clamp in zip(expressions, clamps, strict=True)]
        bounds = {repr(each): clamp.to_terms() for each, clamp in zip(expressions, declared, strict=True)}
        return self.fit_design(dataset, form, reader, measured=measured, bounds=bounds)

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Show ends without a limit as infinite."""
        reading = result.reading
        ends = (np.where(np.abs(end) >= UNKNOWN, np.copysign(np.inf, end), end) for end in (reading.low, reading.high))
        shown = replace(result, reading=CellReading(reading.value, *ends))
        return super()._shape_release(design, shown, receipt)


def _ratio_limits(numerator: Fraction, denominator: Fraction) -> float:
    """Return the least ratio of a sum of numbers at least the one to a sum of numbers at least the other (not negative)."""
    if numerator >= 0:
        return 0.0
    return float(numerator / denominator) if denominator > 0 else -UNKNOWN
