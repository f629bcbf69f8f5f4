"""Rows of a mixed table for training: chunks of features, targets and weights, read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_value, decode_column, float_cells
from expost.data.dataset import Dataset
from expost.data.row_source import cut_spans
from expost.data.unit_identity import unit_words
from expost.data.unit_share import MOST_ROWS_PER_UNIT, RowsOfUnits, UnitShares, content_of
from expost.data.untyped_table import TYPES
from expost.data.value_place import label_codes
from expost.models.tabular.column_encoding import Cells, Features
from expost.models.tabular.table_encoder import TableEncoder
from expost.noise import system_bits

__all__ = ["RowChunk", "TabularRows"]

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
                label_codes(pa.nulls(0, TYPES[kind.value]), classes)  # raises if a class could not equal any label
        if kind is Kind.OTHER or (classes is None and not kind.is_number):
            raise InvalidRequest(
                "Expected a target of numbers, or of labels with public classes",
                got=f"{target}, a column of {kind.value}",
                do="Pass classes=[...], or name a column of numbers",
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

    def _parts(self) -> Iterator[tuple[pa.RecordBatch, list[Cells], NDArray[Any]]]:
        """Yield parts of the table, small enough to be encoded at once, with their cells and targets."""
        unit = self.dataset.unit
        named = [*self.encoder.names_in, self.target, unit.column, unit.time_column]
        columns = list(dict.fromkeys(name for name in named if name is not None))
        for batch in self.dataset.batches(columns):
            for start, stop in cut_spans(batch.num_rows, self.encoder.width):
                part = batch.slice(start, stop - start)
                yield part, self.encoder.read_cells(part), self._read_targets(part.column(self.target))

    def _read_targets(self, column: pa.Array) -> NDArray[Any]:
        return float_cells(decode_column(column)) if self.classes is None else label_codes(column, self.classes)

    def _units_of(self, batch: pa.RecordBatch, cells: Sequence[Cells], targets: NDArray[Any]) -> RowsOfUnits:
        """Return the unit and the content of each row. Features and target follow from the content."""
        words, known = unit_words(self.dataset.unit, batch, {}, self.secret)
        return RowsOfUnits(words, known, content_of([*cells, targets], batch.num_rows, self.secret))

    def __repr__(self) -> str:
        return f"TabularRows(rows of {self.width} features, target {self.target!r})"

    def __reduce__(self) -> str:
        raise TypeError("The choice of private rows cannot be pickled: it must not leave its process.")


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
