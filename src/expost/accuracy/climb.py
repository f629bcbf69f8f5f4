"""Less noise, rung by rung, until a certificate is satisfied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder

__all__ = ["Accepts", "ClimbPath", "climb"]

_BLOCK = 32  # rungs read at once: large enough to vectorize, small enough not to waste work past the stop


class ClimbPath(Protocol):
    """A gradual release: the same answer at every rung of a ladder, most private first."""

    @property
    def ladder(self) -> Ladder:
        """The privacy levels of the rungs."""
        ...

    def block(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the released values of the rungs from ``start`` up to ``stop``, one row per rung."""
        ...


Accepts = Callable[[NDArray[np.int64], int], NDArray[np.bool_]]
"""A certificate over a block: released values and the first rung's index to one verdict per rung."""


def climb(path: ClimbPath, accepts: Accepts, *, block: int = _BLOCK) -> int | None:
    """Return the first rung whose certificate is satisfied, or None when the top rung is not enough.

    The climb costs the rung it returns, or the top rung when it returns None: a prefix of a gradual release costs
    its last rung (LNRWW17, Theorem 2.7) and verdicts are post-processing of the prefix (LNRWW17, Theorem 2.4). The
    failure budget of the certificate must cover every rung of the ladder. Rungs past the one returned are not released.

    >>> class Exact:
    ...     ladder = Ladder.of([0.1, 0.2, 0.4])
    ...     def block(self, start, stop):
    ...         return np.array([[90], [96], [99]])[start:stop]
    >>> climb(Exact(), lambda values, start: values[:, 0] > 95)
    1
    """
    total = len(path.ladder)
    for start in range(0, total, block):
        stop = min(start + block, total)
        verdicts = np.flatnonzero(accepts(path.block(start, stop), start))
        if verdicts.size:
            return start + int(verdicts[0])
    return None
