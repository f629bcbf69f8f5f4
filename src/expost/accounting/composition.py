"""Costs that add exactly: pure epsilon, (epsilon, delta) by plain sums, and the composition theorems by name.

Pure epsilon is the only currency in which a refund needs no further theorem. Sums of (epsilon, delta) are loose but hold
whatever was chosen adaptively. For equal steps the optimal composition theorem is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy

from expost.accounting.amplification import amplified_epsilon
from expost.accounting.privacy_event import (
    ApproxEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    LaplaceEvent,
    Mixture,
    PermuteAndFlipEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.rounding import MARGIN, SMALLEST, Floats, float_down, float_up, read_count
from expost.accounting.scenario import Scenario
from expost.accounting.tradeoff_curve import bound_by_epsilons, smallest_epsilon
from expost.core import explain_arguments
from expost.core.errors import InvalidRequest
from expost.core.meaning import approx_loss_bound
from expost.core.rational import probability, rational

__all__ = [
    "ApproxTotal",
    "HomogeneousTotal",
    "PureTotal",
    "add_costs",
    "advanced_composition",
    "approx_cost_of",
    "basic_composition",
    "largest_cost",
    "leaves_inside",
    "optimal_composition",
    "pure_cost_of",
    "sum_approx",
    "sum_homogeneous",
    "sum_pure",
]

_LARGEST_EPSILON = 700.0  # of advanced composition: beyond it the exponential is not a float
_MOST_STEPS = 200_000  # one array of this length is summed per evaluation

Pair = tuple[Fraction, Fraction]
CountedLeaf = tuple[PrivacyEvent, int]


@dataclass(frozen=True)
class PureTotal:
    """epsilon-differential privacy of a whole scenario.

    >>> PureTotal(Fraction(1)).epsilon(Fraction(0))
    1.0
    """

    amount: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta: a pure mechanism post-processes randomized response (KOV15, Theorem 2.1)."""
        exact = float_up(self.amount)
        if delta == 0:
            return exact
        # Randomized response has the profile (e^E - e^epsilon) / (1 + e^E), here solved for epsilon.
        spared = float_down(delta) * (1 + math.exp(-exact))
        if spared >= 1:
            return 0.0
        # ln(e^E - delta (1 + e^E)) in floats: two roundings of at most 2^-52 (1 + E), covered by 2^-50.
        return max(0.0, exact + math.log1p(-spared) + 2.0**-50 * (1 + exact))

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon: (e^E - e^epsilon) / (1 + e^E) for a total of E."""
        gap = self.amount - epsilon  # exact: a difference of floats could cancel to the unsafe side
        if gap <= 0:
            return 0.0
        # Divided by e^E above and below the line, so that a large total cannot overflow.
        return -math.expm1(-float_up(gap)) / (1 + math.exp(-float_up(self.amount))) * (1 + 2.0**-50)

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss that is never exceeded."""
        return float_up(self.amount)


@dataclass(frozen=True)
class ApproxTotal:
    """(epsilon, delta)-differential privacy of a whole scenario.

    >>> ApproxTotal(Fraction(1), Fraction(1, 1000)).epsilon(Fraction(1, 1000))
    1.0
    """

    amount: Fraction
    failure: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta; infinite below the total's own delta."""
        left = delta - self.failure
        # What is left of delta pays for randomized response (KOV15, Theorem 3.2); dividing by 1 - delta only helps.
        return math.inf if left < 0 else PureTotal(self.amount).epsilon(left)

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon."""
        return min(1.0, math.nextafter(float_up(self.failure) + PureTotal(self.amount).delta(epsilon), math.inf))

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss exceeded with at most this probability; infinite up to the total's own delta."""
        return approx_loss_bound(self.amount, self.failure, chance)


@dataclass(frozen=True)
class HomogeneousTotal:
    """The exact optimum over all compositions of ``count`` mechanisms of one (epsilon, delta).

    >>> HomogeneousTotal(Fraction(1), Fraction(0), 1).delta(Fraction(1))
    0.0
    """

    amount: Fraction
    failure: Fraction
    count: int

    def epsilon(self, delta: Fraction) -> float:
        """Return the smallest epsilon at this delta."""
        if delta < self._total_failure:
            return math.inf
        top = float_up(self.amount * self.count)  # basic composition, the limit as delta goes to zero
        found = smallest_epsilon(self._delta_at, float_down(delta)) if delta else top
        return min(found, top)

    def delta(self, epsilon: Fraction) -> float:
        """Return the exact delta at this epsilon, rounded up."""
        return self._delta_at(float_down(epsilon))

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss that is exceeded with at most this probability."""
        return bound_by_epsilons(self.epsilon, self._total_failure, chance)

    @property
    def _total_failure(self) -> Fraction:
        # 1 - (1 - d)^k, bounded by k d: exact powers of long fractions would be slow.
        return min(self.failure * self.count, Fraction(1))

    def _delta_at(self, epsilon: float) -> float:
        """Return sum_l C(k, l) e^((k - l) e) / (1 + e^e)^k (1 - e^(epsilon - (k - 2l) e))_+, all terms non-negative."""
        losses, masses, error, failed = self._loss_law
        # A mass that underflows is still positive: below the largest loss delta is never reported as zero.
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        value = float(np.dot(masses, gains)) * (1 + error) + (SMALLEST if epsilon < losses[0] else 0.0)
        return min(1.0, failed + value)

    @cached_property
    def _loss_law(self) -> tuple[Floats, Floats, float, float]:
        """The losses, their masses, the relative error of a sum over them, and the probability of failure."""
        e, k = float_up(self.amount), self.count
        # k times randomized response: l of them speak against the unit, which leaves a loss of (k - 2l) e.
        losers = np.arange(k + 1, dtype=np.float64)
        log_mass = (
            scipy.special.gammaln(k + 1) - scipy.special.gammaln(losers + 1) - scipy.special.gammaln(k - losers + 1)
        )
        log_mass += (k - losers) * e - k * (e + math.log1p(math.exp(-e)))
        # The logarithms have absolute errors of a few ulps of their largest term.
        error = 2.0**-49 * (4 + float(scipy.special.gammaln(k + 1)) + k * (e + 1))
        return (k - 2 * losers) * e, np.exp(log_mass), error, float_up(self._total_failure)


def pure_cost_of(event: PrivacyEvent) -> Fraction | None:
    """Return the exact pure epsilon of a leaf, or None where it has none.

    >>> pure_cost_of(LaplaceEvent(2))
    Fraction(1, 2)
    """
    match event:
        case PureEvent(epsilon) | ExponentialEvent(epsilon) | PermuteAndFlipEvent(epsilon):
            return epsilon
        case LaplaceEvent(noise_multiplier):
            return 1 / noise_multiplier  # DMNS06, Proposition 1
        case DiscreteLaplaceEvent():
            return event.epsilon
        case PoissonSampled() | SampledWithoutReplacement():
            # Add first, amplify once: all leaves see one sample, so what sampling saves must not be counted for each.
            inner = add_costs(leaves_inside(event.event), pure_cost_of)
            return None if inner is None else amplified_epsilon(inner, event.rate)
        case Mixture():
            return largest_cost(event, pure_cost_of)
    return None


def approx_cost_of(event: PrivacyEvent) -> Pair | None:
    """Return the exact (epsilon, delta) of a leaf, or None where it has none.

    >>> approx_cost_of(ApproxEvent(1, 1e-6))
    (Fraction(1, 1), Fraction(1, 1000000))
    """
    match event:
        case ApproxEvent(epsilon, delta):
            return epsilon, delta
        case PoissonSampled() | SampledWithoutReplacement():
            pair = _add_pairs(leaves_inside(event.event))
            if pair is None:
                return None
            # BBG18, Theorems 8 and 9, for the sum of the pairs; again only once for all of them.
            return amplified_epsilon(pair[0], event.rate), pair[1] * event.rate
        case Mixture():
            # At the largest epsilon every part has its delta; hockey-stick divergences of mixtures average.
            pairs = [(share, _add_pairs(leaves_inside(part))) for share, part in event.parts]
            known = [(share, pair) for share, pair in pairs if pair is not None]
            if len(known) < len(pairs):
                return None
            return max(pair[0] for _, pair in known), sum((share * pair[1] for share, pair in known), Fraction(0))
    epsilon_alone = pure_cost_of(event)
    return None if epsilon_alone is None else (epsilon_alone, Fraction(0))


def leaves_inside(event: PrivacyEvent, count: int = 1) -> Iterator[CountedLeaf]:
    """Yield the leaves of the sequences and repetitions inside a sampled event, each with its count."""
    match event:
        case Sequence(events):
            for inner in events:
                yield from leaves_inside(inner, count)
        case Repeat(inner, times):
            yield from leaves_inside(inner, count * times)
        case _:
            yield event, count


def largest_cost(event: Mixture, cost_of: Callable[[PrivacyEvent], Fraction | None]) -> Fraction | None:
    """Return the largest cost of the events of a mixture, or None where one has none (docs/proofs/sampling.md)."""
    costs = [add_costs(leaves_inside(part), cost_of) for _, part in event.parts]
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None


def add_costs(leaves: Iterable[CountedLeaf], cost_of: Callable[[PrivacyEvent], Fraction | None]) -> Fraction | None:
    """Add an exact cost over leaves, each as often as it counts; None where a leaf has none."""
    total = Fraction(0)
    for leaf, count in leaves:
        cost = cost_of(leaf)
        if cost is None:
            return None
        total += cost * count
    return total


def _add_pairs(leaves: Iterable[CountedLeaf]) -> Pair | None:
    """Add (epsilon, delta) over leaves, each as often as it counts; None where a leaf has no pair."""
    epsilon = delta = Fraction(0)
    for leaf, count in leaves:
        pair = approx_cost_of(leaf)
        if pair is None:
            return None
        epsilon, delta = epsilon + pair[0] * count, delta + pair[1] * count
    return epsilon, delta


def sum_pure(scenario: Scenario) -> PureTotal | None:
    """Add epsilons over all leaves (DR14, Theorem 3.14); None where a leaf has no pure epsilon."""
    amount = add_costs(scenario.leaves, pure_cost_of)
    return None if amount is None else PureTotal(amount)


def sum_approx(scenario: Scenario) -> ApproxTotal | None:
    """Add pairs over all leaves (DR14, Theorem 3.16); None where a leaf has no pair or the deltas reach 1."""
    pair = _add_pairs(scenario.leaves)
    # A delta of 1 promises nothing, so there is no total to report.
    return ApproxTotal(*pair) if pair is not None and pair[1] < 1 else None


def sum_homogeneous(scenario: Scenario) -> HomogeneousTotal | None:
    """Return the optimum where all leaves are one (epsilon, delta) mechanism, else None."""
    if len(scenario.leaves) != 1:
        return None
    leaf, count = scenario.leaves[0]
    pair = approx_cost_of(leaf)
    if pair is None or count > _MOST_STEPS or pair[1] * count >= 1:
        return None
    return HomogeneousTotal(*pair, count)


@explain_arguments
def basic_composition(epsilon: float | Fraction, count: int, *, delta: float | Fraction = 0) -> tuple[float, float]:
    """Compose by sums: (k epsilon, k delta) (DR14, Theorem 3.16).

    Parameters
    ----------
    epsilon : number >= 0
        The epsilon of each mechanism.
    count : int >= 0
        How many mechanisms there are.
    delta : number >= 0, default 0
        The delta of each mechanism.

    Returns
    -------
    tuple of float
        The epsilon and the delta of all of them, rounded up.

    Raises
    ------
    InvalidRequest
        If an argument is not a number in its range.

    Examples
    --------
    >>> basic_composition(0.1, 100)
    (10.0, 0.0)
    """
    steps = read_count(count, "count")
    return (
        float_up(rational(epsilon, "epsilon", positive=False) * steps),
        float_up(rational(delta, "delta", positive=False) * steps),
    )


@explain_arguments
def advanced_composition(
    epsilon: float | Fraction, count: int, *, slack: float | Fraction, delta: float | Fraction = 0
) -> tuple[float, float]:
    """Compose by e sqrt(2 k ln(1/slack)) + k e (exp(e) - 1), at k delta + slack (DRV10, Theorem III.3).

    For comparison: the optimal theorem and every other currency are tighter.

    Parameters
    ----------
    epsilon : number in [0, 700]
        The epsilon of each mechanism.
    count : int >= 0
        How many mechanisms there are.
    slack : number in (0, 1)
        The probability that the theorem adds to delta.
    delta : number >= 0, default 0
        The delta of each mechanism.

    Returns
    -------
    tuple of float
        The epsilon and the delta of all of them, rounded up.

    Raises
    ------
    InvalidRequest
        If an argument is not a number in its range.

    Examples
    --------
    >>> round(advanced_composition(0.1, 100, slack=1e-6)[0], 2)
    6.31
    """
    e, steps = float_up(rational(epsilon, "epsilon", positive=False)), read_count(count, "count")
    spare = probability(slack, "slack")
    if e > _LARGEST_EPSILON:
        raise InvalidRequest(
            f"Expected epsilon of at most {_LARGEST_EPSILON:g}", got=epsilon, do="Use basic_composition"
        )
    value = e * math.sqrt(2 * steps * math.log(1 / float_down(spare))) + steps * e * math.expm1(e)
    return value * (1 + MARGIN), float_up(rational(delta, "delta", positive=False) * steps + spare)


@explain_arguments
def optimal_composition(
    epsilon: float | Fraction, count: int, *, at_delta: float | Fraction, delta: float | Fraction = 0
) -> float:
    """Return the smallest epsilon of ``count`` mechanisms, each (epsilon, delta)-private (KOV15, Theorem 3.3).

    Parameters
    ----------
    epsilon : number >= 0
        The epsilon of each mechanism.
    count : int from 0 to 200,000
        How many mechanisms there are.
    at_delta : number in (0, 1)
        The delta of all of them together.
    delta : number >= 0, default 0
        The delta of each mechanism.

    Returns
    -------
    float
        The epsilon, rounded up; infinite if the deltas of the mechanisms exceed ``at_delta``.

    Raises
    ------
    InvalidRequest
        If an argument is not a number in its range.

    Examples
    --------
    >>> optimal_composition(0.1, 100, at_delta=1e-6) < 5.22
    True
    """
    one = rational(epsilon, "epsilon", positive=False), rational(delta, "delta", positive=False)
    steps = read_count(count, "count")
    if steps > _MOST_STEPS:
        raise InvalidRequest(f"Expected at most {_MOST_STEPS} mechanisms", got=count, do="Account in another currency")
    return HomogeneousTotal(*one, steps).epsilon(probability(at_delta, "at_delta"))
