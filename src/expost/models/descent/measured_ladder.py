"""The phases of a training whose score is measured on all of its rows: fixed levels, priced once for every cap."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from expost.accounting import GaussianEvent, Repeat
from expost.core import BudgetExceeded
from expost.models.descent.stopping_price import PriceList, price_stops
from expost.models.descent.training_schedule import Batches, Phase, Schedule, round_noise
from expost.noise.mechanism import largest_mu

__all__ = ["plan_measured_ladder"]

_GROWTH = 1.1  # of the Gaussian-DP parameter from phase to phase; stops overlap, so close ones cost little more
_TOP = 4.0  # the largest parameter, epsilon 20 or so
_FIRST_ROWS = 60.0  # the first parameter times the rows: below it noise hides the errors that a usual score allows
_LEAST_FIRST, _LARGEST_FIRST = 2e-4, 0.02  # limits of the first parameter: the gradient's lattice, and small tables
_USUAL_ROWS = 1000.0  # the parameter, times the rows, around which most trainings stop
_SPREAD, _LEAST_WEIGHT = 0.7, 0.02  # of its logarithm, a Cauchy law: stops far from there cost little more
_CAP_LEVELS = Fraction(1, 4)  # a small cap moves the first level below this part of it
_LEAST_PRICE = Fraction(1, 10**6)
_WEIGHT_DIGITS = 1000


def plan_measured_ladder(
    batches: Batches, *, rows: int, steps: int, cap: Fraction, delta: Fraction, accountant: str
) -> tuple[Schedule, PriceList]:
    """Return phases of ``steps`` steps up to a cap, and what stopping after each costs.

    Levels and prices follow from rows, steps and delta alone: a larger cap adds phases and changes no earlier price, so it
    never makes a training cost more. Shares of delta are larger where trainings usually stop, a public guess.

    >>> from expost.models.descent.training_schedule import Full
    >>> terms = {"rows": 10_000, "steps": 4, "delta": Fraction(1, 10**6), "accountant": "auto"}
    >>> small, large = (plan_measured_ladder(Full(10_000), cap=Fraction(cap), **terms)[1] for cap in (1, 2))
    >>> small.epsilons == large.epsilons[: len(small.epsilons)]
    True
    """
    first = min(max(_FIRST_ROWS / rows, _LEAST_FIRST), _LARGEST_FIRST)
    small = largest_mu(float(cap * _CAP_LEVELS), float(delta) / _WEIGHT_DIGITS)
    start = math.floor(math.log(min(first, max(small, _LEAST_FIRST))) / math.log(_GROWTH))
    phases, prices = _price_levels(start, rows, steps, delta, accountant)
    kept = [number for number, price in enumerate(prices.epsilons) if price <= cap]
    if not kept:
        raise BudgetExceeded(
            f"The first test costs epsilon {float(prices.epsilons[0]):.3g}, above max_epsilon={float(cap):.3g}",
            do="Raise max_epsilon",
        )
    count = len(kept)
    affordable = PriceList(prices.epsilons[:count], delta, prices.accountant, prices.shares[:count])
    return Schedule(batches, phases[:count]), affordable


@lru_cache(maxsize=64)
def _price_levels(
    start: int, rows: int, steps: int, delta: Fraction, accountant: str
) -> tuple[tuple[Phase, ...], PriceList]:
    """Return all phases from a level of the fixed grid to its top, with their prices."""
    stop = math.ceil(math.log(_TOP) / math.log(_GROWTH))
    spent, phases, weights = Fraction(0), [], []
    for number in range(start, stop + 1):
        level = _GROWTH**number
        phase = Phase(steps, round_noise(math.sqrt(steps / (level**2 - float(spent)))))
        spent += steps / phase.noise_multiplier**2
        phases.append(phase)
        distance = math.log(level * rows / _USUAL_ROWS) / _SPREAD
        weights.append(Fraction(round(_WEIGHT_DIGITS * max(_LEAST_WEIGHT, 1 / (1 + distance**2)))))
    # Every step sees all rows.
    events = [Repeat(GaussianEvent(phase.noise_multiplier), phase.steps) for phase in phases]
    prices = price_stops(events, delta, accountant=accountant, weights=tuple(weights))
    free = sum(price < _LEAST_PRICE for price in prices.epsilons)
    if not free:
        return tuple(phases), prices
    # At a large delta the first levels have prices near zero, which no account should show for a release. Leave them out.
    return _price_levels(start + free, rows, steps, delta, accountant)
