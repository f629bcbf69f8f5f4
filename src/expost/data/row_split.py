"""A table in two disjoint parts, dealt by what stands in its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from expost.core import InvalidRequest, TableChanged
from expost.data.matrix import RowSource
from expost.data.row_identity import RowCensus, RowIdentity, RowPass

__all__ = ["KeyedRows", "split_rows"]


@dataclass(frozen=True, repr=False)
class KeyedRows(RowSource):
    """Rows that have coins of their own, under a secret key; features and targets are numbers.

    >>> from expost.data.matrix import read_rows
    >>> KeyedRows.of(read_rows(np.ones((3, 2)), np.zeros(3)), bytes(32))
    RowSource(3 rows of 2 features)
    """

    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, source: RowSource, key: bytes) -> KeyedRows:
        """The same rows under a key."""
        return cls(source.rows, source.width, source.names, source.read, source.fixed, key)


class _Deal:
    """One key for all readings of a table, and the census of its first one."""

    def __init__(self, source: KeyedRows) -> None:
        self._source, self._identity = source, RowIdentity(source.key)
        self._census: RowCensus | None = None

    def coins(self) -> Iterator[tuple[Any, Any, np.ndarray[Any, np.dtype[np.uint64]]]]:
        """All rows with their coins; refused at the end if they are not the rows of the first reading."""
        census = self._counted()
        reading: RowPass = census.another(self._identity)
        for features, target in self._source.read():
            yield features, target, reading.coins(self._identity.names([features, target]))
        if reading.mark != census.mark:
            raise TableChanged()

    def _counted(self) -> RowCensus:
        if self._census is None:
            census = RowCensus()
            for features, target in self._source.read():
                census.add(self._identity.names([features, target]))
            self._census = census.done()
        return self._census


def split_rows(source: KeyedRows, every: int) -> tuple[RowSource, RowSource]:
    """Two disjoint parts of a table: each row is in the second one with probability 1 / ``every``, by its own keyed coin.

    A row stays in its part in every reading, whatever order the rows come in. One reading more is needed to count equal rows, and
    a table that changes between readings is refused. How many rows a part has is private: its ``rows`` are those of the whole
    table, the most that it can have (docs/proofs/row-identity.md).

    >>> from expost.data.matrix import read_rows
    >>> whole = read_rows(np.arange(10.0)[:, None], np.zeros(10))
    >>> parts = split_rows(KeyedRows.of(whole, bytes(32)), 5)
    >>> sum(len(target) for part in parts for _, target in part.read())
    10
    """
    if not 2 <= every <= source.rows:
        raise InvalidRequest("Expected a split that leaves rows on both sides", got=every, do="Take a larger table")
    deal, border = _Deal(source), np.uint64((1 << 64) // every)

    def part(second: bool) -> Callable[[], Iterator[tuple[Any, Any]]]:
        def read() -> Iterator[tuple[Any, Any]]:
            for features, target, coins in deal.coins():
                chosen = (coins < border) == second
                yield features[chosen], target[chosen]

        return read

    first, second = (RowSource(source.rows, source.width, source.names, part(side), True) for side in (False, True))
    return first, second
