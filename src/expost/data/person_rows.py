"""Rows of persons: each person keeps at most a public number of rows, which share one weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, Unit
from expost.data.bounding import Atoms
from expost.data.dataset import Dataset
from expost.data.row_source import ChunkFunction, RowSource, cut_spans, feature_columns, read_batch, reduce_rows
from expost.data.unit_identity import unit_words
from expost.data.unit_share import MOST_ROWS_PER_UNIT, RowsOfUnits, UnitShares, content_of, weigh_rows

__all__ = ["PersonRows", "read_added_rows"]

T = TypeVar("T")
Floats = NDArray[np.float64]
IdentifiedRows = Iterator[tuple[Any, Any, RowsOfUnits]]


def _refuse_secret(secret: bytes) -> IdentifiedRows:
    raise TypeError("These rows cannot be read without their persons.")


@dataclass(frozen=True, repr=False)
class PersonRows(RowSource):
    """Rows whose unit is a person. ``rows`` is a number of persons; ``read`` gives rows without their weights.

    ``identify`` reads all rows with their persons under a secret. A person keeps at most ``rows_per_unit`` rows, the same
    for every order of the table; kept rows share one weight of 1 (docs/proofs/unit-weights.md). Rows without a person are
    left out.
    """

    identify: Callable[[bytes], IdentifiedRows] = _refuse_secret
    _chosen: dict[bytes, UnitShares] = field(default_factory=dict, init=False, compare=False)

    def read_weighted(self, secret: bytes) -> Iterator[tuple[Any, Any, Floats]]:
        """Yield the kept rows with their targets and weights. The first reading under a secret counts the rows of persons."""
        if secret not in self._chosen:
            named = (rows for _, _, rows in self.identify(secret))
            self._chosen[secret] = UnitShares(named, most=self.rows_per_unit, secret=secret)
        reading = self._chosen[secret].start_pass()
        for features, target, rows in self.identify(secret):
            weights = reading.next_weights(rows)
            kept = np.flatnonzero(weights)
            for start, stop in cut_spans(len(kept), self.width):
                some = kept[start:stop]
                yield features[some], target[some], weights[some].astype(np.float64)
        reading.finish()


def read_added_rows(
    dataset: Dataset,
    target: Any,
    *,
    names: tuple[str, ...] | None = None,
    declared_rows: int | None = None,
    classes: Any = None,
) -> RowSource:
    """Open the rows of a dataset whose units are added or removed. Its number of units is private.

    ``rows`` is the declared number of units, 0 if none is declared. Features and targets are read as by ``read_rows``.
    """
    features = feature_columns(dataset, target, names)
    unit, limit = dataset.unit, dataset.max_rows_per_unit
    if dataset.adjacency.public_size:
        raise InvalidRequest(
            "Expected a dataset of units that are added or removed", do='Describe it with adjacency="add-remove"'
        )
    if dataset.filtered:
        raise InvalidRequest(
            "Expected a whole dataset: a model of a part would need its number of rows", do="Fit to the whole table"
        )
    if not unit.is_row and (limit is None or limit > MOST_ROWS_PER_UNIT):
        raise InvalidRequest(
            f"Expected a limit on the rows of one {unit.column}, at most {MOST_ROWS_PER_UNIT}",
            got=limit,
            do="Pass Dataset(..., max_rows_per_unit=10)",
        )
    stored = [*features, target]
    identified = [*stored, *(name for name in (unit.column, unit.time_column) if name is not None)]

    def read() -> Iterator[tuple[Any, Any]]:
        for batch in dataset.batches(stored):
            table, labels = read_batch(batch, features, target, classes)
            for start, stop in cut_spans(len(labels), len(features)):
                yield table[start:stop], labels[start:stop]

    def identify(secret: bytes) -> IdentifiedRows:
        for batch in dataset.batches(list(dict.fromkeys(identified))):
            table, labels = read_batch(batch, features, target, classes)
            words, known = unit_words(unit, batch, {}, secret)
            content = content_of([*np.asarray(table).T, np.asarray(labels)], len(labels), secret)
            yield table, labels, RowsOfUnits(words, known, content)

    rows = 0 if declared_rows is None else declared_rows
    shape: dict[str, Any] = {"rows": rows, "width": len(features), "names": features, "read": read}
    if unit.is_row:
        reduce = reduce_rows(dataset, features, target, classes)
        shape |= {"adjacency": dataset.adjacency, "distributed": dataset.distributed}
        return RowSource(**shape, has_changed=dataset.has_changed, reduce=reduce)
    assert limit is not None

    def reduce_persons(function: ChunkFunction[T], merge: Callable[[T, T], T], secret: bytes) -> T:
        key = _PersonKey(features, target, classes, unit, secret)
        weighed = _OfPersons(limit, secret, function)
        return dataset.reduce_units(key, weighed, list(dict.fromkeys(identified)), merge=merge, secret=secret)

    return PersonRows(
        **shape,
        adjacency=dataset.adjacency,
        unit=unit,
        rows_per_unit=limit,
        identify=identify,
        has_changed=dataset.has_changed,
        reduce=reduce_persons if dataset.distributed else None,
        distributed=dataset.distributed,
    )


@dataclass(frozen=True)
class _PersonKey:
    """Reads a batch as rows with their persons: features and targets are what the function needs of each row."""

    names: tuple[str, ...]
    target: str
    classes: Any
    unit: Unit
    secret: bytes

    def __call__(self, batch: pa.RecordBatch) -> Atoms:
        table, labels = read_batch(batch, self.names, self.target, self.classes)
        words, known = unit_words(self.unit, batch, {}, self.secret)
        content = content_of([*table.T, np.asarray(labels)], len(labels), self.secret)
        rows = np.empty((1, len(labels)), [("features", np.float64, (len(self.names),)), ("target", labels.dtype)])
        rows["features"], rows["target"] = table, labels
        return Atoms(words, content, rows).take(known)


@dataclass(frozen=True)
class _OfPersons(Generic[T]):
    """A function of the rows that persons keep, with their weights; it is given all rows of some persons."""

    most: int
    secret: bytes
    function: ChunkFunction[T]

    def __call__(self, atoms: Atoms) -> T:
        kept, weights = weigh_rows(atoms, self.most, self.secret)
        rows = atoms.steps[0][kept]
        spans = cut_spans(len(rows), rows["features"].shape[1])
        return self.function(
            (rows["features"][start:stop], rows["target"][start:stop], weights[start:stop]) for start, stop in spans
        )
