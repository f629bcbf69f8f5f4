"""Covariance matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
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

__all__ = ["Covariance", "CovarianceReader"]

_HOPELESS = 1e3  # an error of this many times the total: every interval is then as wide as it can be


@dataclass(frozen=True)
class CovarianceReader(ClimbedReader):
    """Reads all entries (0,0), (0,1), ..., (1,1), ... of a covariance matrix off each cell's coordinates.

    With every coordinate's noise within one radius, which fails with at most the level, each mean of shares and of
    products errs by a known multiple of the radius over the noisy total (docs/proofs/shares.md). Rounding to steps
    moves an entry by at most the product of a range and a step, which is added.
    """

    form: MomentForm

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        columns = len(self.form.clamps)
        return np.asarray(noisy[: 3 * columns].sum(axis=0) > CLEAR_OF_NOISE * columns * scale)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return value and interval of each entry of the upper triangle, cell after cell."""
        columns = len(self.form.clamps)
        radius = noise_radius(-np.expm1(np.log1p(-level) / len(noisy)), scale) / self.form.share_scale
        shares = (noisy[: 3 * columns] / self.form.share_scale).astype(np.float64).reshape(columns, 3, -1)
        products = (noisy[3 * columns :] / self.form.scale).astype(np.float64)
        total = shares.sum(axis=1).mean(axis=0)
        # The mean over columns of three noises each: at most three radii, and then each total is within six of it.
        safe = np.where(total > 0, total, 1.0)
        error = np.where(total <= 3 * radius, _HOPELESS, radius / safe)
        i, j = np.triu_indices(columns)
        second = np.empty((len(i), noisy.shape[1]))
        second[i == j] = shares[:, 0] - shares[:, 1] + shares[:, 2]
        second[i != j] = products
        # Means and second moments of values in [-1, 1]: clipping them to their range brings them nearer to every exact
        # one. A total that is not positive says nothing of them.
        least = np.where(i == j, 0.0, -1.0)[:, None]
        second = np.clip(np.where(total > 0, second / safe, 0.0), least, 1.0)
        middles = np.clip(np.where(total > 0, (shares[:, 0] - shares[:, 2]) / safe, 0.0), -1.0, 1.0)
        # Means of y in [-1, 1]: two noises and the total's, 2 + 3; second moments: three noises, or one of a third of
        # the weight, and the total's, 3 + 3.
        first_error, second_error = 5 * error, 6 * error
        spread = second_error + (np.abs(middles[i]) + np.abs(middles[j])) * first_error + first_error**2
        # No covariance of values in [-1, 1] is larger; clipping brings the value nearer to every exact one.
        covariance = np.clip(second - middles[i] * middles[j], least, 1.0)
        # Back from y in [-1, 1] to the columns' units, and what rounding may have moved an entry.
        ranges = np.array([float(clamp.high - clamp.low) for clamp in self.form.clamps])
        steps = np.array([float(clamp.rounding * 2) for clamp in self.form.clamps])
        area, rounding = (ranges[i] * ranges[j] / 4)[:, None], (steps[i] * ranges[j] + steps[j] * ranges[i])[:, None]
        value, width = covariance * area, np.minimum(spread, 2.0) * area + rounding
        return CellReading(*(each.T.ravel() for each in (value, value - width, value + width)))


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
        expressions = [dataset.expression(column) for column in self.columns]
        limits = self.bounds if self.bounds is not None else (None,) * len(expressions)
        clamps = tuple(dataset.clamp(each, bounds) for each, bounds in zip(expressions, limits, strict=True))
        if math.lcm(*(clamp.steps for clamp in clamps)) > MOST_STEPS:
            # A common multiple of their own steps would be too long: cut all into the same number.
            clamps = tuple(Clamp(clamp.low, clamp.high, MOST_STEPS) for clamp in clamps)
        measured = [Measured(each, clamp) for each, clamp in zip(expressions, clamps, strict=True)]
        form = MomentForm(clamps)
        return self.fit_design(dataset, form, CovarianceReader(form), measured=measured)

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
