"""One sum over the rows of a table under discrete Laplace noise that shrinks from look to look."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import Sealed, Sensitivity
from expost.models.tabular.lattice_sum import LatticeSum
from expost.noise import BitSource
from expost.noise.laplace_path import DiscreteLaplacePath

__all__ = ["LaplaceTest", "find_threshold", "shorten_level"]

_DIGITS = 3


def find_threshold(level: Fraction, sensitivity: Fraction, failure: float) -> int:
    """Return a number that discrete Laplace noise of this level reaches with probability ``failure`` at most.

    P(noise >= t) is a^t / (1 + a) with a = exp(-level / sensitivity), exactly (docs/proofs/lattice-laplace.md).

    >>> find_threshold(Fraction(1), Fraction(1), 0.05)
    3
    """
    rate = float(level / sensitivity)
    # One part in a million covers the float errors of the quotient and of the logarithm.
    return max(0, math.ceil(-math.log(failure * (1 + math.exp(-rate))) / rate * (1 + 1e-6)))


def shorten_level(level: float) -> Fraction:
    """Return a level of few digits, rounded up.

    >>> float(shorten_level(0.012341))
    0.0124
    """
    grid = Fraction(10) ** (math.floor(math.log10(level)) - _DIGITS + 1)
    return math.ceil(Fraction(level) / grid) * grid


class LaplaceTest:
    """A sum of one entry under discrete Laplace noise, which shrinks from look to look.

    ``height`` is what an entry of 1 stands for: numbers are in its unit.

    Guarantee: pure ex-post: all looks together cost the epsilon of the last one.
    Adjacency: add/remove of one unit.
    Sensitivity: that of the sum's lattice; it has one entry, so its L1 and L2 sensitivities are equal.
    Accuracy: noise reaches ``margin`` with its failure probability at most, so a model whose deciding sum is negative passes
        as seldom.
    Numerics: exact integers.
    Reference: docs/proofs/tabular-models.md, Theorem 5; docs/proofs/lattice-laplace.md.
    """

    def __init__(self, total: NDArray[np.int64], lattice: LatticeSum, height: float, bits: BitSource) -> None:
        self._bits = bits
        self._sensitivity = Fraction(lattice.sensitivity.amount)
        self._sealed = Sealed(total, Sensitivity(self._sensitivity))
        self._unit = height / lattice.unit
        self._path: DiscreteLaplacePath | None = None

    def look(self, level: Fraction) -> float:
        """Return the sum with the noise of this level, above that of the look before."""
        if self._path is None:
            self._path = DiscreteLaplacePath(self._sealed, [level], bits=self._bits)
            return int(self._path.at(0)[0]) * self._unit
        return int(self._path.at(self._path.refine(level))[0]) * self._unit

    def margin(self, level: Fraction, failure: float) -> float:
        """Return what the noise at this level reaches with this probability at most."""
        return find_threshold(level, self._sensitivity, failure) * self._unit

    def deviation(self, level: Fraction) -> float:
        """Return the standard deviation of the noise at this level."""
        return math.sqrt(2) * float(self._sensitivity / level) * self._unit
