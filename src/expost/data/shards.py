"""Rows sorted into shards by unit, in memory or, beyond a limit, in temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.data.atoms import Atoms
from expost.data.identity import mix

__all__ = ["MEMORY_LIMIT", "Shards"]

MEMORY_LIMIT = 1_200_000_000
"""Bytes of rows held in memory before they are written to temporary files."""

_BITS = 7  # 128 shards: 10^8 rows make shards of 10^6, which sort within the cache's reach
_SMALL = 1 << 18  # rows that are not worth sorting into shards


class Shards:
    """Takes atoms in any order and gives them back so that each unit's rows come together.

    >>> with Shards(key=1) as shards:
    ...     shards.add(Atoms([np.array([7, 8, 7], np.uint64)], np.arange(3), np.zeros((0, 3), np.int64)))
    ...     [len(each) for each in shards]
    [3]
    """

    def __init__(self, *, key: int, memory_limit: int = MEMORY_LIMIT) -> None:
        self._key, self._limit = key, memory_limit
        self._small: list[Atoms] = []
        self._small_rows = 0
        self._shards: list[list[Atoms]] | None = None
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(self, atoms: Atoms) -> None:
        """Put rows into their shards."""
        if not len(atoms):
            return
        if self._shards is None:
            self._small.append(atoms)
            self._small_rows += len(atoms)
            if self._small_rows <= _SMALL:
                return
            self._shards = [[] for _ in range(1 << _BITS)]
            atoms, self._small = Atoms.joined(self._small), []
        self._scatter(compact(atoms))
        if self._bytes > self._limit:
            self._spill()

    def _scatter(self, atoms: Atoms) -> None:
        assert self._shards is not None
        shard = (mix(atoms.words[0], self._key) >> np.uint64(64 - _BITS)).astype(np.uint8)
        ordered = atoms.take(np.argsort(shard, kind="stable"))
        ends = np.cumsum(np.bincount(shard, minlength=1 << _BITS))
        for number, (start, end) in enumerate(zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)):
            if end > start:
                self._shards[number].append(ordered.part(start, end))
        self._bytes += _bytes(ordered)

    def _spill(self) -> None:
        assert self._shards is not None
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="expost-")
        for number, parts in enumerate(self._shards):
            if parts:
                _append(Path(self._folder.name) / str(number), Atoms.joined(parts))
                parts.clear()
        self._bytes = 0

    def __iter__(self) -> Iterator[Atoms]:
        """Each shard once; a shard leaves memory as the next one is asked for."""
        if self._shards is None:
            if self._small:
                yield Atoms.joined(self._small)
            return
        for number, parts in enumerate(self._shards):
            if self._folder is not None:
                parts += _read(Path(self._folder.name) / str(number))
            if parts:
                yield Atoms.joined(parts)
            parts.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def compact(atoms: Atoms) -> Atoms:
    """The same atoms in narrower integers: steps and cells stay below 2^32 by construction."""
    return Atoms(atoms.words, atoms.cell.astype(np.uint32), atoms.steps.astype(np.uint32))


def _bytes(atoms: Atoms) -> int:
    return sum(word.nbytes for word in atoms.words) + atoms.cell.nbytes + atoms.steps.nbytes


def _append(path: Path, atoms: Atoms) -> None:
    with path.open("ab") as file:
        header = np.array([len(atoms), len(atoms.words), len(atoms.steps)], np.int64)
        for part in (header, *atoms.words, atoms.cell, *atoms.steps):
            np.ascontiguousarray(part).tofile(file)


def _read(path: Path) -> list[Atoms]:
    parts: list[Atoms] = []
    if not path.exists():
        return parts
    with path.open("rb") as file:
        while (header := np.fromfile(file, np.int64, 3)).size:
            rows, words, columns = header.tolist()
            names = [np.fromfile(file, np.uint64, rows) for _ in range(words)]
            cell = np.fromfile(file, np.uint32, rows)
            steps: NDArray[Any] = np.fromfile(file, np.uint32, rows * columns).reshape(columns, rows)
            parts.append(Atoms(names, cell, steps))
    path.unlink()
    return parts
