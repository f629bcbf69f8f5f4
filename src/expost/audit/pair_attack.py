"""Attack one pair of adjacent inputs: find a bad event on some runs, measure it on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.tree import DecisionTreeClassifier

from expost.audit.privacy_claim import Claim, ExPost, bound_from_cells, bound_from_event, limit_of
from expost.core import InvalidRequest, RenyiGuarantee, ZeroConcentratedGuarantee
from expost.noise.bits import BitSource

__all__ = ["AttackFinding", "Features", "Outcomes", "Pair", "Sampler", "at_least", "at_most", "attack", "repeat"]


def at_least(hits: ArrayLike, trials: int, *, failure_probability: float) -> NDArray[Any]:
    """Compute the Clopper-Pearson lower bound, which exceeds the true probability with at most ``failure_probability``.

    >>> float(at_least(1000, 1000, failure_probability=0.05).round(4))
    0.997
    """
    # CP34: the bound solves P(Binomial(trials, bound) >= hits) = failure_probability, a quantile of a beta law.
    count = np.asarray(hits, dtype=np.float64)
    low = special.betaincinv(np.maximum(count, 1), trials - count + 1, failure_probability)
    return np.where(count > 0, low, 0.0)


def at_most(hits: ArrayLike, trials: int, *, failure_probability: float) -> NDArray[Any]:
    """Compute the Clopper-Pearson upper bound, the mirror image of ``at_least``."""
    misses = trials - np.asarray(hits, dtype=np.float64)
    return 1.0 - at_least(misses, trials, failure_probability=failure_probability)


@dataclass(frozen=True)
class Outcomes:
    """The outputs of independent runs, one row per run, and for ex-post claims the bill of each run."""

    values: NDArray[np.float64]
    bills: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, values: ArrayLike, bills: ArrayLike | None = None) -> Outcomes:
        """Build outcomes from anything array-like; one dimension means one number per run."""
        table = np.asarray(values).astype(np.float64)
        table = table.reshape(len(table), -1)
        paid = None if bills is None else np.asarray(bills).astype(np.float64)
        if paid is not None and paid.shape != (len(table),):
            raise InvalidRequest("Expected one bill per run", do="Pass as many bills as outcomes")
        if paid is not None and np.isnan(paid).any():
            raise InvalidRequest("Expected bills that are numbers", got="nan", do="Bill in the unit of the claim")
        return cls(table, paid)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> Outcomes:
        """Select the runs from ``start`` up to ``stop``."""
        return Outcomes(self.values[start:stop], None if self.bills is None else self.bills[start:stop])


Sampler = Callable[[int, BitSource], Outcomes]


@dataclass(frozen=True)
class Pair:
    """A mechanism on two adjacent inputs, chosen to be as bad as possible, and what it claims there.

    ``left`` and ``right`` are called with a number of runs and a source of bits. ``slow`` marks samplers that loop in
    Python, so that a profile uses fewer runs. ``most_runs`` caps the runs in the quick profile; larger profiles raise
    the cap (an attack needs at least 100). ``one_way`` claims only that no event is much likelier on the left.
    ``features`` adds columns for the search for a bad event.
    """

    name: str
    claim: Claim
    left: Sampler
    right: Sampler
    slow: bool = False
    most_runs: int | None = None
    one_way: bool = False
    features: Features | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, name: str, claim: Claim, sample: Callable[..., Outcomes], left: Any, right: Any, **options: Any
    ) -> Pair:
        """Build a pair from a function ``sample(input, runs, bits)`` and two adjacent inputs."""
        return cls(name, claim, partial(sample, left), partial(sample, right), **options)

    @classmethod
    def repeated(
        cls, name: str, claim: Claim, run: Callable[..., Any], left: Any, right: Any, *, most_runs: int | None = None
    ) -> Pair:
        """Build a slow pair from a function ``run(input, bits)``, which runs once, and two adjacent inputs."""
        left_runs, right_runs = (repeat(partial(run, side)) for side in (left, right))
        return cls(name, claim, left_runs, right_runs, slow=True, most_runs=most_runs)


def repeat(run: Callable[[BitSource], Any]) -> Sampler:
    """Build a sampler from a function that runs once and returns a number, a tuple, or ``Outcomes`` of one run.

    Use it for mechanisms that cannot run in batches, and mark the pair ``slow=True``.
    """

    def sample_runs(runs: int, bits: BitSource) -> Outcomes:
        results = [run(bits) for _ in range(runs)]
        if results and isinstance(results[0], Outcomes):
            bills = [result.bills for result in results]
            paid = None if bills[0] is None else np.concatenate(bills)
            return Outcomes(np.concatenate([result.values for result in results]), paid)
        return Outcomes.of(np.array(results, dtype=np.float64))

    return sample_runs


_MOST_CELLS = 2000  # with more distinct outcomes than this, each one is too rare to be informative
_LEAST_SEEN = 20  # an outcome seen less often would be chosen for its luck
_LEAVES = 64
_LEVELS = 200
_SLICES = 12  # with at most so many different bills, each is searched separately
_ENOUGH = 10_000  # outcomes per side that are enough to learn from
_GROUPS = (8, 24, 64)  # events that a divergence is summed over

Features = Callable[[NDArray[np.float64]], NDArray[np.float64]]
Cut = tuple[float, float]  # the lowest and the highest bill of a slice
Counts = tuple[NDArray[np.intp], ...]  # hits per cell, on the likely side and on the rare one


@dataclass(frozen=True)
class Partition:
    """A numbering of outcomes: ``find`` maps each row of a table of at least one outcome to one of ``count`` cells."""

    count: int
    find: Callable[[NDArray[np.float64]], NDArray[np.intp]] = field(repr=False)

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cell of each outcome. There may be none: a cut of bills may hold no run of one half."""
        return self.find(values) if len(values) else np.zeros(0, dtype=np.intp)


def partitions(left: NDArray[np.float64], right: NDArray[np.float64], features: Features | None) -> Iterator[Partition]:
    """Yield the partitions worth trying on these outcomes, learned from both sides.

    They are the whole space (for outcomes that only one side has), the outcomes seen often enough, the leaves of a
    classification tree, and quantiles of the pair's first feature, such as its likelihood ratio.
    """
    yield Partition(1, lambda values: np.zeros(len(values), dtype=np.intp))
    values = np.concatenate([left, right])
    outcomes, counts = np.unique(_pack_rows(values), return_counts=True)
    frequent = outcomes[counts >= _LEAST_SEEN]
    if 0 < len(frequent) <= _MOST_CELLS:

        def find_cells(values: NDArray[np.float64]) -> NDArray[np.intp]:
            packed = _pack_rows(values)
            place = np.minimum(np.searchsorted(frequent, packed), len(frequent) - 1)
            return np.where(frequent[place] == packed, place, len(frequent))

        yield Partition(len(frequent) + 1, find_cells)  # one more cell, for all rare outcomes
    if len(left) and len(right):
        smallest = max(20, len(values) // 2000)
        tree = DecisionTreeClassifier(max_leaf_nodes=_LEAVES, min_samples_leaf=smallest, random_state=0)
        tree.fit(_tree_columns(values, features), np.r_[np.zeros(len(left)), np.ones(len(right))])
        yield Partition(int(tree.tree_.node_count), lambda values: tree.apply(_tree_columns(values, features)))
    if len(values) and features is not None:

        def first_feature(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return features(values).reshape(len(values), -1)[:, 0]

        edges = np.unique(np.quantile(first_feature(values), np.linspace(0, 1, _LEVELS)))
        yield Partition(len(edges) + 1, lambda values: np.searchsorted(edges, first_feature(values)))


def _pack_rows(values: NDArray[np.float64]) -> NDArray[Any]:
    """Convert each row to one scalar that sorts and compares."""
    rows = np.ascontiguousarray(values + 0.0)  # + 0.0 turns -0.0 into 0.0
    return rows.ravel() if rows.shape[1] == 1 else rows.view(f"S{8 * rows.shape[1]}").ravel()


def _tree_columns(values: NDArray[np.float64], features: Features | None) -> NDArray[np.float64]:
    """List what the tree may split on: the outcome itself, then what an attacker would compute from it."""
    columns = [values]
    if values.shape[1] > 1:
        columns.append(values - np.roll(values, 1, axis=1))
        columns.append(np.c_[values.mean(axis=1), values.std(axis=1), np.abs(values).max(axis=1)])
    columns.append(_lowest_bit(values))
    if features is not None:
        columns.append(features(values).reshape(len(values), -1))
    return np.clip(np.concatenate(columns, axis=1), -1e30, 1e30)  # trees work in float32


def _lowest_bit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the exponent of the last set bit of each fraction, where textbook float noise leaks (Mir12); 0 for integers."""
    fractional = values != np.floor(values)
    lowest = np.zeros_like(values)
    if fractional.any():
        mantissa, exponent = np.frexp(values[fractional])
        digits = np.ldexp(mantissa, 53).astype(np.int64)
        lowest[fractional] = exponent - 53 + np.log2((digits & -digits).astype(np.float64))
    return lowest


@dataclass(frozen=True)
class OutcomeEvent:
    """A set of outcomes, none of them billed above ``allowed`` (the claim itself, except ex post).

    ``groups`` numbers the cells of the partition; cells of -1 are outside. Several groups are several events at once.
    """

    partition: Partition
    groups: NDArray[np.intp]
    allowed: float
    cut: Cut | None = None

    def count_groups(self, outcomes: Outcomes) -> NDArray[np.intp]:
        """Count the runs that fell into each group."""
        inside = self.groups[self.partition.cells(_values_in_cut(outcomes, self.cut))]
        return np.bincount(inside[inside >= 0], minlength=int(self.groups.max()) + 1)


def find_events(pair: Pair, left: Outcomes, right: Outcomes, *, failure_probability: float) -> tuple[OutcomeEvent, ...]:
    """Find one event per direction: where left is likely and, unless the claim is one-way, where right is.

    Each is the event whose bound exceeds what is allowed by most, judged on these outcomes (never use them again).
    """
    best: list[tuple[float, OutcomeEvent] | None] = [None] if pair.one_way else [None, None]
    # A cell that was lucky while it was learned must not win: it is judged on other outcomes. Few outcomes serve for both.
    learned, judged = [left, right], [left, right]
    for place, side in enumerate((left, right)):
        half = len(side) // 2
        if half >= _ENOUGH:
            learned[place], judged[place] = side.rows(0, half), side.rows(half, len(side))
    trials = len(judged[0]), len(judged[1])
    for cut, allowed in _slice_bills(pair.claim, left, right):
        for partition in partitions(_values_in_cut(learned[0], cut), _values_in_cut(learned[1], cut), pair.features):
            counts = tuple(
                np.bincount(partition.cells(_values_in_cut(side, cut)), minlength=partition.count) for side in judged
            )
            directions = ((counts, trials), (counts[::-1], trials[::-1]))
            for direction in range(len(best)):
                for bound, groups in _group_cells(pair.claim, *directions[direction], failure_probability):
                    held = best[direction]
                    if held is None or bound - allowed > held[0]:
                        best[direction] = bound - allowed, OutcomeEvent(partition, groups, allowed, cut)
    return tuple(held[1] for held in best if held is not None)


def _group_cells(
    claim: Claim, counts: Counts, trials: tuple[int, ...], failure_probability: float
) -> Iterator[tuple[float, NDArray[np.intp]]]:
    """Yield numberings of the cells with their bounds: the best union, and for divergences groups of similar ratios."""
    ours, theirs = counts
    order = np.argsort(-(ours + 0.5) / (theirs + 0.5), kind="stable")
    # Neyman and Pearson: the best event consists of the cells with the highest likelihood ratios.
    p = at_least(np.cumsum(ours[order]), trials[0], failure_probability=failure_probability)
    q = at_most(np.cumsum(theirs[order]), trials[1], failure_probability=failure_probability)
    bounds = bound_from_event(claim, p, q)
    last = int(np.argmax(bounds))
    union = np.full(len(ours), -1, dtype=np.intp)
    union[order[: last + 1]] = 0
    yield float(bounds[last]), union
    promise = claim.cap if isinstance(claim, ExPost) else claim
    if not isinstance(promise, ZeroConcentratedGuarantee | RenyiGuarantee):
        return
    share = (np.cumsum(ours[order] + theirs[order]) - 1) / max(int(ours.sum() + theirs.sum()), 1)
    for number in _GROUPS:
        groups = np.empty(len(order), np.intp)
        groups[order] = np.clip(np.floor(share * number), 0, number - 1)
        _, groups = np.unique(groups, return_inverse=True)
        summed = tuple(np.bincount(groups, weights=each).astype(np.intp) for each in counts)
        if len(summed[0]) > 1:
            yield _bound_from_counts(claim, summed, trials, failure_probability), groups


def _bound_from_counts(claim: Claim, counts: Counts, trials: tuple[int, ...], failure_probability: float) -> float:
    """Bound the loss from the hits of each group; the groups share the failure probability."""
    risk = failure_probability / len(counts[0])
    p = at_least(counts[0], trials[0], failure_probability=risk)
    q = at_most(counts[1], trials[1], failure_probability=risk)
    return float(bound_from_event(claim, p, q)[0]) if len(p) == 1 else bound_from_cells(claim, p, q)


def _slice_bills(claim: Claim, left: Outcomes, right: Outcomes) -> Iterator[tuple[Cut | None, float]]:
    """Yield ranges of bills with the largest bill of each; without bills, everything with the claim itself."""
    if left.bills is None or right.bills is None:
        yield None, limit_of(claim)
        return
    bills, counts = np.unique(np.concatenate([left.bills, right.bills]), return_counts=True)
    shares = np.cumsum(counts) / counts.sum()
    borders = np.unique(np.searchsorted(shares, np.arange(1, _SLICES) / _SLICES) + 1)
    for group in np.split(bills, np.arange(1, len(bills)) if len(bills) <= _SLICES else borders):
        if len(group):
            yield (float(group[0]), float(group[-1])), float(group[-1])


def _values_in_cut(outcomes: Outcomes, cut: Cut | None) -> NDArray[np.float64]:
    """Select the outcomes whose bill lies in the cut."""
    if cut is None or outcomes.bills is None:
        return outcomes.values
    return outcomes.values[(outcomes.bills >= cut[0]) & (outcomes.bills <= cut[1])]


_SEARCH_RUNS = 200_000  # more runs than this go to the measurement, which is what tightens the bound


@dataclass(frozen=True)
class AttackFinding:
    """The privacy loss that was found and the loss that was allowed, in the claim's unit.

    If ``exact``, ``found`` was computed from the output law; otherwise it is a lower confidence bound.
    """

    pair: str
    found: float
    allowed: float
    samples: int = 0
    exact: bool = False

    @property
    def violated(self) -> bool:
        """Whether the claim is wrong (at the confidence of the audit)."""
        return self.found > self.allowed

    @property
    def share(self) -> float:
        """Fraction of the allowed loss that was found."""
        return self.found / self.allowed if self.allowed else float(self.found > 0)


def attack(pair: Pair, runs: int, *, bits: BitSource, failure_probability: float = 1e-3) -> AttackFinding:
    """Bound the loss of this pair from below; the bound is too high with probability at most ``failure_probability``.

    A quarter of the runs (at most 200,000 per side) choose one event per direction. The other runs measure it with
    Clopper-Pearson bounds. The two directions and the two bounds of each share the failure probability. The number of
    events compared in the search needs no correction, because the measurement uses fresh runs.

    >>> from expost.core import PureGuarantee
    >>> from expost.noise.bits import SeededBits
    >>> biased = lambda one_in: lambda runs, bits: Outcomes.of(bits.words(runs, np.uint8) % one_in == 0)
    >>> pair = Pair("two coins", PureGuarantee(0.1), biased(2), biased(4))
    >>> attack(pair, 20_000, bits=SeededBits(1)).violated
    True
    """
    if runs < 100:
        raise InvalidRequest("Expected at least 100 runs", got=runs, do="Ask for more runs")
    left, right = pair.left(runs, bits), pair.right(runs, bits)
    risk = failure_probability / 4  # two directions, and a bound on either side of each
    search = min(runs // 4, _SEARCH_RUNS)
    events = find_events(pair, left.rows(0, search), right.rows(0, search), failure_probability=risk)
    ours, theirs = left.rows(search, runs), right.rows(search, runs)
    findings = []
    for event, (likely, rare) in zip(events, ((ours, theirs), (theirs, ours)), strict=False):
        counts = event.count_groups(likely), event.count_groups(rare)
        bound = _bound_from_counts(pair.claim, counts, (len(likely), len(rare)), risk)
        findings.append(AttackFinding(pair.name, bound, event.allowed, samples=2 * runs))
    return max(findings, key=lambda finding: finding.found - finding.allowed)
