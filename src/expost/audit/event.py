"""The search for an event that is likely on one input and rare on its neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.audit.cells import Partition, partitions
from expost.audit.claim import Claim, ExPost, bound_from_cells, bound_from_event, limit_of
from expost.audit.confidence import at_least, at_most
from expost.audit.pair import Outcomes, Pair
from expost.core import RenyiGuarantee, ZeroConcentratedGuarantee

__all__ = ["Event", "find_events"]

_SLICES = 12  # bills that are looked at one by one
_ENOUGH = 10_000  # outcomes a side that are enough to learn from
_GROUPS = (8, 24, 64)  # events that a divergence is summed over

Cut = tuple[float, float]  # the lowest and the highest bill of a slice


@dataclass(frozen=True)
class Event:
    """A set of outcomes, none of them billed above ``allowed`` (the claim itself, except ex post).

    ``groups`` numbers the cells of the partition; cells of -1 are outside. Several groups are several events at once.

    >>> Event.__dataclass_fields__["allowed"].name
    'allowed'
    """

    partition: Partition
    groups: NDArray[np.intp]
    allowed: float
    cut: Cut | None = None

    def hits(self, outcomes: Outcomes) -> int:
        """How many of these runs fell into the event."""
        return int(self.counts(outcomes).sum())

    def counts(self, outcomes: Outcomes) -> NDArray[np.intp]:
        """The same for each group."""
        inside = self.groups[self.partition.cells(_kept(outcomes, self.cut))]
        return np.bincount(inside[inside >= 0], minlength=int(self.groups.max()) + 1)

    def bound(self, claim: Claim, likely: Outcomes, rare: Outcomes, *, failure_probability: float) -> float:
        """The least loss compatible with these outcomes, too high with at most twice the failure probability."""
        counts = self.counts(likely), self.counts(rare)
        return _bound_of(claim, counts, (len(likely), len(rare)), failure_probability)


def find_events(pair: Pair, left: Outcomes, right: Outcomes, *, failure_probability: float) -> tuple[Event, ...]:
    """One event a direction: where left is likely, and unless the claim is one-way where right is.

    Each is the one whose bound exceeds what is allowed by most, judged on these outcomes (never use them again).
    """
    best: list[tuple[float, Event] | None] = [None] if pair.one_way else [None, None]
    learned, judged = zip(*(_halves(side) for side in (left, right)), strict=True)
    trials = len(judged[0]), len(judged[1])
    for cut, allowed in _cuts(pair.claim, left, right):
        for partition in partitions(_kept(learned[0], cut), _kept(learned[1], cut), pair.features):
            counts = tuple(_counts(partition, _kept(side, cut)) for side in judged)
            ways = ((counts, trials), (counts[::-1], trials[::-1]))
            for way in range(len(best)):
                for bound, groups in _candidates(pair.claim, *ways[way], failure_probability):
                    held = best[way]
                    if held is None or bound - allowed > held[0]:
                        best[way] = bound - allowed, Event(partition, groups, allowed, cut)
    return tuple(held[1] for held in best if held is not None)


def _candidates(
    claim: Claim, counts: tuple[NDArray[np.intp], ...], trials: tuple[int, ...], failure_probability: float
) -> Iterator[tuple[float, NDArray[np.intp]]]:
    """Numberings of the cells and their bounds: the best union, and for divergences groups of similar ratios."""
    yield _best_union(claim, counts, trials, failure_probability)
    if not _is_divergence(claim):
        return
    ours, theirs = counts
    order = np.argsort(-(ours + 0.5) / (theirs + 0.5), kind="stable")
    share = (np.cumsum(ours[order] + theirs[order]) - 1) / max(int(ours.sum() + theirs.sum()), 1)
    for number in _GROUPS:
        groups = np.empty(len(order), np.intp)
        groups[order] = np.clip(np.floor(share * number), 0, number - 1)
        _, groups = np.unique(groups, return_inverse=True)
        summed = tuple(np.bincount(groups, weights=each).astype(np.intp) for each in counts)
        if len(summed[0]) > 1:
            yield _bound_of(claim, summed, trials, failure_probability), groups


def _bound_of(
    claim: Claim, counts: tuple[NDArray[np.intp], ...], trials: tuple[int, ...], failure_probability: float
) -> float:
    """The loss that the hits of each group prove; the groups share the failure probability."""
    risk = failure_probability / len(counts[0])
    p = at_least(counts[0], trials[0], failure_probability=risk)
    q = at_most(counts[1], trials[1], failure_probability=risk)
    return float(bound_from_event(claim, p, q)[0]) if len(p) == 1 else bound_from_cells(claim, p, q)


def _is_divergence(claim: Claim) -> bool:
    promise = claim.cap if isinstance(claim, ExPost) else claim
    return isinstance(promise, ZeroConcentratedGuarantee | RenyiGuarantee)


def _halves(outcomes: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Outcomes to learn cells from and others to judge them by: cells that were lucky must not win. Few serve for both."""
    half = len(outcomes) // 2
    return (outcomes.rows(0, half), outcomes.rows(half, len(outcomes))) if half >= _ENOUGH else (outcomes, outcomes)


def _best_union(
    claim: Claim,
    counts: tuple[NDArray[np.intp], ...],
    trials: tuple[int, ...],
    failure_probability: float,
) -> tuple[float, NDArray[np.intp]]:
    """The best union of cells; by Neyman and Pearson only those of the highest likelihood ratios need a look."""
    ours, theirs = counts
    order = np.argsort(-(ours + 0.5) / (theirs + 0.5), kind="stable")
    p = at_least(np.cumsum(ours[order]), trials[0], failure_probability=failure_probability)
    q = at_most(np.cumsum(theirs[order]), trials[1], failure_probability=failure_probability)
    bounds = bound_from_event(claim, p, q)
    last = int(np.argmax(bounds))
    groups = np.full(len(ours), -1, dtype=np.intp)
    groups[order[: last + 1]] = 0
    return float(bounds[last]), groups


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
