"""How much noise each phase of a training has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from expost.accounting import Event, noise_multiplier_for
from expost.accounting import Sequence as Events
from expost.core import InvalidRequest, approx
from expost.learning.sgd.batches import Batches, Poisson
from expost.learning.sgd.prices import PriceList, price_list

__all__ = ["Phase", "Schedule"]

_DIGITS = 4  # significant decimals of a noise multiplier
_LARGEST_NOISE, _SMALLEST_NOISE = 2.0**16, 2.0**-6  # what the lattice of the gradients can carry
_TRIES = 40  # of the search for the least noise under the cap
_STRIDE = 1.15  # of its first part
_CLOSE = 1.004  # ends the search
_COARSE = 1024  # bins while searching


@dataclass(frozen=True)
class Phase:
    """So many steps with the same noise.

    >>> Phase(10, Fraction(2)).steps
    10
    """

    steps: int
    noise_multiplier: Fraction


@dataclass(frozen=True)
class Schedule:
    """Batches and phases: everything about a training that its price depends on.

    >>> from expost.learning.sgd.batches import Full
    >>> plan = Schedule(Full(1000), (Phase(10, Fraction(20)),))
    >>> round(float(plan.prices(Fraction(1, 10**6)).cap.epsilon), 3)
    0.648
    """

    batches: Batches
    phases: tuple[Phase, ...]

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(phase.steps for phase in self.phases)

    def event(self, phases: int) -> Event:
        """What happened if training stopped after so many phases."""
        return _joined(self.batches, self.phases[:phases])

    def prices(self, delta: Fraction, **terms: Any) -> PriceList:
        """The bill of stopping after each phase; ``terms`` as for ``price_list``."""
        return price_list(
            [self.batches.event(phase.noise_multiplier, phase.steps) for phase in self.phases], delta, **terms
        )

    @classmethod
    def fixed(
        cls, batches: Batches, *, steps: int, epsilon: Fraction, delta: Fraction, accountant: str = "auto"
    ) -> Schedule:
        """One phase whose steps cost at most epsilon: the noise that needs.

        >>> from expost.learning.sgd.batches import Full
        >>> plan = Schedule.fixed(Full(1000), steps=10, epsilon=Fraction(1), delta=Fraction(1, 10**6))
        >>> float(plan.phases[0].noise_multiplier)
        13.36
        """
        if isinstance(batches, Poisson) and batches.rate < 1:
            return cls.ladder(
                batches, steps=steps, phases=1, lowest=epsilon, highest=epsilon, delta=delta, accountant=accountant
            )[0]
        # Without sampling the answer is exact and fast: every step counts, or every pass.
        count = batches.event(Fraction(1), steps).count
        return cls(batches, (Phase(steps, noise_multiplier_for(approx(epsilon, delta), steps=count)),))

    @classmethod
    def even(
        cls, batches: Batches, *, steps: int, phases: int, ratio: Fraction, noise_multiplier: Fraction
    ) -> Schedule:
        """The same noise in all phases, which are the longer the later: prices rise about geometrically, by 1 / ``ratio``.

        >>> from expost.learning.sgd.batches import Full
        >>> plan = Schedule.even(Full(1000), steps=32, phases=3, ratio=Fraction(1, 4), noise_multiplier=Fraction(20))
        >>> [phase.steps for phase in plan.phases]
        [2, 6, 24]
        """
        return _Even(batches, steps, phases, float(ratio)).of_noise(noise_multiplier)

    @classmethod
    def ladder(
        cls,
        batches: Batches,
        *,
        steps: int,
        phases: int,
        lowest: Fraction,
        highest: Fraction,
        delta: Fraction,
        accountant: str = "auto",
        falling: bool = True,
    ) -> tuple[Schedule, PriceList]:
        """Phases whose prices rise about geometrically from ``lowest`` to ``highest``, never above it.

        They are of equal length and their noise falls; or, if it is not ``falling``, of equal noise, and their length rises.

        >>> from expost.learning.sgd.batches import Full
        >>> _, prices = Schedule.ladder(Full(1000), steps=40, phases=4, lowest=Fraction(1, 8), highest=Fraction(1),
        ...                             delta=Fraction(1, 10**6))
        >>> [round(float(epsilon), 2) for epsilon in prices.epsilons]
        [0.11, 0.23, 0.48, 1.0]
        """
        terms: dict[str, Any] = {"accountant": accountant, "expected": float(highest)}
        shape = (_Falling if falling else _Even)(batches, steps, phases, float(lowest / highest))

        def affordable(size: float) -> bool:
            coarse = shape.schedule(size).prices(delta, bins=_COARSE, **terms)
            return coarse.cap.epsilon <= highest

        guess = 1 / float(noise_multiplier_for(approx(highest, delta / phases)))
        schedule = shape.schedule(_largest(affordable, guess))
        prices = schedule.prices(delta, **terms)
        if prices.cap.epsilon > highest:  # finer bins cost no more than coarse ones; floats might
            raise InvalidRequest("Expected a max_epsilon that these steps can keep", do="Raise max_epsilon")
        return schedule, prices


@dataclass(frozen=True)
class _Shape(ABC):
    """Phases from how fast the privacy parameter should grow; prices are computed exactly afterwards.

    ``ratio`` is that of the first phase over that of all.
    """

    batches: Batches
    steps: int
    phases: int
    ratio: float

    @abstractmethod
    def schedule(self, size: float) -> Schedule:
        """About Gaussian-DP parameters up to ``size``, one a phase, in geometric progression."""

    @property
    def _squares(self) -> list[float]:
        """Squared parameters after each phase, as parts of the last one."""
        last = max(self.phases - 1, 1)
        return [*(self.ratio ** (2 * (1 - k / last)) for k in range(self.phases - 1)), 1.0]

    def _noise(self, mu_squared: float, steps: int) -> Fraction:
        match self.batches:
            case Poisson(rate) if rate < 1:
                # Central limit of sampled Gaussians (BDLS20, Corollary 4): mu^2 = rate^2 steps (e^(1/z^2) - 1).
                return _short(1 / math.sqrt(math.log1p(mu_squared / (steps * float(rate) ** 2))))
        return _short(math.sqrt(self.batches.event(Fraction(1), steps).count / mu_squared))


class _Falling(_Shape):
    """Phases of equal length whose noise falls."""

    def schedule(self, size: float) -> Schedule:
        """Each has the noise that its part of the square needs."""
        each = max(1, -(-self.steps // self.phases))
        grown = (size**2 * (after - before) for before, after in pairwise([0.0, *self._squares]))
        return Schedule(self.batches, tuple(Phase(each, self._noise(amount, each)) for amount in grown))


class _Even(_Shape):
    """Phases of equal noise whose length rises: squares of the parameter add up step by step."""

    def schedule(self, size: float) -> Schedule:
        """The noise of all steps, and ends of phases where the square has grown enough, after whole passes."""
        return self.of_noise(self._noise(size**2, self.steps))

    def of_noise(self, noise: Fraction) -> Schedule:
        """The same with a noise that is given."""
        period, ends = self.batches.period, [0]
        for square in self._squares:
            ends.append(max(ends[-1] + period, math.ceil(self.steps * square / period) * period))
        return Schedule(self.batches, tuple(Phase(after - before, noise) for before, after in pairwise(ends)))


def _largest(affordable: Callable[[float], bool], guess: float) -> float:
    """The largest size that is affordable, by strides from a guess and then bisection; the result itself was tried."""
    low, high, size = 0.0, math.inf, guess
    for _ in range(_TRIES):
        low, high = (size, high) if affordable(size) else (low, size)
        if not low:
            size = high / _STRIDE
        elif math.isinf(high):
            size = low * _STRIDE
        elif high / low < _CLOSE:
            return low
        else:
            size = math.sqrt(low * high)
    raise InvalidRequest("Expected a max_epsilon that these steps can keep", do="Raise max_epsilon or lower steps")


def _joined(batches: Batches, phases: Iterable[Phase]) -> Event:
    """One event; neighbouring phases of equal noise are one stretch of steps."""
    merged: list[Phase] = []
    for phase in phases:
        if merged and merged[-1].noise_multiplier == phase.noise_multiplier:
            merged[-1] = replace(merged[-1], steps=merged[-1].steps + phase.steps)
        else:
            merged.append(phase)
    events = tuple(batches.event(phase.noise_multiplier, phase.steps) for phase in merged)
    return events[0] if len(events) == 1 else Events(events)


def _short(value: float) -> Fraction:
    """A noise multiplier of a few digits, rounded up."""
    bounded = min(max(value, _SMALLEST_NOISE), _LARGEST_NOISE)
    grid = Fraction(10) ** (math.floor(math.log10(bounded)) - _DIGITS + 1)
    return math.ceil(Fraction(bounded) / grid) * grid
