"""Keeps database connections from crossing a fork.

SQLite's locks belong to a process, and its library remembers them in memory: a child that inherits an open connection
believes in locks that it does not have, and its parent may then delete what the child wrote. A server's socket is shared
by both sides. So a fork waits until no transaction is under way, closes every connection, and both sides connect again
when they next need to.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

__all__ = ["FORK_GATE", "ForkGate", "Forked", "leak_object"]

_PATIENCE_SECONDS = 60.0  # longer than any transaction; a fork is late rather than harmful


class Forked(Protocol):
    """What a holder of connections does around a fork."""

    def close(self) -> None:
        """Close idle connections, in the process that is about to fork."""

    def _start_in_child(self) -> None:
        """Forget inherited connections and locks, in the new process."""


class ForkGate:
    """Lets transactions of all threads pass, and a fork only while none of another thread is under way.

    >>> gate = ForkGate()
    >>> with gate.pass_through():
    ...     print(gate.is_inside)
    True
    """

    def __init__(self) -> None:
        self._holders: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._start_anew()

    def _start_anew(self) -> None:
        # A lock of its own on both sides: another thread may have held the old one when the process forked.
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        self._forking: int | None = None

    def add_holder(self, holder: Forked) -> None:
        """Close the connections of this holder before every fork, as long as it lives."""
        with self._changed:
            self._holders.add(holder)

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a transaction."""
        return threading.get_ident() in self._inside

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        """Wait until no fork is under way, and hold up forks by other threads meanwhile."""
        thread = threading.get_ident()
        changed, inside = self._changed, self._inside  # those of the process that enters
        with changed:
            # A thread that is inside already goes on: the fork waits for it, so it must not wait for the fork.
            while self._forking not in (None, thread) and thread not in inside:
                changed.wait()
            inside[thread] = inside.get(thread, 0) + 1
        try:
            yield
        finally:
            if self._changed is changed:  # not so in a child that was forked in here, whose old lock may never be free
                with changed:
                    inside[thread] -= 1
                    if inside[thread] == 0:
                        del inside[thread]
                        changed.notify_all()

    def before_fork(self) -> None:
        """Wait for the transactions of other threads, then close all connections that this thread does not use."""
        thread, deadline = threading.get_ident(), time.monotonic() + _PATIENCE_SECONDS
        with self._changed:
            while self._forking is not None:  # two threads that fork at once
                self._changed.wait()
            self._forking = thread
            # A thread that never finishes must not stop the fork for ever: the child then gives the connection up.
            self._changed.wait_for(lambda: not self._inside.keys() - {thread}, deadline - time.monotonic())
            holders = list(self._holders)
        for holder in holders:
            with suppress(Exception):  # one that cannot close its connection gives it up in the child
                holder.close()

    def after_fork_in_parent(self) -> None:
        """Let transactions pass again."""
        with self._changed:
            self._forking = None
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        """Begin with locks of its own; what was inherited is never touched."""
        self._start_anew()
        for holder in list(self._holders):
            holder._start_in_child()


def leak_object(thing: object) -> None:
    """Keep an object for ever: freeing an inherited connection would write to what the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


FORK_GATE = ForkGate()
"""The one gate of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_GATE.before_fork,
        after_in_parent=FORK_GATE.after_fork_in_parent,
        after_in_child=FORK_GATE.after_fork_in_child,
    )
