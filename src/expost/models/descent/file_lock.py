"""A file that one run at a time works with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expost.core import InvalidRequest

if sys.platform != "win32":
    import fcntl

__all__ = ["alone_with"]


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Be the only run with this file, or refuse; the lock goes with the process, however that ends.

    It saves two runs from working for nothing. What keeps the second from releasing anything is the ledger.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, alone_with(Path(folder, "run.npz")):
    ...     with alone_with(Path(folder, "run.npz")):
    ...         pass
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a checkpoint that no other run works with, got ...
    """
    lock, process = path.with_name(path.name + ".lock"), os.getpid()
    handle = _taken(lock, path)
    try:
        yield
    finally:
        if process == os.getpid():  # a fork leaves this block too, and must not lift the lock of its parent
            lock.unlink(missing_ok=True)
        os.close(handle)


def _taken(lock: Path, path: Path) -> int:
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            raise InvalidRequest(
                "Expected a checkpoint in a folder that can be written", got=str(path), do="Make the folder first"
            ) from None
        try:
            _lock(handle)
            if _is_still(handle, lock):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise InvalidRequest(
                "Expected a checkpoint that no other run works with", got=str(path), do="Wait for it, or use another"
            ) from None
        os.close(handle)  # whoever had it removed the file meanwhile


def _lock(handle: int) -> None:
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            return  # a disk without locks: the ledger still lets only one run settle


def _is_still(handle: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(lock))
    except FileNotFoundError:
        return False
