"""Rows of persons: each person keeps at most a public number of rows, which share one weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.dataset import Dataset
from expost.data.row_source import RowSource, cut_spans, feature_columns, read_batch
from expost.data.unit_identity import unit_words
from expost.data.unit_share import MOST_ROWS_PER_UNIT, RowsOfUnits, UnitShares, content_of

__all__ = ["PersonRows", "read_added_rows"]

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
        return RowSource(**shape, adjacency=dataset.adjacency, has_changed=dataset.has_changed)
    assert limit is not None
    return PersonRows(**shape, adjacency=dataset.adjacency, unit=unit, rows_per_unit=limit, identify=identify)
