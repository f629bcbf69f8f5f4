"""Exact discrete Gaussian noise."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import Real, ratio
from expost.noise.laplace import draw_laplace
from expost.noise.parameter import LARGEST_SCALE, Parameter, blocks
from expost.noise.uniform_reals import UniformReals

__all__ = ["discrete_gaussian"]

_EXPONENT_ERROR = 2.0**-44  # of the float exponent h, times h + 4: docs/proofs/inversion-filter.md

_TRIES = 1.4  # proposals per value; most scales need 1.32


def discrete_gaussian(variance: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Integers with P(k) proportional to exp(-k^2 / (2 variance)).

    ``variance`` is the exact parameter sigma^2 (the variance of the noise is at most that, CKS20 Corollary 9), or one
    per element. Proposals are discrete Laplace, accepted by an exact coin (CKS20, Algorithm 3).

    >>> from expost.noise.bits import SeededBits
    >>> discrete_gaussian(100, (2, 3), bits=SeededBits(1)).shape
    (2, 3)
    """
    parameter = Parameter.read(variance, size, "variance", largest=LARGEST_SCALE**2)
    return parameter.shaped(draw_gaussian(parameter, source_of(bits)))


def draw_gaussian(variance: Parameter, bits: BitSource) -> NDArray[Any]:
    """One value per element of ``variance``, flat."""
    rejection = _Rejection(variance)
    draw = rejection.draw_alike if variance.index is None else rejection.draw_each
    parts = [draw(np.arange(part.start, part.stop), bits) for part in blocks(variance.count)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class _Rejection:
    """Discrete Laplace proposals y of scale t = floor(sigma) + 1, kept with probability exp(-h(y)).

    h(y) = (|y| - sigma^2 / t)^2 / (2 sigma^2).
    """

    def __init__(self, variance: Parameter) -> None:
        self._variance = variance
        self._scales = [math.isqrt(math.floor(variance.entry(i))) + 1 for i in range(len(variance.floats))]
        floats = np.array(self._scales, dtype=float)
        self._proposal = Parameter(
            floats, lambda entry: Fraction(self._scales[entry]), variance.index, (variance.count,)
        )
        self._centers = variance.floats / floats

    def draw_alike(self, elements: NDArray[np.intp], bits: BitSource) -> NDArray[Any]:
        """Values of one variance: the first proposals that are accepted, whichever element they were made for."""
        kept: list[NDArray[Any]] = []
        missing = len(elements)
        while missing > 0:
            tries = np.zeros(int(missing * _TRIES) + 8, np.intp)
            proposed = draw_laplace(self._proposal.select(tries), bits)
            kept.append(proposed[self._accepted(proposed, tries, bits)])
            missing -= len(kept[-1])
        return np.concatenate(kept)[: len(elements)]

    def draw_each(self, elements: NDArray[np.intp], bits: BitSource) -> NDArray[Any]:
        """Values of one variance per element: each is proposed again until it is accepted."""
        values: NDArray[Any] = np.empty(len(elements), np.int64)
        pending = np.arange(len(elements))
        while pending.size:
            proposed = draw_laplace(self._proposal.select(elements[pending]), bits)
            if proposed.dtype == object:
                values = values.astype(object)
            values[pending] = proposed
            pending = pending[~self._accepted(proposed, elements[pending], bits)]
        return values

    def _accepted(self, proposed: NDArray[Any], elements: NDArray[np.intp], bits: BitSource) -> NDArray[np.bool_]:
        variance = self._variance.select(elements)
        every = slice(0, len(elements))
        h = np.abs(proposed).astype(float)
        h -= variance.take(self._centers, every)
        h *= h
        h /= 2 * variance.take(variance.floats, every)

        def exact(place: int) -> Real:
            sigma2, scale = variance.exact(place), self._proposal.exact(int(elements[place]))
            return partial(ratio, (abs(int(proposed[place])) - sigma2 / scale) ** 2 / (2 * sigma2))

        return UniformReals(len(elements), bits).exceed(h, (h + 4) * _EXPONENT_ERROR, exact)
