"""When a climbing count is within a share of the exact one: a stopping rule that pays almost nothing for stopping.

A fixed rung would do with noise quantiles at the failure probability itself. A climb that stops by looking at its
own noise needs more; the usual union over the rungs would about double the bill. Here the probability of stopping
*and* being wrong is bounded over all exact counts at once, from the joint law of two neighbouring rungs, and the
quantile is lowered by what that bound needs, 10 to 30 % in probability, a few percent of epsilon
(docs/proofs/stopped-relative-error.md).
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
from expost.core import Ladder
from expost.noise.level import LARGEST_RATE

__all__ = ["RATIO", "RelativeRule", "relative_ladder", "relative_rule", "rung_level"]

Floats = NDArray[np.float64]

RATIO = 1.1
"""The ratio of neighbouring rungs that the rule is calibrated for."""

_HIGHEST, _LOWEST = 80.0, 1e-3  # rates (epsilon over sensitivity) enumerated; above and below see the proof
_FAR = 24.0  # noise beyond this many scales is counted as _NEGLECTED in all
_NEGLECTED = 1e-8
_SINGLE = 256  # exact counts below this are enumerated one by one over all rungs
_FINE = 0.1  # width of a cell of larger counts, in noise scales at the stopping rung
_USUAL = 1.12  # what stopping usually costs in probability: where the search for the level begins
_FINEST = Fraction(1, 1000)  # below this share the enumeration grows too long and a union over the rungs is used
_LOWEST_LEVEL = 1e-8  # epsilon of the first rung: within 5 % of six billion rows
_LEAST_SPAN = 1e4  # from the first rung to the cap
_WIDE = 1 << 50  # noise scale of the first rung at most: sums of many such noises fit in 64 bits
_USUAL_LEVELS, _USUAL_PART = (1e-6, 1e3), 0.9  # rungs that share most of a failure probability; the others the rest
_WIDEST = 1 << 56  # noise scale of a rung: its radius at every level in use fits in 64 bits
_BEYOND = 2.0**62
_MARGIN = 1.01  # for counts beyond the enumeration, where the rule repeats itself with every factor RATIO


@dataclass(frozen=True)
class RelativeRule:
    """Accept a noisy count at a rung if it is at least ``least``; then some value is within ``share`` of the exact one.

    ``level`` is the failure probability at which the noise radius of each rung is taken; rungs below the epsilon
    ``lowest`` are not looked at.

    >>> rule = relative_rule(Fraction(1, 20), Fraction(1, 20))
    >>> float(rule.level) > 0.035
    True
    """

    share: float
    level: float
    lowest: float = 0.0

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
    rungs = (sensitivity * _power(k) for k in range(first, top + 1))
    least = sensitivity / _WIDEST
    kept = [rung for rung in rungs if above < rung <= cap and rung >= least]
    return Ladder(tuple(kept) or (cap,))


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


_MOST_RUNGS_EVER = _rungs(1 / _WIDEST, LARGEST_RATE) + 1  # and the cap, where no power lies below it


@lru_cache(maxsize=4096)
def _power(exponent: int) -> Fraction:
    value = RATIO**exponent
    grid = Fraction(10) ** (math.floor(math.log10(value)) - 7)
    return round(Fraction(value) / grid) * grid


@lru_cache(maxsize=512)
def relative_rule(share: Fraction, failure_probability: Fraction) -> RelativeRule:
    """The rule whose stopped answer misses by more than ``share`` with at most this probability, whatever the count."""
    allowed = float(failure_probability)
    if share < _FINEST:
        low, high = _USUAL_LEVELS
        return RelativeRule(float(share), allowed / _rungs(low, high), low)
    rule = RelativeRule(float(share), allowed / _USUAL)
    while (worst := stopped_failure(rule)) > allowed:
        rule = RelativeRule(rule.share, rule.level * min(allowed / worst, 0.97))
    return rule


def stopped_failure(rule: RelativeRule) -> float:
    """A bound, over all exact counts and all first rungs, on the probability to stop with an answer that misses."""
    steps = math.ceil(math.log(_HIGHEST / _LOWEST) / math.log(RATIO))
    rates = _HIGHEST * RATIO ** np.arange(-steps, 1.0)
    radii = rule.radii(rates)
    least = rule.least(radii).astype(np.float64)
    rungs = _Rungs(rates, radii.astype(np.float64), least, rule.share)
    single = np.arange(float(_SINGLE))
    few = rungs.worst(single, single, np.arange(1, len(rates))[None, :])
    return max(few, _worst_of_many(rungs, rule)) * _MARGIN + _NEGLECTED


def _worst_of_many(rungs: _Rungs, rule: RelativeRule) -> float:
    middle = math.log(2 / rule.level) / rule.share  # a climb stops near rate * count = middle
    ratio = math.exp(_FINE / (middle + 5))
    last = max(middle / _LOWEST / 20, 4 * _SINGLE)
    cells = math.ceil(math.log(last / _SINGLE) / math.log(ratio))
    edges = np.unique(np.floor(_SINGLE * ratio ** np.arange(cells + 1)))
    low, high = edges[:-1], edges[1:] - 1
    first = np.searchsorted(rungs.rates, max(middle - _FAR, 0.02) / high)
    end = np.searchsorted(rungs.rates, ((1 + rule.share) ** 2 * middle + _FAR + 5) / low) + 1
    width = int((end - first).max())
    band = np.clip(first, 1, None)[:, None] + np.arange(width)
    return rungs.worst(low, high, np.minimum(band, len(rungs.rates) - 1))


@dataclass(frozen=True)
class _Rungs:
    """The ladder of the enumeration: rates, radii and least accepted counts, all as floats."""

    rates: Floats
    radii: Floats
    least: Floats
    share: float

    def worst(self, low: Floats, high: Floats, band: NDArray[Any]) -> float:
        """The largest failure bound over cells of counts, each with its band of rungs, and over the first rung read.

        On a cell each term is taken where it is largest: acceptance at its upper end, missing at its lower end.
        """
        alone, joint = self._terms(low[:, None], high[:, None], band)
        later = np.cumsum(joint[:, ::-1], axis=1)[:, ::-1] - joint
        return float((alone + later).max())

    def _terms(self, low: Floats, high: Floats, band: NDArray[Any]) -> tuple[Floats, Floats]:
        """P(accept and miss) at each rung, alone and jointly with a refusal at the rung before."""
        rate, before = self.rates[band], self.rates[band - 1]
        least, radius = self.least[band], self.radii[band]
        over = np.maximum(np.maximum(radius + 1, least - high), np.floor(self.share * low) + 1)
        under = np.maximum(radius + 1, np.floor((self.share * low - 0.5) / (1 + self.share)) + 1)
        deepest = high - least  # noise below minus this would not be accepted
        refused = self.least[band - 1] - low  # noise of the rung before below this was not accepted
        above = _tail(over, rate)
        below = _slice(under, deepest, rate)
        stay = (
            np.exp(before - rate) * (np.expm1(-before) / np.expm1(-rate)) ** 2
        )  # MATHS: kept noise, lattice-laplace.md
        joint_above = _joint_above(over, refused, rate, before, stay)
        kept_below = _slice(np.maximum(under, 1 - refused), deepest, rate)
        moved = np.minimum(below - kept_below, _moved_below(under, refused, rate, before))
        joint = joint_above + kept_below + (1 - stay) * np.maximum(moved, 0)
        alone = above + below
        return alone, np.minimum(joint, alone)


def _tail(start: Floats, rate: Floats) -> Floats:
    """P(noise >= start) for start >= 1."""
    tail: Floats = np.exp(-rate * start) / (1 + np.exp(-rate))
    return tail


def _slice(start: Floats, stop: Floats, rate: Floats) -> Floats:
    """P(start <= -noise <= stop)."""
    inside = np.maximum(_tail(start, rate) - _tail(np.maximum(stop + 1, start), rate), 0)
    return np.where(stop >= start, inside, 0.0)


def _joint_above(over: Floats, refused: Floats, rate: Floats, before: Floats, stay: Floats) -> Floats:
    """P(noise >= over, and the noise of the rung before < refused)."""
    split = np.maximum(over, refused)
    far = _tail(split, rate)
    near = np.maximum(_tail(over, rate) - far, 0)
    kept = np.exp(-before)
    # Beyond ``refused`` the rung before must have jumped back: sum of two geometric series.
    back = far * -np.expm1(-rate) / (1 + kept) * np.exp(-before * (split - refused + 1)) / -np.expm1(-(before + rate))
    room = refused - 1 - over
    jumped = np.where(
        room < 0,
        np.exp(before * np.minimum(room, 0)) / (1 + kept),
        1 - np.exp(-before * (np.maximum(room, 0) + 1)) / (1 + kept),
    )
    joint: Floats = stay * near + (1 - stay) * (near * jumped + back)
    return joint


def _moved_below(under: Floats, refused: Floats, rate: Floats, before: Floats) -> Floats:
    """A bound on P(refused <= noise <= -under, and a jump below ``refused``), the jump's own probability left out."""
    exponent = np.minimum(before * (refused - 1) - (rate - before) * under, 0.0)
    shape = -np.expm1(-rate) / (1 + np.exp(-rate)) / (1 + np.exp(-before))
    bound: Floats = shape * np.exp(exponent) / -np.expm1(before - rate)
    return bound
