"""Sequences of hypotheses, each less noisy than the last: by covariance or by output perturbation."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder, Sealed
from expost.data.matrix import UnitRows
from expost.data.moments import MomentLayout
from expost.models.linear.risk import ExactRisk
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["CovarianceHypotheses", "Hypotheses", "OutputHypotheses"]

Floats = NDArray[np.float64]

_COARSE_BITS = 14  # the noise of the first rungs then fits into 64 bits
_OUTPUT_BITS = 24  # the sensitivity of the minimum is about 2^24 grid steps


class Hypotheses(Protocol):
    """What a climb walks through."""

    def block(self, start: int, stop: int) -> Floats:
        """The hypotheses of these rungs, one row a rung."""
        ...


class CovarianceHypotheses:
    """Minima of the noisy quadratic over the ball (LNRWW17, Algorithm 3 and equation 3.1).

    ``rescale`` solves the noisy normal equations and shrinks the solution onto the ball, as the authors' code does;
    otherwise the quadratic is minimised over the ball even where noise made it indefinite.
    """

    def __init__(
        self,
        sealed: Sealed,
        layout: MomentLayout,
        ladder: Ladder,
        *,
        rows: int,
        penalty: float,
        radius: float,
        rescale: bool,
        bits: BitSource | None,
    ) -> None:
        self._path = DiscreteLaplacePath(sealed, ladder, bits=bits)
        self._layout, self._rows, self._penalty, self._radius = layout, rows, penalty, radius
        self._rescale = rescale

    def block(self, start: int, stop: int) -> Floats:
        grams, crosses = self._layout.unpack_matrices(self._path.block(start, stop), self._rows)
        curvatures = grams + self._penalty * np.eye(crosses.shape[-1])
        if self._rescale:
            solved: Floats = np.asarray(np.linalg.solve(curvatures, crosses[..., None])[..., 0], np.float64)
            return onto_ball(solved, self._radius)
        pairs = zip(curvatures, crosses, strict=True)
        return np.array([minimise_in_ball(curvature, cross, self._radius) for curvature, cross in pairs])


class OutputHypotheses:
    """The exact minimum under gradually released noise, projected on the ball (LNRWW17, Algorithm 5, corrected)."""

    def __init__(
        self, risk: ExactRisk, ladder: Ladder, *, sensitivity: float, radius: float, bits: BitSource | None
    ) -> None:
        self._step = math.ldexp(1.0, math.floor(math.log2(sensitivity)) - _OUTPUT_BITS)
        # Rounding moves each coordinate of either neighbour by at most half a step.
        units = math.ceil(sensitivity / self._step) + risk.dimension
        self._path = DiscreteLaplacePath(risk.seal_minimum(self._step, units), ladder, bits=bits)
        self._radius = radius

    def block(self, start: int, stop: int) -> Floats:
        thetas = self._path.block(start, stop).astype(np.float64) * self._step
        return onto_ball(thetas, self._radius)


def onto_ball(theta: Floats, radius: float) -> Floats:
    """The point, or each row of points, scaled down to the ball if it lies outside.

    >>> onto_ball(np.array([3.0, 4.0]), 2.5)
    array([1.5, 2. ])
    """
    length = np.linalg.norm(theta, axis=-1, keepdims=True)
    scaled: Floats = np.where(length <= radius, theta, theta * (radius / np.maximum(length, radius)))
    return scaled


def minimise_in_ball(curvature: Floats, cross: Floats, radius: float) -> Floats:
    """The minimum of t' curvature t / 2 - cross . t over |t| <= radius, for any symmetric matrix.

    >>> minimise_in_ball(np.diag([2.0, -1.0]), np.array([2.0, 0.1]), 2.0).round(2)
    array([0.66, 1.89])
    """
    values, vectors = np.linalg.eigh(curvature)
    turned = vectors.T @ cross
    if values[0] > 0:
        inside = turned / values
        if np.linalg.norm(inside) <= radius:
            return np.asarray(vectors @ inside)
    # On the border: (curvature + shift) t = cross with shift above -smallest eigenvalue (MS83, Lemma 2.4).
    low = max(-values[0], 0.0)
    high = low + float(np.linalg.norm(turned)) / radius + 1e-300
    for _ in range(100):
        middle = (low + high) / 2
        long = np.linalg.norm(turned / np.maximum(values + middle, 1e-300)) > radius
        low, high = (middle, high) if long else (low, middle)
    border = turned / np.maximum(values + high, 1e-300)
    missing = radius**2 - float(border @ border)
    if missing > 1e-9 * radius**2:  # the hard case: the rest goes along the flattest direction
        border[0] += math.copysign(math.sqrt(missing), border[0] if border[0] else 1.0)
    return np.asarray(vectors @ border)


def measure_moments(rows: UnitRows, *, full: bool) -> tuple[Sealed, MomentLayout]:
    """The sealed moments of ridge regression; ``full`` keeps both halves of the matrix, as in the paper."""
    layout = MomentLayout(rows.ball, full=full, coarse=_COARSE_BITS)
    return layout.measure(rows), layout
