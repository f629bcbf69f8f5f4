"""A proportion in a table of private size: both counts carry noise, and the number of rows is a nuisance parameter."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special

from expost.core import InvalidRequest
from expost.stats.hypothesis.hypothesis_input import Alternative
from expost.stats.hypothesis.reference_law import (
    NUISANCE_SIZE,
    binomial_masses,
    bound_noise_sum,
    bound_table_size,
    noisy_normal_quantile,
    noisy_normal_tail,
)

__all__ = ["private_interval", "private_p_value", "private_power", "private_power_bound"]

Floats = NDArray[np.float64]

_CELLS = 1 << 15  # lattice cells; the law of the noise is rounded up to them
_AT_ONCE = 1 << 15  # counts per block, so that temporaries stay in the processor cache
_MANY = 64  # with this many counts per cell it is faster to add up cells
_TIE = 1e-9  # of a cell: a float this little above a border counts as on it
_LOG = 45.0  # noise beyond 45 scales has a probability below 1e-19
_ROUNDING = 1e-12  # error of sums of probabilities in floats
_STRIDE = 0.05  # numbers of rows that differ by this many standard deviations are bounded together
_WIDEST_REACH = 1 << 20
_LOST = 0.002  # power given up: cases in which the noise makes the size appear much larger or smaller


def private_p_value(
    successes: float, others: float, null: float, *, scale: float, alternative: Alternative = "two-sided"
) -> float:
    """Return the p-value of a proportion from the noisy counts of successes and of all other rows.

    The statistic (1 - null) successes - null others is a centred binomial number plus noise of a known law. The number
    of rows is maximised over those that the noisy total leaves possible, and the probability that it is not among them
    is added (BB94, Lemma 1; docs/proofs/noisy-reference.md).

    >>> round(private_p_value(60, 40, 0.5, scale=1.0, alternative="greater"), 3)
    0.036
    """
    sizes = bound_table_size(successes + others, 2, scale)
    away = (1 - null) * successes - null * others
    if alternative == "greater":
        tail = _largest_upper_tail(away, sizes, null, scale)
    elif alternative == "less":
        tail = _largest_upper_tail(-away, sizes, 1 - null, scale)
    else:
        tail = 2 * min(
            _largest_upper_tail(away, sizes, null, scale), _largest_upper_tail(-away, sizes, 1 - null, scale)
        )
    return min(tail + NUISANCE_SIZE, 1.0)


def private_interval(
    successes: float, others: float, *, scale: float, failure: float, alternative: Alternative
) -> tuple[float, float]:
    """Return the range of proportions that the test does not reject, found by bisection."""
    low = 0.0 if alternative == "less" else _solve_lower_end(successes, others, scale, failure, alternative)
    high = 1.0 if alternative == "greater" else 1 - _solve_lower_end(others, successes, scale, failure, alternative)
    return min(low, high), max(low, high)


def private_power(
    rows: int, null: float, effect: float, *, epsilon: float, level: float, alternative: Alternative
) -> float:
    """Approximate the power by the normal law, for searches that ``private_power_bound`` confirms."""
    base, truth = _orient_upwards(null, effect, alternative)
    tail = (level - NUISANCE_SIZE) / (2 if alternative == "two-sided" else 1)
    if tail <= 0 or truth <= base:
        return 0.0
    most = rows + bound_noise_sum(2, 1 / epsilon, failure_probability=NUISANCE_SIZE)
    scales = [(1 - base) / epsilon, base / epsilon]
    critical = noisy_normal_quantile(tail, math.sqrt(most * base * (1 - base)), scales)
    spread = math.sqrt(rows * truth * (1 - truth))
    return float(noisy_normal_tail(critical - rows * (truth - base), spread, list(scales)))


def private_power_bound(
    rows: int, null: float, effect: float, *, epsilon: float, level: float, alternative: Alternative
) -> float:
    """Return a lower bound on the power when there are ``rows`` rows and the true proportion is ``effect``.

    Except with a small probability the noisy total leaves only sizes in a fixed range possible, and the test rejects
    whenever the statistic exceeds a value whose tail is small for all of them.
    """
    base, truth = _orient_upwards(null, effect, alternative)
    tail = (level - NUISANCE_SIZE) / (2 if alternative == "two-sided" else 1)
    if tail <= 0 or truth <= base:
        return 0.0
    scale = 1 / epsilon
    reach = sum(bound_noise_sum(2, scale, failure_probability=share) for share in (NUISANCE_SIZE, _LOST))
    if reach > max(_WIDEST_REACH, rows):
        return 0.0  # a valid lower bound: so few rows have no power under such noise
    sizes = (max(rows - reach, 0), rows + reach)
    low, high = 0.0, _LOG * scale + rows + reach
    while high - low > 0.001 * (scale + math.sqrt(rows)):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _largest_upper_tail(middle, sizes, base, scale, enough=tail) <= tail else (middle, high)
        )
    counts, masses = _binomial_window(np.array([rows]), truth)
    beyond = 1 - _noise_tail(-(high - (counts - base * rows)), base, scale)
    return max(float((masses * beyond).sum()) - _LOST - _ROUNDING, 0.0)


def _orient_upwards(null: float, effect: float, alternative: Alternative) -> tuple[float, float]:
    """Return null and effect of a test that rejects above; a test that rejects below is turned into one of failures."""
    below = alternative == "less" or (alternative == "two-sided" and effect < null)
    return (1 - null, 1 - effect) if below else (null, effect)


def _solve_lower_end(successes: float, others: float, scale: float, failure: float, alternative: Alternative) -> float:
    """Find the lower end of the interval by bisection."""
    tail = (failure - NUISANCE_SIZE) / (2 if alternative == "two-sided" else 1)
    if tail <= 0:
        return 0.0
    sizes = bound_table_size(successes + others, 2, scale)

    def rejected(chance: float) -> bool:
        away = (1 - chance) * successes - chance * others
        return _largest_upper_tail(away, sizes, chance, scale, enough=tail) <= tail

    low, high = 1e-6, 1 - 1e-6
    if not rejected(low):
        return 0.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _largest_upper_tail(
    at: float, sizes: tuple[int, int], chance: float, scale: float, *, enough: float = 1.0
) -> float:
    """Return the largest P(Binomial(n, chance) - chance n + noise >= at) over all sizes n of a range.

    Sizes are bounded in blocks: each row beyond the first size of a block adds at most 1 - chance. The search ends once
    the tail is above ``enough``; large sizes come first, because they have the largest spread.
    """
    spread = math.sqrt(sizes[0] * chance * (1 - chance) + 2 * scale**2)
    step = max(1, math.floor(_STRIDE * spread))
    firsts = np.arange(sizes[0], sizes[1] + 1, step)
    sum_tails = _sum_by_cells if _noise_law(chance, scale)[0] >= _MANY else _sum_by_counts
    at_once, found = max(1, _AT_ONCE // _binomial_reach(sizes[1], chance)), 0.0
    for stop in range(len(firsts), 0, -at_once):
        block = firsts[max(stop - at_once, 0) : stop]
        found = max(found, float(sum_tails(at - (step - 1) * (1 - chance), block, chance, scale).max()) + _ROUNDING)
        if found > enough:
            break
    return min(found, 1.0)


def _sum_by_counts(at: float, trials: NDArray[np.int64], chance: float, scale: float) -> Floats:
    """Return P(Binomial(n, chance) - chance n + noise >= at) for each n, summed over all counts of relevant mass."""
    counts, masses = _binomial_window(trials, chance)
    beyond = _noise_tail(at - (counts - chance * trials[:, None]), chance, scale)
    total: Floats = (masses * beyond).sum(1)
    return total


def _sum_by_cells(at: float, trials: NDArray[np.int64], chance: float, scale: float) -> Floats:
    """Return the same sum over cells: all counts that need the noise to reach the same cell have the same tail."""
    cell, first, tails = _noise_law(chance, scale)
    n = trials[:, None].astype(np.float64)
    reach = _binomial_reach(float(n.max()), chance)
    cells = np.arange(math.floor((at - reach) / cell), math.ceil((at + reach) / cell) + 1)
    least = np.ceil(at + chance * n - (cells + _TIE) * cell)  # the smallest count of a cell
    inside = np.clip(least, 1, np.maximum(n, 1))
    above = np.where(least < 1, 1.0, np.where(least > n, 0.0, special.betainc(inside, n - inside + 1, chance)))
    beyond = tails[np.clip(cells - first, 0, len(tails) - 1)]
    total: Floats = (np.diff(above, axis=1, prepend=0.0) * beyond).sum(1)
    return total


def _binomial_window(trials: NDArray[np.int64], chance: float) -> tuple[Floats, Floats]:
    """Return the counts of relevant mass and their probabilities, one row per number of trials."""
    n = trials[:, None].astype(np.float64)
    reach = _binomial_reach(float(n.max()), chance)
    counts: Floats = np.floor(n * chance) + np.arange(-reach, reach + 1, dtype=np.float64)
    return counts, binomial_masses(counts, n, chance)


def _binomial_reach(trials: float, chance: float) -> int:
    """Bound the distance of a binomial number from its mean, except with probability exp(-42) (Bernstein)."""
    return math.ceil(math.sqrt(84 * trials * chance * (1 - chance)) + 28)


def _noise_tail(at: Floats, chance: float, scale: float) -> Floats:
    """Return an upper bound on P((1 - chance) N - chance N' >= at) for two discrete Laplace noises of this scale."""
    cell, first, tails = _noise_law(chance, scale)
    place = np.ceil(at / cell - _TIE) - first
    found: Floats = tails[np.clip(place, 0, len(tails) - 1).astype(np.int64)]
    return found


@lru_cache(maxsize=64)
def _noise_law(chance: float, scale: float) -> tuple[float, int, Floats]:
    """Return cell width, first cell and upper tails of the weighted sum of two noises, each rounded up to the lattice."""
    if not 0 < chance < 1:
        raise InvalidRequest("Expected a proportion between 0 and 1", got=chance, do="Pass one inside")
    most = math.ceil(_LOG * scale) + 1
    cell = 2 * (most + 1) / _CELLS
    lowest, laws = zip(*(_rounded_law(weight, cell, most, scale) for weight in (1 - chance, chance)), strict=True)
    both = np.maximum(signal.fftconvolve(*laws), 0.0)
    tails = np.minimum(np.cumsum(both[::-1])[::-1] + _ROUNDING, 1.0)
    return cell, sum(lowest), np.append(tails, _ROUNDING)


def _rounded_law(weight: float, cell: float, most: int, scale: float) -> tuple[int, Floats]:
    """Return the lowest cell and the law of ``weight`` N for a discrete Laplace N within ``most``, rounded up to the lattice.

    The noise is symmetric, so that a negative weight has the same law. Cell c holds the values from above
    cell (c - 1) / weight to cell c / weight: a piece of a geometric series on each side of zero.
    """
    lowest, highest = (math.ceil(weight * end / cell) for end in (-most, most))
    if 2 * most < highest - lowest:  # fewer values than cells
        values = np.arange(-most, most + 1)
        place = np.ceil(weight * values / cell).astype(np.int64) - lowest
        return lowest, np.bincount(place, math.tanh(0.5 / scale) * np.exp(-np.abs(values) / scale)).astype(np.float64)
    borders = np.clip(np.floor(np.arange(lowest - 1, highest + 1) * (cell / weight)), -most - 1, most)
    borders[[0, -1]] = -most - 1, most
    # Values between two borders: those from 0 on, and the magnitudes of those below 0.
    upper, lower = np.maximum(borders, -1), -1 - np.minimum(borders, -1)
    masses = _sum_series(upper[:-1] + 1, upper[1:] + 1, scale) + _sum_series(lower[1:] + 1, lower[:-1] + 1, scale)
    return lowest, masses


def _sum_series(start: Floats, stop: Floats, scale: float) -> Floats:
    """Sum P(N = k) over the whole numbers k >= 0 from ``start`` to ``stop - 1``."""
    total: Floats = np.exp(-start / scale) * -np.expm1(-(stop - start) / scale) / (1 + math.exp(-1 / scale))
    return total
