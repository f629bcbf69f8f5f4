"""Rows sorted into shards by unit, in memory or, beyond a limit, in temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data.atoms import Atoms
from expost.data.engines import Engine
from expost.data.identity import mix
from expost.data.progress import with_progress

__all__ = ["MEMORY_LIMIT", "Shards"]

MEMORY_LIMIT = 1_500_000_000
"""Bytes of rows held in memory before they are written to temporary files."""

_BITS = 7  # 128 shards: 10^8 rows make shards of 10^6, which sort within the cache's reach
_SMALL = 1 << 18  # rows that are not worth sorting into shards


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows in the order of their shards, and where each shard's end."""

    atoms: Atoms
    ends: NDArray[np.intp]

    def shard(self, number: int) -> Atoms:
        return self.atoms.part(int(self.ends[number - 1]) if number else 0, int(self.ends[number]))


class Shards:
    """Takes atoms in any order and gives them back so that each unit's rows come together.

    >>> with Shards(key=1) as shards:
    ...     shards.add(Atoms([np.array([7, 8, 7], np.uint64)], np.arange(3), np.zeros((0, 3), np.int64)))
    ...     [len(each) for each in shards]
    [3]
    """

    def __init__(self, *, key: int, memory_limit: int = MEMORY_LIMIT) -> None:
        self._key, self._limit = key, memory_limit
        self._small: list[Atoms] | None = []  # None once there are too many rows for one shard
        self._runs: list[_Run] = []
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def collect(self, engine: Engine, read: Callable[[pa.RecordBatch], Atoms], columns: Sequence[str]) -> Self:
        """Take what ``read`` finds in every batch; reading and sorting run in the engine's threads."""
        for part in with_progress(engine.map(lambda batch: self._prepared(read(batch)), columns)):
            self._take(part)
        return self

    def add(self, atoms: Atoms) -> None:
        """Take some rows."""
        self._take(self._prepared(atoms))

    def _prepared(self, atoms: Atoms) -> Atoms | _Run:
        """The rows in narrow integers, sorted by shard unless the table has been small so far."""
        narrow = _compact(atoms)
        return narrow if self._small is not None else self._sorted(narrow)

    def _take(self, part: Atoms | _Run) -> None:
        if self._small is not None and isinstance(part, Atoms):
            self._small.append(part)
            if sum(map(len, self._small)) <= _SMALL:
                return
            part, self._small = Atoms.joined(self._small), None
        run = part if isinstance(part, _Run) else self._sorted(part)
        self._runs.append(run)
        self._bytes += _bytes(run.atoms)
        if self._bytes > self._limit:
            self._spill()

    def _sorted(self, atoms: Atoms) -> _Run:
        shard = (mix(atoms.words[0], self._key) >> np.uint64(64 - _BITS)).astype(np.uint8)
        ends = np.cumsum(np.bincount(shard, minlength=1 << _BITS))
        return _Run(atoms.take(np.argsort(shard, kind="stable")), ends)

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="expost-")
        for number in range(1 << _BITS):
            _append(Path(self._folder.name) / str(number), Atoms.joined([run.shard(number) for run in self._runs]))
        self._runs.clear()
        self._bytes = 0

    @property
    def threads(self) -> int | None:
        """How many threads are worth starting: one where all rows are in one shard, else the usual number."""
        return None if self._small is None else 1

    def __iter__(self) -> Iterator[Atoms]:
        """Each shard once."""
        if self._small is not None:
            if self._small:
                yield Atoms.joined(self._small)
            return
        for number in range(1 << _BITS):
            parts = [run.shard(number) for run in self._runs]
            if self._folder is not None:
                parts += _read(Path(self._folder.name) / str(number))
            joined = Atoms.joined(parts)
            if len(joined):
                yield joined

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _compact(atoms: Atoms) -> Atoms:
    """The same atoms in narrower integers: steps stay below 2^32 by construction."""
    return Atoms(atoms.words, atoms.cell, atoms.steps.astype(np.uint32))


def _bytes(atoms: Atoms) -> int:
    return sum(word.nbytes for word in atoms.words) + atoms.cell.nbytes + atoms.steps.nbytes


def _append(path: Path, atoms: Atoms) -> None:
    with path.open("ab") as file:
        for part in (np.array([len(atoms.words)]), *atoms.words, atoms.cell, atoms.steps):
            np.lib.format.write_array(file, np.ascontiguousarray(part), allow_pickle=False)


def _read(path: Path) -> Iterable[Atoms]:
    parts: list[Atoms] = []
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            words = [_array(file) for _ in range(int(_array(file)[0]))]
            parts.append(Atoms(words, _array(file), _array(file)))
    path.unlink()
    return parts


def _array(file: Any) -> NDArray[Any]:
    return np.lib.format.read_array(file, allow_pickle=False)
