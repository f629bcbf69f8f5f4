"""How much Gaussian matrix noise can stretch any vector: closed bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GaussianEnvelope"]

Floats = NDArray[np.float64]

# Off-diagonal entries have 5/7 of the diagonal's deviation: integers in place of 1 : sqrt(2) (data/moments.py).
_OFF = 5 / 7
_LIPSCHITZ = (
    math.sqrt(2) * _OFF
)  # of the spectral norm in the independent coordinates; an off-diagonal one counts twice


@dataclass(frozen=True)
class GaussianEnvelope:
    """Upper bounds on |B| and |B t - b| for all vectors t at once, except with the given probability.

    B is symmetric with independent normal entries of deviation 1 on the diagonal and 5/7 off it, b has deviation 1.
    Largest eigenvalue: mean at most 2 sqrt(p) 5/7 by Gaussian comparison, then concentration (docs/proofs/gaussian-ridge.md).

    >>> envelope = GaussianEnvelope.of(25, 0.01)
    >>> bool(7.1 < envelope.matrix < 11.0)
    True
    """

    matrix: float
    vector: float

    @classmethod
    def of(cls, dimension: int, failure_probability: float) -> GaussianEnvelope:
        """The envelope; both ends of the spectrum and the vector share the failure probability."""
        tail = math.sqrt(2 * math.log(3 / failure_probability))
        root = math.sqrt(dimension)
        return cls(2 * _OFF * root + _LIPSCHITZ * tail, root + tail)

    def reach(self, length: Floats) -> Floats:
        """A bound on |B t - b| for vectors t of these lengths, in units of the noise's deviation."""
        reach: Floats = self.matrix * np.asarray(length) + self.vector
        return reach
