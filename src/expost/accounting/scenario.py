"""An event tree as a plain sum: everything that can happen to one unit, without order, nesting or repetition.

Sequences and repetitions become counts of leaves, so "repeat n" and "listed n times" are one value before any currency
prices them. Parallel parts become alternatives: a unit passes through one part of each.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from expost.accounting.amplification import amplified_epsilon
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    Mixture,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.rounding import sqrt_down
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest

__all__ = ["Scenario", "event_under", "list_scenarios"]

_NEARLY_ALL = 1 - Fraction(1, 2**40)  # a rate above it saves less than the rounding of its formulas costs
_MOST = 10_000  # alternatives a unit may have
_FEW = 100  # alternatives among which those contained in another are dropped

SampledEvent = PoissonSampled | SampledWithoutReplacement


@dataclass(frozen=True)
class Scenario:
    """Leaves with their counts, and the pure ex-post part: what it cost and what it could have cost.

    ``span`` is what refinements of earlier releases can lose on top of ``loss`` and ``cap``, seen as steps by themselves.

    >>> list_scenarios(Sequence([Repeat(PureEvent(1), 2), PureEvent(1)]))[0].leaves
    ((PureEvent(epsilon=Fraction(1, 1)), 3),)
    """

    leaves: tuple[tuple[PrivacyEvent, int], ...] = ()
    loss: Fraction = Fraction(0)
    cap: Fraction = Fraction(0)
    span: Fraction = Fraction(0)

    def joined(self, other: Scenario) -> Scenario:
        """Return both, one after the other."""
        counts = Counter(dict(self.leaves))
        counts.update(dict(other.leaves))
        kept = ((leaf, number) for leaf, number in counts.items() if number)
        # One order everywhere, so that equal sums of floats are equal to the last bit.
        leaves = sorted(kept, key=lambda pair: json.dumps(pair[0].to_json(), sort_keys=True))
        return Scenario(tuple(leaves), self.loss + other.loss, self.cap + other.cap, self.span + other.span)

    def times(self, count: int) -> Scenario:
        """Return this scenario, ``count`` times."""
        if count == 0:
            return Scenario()
        leaves = tuple((leaf, number * count) for leaf, number in self.leaves)
        return Scenario(leaves, self.loss * count, self.cap * count, self.span * count)

    def at_most(self, other: Scenario) -> bool:
        """Return whether everything in this scenario is also in the other one."""
        counts = dict(other.leaves)
        inside = all(number <= counts.get(leaf, 0) for leaf, number in self.leaves)
        return inside and self.loss <= other.loss and self.cap <= other.cap and self.span <= other.span


def list_scenarios(event: PrivacyEvent) -> tuple[Scenario, ...]:
    """Return everything that the event can be for one unit; more than one scenario only where parts are parallel.

    >>> len(list_scenarios(Parallel([PureEvent(1), GaussianEvent(1)])))
    2
    """
    if event.is_leaf:
        return (Scenario() if _is_free(event) else Scenario(((event, 1),)),)
    match event:
        case Sequence(events):
            return functools.reduce(_join_all, map(list_scenarios, events), (Scenario(),))
        case Repeat(inner, count):
            return _repeat_scenarios(list_scenarios(inner), count)
        case Parallel(events):
            return _drop_contained(itertools.chain.from_iterable(map(list_scenarios, events))) or (Scenario(),)
        case PoissonSampled(rate, inner) if inner.is_leaf and 0 < rate < _NEARLY_ALL and not _is_free(inner):
            return (Scenario(((event, 1),)),)
        case PoissonSampled() | SampledWithoutReplacement():
            return _drop_contained(_sample_scenario(event, scenario) for scenario in list_scenarios(event.event))
        case Mixture():
            return _mix_scenarios(event)
        case ExPostEvent(loss, cap, before):
            return (Scenario((), loss, cap, 2 * before),)
    raise InvalidRequest("Expected an event that can be taken apart", got=event.kind, do="Mark it as a leaf")


def event_under(event: PrivacyEvent, adjacency: Adjacency) -> PrivacyEvent:
    """Return the event as it is priced under an adjacency; refuse one whose theorem is for the other.

    >>> event_under(PoissonSampled(0.1, PureEvent(1)), Adjacency.REPLACE_ONE).kind
    'mixture'
    """
    if event.is_leaf:
        return event
    replaced = adjacency is Adjacency.REPLACE_ONE
    match event:
        case SampledWithoutReplacement() if not replaced:
            raise InvalidRequest(
                "Expected replace-one adjacency for sampling without replacement", do='Pass adjacency="replace-one"'
            )
        case Parallel(_, fixed_parts) if replaced and not fixed_parts:
            # A replaced unit may leave one part and enter another: both parts change, so their costs add.
            raise InvalidRequest(
                "Expected parts that a replacement cannot change",
                do="Pass fixed_parts=True if the part of each unit is public, or account under add-remove",
            )
        case PoissonSampled(rate, inner) if replaced:
            # docs/proofs/sampling.md: the worst case shows whether the unit is in the sample.
            return Mixture((event_under(inner, adjacency), Sequence()), (rate, 1 - rate))
        case Sequence(events) | Parallel(events) | Mixture(events):
            # The same object where nothing changes: this runs for every step of a training.
            found = tuple(event_under(part, adjacency) for part in events)
            return event if all(map(operator.is_, found, events)) else replace(event, events=found)
        case Repeat() | PoissonSampled() | SampledWithoutReplacement():
            inner = event_under(event.event, adjacency)
            return event if inner is event.event else replace(event, event=inner)
    return event


def _is_free(event: PrivacyEvent) -> bool:
    """Return whether a leaf costs nothing."""
    match event:
        case PureEvent(epsilon) | ExponentialEvent(epsilon) | PermuteAndFlipEvent(epsilon):
            return epsilon == 0
        case ApproxEvent(epsilon, delta):
            return epsilon == delta == 0
        case ConcentratedEvent(rho):
            return rho == 0
    return False


def _join_all(left: tuple[Scenario, ...], right: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    """Join every alternative of one event with every alternative of the next."""
    _check_number(len(left) * len(right))
    return _drop_contained(one.joined(two) for one in left for two in right)


def _repeat_scenarios(alternatives: tuple[Scenario, ...], count: int) -> tuple[Scenario, ...]:
    """Repeat an event. A unit may pass through another part each time, so every split of the count is possible."""
    if len(alternatives) == 1:
        return (alternatives[0].times(count),)
    last = count + len(alternatives) - 1
    _check_number(math.comb(last, count))
    found = []
    # Stars and bars: alternative i happens as often as there are stars before bar i.
    for bars in itertools.combinations(range(last), len(alternatives) - 1):
        times = (high - low - 1 for low, high in itertools.pairwise((-1, *bars, last)))
        parts = (one.times(number) for one, number in zip(alternatives, times, strict=True))
        found.append(functools.reduce(Scenario.joined, parts))
    return _drop_contained(found)


def _check_number(number: int) -> None:
    """Refuse trees with too many alternatives."""
    if number > _MOST:
        raise InvalidRequest(
            f"Expected at most {_MOST} combinations of parallel parts for one unit", do="Merge parts of equal cost"
        )


def _drop_contained(found: Iterable[Scenario]) -> tuple[Scenario, ...]:
    """Drop repeats and, while there are few scenarios, those contained in another."""
    unique = tuple(sorted(set(found), key=repr))
    if len(unique) > _FEW:
        return unique
    # What is contained in another scenario costs no more, so it never sets the maximum.
    return tuple(one for one in unique if not any(one != two and one.at_most(two) for two in unique))


def _sample_scenario(event: SampledEvent, inner: Scenario) -> Scenario:
    """Turn a sampled scenario into a leaf; a pure ex-post one stays ex post (docs/proofs/ex-post-composition.md)."""
    if event.rate == 0 or inner == Scenario():
        return Scenario()
    if event.rate >= _NEARLY_ALL:
        return inner
    if not inner.leaves:
        if inner.span:
            # A sample drawn anew would refine the release of another sample.
            raise InvalidRequest("Expected a refined release outside a sample", do="Price it without sampling")
        loss, cap = (amplified_epsilon(amount, event.rate) for amount in (inner.loss, inner.cap))
        return Scenario((), loss, cap)
    single = _single_event(inner)
    leaf: PrivacyEvent
    if isinstance(event, SampledWithoutReplacement):
        leaf = SampledWithoutReplacement(event.sample_size, event.population_size, single)
    elif isinstance(single, PoissonSampled):  # a Poisson sample of a Poisson sample is one
        leaf = PoissonSampled(event.rate * single.rate, single.event)
    else:
        leaf = PoissonSampled(event.rate, single)
    return Scenario(((leaf, 1),))


def _mix_scenarios(event: Mixture) -> tuple[Scenario, ...]:
    """Turn a mixture into one leaf, for each combination of what its events can be for a unit."""
    shares, alternatives = zip(*((share, list_scenarios(part)) for share, part in event.parts), strict=True)
    _check_number(math.prod(map(len, alternatives)))
    return _drop_contained(_mix_scenario(shares, chosen) for chosen in itertools.product(*alternatives))


def _mix_scenario(shares: tuple[Fraction, ...], chosen: tuple[Scenario, ...]) -> Scenario:
    """Mix one scenario of each event; pure ex-post ones stay ex post, at the largest loss and cap."""
    if len(set(chosen)) == 1:
        return chosen[0]
    if not any(each.leaves or each.span for each in chosen):
        return Scenario((), max(each.loss for each in chosen), max(each.cap for each in chosen))
    return Scenario(((Mixture(tuple(map(_single_event, chosen)), shares), 1),))


def _single_event(scenario: Scenario) -> PrivacyEvent:
    """Return a scenario as one event; its ex-post part is a pure event at its cap, known before the run."""
    most = scenario.cap + scenario.span
    return _merge_leaves(scenario.joined(Scenario(((PureEvent(most), 1),))).leaves if most else scenario.leaves)


def _merge_leaves(leaves: tuple[tuple[PrivacyEvent, int], ...]) -> PrivacyEvent:
    """Return the leaves as one event; Gaussian ones on the same sample are one Gaussian, since mu squared adds."""
    if leaves and all(isinstance(leaf, GaussianEvent) for leaf, _ in leaves):
        if len(leaves) == 1 and leaves[0][1] == 1:
            return leaves[0][0]
        mu_squared = sum(number * leaf.mu_squared for leaf, number in leaves if isinstance(leaf, GaussianEvent))
        return GaussianEvent(sqrt_down(1 / Fraction(mu_squared)))
    parts = [leaf if number == 1 else Repeat(leaf, number) for leaf, number in leaves]
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))
