"""Feature rows in the unit ball, on a fixed-point grid: what learning reads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, TableChanged
from expost.core.mask import check_unmasked
from expost.data.canonical import canonical_column
from expost.data.dataset import Dataset
from expost.data.places import label_codes
from expost.data.row_identity import Mark, RowIdentity
from expost.data.schema import Kind
from expost.data.values import float_cells

__all__ = ["GRID_BITS", "RowSource", "UnitBall", "UnitRows", "plain_numbers", "read_rows", "typed_column"]

GRID_BITS = 20
"""Fractional bits of a gridded value. Products have 40, so float64 adds 2^13 of them without rounding."""

CHUNK_ROWS = 1 << 13
_CHUNK_VALUES = 1 << 22  # wide rows come in smaller chunks, so that a dense chunk stays near 32 MB
_CACHED_VALUES = 1 << 24  # gridded rows up to this size are kept between passes: 128 MB

Floats = NDArray[np.float64]
Chunk = tuple[Floats, Floats]


@dataclass(frozen=True)
class RowSource:
    """Rows that can be read again and again, in chunks, in any order; the number of rows and columns is public.

    ``rows`` is the number that sums are divided by, and the most that a reading has. ``fixed`` says that no reading can differ
    from the one before it but in order: arrays in this process, and parts that check it themselves.

    >>> source = read_rows(np.ones((3, 2)), np.zeros(3))
    >>> source.rows, source.width
    (3, 2)
    """

    rows: int
    width: int
    names: tuple[str, ...] | None
    read: Callable[[], Iterator[tuple[Any, Any]]]
    fixed: bool = False

    def retargeted(self, change: Callable[[Any], Any]) -> RowSource:
        """The same rows with targets made of theirs."""
        read = self.read
        return replace(self, read=lambda: ((features, change(target)) for features, target in read()))

    def __repr__(self) -> str:
        return f"RowSource({self.rows} rows of {self.width} features)"


@dataclass(frozen=True)
class UnitBall:
    """The public numbers that carry a raw row into the unit ball of a norm.

    Columns with bounds are mapped to [0, 1] first. A row longer than ``bound`` is shortened to it; then it is divided
    by ``bound``. An intercept is a constant column as long as the bound, which shrinks the row so that both fit.

    >>> UnitBall(width=2, norm=Norm.L1, bound=4.0).into(np.array([[1.0, 1.0], [6.0, 2.0]]))
    array([[0.25, 0.25],
           [0.75, 0.25]])
    """

    width: int
    norm: Norm = Norm.L1
    bound: float = 1.0
    lows: tuple[float, ...] | None = None
    highs: tuple[float, ...] | None = None
    intercept: bool = False

    @property
    def dimension(self) -> int:
        """The number of coefficients, the intercept's included."""
        return self.width + self.intercept

    @property
    def shrinkage(self) -> float:
        """What a row is multiplied by, beyond 1 / bound, to make room for the constant column."""
        if not self.intercept:
            return 1.0
        return 0.5 if self.norm is Norm.L1 else 0.7071  # below 1/sqrt(2), so that the norm stays within 1

    def into(self, raw: Any) -> Floats:
        """The rows in the unit ball; missing values count as zero (or as the column's lower bound)."""
        rows = np.array(raw.toarray() if hasattr(raw, "toarray") else raw, dtype=np.float64, copy=True, order="C")
        if self.lows is not None:
            with np.errstate(over="ignore"):  # a warning would tell of one huge value, which is cut next
                rows -= np.array(self.lows)
                rows /= np.array(self.highs) - np.array(self.lows)
            np.clip(rows, 0, 1, out=rows)
        # One huge value must not turn its whole row into nan: cap it, the norm is clipped anyway.
        np.nan_to_num(rows, copy=False, nan=0.0, posinf=1e150, neginf=-1e150)
        np.clip(rows, -1e150, 1e150, out=rows)
        length = np.abs(rows).sum(axis=1) if self.norm is Norm.L1 else np.linalg.norm(rows, axis=1)
        rows *= (self.shrinkage / np.maximum(length, self.bound))[:, None]
        if self.intercept:
            rows = np.column_stack([rows, np.full(len(rows), self.shrinkage)])
        return rows

    def gridded(self, raw: Any) -> Floats:
        """The rows in the unit ball as integers of 2^-GRID_BITS: what a fit reads, and what a prediction reads too.

        They are cut toward zero: a sum of cut magnitudes is an integer not above the bound (docs/proofs/moments.md).

        >>> (UnitBall(width=2, bound=2.0).gridded(np.array([[np.inf, np.nan], [1.0, -1.0]])) / 2.0**GRID_BITS).tolist()
        [[1.0, 0.0], [0.5, -0.5]]
        """
        return np.trunc(self.into(raw) * 2.0**GRID_BITS)

    def out(self, unit_coefficients: Floats, target_bound: float = 1.0) -> tuple[Floats, float]:
        """The coefficients and the intercept for raw rows, from those for rows in the unit ball."""
        weights = unit_coefficients[: self.width] * (target_bound * self.shrinkage / self.bound)
        constant = unit_coefficients[self.width] * target_bound * self.shrinkage if self.intercept else 0.0
        if self.lows is not None:
            lows, spans = np.array(self.lows), np.array(self.highs) - np.array(self.lows)
            weights = weights / spans
            constant -= float(weights @ lows)
        return weights, float(constant)


class UnitRows:
    """Gridded rows in the unit ball with their targets; they cannot be printed or pickled.

    Values are integers of at most 2^20 in magnitude, held as float64. They are cut toward zero, so that no norm grows.
    """

    def __init__(self, source: RowSource, ball: UnitBall, grid_target: Callable[[Any], Floats]) -> None:
        self.rows, self.ball = source.rows, ball
        self._source, self._grid_target = source, grid_target
        self._cache: list[Chunk] | None = None
        # Draws no noise and hides nothing: the key only keeps whoever wrote the rows from knowing what they add up to.
        self._identity = None if source.fixed else RowIdentity(os.urandom(32))
        self._mark: Mark | None = None

    def chunks(self) -> Iterator[Chunk]:
        """All rows, as (features, targets) in grid units; at most 2^13 rows at a time, so that sums are exact.

        Rows may come in another order each time; a reading that ends with other rows than the first one is refused.
        """
        if self._cache is not None:
            yield from self._cache
            return
        keep = self.rows * self.ball.dimension <= _CACHED_VALUES
        kept: list[Chunk] = []
        mark = Mark()
        for features, target in self._source.read():
            chunk = self.ball.gridded(features), self._grid_target(target)
            if keep:
                kept.append(chunk)
            elif self._identity is not None:
                mark = mark.with_names(self._identity.names(chunk))
            yield chunk
        if keep:
            self._cache = kept
        elif self._mark is not None and self._mark != mark:
            raise TableChanged()
        self._mark = mark

    def retargeted(self, change: Callable[[Floats], Floats]) -> UnitRows:
        """The same rows with other targets; what is kept of them is kept once."""
        return _Retargeted(self, change)

    def __repr__(self) -> str:
        return "<rows of a private table>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Expected private rows to stay in their process.")


class _Retargeted(UnitRows):
    """Rows whose targets are made of another's."""

    def __init__(self, base: UnitRows, change: Callable[[Floats], Floats]) -> None:
        super().__init__(base._source, base.ball, base._grid_target)
        self._base, self._change = base, change

    def chunks(self) -> Iterator[Chunk]:
        return ((features, self._change(target)) for features, target in self._base.chunks())


def plain_numbers(values: Any) -> Floats:
    """Return numbers as floats. An object that is not a number is NaN; raising would reveal that such a row exists.

    >>> plain_numbers(np.array([1, None, "a", 10**400], object)).tolist()
    [1.0, nan, nan, inf]
    """
    if isinstance(values, pa.Array):
        if not Kind.of(values.type).is_number:
            raise InvalidRequest("Expected numbers", do="Pass columns of numbers; encode text as numbers first")
        return float_cells(values)
    values = np.asarray(values)
    if values.dtype.kind in "biuf":
        return np.asarray(values, np.float64)
    if values.dtype.kind != "O":  # the type of a column is public
        raise InvalidRequest("Expected numbers", do="Pass columns of numbers; encode text as numbers first")
    return np.array([_plain_number(value) for value in values.ravel().tolist()], np.float64).reshape(values.shape)


def typed_column(values: Any) -> pa.Array | None:
    """Return a column with a type of its own (Arrow's, polars's, a pandas extension's) in canonical form, else None.

    As an array of NumPy's its type would depend on single cells: one null makes floats of integers.

    >>> typed_column(pa.array([b"a", bytes([255])]).view(pa.string())).to_pylist()
    ['a', None]
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        dtype = getattr(values, "dtype", None)
        # Frames have no dtype, arrays and plain series one of NumPy's; pandas categories and texts may be objects.
        plain = dtype is None or isinstance(dtype, np.dtype) or hasattr(dtype, "categories")
        plain = plain or getattr(dtype, "storage", "") == "python"
        if plain or not hasattr(values, "__arrow_c_stream__"):
            return None
        values = pa.chunked_array(values)
    return canonical_column(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)


def _plain_number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, Real | Decimal | np.bool_) else math.nan
    except OverflowError:  # an integer beyond floats
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling nan
        return math.nan


def grid_numbers(bound: float) -> Callable[[Any], Floats]:
    """Puts numeric targets, clipped to [-bound, bound], on the grid; missing ones count as zero."""

    def onto_grid(target: Any) -> Floats:
        values = np.nan_to_num(plain_numbers(target), nan=0.0)
        return np.trunc(np.clip(values, -bound, bound) / bound * 2.0**GRID_BITS)

    return onto_grid


def read_rows(
    features: Any,
    target: Any = None,
    *,
    names: tuple[str, ...] | None = None,
    declared_rows: int | None = None,
    classes: Any = None,
) -> RowSource:
    """The rows of whatever the caller has: arrays, sparse matrices, frames, Arrow tables, datasets.

    With a ``Dataset``, ``target`` is the name of a column and ``names`` are the features, every other numeric column by
    default; the rows are then streamed from the source. ``declared_rows`` says that the number of rows is private and
    stands for it: a dataset must then be one whose neighbours add or remove a row. With ``classes`` the targets are read
    as places among them, -1 for any other label.
    """
    if isinstance(features, Dataset):
        return _read_dataset(features, target, names, declared_rows, classes)
    names = names or column_names(features)
    matrix = _as_matrix(features)
    rows, width = matrix.shape
    labels = None if target is None else _as_vector(target, rows, classes)
    if rows == 0 or width == 0:
        raise InvalidRequest("Expected at least one row and one feature", do="Pass a matrix of shape (rows, features)")

    def read() -> Iterator[tuple[Any, Any]]:
        for start, stop in spans(rows, width):
            yield matrix[start:stop], None if labels is None else labels[start:stop]

    return RowSource(rows, width, names, read, fixed=True)


def _read_dataset(
    dataset: Dataset,
    target: Any,
    chosen: tuple[str, ...] | None,
    declared_rows: int | None,
    classes: Any,
) -> RowSource:
    if not isinstance(target, str):
        raise InvalidRequest("Expected the name of the target column beside a Dataset", got=target, do="Pass y='name'")
    dataset.schema.kind(target)
    names = chosen or tuple(name for name in dataset.schema if name != target and dataset.schema.kind(name).is_number)
    for name in names:
        if name == target or not dataset.schema.kind(name).is_number:
            raise InvalidRequest("Expected features that are numbers, target excluded", got=name, do="Leave it out")
    rows = _public_rows(dataset) if declared_rows is None else declared_rows
    if declared_rows is not None and (dataset.adjacency.public_size or dataset.filtered or not dataset.unit.is_row):
        raise InvalidRequest(
            "Expected a whole dataset of single rows that are added or removed",
            do='Describe it with adjacency="add-remove", unit="row"; a replaced row would cost twice the bill',
        )

    def read() -> Iterator[tuple[Any, Any]]:
        left: float = rows if declared_rows is None else math.inf
        for batch in dataset.batches([*names, target]):
            table = np.column_stack([float_cells(batch.column(name)) for name in names])
            labels = _targets(batch.column(target), classes)
            kept = int(min(len(labels), left))
            for start, stop in spans(kept, len(names)):
                yield table[start:stop], labels[start:stop]
            left -= kept

    return RowSource(rows, len(names), names, read)


def _public_rows(dataset: Dataset) -> int:
    if not dataset.adjacency.public_size or dataset.rows is None or not dataset.unit.is_row:
        raise InvalidRequest(
            "Expected a dataset of single rows whose number is public",
            do='Describe it with adjacency="replace-one", rows=..., unit="row"',
        )
    return dataset.rows


def spans(rows: int, width: int) -> Iterable[tuple[int, int]]:
    """Cut rows into chunks of at most 2^13 and at most 32 MB: first and last row number, the last excluded.

    >>> list(spans(10_000, 3))
    [(0, 8192), (8192, 10000)]
    """
    step = max(1, min(CHUNK_ROWS, _CHUNK_VALUES // max(width, 1)))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def _as_matrix(features: Any) -> Any:
    """A two-dimensional array or compressed sparse rows; nothing is copied that need not be."""
    check_unmasked(features)
    if hasattr(features, "tocsr"):
        return features.tocsr()
    if hasattr(features, "to_numpy") or hasattr(features, "__array__"):
        matrix = features.to_numpy() if hasattr(features, "to_numpy") else np.asarray(features)
    elif hasattr(features, "column_names") and hasattr(features, "columns"):  # an Arrow table
        matrix = np.column_stack([column.to_numpy(zero_copy_only=False) for column in features.columns])
    else:
        matrix = np.asarray(features)
    if matrix.dtype.kind not in "biufO" or matrix.ndim != 2:
        raise InvalidRequest("Expected a two-dimensional table of numbers", do="Reshape it to (rows, features)")
    return matrix


def _as_vector(target: Any, rows: int, classes: Any) -> NDArray[Any]:
    check_unmasked(target)
    typed = typed_column(target)
    if typed is not None:
        labels = _targets(typed, classes)
    else:
        labels = target.to_numpy() if hasattr(target, "to_numpy") else np.asarray(target)
        labels = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
        labels = labels if classes is None or labels.ndim != 1 else label_codes(labels, classes)
    if labels.ndim != 1 or len(labels) != rows:
        raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
    return labels


def _targets(column: pa.Array, classes: Any) -> NDArray[Any]:
    """Return a canonical target column as an array whose type depends on the column's type only."""
    if classes is not None:
        return label_codes(column, classes)
    return float_cells(column) if Kind.of(column.type).is_number else column.to_numpy(zero_copy_only=False)


def column_names(features: Any) -> tuple[str, ...] | None:
    """The names of a table's columns, if it has them."""
    arrow = isinstance(features, pa.Table | pa.RecordBatch)
    columns = features.column_names if arrow else getattr(features, "columns", None)
    if columns is None or callable(columns) or not all(isinstance(name, str) for name in columns):
        return None
    return tuple(columns)


def summation_error(rows: int) -> float:
    """A bound on the error of a mean over rows summed chunk by chunk in float64, relative to the mean of magnitudes.

    A sum of k floats errs by at most k u of the sum of magnitudes, u = 2^-53 (Hig02, section 4.2), here first over the
    rows of a chunk and then over the chunks.

    >>> summation_error(100_000) < 1e-12
    True
    """
    return (CHUNK_ROWS + math.ceil(rows / CHUNK_ROWS) + 2) * math.ldexp(1.0, -53)
