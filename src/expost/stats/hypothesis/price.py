"""The smallest epsilon, or the fewest rows, at which a test has the power asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from expost.core import BudgetExceeded, InvalidRequest, Measure, Outcome, Target
from expost.core.rational import probability, rational

__all__ = ["APPROXIMATE", "SIMULATED", "SIMULATION_FAILURE", "Ask", "Priced", "smallest_epsilon", "smallest_rows"]

_LOWEST, _HIGHEST = 1e-6, 64.0  # of a search
_LEAST, _MOST = Fraction(1, 10**9), Fraction(1000)
_DIGITS = 4  # of an epsilon found by search: rounded up, so the power holds
_MOST_ROWS = 1 << 40

APPROXIMATE = 0.02
"""What is taken off a power computed from approximations before it may promise anything."""

SIMULATION_FAILURE = 1e-4
"""The probability, over the draws of a simulation, with which a power proved by it may be wrong."""

SIMULATED = f"proved by simulation, which is wrong with probability at most {SIMULATION_FAILURE:g}"

_ATTEMPTS, _RAISE = 40, 1.02  # epsilon rises by at least 2 % until its power is proved
_MOST_SOUGHT = 0.995


@dataclass(frozen=True)
class Priced:
    """The epsilon of a run, and what is known of the power it buys.

    >>> Priced(Fraction(1, 10)).outcome
    <Outcome.FIXED: 'fixed epsilon'>
    """

    epsilon: Fraction
    outcome: Outcome = Outcome.FIXED
    basis: str | None = None

    @property
    def terms(self) -> dict[str, str]:
        """What a receipt says about the power."""
        return {} if self.basis is None else {"power": self.basis}


class Ask:
    """Either a fixed epsilon, or a power at a level with a cap on epsilon.

    >>> Ask(epsilon=0.1).level
    Fraction(1, 20)
    >>> Ask()
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected either epsilon or power. Pass epsilon= for a privacy level, or power= ...
    """

    def __init__(
        self,
        *,
        epsilon: object = None,
        power: object = None,
        level: object = 0.05,
        max_epsilon: object = None,
    ) -> None:
        if (epsilon is None) == (power is None):
            raise InvalidRequest(
                "Expected either epsilon or power",
                do="Pass epsilon= for a privacy level, or power= with an effect size to get the smallest one",
            )
        self.epsilon = None if epsilon is None else level_of(epsilon)
        self.power = None if power is None else probability(power, "power")
        self.level = probability(level, "level")
        self.cap = None if max_epsilon is None else rational(max_epsilon, "max_epsilon")
        if self.power is not None and self.power <= self.level:
            raise InvalidRequest("Expected a power above the level", got=power, do="Ask for 0.8 at level 0.05")

    @property
    def target(self) -> Target | None:
        """Power and level, when power was asked for."""
        return None if self.power is None else Target(Measure.POWER, self.power, self.level)

    @property
    def fixed(self) -> Priced | None:
        """The price before any table is seen: the epsilon given, if one was."""
        return None if self.epsilon is None else Priced(self._capped(self.epsilon))

    def exact(self, power_at: Callable[[float], float], basis: str) -> Priced:
        """The smallest epsilon whose power, known exactly or from below, reaches the target."""
        return self.fixed or Priced(self._smallest(power_at), Outcome.CERTIFIED, basis)

    def estimated(self, power_at: Callable[[float], float], assumption: str) -> Priced:
        """The same for a power good to about ``APPROXIMATE``, which is taken off, if an assumption holds."""
        return self.fixed or Priced(
            self._smallest(lambda epsilon: power_at(epsilon) - APPROXIMATE), Outcome.ESTIMATED, assumption
        )

    def proved(
        self, power_at: Callable[[float], float], bound_at: Callable[[float, float], float], *, basis: str
    ) -> Priced:
        """The smallest epsilon found by ``power_at``, raised until ``bound_at(epsilon, failure)`` reaches the target.

        ``bound_at`` is below the true power except with probability ``failure``, over the simulation. The tries share
        ``SIMULATION_FAILURE`` as 1/2, 1/4, ... of it, so the one that succeeds is wrong with at most that probability.
        """
        if self.fixed is not None:
            return self.fixed
        assert self.power is not None
        found = self._smallest(power_at)
        for attempt in range(1, _ATTEMPTS):
            bound = bound_at(float(found), SIMULATION_FAILURE / 2**attempt)
            if bound >= self.power:
                return Priced(self._capped(found), Outcome.CERTIFIED, basis)
            wanted = float(self.power) + power_at(float(found)) - bound  # what the bound loses is made up for
            raised = _rounded_up(float(found) * _RAISE)
            found = max(raised, smallest_epsilon(power_at, power=wanted) if wanted < _MOST_SOUGHT else raised)
        raise InvalidRequest(
            "Expected a power that can be proved by simulation", got=float(self.power), do="Ask for a little less power"
        )

    def _smallest(self, power_at: Callable[[float], float]) -> Fraction:
        assert self.power is not None
        return self._capped(smallest_epsilon(power_at, power=self.power))

    def _capped(self, found: Fraction) -> Fraction:
        if self.cap is not None and found > self.cap:
            raise BudgetExceeded(
                f"Expected a test that costs at most epsilon {float(self.cap):.4g}",
                got=f"epsilon {float(found):.4g}",
                do="Raise max_epsilon, or ask for less power or a larger effect",
            )
        return found


def level_of(epsilon: object) -> Fraction:
    """The epsilon that a caller typed, if exact noise can have it in any test.

    The noise of a test is of a sensitivity from 1 to 2^26 (rank correlation of 2^25 rows), and at least an eighth of
    epsilon is for it: with these limits its scale is below 2^60 and its rate at most 1000, as ``check_level`` wants.

    >>> level_of(0.5)
    Fraction(1, 2)
    """
    level = rational(epsilon, "epsilon")
    if not _LEAST <= level <= _MOST:
        raise InvalidRequest("Expected epsilon between 1e-9 and 1000", got=epsilon, do="Pass one between them")
    return level


def smallest_epsilon(power_at: Callable[[float], float], *, power: object) -> Fraction:
    """The smallest epsilon at which a power function reaches ``power``, rounded up to four digits.

    >>> from expost.stats.hypothesis.binomial import binomial_power
    >>> float(smallest_epsilon(lambda epsilon: binomial_power(500, 0.5, 0.6, epsilon=epsilon), power=0.9))
    0.1306
    """
    wanted = float(probability(power, "power"))
    _check_callable(power_at)
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
    return _rounded_up(math.exp(high))


def smallest_rows(power_at: Callable[[int], float], *, power: object) -> int:
    """The fewest rows at which a power function of the number of rows reaches ``power``.

    >>> from expost.stats.hypothesis.binomial import binomial_power
    >>> smallest_rows(lambda rows: binomial_power(rows, 0.5, 0.6, epsilon=0.1), power=0.9)
    601
    """
    wanted = float(probability(power, "power"))
    _check_callable(power_at)
    high = 2
    while power_at(high) < wanted:
        high *= 2
        if high > _MOST_ROWS:
            raise InvalidRequest("Expected a reachable power", got=wanted, do="Ask for a larger effect or epsilon")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= wanted else (middle, high)
    return high


def _check_callable(power_at: object) -> None:
    if not callable(power_at):
        raise InvalidRequest("Expected a function that gives a power", got=power_at, do="Pass e.g. a lambda")


def _rounded_up(value: float) -> Fraction:
    places = _DIGITS - 1 - math.floor(math.log10(value))
    grid = Fraction(10) ** -places
    return math.ceil(Fraction(value) / grid) * grid
