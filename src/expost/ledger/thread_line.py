"""A line of threads: first come, first served, with a limit to the patience."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ThreadLine"]


class ThreadLine:
    """A lock that threads get in the order in which they asked for it.

    >>> line = ThreadLine()
    >>> with line.wait_in(1.0) as first, line.wait_in(0.0) as second:
    ...     print(first, second)
    True False
    """

    def __init__(self) -> None:
        self._guard, self._process = threading.Lock(), os.getpid()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    @contextmanager
    def wait_in(self, seconds: float) -> Iterator[bool]:
        """Wait for the lock and hold it; yield whether it came in time."""
        mine = threading.Lock()
        mine.acquire()
        with self._guard:
            if self._taken:
                self._waiting.append(mine)
            else:
                self._taken = True
                mine.release()
        reached = False
        try:
            reached = mine.acquire(timeout=max(seconds, 0.0))
            if not reached:
                reached = self._leave_line(mine)
            yield reached
        finally:
            # An interrupt may come before the line was left, or after the lock was handed over. In a child that was
            # forked in here another thread may have had the guard, which is then never free.
            if os.getpid() == self._process and (reached or self._leave_line(mine)):
                self._pass_on()

    def _leave_line(self, mine: threading.Lock) -> bool:
        """Stop waiting; return whether the lock was handed over in the last moment."""
        with self._guard:
            try:
                self._waiting.remove(mine)
            except ValueError:
                return mine.acquire(blocking=False)
            return False

    def _pass_on(self) -> None:
        """Hand the lock to whoever waits longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
