"""Sums of bounded vectors over rows as exact integers, ready for a Gaussian release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, Sealed, Sensitivity
from expost.noise import BitSource
from expost.noise.gaussian_stream import LARGEST_VARIANCE, GaussianStream, stream_variance

__all__ = ["LatticeSum"]

Floats = NDArray[np.float64]
_LENGTH = 2.0**20  # lattice units of the longest vector; 2^13 rows of it add up exactly in float64
_CHUNK = 1 << 13
_SLACK = 2.0**-10  # lattice units, far above the float errors of a row's products


@dataclass(frozen=True)
class LatticeSum:
    """The sum over rows of vectors of Euclidean length at most ``longest``, each times the weight of its row.

    Vectors are rounded to integers, so their sum does not depend on the order of the rows. The weights of one unit's rows
    add up to at most 1, so its vectors add up to at most ``longest`` and the rounding of its rows.

    Guarantee: none by itself; ``release`` is one Gaussian event of the given noise multiplier.
    Adjacency: add/remove of one unit.
    Sensitivity: L2: longest * unit + rows_per_unit * sqrt(size) / 2, rounded up; sqrt(size + 3) with ``floor_first``.
    Accuracy: rounding moves an entry by at most half a lattice unit per row, a first one that is floored by one.
    Numerics: exact; integers below 2^53 in float64, then int64.
    Reference: docs/proofs/tabular-models.md, Lemma 1.
    """

    size: int
    longest: float
    rows_per_unit: int = 1
    floor_first: bool = False
    """Whether the first entry is rounded down, so that its sum is never above the exact one."""

    @property
    def unit(self) -> float:
        """Return the lattice units of a vector of length 1."""
        return _LENGTH / self.longest

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far one unit can move the sum."""
        return Sensitivity(math.ceil(_LENGTH + self.rows_per_unit * (self._rounding + _SLACK)) + 1, Norm.L2)

    @property
    def _rounding(self) -> float:
        """Return how much longer rounding can make a vector: half a unit per entry, or one for the first."""
        return math.sqrt(self.size + 3 * self.floor_first) / 2

    def check_noise(self, noise_multiplier: Fraction) -> None:
        """Raise ``InvalidRequest`` unless noise of this multiplier can be drawn."""
        if stream_variance(noise_multiplier, self.sensitivity) > LARGEST_VARIANCE:
            raise InvalidRequest("Expected noise of a variance that can be drawn", do="Lower the noise multiplier")

    def start(self) -> NDArray[np.int64]:
        """Return the sum over no rows."""
        return np.zeros(self.size, np.int64)

    def add(self, total: NDArray[np.int64], vectors: NDArray[Any], weights: NDArray[Any]) -> None:
        """Add some rows' vectors (rows x size) to a total."""
        for start in range(0, len(vectors), _CHUNK):
            part = slice(start, start + _CHUNK)
            scaled = np.asarray(vectors[part], np.float64) * self.unit
            shares = np.asarray(weights[part], np.float64)
            scaled *= shares[:, None]
            rounded = np.rint(scaled)
            if self.floor_first:
                np.floor(scaled[:, 0], out=rounded[:, 0])
            # A vector longer than declared, or not a number, contributes zero: the sensitivity depends on its length.
            allowed = _LENGTH * shares + self._rounding + _SLACK
            rounded[~(np.einsum("ij,ij->i", rounded, rounded) <= allowed * allowed)] = 0.0
            total += rounded.sum(axis=0).astype(np.int64)

    def release(self, total: NDArray[np.int64], noise_multiplier: Fraction, bits: BitSource) -> Floats:
        """Return the sum with noise, in the units of the vectors."""
        stream = GaussianStream(noise_multiplier, self.sensitivity, size=self.size, releases=1, bits=bits)
        return np.asarray(stream.release(Sealed(total, self.sensitivity)), np.float64) / self.unit

    def deviation(self, noise_multiplier: Fraction) -> float:
        """Return the standard deviation of the noise of an entry, in the units of the vectors."""
        return float(noise_multiplier * self.sensitivity.amount) / self.unit
