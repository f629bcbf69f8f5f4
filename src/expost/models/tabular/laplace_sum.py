"""Sums of bounded vectors over rows as exact integers, ready for Laplace noise that may shrink."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, Sealed, Sensitivity
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.jump_noise import check_rates

__all__ = ["LaplaceSum"]

Floats = NDArray[np.float64]
_LENGTH = 2.0**20  # lattice units of the longest vector; 2^13 rows of it add up exactly in float64
_CHUNK = 1 << 13
_SLACK = 2.0**-10  # lattice units, far above the float errors of a row's products


@dataclass(frozen=True)
class LaplaceSum:
    """The sum over rows of vectors of 1-norm at most ``longest``, each times the weight of its row.

    Vectors are rounded to integers, so their sum does not depend on the order of the rows. The weights of one unit's rows
    add up to at most 1, so its vectors add up to at most ``longest`` and the rounding of its rows.

    Guarantee: none by itself; ``release`` is pure epsilon-DP, a prefix of ``open_path`` costs its last level.
    Adjacency: add/remove of one unit.
    Sensitivity: L1: longest * unit + rows_per_unit * size / 2, rounded up; (size + 1) / 2 with ``floor_first``.
    Accuracy: rounding moves an entry by at most half a lattice unit per row, a first one that is floored by one.
    Numerics: exact; integers below 2^53 in float64, then int64.
    Reference: docs/proofs/pure-tabular-models.md, Lemma 1; LNRWW17, Theorem 2.7.
    """

    size: int
    longest: float
    rows_per_unit: int = 1
    floor_first: bool = False
    """Whether the first entry is rounded down, so that its sum is never above the exact one."""

    @property
    def unit(self) -> float:
        """Return the lattice units of a vector of 1-norm 1."""
        return _LENGTH / self.longest

    @property
    def _rounding(self) -> float:
        """Return how much longer rounding can make a vector: half a unit per entry, or one for the first."""
        return (self.size + self.floor_first) / 2

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far one unit can move the sum."""
        return Sensitivity(math.ceil(_LENGTH + self.rows_per_unit * (self._rounding + _SLACK)) + 1, Norm.L1)

    def check_levels(self, ladder: Ladder) -> None:
        """Raise ``InvalidRequest`` unless noise of these levels can be drawn."""
        try:
            check_rates(ladder, Fraction(self.sensitivity.amount))
        except InvalidRequest:
            raise InvalidRequest(
                "Expected a privacy level that the noise can keep", got=float(ladder[0]), do="Raise epsilon"
            ) from None

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
            rounded[~(np.abs(rounded).sum(axis=1) <= allowed)] = 0.0
            total += rounded.sum(axis=0).astype(np.int64)

    def open_path(self, total: NDArray[np.int64], ladder: Ladder, bits: BitSource | None) -> DiscreteLaplacePath:
        """Return the sum under noise that shrinks from level to level, in lattice units."""
        return DiscreteLaplacePath(Sealed(total, self.sensitivity), ladder, bits=bits)

    def release(self, total: NDArray[np.int64], epsilon: Fraction, bits: BitSource | None) -> Floats:
        """Return the sum with noise, in the units of the vectors."""
        return np.asarray(self.open_path(total, Ladder((epsilon,)), bits).at(0), np.float64) / self.unit

    def scale(self, epsilon: Fraction) -> float:
        """Return the Laplace scale of an entry's noise, in the units of the vectors."""
        return float(self.sensitivity.amount / epsilon) / self.unit

    def deviation(self, epsilon: Fraction) -> float:
        """Return the standard deviation of an entry's noise, in the units of the vectors."""
        return math.sqrt(2) * self.scale(epsilon)
