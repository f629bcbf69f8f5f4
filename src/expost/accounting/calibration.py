"""Given a budget, how much noise, how many steps, how small a sample: found by safe bisection.

Every number returned was itself priced and fits; rounding is always towards more privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from expost.accounting.privacy_account import account
from expost.accounting.privacy_event import GaussianEvent, LaplaceEvent, PoissonSampled, PrivacyEvent, Repeat
from expost.core import as_guarantee, explain_arguments
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest
from expost.core.guarantee import ApproxGuarantee, Guarantee, PureGuarantee
from expost.core.rational import rational

__all__ = ["noise_multiplier_for", "sampling_rate_for", "steps_for"]

_DIGITS = 4  # significant decimals of a calibrated number
_PRECISION = Fraction(1, 10 ** (_DIGITS + 1))
_LARGEST_NOISE = Fraction(10**9)
_SMALLEST_NOISE = Fraction(1, 10**6)
_BLIND_STRIDE = 16.0  # where the cost is infinite and gives no direction
_SMALLEST_RATE = Fraction(1, 10**12)
_MOST_STEPS = 10**12
_LARGEST_COST = Fraction(10**300)

Budget = Guarantee | float | tuple[float, float] | Mapping[str, float]


@explain_arguments
def noise_multiplier_for(
    budget: Budget,
    *,
    steps: int = 1,
    sampling: float | Fraction = 1,
    noise: type[GaussianEvent] | type[LaplaceEvent] = GaussianEvent,
    currency: str = "auto",
) -> Fraction:
    """Return the smallest noise multiplier, to four digits, at which these steps keep the budget.

    Parameters
    ----------
    budget : Guarantee, number or (epsilon, delta) pair
        A pure or an (epsilon, delta) budget.
    steps : int >= 0, default 1
        How many steps there are.
    sampling : number in (0, 1], default 1
        The probability that a row is in the Poisson sample of a step.
    noise : GaussianEvent or LaplaceEvent, default GaussianEvent
        The kind of noise.
    currency : str, default "auto"
        The currency of ``account``.

    Returns
    -------
    Fraction

    Raises
    ------
    InvalidRequest
        If no noise multiplier up to 1e9 keeps the budget, or an argument is not valid.

    Examples
    --------
    >>> float(noise_multiplier_for((1, 1e-5)))
    3.731
    """
    rate = rational(sampling, "sampling")
    if rate > 1:
        raise InvalidRequest("Expected a sampling rate of at most 1", got=sampling, do="Pass a probability")
    if noise not in (GaussianEvent, LaplaceEvent):
        raise InvalidRequest("Expected noise to be GaussianEvent or LaplaceEvent", got=noise, do="Pass one of the two")

    def cost(multiplier: Fraction) -> float:
        event = noise(multiplier)
        return _relative_cost(budget, Repeat(event if rate == 1 else PoissonSampled(rate, event), steps), currency)

    # More noise costs less, so doubling ends at a multiplier that keeps the budget, next to one that does not.
    low, high, above, found = Fraction(0), Fraction(1), math.inf, cost(Fraction(1))
    while found > 1:
        low, high, above = high, 2 * high, found
        if high > _LARGEST_NOISE:
            raise InvalidRequest("Expected a budget that some noise multiplier keeps", do="Raise the budget")
        found = cost(high)
    # Or halving, where a multiplier of 1 already keeps the budget.
    while low == 0 and high > _SMALLEST_NOISE:
        below = cost(high / 2)
        if below > 1:
            low, above = high / 2, below
        else:
            high, found = high / 2, below
    if low > 0:
        high = _find_crossing(cost, (high, found), (low, above))
    short = _round_digits(high, math.ceil)
    # A discretized currency need not be monotone to the last digit.
    return short if cost(short) <= 1 else high


@explain_arguments
def steps_for(budget: Budget, step: PrivacyEvent, *, currency: str = "auto") -> int:
    """Return the largest number of repetitions of a step that keeps the budget.

    Parameters
    ----------
    budget : Guarantee, number or (epsilon, delta) pair
        A pure or an (epsilon, delta) budget.
    step : PrivacyEvent
        What is repeated.
    currency : str, default "auto"
        The currency of ``account``.

    Returns
    -------
    int
        0 if not even one step fits.

    Raises
    ------
    InvalidRequest
        If the step costs nothing, or an argument is not valid.

    Examples
    --------
    >>> steps_for((1, 1e-5), GaussianEvent(10))
    7
    """

    # More steps never cost less. Where a discretized currency wobbles, the count returned was itself priced.
    def keeps(count: int) -> bool:
        return _relative_cost(budget, Repeat(step, count), currency) <= 1

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


@explain_arguments
def sampling_rate_for(budget: Budget, step: PrivacyEvent, *, steps: int, currency: str = "auto") -> Fraction:
    """Return the largest Poisson sampling rate, to four digits, at which these steps keep the budget.

    Parameters
    ----------
    budget : Guarantee, number or (epsilon, delta) pair
        A pure or an (epsilon, delta) budget.
    step : PrivacyEvent
        What runs on each sample.
    steps : int >= 0
        How many steps there are.
    currency : str, default "auto"
        The currency of ``account``.

    Returns
    -------
    Fraction

    Raises
    ------
    InvalidRequest
        If no rate down to 1e-12 keeps the budget, or an argument is not valid.

    Examples
    --------
    >>> float(sampling_rate_for(1, LaplaceEvent(1), steps=10))
    0.0612
    """

    def cost(rate: Fraction) -> float:
        return _relative_cost(budget, Repeat(step if rate == 1 else PoissonSampled(rate, step), steps), currency)

    low, high, found, above = Fraction(1), Fraction(1), cost(Fraction(1)), math.inf
    while found > 1:
        if low == _SMALLEST_RATE:
            raise InvalidRequest("Expected a budget that some sampling rate keeps", do="Raise the budget")
        # A cost falls about as fast as its rate, or faster.
        stride = max(2.0, found) if math.isfinite(found) else _BLIND_STRIDE
        low, high, above = max(Fraction(float(low) / stride), _SMALLEST_RATE), low, found
        found = cost(low)
    if low < 1:
        low = _find_crossing(cost, (low, found), (high, above))
    # A smaller rate costs less, so rounding is down; the short rate is priced again all the same.
    short = _round_digits(low, math.floor)
    return short if cost(short) <= 1 else low


def _relative_cost(budget: Budget, event: PrivacyEvent, currency: str) -> float:
    """Return the epsilon of an event as a multiple of the budget's: at most 1 only if the budget is kept."""
    match as_guarantee(budget):
        case PureGuarantee(epsilon):
            delta = Fraction(0)
        case ApproxGuarantee(epsilon, delta):
            pass
        case _:
            raise InvalidRequest("Expected a budget of epsilon, or of epsilon and delta", do="Convert it first")
    found = account(event, adjacency=Adjacency.ADD_REMOVE, currency=currency).epsilon(delta)
    if not math.isfinite(found):
        return math.inf
    # A rational quotient: in floats a cost just above the budget could round to 1 and pass for one that is kept.
    share = Fraction(found) / epsilon
    return float(share) if share <= 1 else max(float(min(share, _LARGEST_COST)), math.nextafter(1.0, 2.0))


def _find_crossing(
    cost: Callable[[Fraction], float], kept: tuple[Fraction, float], missed: tuple[Fraction, float]
) -> Fraction:
    """Return a number that keeps the budget next to one that does not, to the precision wanted.

    Starts from one number of each kind and their costs. The secant of the logarithms is used, because costs are nearly
    powers; an end that stays twice loses half of its weight (the Illinois rule), and no step is so short that the two
    would never meet.
    """

    def log_of(value: float) -> float:
        return math.log(value) if value > 0 else -math.inf

    (good, found), (bad, above) = kept, missed
    inside, outside, moved = log_of(found), log_of(above), ""
    while abs(bad - good) > min(good, bad) * _PRECISION:
        gap = math.log(bad / good)
        # A cost of zero or infinity has no logarithm: bisect there.
        share = inside / (inside - outside) if inside > -math.inf and outside < math.inf else 0.5
        least = float(_PRECISION) / 3 / abs(gap)
        middle = Fraction(float(good) * math.exp(gap * min(max(share, least), 1 - least)))
        found = log_of(cost(middle))
        if found <= 0:
            good, inside, outside = middle, found, outside / (2 if moved == "good" else 1)
        else:
            bad, outside, inside = middle, found, inside / (2 if moved == "bad" else 1)
        moved = "good" if found <= 0 else "bad"
    return good


def _round_digits(value: Fraction, rounding: Callable[[Fraction], int]) -> Fraction:
    """Round to the significant digits of a calibrated number."""
    grid = Fraction(10) ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return rounding(value / grid) * grid
