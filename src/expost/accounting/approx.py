"""(epsilon, delta) by plain addition: loose, exact, and valid whatever was chosen adaptively."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from expost.accounting import pure
from expost.accounting.amplification import amplified_epsilon
from expost.accounting.events import ApproxEvent, Event, PoissonSampled, Repeat, SampledWithoutReplacement, Sequence
from expost.accounting.rounding import float_up
from expost.accounting.scenario import Scenario
from expost.core.meaning import approx_loss_bound

__all__ = ["ApproxTotal", "cost_of", "total"]

Pair = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class ApproxTotal:
    """(epsilon, delta)-differential privacy of a whole scenario.

    >>> ApproxTotal(Fraction(1), Fraction(1, 1000)).epsilon(Fraction(1, 1000))
    1.0
    """

    amount: Fraction
    failure: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """The epsilon at this delta; infinite below the total's own delta."""
        left = delta - self.failure
        # What is left of delta pays for randomised response (KOV15, Theorem 3.2); dividing by 1 - delta only helps.
        return math.inf if left < 0 else pure.PureTotal(self.amount).epsilon(left)

    def delta(self, epsilon: Fraction) -> float:
        """The delta at this epsilon."""
        return min(1.0, math.nextafter(float_up(self.failure) + pure.PureTotal(self.amount).delta(epsilon), math.inf))

    def loss_bound(self, chance: Fraction) -> float:
        """The loss that is exceeded with this probability at most; infinite up to the total's own delta."""
        return approx_loss_bound(self.amount, self.failure, chance)


def cost_of(event: Event) -> Pair | None:
    """The exact pair of a leaf, or None where it has none.

    >>> cost_of(ApproxEvent(1, 1e-6))
    (Fraction(1, 1), Fraction(1, 1000000))
    """
    match event:
        case ApproxEvent(epsilon, delta):
            return epsilon, delta
        case PoissonSampled() | SampledWithoutReplacement():
            inner = _summed(event.event)
            return None if inner is None else (amplified_epsilon(inner[0], event.rate), inner[1] * event.rate)
    epsilon_alone = pure.cost_of(event)
    return None if epsilon_alone is None else (epsilon_alone, Fraction(0))


def total(scenario: Scenario) -> ApproxTotal | None:
    """Sums over all leaves (DR14, Theorem 3.16), or None where a leaf has no pair or the deltas reach 1."""
    pairs = [(cost_of(leaf), count) for leaf, count in scenario.leaves]
    if any(pair is None for pair, _ in pairs):
        return None
    known = [(pair, count) for pair, count in pairs if pair is not None]
    failure = sum((pair[1] * count for pair, count in known), Fraction(0))
    return ApproxTotal(sum((pair[0] * count for pair, count in known), Fraction(0)), failure) if failure < 1 else None


def _summed(event: Event) -> Pair | None:
    """The pair over the sequences and repetitions inside a sampled event."""
    match event:
        case Sequence(events):
            pairs = [_summed(inner) for inner in events]
            known = [pair for pair in pairs if pair is not None]
            if len(known) < len(pairs):
                return None
            return sum((pair[0] for pair in known), Fraction(0)), sum((pair[1] for pair in known), Fraction(0))
        case Repeat(inner, count):
            once = _summed(inner)
            return None if once is None else (once[0] * count, once[1] * count)
    return cost_of(event)
