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
_SMALLEST_RATE = Fraction(1, 10**12)
_MOST_STEPS = 10**12


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

    def keeps(multiplier: Fraction) -> bool:
        return _keeps(target, Repeat(_sampled(rate, noise(multiplier)), steps), currency)

    return _smallest(keeps)


def steps_for(target: Guarantee, step: Event, *, currency: str = "auto") -> int:
    """The largest number of repetitions of a step that keeps the target; 0 if not even one does.

    >>> from expost.core import approx
    >>> steps_for(approx(1, 1e-5), GaussianEvent(10))
    7
    """

    def keeps(count: int) -> bool:
        return _keeps(target, Repeat(step, count), currency)

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

    def keeps(rate: Fraction) -> bool:
        return _keeps(target, Repeat(_sampled(rate, step), steps), currency)

    low = high = Fraction(1)
    while not keeps(low):
        low, high = low / 2, low
        if low < _SMALLEST_RATE:
            raise InvalidRequest("Expected a target that some sampling rate reaches", do="Loosen the target")
    while high - low > low * _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    short = _cut(low)
    return short if keeps(short) else low


def _keeps(target: Guarantee, event: Event, currency: str) -> bool:
    match target:
        case PureGuarantee(epsilon):
            delta = Fraction(0)
        case ApproxGuarantee(epsilon, delta):
            pass
        case _:
            raise InvalidRequest("Expected a target of epsilon, or of epsilon and delta", do="Convert it first")
    found = account(event, adjacency=Adjacency.ADD_REMOVE, currency=currency).epsilon(delta)
    return math.isfinite(found) and Fraction(found) <= epsilon


def _smallest(keeps: Callable[[Fraction], bool]) -> Fraction:
    """The smallest number that keeps the target, rounded up to short decimals; the result itself was tried."""
    low, high = Fraction(0), Fraction(1)
    while not keeps(high):
        low, high = high, 2 * high
        if high > _LARGEST_NOISE:
            raise InvalidRequest("Expected a target that some noise multiplier reaches", do="Loosen the target")
    if low == 0:
        low = high / 2
        while keeps(low) and low > Fraction(1, 10**6):
            low, high = low / 2, low
    while high - low > high * _PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    short = _raised(high)
    # A discretised currency need not be monotone to the last digit.
    return short if keeps(short) else high


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
