"""Several statistics of one column from one release: counts, sum, mean and spread pay once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Receipt, Release
from expost.data import Clamp, Dataset
from expost.data.expression import Expression, Literal, Operation
from expost.data.sealed_form import Form, ShareForm, SquareForm
from expost.data.tally import Measured, PowerSums
from expost.stats.column_statistic import ColumnQuery
from expost.stats.gradual_plan import Design, release_entries
from expost.stats.gradual_release import ClimbResult
from expost.stats.query_terms import statistic
from expost.stats.reader import (
    CellReading,
    ClippedReader,
    CombinationReader,
    MeanReader,
    SquareMeanReader,
    VarianceReader,
)

__all__ = ["JOINT_STATISTICS", "JointStatistics", "PartialForm"]

Floats = NDArray[np.float64]

_SPREADS = ("variance", "std", "sample variance", "sample std")
JOINT_STATISTICS = ("rows", "count", "sum", "mean", *_SPREADS)
"""What can be read off one release: ``rows`` counts all rows, ``count`` those that have a value."""


@dataclass(frozen=True)
class PartialForm:
    """The shares of a column and, as one more, the weight of the rows that miss it.

    A row with a value adds the shares of ``form``, which add up to its ``row_size``; a row without one adds that number to
    the last coordinate. So every row adds the same L1 norm, and the number of all rows is known as well (docs/proofs/shares.md).
    Measured columns: the value, with ``filler`` in place of a missing one, and 1 for a missing value, else 0.

    >>> form = PartialForm(ShareForm(Clamp.of((0, 10), whole=True)), filler=0)
    >>> sums = PowerSums(np.array([3]), np.array([[12], [1]]), np.zeros((0, 1), np.int64))
    >>> form.coordinates(sums).ravel().tolist(), form.row_size, form.row_spread
    ([12, 8, 10], 10, 20)
    """

    form: ShareForm | SquareForm
    filler: int

    @property
    def size(self) -> int:
        return self.form.size + 1

    @property
    def degree(self) -> int:
        return self.form.degree

    @property
    def row_size(self) -> int:
        return self.form.row_size

    @property
    def row_spread(self) -> int:
        return self.form.row_spread

    def coordinates(self, sums: PowerSums) -> NDArray[Any]:
        missing = sums.first[1].astype(object)
        # The steps of the rows without a value are all the filler's, so what they have added is known.
        first = sums.first[:1].astype(object) - self.filler * missing
        second = sums.second[:1].astype(object) - self.filler**2 * missing
        present = PowerSums(sums.rows.astype(object) - missing, first, second)
        return np.concatenate([self.form.coordinates(present), (self.row_size * missing)[None, :]])


@dataclass(frozen=True)
class _JointReader(ClippedReader):
    """Reads each statistic at an even part of the level, in the order asked for, as multiples of ``scales``."""

    statistics: tuple[str, ...]
    scales: tuple[Fraction, ...]
    partial: bool

    @cached_property
    def squared(self) -> bool:
        """Return whether the coordinates are three shares instead of two."""
        return not set(self.statistics).isdisjoint(_SPREADS)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return equal shares of the column, and no row without a value."""
        if not self.partial:
            return super().add_rows(noisy, amount)
        shares = super().add_rows(noisy[:-1], amount)
        return np.concatenate([shares, np.zeros_like(noisy[-1:])])

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return values and intervals, cell by cell, the statistics of each one after the other."""
        readings = [self._read_statistic(name, noisy, scale, level / len(self.statistics)) for name in self.statistics]
        sizes = np.array([float(size) for size in self.scales])
        numbers = zip(*((each.value, each.low, each.high) for each in readings), strict=True)
        return CellReading(*((np.stack(each, axis=1) / sizes).ravel() for each in numbers))

    def _read_statistic(self, name: str, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        shares = noisy[:-1] if self.partial else noisy
        if name == "mean":
            return (SquareMeanReader if self.squared else MeanReader)(self.clamp).read(shares, scale, level)
        if name in ("variance", "std"):
            return _root_of(VarianceReader(self.clamp).read(shares, scale, level), name)
        if name in _SPREADS:
            variance = VarianceReader(self.clamp).read(shares, scale, level / 2)
            return _root_of(self._correct(variance, self._read_sum("count", shares, scale, level / 2)), name)
        return self._read_sum(name, noisy if name == "rows" else shares, scale, level)

    def _read_sum(self, name: str, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Read a count or the sum: fixed combinations of the coordinates."""
        low, high = self.clamp.low, self.clamp.high
        size = Fraction(self.clamp.steps) ** (2 if self.squared else 1)
        ones = (1 / size,) * len(noisy)
        if name != "sum":
            return CombinationReader(ones, least=0.0).read(noisy, scale, level)
        values = (high, (low + high) / 2, low) if self.squared else (high, low)
        reader = CombinationReader(
            tuple(each / size for each in values),
            least=0.0 if low >= 0 else -np.inf,
            most=0.0 if high <= 0 else np.inf,
            rows=ones,
            rounding=float(self.clamp.rounding),
        )
        return reader.read(noisy, scale, level)

    @staticmethod
    def _correct(variance: CellReading, rows: CellReading) -> CellReading:
        """Return the variance divided by one row less. A variance of one row or none is unknown."""

        def factor(count: Floats) -> Floats:
            return np.where(count > 1, count / np.where(count > 1, count - 1, 1.0), np.inf)

        value = variance.value * np.where(rows.value > 1, factor(rows.value), 1.0)
        # No sample has a variance above twice that of its rows.
        high = variance.high * np.minimum(factor(np.maximum(np.ceil(rows.low), 2.0)), 2.0)
        return CellReading(np.clip(value, variance.low, high), variance.low * factor(np.maximum(rows.high, 2.0)), high)


def _root_of(variance: CellReading, name: str) -> CellReading:
    """Return the deviations of variances, where deviations are asked for."""
    if not name.endswith("std"):
        return variance
    return CellReading(np.sqrt(variance.value), np.sqrt(variance.low), np.sqrt(variance.high))


@statistic
class JointStatistics(ColumnQuery):
    """Counts, sum, mean and spread of one column from one release, in all or in each group.

    The release is that of the mean, or of the variance if a spread is asked for. With ``rows`` a further coordinate has the
    rows that miss the column, at no further sensitivity. So all of them together cost what the most demanding one costs,
    apart from the failure probability, which they share.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: as ``Mean``; as ``Variance`` with a spread.
    Accuracy: intervals cover all statistics of all groups at once; the failure probability is split evenly over the statistics.
    Numerics: as ``Mean`` and ``Variance``.
    Reference: docs/proofs/shares.md (shares, and rows without a value).

    Parameters
    ----------
    statistics : sequence of str
        Of ``"rows"``, ``"count"``, ``"sum"``, ``"mean"``, ``"variance"``, ``"std"``, ``"sample variance"``, ``"sample std"``.
    scales : sequence of Fraction, optional
        The unit in which the error of each statistic counts. ``within`` is a number of these units. Default: 1 for all.

    Examples
    --------
    >>> JointStatistics("age", ["rows", "mean"], epsilon=1).question
    'rows, mean of age'
    """

    statistics: Sequence[str]
    scales: Sequence[Fraction] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = tuple(self.statistics)
        if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(JOINT_STATISTICS):
            raise InvalidRequest(
                f"Expected different ones of {', '.join(JOINT_STATISTICS)}", do='Pass ["rows", "mean"]'
            )
        scales = (Fraction(1),) * len(wanted) if self.scales is None else tuple(self.scales)
        if len(scales) != len(wanted) or not all(scale > 0 for scale in scales):
            raise InvalidRequest("Expected a positive scale for each statistic", do="Leave out scales=")
        object.__setattr__(self, "statistics", wanted)
        object.__setattr__(self, "scales", scales)

    @property
    def subject(self) -> str:
        return f"{', '.join(self.statistics)} of {self.column}"

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        wanted, scales = tuple(self.statistics), tuple(self.scales or ())
        clamp, partial = measured.clamp, "rows" in wanted
        reader = _JointReader(clamp, wanted, scales, partial)
        shares = SquareForm(clamp) if reader.squared else ShareForm(clamp)
        if not partial:
            return self.fit_design(dataset, shares, reader, measured=[measured])
        form: Form = PartialForm(shares, int(clamp.to_steps(np.array([0.0]))[0]))
        return self.fit_design(
            dataset,
            form,
            reader,
            measured=_fill_missing(measured),
            bounds={repr(measured.expression): clamp.to_terms()},
        )

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        entries = [(name,) for name in self.statistics]
        sizes = np.tile([float(scale) for scale in self.scales or ()], design.cells)
        reading = result.reading
        shown = CellReading(reading.value * sizes, reading.low * sizes, reading.high * sizes)
        return release_entries(design, replace(result, reading=shown), receipt, ("statistic",), entries)


def _fill_missing(measured: Measured) -> list[Measured]:
    """Return the value of each row, zero for a missing one, and whether it is missing."""
    value: Expression = measured.expression
    filled = Operation("coalesce", (Operation("+", (value, Literal(0))), Literal(0)))
    return [Measured(filled, measured.clamp), Measured(Operation("IS NULL", (value,)), Clamp.of((0, 1), whole=True))]
