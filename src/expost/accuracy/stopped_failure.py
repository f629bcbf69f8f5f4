"""How often a stopped climb misses: a bound over all exact answers, all rungs and both signs.

A climb reads y_t = c + N_t rung by rung, accepts at the first rung with y_t >= m_t (with |y_t| >= m_t where the answer
may be negative) and then releases a value. The terms below bound the probability to accept at a rung and to miss,
jointly with a refusal at the rung before. Theorem and proof: docs/proofs/stopped-relative-error.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Thresholds", "stopped_failure"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_SINGLE = 32  # exact answers below this are enumerated one by one
_FINE, _FINE_SHARE, _FINE_MOST = 0.05, 5e-4, 0.25  # width of a cell in noise scales: wider where climbs stop later
_NEAR, _NEAR_RUNGS = 0.3, 4  # rate times answer below which a rung shows little of it; see _EnumeratedRungs.worst
_FAR = 18.0  # rungs that need noise this many scales beyond the quantile are left out of the enumeration
_LEFT_OUT = 1e-5  # of the level: 500 rungs of at most exp(-_FAR) each, and some to spare
_SCALE_FREE = 2e-3  # rates below this: the lattice is so fine that the terms repeat with every factor of the ratio


@dataclass(frozen=True)
class Thresholds:
    """The rungs of a rule: rates, noise radii and the sizes from which on a noisy answer is accepted.

    A size of at least ``least`` is accepted; one below ``most_refused`` may have been refused. Both are the same unless
    they stand for a range of rungs.
    """

    rates: Floats
    radii: Floats
    least: Floats
    most_refused: Floats


def stopped_failure(
    thresholds_at: Callable[[Floats], Thresholds],
    rates: Floats,
    *,
    share: float,
    level: float,
    signed: bool,
    most_rungs: int,
) -> float:
    """Bound the probability that a climb stops with a value that misses by more than the share, over all answers.

    ``rates`` are all rates a rung can have, increasing; a climb reads at most ``most_rungs`` consecutive ones.
    ``level`` is the tail at which the radii were taken.
    """
    far = _FAR + math.log(1 / level)
    exact = _EnumeratedRungs(**vars(thresholds_at(rates)), share=share, far=far, signed=signed)
    start = int(np.searchsorted(rates, _NEAR / _SINGLE))
    low = exact.low_rungs(start)
    single = np.arange(float(_SINGLE))
    few = exact.worst(single, single, np.arange(start, len(rates))[None, :], low, most_rungs)
    middle = math.log(2 / level) / share  # a climb stops near rate * answer = middle
    last = ((1 + share) * middle + far + 2) / _SCALE_FREE
    edges = np.unique(np.floor(_cell_edges(_SINGLE, last, middle)))
    many = exact.worst_of_cells(edges[:-1], edges[1:] - 1, low, most_rungs)
    # One factor of the ratio more, with thresholds that bound those of all lower rates at once.
    edges = _cell_edges(last, last * float(rates[-1] / rates[-2]) * 1.01, middle)
    beyond = _scale_free(exact, share, level).worst_of_cells(edges[:-1], edges[1:], low, most_rungs)
    return max(few, many, beyond * (1 + 4 * _SCALE_FREE)) * (1 + 1e-9) + _LEFT_OUT * level


def _cell_edges(first: float, last: float, middle: float) -> Floats:
    """Return the ends of cells of answers from ``first`` to ``last``, narrow where a climb stops."""
    width = min(_FINE + _FINE_SHARE * middle, _FINE_MOST)
    count = math.ceil(math.log(last / first) * (middle + 5) / width)
    return np.geomspace(first, last, count + 1)


def _scale_free(exact: _EnumeratedRungs, share: float, level: float) -> _EnumeratedRungs:
    """Return thresholds of real numbers that enclose those of the lattice, whatever the rounding.

    With x = ln(2 / (level (1 + a))) / rate the radius is between x - 1 and x, and the least accepted size between
    (x - 1/2) / share and (x + 1/2) / share + 1, because radii beyond 1 / (2 share) accept where a whole number fits.
    """
    x = (math.log(2 / level) - np.log1p(np.exp(-exact.rates))) / exact.rates
    radii, least = x - 1, (x - 0.5) / share
    as_it_is = radii * (1 + share) / share  # the other rule of acceptance, where the radius is small
    return replace(exact, radii=radii, least=np.minimum(least, as_it_is), most_refused=(x + 0.5) / share + 1)


@dataclass(frozen=True)
class _Low:
    """Rungs that reveal almost nothing of the answer: what each adds, and what the first one adds."""

    each: float
    first: float


@dataclass(frozen=True)
class _EnumeratedRungs(Thresholds):
    """The rungs of the enumeration."""

    share: float
    far: float
    signed: bool

    def low_rungs(self, end: int) -> _Low:
        """Return the terms of an answer of zero at rungs below ``end``, where everything accepted is a miss."""
        zero = np.zeros((1, 1))
        alone, joint = self._miss_terms(zero, zero, np.arange(1, max(int(end), 2))[None, :])
        return _Low(float(joint.max()), float(alone.max()) * math.exp(_NEAR))

    def worst_of_cells(self, first: Floats, last: Floats, low: _Low, most_rungs: int) -> float:
        """Return the largest bound over cells of answers, each with the rungs that matter to it."""
        # Rungs below need noise of ``far`` scales to accept, rungs above to refuse.
        reachable = np.minimum.accumulate(self.least - self.far / self.rates)
        refusable = np.maximum.accumulate((self.most_refused + self.far / self.rates)[::-1])[::-1]
        start = np.maximum(_first_at_most(reachable, last), np.searchsorted(self.rates, _NEAR / last))
        end = _first_at_most(refusable, first) + 2
        width = int((end - start).max())
        band = np.minimum(np.clip(start, 1, None)[:, None] + np.arange(width), len(self.rates) - 1)
        return self.worst(first, last, band, low, most_rungs)

    def worst(self, low: Floats, high: Floats, band: NDArray[Any], lower: _Low, most_rungs: int) -> float:
        """Return the largest bound over cells, each with its band of rungs, and over the first and the last rung read.

        On a cell each term is taken where it is largest: acceptance at its upper end, missing at its lower end.
        """
        alone, joint = self._miss_terms(low[:, None], high[:, None], band)
        until = np.cumsum(joint, axis=1)
        later = until[:, -1:] - until
        within = (alone + later).max()
        # Rungs below the band: an answer c makes a prefix up to a rung of rate e at most exp(c e) likelier
        # (lattice-laplace.md, Theorem 2). Over all of them exp(c e) - 1 adds up to less than four rungs more.
        left = np.maximum(most_rungs - 1 - np.arange(joint.shape[1]), 0) + 1 + _NEAR_RUNGS
        from_below = (until + left * lower.each).max() + lower.first
        return float(max(within, from_below))

    def _miss_terms(self, low: Floats, high: Floats, band: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return P(accept and miss) at each rung, alone and jointly with a refusal at the rung before."""
        rate, before = self.rates[band], self.rates[band - 1]
        least, radius, refusable = self.least[band], self.radii[band], self.most_refused[band - 1]
        over = np.maximum(np.maximum(radius + 1, least - high), np.floor(self.share * low) + 1)
        under = np.maximum(radius + 1, np.floor((self.share * low - 0.5) / (1 + self.share)) + 1)
        deepest = high - least  # noise below minus this would not be accepted
        refused = refusable - low  # noise of the rung before below this was not accepted
        above = _upper_tail(over, rate)
        below = _lower_slice(under, deepest, rate)
        # Kept noise: lattice-laplace.md, Theorem 1.
        stay = np.exp(before - rate) * (np.expm1(-before) / np.expm1(-rate)) ** 2
        joint_above = _joint_above(over, refused, rate, before, stay)
        kept_below = _lower_slice(np.maximum(under, 1 - refused), deepest, rate)
        moved = np.minimum(below - kept_below, _moved_below(under, refused, rate, before))
        joint = joint_above + kept_below + (1 - stay) * np.maximum(moved, 0)
        alone = above + below
        if self.signed:
            # Accepted with the wrong sign: always a miss.
            wrong = np.maximum(least, 1) + low
            alone = alone + _upper_tail(wrong, rate)
            joint = joint + _joint_above(wrong, refusable + high, rate, before, stay)
        return alone, np.minimum(joint, alone)


def _first_at_most(falling: Floats, limits: Floats) -> Indices:
    """Return the first index of a falling sequence whose entry is at most each limit."""
    return (len(falling) - np.searchsorted(falling[::-1], limits, side="right")).astype(np.int64)


def _upper_tail(start: Floats, rate: Floats) -> Floats:
    """Return P(noise >= start) for start >= 1."""
    tail: Floats = np.exp(-rate * start) / (1 + np.exp(-rate))
    return tail


def _lower_slice(start: Floats, stop: Floats, rate: Floats) -> Floats:
    """Return P(start <= -noise <= stop)."""
    inside = np.maximum(_upper_tail(start, rate) - _upper_tail(np.maximum(stop + 1, start), rate), 0)
    return np.where(stop >= start, inside, 0.0)


def _joint_above(over: Floats, refused: Floats, rate: Floats, before: Floats, stay: Floats) -> Floats:
    """Return P(noise >= over, and the noise of the rung before < refused)."""
    split = np.maximum(over, refused)
    far = _upper_tail(split, rate)
    near = np.maximum(_upper_tail(over, rate) - far, 0)
    kept = np.exp(-before)
    # Beyond ``refused`` the rung before must have jumped back: sum of two geometric series.
    back = far * -np.expm1(-rate) / (1 + kept) * np.exp(-before * (split - refused + 1)) / -np.expm1(-(before + rate))
    gap = refused - 1 - over
    jumped = np.where(
        gap < 0,
        np.exp(before * np.minimum(gap, 0)) / (1 + kept),
        1 - np.exp(-before * (np.maximum(gap, 0) + 1)) / (1 + kept),
    )
    joint: Floats = stay * near + (1 - stay) * (near * jumped + back)
    return joint


def _moved_below(under: Floats, refused: Floats, rate: Floats, before: Floats) -> Floats:
    """Bound P(refused <= noise <= -under, and a jump below ``refused``), the jump's own probability left out."""
    exponent = np.minimum(before * (refused - 1) - (rate - before) * under, 0.0)
    shape = -np.expm1(-rate) / (1 + np.exp(-rate)) / (1 + np.exp(-before))
    bound: Floats = shape * np.exp(exponent) / -np.expm1(before - rate)
    return bound
