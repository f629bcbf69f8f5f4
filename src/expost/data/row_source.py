"""Rows of features and targets that can be read again and again: what models read, whatever the caller passed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from numbers import Real
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, TableChanged, Unit
from expost.core.argument import check_unmasked
from expost.data.canonical_cell import Kind, canonical_column, float_cells
from expost.data.dataset import Dataset
from expost.data.row_identity import RowCensus, RowIdentity
from expost.data.value_place import label_codes

__all__ = [
    "CHUNK_ROWS",
    "ChunkFunction",
    "KeyedRows",
    "OfChangedTargets",
    "ReduceChunks",
    "RowSource",
    "column_names",
    "cut_spans",
    "feature_columns",
    "plain_numbers",
    "read_batch",
    "read_rows",
    "reduce_rows",
    "split_rows",
    "typed_column",
]

CHUNK_ROWS = 1 << 13
"""The most rows of a chunk: float64 adds so many products of gridded values without rounding."""

T = TypeVar("T")
Made = TypeVar("Made", covariant=True)

_CHUNK_VALUES = 1 << 22  # wide rows come in smaller chunks, so that a dense chunk stays near 32 MB


class ChunkFunction(Protocol[Made]):
    """A pure function of chunks: features, targets and the weights of persons' rows, None where a row is a person.

    It reads all chunks, and gives the sum over none for no chunks. It can be pickled.
    """

    def __call__(self, chunks: Iterable[tuple[Any, Any, Any]], /) -> Made: ...


class ReduceChunks(Protocol):
    """Merges the results of a function of chunks of all rows; a secret chooses the rows of persons."""

    def __call__(self, function: ChunkFunction[T], merge: Callable[[T, T], T], secret: bytes, /) -> T: ...


@dataclass(frozen=True)
class OfChangedTargets(Generic[T]):
    """A function of chunks with other targets."""

    change: Callable[[Any], Any]
    function: ChunkFunction[T]

    def __call__(self, chunks: Iterable[tuple[Any, Any, Any]]) -> T:
        return self.function((features, self.change(target), weights) for features, target, weights in chunks)


@dataclass(frozen=True)
class OfBatch(Generic[T]):
    """A function of chunks as a function of the batches that they are read from."""

    names: tuple[str, ...]
    target: str
    classes: Any
    function: ChunkFunction[T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        table, labels = read_batch(batch, self.names, self.target, self.classes)
        spans = cut_spans(len(labels), len(self.names))
        return self.function((table[start:stop], labels[start:stop], None) for start, stop in spans)


@dataclass(frozen=True)
class RowSource:
    """Rows that can be read repeatedly, in chunks, in any order. The numbers of rows and columns are public.

    ``rows`` is the number that sums are divided by, and the most that one reading has. ``fixed`` means that readings can
    differ in order only: arrays in this process, and parts that check it themselves.

    >>> source = read_rows(np.ones((3, 2)), np.zeros(3))
    >>> source.rows, source.width
    (3, 2)
    """

    rows: int
    width: int
    names: tuple[str, ...] | None
    read: Callable[[], Iterator[tuple[Any, Any]]]
    fixed: bool = False
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: Unit = Unit()
    rows_per_unit: int = 1
    """The most rows that a reading has of one unit; ``rows`` are then units, and ``weigh`` gives each its weight."""
    has_changed: Callable[[], bool] = bool
    """Whether the source of the rows was changed since it was opened, as far as can be seen without reading them."""
    reduce: ReduceChunks | None = None
    """Merges the results of a function of chunks where the rows lie: on executors, or in threads that read a file."""
    distributed: bool = False
    """Whether the rows are too far away to be read here."""

    @property
    def size_is_private(self) -> bool:
        """Return whether no number of rows is public, not even a declared one: ``rows`` is 0 then."""
        return self.rows == 0

    def fold(self, function: ChunkFunction[T], merge: Callable[[T, T], T]) -> T:
        """Return the merged results of a function of chunks: of all at once here, or of parts where the rows lie."""
        if self.reduce is not None and self.distributed:
            return self.reduce(function, merge, b"")
        return function((features, target, None) for features, target in self.read())

    def map_targets(self, change: Callable[[Any], Any]) -> RowSource:
        """Return the same rows with ``change`` applied to their targets."""
        read, reduce = self.read, self.reduce

        def reduce_changed(function: ChunkFunction[T], merge: Callable[[T, T], T], secret: bytes) -> T:
            assert reduce is not None
            return reduce(OfChangedTargets(change, function), merge, secret)

        return replace(
            self,
            read=lambda: ((features, change(target)) for features, target in read()),
            reduce=None if reduce is None else reduce_changed,
        )

    def __repr__(self) -> str:
        return f"RowSource({self.rows} rows of {self.width} features)"


@dataclass(frozen=True, repr=False)
class KeyedRows(RowSource):
    """Rows of numbers with a secret key, from which each row gets its own coin."""

    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, source: RowSource, key: bytes) -> KeyedRows:
        """Return the same rows with a key."""
        return cls(**{each.name: getattr(source, each.name) for each in fields(source)}, key=key)


def split_rows(source: KeyedRows, every: int) -> tuple[RowSource, RowSource]:
    """Split a table into two disjoint parts: each row is in the second one with probability 1 / ``every``.

    The row's own keyed coin decides, so a row stays in its part in every reading and every order. One extra reading
    counts equal rows, and a table that changes between readings raises ``TableChanged``. The number of rows of a part is
    private: its ``rows`` are those of the whole table, the most that it can have (docs/proofs/row-identity.md).

    >>> whole = read_rows(np.arange(10.0)[:, None], np.zeros(10))
    >>> parts = split_rows(KeyedRows.of(whole, bytes(32)), 5)
    >>> sum(len(target) for part in parts for _, target in part.read())
    10
    """
    if not 2 <= every <= source.rows:
        raise InvalidRequest("Expected a split that leaves rows on both sides", got=every, do="Take a larger table")
    identity, border = RowIdentity(source.key), np.uint64((1 << 64) // every)
    counted: list[RowCensus] = []  # the census of the first reading, shared by both parts

    def count_rows() -> RowCensus:
        if not counted:
            census = RowCensus()
            for features, target in source.read():
                census.add(identity.name_rows([features, target]))
            counted.append(census.finish())
        return counted[0]

    def make_part(second: bool) -> RowSource:
        def read() -> Iterator[tuple[Any, Any]]:
            census = count_rows()
            reading = census.start_pass(identity)
            for features, target in source.read():
                chosen = (reading.next_coins(identity.name_rows([features, target])) < border) == second
                yield features[chosen], target[chosen]
            if reading.mark != census.mark:
                raise TableChanged()

        return RowSource(source.rows, source.width, source.names, read, True, source.adjacency)

    return make_part(False), make_part(True)


def read_rows(
    features: Any,
    target: Any = None,
    *,
    names: tuple[str, ...] | None = None,
    declared_rows: int | None = None,
    classes: Any = None,
) -> RowSource:
    """Open the rows of arrays, sparse matrices, frames, Arrow tables or a ``Dataset``.

    With a ``Dataset``, ``target`` is the name of a column and ``names`` are the features, by default every other numeric
    column; the rows are streamed from the source. ``declared_rows`` replaces the number of rows if it is private: the
    dataset must then use add/remove adjacency. With ``classes`` the targets are read as indices among them, -1 for any
    other label.
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
        for start, stop in cut_spans(rows, width):
            yield matrix[start:stop], None if labels is None else labels[start:stop]

    return RowSource(rows, width, names, read, fixed=True)


def _read_dataset(
    dataset: Dataset, target: Any, chosen: tuple[str, ...] | None, declared_rows: int | None, classes: Any
) -> RowSource:
    """Open the rows of a dataset; nothing is read yet."""
    names = feature_columns(dataset, target, chosen)
    if declared_rows is not None:
        rows = declared_rows
        if dataset.adjacency.public_size or dataset.filtered or not dataset.unit.is_row:
            raise InvalidRequest(
                "Expected a whole dataset of single rows that are added or removed",
                do='Describe it with adjacency="add-remove", unit="row"; a replaced row would cost twice the bill',
            )
    elif dataset.adjacency.public_size and dataset.rows is not None and dataset.unit.is_row:
        rows = dataset.rows
    else:
        raise InvalidRequest(
            "Expected a dataset of single rows whose number is public",
            do='Describe it with adjacency="replace-one", rows=..., unit="row"',
        )

    def read() -> Iterator[tuple[Any, Any]]:
        left: float = rows if declared_rows is None else math.inf
        for batch in dataset.batches([*names, target]):
            table, labels = read_batch(batch, names, target, classes)
            kept = int(min(len(labels), left))
            for start, stop in cut_spans(kept, len(names)):
                yield table[start:stop], labels[start:stop]
            left -= kept

    return RowSource(
        rows,
        len(names),
        names,
        read,
        adjacency=dataset.adjacency,
        has_changed=dataset.has_changed,
        reduce=reduce_rows(dataset, names, target, classes),
        distributed=dataset.distributed,
    )


def reduce_rows(dataset: Dataset, names: tuple[str, ...], target: str, classes: Any) -> ReduceChunks:
    """Return how functions of chunks are merged where the rows of a dataset lie."""

    def reduce(function: ChunkFunction[T], merge: Callable[[T, T], T], secret: bytes) -> T:
        return dataset.reduce(OfBatch(names, target, classes, function), merge, [*names, target])

    return reduce


def feature_columns(dataset: Dataset, target: Any, chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the feature columns of a dataset, by default every numeric column but the target and the unit."""
    if not isinstance(target, str):
        raise InvalidRequest("Expected the name of the target column with a Dataset", got=target, do="Pass y='name'")
    dataset.schema.kind(target)
    taken = {target, dataset.unit.column, dataset.unit.time_column}
    names = chosen or tuple(
        name for name in dataset.schema if name not in taken and dataset.schema.kind(name).is_number
    )
    for name in names:
        if name == target or not dataset.schema.kind(name).is_number:
            raise InvalidRequest("Expected features that are numbers, target excluded", got=name, do="Leave it out")
    return names


def read_batch(batch: pa.RecordBatch, names: tuple[str, ...], target: str, classes: Any) -> tuple[Any, Any]:
    """Return the features and the targets of a batch."""
    table = np.empty((len(names), batch.num_rows))  # columns are copied, not scattered
    for line, name in zip(table, names, strict=True):
        line[:] = float_cells(batch.column(name))
    return table.T, _read_targets(batch.column(target), classes)


def cut_spans(rows: int, width: int) -> Iterable[tuple[int, int]]:
    """Cut rows into chunks of at most 2^13 rows and 32 MB: pairs of first row and the row after the last."""
    step = max(1, min(CHUNK_ROWS, _CHUNK_VALUES // max(width, 1)))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def plain_numbers(values: Any) -> NDArray[np.float64]:
    """Convert to floats. Objects that are not numbers become NaN; raising would reveal that such a row exists.

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


def _plain_number(value: Any) -> float:
    """Convert one object to a float, NaN if it is not a number."""
    try:
        return float(value) if isinstance(value, Real | Decimal | np.bool_) else math.nan
    except OverflowError:  # an integer beyond floats
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def typed_column(values: Any) -> pa.Array | None:
    """Convert a column that stores its type (Arrow, polars, a pandas extension type) to canonical form, else None.

    As a NumPy array its type would depend on single cells: one null turns integers into floats.

    >>> typed_column(pa.array([b"a", bytes([255])]).view(pa.string())).to_pylist()
    ['a', None]
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        dtype = getattr(values, "dtype", None)
        # Frames have no dtype, arrays and plain series a NumPy dtype; pandas categories and texts may be objects.
        plain = dtype is None or isinstance(dtype, np.dtype) or hasattr(dtype, "categories")
        plain = plain or getattr(dtype, "storage", "") == "python"
        if plain or not hasattr(values, "__arrow_c_stream__"):
            return None
        values = pa.chunked_array(values)
    return canonical_column(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)


def column_names(features: Any) -> tuple[str, ...] | None:
    """Return the column names of a table, None if it has none."""
    arrow = isinstance(features, pa.Table | pa.RecordBatch)
    columns = features.column_names if arrow else getattr(features, "columns", None)
    if columns is None or callable(columns) or not all(isinstance(name, str) for name in columns):
        return None
    return tuple(columns)


def _as_matrix(features: Any) -> Any:
    """Convert to a two-dimensional array or compressed sparse rows, copying only if necessary."""
    check_unmasked(features)
    if hasattr(features, "tocsr"):
        return features.tocsr()
    if hasattr(features, "to_numpy"):
        matrix = features.to_numpy()
    elif not hasattr(features, "__array__") and hasattr(features, "column_names") and hasattr(features, "columns"):
        matrix = np.column_stack([column.to_numpy(zero_copy_only=False) for column in features.columns])  # Arrow
    else:
        matrix = np.asarray(features)
    if matrix.dtype.kind not in "biufO" or matrix.ndim != 2:
        raise InvalidRequest("Expected a two-dimensional table of numbers", do="Reshape it to (rows, features)")
    return matrix


def _as_vector(target: Any, rows: int, classes: Any) -> NDArray[Any]:
    """Convert targets to a vector with one entry per row."""
    check_unmasked(target)
    typed = typed_column(target)
    if typed is not None:
        labels = _read_targets(typed, classes)
    else:
        labels = target.to_numpy() if hasattr(target, "to_numpy") else np.asarray(target)
        labels = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
        labels = labels if classes is None or labels.ndim != 1 else label_codes(labels, classes)
    if labels.ndim != 1 or len(labels) != rows:
        raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
    return labels


def _read_targets(column: pa.Array, classes: Any) -> NDArray[Any]:
    """Convert a canonical target column to an array whose type depends on the column's type only."""
    if classes is not None:
        return label_codes(column, classes)
    return float_cells(column) if Kind.of(column.type).is_number else column.to_numpy(zero_copy_only=False)
