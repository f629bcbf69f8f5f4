"""An event tree as a plain sum: what can happen to one unit, without order, nesting or repetition.

Sequences and repetitions become counts of leaves, so "repeat n" and "listed n times" are one and the same value before
any accountant sees them. Parallel parts become alternatives: a unit passes through one part of each.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from expost.accounting.amplification import amplified_epsilon
from expost.accounting.events import (
    ApproxEvent,
    ConcentratedEvent,
    Event,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.rounding import sqrt_down
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest

__all__ = ["Scenario", "check_adjacency", "scenarios"]

_NEARLY_ALL = 1 - Fraction(1, 2**40)  # a rate above it saves less than the rounding of its formulas costs
_MOST = 10_000  # alternatives a unit may have


@dataclass(frozen=True)
class Scenario:
    """Leaves with their counts, and the pure ex-post part: what it cost and what it could have cost.

    >>> scenarios(Sequence([Repeat(PureEvent(1), 2), PureEvent(1)]))[0].leaves
    ((PureEvent(epsilon=Fraction(1, 1)), 3),)
    """

    leaves: tuple[tuple[Event, int], ...] = ()
    loss: Fraction = Fraction(0)
    cap: Fraction = Fraction(0)

    def joined(self, other: Scenario) -> Scenario:
        """Both, one after the other."""
        counts = Counter(dict(self.leaves))
        counts.update(dict(other.leaves))
        return Scenario(_ordered(counts), self.loss + other.loss, self.cap + other.cap)

    def times(self, count: int) -> Scenario:
        """This, ``count`` times."""
        if count == 0:
            return Scenario()
        leaves = tuple((leaf, number * count) for leaf, number in self.leaves)
        return Scenario(leaves, self.loss * count, self.cap * count)

    def at_most(self, other: Scenario) -> bool:
        """Whether everything in here is also in the other one."""
        counts = dict(other.leaves)
        inside = all(number <= counts.get(leaf, 0) for leaf, number in self.leaves)
        return inside and self.loss <= other.loss and self.cap <= other.cap


def scenarios(event: Event) -> tuple[Scenario, ...]:
    """Everything that the event can be for one unit; more than one only where parts are parallel.

    >>> len(scenarios(Parallel([PureEvent(1), GaussianEvent(1)])))
    2
    """
    if event.is_leaf:
        return (Scenario() if _is_free(event) else Scenario(((event, 1),)),)
    match event:
        case Sequence(events):
            return functools.reduce(_both, map(scenarios, events), (Scenario(),))
        case Repeat(inner, count):
            return _repeated(scenarios(inner), count)
        case Parallel(events):
            return _distinct(itertools.chain.from_iterable(map(scenarios, events))) or (Scenario(),)
        case PoissonSampled(rate, inner) if inner.is_leaf and 0 < rate < _NEARLY_ALL and not _is_free(inner):
            return (Scenario(((event, 1),)),)
        case PoissonSampled() | SampledWithoutReplacement():
            return _distinct(_sampled(event, scenario) for scenario in scenarios(event.event))
        case ExPostEvent(loss, cap):
            return (Scenario((), loss, cap),)
    raise InvalidRequest("Expected an event that can be taken apart", got=event.kind, do="Mark it as a leaf")


def check_adjacency(event: Event, adjacency: Adjacency) -> None:
    """Refuse an event whose theorem is for the other adjacency: the two are never mixed in one account."""
    if event.is_leaf:
        return
    replace = adjacency is Adjacency.REPLACE_ONE
    match event:
        case PoissonSampled(_, inner):
            if replace:
                raise _wrong_adjacency("Poisson sampling", Adjacency.ADD_REMOVE)
            check_adjacency(inner, adjacency)
        case SampledWithoutReplacement(_, _, inner):
            if not replace:
                raise _wrong_adjacency("sampling without replacement", Adjacency.REPLACE_ONE)
            check_adjacency(inner, adjacency)
        case Parallel(events, fixed_parts):
            if replace and not fixed_parts:
                raise InvalidRequest(
                    "Expected parts that a replacement cannot change",
                    do="Pass fixed_parts=True if the part of each unit is public, or account under add-remove",
                )
            for part in events:
                check_adjacency(part, adjacency)
        case Sequence(events):
            for part in events:
                check_adjacency(part, adjacency)
        case Repeat(inner):
            check_adjacency(inner, adjacency)


def _is_free(event: Event) -> bool:
    match event:
        case PureEvent(epsilon) | ExponentialEvent(epsilon):
            return epsilon == 0
        case ApproxEvent(epsilon, delta):
            return epsilon == delta == 0
        case ConcentratedEvent(rho):
            return rho == 0
    return False


def _wrong_adjacency(what: str, needed: Adjacency) -> InvalidRequest:
    return InvalidRequest(f"Expected {needed.value} adjacency for {what}", do=f'Pass adjacency="{needed.value}"')


def _both(left: tuple[Scenario, ...], right: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    _check_number(len(left) * len(right))
    return _distinct(one.joined(two) for one in left for two in right)


def _repeated(alternatives: tuple[Scenario, ...], count: int) -> tuple[Scenario, ...]:
    """A unit may pass through another part each time, so every split of the count is an alternative."""
    if len(alternatives) == 1:
        return (alternatives[0].times(count),)
    _check_number(math.comb(count + len(alternatives) - 1, count))
    splits = itertools.combinations(range(count + len(alternatives) - 1), len(alternatives) - 1)
    return _distinct(_mixed(alternatives, count, bars) for bars in splits)


def _mixed(alternatives: tuple[Scenario, ...], count: int, bars: tuple[int, ...]) -> Scenario:
    """Stars and bars: alternative i happens as often as there are stars before bar i."""
    edges = (-1, *bars, count + len(alternatives) - 1)
    times = (high - low - 1 for low, high in itertools.pairwise(edges))
    return functools.reduce(Scenario.joined, (one.times(n) for one, n in zip(alternatives, times, strict=True)))


def _check_number(number: int) -> None:
    if number > _MOST:
        raise InvalidRequest(
            f"Expected at most {_MOST} ways of one unit through the parallel parts", do="Merge parts of equal cost"
        )


def _distinct(found: Iterable[Scenario]) -> tuple[Scenario, ...]:
    """Without repeats and, while they are few, without those contained in another."""
    unique = tuple(sorted(set(found), key=repr))
    if len(unique) > 100:
        return unique
    return tuple(one for one in unique if not any(one != two and one.at_most(two) for two in unique))


def _sampled(event: PoissonSampled | SampledWithoutReplacement, inner: Scenario) -> Scenario:
    """One sampled scenario as a leaf; a pure ex-post one stays ex post (docs/proofs/ex-post-composition.md)."""
    if event.rate == 0 or inner == Scenario():
        return Scenario()
    if event.rate >= _NEARLY_ALL:
        return inner
    if not inner.leaves:
        loss, cap = (amplified_epsilon(amount, event.rate) for amount in (inner.loss, inner.cap))
        return Scenario((), loss, cap)
    # Beside other leaves the ex-post part is one more pure event at its cap, known before the run.
    leaves = inner.joined(Scenario(((PureEvent(inner.cap), 1),))).leaves if inner.cap else inner.leaves
    return Scenario(((_with_inner(event, _single(leaves)), 1),))


def _with_inner(event: PoissonSampled | SampledWithoutReplacement, inner: Event) -> Event:
    if isinstance(event, SampledWithoutReplacement):
        return SampledWithoutReplacement(event.sample_size, event.population_size, inner)
    if isinstance(inner, PoissonSampled):
        # A Poisson sample of a Poisson sample is one.
        return PoissonSampled(event.rate * inner.rate, inner.event)
    return PoissonSampled(event.rate, inner)


def _single(leaves: tuple[tuple[Event, int], ...]) -> Event:
    """The leaves as one event; Gaussian ones on the same sample are one Gaussian, since mu squared adds."""
    if all(isinstance(leaf, GaussianEvent) for leaf, _ in leaves):
        if len(leaves) == 1 and leaves[0][1] == 1:
            return leaves[0][0]
        mu_squared = sum(number * leaf.mu_squared for leaf, number in leaves if isinstance(leaf, GaussianEvent))
        return GaussianEvent(sqrt_down(1 / Fraction(mu_squared)))
    parts = [leaf if number == 1 else Repeat(leaf, number) for leaf, number in leaves]
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _ordered(counts: Counter[Event]) -> tuple[tuple[Event, int], ...]:
    """One order everywhere, so that equal sums of floats are equal to the last bit."""
    return tuple(sorted(((leaf, number) for leaf, number in counts.items() if number), key=_text))


def _text(pair: tuple[Event, int]) -> str:
    return json.dumps(pair[0].to_json(), sort_keys=True)
