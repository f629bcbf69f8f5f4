"""The rows of a training as integers of a profile's grid: kept in memory if they are few, else encoded in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.core import SingleOwner
from expost.models.descent.feature_grid import GridRows
from expost.models.tabular.table_model import fit_grid
from expost.models.tabular.table_profile import ChangedBlocks, RowBlocks, TableProfile, is_far, sum_blocks
from expost.models.tabular.tabular_rows import ChunkSum, RowChunk

__all__ = ["MEMORY_LIMIT", "GridBlock", "GridTable"]

T = TypeVar("T")
Floats = NDArray[np.float64]
GridBlock = tuple[GridRows, NDArray[Any], Floats]
"""Rows on the grid, their targets (class indices, or numbers in units of the target's spread) and their weights."""

MEMORY_LIMIT = 1 << 28
"""Bytes of encoded rows that are kept in memory. Larger tables are read and encoded again in every pass."""
_BYTES = np.dtype(np.int16).itemsize


class GridTable(SingleOwner):
    """Private rows on the grid of a profile. Every iteration yields all of them, in any order and any blocks.

    The first complete iteration keeps the blocks if they have at most ``memory_limit`` bytes together. Otherwise none is
    kept, and every iteration reads the source again: encoded rows are never written to a disk. The sums that are computed from rows
    are exact integers, so that both ways give the same results. A source that changes between two iterations changes
    results, not the guarantee: each release has the sensitivity of the rows that it read.

    Parameters
    ----------
    blocks : callable
        Reads all rows.
    profile : TableProfile
        How features and targets are scaled.
    classes : int or None
        The number of classes; None for a numeric target.
    memory_limit : int, optional
        Bytes of encoded rows that may be kept. Default: ``MEMORY_LIMIT``.
    """

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(
        self, blocks: RowBlocks, profile: TableProfile, *, classes: int | None, memory_limit: int | None = None
    ) -> None:
        super().__init__()
        self._blocks, self._profile, self._classes = blocks, profile, classes
        self._limit = MEMORY_LIMIT if memory_limit is None else memory_limit
        if profile.rows * fit_grid(profile).columns * _BYTES > self._limit:
            self._limit = -1  # so many, by the released count, that collecting them would be in vain
        self._kept: list[GridBlock] | None = None

    def __iter__(self) -> Iterator[GridBlock]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[GridBlock] = []
        size = 0
        for block in self._encode():
            rows, targets, weights = block
            size += rows.nbytes + targets.nbytes + weights.nbytes
            if size <= self._limit:
                kept.append(block)
            else:
                # Part of a table is of no use: the next pass may read its rows in another order.
                kept.clear()
            yield block
        if size <= self._limit:
            self._kept = kept
        else:
            self._limit = -1

    def _encode(self) -> Iterator[GridBlock]:
        """Yield the rows as integers of the profile's grid."""
        return map(_GridWriter(self._profile, self._classes), self._blocks())

    def sum(self, function: ChunkSum[T]) -> T:
        """Return the sum that a function makes of all blocks: where the rows lie, if they are not read here."""
        if is_far(self._blocks):
            return sum_blocks(ChangedBlocks(self._blocks, _GridWriter(self._profile, self._classes)), function)
        return function(self)

    def __repr__(self) -> str:
        return "<rows of a private table>"


@dataclass(frozen=True)
class _GridWriter:
    """Writes rows as integers of a profile's grid."""

    profile: TableProfile
    classes: int | None

    def __call__(self, rows: RowChunk) -> GridBlock:
        features, targets, weights = rows
        profile = self.profile
        if self.classes is None:
            targets = (targets - profile.target_middle) / profile.target_spread
        return fit_grid(profile).encode_rows(features, profile.scale), targets, np.asarray(weights, np.float64)
