"""One sealed vector after another under the same Gaussian noise, drawn ahead."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, Sealed, Sensitivity, unseal
from expost.core.rational import rational
from expost.noise.bits import BitSource, source_of
from expost.noise.gaussian_table import NARROW, gaussian_table
from expost.noise.lattice import integers, released_sum

__all__ = ["LONG", "SHORT", "SMOOTHING", "GaussianStream", "stream_variance"]

SMOOTHING = 4
"""Lattice units squared by which the noise exceeds a continuous Gaussian it is a rounding of.

The lemma of docs/proofs/discrete-gaussian-calibration.md with t^2 = 4: its slack, 2.1 r a coordinate, is below 2.2e-34.
"""
SHORT = NARROW
"""What the entries of a vector of 32-bit integers must stay below, whatever the data; the sums are then short too."""
LONG = 1 << 62
"""The same for a vector of 64-bit integers: the table's noise is far below, so the sums do not wrap around."""
_WORD = 4  # bytes of the shortest integers that are added as they are
_AHEAD = 1 << 19  # integers drawn at a time: what a call costs by itself is then little


class GaussianStream:
    """Adds fresh integers of law P(k) proportional to exp(-k^2 / (2 variance)) to every vector it releases.

    The noise of several releases is drawn at once, which is several times faster and keeps its timing apart from the
    release's; no more than the expected number of ``releases`` at a time.

    Guarantee: each release is (within a factor exp(2.2e-34) a coordinate) a rounding of a continuous Gaussian release
        of standard deviation noise_multiplier * sensitivity, so every bound for those holds: zCDP, Renyi, Gaussian DP,
        loss distributions, with or without sampling, adaptively composed.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units; declared once, a vector with a larger one is refused.
    Accuracy: sub-Gaussian errors of proxy ``variance`` in each coordinate (CKS20, Corollary 9).
    Numerics: exact; integer noise, integer addition.
    Reference: docs/proofs/discrete-gaussian-calibration.md (lemma), docs/proofs/gaussian-table.md (sampler).

    >>> from expost.noise.bits import SeededBits
    >>> step = Sensitivity(1000, Norm.L2)
    >>> stream = GaussianStream(2, step, size=3, bits=SeededBits(1))
    >>> stream.release(Sealed(np.array([0, 10**6, 0]), step)).shape
    (3,)
    """

    def __init__(
        self,
        noise_multiplier: float | Fraction,
        sensitivity: Sensitivity,
        *,
        size: int,
        releases: int | None = None,
        bits: BitSource | None = None,
    ) -> None:
        if sensitivity.norm is not Norm.L2:
            raise InvalidRequest("Expected an L2 sensitivity", got=sensitivity.norm.value, do="Declare one")
        self.noise_multiplier = rational(noise_multiplier, "noise_multiplier")
        self.sensitivity, self.size = sensitivity, size
        self.variance = stream_variance(self.noise_multiplier, sensitivity)
        self._table, self._bits = gaussian_table(self.variance), source_of(bits)
        self._ahead = max(1, min(math.ceil(_AHEAD / max(size, 1)), releases or _AHEAD))
        self._room: NDArray[Any] | None = None
        self._drawn: NDArray[Any] = np.empty((0, size), np.int64)
        self._used, self._owner = 0, os.getpid()

    @property
    def private(self) -> bool:
        """Whether the bits come from a private source; false means simulation."""
        return self._bits.private

    def release(self, sealed: Sealed) -> NDArray[Any]:
        """The sealed vector plus noise that was never used before."""
        if not _within(sealed.sensitivity, self.sensitivity):
            raise InvalidRequest("Expected a vector within the declared sensitivity", do="Declare the largest one")
        exact = unseal(sealed)
        if not (isinstance(exact, np.ndarray) and exact.dtype.kind == "i" and exact.itemsize >= _WORD):
            exact = integers(exact)
        if exact.shape != (self.size,):
            raise InvalidRequest(f"Expected a vector of {self.size} integers", do="Open a stream of its size")
        return _added(exact, self._fresh())

    def _fresh(self) -> NDArray[Any]:
        if self._used == len(self._drawn) or self._owner != os.getpid():
            # A forked child must not use the noise that its parent will use.
            self._drawn, self._used, self._owner = self._draw(), 0, os.getpid()
        self._used += 1
        fresh: NDArray[Any] = self._drawn[self._used - 1]
        return fresh

    def _draw(self) -> NDArray[Any]:
        count = self._ahead * self.size
        self._room = self._table.room(count) if self._room is None else self._room
        return self._table.draw(count, self._bits, room=self._room).reshape(self._ahead, self.size)

    def __repr__(self) -> str:
        return f"<Gaussian noise of variance {float(self.variance):.4g} for vectors of {self.size}>"

    def _refuse(self, *_: object) -> Any:
        raise TypeError("Expected a stream to stay where it is; a copy would reuse its noise.")

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse


def _within(given: Sensitivity, declared: Sensitivity) -> bool:
    if given is declared:
        return True
    alike = (given.norm, given.adjacency, given.unit) == (declared.norm, declared.adjacency, declared.unit)
    return alike and given.amount <= declared.amount


def _added(exact: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """The sum. How many bits it has depends on the type of the vector and on the noise, not on the vector.

    Reducing a noisy sum is free, so wrapping around could cost accuracy only, and it cannot happen: vectors of 32-bit
    and 64-bit integers are below ``SHORT`` and ``LONG`` by their owner's proof, and so is the noise.
    """
    return released_sum(exact, noise) if exact.dtype == object else np.asarray(exact + noise)


def stream_variance(noise_multiplier: Fraction, sensitivity: Sensitivity) -> Fraction:
    """The variance whose rounding-free part is (noise_multiplier * sensitivity)^2.

    >>> stream_variance(Fraction(2), Sensitivity(10, Norm.L2))
    Fraction(404, 1)
    """
    return noise_multiplier**2 * sensitivity.square + SMOOTHING
