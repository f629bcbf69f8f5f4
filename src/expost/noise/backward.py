"""The backward kernel: less noise, given the more private noise already drawn.

If the noise at rate e is k, the noise at rate f > e is k with probability exp(-(f - e) (|k| + 1)) (1 - exp(-2 e)) /
(1 - exp(-2 f)), and else j with probability proportional to exp(-f |j| - e |k - j|) (docs/proofs/lattice-laplace.md).
The second law is drawn by rejection from discrete Laplace proposals of rate f - e, kept with probability
exp(-e (|j| + |k - j| - |k|)). Both parts together need at most two proposals per coordinate on average, whatever e, f.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource
from expost.noise.enclosure import Bounds, Real, minus_log_complement, ratio
from expost.noise.laplace import draw_laplace
from expost.noise.parameter import Parameter
from expost.noise.uniform_reals import UniformReals

__all__ = ["draw_less_noise"]

_ERROR = 2.0**-46  # of a float exponent h, times 1 + h: rates are rounded once, the logs are below 100


def draw_less_noise(noise: NDArray[Any], rate: Fraction, finer: Fraction, bits: BitSource) -> NDArray[Any]:
    """Discrete Laplace noise of rate ``finer`` per coordinate, of which ``noise`` (of ``rate``) is the noisier rung."""
    pending = np.flatnonzero(~_stays(noise, rate, finer, bits))
    less = noise.copy()
    gap = finer - rate
    while pending.size:
        known = noise[pending]
        scale = Parameter(np.array([1 / float(gap)]), lambda _: 1 / gap, None, (len(pending),))
        steps = draw_laplace(scale, bits)  # along the sign of the known noise
        if steps.dtype == object:
            less = less.astype(object)
        less[pending] = np.where(known < 0, -steps, steps)
        pending = pending[~_kept(steps, np.abs(known), rate, bits)]
    return less


def _stays(noise: NDArray[Any], rate: Fraction, finer: Fraction, bits: BitSource) -> NDArray[np.bool_]:
    """Coins for "no jump between the two rungs"."""
    log_ratio = math.log(math.expm1(-2 * float(finer)) / math.expm1(-2 * float(rate)))
    h = float(finer - rate) * (np.abs(noise).astype(float) + 1) + log_ratio

    def exact(place: int) -> Real:
        return partial(_stay_exponent, abs(int(noise[place])), rate, finer)

    return UniformReals(len(noise), bits).exceed(h, (1 + h) * _ERROR, exact)


def _stay_exponent(magnitude: int, rate: Fraction, finer: Fraction, length: int) -> Bounds:
    gap = (finer - rate) * (magnitude + 1) * (1 << length)
    (low, high), (finer_low, finer_high) = (minus_log_complement(2 * each, length) for each in (rate, finer))
    return math.floor(gap) + low - finer_high, math.ceil(gap) + high - finer_low


def _kept(steps: NDArray[Any], magnitudes: NDArray[Any], rate: Fraction, bits: BitSource) -> NDArray[np.bool_]:
    """Coins of probability exp(-rate * detour), the detour of a step beyond 0 or beyond the known noise."""
    detours = 2 * np.maximum(np.maximum(-steps, steps - magnitudes), 0).astype(float)
    h = float(rate) * detours

    def exact(place: int) -> Real:
        step, magnitude = int(steps[place]), int(magnitudes[place])
        return partial(ratio, rate * 2 * max(-step, step - magnitude, 0))

    return UniformReals(len(steps), bits).exceed(h, (1 + h) * _ERROR, exact)
