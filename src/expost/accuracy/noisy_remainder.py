"""A bound known in law plus a remainder read under noise: how noisy the reading may be for one failure probability."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELLS", "CLIMB_COST", "RATIO", "THRESHOLDS", "acceptance", "largest_scale"]

Floats = NDArray[np.float64]

RATIO = Fraction(7, 5)
"""The noise of a rung over that of the next one."""
THRESHOLDS = (Fraction(1, 2), Fraction(4, 5), Fraction(19, 20), Fraction(1), Fraction(19, 20), Fraction(9, 10))
"""A rung accepts when its noisy remainder is at most this, in units of the first rung's noise."""
CLIMB_COST = 1.28
"""What a remainder of zero costs on average, in units of the first rung."""

CELLS = np.concatenate([np.linspace(0.98, 0.31, 34), np.geomspace(0.3, 1e-4, 86)])
"""Probabilities that cut a law into cells: what lies in one is bounded by what lies at its end."""


def acceptance(remainder: Floats, *, grain: float = 0.0) -> Floats:
    """An upper bound on the probability that any rung accepts a remainder, given in units of the first rung's noise.

    Rung k accepts when the remainder plus N_k is at most its threshold. P(any) <= sum P(E_k) - sum P(E_k and E_k+1), because
    what is new at a rung is at most E_k without E_k-1; the second sum is bounded from below by the law of the path. ``grain``
    is the grid in units of the last rung's noise (docs/proofs/truncated-ridge.md).

    >>> acceptance(np.array([0.0, 5.0])).round(3)
    array([1.   , 0.006])
    """
    accepted = _below((_BARS - remainder) * _FINER)
    stayed = _below((np.minimum(_BARS[:-1], _BARS[1:]) - remainder) * _FINER[1:])
    both = _STAY * stayed + (1 - _STAY) * _JUMPS * accepted[1:]
    total = (1 + grain) * accepted.sum(axis=0) - (1 - 4 * grain) * both.sum(axis=0)
    bound: Floats = np.where(remainder < 0, 1.0, np.minimum(total, 1.0))
    return bound


def _also_below(gap: float, ratio: float) -> float:
    """P(J <= gap + E) for J Laplace of scale 1 and E exponential of scale 1 / ratio, independent."""
    if gap >= 0:
        return 1 - ratio / (ratio + 1) * math.exp(-gap) / 2
    near, far = math.exp(gap), math.exp(ratio * gap)
    return ratio / (ratio - 1) * (near - far) / 2 + far * (1 - ratio / (ratio + 1) / 2)


def _below(x: Floats) -> Floats:
    """The distribution function of a unit Laplace variable."""
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


# One row a rung, so that all rungs are looked at in one step.
_BARS = np.array([[float(each)] for each in THRESHOLDS])
_FINER = float(RATIO) ** np.arange(len(THRESHOLDS))[:, None]  # the first rung's noise over each one's
_STAY = float(1 / RATIO**2)  # the probability that the noise of a rung is that of the next one
_JUMPS = np.array(
    [
        [_also_below(float(here - after) * float(RATIO) ** rung, float(RATIO))]
        for rung, (here, after) in enumerate(pairwise(THRESHOLDS))
    ]
)


def largest_scale(
    rooms: Floats, failure_probability: Fraction, *, grid: float, precision: float = 1e-6
) -> float | None:
    """The noise of the first rung with which a remainder above its room is accepted with at most this probability.

    The room is what a part known in law leaves: it is below ``rooms`` with at most the probabilities ``CELLS``. Remainders
    are sums on the ``grid``, and may depend on the room in any way. The answer is at most ``precision`` too small; none if
    no noise is small enough.
    """
    weights = -np.diff(CELLS, prepend=1.0)
    last = float(RATIO) ** (len(THRESHOLDS) - 1)

    def failure(scale: float) -> float:
        cells = acceptance(rooms / scale, grain=grid * last / scale)
        return float(weights @ cells) + float(CELLS[-1])

    low, high = grid * last * 1e3, max(float(rooms.max()), grid * last * 2e3)
    if failure(low) > failure_probability:
        return None
    while failure(high) <= failure_probability:
        high *= 2
    while high - low > precision * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if failure(middle) <= failure_probability else (low, middle)
    return low
