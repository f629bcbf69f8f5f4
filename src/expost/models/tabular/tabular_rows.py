"""Rows of a mixed table for training: chunks of features, targets and weights, read again and again."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, Unit
from expost.data.bounding import Atoms
from expost.data.canonical_cell import Kind, canonical_value, decode_column, float_cells
from expost.data.dataset import Dataset
from expost.data.row_source import cut_spans
from expost.data.unit_identity import unit_words
from expost.data.unit_share import MOST_ROWS_PER_UNIT, RowsOfUnits, UnitShares, content_of, weigh_rows
from expost.data.untyped_table import TYPES
from expost.data.value_place import label_codes
from expost.models.tabular.column_encoding import Cells, Features
from expost.models.tabular.table_encoder import TableEncoder
from expost.noise import system_bits

__all__ = ["ChunkSum", "RowChunk", "TabularRows"]

T = TypeVar("T")
Made = TypeVar("Made", covariant=True)

_SECRET_WORDS = 4
_SHOWN = 5


class RowChunk(NamedTuple):
    """Some rows: features (float32), targets (class indices or floats) and weights (float32). SECRET.

    With an id as the unit only rows with a positive weight are in it.
    """

    features: Features
    targets: NDArray[Any]
    weights: NDArray[np.float32]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class TabularRows:
    """The rows of a dataset as features, targets and weights. Every iteration reads all of them. SECRET.

    If a unit is a row, every row has weight 1. If it is an id, each unit keeps at most ``max_rows_per_unit`` rows, chosen by
    a keyed hash of their contents, and the k rows that it keeps weigh 1 / k each, rounded down, so that the weights of a
    unit sum to at most 1. What a unit keeps depends on its own rows only (docs/proofs/unit-weights.md). Rows without an id
    are left out. The choice is made in one extra reading and stays the same in all readings of this object, whatever the
    order of rows and batches. Iterating raises ``TableChanged`` at its end if the table changed in between.

    Make one with ``TabularRows.read``, which checks its arguments.

    Parameters
    ----------
    dataset : Dataset
        The table, with its unit and its filter.
    encoder : TableEncoder
        How rows become features.
    target : str
        Name of the target.
    classes : tuple or None
        The public classes, or None if targets are numbers.
    secret : bytes
        Decides which rows a unit keeps.

    Examples
    --------
    >>> from expost.models.tabular.column_encoding import FlagColumn
    >>> visits = pa.table({"id": [7, 7, 8], "old": [True, True, False], "stay": [1, 2, 3]})
    >>> people = Dataset(visits, unit="id", max_rows_per_unit=9)
    >>> chunk, = TabularRows.read(people, TableEncoder((FlagColumn("old"),)), "stay")
    >>> chunk.weights.tolist()
    [0.5, 0.5, 1.0]
    """

    dataset: Dataset
    encoder: TableEncoder
    target: str
    classes: tuple[Any, ...] | None
    secret: bytes = field(repr=False)
    _shares: list[UnitShares] = field(default_factory=list, init=False)

    @classmethod
    def read(
        cls,
        dataset: Dataset,
        encoder: TableEncoder,
        target: str,
        *,
        classes: Sequence[Any] | None = None,
        secret: bytes | None = None,
    ) -> TabularRows:
        """Open the rows of a dataset; no row is read yet, and whatever does not fit is refused.

        Parameters
        ----------
        dataset : Dataset
            The table, with its unit and its filter.
        encoder : TableEncoder
            How rows become features.
        target : str
            Name of the target.
        classes : sequence, optional
            The public classes. Targets are then indices among them, -1 for any other label. Without them targets are
            numbers, NaN where missing.
        secret : bytes, optional
            Decides which rows a unit keeps. Default: fresh.

        Returns
        -------
        TabularRows

        Examples
        --------
        >>> from expost.models.tabular.column_encoding import NumberColumn
        >>> people = Dataset(pa.table({"age": [0, 100], "sick": ["no", "?"]}))
        >>> encoder = TableEncoder((NumberColumn("age", 0, 100, missing=False),))
        >>> chunk, = TabularRows.read(people, encoder, "sick", classes=["no", "yes"])
        >>> chunk.features.tolist(), chunk.targets.tolist(), chunk.weights.tolist()
        ([[-1.0], [1.0]], [0, -1], [1.0, 1.0])
        """
        kind = dataset.schema.kind(target)
        if target in encoder.names_in:
            raise InvalidRequest("Expected a target that is not a feature", got=target, do="Leave it out of columns=")
        for column in encoder.columns:
            column.check_kind(dataset.schema.kind(column.name), computed=not dataset.stores(column.name))
        if classes is not None:
            classes = _read_classes(target, classes)
            if kind.value in TYPES:
                try:
                    label_codes(pa.nulls(0, TYPES[kind.value]), classes)
                except InvalidRequest:  # a class could not equal any label
                    raise InvalidRequest(
                        f"Expected classes of {target!r} like its labels, a column of {kind.value}",
                        got=", ".join(map(repr, classes[:3])),
                        do="Pass numbers for numbers, text for text",
                    ) from None
        if kind is Kind.OTHER or (classes is None and not kind.is_number):
            raise InvalidRequest(
                "Expected a target of numbers, or of labels with public classes",
                got=f"{target}, a column of {kind.value}",
                do="Use expost.Classifier for classes, or name a column of numbers",
            )
        limit = dataset.max_rows_per_unit
        if not dataset.unit.is_row and (limit is None or limit > MOST_ROWS_PER_UNIT):
            raise InvalidRequest(
                f"Expected a limit on the rows of one {dataset.unit.column}, at most {MOST_ROWS_PER_UNIT}",
                got=limit,
                do="Pass max_rows_per_unit=10",
            )
        key = system_bits().words(_SECRET_WORDS).tobytes() if secret is None else secret
        return cls(dataset=dataset, encoder=encoder, target=target, classes=classes, secret=key)

    @property
    def width(self) -> int:
        """The number of features."""
        return self.encoder.width

    @property
    def far(self) -> bool:
        """Return whether rows lie on other machines, so that they should not be read here."""
        return self.dataset.distributed

    def __call__(self) -> Iterator[RowChunk]:
        return iter(self)

    def __iter__(self) -> Iterator[RowChunk]:
        """Read all rows once, in chunks of at most 2^13 rows and 32 MB."""
        if self.dataset.unit.is_row:
            for _, cells, targets in self._parts():
                yield RowChunk(self.encoder.write_features(cells), targets, np.ones(len(targets), np.float32))
            return
        if not self._shares:
            limit, memory = self.dataset.max_rows_per_unit, self.dataset._memory_limit
            assert limit is not None
            rows = (self._units_of(*part) for part in self._parts())
            self._shares.append(UnitShares(rows, most=limit, secret=self.secret, memory_limit=memory))
        reading = self._shares[0].start_pass()
        for batch, cells, targets in self._parts():
            weights = reading.next_weights(self._units_of(batch, cells, targets))
            kept = np.flatnonzero(weights)
            features = self.encoder.write_features([column[kept] for column in cells])
            yield RowChunk(features, targets[kept], weights[kept])
        reading.finish()

    def sum(self, function: ChunkSum[T]) -> T:
        """Return the sum that a function makes of all chunks: of all at once here, or of parts where the rows lie.

        Parameters
        ----------
        function : callable
            A pure function of an iterable of ``RowChunk``, which can be pickled. What it returns can be added, exactly
            and in any order.

        Returns
        -------
        object
            The sum over all rows. SECRET.

        Examples
        --------
        >>> from expost.models.tabular.column_encoding import FlagColumn
        >>> rows = TabularRows.read(Dataset(pa.table({"old": [True, False], "stay": [1, 2]})), TableEncoder((FlagColumn("old"),)), "stay")
        >>> float(rows.sum(lambda chunks: sum(chunk.targets.sum() for chunk in chunks)))
        3.0
        """
        dataset = self.dataset
        if not dataset.distributed:
            return function(iter(self))
        read = _ChunkReader(self.encoder, self.target, self.classes)
        if dataset.unit.is_row:
            total: T = dataset.reduce(_OfTableBatch(read, function), operator.add, self._columns)
            return total
        limit = dataset.max_rows_per_unit
        assert limit is not None
        key, weighed = _EncodedPersons(read, dataset.unit, self.secret), _OfTablePersons(limit, self.secret, function)
        made: T = dataset.reduce_units(key, weighed, self._columns, merge=operator.add, secret=self.secret)
        return made

    @property
    def _columns(self) -> list[str]:
        """The columns that are read."""
        unit = self.dataset.unit
        named = [*self.encoder.names_in, self.target, unit.column, unit.time_column]
        return list(dict.fromkeys(name for name in named if name is not None))

    def _parts(self) -> Iterator[tuple[pa.RecordBatch, list[Cells], NDArray[Any]]]:
        """Yield parts of the table, small enough to be encoded at once, with their cells and targets."""
        read = _ChunkReader(self.encoder, self.target, self.classes)
        for batch in self.dataset.batches(self._columns):
            yield from read.cut_batch(batch)

    def _units_of(self, batch: pa.RecordBatch, cells: Sequence[Cells], targets: NDArray[Any]) -> RowsOfUnits:
        """Return the unit and the content of each row. Features and target follow from the content."""
        return _name_units(self.dataset.unit, batch, cells, targets, self.secret)

    def __repr__(self) -> str:
        return f"TabularRows(rows of {self.width} features, target {self.target!r})"

    def __reduce__(self) -> str:
        raise TypeError("The choice of private rows cannot be pickled: it must not leave its process.")


class ChunkSum(Protocol[Made]):
    """A pure function of chunks that can be pickled, such as an exact sum over rows."""

    def __call__(self, chunks: Iterable[Any], /) -> Made: ...


@dataclass(frozen=True)
class _ChunkReader:
    """How batches become cells and targets."""

    encoder: TableEncoder
    target: str
    classes: tuple[Any, ...] | None

    def cut_batch(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, list[Cells], NDArray[Any]]]:
        """Yield parts of a batch, small enough to be encoded at once, with their cells and targets."""
        for start, stop in cut_spans(batch.num_rows, self.encoder.width):
            part = batch.slice(start, stop - start)
            yield part, self.encoder.read_cells(part), self._read_targets(part.column(self.target))

    def _read_targets(self, column: pa.Array) -> NDArray[Any]:
        return float_cells(decode_column(column)) if self.classes is None else label_codes(column, self.classes)


@dataclass(frozen=True)
class _OfTableBatch(Generic[T]):
    """A function of chunks as a function of the batches that they are read from."""

    reader: _ChunkReader
    function: ChunkSum[T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        write = self.reader.encoder.write_features
        parts = self.reader.cut_batch(batch)
        return self.function(
            RowChunk(write(cells), targets, np.ones(len(targets), np.float32)) for _, cells, targets in parts
        )


@dataclass(frozen=True)
class _EncodedPersons:
    """Reads a batch as rows with their persons: features and targets are what the function needs of each row."""

    reader: _ChunkReader
    unit: Unit
    secret: bytes

    def __call__(self, batch: pa.RecordBatch) -> Atoms:
        width = self.reader.encoder.width
        parts = []
        for part, cells, targets in self.reader.cut_batch(batch) if batch.num_rows else self._cut_nothing(batch):
            found = _name_units(self.unit, part, cells, targets, self.secret)
            rows = np.empty((1, len(targets)), [("features", np.float32, (width,)), ("target", targets.dtype)])
            rows["features"], rows["target"] = self.reader.encoder.write_features(cells), targets
            parts.append(Atoms(found.words, found.content, rows).take(found.known))
        return Atoms.join(parts)

    def _cut_nothing(self, batch: pa.RecordBatch) -> list[tuple[pa.RecordBatch, list[Cells], NDArray[Any]]]:
        """Return one part without rows."""
        return [
            (batch, self.reader.encoder.read_cells(batch), self.reader._read_targets(batch.column(self.reader.target)))
        ]


@dataclass(frozen=True)
class _OfTablePersons(Generic[T]):
    """A function of the rows that persons keep, with their weights; it is given all rows of some persons."""

    most: int
    secret: bytes
    function: ChunkSum[T]

    def __call__(self, atoms: Atoms) -> T:
        kept, weights = weigh_rows(atoms, self.most, self.secret)
        rows, shares = atoms.steps[0][kept], weights.astype(np.float32)
        spans = cut_spans(len(rows), rows["features"].shape[1])
        return self.function(
            RowChunk(np.ascontiguousarray(rows["features"][start:stop]), rows["target"][start:stop], shares[start:stop])
            for start, stop in spans
        )


def _name_units(
    unit: Unit, batch: pa.RecordBatch, cells: Sequence[Cells], targets: NDArray[Any], secret: bytes
) -> RowsOfUnits:
    words, known = unit_words(unit, batch, {}, secret)
    return RowsOfUnits(words, known, content_of([*cells, targets], batch.num_rows, secret))


def _read_classes(target: str, classes: Any) -> tuple[Any, ...]:
    """Return public classes; raise unless they are at least two different values, none of them missing."""
    listed = tuple(classes.tolist() if isinstance(classes, np.ndarray) else classes)
    known = {canonical_value(each) for each in listed if each is not None and each == each}
    if isinstance(classes, str | bytes) or len(known) != len(listed) or len(listed) < 2:
        raise InvalidRequest(
            f"Expected at least two different classes of {target!r}, none missing, not one class",
            got=", ".join(map(repr, listed[:_SHOWN])) or "none",
            do='Pass classes=["no", "yes"]',
        )
    return listed
