"""Exact choice of an index with weights times exponentials: the inverse of a sum, with a float filter."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource
from expost.noise.enclosure import exp_minus

__all__ = ["choose"]

_ROUNDING = 2.0**-52
_EXP_ERROR = 2.0**-48  # relative, for NumPy's exp and the conversion of the weight: both are within 2^-51
_RATE_ERROR = 2.0**-50  # relative, for the product of rate and gap
_MORE = 64


def choose(
    gaps: NDArray[Any], rate: Fraction, runs: int, *, bits: BitSource, weights: NDArray[Any] | None = None
) -> NDArray[np.intp]:
    """Indices with P(i) proportional to weights[i] * exp(-rate * gaps[i]), one a run; gaps are integers >= 0.

    The law is exact: a uniform real picks a cell of the cumulated weights; where the float sums cannot tell the cell
    for sure, more digits are drawn and the sums bounded by rigorous integers until they can. One gap must be 0 and
    have a positive weight.

    >>> from expost.noise.bits import SeededBits
    >>> choose(np.array([0, 50]), Fraction(1), 5, bits=SeededBits(1)).tolist()
    [0, 0, 0, 0, 0]
    """
    ends, error = _float_ends(gaps, rate, weights)
    words = bits.words(runs)
    points = words.astype(np.float64) * (2.0**-64 * ends[-1])
    picked: NDArray[np.intp] = np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1)
    starts = np.concatenate([[-np.inf], ends[:-1]])  # nothing lies below the first cell, nothing above the last
    ends[-1] = np.inf
    doubtful = (points - error < starts[picked]) | (points + error > ends[picked])
    if doubtful.any():
        exact = _ExactCells(gaps, rate, weights)
        for run in np.flatnonzero(doubtful).tolist():
            picked[run] = exact.cell_of(int(words[run]), bits)
    return picked


def _float_ends(gaps: NDArray[Any], rate: Fraction, weights: NDArray[Any] | None) -> tuple[NDArray[np.float64], float]:
    """The cumulated weights in floats, and a bound on the distance of a scaled point and an end from their true values."""
    exponents = float(rate) * gaps.astype(np.float64)
    masses = np.exp(-np.minimum(exponents, 700.0)) * (1.0 if weights is None else weights.astype(np.float64))
    ends = np.cumsum(masses)
    cells = float(np.sum(masses * (exponents * _RATE_ERROR + _EXP_ERROR)))
    # A cumulated sum of n terms errs by n roundings; a point is a product of two rounded numbers and a 64-bit word.
    return ends, 4 * (cells + (len(ends) + 4) * _ROUNDING * float(ends[-1]))


class _ExactCells:
    """The same cells with rigorous integer bounds, to any length."""

    def __init__(self, gaps: NDArray[Any], rate: Fraction, weights: NDArray[Any] | None) -> None:
        self._gaps = [int(gap) for gap in gaps.tolist()]
        self._weights = [1] * len(self._gaps) if weights is None else [int(weight) for weight in weights.tolist()]
        self._rate = rate

    def cell_of(self, prefix: int, bits: BitSource) -> int:
        """The cell of a uniform real whose first 64 binary digits are ``prefix``."""
        length = _MORE
        while True:
            prefix, length = prefix << _MORE | bits.integer(_MORE), length + _MORE
            lows, highs = self._bounds(length)
            least, most = prefix * lows[-1] >> length, (prefix + 1) * highs[-1] >> length
            cell = next(index for index, high in enumerate(highs) if high > least)
            if most < lows[cell]:
                return cell

    def _bounds(self, length: int) -> tuple[list[int], list[int]]:
        known = {gap: exp_minus(self._rate * gap, length) for gap in set(self._gaps)}
        pairs = [(known[gap], weight) for gap, weight in zip(self._gaps, self._weights, strict=True)]
        lows = list(accumulate(low * weight for (low, _), weight in pairs))
        return lows, list(accumulate(high * weight for (_, high), weight in pairs))
