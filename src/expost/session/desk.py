"""Where a session keeps gradual releases: one thread at a time, one process only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from expost.stats import Shelf
from expost.stats.kept import Vault

__all__ = ["Desk"]


class Desk:
    """A shelf of paths and the turn to work on them.

    Two threads that refined one path at once, or a parent and its fork, would draw two continuations and pay for one.
    So threads take turns, and a process that was forked off starts with an empty shelf.

    >>> with Desk(None).turn() as shelf:
    ...     print(list(shelf.keys()))
    []
    """

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._shelf = Shelf(vault)

    @contextmanager
    def turn(self) -> Iterator[Shelf]:
        """The shelf, for this thread alone."""
        if self._process != os.getpid():
            # The other side of the fork has the same paths, and perhaps a lock that nobody here will ever release.
            self._process, self._lock, self._shelf = os.getpid(), threading.RLock(), Shelf(self._vault)
        with self._lock:
            yield self._shelf
