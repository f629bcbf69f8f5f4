"""Decide when a climbing count or sum is within a share of the exact one, and pay little for the stopping.

A fixed rung would do with noise quantiles at the failure probability itself. A climb that stops by looking at its
own noise needs more; the usual union over the rungs would about double the bill. Here the probability of stopping
*and* being wrong is bounded over all exact answers, all rungs and both signs, from the joint law of two neighbouring
rungs, and the quantile is lowered by what that bound needs: a few percent of epsilon up to shares of 20 %, a fifth
where rungs far below the answer decide (docs/proofs/stopped-relative-error.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radii
from expost.accuracy.stopped_failure import Thresholds, stopped_failure
from expost.core import Ladder
from expost.noise.level import LARGEST_RATE

__all__ = [
    "HIGHEST_LEVEL",
    "MOST_LOOKS",
    "RATIO",
    "RelativeRule",
    "is_tiny",
    "miss_probability",
    "relative_ladder",
    "relative_rule",
    "rung_level",
]

Floats = NDArray[np.float64]

RATIO = 1.1
"""The ratio of neighbouring rungs that the rule is calibrated for."""

_GRID = 0.002  # relative distance of the thresholds, in noise scales, that a rule is chosen from
_FINEST = Fraction(1, 1000)  # below this share the enumeration grows too long and a union over the rungs is used
_LOWEST_LEVEL = 1e-8  # epsilon of the first rung: within 5 % of six billion rows
HIGHEST_LEVEL = 1000
"""The epsilon of the last rung that a relative climb looks at."""
_LEAST_SPAN = 1e4  # from the first rung to the cap
_WIDE = 1 << 50  # noise scale of the first rung at most: sums of many such noises fit in 64 bits
_USUAL_LEVELS, _USUAL_PART = (1e-6, 1e3), 0.9  # rungs that share most of a failure probability; the others the rest
_WIDEST = 1 << 56  # noise scale of a rung: its radius at every level in use fits in 64 bits
_BEYOND = 2.0**62


@dataclass(frozen=True)
class RelativeRule:
    """Accept a noisy count at a rung if it is at least ``least``; then some value is within ``share`` of the exact one.

    ``level`` is the failure probability at which the noise radius of each rung is taken; rungs below the epsilon
    ``lowest`` are not looked at. A rule that is not ``signed`` is for answers that cannot be negative and accepts no
    negative one; a ``signed`` rule compares sizes.

    >>> rule = relative_rule(Fraction(1, 20), Fraction(1, 20))
    >>> float(rule.level) > 0.035
    True
    """

    share: float
    level: float
    lowest: float = 0.0
    signed: bool = False

    def radii(self, rates: Floats) -> NDArray[np.int64]:
        """The noise radius of each rung; ``rates`` are its levels over the sensitivity."""
        return noise_radii(self.level, rates)

    def least(self, radii: NDArray[np.int64]) -> NDArray[np.int64]:
        """The smallest noisy count that is accepted beside each radius."""
        # Either v = noisy works: radius (1 + share) <= share noisy; or a whole number fits between (1 - share) high
        # and (1 + share) low, for which a gap of one, noisy >= (radius + 1/2) / share, is enough.
        q, r = radii.astype(np.float64), self.share
        as_it_is, in_a_gap = q * (1 + r) / r, (q + 0.5) / r
        least: Floats = np.ceil(np.minimum(as_it_is, in_a_gap) * (1 + 1e-12))
        least[radii == 0] = 0
        beyond = least >= _BEYOND  # no 64-bit value is accepted where the smallest one would not fit
        return np.where(beyond, np.iinfo(np.int64).max, np.where(beyond, 0, least).astype(np.int64))

    def sizes(self, noisy: NDArray[Any]) -> NDArray[Any]:
        """Return what is compared with ``least``: the noisy answers, or their sizes where they may be negative."""
        return np.abs(noisy) if self.signed else noisy

    def value(self, noisy: NDArray[np.int64], radii: NDArray[np.int64]) -> NDArray[np.int64]:
        """The released count: the noisy one, or where that is too high the largest that every exact count allows."""
        allowed = np.floor((1 + self.share) * (noisy - radii) * (1 - 1e-12)).astype(np.int64)
        needed = np.ceil((1 - self.share) * (noisy + radii) * (1 - 1e-12)).astype(np.int64)
        value: NDArray[np.int64] = np.minimum(noisy, np.maximum(allowed, needed))
        return value


@lru_cache(maxsize=256)
def relative_ladder(sensitivity: Fraction, cap: Fraction, *, above: Fraction = Fraction(0)) -> Ladder:
    """The rungs of a climb: powers of ``RATIO`` in units of the sensitivity, from very private ones up to the cap.

    Where it begins does not depend on the cap, unless that is tiny: a climb stops where it is accurate enough, and
    rungs below cost it nothing. Rungs whose noise would be wider than exact sampling supports are left out, and those
    whose noise would be none.

    >>> len(relative_ladder(Fraction(1), Fraction(1)))
    194
    >>> relative_ladder(Fraction(1), Fraction(1))[0] == relative_ladder(Fraction(1), Fraction(1000))[0]
    True
    """
    cap = min(cap, LARGEST_RATE * sensitivity)
    top = math.floor(math.log(float(cap / sensitivity)) / math.log(RATIO) + 1e-9)
    lowest = min(max(_LOWEST_LEVEL / float(sensitivity), 1 / _WIDE), float(cap / sensitivity) / _LEAST_SPAN)
    first = math.ceil(math.log(lowest) / math.log(RATIO) - 1e-9)
    least = sensitivity / _WIDEST
    rungs = [rung for k in range(first, top + 1) if least <= (rung := sensitivity * _power(k)) <= cap]
    # Every rung is a power of the ratio, also where a cap leaves none above what was read: the last one then.
    return Ladder(tuple(rung for rung in rungs if rung > above) or tuple(rungs[-1:]) or (cap,))


def is_tiny(sensitivity: Fraction, cap: Fraction) -> bool:
    """Return whether a climb to this cap begins below the level where others begin.

    >>> is_tiny(Fraction(1), Fraction(1)), is_tiny(Fraction(1), Fraction(1, 10**6))
    (False, True)
    """
    return relative_ladder(sensitivity, cap)[0] < relative_ladder(sensitivity, Fraction(HIGHEST_LEVEL))[0]


def rung_level(failure_probability: float, level: float) -> float:
    """What one rung gets of a failure probability that all rungs share, whichever of them may be read.

    What is read at a rung with this holds at a rung chosen by looking at the noise too: the parts of all rungs that a
    ladder of powers of ``RATIO`` can have add up to at most the whole (docs/proofs/stopped-relative-error.md).

    >>> round(rung_level(0.05, 0.1), 7)
    0.0002064
    """
    low, high = _USUAL_LEVELS
    usual = low <= level <= high
    return failure_probability * (_USUAL_PART / _rungs(low, high) if usual else (1 - _USUAL_PART) / _MOST_RUNGS_EVER)


def _rungs(low: float, high: float) -> int:
    """The most powers of ``RATIO``, times any number, that lie between two numbers."""
    return math.floor(math.log(high / low) / math.log(RATIO)) + 1


MOST_LOOKS = _rungs(_LOWEST_LEVEL, HIGHEST_LEVEL)
"""The most rungs that one relative climb looks at."""
_MOST_RUNGS_EVER = _rungs(1 / _WIDEST, LARGEST_RATE) + 1  # and the cap, where no power lies below it


@lru_cache(maxsize=4096)
def _power(exponent: int) -> Fraction:
    value = RATIO**exponent
    grid = Fraction(10) ** (math.floor(math.log10(value)) - 7)
    return round(Fraction(value) / grid) * grid


@lru_cache(maxsize=512)
def relative_rule(share: Fraction, failure_probability: Fraction, *, signed: bool = False) -> RelativeRule:
    """Return the rule whose stopped answer misses by more than ``share`` with at most this probability, always.

    A looser share never accepts at a higher threshold: thresholds, in noise scales, are taken from a grid that does not
    depend on the share, and the bound falls with the share at each of them.

    >>> relative_rule(Fraction(1, 20), Fraction(1, 20)).level > 0.04
    True
    """
    allowed, width = float(failure_probability), float(share)
    if share < _FINEST:
        low, high = _USUAL_LEVELS
        return RelativeRule(width, allowed / _rungs(low, high), low, signed=signed)

    def rule(place: int) -> RelativeRule:
        return RelativeRule(width, math.exp(-width * math.exp(place * _GRID)), signed=signed)

    # A rung alone misses with its level, so no level above the allowed failure probability will do.
    unsafe = math.floor(math.log(-math.log(allowed) / width) / _GRID)
    step = 16
    while miss_probability(rule(unsafe + step)) > allowed:
        unsafe, step = unsafe + step, 2 * step
    safe = unsafe + step
    while safe - unsafe > 1:
        middle = (safe + unsafe) // 2
        safe, unsafe = (middle, unsafe) if miss_probability(rule(middle)) <= allowed else (safe, middle)
    return rule(safe)


def miss_probability(rule: RelativeRule) -> float:
    """Bound the probability to stop with an answer that misses, over all exact answers, first and last rungs."""

    def thresholds_at(rates: Floats) -> Thresholds:
        radii = rule.radii(rates)
        least = rule.least(radii).astype(np.float64)
        return Thresholds(rates, radii.astype(np.float64), least, least)

    return stopped_failure(
        thresholds_at, _all_rates(), share=rule.share, level=rule.level, signed=rule.signed, looks=MOST_LOOKS
    )


@lru_cache(maxsize=1)
def _all_rates() -> Floats:
    """Every rate that a rung can have."""
    first, last = math.ceil(-math.log(_WIDEST) / math.log(RATIO)), math.floor(math.log(LARGEST_RATE) / math.log(RATIO))
    return np.array([float(_power(exponent)) for exponent in range(first, last + 1)])
