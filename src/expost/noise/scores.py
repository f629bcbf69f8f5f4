"""Integer scores of candidates: how far each is behind the best, and a fair pick among several."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource
from expost.noise.lattice import add_exactly, compact_integers
from expost.noise.uniform import draw_uniform

__all__ = ["gaps_to_best", "pick_one", "read_scores"]


def read_scores(exact: object) -> NDArray[Any]:
    """One integer a candidate.

    >>> read_scores([3, 1, 2]).tolist()
    [3, 1, 2]
    """
    scores = compact_integers(exact)
    if scores.ndim != 1 or not scores.size:
        raise InvalidRequest("Expected one score a candidate", do="Pass a list of integers, at least one")
    return scores


def gaps_to_best(scores: NDArray[Any]) -> NDArray[Any]:
    """How far each score is below the largest.

    >>> gaps_to_best(np.array([3, 1, 2])).tolist()
    [0, 2, 1]
    """
    return add_exactly(scores.max(keepdims=True), -scores)


def pick_one(flags: NDArray[np.bool_], *, bits: BitSource) -> NDArray[np.intp]:
    """For each row of flags, a uniformly chosen set one; each row must have one.

    >>> from expost.noise.bits import SeededBits
    >>> pick_one(np.array([[False, True], [True, False]]), bits=SeededBits(1)).tolist()
    [1, 0]
    """
    numbers = np.cumsum(flags, axis=1)
    wanted = draw_uniform(numbers[:, -1].astype(np.uint64), bits)
    picks: NDArray[np.intp] = np.argmax(numbers > wanted[:, None], axis=1)
    return picks
