"""The price of a hypothesis test: a given epsilon, or the smallest epsilon at which the test has the power asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from expost.core import BudgetExceeded, InvalidRequest, Measure, Outcome, Target, explain_arguments, share_parameters
from expost.core.rational import probability, rational
from expost.stats.hypothesis.hypothesis_input import Number, read_test_epsilon

__all__ = [
    "SIMULATED",
    "SIMULATION_FAILURE",
    "HypothesisPrice",
    "PriceTerms",
    "bound_critical_value",
    "bound_kept_tail",
    "bound_share",
    "most_larger_draws",
    "smallest_epsilon",
    "smallest_rows",
]

SIMULATION_FAILURE = 1e-4
"""The probability, over the draws of a simulation, with which a power proved by it may be wrong."""

SIMULATED = f"proved by simulation, which is wrong with probability at most {SIMULATION_FAILURE:g}"

_APPROXIMATION_ERROR = 0.02  # subtracted from a power computed from approximations before it counts
_LOWEST, _HIGHEST = 1e-6, 64.0  # range of the search for epsilon
_DIGITS = 4  # of an epsilon found by search: rounded up, so the power holds
_MOST_ROWS = 1 << 40
_ATTEMPTS, _RAISE = 40, 1.02  # epsilon rises by at least 2 % until its power is proved
_MOST_SOUGHT = 0.995
_NEARLY_SURE = 0.995  # share of the true reference's rejections that the drawn reference must repeat


@dataclass(frozen=True)
class HypothesisPrice:
    """The epsilon of a run, and what is known about the power it buys."""

    epsilon: Fraction
    outcome: Outcome = Outcome.FIXED
    basis: str | None = None
    target: Target | None = None


@dataclass(frozen=True)
class PriceTerms:
    """Either a fixed epsilon, or a power at a level, with an optional cap on epsilon.

    Examples
    --------
    >>> PriceTerms.read(epsilon=0.1).level
    Fraction(1, 20)
    >>> PriceTerms.read()
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected either epsilon or power. Pass epsilon= for a privacy level, or power= ...
    """

    epsilon: Fraction | None
    power: Fraction | None
    level: Fraction
    cap: Fraction | None

    @classmethod
    def read(
        cls, *, epsilon: object = None, power: object = None, level: object = 0.05, max_epsilon: object = None
    ) -> PriceTerms:
        """Read the terms that every test shares."""
        if (epsilon is None) == (power is None):
            raise InvalidRequest(
                "Expected either epsilon or power",
                do="Pass epsilon= for a privacy level, or power= with an effect size to get the smallest one",
            )
        found = cls(
            None if epsilon is None else read_test_epsilon(epsilon),
            None if power is None else probability(power, "power"),
            probability(level, "level"),
            None if max_epsilon is None else rational(max_epsilon, "max_epsilon"),
        )
        if found.power is not None and found.power <= found.level:
            raise InvalidRequest("Expected a power above the level", got=power, do="Ask for 0.8 at level 0.05")
        return found

    @property
    def fixed(self) -> HypothesisPrice | None:
        """Return the price of a given epsilon; None where a power was asked for."""
        return None if self.epsilon is None else HypothesisPrice(self._check_cap(self.epsilon))

    def price_exact(self, power_at: Callable[[float], float], basis: str) -> HypothesisPrice:
        """Find the smallest epsilon whose power, known exactly or from below, reaches the target."""
        return self.fixed or self._state_price(self._search_epsilon(power_at), Outcome.CERTIFIED, basis)

    def price_estimated(self, power_at: Callable[[float], float], assumption: str) -> HypothesisPrice:
        """Find the smallest epsilon for a power that is good to 0.02 under an assumption; the error is subtracted."""
        if self.fixed is not None:
            return self.fixed
        found = self._search_epsilon(lambda epsilon: power_at(epsilon) - _APPROXIMATION_ERROR)
        return self._state_price(found, Outcome.ESTIMATED, assumption)

    def price_proved(
        self, power_at: Callable[[float], float], bound_at: Callable[[float, float], float], *, basis: str
    ) -> HypothesisPrice:
        """Find the smallest epsilon by ``power_at``, then raise it until ``bound_at(epsilon, failure)`` is high enough.

        ``bound_at`` is below the true power except with probability ``failure``, over the simulation. The tries share
        ``SIMULATION_FAILURE`` as 1/2, 1/4, ... of it, so the one that succeeds is wrong with at most that probability.
        """
        if self.fixed is not None:
            return self.fixed
        assert self.power is not None
        found = self._search_epsilon(power_at)
        for attempt in range(1, _ATTEMPTS):
            bound = bound_at(float(found), SIMULATION_FAILURE / 2**attempt)
            if bound >= self.power:
                return self._state_price(self._check_cap(found), Outcome.CERTIFIED, basis)
            wanted = float(self.power) + power_at(float(found)) - bound  # compensates for the slack of the bound
            raised = _round_digits_up(float(found) * _RAISE)
            found = max(raised, smallest_epsilon(power_at, power=wanted) if wanted < _MOST_SOUGHT else raised)
        raise InvalidRequest(
            "Expected a power that can be proved by simulation", got=float(self.power), do="Ask for a little less power"
        )

    def _state_price(self, epsilon: Fraction, outcome: Outcome, basis: str) -> HypothesisPrice:
        """Return a price found for the power and level asked for."""
        assert self.power is not None
        return HypothesisPrice(epsilon, outcome, basis, Target(Measure.POWER, self.power, self.level))

    def _search_epsilon(self, power_at: Callable[[float], float]) -> Fraction:
        """Find the smallest epsilon under the cap."""
        assert self.power is not None
        return self._check_cap(smallest_epsilon(power_at, power=self.power))

    def _check_cap(self, found: Fraction) -> Fraction:
        """Return epsilon, or raise ``BudgetExceeded`` if it is above the cap."""
        if self.cap is not None and found > self.cap:
            raise BudgetExceeded(
                f"This test costs epsilon {float(found):.4g}, above max_epsilon={float(self.cap):.4g}",
                do="Raise max_epsilon, or ask for less power or a larger effect",
            )
        return found


@explain_arguments
def smallest_epsilon(power_at: Callable[[float], float], *, power: Number) -> Fraction:
    """Find the smallest epsilon at which a power function reaches a power.

    Parameters
    ----------
    power_at : callable
        ``power_at(epsilon)`` is the power of the test, rising with epsilon.
    power : float
        The power wanted, between 0 and 1.

    Returns
    -------
    Fraction
        The smallest epsilon, rounded up to four digits.

    Raises
    ------
    InvalidRequest
        If the test does not reach this power at any epsilon.

    Examples
    --------
    >>> from expost.stats.hypothesis import binomial_power
    >>> float(smallest_epsilon(lambda epsilon: binomial_power(500, 0.5, 0.6, epsilon=epsilon), power=0.9))
    0.1306
    """
    wanted = _read_power(power_at, power)
    if power_at(_HIGHEST) < wanted:
        raise InvalidRequest(
            "Expected a power that the test reaches without privacy",
            got=wanted,
            do="Bring more rows or a larger effect",
        )
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    while high - low > 10.0**-_DIGITS / 4:
        middle = (low + high) / 2
        low, high = (low, middle) if power_at(math.exp(middle)) >= wanted else (middle, high)
    return _round_digits_up(math.exp(high))


@explain_arguments
@share_parameters(smallest_epsilon)
def smallest_rows(power_at: Callable[[int], float], *, power: Number) -> int:
    """Find the fewest rows at which a power function reaches a power, or raise ``InvalidRequest`` beyond 2^40.

    Parameters
    ----------
    power_at : callable
        ``power_at(rows)`` is the power of the test, rising with the number of rows.

    Returns
    -------
    int
        The fewest rows.

    Examples
    --------
    >>> from expost.stats.hypothesis import binomial_power
    >>> smallest_rows(lambda rows: binomial_power(rows, 0.5, 0.6, epsilon=0.1), power=0.9)
    601
    """
    wanted = _read_power(power_at, power)
    high = 1
    while power_at(high) < wanted:
        high *= 2
        if high > _MOST_ROWS:
            raise InvalidRequest("Expected a reachable power", got=wanted, do="Ask for a larger effect or epsilon")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= wanted else (middle, high)
    return high


def _read_power(power_at: object, power: object) -> float:
    """Read the power wanted and check the power function."""
    wanted = float(probability(power, "power"))
    if not callable(power_at):
        raise InvalidRequest("Expected a function that returns a power", got=power_at, do="Pass e.g. a lambda")
    return wanted


def _round_digits_up(value: float) -> Fraction:
    """Round a positive number up to four digits."""
    grid = Fraction(10) ** -(_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(Fraction(value) / grid) * grid


def bound_share(hits: int, trials: int, *, failure_probability: float) -> float:
    """Return a lower confidence bound on a probability from a count of hits (CP34)."""
    if hits == 0:
        return 0.0
    return float(special.betaincinv(hits, trials - hits + 1, failure_probability))


def most_larger_draws(level: float, draws: int) -> int:
    """Return how many reference draws may be at least as large as the statistic of a test that rejects at this level.

    A p-value (1 + larger) / (1 + draws) is at most the level up to here; -1 if it never is.
    """
    return math.floor(level * (draws + 1) * (1 - 1e-12)) - 1


def bound_kept_tail(level: float, draws: int) -> tuple[float, float]:
    """Return (tail, probability with which a statistic beyond it is rejected by a drawn reference).

    If a draw is as large with probability at most ``tail``, then at most ``most_larger_draws`` of them are with the
    second number's probability: a binomial tail.

    >>> tail, sure = bound_kept_tail(0.05, 9_999)
    >>> round(tail, 4), round(sure, 4)
    (0.0445, 0.995)
    """
    most = most_larger_draws(level, draws)
    if most < 0:
        return 0.0, 0.0
    return float(special.betaincinv(most + 1, draws - most, 1 - _NEARLY_SURE)), _NEARLY_SURE


def bound_critical_value(null: Any, tail: float, *, failure_probability: float) -> float:
    """Return a value that a fresh draw exceeds with probability at most ``tail``, except with ``failure_probability``.

    The chance to exceed the r-th smallest of m draws is at most a Beta(m - r + 1, r) number, for every law (order
    statistics: the distribution function at the r-th smallest is at least the r-th smallest of m uniform numbers).
    """
    ordered = np.sort(np.asarray(null, np.float64).ravel())
    count = len(ordered)
    ranks = np.arange(max(1, math.floor(count * (1 - 2 * tail))), count + 1)
    exceeded = special.betaincinv(count - ranks + 1, ranks, 1 - failure_probability)
    enough = np.flatnonzero(exceeded <= tail)
    return math.inf if enough.size == 0 else float(ordered[ranks[enough[0]] - 1])
