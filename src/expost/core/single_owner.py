"""The one guard for objects that spend: one process owns them, one thread at a time draws from them."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import ClassVar, NoReturn, Self

from expost.core.errors import InvalidRequest

__all__ = ["SingleOwner"]


class SingleOwner:
    """Base class of objects that must not be doubled: sessions, gradual-release paths, private tests.

    A rung drawn twice, by two threads or by both sides of a fork, would be two answers billed as one. So pickling is
    refused, another process is refused, and threads take turns.

    Subclasses set ``_owned_noun`` (the word in error messages), ``_owner_hint`` (what to do instead) and
    ``_copies_are_itself``: true for objects that libraries copy as a matter of course (scikit-learn clones), whose copy
    is the object itself; false for objects that hold exact answers, whose copy is refused.

    Examples
    --------
    >>> import copy
    >>> class Board(SingleOwner):
    ...     _owned_noun, _copies_are_itself = "board", True
    >>> board = Board()
    >>> copy.deepcopy(board) is board
    True
    """

    _owned_noun: ClassVar[str] = "session"
    _owner_hint: ClassVar[str] = ""
    _copies_are_itself: ClassVar[bool] = False

    def __init__(self) -> None:
        self._take_ownership()

    def _take_ownership(self) -> None:
        """Make this process the owner. Call it where ``__init__`` does not run, such as when state is restored."""
        # The process id, because a fork copies memory without calling any method that could refuse.
        self._owner_process, self._owner_lock = os.getpid(), threading.Lock()

    def _check_owner(self) -> None:
        """Raise ``InvalidRequest`` in every process but the owner's."""
        # Raised before anything is drawn: both sides of a fork would answer, and one answer would be billed.
        if os.getpid() != self._owner_process:
            raise InvalidRequest(
                f"This {self._owned_noun} belongs to another process (it was forked)",
                do=self._owner_hint or f"Open a new {self._owned_noun} here",
            )

    def _draw_alone(self) -> AbstractContextManager[object]:
        """Return the lock under which the owner draws.

        It is the lock itself, so that no interrupt can come between taking it and giving it back. Check inside the
        lock whether there is anything left to draw: the answer may have changed during the wait.
        """
        self._check_owner()
        return self._owner_lock

    def _refuse_copy(self, *_: object) -> NoReturn:
        hint = f" {self._owner_hint}." if self._owner_hint else ""
        raise TypeError(
            f"A {self._owned_noun} cannot be pickled or copied: the copy would spend its budget again.{hint}"
        )

    # All of them, because pickle and copy try one after the other.
    __reduce__ = __reduce_ex__ = __getstate__ = _refuse_copy

    def __copy__(self) -> Self:
        # One object, one budget: the clone spends from the same account.
        if self._copies_are_itself:
            return self
        self._refuse_copy()

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()
