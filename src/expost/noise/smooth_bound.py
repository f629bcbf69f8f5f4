"""Smooth bounds on the local sensitivity of a quantile."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from expost.core.sensitivity import Sensitivity
from expost.noise.sorted_records import SortedRecords, is_replace, records_per_unit

__all__ = ["smooth_quantile_bound"]


def smooth_quantile_bound(records: SortedRecords, rank: int, smoothness: float, sensitivity: Sensitivity) -> float:
    """A bound on how far neighbours' quantiles differ that itself changes slowly from neighbour to neighbour.

    Replace-one: max over i, j >= 0 of exp(-b (i + j)) (x_{m+j} - x_{m-i}), times exp(smoothness); b is the smoothness
    a record. Add/remove also moves the rank, and the bound is the symmetric max over j of
    exp(-b j) (x_{m+j} - x_{m-j}). Proofs: docs/proofs/smooth-sensitivity.md; replace-one is NRS07, Claim 3.3, for one
    record a unit.

    >>> from expost.core import Adjacency
    >>> from expost.noise.sorted_records import Bounds
    >>> records = SortedRecords.read(range(0, 1001, 10), Bounds(0, 1000))
    >>> round(smooth_quantile_bound(records, 51, 1.0, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)), 6)
    10.0
    """
    decay = smoothness / records_per_unit(sensitivity)
    down, up = _arms(records, rank, decay)
    best = _best_pair(down, up, decay) if is_replace(sensitivity) else _best_symmetric(down, up, decay)
    return math.exp(smoothness) * best


def _arms(records: SortedRecords, rank: int, decay: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The distances of the records below and above the quantile from it, as far as they can matter."""
    # Beyond n + 1 ranks an arm is constant at the bound, beyond the other limit its weight is below any difference
    # of integers that is not zero; both limits are functions of public numbers and of n.
    reach = min(len(records) + 1, math.ceil((math.log(records.bounds.width) + 40) / decay))
    steps = np.arange(reach + 1)
    center = int(records.at(np.array([rank]))[0])
    down = (center - records.at(rank - steps)).astype(np.float64)
    return down, (records.at(rank + steps) - center).astype(np.float64)


def _best_symmetric(down: NDArray[np.float64], up: NDArray[np.float64], decay: float) -> float:
    return float(np.max(np.exp(-decay * np.arange(len(up))) * (up + down)))


def _best_pair(down: NDArray[np.float64], up: NDArray[np.float64], decay: float) -> float:
    """The maximum over i, j of exp(-decay (i + j)) (down_i + up_j).

    The best j falls as i rises (a larger down_i makes waiting for up_j dearer), so halving the rows halves the
    columns left to look at: n log n in all (NRS07, section 3.1).
    """
    weights = np.exp(-decay * np.arange(len(up)))
    best, rows = 0.0, [(0, len(down) - 1, 0, len(up) - 1)]
    while rows:
        first, last, left, right = rows.pop()
        middle = (first + last) // 2
        column = weights[left : right + 1] * (down[middle] + up[left : right + 1])
        at = left + int(np.argmax(column))
        best = max(best, float(weights[middle] * column[at - left]))
        if first < middle:
            rows.append((first, middle - 1, at, right))
        if middle < last:
            rows.append((middle + 1, last, left, at))
    return best
