"""How much noise each phase of a training has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from expost.accounting import Event, noise_multiplier_for
from expost.accounting import Sequence as Events
from expost.core import InvalidRequest, approx
from expost.learning.sgd.batches import Batches, Disjoint, Poisson
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
        """Phases of equal length whose prices rise about geometrically from ``lowest`` to ``highest``, never above it.

        If the noise is not ``falling`` it is the same in all phases, and prices rise about as the root of their number.

        >>> from expost.learning.sgd.batches import Full
        >>> _, prices = Schedule.ladder(Full(1000), steps=40, phases=4, lowest=Fraction(1, 8), highest=Fraction(1),
        ...                             delta=Fraction(1, 10**6))
        >>> [round(float(epsilon), 2) for epsilon in prices.epsilons]
        [0.11, 0.23, 0.48, 1.0]
        """
        terms: dict[str, Any] = {"accountant": accountant, "expected": float(highest)}
        shape = _Shape(batches, max(1, -(-steps // phases)), phases, float(lowest / highest) if falling else None)

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
class _Shape:
    """Noise multipliers from how fast the privacy parameter should grow; prices are computed exactly afterwards."""

    batches: Batches
    steps: int
    phases: int
    ratio: float | None

    def schedule(self, size: float) -> Schedule:
        """About Gaussian-DP parameters up to ``size``, one a phase: in geometric progression, or those of equal noise."""
        last = max(self.phases - 1, 1)
        if self.ratio is None:
            each = _short(self._noise(size**2 / self.phases))
            return Schedule(self.batches, (Phase(self.steps, each),) * self.phases)
        squares = [(size * self.ratio ** (1 - k / last)) ** 2 for k in range(self.phases)]
        grown = [after - before for before, after in zip([0.0, *squares[:-1]], squares, strict=True)]
        return Schedule(self.batches, tuple(Phase(self.steps, _short(self._noise(amount))) for amount in grown))

    def _noise(self, mu_squared: float) -> float:
        match self.batches:
            case Poisson(rate) if rate < 1:
                # Central limit of sampled Gaussians (BDLS20, Corollary 4): mu^2 = rate^2 steps (e^(1/z^2) - 1).
                return 1 / math.sqrt(math.log1p(mu_squared / (self.steps * float(rate) ** 2)))
            case Disjoint(parts):
                return math.sqrt(-(-self.steps // parts) / mu_squared)
        return math.sqrt(self.steps / mu_squared)


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
