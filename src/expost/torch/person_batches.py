"""Batches of persons: a person's rows are drawn together and share one weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from expost.core import InvalidRequest, SingleOwner
from expost.core.argument import check_unmasked
from expost.data.bounding import run_starts
from expost.data.canonical_cell import Kind
from expost.data.row_identity import Names
from expost.data.row_source import typed_column
from expost.data.unit_identity import exact_words, widen_words
from expost.data.unit_share import MOST_ROWS_PER_UNIT, RowsOfUnits, UnitShares
from expost.data.untyped_table import lists_to_table

__all__ = ["PersonBatches", "PersonIds", "PersonRowsTaken"]


@dataclass(frozen=True, repr=False)
class PersonIds:
    """One id per row, as the caller gave them, and how many rows of a person are kept. The ids are private.

    Rows without an id (null, NaN) belong to nobody and are left out.

    >>> PersonIds.read(np.array([7, 7, 8])).count_persons()
    2
    """

    column: pa.Array
    name: str
    most: int | None = None

    @classmethod
    def read(cls, ids: Any, most: Any = None) -> PersonIds:
        """Read ids: an array or tensor of whole numbers or texts, an Arrow array, a polars or pandas column."""
        whole = isinstance(most, int | np.integer) and not isinstance(most, bool)
        if most is not None and not (whole and 1 <= most <= MOST_ROWS_PER_UNIT):
            raise InvalidRequest(
                f"Expected max_rows_per_unit to be a whole number from 1 to {MOST_ROWS_PER_UNIT}",
                got=most,
                do="Pass 10",
            )
        check_unmasked(ids)
        name = getattr(ids, "name", None)
        column = typed_column(ids)
        if column is None:
            values = ids.numpy(force=True) if isinstance(ids, Tensor) else ids
            dtype = getattr(values, "dtype", None)
            # The type of a list, or of an array of objects, follows from single cells.
            if isinstance(dtype, np.dtype) and dtype.kind in "iufU" and np.ndim(values) == 1:
                column = _read_ids(np.asarray(values))
        if column is None or (Kind.of(column.type) is Kind.OTHER and not pa.types.is_null(column.type)):
            raise InvalidRequest(
                "Expected unit to be one id per row: an array of whole numbers or texts",
                got=type(ids).__name__,
                do="Pass numpy.array(ids), numpy.array(ids, dtype=str) or an Arrow array",
            )
        return cls(column, name if isinstance(name, str) and name else "unit", None if most is None else int(most))

    def __len__(self) -> int:
        return len(self.column)

    def count_persons(self) -> int:
        """Return how many persons there are, for a caller to whom that is public."""
        words, known = exact_words(self.column, b"count")
        words = [word[known] for word in words]
        order = np.lexsort(words)
        return int(run_starts(*(word[order] for word in words)).sum())


def _read_ids(values: NDArray[Any]) -> pa.Array:
    """Convert an array of ids; a text that is not Unicode, such as half of a surrogate pair, is missing."""
    if values.dtype.kind == "U":
        return lists_to_table({"id": values}, None).column("id").combine_chunks()
    return pa.array(values.astype(np.float64) if values.dtype.kind == "f" else values)


class PersonRowsTaken(NamedTuple):
    """The rows of some persons: their places in the table, their weights, and whose they are among these persons."""

    rows: NDArray[np.intp]
    weights: NDArray[np.float32]
    owners: NDArray[np.intp]


class PersonBatches(SingleOwner):
    """Which rows belong to which person.

    Rows are chosen and weighed by ``UnitShares``: a person keeps at most ``ids.most`` rows, by that person's own rows
    alone, and their weights add up to 1 at most (docs/proofs/unit-weights.md). So a weighted sum of a person's clipped
    gradients is no longer than the clip (docs/proofs/sgd-torch.md, Persons).

    >>> people = PersonBatches(PersonIds.read(np.array([7, 8, 7])), None, b"secret")
    >>> len(people), sorted(people.take_persons(np.arange(2)).weights.tolist())
    (2, [0.5, 0.5, 1.0])
    """

    _owned_noun: ClassVar[str] = "table of private persons"

    def __init__(self, ids: PersonIds, names: Names | None, secret: bytes) -> None:
        """Sort rows by person. ``names`` are hashes of the rows' contents under a secret, needed if rows are chosen."""
        super().__init__()
        words, known = exact_words(ids.column, secret)
        content = np.zeros(len(known), np.uint64) if names is None else np.frombuffer(names.tobytes(), np.uint64)[::2]
        rows = RowsOfUnits(words, known, content)
        shares = UnitShares([rows], most=MOST_ROWS_PER_UNIT if ids.most is None else ids.most, secret=secret)
        weights = shares.start_pass().next_weights(rows)
        places = np.flatnonzero(weights)
        words = [word[places] for word in words]
        order = np.lexsort((places, *words))
        starts = run_starts(*(word[order] for word in words))
        self._rows, self._weights = places[order], weights[places[order]]
        self._starts = np.flatnonzero(starts)
        self._counts = np.diff(np.append(self._starts, len(order)))
        # What names a person: its words in halves, which floats hold exactly.
        halves = [widen_words(word[order][starts]) for word in words]
        shift, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        self.names = [part.astype(np.float64) for word in halves for part in (word >> shift, word & low)]
        """Numbers that tell persons apart, one array per number."""

    def __len__(self) -> int:
        return len(self._starts)

    def take_persons(self, persons: NDArray[np.intp]) -> PersonRowsTaken:
        """Return the rows of some persons, in their order."""
        counts = self._counts[persons]
        owners = np.repeat(np.arange(len(persons)), counts)
        before = np.cumsum(counts) - counts
        taken = np.repeat(self._starts[persons] - before, counts) + np.arange(len(owners))
        return PersonRowsTaken(self._rows[taken], self._weights[taken], owners)

    def sum_shares(self, persons: NDArray[np.intp], right: NDArray[np.bool_], span: int) -> int:
        """Return the sum over persons of floor(span * share of right rows); ``right`` is in the order of the rows taken.

        >>> people = PersonBatches(PersonIds.read(np.array([7, 8, 7])), None, b"secret")
        >>> people.sum_shares(np.arange(2), np.array([True, True, False]), 100) in (100, 150)
        True
        """
        counts = self._counts[persons]
        owners = np.repeat(np.arange(len(persons)), counts)
        found = np.bincount(owners, weights=right, minlength=len(persons)).astype(np.int64)
        return int((span * found // np.maximum(counts, 1)).sum())

    def __repr__(self) -> str:
        return "<persons of a private table>"
