"""What a forked copy of this process gets: an answer, or the house's refusal."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from expost.core import InvalidRequest

SECONDS = 30


def told_by_a_fork(call: Callable[[], Any]) -> Any:
    """The result of the call in a forked child, or the words of its refusal."""
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    child = context.Process(target=_tell, args=(call, told))
    child.start()
    found = told.get(timeout=SECONDS)
    child.join()
    return found


def _tell(call: Callable[[], Any], told: Any) -> None:
    try:
        told.put(call())
    except InvalidRequest as refusal:
        told.put(str(refusal))
