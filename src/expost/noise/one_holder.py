"""Who may draw the next noise of a path or a session."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

from expost.core import InvalidRequest

__all__ = ["OneHolder"]


class OneHolder:
    """Lets one thread at a time, of the process that made a path or a session, draw more of it.

    A rung drawn twice, by two threads or by both sides of a fork, would be two answers billed as one. Whether there is
    anything left to draw must be asked inside, too: what was true before the wait may be so no longer.

    >>> with OneHolder().alone():
    ...     "drawn"
    'drawn'
    """

    def __init__(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()

    def alone(self) -> AbstractContextManager[object]:
        """Nobody else draws meanwhile. The lock itself, so that no interrupt comes between taking and giving it back."""
        if os.getpid() != self._process:
            raise InvalidRequest(
                "Expected noise to be drawn on by the process that began it",
                do="Go on there, or pass a path's state on",
            )
        return self._lock
