"""How much matrix noise can stretch any vector: bounds on |B t - b| for all vectors t at once, by their length alone.

For Laplace noise as ``MomentLayout`` releases it (B symmetric, scale 1 on the diagonal and 1/2 off it; b of scale 1) the
law of the supremum over directions was simulated once (benchmarks/noise_envelope.py) and is read from a table. For Gaussian noise the bounds are closed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest

__all__ = ["OFFSETS", "GaussianEnvelope", "NoiseEnvelope"]

Floats = NDArray[np.float64]

# [B, -b / offset] has some largest stretch; |B t - b| <= that times |(t, offset)|. The best offset depends on |t|.
OFFSETS = np.geomspace(0.25, 8, 11)

# Off-diagonal entries have 5/7 of the diagonal's deviation: integers in place of 1 : sqrt(2) (data/second_moment.py).
_OFF_DIAGONAL = 5 / 7
# Of the spectral norm in the independent coordinates; an off-diagonal one counts twice.
_LIPSCHITZ = math.sqrt(2) * _OFF_DIAGONAL


@dataclass(frozen=True)
class NoiseEnvelope:
    """Upper bounds that hold for all vectors at once, except with the given probability.

    >>> envelope = NoiseEnvelope.of(10, 0.01)
    >>> envelope.reach(np.array([0.0, 1.0])) < envelope.reach(np.array([2.0, 3.0]))
    array([ True,  True])
    """

    stretches: Floats
    """The bound on the largest stretch of [B, -b / offset], for each offset."""
    matrix: float
    """The bound on the largest stretch of B."""

    @classmethod
    def of(cls, dimension: int, failure_probability: float) -> NoiseEnvelope:
        """Return the envelope for vectors of this dimension, from the table's next larger dimension, which is safe.

        B of a smaller dimension is a corner of a larger one, and cutting rows and columns shrinks every stretch.
        """
        return _read_envelope(_next_size(dimension), failure_probability)

    @staticmethod
    def least_failure(dimension: int) -> float:
        """Return the smallest failure probability that the table covers for this dimension."""
        return min(float(failure) for failure in _read_table()[_next_size(dimension)]["factors"])

    def reach(self, length: Floats) -> Floats:
        """Return a bound on |B t - b| for vectors t of these lengths, in units of the noise's scale."""
        reach: Floats = (self.stretches * np.hypot(np.asarray(length)[..., None], OFFSETS)).min(axis=-1)
        return reach


@dataclass(frozen=True)
class GaussianEnvelope:
    """Upper bounds on |B| and |B t - b| for all vectors t at once, except with the given probability.

    B is symmetric with independent normal entries of deviation 1 on the diagonal and 5/7 off it, b has deviation 1.
    Largest eigenvalue: mean at most 2 sqrt(p) 5/7 by Gaussian comparison, then concentration
    (docs/proofs/gaussian-ridge.md).
    """

    matrix: float
    vector: float

    @classmethod
    def of(cls, dimension: int, failure_probability: float) -> GaussianEnvelope:
        """Return the envelope; both ends of the spectrum and the vector share the failure probability."""
        # Gaussian concentration: a 1-Lipschitz function exceeds its mean by t with probability at most e^(-t^2/2).
        tail = math.sqrt(2 * math.log(3 / failure_probability))
        root = math.sqrt(dimension)
        return cls(2 * _OFF_DIAGONAL * root + _LIPSCHITZ * tail, root + tail)

    def reach(self, length: Floats) -> Floats:
        """Return a bound on |B t - b| for vectors t of these lengths, in units of the noise's deviation."""
        reach: Floats = self.matrix * np.asarray(length) + self.vector
        return reach


@lru_cache(maxsize=1)
def _read_table() -> dict[int, Any]:
    """Read the simulated table: one row per dimension."""
    text = (files("expost.accuracy") / "noise_envelope.json").read_text(encoding="utf-8")
    return {int(size): row for size, row in json.loads(text).items()}


def _next_size(dimension: int) -> int:
    """Return the smallest dimension of the table that is large enough."""
    known = [size for size in _read_table() if size >= dimension]
    if not known:
        raise InvalidRequest(
            f"Expected at most {max(_read_table())} coefficients for this certificate",
            got=dimension,
            do='Pass method="objective"',
        )
    return min(known)


@lru_cache(maxsize=256)
def _read_envelope(size: int, failure_probability: float) -> NoiseEnvelope:
    """Read the envelope of a dimension of the table, at the next smaller failure probability."""
    row = _read_table()[size]
    # A smaller failure probability has a wider envelope, so rounding down is safe.
    known = [failure for failure in row["factors"] if float(failure) <= failure_probability * (1 + 1e-12)]
    if not known:
        raise InvalidRequest(
            "Expected a failure probability that the table of noise covers",
            got=failure_probability,
            do="Allow more failures, or climb fewer rungs",
        )
    factor = row["factors"][max(known, key=float)]
    return NoiseEnvelope(np.array(row["stretches"]) * factor, row["matrix"] * factor)
