"""A queue of processes in front of a ledger file: first come, first served.

SQLite lets whoever polls at the right moment write, so that some wait long while others come again and again. Here each
writer takes a number and waits until all lower numbers are gone. The queue is a courtesy on top of SQLite's own lock,
which alone keeps writers apart: if anything is wrong with the queue, writers go on without it.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from expost.ledger.ledger_file import open_private
from expost.ledger.thread_line import ThreadLine

if sys.platform != "win32":
    import fcntl

__all__ = ["TurnQueue"]

_COUNTER, _SERVED, _NUMBER_BYTES = 0, 8, 8  # the file: the next number, and the one whose turn it is
_COUNTER_LOCK = 1 << 60  # the byte that is locked while a number is taken; number n is byte n
_NEARLY_THERE = 3  # how many are ahead when a writer gets ready
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02

_LINES: weakref.WeakValueDictionary[str, ThreadLine] = weakref.WeakValueDictionary()

if hasattr(os, "register_at_fork"):  # a thread of the parent may stand first in line, and is not there in the child
    os.register_at_fork(after_in_child=_LINES.clear)


class TurnQueue:
    """The queue of one ledger file, in a file next to it.

    Locks on bytes belong to a process and end with it, however it ends: nobody waits for the dead.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, TurnQueue(folder + "/a.ledger").wait_for_turn(1.0) as reached:
    ...     print(reached)
    True
    """

    def __init__(self, ledger_path: str) -> None:
        self._ledger_path, self.path = ledger_path, ledger_path + ".lock"
        self._line: ThreadLine | None = None

    @contextmanager
    def wait_for_turn(self, seconds: float, prepare: Callable[[], object] | None = None) -> Iterator[bool]:
        """Wait for the turn of this thread of this process and keep it; yield whether it came in time.

        Whoever has to wait calls ``prepare`` shortly before the turn, to keep the turn itself short. Raises ``PermissionError`` if the file cannot be written. Other failures of the file count as reached.
        """
        deadline = time.monotonic() + seconds
        # Locks on bytes do not keep threads of one process apart, and all are lost when one of them closes the file.
        line = self._line = _LINES.setdefault(self.path, self._line or ThreadLine())
        with line.wait_in(seconds) as first:
            if not first:
                yield False
                return
            descriptor = -1
            try:
                try:
                    descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT, like=self._ledger_path)
                    reached = self._stand_in_queue(descriptor, deadline, prepare)
                except PermissionError:
                    raise
                except OSError:  # a full disk, or a file system without locks
                    reached = True
                yield reached
            finally:
                if descriptor >= 0:
                    os.close(descriptor)  # gives up all locks of this process, also those of a child forked in here

    def _stand_in_queue(self, descriptor: int, deadline: float, prepare: Callable[[], object] | None) -> bool:
        """Take a number and wait until it is the lowest."""
        if sys.platform == "win32":  # no locks on bytes: SQLite's own lock keeps writers apart, in no order
            return True
        while not _lock_bytes(descriptor, _COUNTER_LOCK, 1, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                return False
            time.sleep(_SHORTEST_PAUSE)
        number = _read_number(descriptor, _COUNTER)
        # The number is locked before the next one can be taken. A process that is killed here only skips it.
        _lock_bytes(descriptor, number, 1, fcntl.LOCK_EX)
        _write_number(descriptor, _COUNTER, number + 1)
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, _COUNTER_LOCK)
        while number and not _lock_bytes(descriptor, 0, number, fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                return False
            ahead = number - _read_number(descriptor, _SERVED)
            if ahead <= _NEARLY_THERE and prepare is not None:
                prepare()
                prepare = None
                continue
            time.sleep(min(max(_SHORTEST_PAUSE * ahead, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        _write_number(descriptor, _SERVED, number)
        return True


def _lock_bytes(descriptor: int, start: int, length: int, kind: int) -> bool:
    """Lock some bytes unless another process has locked one of them; return whether it worked."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, length, start)
    except (BlockingIOError, PermissionError):  # POSIX allows either
        return False
    return True


def _read_number(descriptor: int, place: int) -> int:
    # A damaged file may hold any number; those that cannot be a place in a file are cut off.
    return int.from_bytes(os.pread(descriptor, _NUMBER_BYTES, place), "little") % (1 << 59)


def _write_number(descriptor: int, place: int, number: int) -> None:
    with suppress(OSError):  # on a full disk the order is lost, not the turn
        os.pwrite(descriptor, number.to_bytes(_NUMBER_BYTES, "little"), place)
