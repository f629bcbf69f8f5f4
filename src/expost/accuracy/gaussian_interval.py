"""How far discrete Gaussian noise strays, alone or averaged over several releases, and the rho that a radius needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from expost.core.rational import rational, round_up

__all__ = ["gaussian_radius", "gaussian_tail", "rho_for_radius"]

_SUMMED = 1000.0  # variance up to which the tail is a sum of probabilities; beyond, the bound is within 5e-4 of it
_SLACK = 1e-11  # relative error allowed for the float formulas; always spent on the safe side
_FAR, _BEYOND = 38.0, 1e-300  # deviations that are summed, and a bound on the probability beyond
_HALVINGS = 100


def gaussian_tail(radius: float, square: Fraction, levels: Sequence[Fraction]) -> float:
    """Return the probability that the error of an estimate exceeds ``radius`` in absolute value, rounded up.

    The estimate is that of ``expost.noise.GaussianPath`` after the last of these ``levels``: independent releases, weighed by
    their precision. ``square`` is the squared L2 sensitivity. A single release has whole errors, and its tail is exact up to
    rounding (docs/proofs/gaussian-statistics.md).

    >>> round(gaussian_tail(196, Fraction(1), [Fraction(1, 20000)]), 4)
    0.0494
    """
    steps = [float(high - low) for low, high in zip([Fraction(0), *levels[:-1]], levels, strict=True)]
    if len(steps) == 1:
        variance, reach = float(square) / (2 * steps[0]), math.floor(radius)
        if variance <= _SUMMED:
            places = np.arange(math.ceil(_FAR * math.sqrt(variance)) + 2, dtype=np.float64)
            weights = np.exp(-(places**2) / (2 * variance))
            whole = 2 * weights.sum() - 1
            outside = 2 * float(weights[max(reach + 1, 0) :].sum()) / float(whole) if reach >= 0 else 1.0
            return min(outside * (1 + _SLACK) + _BEYOND, 1.0)
        # The event is an error of at least reach + 1.
        gap = reach + 0.5
    else:
        gap = radius - 0.5
    # Every point of the lattice is spread over its unit cube (the lemma on the page above).
    spread = sum(2 * step / float(square) for step in steps) / 24
    deviation = math.sqrt(float(square) / (2 * float(levels[-1])))
    smooth = math.exp(spread) * math.erfc(gap / (math.sqrt(2) * deviation)) if spread < 1 else 1.0
    # Sub-Gaussian errors (docs/proofs/gaussian-path.md), for noise of a few lattice units.
    return min(smooth * (1 + _SLACK), 2 * math.exp(-((radius / deviation) ** 2) / 2) * (1 + _SLACK), 1.0)


def gaussian_radius(level: float, square: Fraction, levels: Sequence[Fraction]) -> float:
    """Return a radius that the error of an estimate exceeds with at most this probability; whole for a single release."""
    deviation = math.sqrt(float(square) / (2 * float(levels[-1])))
    low, high = -1.0, 1.0 + deviation
    while gaussian_tail(high, square, levels) > level:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        if high - low < (0.5 if len(levels) == 1 else 1e-9 * high):
            break
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_tail(middle, square, levels) <= level else (middle, high)
    # The tail of whole errors is that of the radius rounded down.
    return float(math.floor(high)) if len(levels) == 1 else high


def rho_for_radius(radius: float, level: Fraction, square: Fraction, earlier: Sequence[Fraction] = ()) -> Fraction:
    """Return the least rho, all releases together, whose error stays within a radius except with this probability.

    ``earlier`` are the levels of the releases so far, if any; the radius is then at least one. The result is rounded up.

    >>> float(rho_for_radius(100, Fraction(1, 20), Fraction(1)))
    0.00019...
    """
    failure = float(level)
    if earlier and gaussian_tail(radius, square, earlier) <= failure:
        return earlier[-1]
    paid = earlier[-1] if earlier else Fraction(0)

    def suffices(rho: float) -> bool:
        return gaussian_tail(radius, square, [*earlier, paid + Fraction(rho)]) <= failure

    low, high = 0.0, float(square) / 2
    while not suffices(high):
        low, high = high, 2 * high
    # A power of two below, so that tiny levels get as many digits as large ones.
    while low == 0.0 and suffices(high / 2):
        high /= 2
    low = max(low, high / 2)
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return paid + rational(round_up(Fraction(high)), "rho")
