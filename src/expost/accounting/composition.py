"""The composition theorems by name: basic, advanced, and the optimal one for equal steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from expost.accounting import approx
from expost.accounting.gaussian import smallest_epsilon
from expost.accounting.rounding import MARGIN, SMALLEST, Floats, float_down, float_up
from expost.accounting.scenario import Scenario
from expost.accounting.tails import bound_by_epsilons
from expost.core.errors import InvalidRequest
from expost.core.rational import probability, rational

__all__ = ["HomogeneousTotal", "advanced_composition", "basic_composition", "optimal_composition", "total"]

_LARGEST_EPSILON = 700.0  # of advanced composition: beyond, its exponential is no float
_MOST_STEPS = 200_000  # one array of this length is summed per evaluation


def basic_composition(epsilon: float | Fraction, count: int, *, delta: float | Fraction = 0) -> tuple[float, float]:
    """(k epsilon, k delta) (DR14, Theorem 3.16).

    >>> basic_composition(0.1, 100)
    (10.0, 0.0)
    """
    steps = _steps(count)
    return (
        float_up(rational(epsilon, "epsilon", positive=False) * steps),
        float_up(rational(delta, "delta", positive=False) * steps),
    )


def advanced_composition(
    epsilon: float | Fraction, count: int, *, slack: float | Fraction, delta: float | Fraction = 0
) -> tuple[float, float]:
    """The epsilon e sqrt(2 k ln(1/slack)) + k e (exp(e) - 1), at k delta + slack (DRV10, Theorem III.3).

    For comparison: the optimal theorem and every other currency here are tighter.

    >>> round(advanced_composition(0.1, 100, slack=1e-6)[0], 2)
    6.31
    """
    e, steps = float_up(rational(epsilon, "epsilon", positive=False)), _steps(count)
    spare = probability(slack, "slack")
    if e > _LARGEST_EPSILON:
        raise InvalidRequest(
            f"Expected epsilon of at most {_LARGEST_EPSILON:g}", got=epsilon, do="Use basic_composition"
        )
    value = e * math.sqrt(2 * steps * math.log(1 / float_down(spare))) + steps * e * math.expm1(e)
    return value * (1 + MARGIN), float_up(rational(delta, "delta", positive=False) * steps + spare)


def optimal_composition(
    epsilon: float | Fraction, count: int, *, at_delta: float | Fraction, delta: float | Fraction = 0
) -> float:
    """The smallest epsilon of ``count`` mechanisms, each (epsilon, delta)-private, at ``at_delta`` (KOV15, Theorem 3.3).

    >>> optimal_composition(0.1, 100, at_delta=1e-6) < 5.22
    True
    """
    one = rational(epsilon, "epsilon", positive=False), rational(delta, "delta", positive=False)
    if _steps(count) > _MOST_STEPS:
        raise InvalidRequest(f"Expected at most {_MOST_STEPS} mechanisms", got=count, do="Account in another currency")
    return HomogeneousTotal(*one, count).epsilon(probability(at_delta, "at_delta"))


@dataclass(frozen=True)
class HomogeneousTotal:
    """``count`` mechanisms of one (epsilon, delta): the exact optimum over all of them.

    >>> HomogeneousTotal(Fraction(1), Fraction(0), 1).delta(Fraction(1))
    0.0
    """

    amount: Fraction
    failure: Fraction
    count: int

    def epsilon(self, delta: Fraction) -> float:
        """The smallest epsilon at this delta."""
        if delta < self._failed():
            return math.inf
        top = float_up(self.amount * self.count)
        found = smallest_epsilon(self._delta, float_down(delta)) if delta else top
        return min(found, top)

    def delta(self, epsilon: Fraction) -> float:
        """The exact delta at this epsilon, rounded up."""
        return self._delta(float_down(epsilon))

    def loss_bound(self, chance: Fraction) -> float:
        """The loss that is exceeded with this probability at most."""
        return bound_by_epsilons(self.epsilon, self._failed(), chance)

    def _failed(self) -> Fraction:
        # 1 - (1 - d)^k, bounded by k d: exact powers of long fractions would be slow.
        return min(self.failure * self.count, Fraction(1))

    def _delta(self, epsilon: float) -> float:
        """sum_l C(k, l) e^((k - l) e) / (1 + e^e)^k (1 - e^(epsilon - (k - 2l) e))_+ , all terms non-negative."""
        losses, masses, error, failed = self._law
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        value = float(np.dot(masses, gains)) * (1 + error) + (SMALLEST if epsilon < losses[0] else 0.0)
        return min(1.0, failed + value)

    @cached_property
    def _law(self) -> tuple[Floats, Floats, float, float]:
        """The losses, their masses, the relative error of a sum over them, and the probability of failure."""
        e, k = float_up(self.amount), self.count
        losers = np.arange(k + 1, dtype=np.float64)
        log_mass = gammaln(k + 1) - gammaln(losers + 1) - gammaln(k - losers + 1)
        log_mass += (k - losers) * e - k * (e + math.log1p(math.exp(-e)))
        # The logarithms have absolute errors of a few ulps of their largest term.
        error = 2.0**-49 * (4 + float(gammaln(k + 1)) + k * (e + 1))
        return (k - 2 * losers) * e, np.exp(log_mass), error, float_up(self._failed())


def total(scenario: Scenario) -> HomogeneousTotal | None:
    """The optimum where all leaves are one (epsilon, delta) mechanism, else None."""
    if len(scenario.leaves) != 1:
        return None
    leaf, count = scenario.leaves[0]
    pair = approx.cost_of(leaf)
    if pair is None or count > _MOST_STEPS or pair[1] * count >= 1:
        return None
    return HomogeneousTotal(*pair, count)


def _steps(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InvalidRequest("Expected count to be a whole number >= 0", got=count, do="Pass an int")
    return count
