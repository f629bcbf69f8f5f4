"""How much noise each phase of a training has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from expost.accounting import Event, Repeat, noise_multiplier_for
from expost.accounting import Sequence as Events
from expost.core import InvalidRequest, approx
from expost.models.descent.batches import Batches, Poisson
from expost.models.descent.prices import PriceList, last_price, price_list

__all__ = ["Phase", "Schedule"]

_DIGITS = 4  # significant decimals of a noise multiplier
_LARGEST_NOISE, _SMALLEST_NOISE = 2.0**16, 2.0**-6  # what the lattice of the gradients can carry
_TRIES, _RETRIES = 40, 4  # of the search for the least noise under the cap
# How far it goes at first, until the cap lies between two sizes: by costs, at least and at most.
_STRIDE, _LEAP = 1.02, 4.0
_LARGEST_SIZE = 2.0**40  # beyond it noise is nothing: an eighth of a sampled row
_SMALLEST_SIZE = 1 / _LARGEST_SIZE  # below it there is no more noise
_CLOSE = 1.002  # ends the search
_AIM = 1.001  # how far below the cap it aims
_NEAR = 1.006  # how far below the cap the last price may stay
_INSIDE = 0.1  # how far from both ends of the interval the next size is, as a part of it
_TINY = 2.0**-60  # a cost that is nothing
_COARSE = 1024  # bins while searching
_KEPT = 256  # plans


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

    >>> from expost.models.descent.batches import Full
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
        return _priced(self, delta, **terms)

    def cost(self, delta: Fraction, **terms: Any) -> float:
        """About the bill of the last phase, in less time."""
        return last_price(self._events, delta, **terms)

    @property
    def _events(self) -> tuple[Event, ...]:
        return tuple(self.batches.event(phase.noise_multiplier, phase.steps) for phase in self.phases)

    @classmethod
    def fixed(
        cls, batches: Batches, *, steps: int, epsilon: Fraction, delta: Fraction, accountant: str = "auto"
    ) -> Schedule:
        """One phase whose steps cost at most epsilon: the noise that needs, and no less than an eighth where it samples.

        >>> from expost.models.descent.batches import Full
        >>> plan = Schedule.fixed(Full(1000), steps=10, epsilon=Fraction(1), delta=Fraction(1, 10**6))
        >>> float(plan.phases[0].noise_multiplier)
        13.36
        """
        if isinstance(batches, Poisson) and batches.rate < 1:
            return cls.ladder(
                batches, steps=steps, phases=1, lowest=epsilon, highest=epsilon, delta=delta, accountant=accountant
            )[0]
        # Without sampling the answer is exact: every step counts, or every pass.
        count = batches.event(Fraction(1), steps).count
        return cls(batches, (Phase(steps, _unsampled_noise(epsilon, delta, count)),))

    @classmethod
    def even(
        cls, batches: Batches, *, steps: int, phases: int, ratio: Fraction, noise_multiplier: Fraction
    ) -> Schedule:
        """The same noise in all phases, which are the longer the later: prices rise about geometrically, by 1 / ``ratio``.

        >>> from expost.models.descent.batches import Full
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

        >>> from expost.models.descent.batches import Full
        >>> _, prices = Schedule.ladder(Full(1000), steps=40, phases=4, lowest=Fraction(1, 8), highest=Fraction(1),
        ...                             delta=Fraction(1, 10**6))
        >>> [round(float(epsilon), 2) for epsilon in prices.epsilons]
        [0.11, 0.23, 0.48, 1.0]
        """
        shape = (_Falling if falling else _Even)(batches, steps, phases, float(lowest / highest))
        return _laddered(shape, highest, delta, accountant)


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


@lru_cache(maxsize=_KEPT)
def _priced(schedule: Schedule, delta: Fraction, **terms: Any) -> PriceList:
    """Kept, like all that follows from public numbers: a fit after a price, or the next fold, need not plan anew."""
    return price_list(schedule._events, delta, **terms)


@lru_cache(maxsize=_KEPT)
def _unsampled_noise(epsilon: Fraction, delta: Fraction, count: int) -> Fraction:
    return noise_multiplier_for(approx(epsilon, delta), steps=count)


@lru_cache(maxsize=_KEPT)
def _laddered(shape: _Shape, highest: Fraction, delta: Fraction, accountant: str) -> tuple[Schedule, PriceList]:
    """The least noise of this shape that costs at most ``highest``."""
    terms: dict[str, Any] = {"accountant": accountant, "expected": float(highest)}
    guess = 1 / float(noise_multiplier_for(approx(highest, delta / shape.phases)))

    @cache
    def cost(size: float) -> float:
        return shape.schedule(size).cost(delta, bins=_COARSE, **terms)

    if math.isinf(cost(guess)):
        shape.schedule(guess).prices(delta, **terms)  # says why there is no price
    wanted, best = float(highest), None
    for _ in range(_RETRIES):  # stops overlap, which the search does not know; and floats may err
        size = _largest(cost, wanted, guess)
        schedule = shape.schedule(size)
        prices = schedule.prices(delta, **terms)
        if prices.cap.epsilon <= highest:
            best = max(best or (schedule, prices), (schedule, prices), key=lambda plan: plan[1].cap.epsilon)
            if float(prices.cap.epsilon) * _NEAR >= highest or size == _LARGEST_SIZE:
                break
        wanted, guess = wanted * float(highest / prices.cap.epsilon) / _AIM, size
    if best is None:
        raise _too_dear()
    return best


def _largest(cost: Callable[[float], float], highest: float, guess: float) -> float:
    """A size that costs as much as allowed or a little less, by secants in logarithms; the result itself was tried.

    Where the largest size is affordable it will do: less noise than it has buys nothing.
    """
    low, high, size, stride = (0.0, 0.0), (math.inf, math.inf), guess, _STRIDE
    for tried in range(_TRIES):
        size = min(max(size, _SMALLEST_SIZE), _LARGEST_SIZE)
        found = cost(size)
        if found <= highest:
            low = (size, found)
        else:
            high = (size, found)
        if low[1] * _CLOSE >= highest or high[0] < low[0] * _CLOSE or low[0] == _LARGEST_SIZE:
            return low[0]
        if high[0] == _SMALLEST_SIZE:
            break
        if math.isinf(high[0]):
            size, stride = size * max(stride, min(highest / (_AIM * max(found, _TINY)), _LEAP)), stride**2
        elif not low[0]:
            size, stride = size / max(stride, min(found * _AIM / highest, _LEAP)), stride**2
        else:
            size = _between(low, high, highest / _AIM, middle=tried % 3 == 2)
    raise _too_dear()


def _between(low: tuple[float, float], high: tuple[float, float], wanted: float, *, middle: bool) -> float:
    """The next size to try, from those that were found to be below and above, each with its cost."""
    part = 0.5
    if low[1] and math.isfinite(high[1]) and not middle:  # the middle now and then, lest one end never moves
        part = math.log(wanted / low[1]) / math.log(high[1] / low[1])
    return float(low[0] * (high[0] / low[0]) ** min(max(part, _INSIDE), 1 - _INSIDE))


def _too_dear() -> InvalidRequest:
    return InvalidRequest(
        "Expected a privacy level that these steps can keep", do="Raise epsilon or max_epsilon, or lower steps"
    )


def _joined(batches: Batches, phases: Iterable[Phase]) -> Event:
    """One event; what neighbouring phases of equal noise cost is counted together.

    Events are counted, not steps: a pass that a phase has begun is charged whole, and the next phase begins its own.
    """
    merged: list[Repeat] = []
    for phase in phases:
        event = batches.event(phase.noise_multiplier, phase.steps)
        if merged and merged[-1].event == event.event:
            merged[-1] = Repeat(event.event, merged[-1].count + event.count)
        else:
            merged.append(event)
    return merged[0] if len(merged) == 1 else Events(tuple(merged))


def _short(value: float) -> Fraction:
    """A noise multiplier of a few digits, rounded up."""
    bounded = min(max(value, _SMALLEST_NOISE), _LARGEST_NOISE)
    grid = Fraction(10) ** (math.floor(math.log10(bounded)) - _DIGITS + 1)
    return math.ceil(Fraction(bounded) / grid) * grid
