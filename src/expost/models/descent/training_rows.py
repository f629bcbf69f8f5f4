"""The encoded rows of a training: kept in memory, or read and encoded again in every pass, where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.data.person_rows import PersonRows
from expost.data.row_source import RowSource
from expost.models.descent.feature_grid import FeatureGrid, GridRows, Index

__all__ = ["GatheredRows", "RowBlock", "StreamedRows", "TargetCode", "TrainingRows"]

T = TypeVar("T")
RowBlock = tuple[GridRows, NDArray[Any], NDArray[np.float64] | None]
"""Encoded rows, their targets, and the weights of persons' rows; None where a row is a unit."""
TargetCode = Callable[[Any], NDArray[Any]]
"""A pure function that makes numbers or codes of stored targets; it can be pickled."""


@dataclass(frozen=True, repr=False, eq=False)
class GatheredRows:
    """Encoded rows in the memory of this process, of which a step may take some. SECRET."""

    rows: GridRows
    targets: NDArray[Any]
    shares: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def read(cls, source: RowSource, grid: FeatureGrid, code: TargetCode, secret: bytes) -> GatheredRows:
        """Read all rows once. They are encoded as they come, in two bytes a value."""
        blocks = list(_EncodedChunks(grid, code, _take_all)(_read_chunks(source, secret)))
        weighted = isinstance(source, PersonRows)
        if not blocks:
            empty = grid.encode_rows(np.zeros((0, grid.width)))
            return cls(empty, code(np.zeros(0, np.intp)), np.zeros(0) if weighted else None)
        shares = [block[2] for block in blocks if block[2] is not None]
        return cls(
            GridRows.join([block[0] for block in blocks]),
            np.concatenate([block[1] for block in blocks]),
            np.concatenate(shares) if weighted else None,
        )

    def sum(self, function: Callable[[Iterable[RowBlock]], T]) -> T:
        """Return what a function makes of the rows, as one block."""
        return function([(self.rows, self.targets, self.shares)])

    def take_rows(self, index: Index) -> GatheredRows:
        """Return some rows as rows of their own; all of them for a slice."""
        if isinstance(index, slice):
            return self
        assert self.shares is None  # a part of persons' rows could have parts of persons
        return GatheredRows(self.rows.subset(index), self.targets[index])

    def __repr__(self) -> str:
        return "<rows of a private table>"


@dataclass(frozen=True, repr=False, eq=False)
class StreamedRows:
    """Rows that are read and encoded again in every pass: on executors, or in threads that read a file. SECRET.

    All rows are in every step. Sums are exact integers, so they are those of ``GatheredRows``, bit for bit. A source that
    changes between two passes changes results, not the guarantee: each release has the sensitivity of what it read.
    """

    source: RowSource
    grid: FeatureGrid
    code: TargetCode
    secret: bytes = field(repr=False)

    def sum(self, function: Callable[[Iterable[RowBlock]], NDArray[Any]]) -> NDArray[Any]:
        """Return the exact sum that a function makes of the rows, in parts that are added. It can be pickled."""
        encoded = _EncodedChunks(self.grid, self.code, function)
        if self.source.reduce is None:
            return encoded(_read_chunks(self.source, self.secret))
        # A part of few rows is summed in 32 bits, which several parts together would exceed.
        return self.source.reduce(encoded, partial(np.add, dtype=np.int64), self.secret)

    def __repr__(self) -> str:
        return "<rows of a private table>"


TrainingRows = GatheredRows | StreamedRows


@dataclass(frozen=True)
class _EncodedChunks(Generic[T]):
    """A function of encoded rows as a function of the chunks that they are read in."""

    grid: FeatureGrid
    code: TargetCode
    function: Callable[[Iterable[RowBlock]], T]

    def __call__(self, chunks: Iterable[tuple[Any, Any, Any]]) -> T:
        return self.function(
            (self.grid.encode_rows(features), self.code(targets), weights) for features, targets, weights in chunks
        )


def _take_all(blocks: Iterable[RowBlock]) -> Iterable[RowBlock]:
    return blocks


def _read_chunks(source: RowSource, secret: bytes) -> Iterator[tuple[Any, Any, Any]]:
    """Read all rows here; which rows a person keeps is decided by the secret."""
    if isinstance(source, PersonRows):
        return source.read_weighted(secret)
    return ((features, targets, None) for features, targets in source.read())
