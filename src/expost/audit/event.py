"""The search for an event that is likely on one input and rare on its neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.audit.cells import Partition, partitions
from expost.audit.claim import Claim, bound_from_event, limit_of
from expost.audit.confidence import at_least, at_most
from expost.audit.pair import Outcomes, Pair

__all__ = ["Event", "find_events"]

_SLICES = 12  # bills that are looked at one by one

Cut = tuple[float, float]  # the lowest and the highest bill of a slice


@dataclass(frozen=True)
class Event:
    """A set of outcomes, none of them billed above ``allowed`` (the claim itself, except ex post).

    >>> Event.__dataclass_fields__["allowed"].name
    'allowed'
    """

    partition: Partition
    chosen: NDArray[np.bool_]
    allowed: float
    cut: Cut | None = None

    def hits(self, outcomes: Outcomes) -> int:
        """How many of these runs fell into the event."""
        inside = self.chosen[self.partition.cells(outcomes.values)]
        return int(np.count_nonzero(inside & _in_cut(outcomes, self.cut)))


def find_events(pair: Pair, left: Outcomes, right: Outcomes, *, failure_probability: float) -> tuple[Event, ...]:
    """One event a direction: where left is likely, and unless the claim is one-way where right is.

    Each is the one whose bound exceeds what is allowed by most, judged on these outcomes (never use them again).
    """
    best: list[tuple[float, Event] | None] = [None] if pair.one_way else [None, None]
    trials = len(left), len(right)
    for cut, allowed in _cuts(pair.claim, left, right):
        ours, theirs = _kept(left, cut), _kept(right, cut)
        for partition in partitions(ours, theirs, pair.features):
            counts = _counts(partition, ours), _counts(partition, theirs)
            ways = ((counts, trials), (counts[::-1], trials[::-1]))
            for way, held in enumerate(best):
                bound, chosen = _best_union(pair.claim, *ways[way], failure_probability)
                if held is None or bound - allowed > held[0]:
                    best[way] = bound - allowed, Event(partition, chosen, allowed, cut)
    return tuple(held[1] for held in best if held is not None)


def _best_union(
    claim: Claim,
    counts: tuple[NDArray[np.intp], ...],
    trials: tuple[int, ...],
    failure_probability: float,
) -> tuple[float, NDArray[np.bool_]]:
    """The best union of cells; by Neyman and Pearson only those of the highest likelihood ratios need a look."""
    ours, theirs = counts
    order = np.argsort(-(ours + 0.5) / (theirs + 0.5), kind="stable")
    p = at_least(np.cumsum(ours[order]), trials[0], failure_probability=failure_probability)
    q = at_most(np.cumsum(theirs[order]), trials[1], failure_probability=failure_probability)
    bounds = bound_from_event(claim, p, q)
    last = int(np.argmax(bounds))
    chosen = np.zeros(len(ours), dtype=bool)
    chosen[order[: last + 1]] = True
    return float(bounds[last]), chosen


def _counts(partition: Partition, values: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.bincount(partition.cells(values), minlength=partition.count)


def _cuts(claim: Claim, left: Outcomes, right: Outcomes) -> Iterator[tuple[Cut | None, float]]:
    """For ex-post claims ranges of bills, each with its largest bill; else everything, with the claim itself."""
    if left.bills is None or right.bills is None:
        yield None, limit_of(claim)
        return
    bills, counts = np.unique(np.concatenate([left.bills, right.bills]), return_counts=True)
    shares = np.cumsum(counts) / counts.sum()
    borders = np.unique(np.searchsorted(shares, np.arange(1, _SLICES) / _SLICES) + 1)
    for group in np.split(bills, np.arange(1, len(bills)) if len(bills) <= _SLICES else borders):
        if len(group):
            yield (float(group[0]), float(group[-1])), float(group[-1])


def _in_cut(outcomes: Outcomes, cut: Cut | None) -> NDArray[np.bool_]:
    if cut is None or outcomes.bills is None:
        return np.ones(len(outcomes), dtype=bool)
    return (outcomes.bills >= cut[0]) & (outcomes.bills <= cut[1])


def _kept(outcomes: Outcomes, cut: Cut | None) -> NDArray[np.float64]:
    return outcomes.values[_in_cut(outcomes, cut)]
