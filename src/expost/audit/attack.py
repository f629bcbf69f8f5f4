"""Attack one pair of neighbors: find a bad event on some runs, measure it on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.tree import DecisionTreeClassifier

from expost.audit.privacy_claim import Claim, ExPost, bound_from_cells, bound_from_event, limit_of
from expost.core import InvalidRequest, RenyiGuarantee, ZeroConcentratedGuarantee
from expost.noise.bits import BitSource

__all__ = [
    "OutcomeEvent",
    "Features",
    "AttackFinding",
    "Outcomes",
    "Pair",
    "Partition",
    "Sampler",
    "at_least",
    "at_most",
    "attack",
    "find_events",
    "partitions",
    "repeat",
]


def at_least(hits: ArrayLike, trials: int, *, failure_probability: float) -> NDArray[Any]:
    """Return the Clopper-Pearson lower bound: the true probability is below it with at most ``failure_probability``.

    CP34: the bound solves P(Binomial(trials, bound) >= hits) = failure_probability, a quantile of a beta law.

    >>> float(at_least(1000, 1000, failure_probability=0.05).round(4))
    0.997
    """
    count = np.asarray(hits, dtype=np.float64)
    low = special.betaincinv(np.maximum(count, 1), trials - count + 1, failure_probability)
    return np.where(count > 0, low, 0.0)


def at_most(hits: ArrayLike, trials: int, *, failure_probability: float) -> NDArray[Any]:
    """Return the Clopper-Pearson upper bound, the mirror image of ``at_least``.

    >>> float(at_most(0, 1000, failure_probability=0.05).round(4))
    0.003
    """
    misses = trials - np.asarray(hits, dtype=np.float64)
    return 1.0 - at_least(misses, trials, failure_probability=failure_probability)


@dataclass(frozen=True)
class Outcomes:
    """What independent runs put out: one row a run, and for ex-post claims the bill of each.

    >>> Outcomes.of([3, 4, 5]).values.shape
    (3, 1)
    """

    values: NDArray[np.float64]
    bills: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, values: ArrayLike, bills: ArrayLike | None = None) -> Outcomes:
        """Outcomes from anything array-like; one dimension means one number a run."""
        table = np.asarray(values).astype(np.float64)
        table = table.reshape(len(table), -1)
        paid = None if bills is None else np.asarray(bills).astype(np.float64)
        if paid is not None and paid.shape != (len(table),):
            raise InvalidRequest("Expected one bill a run", do="Pass as many bills as outcomes")
        if paid is not None and np.isnan(paid).any():
            raise InvalidRequest("Expected bills that are numbers", got="nan", do="Bill in the unit of the claim")
        return cls(table, paid)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> Outcomes:
        """Some of the runs."""
        return Outcomes(self.values[start:stop], None if self.bills is None else self.bills[start:stop])


Sampler = Callable[[int, BitSource], Outcomes]


@dataclass(frozen=True)
class Pair:
    """A mechanism on two neighbouring inputs, chosen to be as bad as possible, and what it claims there.

    ``left`` and ``right`` are called with a number of runs and a source of bits. ``slow`` says that they loop in
    Python, so that a profile asks for fewer runs; ``most_runs`` caps them in the quick profile, which larger
    profiles lift (at least 100 are needed to say anything). ``one_way`` claims only that nothing is much likelier on the left.
    ``features`` adds columns to what the search for a bad event sees.

    >>> from expost.core import PureGuarantee
    >>> coin = lambda runs, bits: Outcomes.of(bits.words(runs, np.uint8) % 2)
    >>> Pair("a fair coin", PureGuarantee(1), coin, coin).name
    'a fair coin'
    """

    name: str
    claim: Claim
    left: Sampler
    right: Sampler
    slow: bool = False
    most_runs: int | None = None
    one_way: bool = False
    features: Features | None = field(default=None, repr=False)


def repeat(run: Callable[[BitSource], Any]) -> Sampler:
    """Return a sampler from a function that runs once and returns a number, a tuple, or ``(outcome, bill)`` as ``Outcomes``.

    For mechanisms without a batched way; mark the pair ``slow=True``.

    >>> from expost.noise.bits import SeededBits
    >>> len(repeat(lambda bits: 7)(3, SeededBits(1)))
    3
    """

    def sampler(runs: int, bits: BitSource) -> Outcomes:
        results = [run(bits) for _ in range(runs)]
        if results and isinstance(results[0], Outcomes):
            bills = [result.bills for result in results]
            paid = None if bills[0] is None else np.concatenate(bills)
            return Outcomes(np.concatenate([result.values for result in results]), paid)
        return Outcomes.of(np.array(results, dtype=np.float64))

    return sampler


_MOST_CELLS = 2000  # among more distinct outcomes than this, single ones are too rare to say much
_LEAST_SEEN = 20  # an outcome seen less often would be chosen for its luck
_LEAVES = 64
_LEVELS = 200

Features = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Partition(Protocol):
    """A numbering of outcomes."""

    @property
    def count(self) -> int:
        """How many cells there are."""
        ...

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cell of each row."""
        ...


def partitions(left: NDArray[np.float64], right: NDArray[np.float64], features: Features | None) -> Iterator[Partition]:
    """Yield the partitions worth trying on these outcomes; the whole space is one, for outcomes that only one side has."""
    yield _Whole()
    values = np.concatenate([left, right])
    distinct = _Distinct.learn(values)
    if distinct is not None:
        yield distinct
    if len(left) and len(right):
        yield _Tree.learn(values, np.r_[np.zeros(len(left)), np.ones(len(right))], features)
    if len(values) and features is not None:
        yield _Levels.learn(values, features)


@dataclass(frozen=True)
class _Whole:
    """One cell."""

    count: int = 1

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        return np.zeros(len(values), dtype=np.intp)


@dataclass(frozen=True)
class _Levels:
    """Outcomes by the first of the pair's own features, such as a likelihood ratio: between two quantiles a cell."""

    edges: NDArray[np.float64]
    features: Features

    @property
    def count(self) -> int:
        return len(self.edges) + 1

    @classmethod
    def learn(cls, values: NDArray[np.float64], features: Features) -> _Levels:
        first = features(values).reshape(len(values), -1)[:, 0]
        return cls(np.unique(np.quantile(first, np.linspace(0, 1, _LEVELS))), features)

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        return np.searchsorted(self.edges, self.features(values).reshape(len(values), -1)[:, 0])


@dataclass(frozen=True)
class _Distinct:
    """Each outcome seen often enough to judge is a cell of its own, all others together are one more."""

    known: NDArray[Any]

    @property
    def count(self) -> int:
        return len(self.known) + 1

    @classmethod
    def learn(cls, values: NDArray[np.float64]) -> _Distinct | None:
        outcomes, counts = np.unique(_packed(values), return_counts=True)
        known = outcomes[counts >= _LEAST_SEEN]
        return cls(known) if 0 < len(known) <= _MOST_CELLS else None

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        packed = _packed(values)
        place = np.minimum(np.searchsorted(self.known, packed), len(self.known) - 1)
        return np.where(self.known[place] == packed, place, len(self.known))


def _packed(values: NDArray[np.float64]) -> NDArray[Any]:
    """Each row as one scalar that sorts and compares."""
    rows = np.ascontiguousarray(values + 0.0)  # + 0.0 turns -0.0 into 0.0
    return rows.ravel() if rows.shape[1] == 1 else rows.view(f"S{8 * rows.shape[1]}").ravel()


@dataclass(frozen=True)
class _Tree:
    """The leaves of a small classification tree that learned to tell the two inputs apart."""

    tree: DecisionTreeClassifier
    features: Features | None

    @property
    def count(self) -> int:
        return int(self.tree.tree_.node_count)

    @classmethod
    def learn(cls, values: NDArray[np.float64], label: NDArray[Any], features: Features | None) -> _Tree:
        smallest = max(20, len(values) // 2000)
        tree = DecisionTreeClassifier(max_leaf_nodes=_LEAVES, min_samples_leaf=smallest, random_state=0)
        return cls(tree.fit(_columns(values, features), label), features)

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        leaves: NDArray[np.intp] = self.tree.apply(_columns(values, self.features))
        return leaves


def _columns(values: NDArray[np.float64], features: Features | None) -> NDArray[np.float64]:
    """Return what the tree may split on: the outcome itself, then what an attacker would compute from it."""
    columns = [values]
    if values.shape[1] > 1:
        columns.append(values - np.roll(values, 1, axis=1))
        columns.append(np.c_[values.mean(axis=1), values.std(axis=1), np.abs(values).max(axis=1)])
    columns.append(_lowest_bit(values))
    if features is not None:
        columns.append(features(values).reshape(len(values), -1))
    return np.clip(np.concatenate(columns, axis=1), -1e30, 1e30)  # trees work in float32


def _lowest_bit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the exponent of the last set bit of each fraction: where textbook float noise leaks (Mir12); 0 for integers."""
    fractional = values != np.floor(values)
    lowest = np.zeros_like(values)
    if fractional.any():
        mantissa, exponent = np.frexp(values[fractional])
        digits = np.ldexp(mantissa, 53).astype(np.int64)
        lowest[fractional] = exponent - 53 + np.log2((digits & -digits).astype(np.float64))
    return lowest


_SLICES = 12  # bills that are looked at one by one
_ENOUGH = 10_000  # outcomes a side that are enough to learn from
_GROUPS = (8, 24, 64)  # events that a divergence is summed over

Cut = tuple[float, float]  # the lowest and the highest bill of a slice


@dataclass(frozen=True)
class OutcomeEvent:
    """A set of outcomes, none of them billed above ``allowed`` (the claim itself, except ex post).

    ``groups`` numbers the cells of the partition; cells of -1 are outside. Several groups are several events at once.

    >>> OutcomeEvent.__dataclass_fields__["allowed"].name
    'allowed'
    """

    partition: Partition
    groups: NDArray[np.intp]
    allowed: float
    cut: Cut | None = None

    def hits(self, outcomes: Outcomes) -> int:
        """Return how many of these runs fell into the event."""
        return int(self.counts(outcomes).sum())

    def counts(self, outcomes: Outcomes) -> NDArray[np.intp]:
        """Return the same for each group."""
        inside = self.groups[self.partition.cells(_kept(outcomes, self.cut))]
        return np.bincount(inside[inside >= 0], minlength=int(self.groups.max()) + 1)

    def bound(self, claim: Claim, likely: Outcomes, rare: Outcomes, *, failure_probability: float) -> float:
        """Return the least loss compatible with these outcomes, too high with at most twice the failure probability."""
        counts = self.counts(likely), self.counts(rare)
        return _bound_of(claim, counts, (len(likely), len(rare)), failure_probability)


def find_events(pair: Pair, left: Outcomes, right: Outcomes, *, failure_probability: float) -> tuple[OutcomeEvent, ...]:
    """One event a direction: where left is likely, and unless the claim is one-way where right is.

    Each is the one whose bound exceeds what is allowed by most, judged on these outcomes (never use them again).
    """
    best: list[tuple[float, OutcomeEvent] | None] = [None] if pair.one_way else [None, None]
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
                        best[way] = bound - allowed, OutcomeEvent(partition, groups, allowed, cut)
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
    """Return the loss that the hits of each group prove; the groups share the failure probability."""
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
    """Return the best union of cells; by Neyman and Pearson only those of the highest likelihood ratios are searched."""
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


_SEARCH_RUNS = 200_000  # more runs than this go to the measurement, which is what tightens the bound
_DIRECTIONS = 2


@dataclass(frozen=True)
class AttackFinding:
    """The privacy loss that was found and the one that was allowed there, in the claim's unit.

    ``exact`` says that ``found`` was computed from the output law; else it is a lower confidence bound.

    >>> AttackFinding("pair", found=1.2, allowed=1.0, samples=1000).violated
    True
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
        """How much of what was allowed was found."""
        return self.found / self.allowed if self.allowed else float(self.found > 0)


def attack(pair: Pair, runs: int, *, bits: BitSource, failure_probability: float = 1e-3) -> AttackFinding:
    """Return a bound on the loss of this pair that is too high with probability at most ``failure_probability``.

    A quarter of the runs (at most 200,000 a side) choose one event a direction, the others measure it with
    Clopper-Pearson bounds; the probability is shared between the two directions and the two bounds of each, so the
    number of events compared in the search needs no further correction.

    >>> import numpy as np
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
    risk = failure_probability / _DIRECTIONS / 2
    search = min(runs // 4, _SEARCH_RUNS)
    events = find_events(pair, left.rows(0, search), right.rows(0, search), failure_probability=risk)
    ours, theirs = left.rows(search, runs), right.rows(search, runs)
    findings = [
        _measure(pair, event, *sides, risk)
        for event, sides in zip(events, ((ours, theirs), (theirs, ours)), strict=False)
    ]
    worst = max(findings, key=lambda finding: finding.found - finding.allowed)
    return replace(worst, samples=2 * runs)


def _measure(pair: Pair, event: OutcomeEvent, likely: Outcomes, rare: Outcomes, risk: float) -> AttackFinding:
    """Return the bound that fresh outcomes give for an event chosen before."""
    return AttackFinding(pair.name, event.bound(pair.claim, likely, rare, failure_probability=risk), event.allowed)
