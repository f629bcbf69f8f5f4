"""A proportion among a number of rows that is private: both counts carry noise, and the size is a nuisance."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from expost.core import InvalidRequest
from expost.stats.hypothesis.draw import binomial_masses
from expost.stats.hypothesis.noise_reach import NUISANCE_SIZE, noise_reach, size_range
from expost.stats.hypothesis.reference import noisy_normal_quantile, noisy_normal_tail
from expost.stats.hypothesis.verdict import Alternative

__all__ = ["private_interval", "private_p_value", "private_power", "private_power_bound"]

Floats = NDArray[np.float64]

_CELLS = 1 << 15  # of the lattice that the law of the noise is rounded up to
_LOG = 45.0  # noise beyond 45 scales has a probability below 1e-19
_ROUNDING = 1e-12  # of sums of probabilities in floats
_STRIDE = 0.05  # numbers of rows that differ by this many standard deviations are bounded together
_WIDEST_REACH = 1 << 20
_LOST = 0.002  # of the power: sizes that the noise makes look much larger or smaller


def private_p_value(
    successes: float, others: float, null: float, *, scale: float, alternative: Alternative = "two-sided"
) -> float:
    """The p-value of a proportion from the noisy counts of successes and of all other rows.

    The statistic (1 - null) successes - null others is a centred binomial number plus noise of a known law. The number
    of rows is maximised over those that the noisy total leaves possible, and the probability that it is none of them
    is added (BB94, Lemma 1; docs/proofs/noisy-reference.md).

    >>> round(private_p_value(60, 40, 0.5, scale=1.0, alternative="greater"), 3)
    0.036
    """
    sizes = size_range(successes + others, 2, scale)
    away = (1 - null) * successes - null * others
    if alternative == "greater":
        tail = _upper_tail(away, sizes, null, scale)
    elif alternative == "less":
        tail = _upper_tail(-away, sizes, 1 - null, scale)
    else:
        tail = 2 * min(_upper_tail(away, sizes, null, scale), _upper_tail(-away, sizes, 1 - null, scale))
    return min(tail + NUISANCE_SIZE, 1.0)


def private_interval(
    successes: float, others: float, *, scale: float, failure: float, alternative: Alternative
) -> tuple[float, float]:
    """The proportions that the test does not reject, found by bisection."""
    low = 0.0 if alternative == "less" else _lower_end(successes, others, scale, failure, alternative)
    high = 1.0 if alternative == "greater" else 1 - _lower_end(others, successes, scale, failure, alternative)
    return min(low, high), max(low, high)


def private_power(
    rows: int, null: float, effect: float, *, epsilon: float, level: float, alternative: Alternative
) -> float:
    """About the power at a proportion, from the normal law; for searches that ``private_power_bound`` confirms."""
    base, truth = _upwards(null, effect, alternative)
    tail = (level - NUISANCE_SIZE) / (2 if alternative == "two-sided" else 1)
    if tail <= 0 or truth <= base:
        return 0.0
    most = rows + noise_reach(2, 1 / epsilon, failure_probability=NUISANCE_SIZE)
    scales = [(1 - base) / epsilon, base / epsilon]
    critical = noisy_normal_quantile(tail, math.sqrt(most * base * (1 - base)), scales)
    spread = math.sqrt(rows * truth * (1 - truth))
    return float(noisy_normal_tail(critical - rows * (truth - base), spread, list(scales)))


def private_power_bound(
    rows: int, null: float, effect: float, *, epsilon: float, level: float, alternative: Alternative
) -> float:
    """A lower bound on the power when there are ``rows`` rows and the true proportion is ``effect``.

    But for a small probability the noisy total leaves only sizes in a fixed range possible, and the test rejects
    whenever the statistic exceeds a value whose tail is small for all of them.

    >>> private_power_bound(500, 0.5, 0.6, epsilon=0.5, level=0.05, alternative="greater") > 0.99
    True
    """
    base, truth = _upwards(null, effect, alternative)
    tail = (level - NUISANCE_SIZE) / (2 if alternative == "two-sided" else 1)
    if tail <= 0 or truth <= base:
        return 0.0
    scale = 1 / epsilon
    reach = sum(noise_reach(2, scale, failure_probability=share) for share in (NUISANCE_SIZE, _LOST))
    if reach > max(_WIDEST_REACH, rows):
        return 0.0  # a bound below any power; the laws of such noise are tables of gigabytes
    sizes = (max(rows - reach, 0), rows + reach)
    low, high = 0.0, _LOG * scale + rows + reach
    while high - low > 0.001 * (scale + math.sqrt(rows)):
        middle = (low + high) / 2
        low, high = (low, middle) if _upper_tail(middle, sizes, base, scale) <= tail else (middle, high)
    counts, masses = _binomial(np.array([rows]), truth)
    beyond = 1 - _noise_tail(-(high - (counts - base * rows)), base, scale)
    return max(float((masses * beyond).sum()) - _LOST - _ROUNDING, 0.0)


def _upwards(null: float, effect: float, alternative: Alternative) -> tuple[float, float]:
    """Null and effect so that the test rejects above; a proportion of failures where it rejects below."""
    below = alternative == "less" or (alternative == "two-sided" and effect < null)
    return (1 - null, 1 - effect) if below else (null, effect)


def _lower_end(successes: float, others: float, scale: float, failure: float, alternative: Alternative) -> float:
    tail = (failure - NUISANCE_SIZE) / (2 if alternative == "two-sided" else 1)
    if tail <= 0:
        return 0.0
    sizes = size_range(successes + others, 2, scale)

    def rejected(chance: float) -> bool:
        return _upper_tail((1 - chance) * successes - chance * others, sizes, chance, scale) <= tail

    low, high = 1e-6, 1 - 1e-6
    if not rejected(low):
        return 0.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _upper_tail(at: float, sizes: tuple[int, int], chance: float, scale: float) -> float:
    """The largest P(Binomial(n, chance) - chance n + noise >= at) over all sizes n of a range.

    Sizes are taken in blocks: each row beyond the first size of a block adds at most 1 - chance.
    """
    spread = math.sqrt(sizes[0] * chance * (1 - chance) + 2 * scale**2)
    step = max(1, math.floor(_STRIDE * spread))
    firsts = np.arange(sizes[0], sizes[1] + 1, step)
    counts, masses = _binomial(firsts, chance)
    beyond = _noise_tail(at - (step - 1) * (1 - chance) - (counts - chance * firsts[:, None]), chance, scale)
    return min(float((masses * beyond).sum(1).max()) + _ROUNDING, 1.0)


def _binomial(trials: NDArray[np.int64], chance: float) -> tuple[Floats, Floats]:
    """The counts that matter and their probabilities, one row for each number of trials."""
    n = trials[:, None].astype(np.float64)
    # Bernstein's inequality: beyond this reach the binomial mass is below exp(-42).
    reach = math.ceil(math.sqrt(84 * float(n.max()) * chance * (1 - chance)) + 28)
    counts: Floats = np.floor(n * chance) + np.arange(-reach, reach + 1, dtype=np.float64)
    return counts, binomial_masses(counts, n, chance)


def _noise_tail(at: Floats, chance: float, scale: float) -> Floats:
    """An upper bound on P((1 - chance) N - chance N' >= at) for two discrete Laplace noises of this scale."""
    cell, first, tails = _noise_law(chance, scale)
    place = np.ceil(at / cell - 1e-9) - first
    found: Floats = tails[np.clip(place, 0, len(tails) - 1).astype(np.int64)]
    return found


@lru_cache(maxsize=64)
def _noise_law(chance: float, scale: float) -> tuple[float, int, Floats]:
    """Cell width, first cell, and upper tails of the weighted sum of two noises, each rounded up to the lattice."""
    if not 0 < chance < 1:
        raise InvalidRequest("Expected a proportion between 0 and 1", got=chance, do="Pass one inside")
    most = math.ceil(_LOG * scale) + 1
    cell = 2 * (most + 1) / _CELLS
    values = np.arange(-most, most + 1)
    decay = math.exp(-1 / scale)
    masses = (1 - decay) / (1 + decay) * np.exp(-np.abs(values) / scale)
    parts = [np.ceil(weight * values / cell).astype(np.int64) for weight in (1 - chance, -chance)]
    laws = [np.bincount(part - part.min(), masses) for part in parts]
    both = np.maximum(signal.fftconvolve(laws[0].astype(np.float64), laws[1].astype(np.float64)), 0.0)
    tails = np.minimum(np.cumsum(both[::-1])[::-1] + _ROUNDING, 1.0)
    return cell, int(sum(part.min() for part in parts)), np.append(tails, _ROUNDING)
