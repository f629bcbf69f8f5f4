"""Gradual release under noise that falls off with the Euclidean norm. Research: real numbers in floats."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed, unseal
from expost.noise.bits import BitSource, source_of
from expost.noise.path import check_block, check_norm, check_rung, ladder_of, refuse_copies

__all__ = ["RadialLaplacePath"]

Floats = NDArray[np.float64]


class RadialLaplacePath:
    """A real vector under noise of density proportional to exp(-epsilon_r |z|_2 / sensitivity), rung by rung.

    RESEARCH, not for release: the noise is made of floats, and float noise leaks through its low bits
    (docs/known-limits.md). It shows what pure DP with an L2 sensitivity would cost.

    Guarantee: pure ex-post, known only after the run: loss ``epsilon_r`` of the last rung read, for real arithmetic.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together.
    Accuracy: |error|_2 has the law Gamma(size, sensitivity / epsilon_r).
    Numerics: real-number claim only; floats throughout, so the guarantee does not hold for the bits that come out.
    Reference: docs/proofs/radial-laplace.md.

    >>> from expost.core import Sensitivity
    >>> from expost.noise.bits import SeededBits
    >>> sealed = Sealed(np.array([3.0, 4.0]), Sensitivity(1, Norm.L2))
    >>> RadialLaplacePath(sealed, Ladder.of([0.1, 1]), bits=SeededBits(1)).at(1).shape
    (2,)
    """

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        amount = check_norm(sealed, Norm.L2)
        source = source_of(bits)
        self.private = source.private
        self.ladder = ladder_of(ladder)
        exact = np.atleast_1d(np.asarray(unseal(sealed), dtype=float))
        if exact.ndim != 1 or not exact.size:
            raise InvalidRequest("Expected a sealed number or a flat array of numbers", do="Flatten it")
        self.size = len(exact)
        rates = np.array([float(rung) for rung in self.ladder]) / float(amount)
        steps = np.zeros((len(rates), self.size))
        steps[-1] = _radial_laplace(self.size, rates[-1], 1, source)[0]
        spreads = np.sqrt(2 * _mixing_sums(self.size, rates, source))
        hit = np.flatnonzero(spreads)
        steps[hit] += spreads[hit, None] * _normals(len(hit) * self.size, source).reshape(-1, self.size)
        self._values: Floats = exact + np.cumsum(steps[::-1], axis=0)[::-1]

    @staticmethod
    def simulate(sealed: Sealed, epsilon: float | Fraction, *, runs: int, bits: BitSource | None = None) -> Floats:
        """Independent paths of one rung on an answer the caller knows anyway, one a row: for audits."""
        exact = np.atleast_1d(np.asarray(unseal(sealed), dtype=float))
        rate = float(epsilon) / float(check_norm(sealed, Norm.L2))
        return np.asarray(exact + _radial_laplace(len(exact), rate, runs, source_of(bits)))

    def loss(self, rung: int) -> PureLoss:
        """What reading every rung up to this one would cost in real arithmetic."""
        return PureLoss(self.ladder[check_rung(self.ladder, rung)])

    def at(self, rung: int) -> Floats:
        """The answer under the noise of one rung."""
        return self.block(rung, rung + 1).reshape(self.size)

    def block(self, start: int, stop: int) -> Floats:
        """The answers at rungs ``start`` to ``stop - 1``, one row a rung."""
        rows: Floats = self._values[slice(*check_block(self.ladder, start, stop))].copy()
        return rows

    def __repr__(self) -> str:
        return f"<radial Laplace path (research) of {self.size} coordinates over {len(self.ladder)} rungs>"

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse_copies


def _mixing_sums(size: int, rates: Floats, bits: BitSource) -> Floats:
    """Per rung, the mixing variable of the noise added on the way down to it.

    A Poisson process of rate size + 1 in ln(rate); a jump at rate e adds an exponential of mean 1 / e^2
    (docs/proofs/radial-laplace.md).
    """
    length = (size + 1) * math.log(rates[-1] / rates[0])
    places = _poisson_points(length, bits)
    levels = rates[-1] * np.exp(-places / (size + 1))
    sums = np.zeros(len(rates))
    rungs = np.clip(np.searchsorted(rates, levels, side="right") - 1, 0, len(rates) - 1)
    np.add.at(sums, rungs, _exponentials(len(levels), bits) / levels**2)
    return sums


def _poisson_points(length: float, bits: BitSource) -> Floats:
    """The points of a unit-rate Poisson process on [0, length)."""
    places = np.empty(0)
    while not places.size or places[-1] < length:
        more = np.cumsum(_exponentials(int(length + 6 * math.sqrt(length)) + 8, bits))
        places = np.concatenate([places, more + (places[-1] if places.size else 0.0)])
    return places[places < length]


def _radial_laplace(size: int, rate: float, runs: int, bits: BitSource) -> Floats:
    direction = _normals(runs * size, bits).reshape(runs, size)
    radius = _exponentials(runs * size, bits).reshape(runs, size).sum(axis=1) / rate  # Gamma(size): exponentials added
    return np.asarray(direction * (radius / np.linalg.norm(direction, axis=1))[:, None])


def _exponentials(count: int, bits: BitSource) -> Floats:
    return np.asarray(-np.log((bits.words(count).astype(float) + 0.5) * 2.0**-64))


def _normals(count: int, bits: BitSource) -> Floats:
    """Standard normals by the polar angle and radius (BM58)."""
    half = -(-count // 2)
    radius = np.sqrt(2 * _exponentials(half, bits))
    angle = bits.words(half) * (2 * math.pi * 2.0**-64)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
