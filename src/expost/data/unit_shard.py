"""Bring each unit's rows together: shards by unit, in memory or, beyond a limit, in temporary files."""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.data.bounding import Atoms
from expost.data.unit_identity import mix_words

__all__ = ["MEMORY_LIMIT", "SortedRows", "Shards", "show_progress"]

MEMORY_LIMIT = 1_500_000_000
"""Bytes of rows held in memory before they are written to temporary files."""

_BITS = 7  # 128 shards: 10^8 rows make shards of 10^6, which sort within the processor's cache
_SMALL = 1 << 18  # below this number of rows one shard is fastest
_PATIENCE = 2.0  # seconds before a spinner is shown


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows in the order of their shards, and where each shard ends."""

    atoms: Atoms
    ends: NDArray[np.intp]

    def shard(self, number: int) -> Atoms:
        return self.atoms.take(slice(int(self.ends[number - 1]) if number else 0, int(self.ends[number])))


class Shards:
    """Collects rows in any order and returns them so that each unit's rows come together.

    >>> with Shards(key=1) as shards:
    ...     shards.add(Atoms([np.array([7, 8, 7], np.uint64)], np.arange(3), np.zeros((0, 3), np.int64)))
    ...     [len(each) for each in shards]
    [3]
    """

    def __init__(self, *, key: int, memory_limit: int = MEMORY_LIMIT) -> None:
        self._key, self._limit = key, memory_limit
        self._small: list[Atoms] | None = []  # None once there are too many rows for one shard
        self._runs: list[SortedRows] = []
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(self, atoms: Atoms) -> None:
        """Add some rows."""
        self.store(self.prepare(atoms))

    def prepare(self, atoms: Atoms) -> Atoms | SortedRows:
        """Sort rows by shard, unless the table is small so far. Threads may prepare rows while others are stored."""
        return atoms if self._small is not None else self._sort_by_shard(atoms)

    def store(self, part: Atoms | SortedRows) -> None:
        """Add prepared rows."""
        if self._small is not None and isinstance(part, Atoms):
            self._small.append(part)
            if sum(map(len, self._small)) <= _SMALL:
                return
            part, self._small = Atoms.join(self._small), None
        run = part if isinstance(part, SortedRows) else self._sort_by_shard(part)
        self._runs.append(run)
        self._bytes += sum(array.nbytes for array in (*run.atoms.words, run.atoms.cell, run.atoms.steps))
        if self._bytes > self._limit:
            self._spill_runs()

    def _sort_by_shard(self, atoms: Atoms) -> SortedRows:
        shard = (mix_words(atoms.words[0], self._key) >> np.uint64(64 - _BITS)).astype(np.uint8)
        ends = np.cumsum(np.bincount(shard, minlength=1 << _BITS))
        return SortedRows(atoms.take(np.argsort(shard, kind="stable")), ends)

    def _spill_runs(self) -> None:
        """Append what is in memory to one file per shard."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="expost-")
        for number in range(1 << _BITS):
            atoms = Atoms.join([run.shard(number) for run in self._runs])
            with (Path(self._folder.name) / str(number)).open("ab") as file:
                for part in (np.array([len(atoms.words)]), *atoms.words, atoms.cell, atoms.steps):
                    np.lib.format.write_array(file, np.ascontiguousarray(part), allow_pickle=False)
        self._runs.clear()
        self._bytes = 0

    @property
    def threads(self) -> int | None:
        """Number of threads worth starting: one if all rows are in one shard, else None (the default)."""
        return None if self._small is None else 1

    def __iter__(self) -> Iterator[Atoms]:
        """Iterate over the shards that have rows."""
        if self._small is not None:
            if self._small:
                yield Atoms.join(self._small)
            return
        for number in range(1 << _BITS):
            parts = [run.shard(number) for run in self._runs]
            if self._folder is not None:
                parts += _read_spilled(Path(self._folder.name) / str(number))
            shard = Atoms.join(parts)
            if len(shard):
                yield shard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _read_spilled(path: Path) -> list[Atoms]:
    """Read the spilled rows of one shard and delete the file."""
    parts: list[Atoms] = []
    size = path.stat().st_size
    with path.open("rb") as file:

        def read_array() -> NDArray[Any]:
            return np.lib.format.read_array(file, allow_pickle=False)

        while file.tell() < size:
            words = [read_array() for _ in range(int(read_array()[0]))]
            parts.append(Atoms(words, read_array(), read_array()))
    path.unlink()
    return parts


@contextmanager
def show_progress(*, patience: float = _PATIENCE) -> Iterator[Callable[[], None]]:
    """Yield a function to call after every step; on a terminal it shows a spinner and the time once this takes long.

    No count and no fraction is shown, because the number of rows may be private. Ctrl-C stops the scan; the cost held
    by the ledger for it stays charged.
    """
    started, quiet = time.monotonic(), not sys.stderr.isatty()
    with ExitStack() as stack:

        def tick() -> None:
            nonlocal quiet
            if quiet or time.monotonic() - started <= patience:
                return
            rich: Any = importlib.import_module("rich.progress")
            console: Any = importlib.import_module("rich.console").Console(stderr=True)
            columns = rich.SpinnerColumn(), rich.TextColumn("{task.description}"), rich.TimeElapsedColumn()
            bar = stack.enter_context(rich.Progress(*columns, console=console, transient=True))
            bar.add_task("reading rows", total=None)
            quiet = True

        yield tick
