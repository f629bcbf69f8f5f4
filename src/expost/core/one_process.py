"""Things that count what they spend, and must not be doubled."""

from __future__ import annotations

import os
from typing import NoReturn, Self

from expost.core.errors import InvalidRequest

__all__ = ["OneProcess"]


class OneProcess:
    """Something whose budget lives in one process: copies are the thing itself, children and pickles are refused.

    >>> import copy
    >>> here = OneProcess()
    >>> copy.deepcopy(here) is here
    True
    """

    _called = "session"
    """What it is, in sentences."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise InvalidRequest(
                f"Expected the process that opened the {self._called}", do="Ask from there; budgets do not fork"
            )

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            f"Expected a {self._called} to stay in its process; a pickled one would spend its budget twice."
        )

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __copy__(self) -> Self:
        return self  # one budget, however often it is handed on

    def __deepcopy__(self, memo: object) -> Self:
        return self
