"""How far discrete Laplace noise strays, and when a climbing count or sum is accurate enough.

*One rung.* Exact tails, radii and the level that a radius needs.

*A climb to a relative error.* A fixed rung would do with noise quantiles at the failure probability itself. A climb that
stops by its own noise needs more; the usual union over the rungs would about double the bill. Here the probability of
stopping *and* being wrong is bounded over all exact answers, all rungs and both signs, from the joint law of two
consecutive rungs, and the quantile is lowered by what that bound needs: a few percent of epsilon up to shares of 20 %, a
fifth where rungs far below the answer decide (docs/proofs/stopped-relative-error.md).

*Many groups.* The bill of a grouped climb is its highest rung, which the smallest group sets. If every group had the same
part of the failure probability, that group would pay for the number of groups. So a first, much noisier release (the
pilot, a few percent of the bill) estimates how large the groups are, and the budget goes to the small ones. The pilot's
noise is independent of the climb's, so the parts are constants for the climb, and the failures of the groups add up to
the budget whatever the pilot shows (docs/proofs/stopped-relative-error.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.stopped_failure import Thresholds, stopped_failure
from expost.core import InvalidRequest, Ladder
from expost.core.rational import rational, round_up
from expost.noise.parameter import LARGEST_RATE

__all__ = [
    "FINE_STEPS",
    "HIGHEST_LEVEL",
    "MOST_RUNGS",
    "PILOT_SHARE",
    "RATIO",
    "FailureParts",
    "RelativeRule",
    "count_rungs",
    "epsilon_for_radius",
    "failure_parts",
    "fine_rung",
    "is_tiny",
    "least_rate",
    "miss_probability",
    "noise_radii",
    "noise_radius",
    "noise_tail",
    "parts_for_rates",
    "predicted_rate",
    "relative_ladder",
    "relative_rule",
    "rung_level",
    "shared_level",
    "split_cap",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SLACK = 1e-12  # relative error allowed for the float formulas of radii; always spent on the safe side

RATIO = 1.1
"""The ratio of consecutive rungs that the rule is calibrated for."""
FINE_STEPS = 4
"""The rungs between two powers of ``RATIO`` at which a check may be planned."""
HIGHEST_LEVEL = 1000
"""The epsilon of the last rung that a relative climb reads."""
_GRID = 0.002  # relative distance of the thresholds, in noise scales, that a rule is chosen from
_EXACT_STEPS = (0, 6)  # of the grid, that exact thresholds may cost large answers
_FINEST = Fraction(1, 1000)  # below this share the enumeration grows too long and a union over the rungs is used
_LOWEST_LEVEL = 1e-8  # epsilon of the first rung: within 5 % of six billion rows
_LEAST_SPAN = 1e4  # from the first rung to the cap
_WIDE = 1 << 50  # noise scale of the first rung at most: sums of many such noises fit in 64 bits
_USUAL_LEVELS, _USUAL_PART = (1e-6, 1e3), 0.9  # rungs that share most of a failure probability; the others the rest
_WIDEST = 1 << 56  # noise scale of a rung: its radius at every level in use fits in 64 bits
_BEYOND = 2.0**62
_MOST_DENOMINATOR, _MOST_EXACT = 10**6, 1 << 30  # of shares and radii whose products fit in 64 bits

PILOT_SHARE = Fraction(1, 16)
"""What the pilot may cost, as a part of what the climb is expected to cost."""
_EVENING = 1.5  # of the variance; measured: the least mean price over tables of 4 to 105 groups
_EVEN_PART = 0.05  # of the budget, shared evenly so that a group the pilot misjudged is not starved
_COARSE_PARTS = (0.01, 0.005, 0.002, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_PARTS = np.array(
    [0.95, 0.85, 0.7, 0.6, 0.5, 0.4, 0.33, 0.25, 0.2, 0.16, 0.125, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, *_COARSE_PARTS]
)


def noise_tail(radius: int, scale: float | Fraction) -> float:
    """Return the probability that discrete Laplace noise exceeds ``radius`` in absolute value, rounded up.

    With a = exp(-1/scale) the law is (1-a)/(1+a) a^|k|, so the tail is 2 a^(radius+1) / (1+a) (GRS09, Definition 2).

    >>> round(noise_tail(3, 1.0), 6)
    0.02678
    """
    if radius < 0:
        return 1.0
    rate = 1 / float(scale)
    return 2 * math.exp(-rate * (radius + 1)) / (1 + math.exp(-rate)) * (1 + _SLACK)


def noise_radius(failure_probability: float | Fraction, scale: float | Fraction) -> int:
    """Return the smallest radius that discrete Laplace noise exceeds with at most this probability.

    >>> noise_radius(0.05, 10)
    30
    """
    failure, rate = float(failure_probability), 1 / float(scale)
    if not 0 < failure < 1:
        raise InvalidRequest("Expected a failure probability between 0 and 1", got=failure, do="Pass a probability")
    guess = math.ceil(math.log(2 / (failure * (1 + math.exp(-rate)))) / rate) - 1
    radius = max(guess - 1, 0)
    while noise_tail(radius, scale) > failure:
        radius += 1
    return radius


def noise_radii(failure_probability: float, rates: Floats) -> Integers:
    """Return the radius of each rate (1 / scale), as ``noise_radius`` but for many rates at once."""
    logs = np.log(2 / failure_probability) - np.log1p(np.exp(-rates))
    radii: Integers = np.maximum(np.ceil(logs / rates * (1 + _SLACK)) - 1, 0).astype(np.int64)
    return radii


def epsilon_for_radius(radius: int, failure_probability: Fraction, sensitivity: Fraction | int = 1) -> Fraction:
    """Return the smallest level whose noise stays within ``radius`` except with this probability, rounded up.

    >>> float(epsilon_for_radius(100, Fraction(1, 20)))
    0.029...
    """
    failure = float(failure_probability)
    low, high = 0.0, 2 * math.log(2 / failure) + 1
    while high - low > 1e-14 * high:
        rate = (low + high) / 2
        low, high = (low, rate) if noise_tail(radius, 1 / rate) <= failure else (rate, high)
    return rational(round_up(high) * Fraction(sensitivity), "epsilon")


def shared_level(failure_probability: Fraction, count: int) -> Fraction:
    """Return the failure probability of each of ``count`` independent events that together fail at most this often.

    For independent noise 1 - (1 - p)^(1/count) is exact (Sidak), a little more than an even split; rounded down.

    >>> float(shared_level(Fraction(1, 20), 2))
    0.0253...
    """
    if count == 1:
        return failure_probability
    exact = -math.expm1(math.log1p(-float(failure_probability)) / count)
    return max(Fraction(exact * (1 - 1e-9)).limit_denominator(10**15), failure_probability / count)


@dataclass(frozen=True)
class RelativeRule:
    """Accepts a noisy count at a rung if it is at least ``least``; then some value is within ``share`` of the exact one.

    ``level`` is the failure probability at which the noise radius of each rung is taken; rungs below the epsilon
    ``lowest`` are not read. A rule that is not ``signed`` is for answers that cannot be negative and accepts no
    negative one; a ``signed`` rule compares sizes.

    ``exact`` is the share as a fraction where thresholds that are whole numbers are taken as they are. Without it they are
    one above, which accepts small answers a little later and lets the level be higher.
    """

    share: float
    level: float
    lowest: float = 0.0
    signed: bool = False
    exact: Fraction | None = None

    def radii(self, rates: Floats) -> Integers:
        """Return the noise radius of each rung; ``rates`` are its levels over the sensitivity."""
        return noise_radii(self.level, rates)

    def least(self, radii: Integers) -> Integers:
        """Return the smallest noisy count that is accepted with each radius."""
        # Either v = noisy works: radius (1 + share) <= share noisy; or a whole number fits between (1 - share) high
        # and (1 + share) low, for which a gap of one, noisy >= (radius + 1/2) / share, is enough.
        q, r = radii.astype(np.float64), self.share
        as_it_is, in_a_gap = q * (1 + r) / r, (q + 0.5) / r
        least: Floats = np.ceil(np.minimum(as_it_is, in_a_gap) * (1 + 1e-12))
        least[radii == 0] = 0
        beyond = least >= _BEYOND  # no 64-bit value is accepted where the smallest one would not fit
        found = np.where(beyond, np.iinfo(np.int64).max, np.where(beyond, 0, least).astype(np.int64))
        if self.exact:
            top, bottom = self.exact.as_integer_ratio()
            near = (radii > 0) & (radii <= _MOST_EXACT)
            small = radii[near]
            found[near] = np.minimum(-(-small * (top + bottom) // top), -(-(2 * small + 1) * bottom // (2 * top)))
        return found

    def sizes(self, noisy: NDArray[Any]) -> NDArray[Any]:
        """Return what is compared with ``least``: the noisy answers, or their sizes where they may be negative."""
        return np.abs(noisy) if self.signed else noisy

    def value(self, noisy: Integers, radii: Integers) -> Integers:
        """Return the released count: the noisy one, or if that is too high the largest that all exact counts allow."""
        allowed = np.floor((1 + self.share) * (noisy - radii) * (1 - 1e-12)).astype(np.int64)
        needed = np.ceil((1 - self.share) * (noisy + radii) * (1 - 1e-12)).astype(np.int64)
        value: Integers = np.minimum(noisy, np.maximum(allowed, needed))
        return value


@lru_cache(maxsize=256)
def relative_ladder(sensitivity: Fraction, cap: Fraction, *, above: Fraction = Fraction(0)) -> Ladder:
    """Return the rungs of a climb: powers of ``RATIO`` times the sensitivity, from very private ones up to the cap.

    The first rung does not depend on the cap, unless that is tiny: a climb stops where it is accurate enough, and rungs
    below cost it nothing. Rungs whose noise would be wider than exact sampling supports are left out, and rungs without
    noise.

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
    rungs = [rung for k in range(first, top + 1) if least <= (rung := sensitivity * _power_of_ratio(k)) <= cap]
    # Every rung is a power of the ratio, also where a cap leaves none above what was read: the last one then.
    return Ladder(tuple(rung for rung in rungs if rung > above) or tuple(rungs[-1:]) or (cap,))


def is_tiny(sensitivity: Fraction, cap: Fraction) -> bool:
    """Return whether a climb to this cap begins below the level where others begin."""
    return relative_ladder(sensitivity, cap)[0] < relative_ladder(sensitivity, Fraction(HIGHEST_LEVEL))[0]


def rung_level(failure_probability: float, level: float) -> float:
    """Return one rung's part of a failure probability that all rungs share, whichever of them may be read.

    An interval at this part also holds at a rung chosen by its noise: the parts of all rungs that a ladder can have, powers
    of ``RATIO`` and the fine ones between them, add up to at most the whole (docs/proofs/stopped-relative-error.md).
    """
    low, high = _USUAL_LEVELS
    usual = low <= level <= high
    return failure_probability * (
        _USUAL_PART / count_rungs(low, high, FINE_STEPS) if usual else (1 - _USUAL_PART) / _MOST_RUNGS_EVER
    )


def count_rungs(low: float, high: float, steps: int = 1) -> int:
    """Return the most powers of ``RATIO``, times any number, with fine steps between them, that lie between two numbers."""
    return math.floor(steps * math.log(high / low) / math.log(RATIO)) + 1


MOST_RUNGS = count_rungs(_LOWEST_LEVEL, HIGHEST_LEVEL)
"""The most rungs that one relative climb reads."""
_MOST_RUNGS_EVER = count_rungs(1 / _WIDEST, LARGEST_RATE, FINE_STEPS) + 1  # and the cap, where no power lies below it


def fine_rung(sensitivity: Fraction, level: float) -> Fraction:
    """Return the first rung at or above a level, among the powers of ``RATIO`` and the fine ones between them.

    >>> float(fine_rung(Fraction(1), 1.01)), float(fine_rung(Fraction(1), 1.1))
    (1.0241137, 1.1)
    """
    steps = math.ceil(FINE_STEPS * math.log(level / float(sensitivity)) / math.log(RATIO) - 1e-6)
    return sensitivity * _power_of_ratio(steps / FINE_STEPS)


@lru_cache(maxsize=4096)
def _power_of_ratio(exponent: float) -> Fraction:
    """Return a power of ``RATIO`` as a short fraction."""
    value = RATIO**exponent
    grid = Fraction(10) ** (math.floor(math.log10(value)) - 7)
    return round(Fraction(value) / grid) * grid


@lru_cache(maxsize=512)
def relative_rule(share: Fraction, failure_probability: Fraction, *, signed: bool = False) -> RelativeRule:
    """Return the rule whose stopped answer misses by more than ``share`` with at most this probability, always.

    A looser share never accepts at a higher threshold: thresholds, in noise scales, are taken from a grid that does not
    depend on the share, and the bound falls with the share at each of them.
    """
    allowed, width = float(failure_probability), float(share)
    if share < _FINEST:
        low, high = _USUAL_LEVELS
        return RelativeRule(width, allowed / count_rungs(low, high), low, signed=signed)

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
    if share.denominator <= _MOST_DENOMINATOR:
        # Shares from about a third on are decided by rungs far below the answer, so small answers need no margin there.
        for steps in _EXACT_STEPS:
            exact = replace(rule(safe + steps), exact=share)
            if miss_probability(exact) <= allowed:
                return exact
    return rule(safe)


def miss_probability(rule: RelativeRule) -> float:
    """Bound the probability to stop with an answer that misses, over all exact answers, first and last rungs."""

    def thresholds_at(rates: Floats) -> Thresholds:
        radii = rule.radii(rates)
        least = rule.least(radii).astype(np.float64)
        return Thresholds(rates, radii.astype(np.float64), least, least)

    return stopped_failure(
        thresholds_at, _all_rates(), share=rule.share, level=rule.level, signed=rule.signed, most_rungs=MOST_RUNGS
    )


@lru_cache(maxsize=1)
def _all_rates() -> Floats:
    """Return every rate that a rung can have."""
    first, last = math.ceil(-math.log(_WIDEST) / math.log(RATIO)), math.floor(math.log(LARGEST_RATE) / math.log(RATIO))
    return np.array([float(_power_of_ratio(exponent)) for exponent in range(first, last + 1)])


@dataclass(frozen=True)
class FailureParts:
    """The part of the failure probability of each group; together at most 1."""

    parts: Floats

    def level(self, group: int, failure_probability: Fraction) -> Fraction:
        """Return the failure probability of one group."""
        return Fraction(str(self.parts[group])) * failure_probability


def split_cap(cap: Fraction) -> tuple[Fraction, Fraction]:
    """Split a cap into what the pilot and the climb may cost."""
    pilot = cap * PILOT_SHARE / (1 + PILOT_SHARE)
    return pilot, cap - pilot


def least_rate(counts: Floats, share: float, failure: float) -> float:
    """Return a lower bound of ``predicted_rate``: the rate that the smallest count needs for itself."""
    # 2 exp(-rate margin) / (1 + exp(-rate)) <= failure implies rate >= log(1 / failure) / margin.
    return math.log(1 / failure) / float(np.floor(share * max(float(counts.min()), 0.0)) + 1.0)


def predicted_rate(counts: Floats, share: float, failure: float) -> float:
    """Return the rate (epsilon over sensitivity) at which counts like these would all be within the share of them.

    Infinite counts stand for groups that are given up; where all of them are, no rate is needed.
    """
    if not np.isfinite(counts).any():
        return 0.0
    margins = np.floor(share * np.maximum(counts, 0.0)) + 1.0  # noise this large, and no smaller, is too much
    low, high = 0.0, math.log(2 * len(counts) / failure) / float(margins.min())
    for _ in range(60):
        middle = (low + high) / 2
        enough = float(_tails_beyond(margins, middle).sum()) <= failure
        low, high = (low, middle) if enough else (middle, high)
    return high


def failure_parts(counts: Floats, share: float, failure: float, scale: float = 0.0) -> FailureParts:
    """Return parts for groups of about these sizes: what each would fail with at one common rate.

    Groups that are given up (infinite counts) get a small even part; where all of them are, the budget is shared evenly.
    Where the counts have noise of this ``scale``, the parts are more even by as much as the noise could have changed them.

    >>> failure_parts(np.array([30.0, 400.0]), 0.05, 0.05).parts.tolist()
    [0.95, 0.02]
    """
    if not np.isfinite(counts).any():
        parts = np.full(len(counts), 1 / len(counts))
    else:
        margins = np.floor(share * np.maximum(counts, 0.0)) + 1.0
        rate = predicted_rate(counts, share, failure)
        # The logarithm of a tail is off by this standard deviation; averaged over it, parts are about those of a root.
        doubt = math.sqrt(2) * rate * share * scale
        wanted = _tails_beyond(margins, rate) ** (1 / math.sqrt(1 + _EVENING * doubt**2))
        parts = (1 - _EVEN_PART) * wanted / wanted.sum() + _EVEN_PART / len(counts)
    return FailureParts(_list_parts(parts))


def parts_for_rates(rates: Floats, failure: float) -> FailureParts:
    """Return parts for cells that would reach their target at these rates with an even split of the failure probability.

    A radius is about log(2 / level) noise scales, so at a common rate E a cell that needs the rate e with the level d would
    do with the level 2 (d / 2)^(E / e). The lowest E at which these levels add up to ``failure`` sets the parts.

    >>> parts_for_rates(np.array([1.0, 0.5, 0.25]), 0.05).parts.tolist()
    [0.85, 0.03, 0.01]
    >>> parts_for_rates(np.array([2.0, 2.0]), 0.05).parts.tolist()
    [0.5, 0.5]
    """
    powers = math.log(2 * len(rates) / failure) * rates.max() / rates
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if 2 * np.exp(-middle * powers).sum() <= failure else (middle, high)
    wanted = np.exp(-high * powers)
    return FailureParts(_list_parts((1 - _EVEN_PART) * wanted / wanted.sum() + _EVEN_PART / len(rates)))


def _list_parts(parts: Floats) -> Floats:
    """Round each part down to a short list, so that few rules or radii need computing; an even split stays."""
    if np.ptp(parts) < 1e-9:
        return np.full(len(parts), 1 / len(parts))
    place = np.searchsorted(-_PARTS, -parts)
    listed = _PARTS[np.minimum(place, len(_PARTS) - 1)]
    return np.where(place < len(_PARTS), listed, np.minimum(parts, _PARTS[-1]))


def _tails_beyond(margins: Floats, rate: float) -> Floats:
    """Return P(|noise| >= margin) of discrete Laplace noise."""
    return np.asarray(2 * np.exp(-rate * margins) / (1 + math.exp(-rate)))
