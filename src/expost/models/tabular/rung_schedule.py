"""The rungs of a training on a table: how much noise each release gets, and what stopping after each rung costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from expost.accounting import GaussianEvent, PrivacyEvent
from expost.accounting import Sequence as Events
from expost.accounting.concentrated import GaussianTotal
from expost.core import InvalidRequest
from expost.core.rational import round_up
from expost.models.descent.stopping_price import PriceList
from expost.noise.mechanism import largest_mu

__all__ = [
    "MOST_PROFILES",
    "MOST_RUNGS",
    "NO_SIDES",
    "Rung",
    "RungSchedule",
    "SideShares",
    "plan_epsilon",
    "plan_score",
    "split_noise",
]

FIRST_LEVEL = Fraction(1, 100)
"""The epsilon of the first rung. Levels are a fixed grid, so that a larger cap adds rungs and changes no other price."""
MOST_PROFILES = 16
"""The most profiles of a training: epsilon doubles, about, from one to the next."""
MOST_RUNGS = 32
"""The most rungs of a training: 0.01 * 1.3^31 is 34."""
_GROWTH, _NUMERIC_GROWTH = Fraction(13, 10), Fraction(16, 10)  # of epsilon from rung to rung
_USUAL_STOP, _STOP_WIDTH = {False: 9, True: 5}, 4  # numbers of rungs: the stops that have the largest shares of delta
_FIXED_STEPS, _FIRST_STEPS, _NEXT_STEPS = 64, 16, 10
_PROFILE_SHARE = 0.08  # of a rung's squared parameter, for each of the two releases of a profile
_PROFILE_AGE = 4.0  # a profile is made again once this many times as much is spent
_LEAST_GROWTH = 1.15  # of epsilon to a last rung at the cap
_LEAST_SHARE = 0.05  # of the squared parameter so far, for a rung: it grows slowly where epsilon or delta is large
_DIGITS = 4
_SAFE = 1 - 1e-6  # noise is calibrated a little below its price, which is then computed exactly


@dataclass(frozen=True)
class Rung:
    """What a rung may spend: one Gaussian event of ``noise``, divided among a profile, some steps and a measured score.

    How it is divided may depend on what was released before: Gaussian releases whose noise is chosen adaptively cost what
    one with the sum of their squared parameters costs, as long as that sum is fixed (docs/proofs/filters.md).
    """

    noise: Fraction
    steps: int
    profiled: bool

    @property
    def event(self) -> PrivacyEvent:
        """Return what the rung does to one unit."""
        return GaussianEvent(self.noise)

    @property
    def profile_noise(self) -> tuple[Fraction, Fraction] | None:
        """Return the noise multipliers of the profile's two releases, or None if the rung has none."""
        if not self.profiled:
            return None
        each = _noise(_PROFILE_SHARE / float(self.noise) ** 2)
        return each, each

    def divide(self, *shares: float) -> tuple[Fraction, ...]:
        """Return the noise multipliers of a step, and of releases that get these shares of what the profile leaves."""
        left = (1 - 2 * _PROFILE_SHARE * self.profiled) / float(self.noise) ** 2
        return _noise(left * (1 - sum(shares)) / self.steps), *(_noise(left * share) for share in shares)


@dataclass(frozen=True)
class SideShares:
    """Releases next to the rungs, as shares of what rungs spend: ``before`` of the first one, ``after`` of all that ran.

    ``first`` is the noise multiplier of a release before all others, whatever the rungs are.
    """

    before: float = 0.0
    after: float = 0.0
    first: Fraction | None = None


NO_SIDES = SideShares()


@dataclass(frozen=True)
class RungSchedule:
    """Rungs and their prices: (epsilon, delta) ex-post if the training stopped after a rung, whatever made it stop.

    Guarantee: approximate ex-post: ``prices.epsilons[k]`` at ``prices.delta`` if it stopped after rung k.
    Adjacency: add/remove of one unit.
    Sensitivity: that of each release, inside its noise multiplier.
    Accuracy: none promised.
    Numerics: the Gaussian price is exact and rounded up.
    Reference: docs/proofs/sgd-stopping.md, Theorem 1 (a share of delta for every possible stop); docs/proofs/tabular-models.md.
    """

    rungs: tuple[Rung, ...]
    prices: PriceList
    sides: SideShares = NO_SIDES

    def event(self, rungs: int) -> PrivacyEvent:
        """Return what the first rungs do, with the releases before and after them."""
        first = () if self.sides.first is None else (self.sides.first,)
        beside = tuple(map(GaussianEvent, (*_side_noises(self.rungs[:rungs], self.sides), *first)))
        return Events(tuple(rung.event for rung in self.rungs[:rungs]) + beside)

    @property
    def before_noise(self) -> Fraction:
        """Return the noise multiplier of what is released before the first rung."""
        return _side_noises(self.rungs[:1], SideShares(before=self.sides.before))[0]

    def after_noise(self, number: int) -> Fraction:
        """Return the noise multiplier of what is released after a rung that was the last one."""
        return _side_noises(self.rungs[: number + 1], SideShares(after=self.sides.after))[0]


def plan_epsilon(epsilon: Fraction, delta: Fraction, sides: SideShares = NO_SIDES) -> RungSchedule:
    """Return the one rung of a training at a given epsilon.

    >>> schedule = plan_epsilon(Fraction(1), Fraction(1, 10**6))
    >>> len(schedule.rungs), schedule.prices.cap.epsilon <= 1
    (1, True)
    """
    return _plan((epsilon,), delta, (delta,), sides, fixed=True)


def plan_score(cap: Fraction, delta: Fraction, *, numeric: bool = False, sides: SideShares = NO_SIDES) -> RungSchedule:
    """Return rungs at fixed levels up to a cap, for a training that stops at a score; ``numeric`` for a regression.

    >>> schedule = plan_score(Fraction(1), Fraction(1, 10**6))
    >>> [round(float(epsilon), 3) for epsilon in schedule.prices.epsilons[:3]], float(schedule.prices.cap.epsilon) <= 1
    ([0.01, 0.013, 0.017], True)
    """
    levels = [level for level in _levels(_NUMERIC_GROWTH if numeric else _GROWTH) if level <= cap]
    if cap < FIRST_LEVEL:
        levels = [cap]
    elif cap >= levels[-1] * Fraction(_LEAST_GROWTH) and len(levels) < MOST_RUNGS:
        levels.append(cap)
    return _plan(tuple(levels), delta, _share_delta(delta, numeric=numeric)[: len(levels)], sides, fixed=False)


def _share_delta(delta: Fraction, *, numeric: bool) -> tuple[Fraction, ...]:
    """Return the share of delta of every possible stop, whatever the cap; most of it for epsilons near 0.1."""
    middle = _USUAL_STOP[numeric]
    weights = [1 / (1 + Fraction(number - middle, _STOP_WIDTH) ** 2) for number in range(MOST_RUNGS)]
    return tuple(delta * weight / sum(weights) for weight in weights)


def _levels(growth: Fraction) -> Iterator[Fraction]:
    """Yield the fixed grid of epsilons, of six decimals."""
    for number in range(MOST_RUNGS):
        yield Fraction(round(10**6 * FIRST_LEVEL * growth**number), 10**6)


@lru_cache(maxsize=64)
def _plan(
    levels: tuple[Fraction, ...], delta: Fraction, shares: tuple[Fraction, ...], sides: SideShares, *, fixed: bool
) -> RungSchedule:
    """Return rungs that reach the levels, with exact prices."""
    rungs: list[Rung] = []
    prices: list[Fraction] = []
    kept: list[Fraction] = []
    spent, profiled = Fraction(0) if sides.first is None else 1 / sides.first**2, 0.0
    for level, share in zip(levels, shares, strict=True):
        square = (largest_mu(float(level), float(share)) * _SAFE) ** 2 / (1 + sides.before + sides.after)
        if square - float(spent) < _LEAST_SHARE * square:
            continue  # too near the last level for steps of its own; the next one has more left
        profiles = sum(rung.profiled for rung in rungs)
        due = not rungs or (square >= _PROFILE_AGE * profiled and profiles < MOST_PROFILES)
        profiled = square if due else profiled
        steps = _FIXED_STEPS if fixed else _NEXT_STEPS if rungs else _FIRST_STEPS
        rung = Rung(_noise(square - float(spent)), steps, due)
        rungs.append(rung)
        kept.append(share)
        spent += 1 / rung.noise**2
        beside = sum((1 / noise**2 for noise in _side_noises(rungs, sides)), Fraction(0))
        price = round_up(GaussianTotal(spent + beside).epsilon(share), relative=Fraction(1, 10**9))
        if price > level:
            raise InvalidRequest(
                "Expected a privacy level that the noise can keep", got=float(level), do="Raise epsilon"
            )
        prices.append(price)
    if not rungs:
        raise InvalidRequest(
            "Expected a cap that leaves something after the choice of columns",
            got=float(levels[-1]),
            do="Raise epsilon or max_epsilon, or leave select out",
        )
    return RungSchedule(tuple(rungs), PriceList(tuple(prices), delta, "gdp", tuple(kept)), sides)


def _side_noises(rungs: Sequence[Rung], sides: SideShares) -> list[Fraction]:
    """Return the noise multipliers of the releases before and after some rungs, of those that there are."""
    squares = [float(1 / rung.noise**2) for rung in rungs]
    wanted = (sides.before * squares[0], sides.after * sum(squares))
    return [_noise(square) for square in wanted if square > 0]


def split_noise(noise: Fraction, share: float) -> Fraction:
    """Return the noise multiplier of a share of a Gaussian event's squared parameter.

    >>> float(split_noise(Fraction(1), 0.25))
    2.0
    """
    return _noise(share / float(noise) ** 2)


def _noise(mu_squared: float) -> Fraction:
    """Return the noise multiplier of a squared parameter, with few digits, rounded up."""
    noise = 1 / math.sqrt(mu_squared)
    grid = Fraction(10) ** (math.floor(math.log10(noise)) - _DIGITS + 1)
    return math.ceil(Fraction(noise) / grid) * grid
