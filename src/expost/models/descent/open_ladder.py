"""The phases of a training whose rows are sampled and whose steps are not set: one schedule, which every cap cuts short."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from expost.core import BudgetExceeded
from expost.models.descent.stopping_price import PriceList, price_stops
from expost.models.descent.training_schedule import Batches, Phase, Poisson, Schedule, round_noise
from expost.noise.mechanism import largest_mu

__all__ = ["plan_open_ladder", "usual_price"]

_USUAL = Fraction(7, 4)  # the epsilon at which the usual steps are spent, on tables of up to so many rows
_USUAL_ROWS = 60_000
_GROWTH = 1.08  # of the Gaussian-DP parameter from phase to phase
_SPREAD, _LEAST_WEIGHT = 0.6, 0.02  # of its logarithm, a Cauchy law: where most trainings stop
_WEIGHT_DIGITS = 1000
_TOP = 4.0  # the largest parameter, epsilon 20 or so
_TINY = 1e-12


def usual_price(rows: int) -> Fraction:
    """Return the epsilon at which a training has taken its usual number of steps.

    >>> usual_price(6_000), usual_price(600_000)
    (Fraction(7, 4), Fraction(7, 40))
    """
    return _USUAL * min(Fraction(1), Fraction(_USUAL_ROWS, rows))


def plan_open_ladder(
    batches: Batches, *, steps: int, first: Fraction, usual: Fraction, cap: Fraction, delta: Fraction, accountant: str
) -> tuple[Schedule, PriceList]:
    """Return phases up to a cap, and what stopping after each costs.

    Steps have the same noise until the ``usual`` price, where about ``steps`` of them are done; beyond it noise falls.
    Neither that nor a price depends on the cap: a larger one adds phases, so it never makes a training cost more.
    ``first`` is about the price of the first stop.

    >>> from expost.models.descent.training_schedule import Full
    >>> terms = {"steps": 100, "first": Fraction(1, 4), "usual": Fraction(2), "delta": Fraction(1, 10**6), "accountant": "rdp"}
    >>> small, large = (plan_open_ladder(Full(1000), cap=Fraction(cap), **terms)[1] for cap in (1, 4))
    >>> small.epsilons == large.epsilons[: len(small.epsilons)]
    True
    """
    kind: Any = batches  # a frozen dataclass, as a key of a cache must be
    phases, prices = _price_phases(kind, steps, first, usual, delta, accountant)
    kept = sum(price <= cap for price in prices.epsilons)
    if not kept:
        raise BudgetExceeded(
            f"The first test costs epsilon {float(prices.epsilons[0]):.3g}, above max_epsilon={float(cap):.3g}",
            do="Raise max_epsilon, or set steps",
        )
    affordable = replace(prices, epsilons=prices.epsilons[:kept], shares=prices.shares[:kept])
    return Schedule(batches, phases[:kept]), affordable


@lru_cache(maxsize=64)
def _price_phases(
    batches: Batches, steps: int, first: Fraction, usual: Fraction, delta: Fraction, accountant: str
) -> tuple[tuple[Phase, ...], PriceList]:
    """Return all phases up to the top level, with their prices."""
    phases, levels = _list_phases(batches, steps, first, usual, delta, accountant)
    middle = math.log(largest_mu(float(usual / 2), float(delta)))
    laws = (1 / (1 + ((math.log(level) - middle) / _SPREAD) ** 2) for level in levels)
    weights = tuple(Fraction(round(_WEIGHT_DIGITS * max(_LEAST_WEIGHT, each))) for each in laws)
    events = [batches.build_event(phase.noise_multiplier, phase.steps) for phase in phases]
    return phases, price_stops(events, delta, accountant=accountant, weights=weights)


def _list_phases(
    batches: Batches, steps: int, first: Fraction, usual: Fraction, delta: Fraction, accountant: str
) -> tuple[tuple[Phase, ...], list[float]]:
    """Return all phases up to the top level, and about the parameter reached after each."""
    noise = Schedule.fixed(batches, steps=steps, epsilon=usual, delta=delta, accountant=accountant).phases[0]
    goal = math.sqrt(_square_of(batches, noise))
    start = largest_mu(float(first), float(delta)) / largest_mu(float(usual), float(delta)) * goal
    phases: list[Phase] = []
    levels: list[float] = []
    done, reached, period = 0, 0.0, batches.period
    for number in range(math.floor(math.log(start) / math.log(_GROWTH)), math.ceil(math.log(_TOP) / math.log(_GROWTH))):
        level = _GROWTH**number
        if level <= goal or not phases:
            length = max(math.ceil(steps * (level / goal) ** 2 / period), 1) * period - done
            phase = Phase(length, noise.noise_multiplier)
        else:
            length = phases[-1].steps
            fresh = _find_noise(batches, max(level**2 - reached, _TINY), length)
            phase = Phase(length, min(fresh, Fraction(noise.noise_multiplier)))
        if length <= 0:  # levels closer than a step
            continue
        phases.append(phase)
        done += length
        reached += _square_of(batches, phase)
        levels.append(math.sqrt(reached))
    return tuple(phases), levels


def _square_of(batches: Batches, phase: Phase) -> float:
    """Return about the square of the Gaussian-DP parameter of a phase."""
    inverse = float(1 / Fraction(phase.noise_multiplier) ** 2)
    if isinstance(batches, Poisson) and batches.rate < 1:
        # Central limit of sampled Gaussians (BDLS20, Corollary 4).
        return float(batches.rate) ** 2 * phase.steps * math.expm1(inverse)
    return batches.build_event(phase.noise_multiplier, phase.steps).count * inverse


def _find_noise(batches: Batches, square: float, steps: int) -> Fraction:
    """Return the noise at which the steps have about this squared parameter."""
    if isinstance(batches, Poisson) and batches.rate < 1:
        return round_noise(1 / math.sqrt(math.log1p(square / (steps * float(batches.rate) ** 2))))
    return round_noise(math.sqrt(batches.build_event(Fraction(1), steps).count / square))
