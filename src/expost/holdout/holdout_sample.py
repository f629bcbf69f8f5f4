"""Samples of rows, and questions about them: any function into [0, 1], turned into an exact integer total."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sensitivity
from expost.core.argument import check_unmasked, fill_masked
from expost.holdout.holdout_plan import GRID

__all__ = [
    "SENSITIVITY",
    "HoldoutSample",
    "RowMetric",
    "RowQuestion",
    "forgiving_total",
    "lattice_total",
    "metric_of",
    "score_rows",
]

RowQuestion = Callable[..., Any]
"""A vectorised function of the rows of a sample: one value in [0, 1] per row, which depends on that row alone."""
RowMetric = Callable[[Any, Any], Any]
"""A vectorised function of true and predicted values: one score in [0, 1] per row."""

_MOST_ROWS = 1 << 32  # totals stay below 2^53 lattice units

SENSITIVITY = Sensitivity(GRID, Norm.L1, Adjacency.REPLACE_ONE)
"""How far one row moves a total: the value of each row lies between 0 and GRID."""


class HoldoutSample:
    """Rows that questions are about. A tuple such as (X, y) passes its parts to the question in order."""

    def __init__(self, data: Any, name: str) -> None:
        self._parts = data if isinstance(data, tuple) else (data,)
        self._name, self.parts = name, len(self._parts)
        check_unmasked(*self._parts)
        lengths = {_count_rows(part) for part in self._parts}
        self.rows = lengths.pop() if len(lengths) == 1 else 0
        try:
            sliceable = all(_count_rows(_slice_rows(part, 0, 1)) == 1 for part in self._parts)
        except Exception:
            sliceable = False
        if not 0 < self.rows <= _MOST_ROWS or not sliceable:
            raise InvalidRequest(
                f"Expected a {name} sample of rows", do="Pass an array, a table, or a tuple of parts of equal length"
            )

    def total(self, question: RowQuestion) -> NDArray[np.int64]:
        """Return the exact total of a question on the lattice: one number per column of its values."""
        return lattice_total(question(*self._parts), self.rows, self._name)

    def try_out(self, question: RowQuestion) -> None:
        """Ask about the first row and drop the answer: a question that works nowhere fails here, for free."""
        if np.ndim(question(*self._slice_parts(0, 1))) > 1:
            raise InvalidRequest("Expected one value per row", do="Use ask_many for several questions at once")

    def sealed_total(self, question: RowQuestion, *, columns: int | None = None) -> NDArray[np.int64]:
        """Return the exact total over private rows. A row on which the question fails counts as 0, silently.

        One row then moves the total by at most 1, failing or not; an error or a warning would reveal a single row.
        """
        return forgiving_total(
            lambda start, stop: question(*self._slice_parts(start, stop)), self.rows, columns=columns
        )

    def _slice_parts(self, start: int, stop: int) -> tuple[Any, ...]:
        if stop - start == self.rows:
            return self._parts
        return tuple(_slice_rows(part, start, stop) for part in self._parts)


def forgiving_total(values: Callable[[int, int], Any], rows: int, *, columns: int | None = None) -> NDArray[np.int64]:
    """Return the lattice total of values(start, stop) over all rows, where rows whose values fail count as 0.

    Rows that fail are found by halving, so a few of them cost a few more calls. For values that depend on their own
    row alone the result is the sum over rows of the value or 0, whatever the other rows are.

    >>> def picky(start, stop):
    ...     if start <= 2 < stop:
    ...         raise ValueError("row 2")
    ...     return np.ones(stop - start)
    >>> (forgiving_total(picky, 5) / GRID).tolist()
    4.0
    """
    shape = () if columns is None else (columns,)
    total, open_parts = np.zeros(shape, np.int64), [(0, rows)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        while open_parts:
            start, stop = open_parts.pop()
            try:
                found = lattice_total(values(start, stop), stop - start, "sealed")
            except Exception:
                found = None
            if found is not None and found.shape == shape:
                total = total + found
            elif stop - start > 1:
                middle = (start + stop) // 2
                open_parts += [(start, middle), (middle, stop)]
    return total


def lattice_total(values: Any, rows: int, name: str) -> NDArray[np.int64]:
    """Clip values of rows to [0, 1], round them to the lattice and add them up exactly. NaN counts as 0.

    >>> (lattice_total([0.0, 0.5, 7.0, float("nan")], 4, "training") / GRID).tolist()
    1.5
    """
    given = np.asarray(fill_masked(values, 0))
    if given.ndim not in (1, 2) or len(given) != rows:
        raise InvalidRequest(
            f"Expected one value for each row of the {name} sample", do="Return an array of that length"
        )
    if given.dtype == bool:
        return np.asarray(np.count_nonzero(given, axis=0) * GRID, np.int64)
    share = np.array(given, np.float64, order="C")
    np.clip(share, 0.0, 1.0, out=share)
    share *= GRID
    np.rint(share, out=share)
    # Whole numbers whose sums stay below 2^53: float addition is exact, in any order.
    total = share.sum(axis=0)
    if np.isnan(total).any():
        total = np.nansum(share, axis=0)
    return np.asarray(total).astype(np.int64)


def metric_of(metric: str | RowMetric) -> RowMetric:
    """Return the metric that a caller named or gave."""
    if callable(metric):
        return metric
    if metric == "accuracy":
        return lambda truth, predicted: np.asarray(truth) == np.asarray(predicted)
    raise InvalidRequest(
        "Expected metric to be 'accuracy' or a function", got=metric, do="Pass a function of true and predicted values"
    )


def score_rows(estimator: Any, metric: str | RowMetric) -> RowQuestion:
    """Return the question how well a fitted estimator does on each row of (X, y)."""
    score = metric_of(metric)
    return lambda features, truth: score(truth, estimator.predict(features))


def _count_rows(part: Any) -> int:
    """Return the number of rows, or 0 for an object that has none."""
    shape = getattr(part, "shape", None)
    if shape:
        return int(shape[0])
    return len(part) if hasattr(part, "__len__") and not isinstance(part, str | dict) else 0


def _slice_rows(part: Any, start: int, stop: int) -> Any:
    """Return some rows of an array, a data frame, a table or a list."""
    if hasattr(part, "iloc"):
        return part.iloc[start:stop]
    if hasattr(part, "slice"):
        return part.slice(start, stop - start)
    return part[start:stop]
