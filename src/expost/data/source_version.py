"""Notice that a source was changed since it was opened, without reading all of its rows.

A version is compared inside one process only: it is neither stored nor shown, because samples of the content are part of it.
Equal versions do not prove equal rows. A large array of which only cells between the sampled blocks changed is not noticed,
and neither is a file that keeps its size, its time of change, its inode and the sampled blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data.source_identity import sample_file

__all__ = ["MemoryWatch", "Version", "file_version", "is_same_version"]

Version = tuple[str | None, ...]
"""One text per part of a source, None where nothing is known."""

_MOST_SAMPLED = 64  # files of which the content is sampled
_WHOLE = 1 << 23  # bytes of a source in memory that are read whole, in about two milliseconds
_BLOCKS, _BLOCK = 64, 4096  # sampled blocks of each array of a larger source
_WORDS = 512
_MOST_OBJECTS = 1 << 14  # entries of a list that are looked at


def is_same_version(opened: Version, now: Version) -> bool:
    """Return whether no part of a source is known to differ.

    >>> is_same_version(("a", None), ("a", "b")), is_same_version(("a",), ("b",))
    (True, False)
    """
    return all(ours is None or theirs is None or ours == theirs for ours, theirs in zip(opened, now, strict=False))


def file_version(paths: Sequence[Any]) -> Version:
    """Return the version of files: size, time of change and inode of each, and a few blocks of the first ones.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows")
    ...     _ = path.write_text("a")
    ...     before = file_version([path])
    ...     _ = path.write_text("ab")
    ...     is_same_version(before, file_version([path]))
    False
    """
    mark = hashlib.sha256()
    for place, path in enumerate(paths):
        try:
            found = os.stat(path)
            facts: tuple[object, ...] = (str(path), found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)
            sample = sample_file(path) if place < _MOST_SAMPLED else b""
        except OSError:
            facts, sample = (str(path), "missing"), b""
        mark.update(repr((facts, sample)).encode("utf-8", "surrogatepass"))
    return (mark.hexdigest(),)


class MemoryWatch:
    """Watches the frame, table or lists that a caller passed and can still write to.

    It does not keep a pandas frame alive. A frame that the caller dropped is not watched any more, and neither is a
    source in another process.
    """

    def __init__(self, source: Any) -> None:
        self._read = _find_memory(source)

    def version(self) -> Version:
        """Return the version of the memory; it is unknown if nothing is watched."""
        arrays = self._read()
        if arrays is None:
            return (None,)
        whole = sum(array.nbytes for array in arrays) <= _WHOLE
        mark = hashlib.sha256()
        for array in arrays:
            mark.update(f"{array.nbytes};".encode())
            for part in _digest_whole(array) if whole else _sample_blocks(array):
                mark.update(part.tobytes())
        return (mark.hexdigest(),)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryWatch, (None,)


def _find_memory(source: Any) -> Callable[[], list[NDArray[np.uint8]] | None]:
    """Return a function that returns the memory of a source as arrays of bytes, None if it is not watched."""
    if isinstance(source, pa.Table):
        return lambda: list(map(_view_bytes, _find_buffers(source)))
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        frame, columns = weakref.ref(source), list(source.columns)

        def read_frame() -> list[NDArray[np.uint8]] | None:
            found = frame()
            return None if found is None else list(map(_view_bytes, _frame_arrays(found, columns)))

        return read_frame
    if isinstance(source, Mapping):
        return lambda: [_view_bytes(array) for name, values in source.items() for array in (repr(name), values)]
    if isinstance(source, list | tuple):
        return lambda: list(map(_view_bytes, (source, *(_row_cells(row) for row in _some(source)))))
    return lambda: None


def _frame_arrays(frame: Any, columns: list[Any]) -> Iterator[Any]:
    """Yield the columns that a pandas frame had when it was opened; new ones do not count."""
    places = [place for place, name in enumerate(frame.columns) if name in columns]
    yield repr([frame.columns[place] for place in places])
    for place in places:
        yield frame.iloc[:, place]


def _row_cells(row: Any) -> Any:
    return list(row.values()) if isinstance(row, Mapping) else row


def _some(values: Sequence[Any]) -> Sequence[Any]:
    """Return some entries of a list, all of a short one."""
    return values[:: 1 + len(values) // _MOST_OBJECTS]


def _find_buffers(table: pa.Table) -> list[pa.Buffer]:
    """Return the buffers of a table that somebody may be able to write to."""
    found: dict[int, pa.Buffer] = {}
    for column in table.columns:
        for chunk in column.chunks:
            parts = (chunk, chunk.dictionary) if isinstance(chunk, pa.DictionaryArray) else (chunk,)
            for buffer in (buffer for part in parts for buffer in part.buffers()):
                if buffer is not None and buffer.is_mutable:
                    found[buffer.address] = buffer
    return list(found.values())


def _view_bytes(values: Any) -> NDArray[np.uint8]:
    """Return the memory of values as bytes. Of Python objects these are the addresses."""
    if isinstance(values, str):
        return np.frombuffer(values.encode("utf-8", "surrogatepass"), np.uint8)
    if isinstance(values, pa.Buffer):
        return np.frombuffer(values, np.uint8)
    if isinstance(values, list | tuple):
        return np.fromiter(map(id, _some(values)), np.int64).view(np.uint8)
    if hasattr(values, "iloc") and isinstance(values.dtype, np.dtype):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and not values.dtype.hasobject:
        return np.ascontiguousarray(values).view(np.uint8).ravel()
    if isinstance(values, np.ndarray):
        objects = values.ravel()
        return _view_bytes(objects[:: 1 + objects.size // _MOST_OBJECTS].tolist())
    with contextlib.suppress(Exception):  # another library's message may repeat a cell
        table = pa.table({"column": values if isinstance(values, pa.ChunkedArray) else pa.array(values)})
        return np.concatenate([np.zeros(0, np.uint8), *map(_view_bytes, _find_buffers(table))])
    return np.zeros(0, np.uint8)


def _digest_whole(array: NDArray[np.uint8]) -> Iterator[Any]:
    """Yield sums of the words of an array along its rows and its columns, if it is cut into rows of 4 KiB."""
    words = np.zeros(-(-array.nbytes // (8 * _WORDS)) * _WORDS, np.uint64)
    words.view(np.uint8)[: array.nbytes] = array
    table = words.reshape(-1, _WORDS)
    yield table.sum(axis=0)
    yield table.sum(axis=1)


def _sample_blocks(array: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Yield blocks of an array, the first and the last among them."""
    last = max(array.nbytes - _BLOCK, 0)
    for start in sorted({last * block // (_BLOCKS - 1) for block in range(_BLOCKS)}):
        yield array[start : start + _BLOCK]
