"""The right to settle a hold: one process has it, and a fork does not share it."""

from __future__ import annotations

import os
import uuid

__all__ = ["is_of_this_process", "new_ticket"]

_NAMES: dict[int, str] = {}  # of this process: by its number, for a fork has another

if hasattr(os, "register_at_fork"):  # numbers come again, and a container may give a child that of its parent
    os.register_at_fork(after_in_child=_NAMES.clear)


def new_ticket() -> str:
    """A ticket of this process for one hold: unlike any other, and worth nothing in another process.

    >>> new_ticket() == new_ticket()
    False
    """
    return f"{_name()}-{uuid.uuid4().hex}"


def is_of_this_process(ticket: str) -> bool:
    """Whether this process made the ticket.

    A child that was forked off afterwards did not, nor did whoever read the ticket from a file.

    >>> is_of_this_process(new_ticket())
    True
    """
    return ticket.partition("-")[0] == _name()


def _name() -> str:
    return _NAMES.setdefault(os.getpid(), uuid.uuid4().hex)
