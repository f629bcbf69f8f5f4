"""Given a promise, how much noise, how many steps, how small a sample: found by safe bisection.

Every number returned was itself priced and fits; rounding is always towards more privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from expost.accounting.accounts import account
from expost.accounting.events import Event, GaussianEvent, LaplaceEvent, PoissonSampled, Repeat
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest
from expost.core.guarantee import ApproxGuarantee, Guarantee, PureGuarantee
from expost.core.rational import rational

__all__ = ["noise_multiplier_for", "sampling_rate_for", "steps_for"]

_DIGITS = 4  # significant decimals of a calibrated number
_PRECISION = Fraction(1, 10 ** (_DIGITS + 1))
_LARGEST_NOISE = Fraction(10**9)
_SMALLEST_NOISE = Fraction(1, 10**6)
_BLIND_STRIDE = 16.0
_SMALLEST_RATE = Fraction(1, 10**12)
_MOST_STEPS = 10**12
_ENDLESS = Fraction(10**300)


def noise_multiplier_for(
    target: Guarantee,
    *,
    steps: int = 1,
    sampling: float | Fraction = 1,
    noise: type[GaussianEvent] | type[LaplaceEvent] = GaussianEvent,
    currency: str = "auto",
) -> Fraction:
    """The smallest noise multiplier, to four digits, at which these steps keep the target.

    >>> from expost.core import approx
    >>> float(noise_multiplier_for(approx(1, 1e-5)))
    3.731
    """
    rate = _rate(sampling)
    if noise not in (GaussianEvent, LaplaceEvent):
        raise InvalidRequest("Expected noise to be GaussianEvent or LaplaceEvent", got=noise, do="Pass one of the two")

    def cost(multiplier: Fraction) -> float:
        return _cost(target, Repeat(_sampled(rate, noise(multiplier)), steps), currency)

    return _smallest(cost)


def steps_for(target: Guarantee, step: Event, *, currency: str = "auto") -> int:
    """The largest number of repetitions of a step that keeps the target; 0 if not even one does.

    >>> from expost.core import approx
    >>> steps_for(approx(1, 1e-5), GaussianEvent(10))
    7
    """

    def keeps(count: int) -> bool:
        return _cost(target, Repeat(step, count), currency) <= 1

    if not keeps(1):
        return 0
    low = 1
    while keeps(2 * low):
        low *= 2
        if low > _MOST_STEPS:
            raise InvalidRequest("Expected a step that costs something", do="Pass a step with less noise")
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def sampling_rate_for(target: Guarantee, step: Event, *, steps: int, currency: str = "auto") -> Fraction:
    """The largest Poisson sampling rate, to four digits, at which these steps keep the target.

    >>> from expost.core import epsilon
    >>> float(sampling_rate_for(epsilon(1), LaplaceEvent(1), steps=10))
    0.0612
    """

    def cost(rate: Fraction) -> float:
        return _cost(target, Repeat(_sampled(rate, step), steps), currency)

    low, high, found, above = Fraction(1), Fraction(1), cost(Fraction(1)), math.inf
    while found > 1:
        if low == _SMALLEST_RATE:
            raise InvalidRequest("Expected a target that some sampling rate reaches", do="Loosen the target")
        # A cost falls about as fast as its rate, or faster.
        stride = max(2.0, found) if math.isfinite(found) else _BLIND_STRIDE
        low, high, above = max(Fraction(float(low) / stride), _SMALLEST_RATE), low, found
        found = cost(low)
    if low < 1:
        low = _crossing(cost, (low, found), (high, above))
    short = _cut(low)
    return short if cost(short) <= 1 else low


def _cost(target: Guarantee, event: Event, currency: str) -> float:
    """The epsilon of an event as a multiple of the target's: at most 1 only if the target is kept."""
    match target:
        case PureGuarantee(epsilon):
            delta = Fraction(0)
        case ApproxGuarantee(epsilon, delta):
            pass
        case _:
            raise InvalidRequest("Expected a target of epsilon, or of epsilon and delta", do="Convert it first")
    found = account(event, adjacency=Adjacency.ADD_REMOVE, currency=currency).epsilon(delta)
    if not math.isfinite(found):
        return math.inf
    share = Fraction(found) / epsilon
    return float(share) if share <= 1 else max(float(min(share, _ENDLESS)), math.nextafter(1.0, 2.0))


def _smallest(cost: Callable[[Fraction], float]) -> Fraction:
    """The smallest number that keeps the target, rounded up to short decimals; the result itself was tried."""
    low, high, above, found = Fraction(0), Fraction(1), math.inf, cost(Fraction(1))
    while found > 1:
        low, high, above = high, 2 * high, found
        if high > _LARGEST_NOISE:
            raise InvalidRequest("Expected a target that some noise multiplier reaches", do="Loosen the target")
        found = cost(high)
    while low == 0 and high > _SMALLEST_NOISE:
        below = cost(high / 2)
        if below > 1:
            low, above = high / 2, below
        else:
            high, found = high / 2, below
    if low > 0:
        high = _crossing(cost, (high, found), (low, above))
    short = _raised(high)
    # A discretised currency need not be monotone to the last digit.
    return short if cost(short) <= 1 else high


def _crossing(
    cost: Callable[[Fraction], float], kept: tuple[Fraction, float], missed: tuple[Fraction, float]
) -> Fraction:
    """A number that keeps the target beside one that does not, as near as the precision asks; with their costs to begin.

    The secant of the logarithms, for costs are nearly powers; an end that stays twice loses half of its weight (the
    Illinois rule), and no step is so short that the two would never meet.
    """
    (good, found), (bad, above) = kept, missed
    inside, outside, moved = _logarithm(found), _logarithm(above), ""
    while abs(bad - good) > min(good, bad) * _PRECISION:
        gap = math.log(bad / good)
        share = inside / (inside - outside) if inside > -math.inf and outside < math.inf else 0.5
        least = float(_PRECISION) / 3 / abs(gap)
        middle = Fraction(float(good) * math.exp(gap * min(max(share, least), 1 - least)))
        found = _logarithm(cost(middle))
        if found <= 0:
            good, inside, outside = middle, found, outside / (2 if moved == "good" else 1)
        else:
            bad, outside, inside = middle, found, inside / (2 if moved == "bad" else 1)
        moved = "good" if found <= 0 else "bad"
    return good


def _logarithm(cost: float) -> float:
    return math.log(cost) if cost > 0 else -math.inf


def _raised(value: Fraction) -> Fraction:
    grid = Fraction(10) ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return math.ceil(value / grid) * grid


def _cut(value: Fraction) -> Fraction:
    grid = Fraction(10) ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return math.floor(value / grid) * grid


def _sampled(rate: Fraction, event: Event) -> Event:
    return event if rate == 1 else PoissonSampled(rate, event)


def _rate(value: float | Fraction) -> Fraction:
    rate = rational(value, "sampling")
    if rate > 1:
        raise InvalidRequest("Expected a sampling rate of at most 1", got=value, do="Pass a probability")
    return rate
