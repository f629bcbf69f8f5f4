"""Pure epsilon: exact, additive, and the only currency in which a refund needs no further theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from expost.accounting.amplification import amplified_epsilon
from expost.accounting.events import (
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.rounding import float_down, float_up
from expost.accounting.scenario import Scenario

__all__ = ["PureTotal", "cost_of", "total"]


@dataclass(frozen=True)
class PureTotal:
    """epsilon-differential privacy of a whole scenario.

    >>> PureTotal(Fraction(1)).epsilon(Fraction(0))
    1.0
    """

    amount: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """The epsilon at this delta: a pure mechanism post-processes randomised response (KOV15, Theorem 2.1)."""
        exact = float_up(self.amount)
        if delta == 0:
            return exact
        spared = float_down(delta) * (1 + math.exp(-exact))
        if spared >= 1:
            return 0.0
        # ln(e^E - delta (1 + e^E)) in floats: two roundings of at most 2^-52 (1 + E), covered by 2^-50.
        return max(0.0, exact + math.log1p(-spared) + 2.0**-50 * (1 + exact))

    def delta(self, epsilon: Fraction) -> float:
        """The delta at this epsilon: (e^E - e^epsilon) / (1 + e^E) for a total of E."""
        gap = self.amount - epsilon
        if gap <= 0:
            return 0.0
        return -math.expm1(-float_up(gap)) / (1 + math.exp(-float_up(self.amount))) * (1 + 2.0**-50)

    def loss_bound(self, chance: Fraction) -> float:
        """The loss that is never exceeded."""
        return float_up(self.amount)


def cost_of(event: Event) -> Fraction | None:
    """The exact pure epsilon of a leaf, or None where it has none.

    >>> cost_of(LaplaceEvent(2))
    Fraction(1, 2)
    """
    match event:
        case PureEvent(epsilon) | ExponentialEvent(epsilon):
            return epsilon
        case LaplaceEvent(noise_multiplier):
            return 1 / noise_multiplier  # DMNS06, Proposition 1
        case DiscreteLaplaceEvent():
            return event.epsilon
        case PoissonSampled() | SampledWithoutReplacement():
            inner = summed(event.event, cost_of)
            return None if inner is None else amplified_epsilon(inner, event.rate)
    return None


def total(scenario: Scenario) -> PureTotal | None:
    """The sum over all leaves (DR14, Theorem 3.14), or None where a leaf has no pure epsilon."""
    costs = [(cost_of(leaf), count) for leaf, count in scenario.leaves]
    if any(cost is None for cost, _ in costs):
        return None
    return PureTotal(sum((cost * count for cost, count in costs if cost is not None), Fraction(0)))


def summed(event: Event, cost_of_leaf: Callable[[Event], Fraction | None]) -> Fraction | None:
    """An exact cost over the sequences and repetitions inside a sampled event."""
    match event:
        case Sequence(events):
            costs = [summed(inner, cost_of_leaf) for inner in events]
            return None if None in costs else sum((cost for cost in costs if cost is not None), Fraction(0))
        case Repeat(inner, count):
            cost = summed(inner, cost_of_leaf)
            return None if cost is None else cost * count
    return cost_of_leaf(event)
