"""Keys that nobody has listed: the values of a column that occur, and where each row's key stands among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.engines import Engine
from expost.data.evaluate import cells, evaluate
from expost.data.expression import Expression
from expost.data.identity import content_words, exact_words, unit_words, widened
from expost.data.places import missing_cells
from expost.data.tally import Tally
from expost.data.values import Truths

__all__ = ["FoundKeys", "found_keys"]

_FEW = 1 << 16  # keys that Arrow looks up faster than words are searched


@dataclass(frozen=True, eq=False, repr=False)
class FoundKeys:
    """An axis of the keys that occur, in order. SECRET: keys may leave only after thresholding.

    The keys stay in Arrow, and their number is not limited: a refusal would reveal how many there are.

    >>> from expost.data.expression import col
    >>> axis = FoundKeys(col("city"), pa.array(["Oslo", "Rome"], pa.large_string()))
    >>> axis.codes(pa.record_batch({"city": ["Rome", None, "Oslo"]}), {}).tolist()
    [1, -1, 0]
    """

    expression: Expression
    column: pa.Array
    key: bytes = b""  # secret, for the hashes by which texts are found

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.column)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The keys as Python values."""
        return tuple(self.column.to_pylist())

    def words(self, key: bytes) -> NDArray[np.uint64]:
        """One word per key, a function of the key's own content."""
        return content_words(self.column, key)

    def codes(self, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> NDArray[np.integer[Any]]:
        """The place of each row's key, or -1."""
        column = _key_column(self.expression, batch, derived)
        if self._sorted is not None:
            return self._searched(column)
        found = pc.index_in(column, value_set=self.column, skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)

    @cached_property
    def _sorted(self) -> tuple[list[NDArray[np.uint64]], NDArray[np.intp]] | None:
        """The words of many keys in order, and the place of each: Arrow would read all keys anew for every batch.

        None for few keys, and where two keys share a first word, so that hashes never decide which of two keys it is.
        """
        if self.size <= _FEW:
            return None
        words = [widened(word) for word in exact_words(self.column, self.key)[0]]
        order = np.argsort(words[0])
        ordered = [word[order] for word in words]
        return None if (ordered[0][1:] == ordered[0][:-1]).any() else (ordered, order)

    def _searched(self, column: pa.Array) -> NDArray[np.int64]:
        assert self._sorted is not None
        words, present = exact_words(column, self.key)
        ordered, order = self._sorted
        near = np.minimum(np.searchsorted(ordered[0], widened(words[0])), self.size - 1)
        for mine, theirs in zip(words, ordered, strict=True):
            present = present & (widened(mine) == theirs[near])
        return np.where(present, order[near], -1)


def found_keys(engine: Engine, tally: Tally, expression: Expression) -> FoundKeys:
    """The different keys among the rows that count, in order; secret."""
    parts = list(engine.map(lambda batch: _keys(tally, expression, batch), tally.columns))
    if not parts:
        return FoundKeys(expression, pa.array([], pa.large_string()))
    column = pc.unique(pa.chunked_array(parts))
    return FoundKeys(expression, column.take(pc.sort_indices(column)), tally.key)


def _keys(tally: Tally, expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    """The different keys of a batch. Rows that the filter drops or that belong to no unit open no group."""
    kept = np.ones(batch.num_rows, bool)
    if tally.where is not None:
        condition = evaluate(tally.where, batch, tally.derived)
        kept &= condition.certain if isinstance(condition, Truths) else False
    if not tally.unit.is_row:
        kept &= unit_words(tally.unit, batch, tally.derived, b"")[1]
    column = _key_column(expression, batch, tally.derived)
    kept &= ~missing_cells(column)
    return pc.unique(column.filter(pa.array(kept)))


def _key_column(expression: Expression, batch: pa.RecordBatch, derived: Mapping[str, Expression]) -> pa.Array:
    """The key of each row as a canonical column, whose type depends on the expression alone.

    Times come in microseconds, because a key leaves as a Python value.
    """
    column = cells(expression, batch, derived)
    return evaluate(expression, batch, derived).column() if pa.types.is_temporal(column.type) else column
