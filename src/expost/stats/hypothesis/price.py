"""The smallest epsilon, or the fewest rows, at which a test has the power asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from expost.core import BudgetExceeded, InvalidRequest
from expost.core.rational import probability, rational

__all__ = ["APPROXIMATE", "Ask", "smallest_epsilon", "smallest_rows"]

_LOWEST, _HIGHEST = 1e-6, 64.0
_DIGITS = 4  # of an epsilon found by search: rounded up, so the power holds
_MOST_ROWS = 1 << 40

APPROXIMATE = 0.02
"""What is taken off a power computed from approximations before it may promise anything."""


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
        self.epsilon = None if epsilon is None else rational(epsilon, "epsilon")
        self.power = None if power is None else probability(power, "power")
        self.level = probability(level, "level")
        self.cap = None if max_epsilon is None else rational(max_epsilon, "max_epsilon")
        if self.power is not None and self.power <= self.level:
            raise InvalidRequest("Expected a power above the level", got=power, do="Ask for 0.8 at level 0.05")

    @property
    def promised(self) -> tuple[Fraction, Fraction] | None:
        """Power and level, when power was asked for."""
        return None if self.power is None else (self.power, self.level)

    def price(self, power_at: Callable[[float], float]) -> Fraction:
        """The epsilon of the run: the one given, or the smallest whose power reaches the target, within the cap."""
        if self.epsilon is not None:
            found = self.epsilon
        else:
            assert self.power is not None
            found = smallest_epsilon(power_at, power=self.power)
        if self.cap is not None and found > self.cap:
            raise BudgetExceeded(
                f"Expected a test that costs at most epsilon {float(self.cap):.4g}",
                got=f"epsilon {float(found):.4g}",
                do="Raise max_epsilon, or ask for less power or a larger effect",
            )
        return found


def smallest_epsilon(power_at: Callable[[float], float], *, power: object) -> Fraction:
    """The smallest epsilon at which a power function reaches ``power``, rounded up to four digits.

    >>> from expost.stats.hypothesis.binomial import binomial_power
    >>> float(smallest_epsilon(lambda epsilon: binomial_power(500, 0.5, 0.6, epsilon=epsilon), power=0.9))
    0.1306
    """
    wanted = float(probability(power, "power"))
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


def _rounded_up(value: float) -> Fraction:
    places = _DIGITS - 1 - math.floor(math.log10(value))
    grid = Fraction(10) ** -places
    return math.ceil(Fraction(value) / grid) * grid
