"""Free certificates for ridge regression: accuracy decided from noisy moments and the public law of their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = [
    "CELLS",
    "CLIMB_COST",
    "REMAINDER_RATIO",
    "THRESHOLDS",
    "CertifiedCoefficients",
    "ExcessRiskCertificate",
    "NoiseBound",
    "SquaredErrorCertificate",
    "acceptance",
    "cells_for",
    "is_short",
    "largest_scale",
    "log_chance",
]

Floats = NDArray[np.float64]

_MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)  # how much of the noisy curvature, instead of the penalty, bounds the curvature
_SHRINKAGE = 0.3  # of the noise, added to the penalty: the best part on the tables measured (docs/models.md)
_WEIGHTS = np.concatenate([[0.0], np.geomspace(1e-8, 1e2, 60)])  # of length against residual in the search for theta
_PENALTIES = np.geomspace(1e-3, 1e3, 61)  # in units of the noise

_RATES = np.geomspace(1e-4, 3.0, 60)  # of Markov's inequality for a short vector
_SLACK = 1e-9  # relative; more than floats and the lattice can move a squared length


class NoiseBound(Protocol):
    """Bounds on the noise B, b that hold for all vectors at once; an envelope."""

    @property
    def matrix(self) -> float:
        """A bound on the spectral norm of B."""
        ...

    def reach(self, length: Floats) -> Floats:
        """Return a bound on |B t - b| for vectors t of these lengths."""
        ...


@dataclass(frozen=True)
class CertifiedCoefficients:
    """Coefficients and a bound on their loss that holds except with the certificate's failure probability."""

    theta: Floats
    bound: float


@dataclass(frozen=True)
class ExcessRiskCertificate:
    """Bounds the excess risk of coefficients chosen after the noise was seen, uniformly over them.

    With noisy moments Z = A + B, z = a + b (means over rows), H = A + penalty I and g = Z t - z + penalty t, the gradient
    at t is g - (B t - b), and the excess risk is half of its square in H^-1. The envelope bounds |B t - b| for all t at
    once, and H >= s (Z + penalty I - |B| I) + (1 - s) penalty I for each s in [0, 1]. The coefficients are those that
    minimize the bound along a path in the eigenbasis of Z; zero is always among them. Proof:
    docs/proofs/ridge-certificate.md.

    >>> from expost.accuracy.noise_envelope import NoiseEnvelope
    >>> certificate = ExcessRiskCertificate(0.1, NoiseEnvelope.of(2, 0.01))
    >>> best = certificate.best(np.diag([0.5, 0.1]), np.array([0.2, 0.0]), scale=1e-6)
    >>> best.bound < 1e-8, best.theta.round(3)
    (True, array([0.333, 0.   ]))
    """

    penalty: float
    envelope: NoiseBound

    def best(self, gram: Floats, cross: Floats, *, scale: float) -> CertifiedCoefficients:
        """Return the coefficients with the lowest bound; ``scale`` is that of the noise on the means."""
        values, vectors = np.linalg.eigh(gram)
        curvature, turned = values + self.penalty, vectors.T @ cross
        slack, zero = self.envelope.matrix * scale, np.zeros_like(turned)
        best = CertifiedCoefficients(zero, np.inf)
        for mix in _MIXES:
            certain = mix * (curvature - slack) + (1 - mix) * self.penalty  # a lower bound of H, by direction
            if certain.min() <= 0:
                continue
            thetas = np.vstack([curvature * turned / (curvature**2 + _WEIGHTS[:, None] * certain), zero])
            residual = np.sqrt(((curvature * thetas - turned) ** 2 / certain).sum(axis=1))
            noise = scale * self.envelope.reach(np.linalg.norm(thetas, axis=1)) / np.sqrt(certain.min())
            bounds = (residual + noise) ** 2 / 2
            index = int(np.argmin(bounds))
            if bounds[index] < best.bound:
                best = CertifiedCoefficients(thetas[index], float(bounds[index]))
        return CertifiedCoefficients(vectors @ best.theta, best.bound)

    def shrink(self, gram: Floats, cross: Floats, *, scale: float) -> CertifiedCoefficients:
        """Return ridge coefficients whose penalty grows with the noise, and the bound for them.

        Coefficients of the lowest bound are too careful where no bound is asked for: they protect against the worst
        noise. These predict better, and their bound is a little higher.
        """
        values, vectors = np.linalg.eigh(gram)
        turned, slack = vectors.T @ cross, self.envelope.matrix * scale
        theta = turned / (np.maximum(values, 0.0) + self.penalty + _SHRINKAGE * slack)
        residual = ((values + self.penalty) * theta - turned) ** 2
        noise = scale * float(self.envelope.reach(np.array([np.linalg.norm(theta)]))[0])
        bounds = [math.inf]
        for mix in _MIXES:
            certain = mix * (values + self.penalty - slack) + (1 - mix) * self.penalty
            if certain.min() > 0:
                bounds.append((math.sqrt((residual / certain).sum()) + noise / math.sqrt(certain.min())) ** 2 / 2)
        return CertifiedCoefficients(vectors @ theta, min(bounds))


@dataclass(frozen=True)
class SquaredErrorCertificate:
    """Bounds the mean squared error itself, uniformly over coefficients.

    mean (y - x.t)^2 = c - 2 a.t + t'A t; with noisy moments the error is at most |e| + |t| |B t - 2 b|, and
    |B t - 2 b| = 2 |B (t/2) - b|, which the envelope bounds. The minimum is searched among ridge solutions whose
    penalty is of the size of the noise, but at least ``penalty``. Proof: docs/proofs/ridge-certificate.md.
    """

    penalty: float
    envelope: NoiseBound
    square_reach: float
    """A bound on the noise of the mean of y^2, in units of its scale."""

    def best(self, gram: Floats, cross: Floats, square: float, *, scale: float) -> CertifiedCoefficients:
        """Return the coefficients with the lowest bound on their mean squared error."""
        values, vectors = np.linalg.eigh(gram)
        turned = vectors.T @ cross
        penalties = np.maximum(_PENALTIES * self.envelope.matrix * scale, self.penalty)
        thetas = turned / (np.maximum(values, 0.0) + penalties[:, None])
        thetas = np.vstack([thetas, np.zeros_like(turned)])
        observed = square - 2 * thetas @ turned + (thetas**2) @ values
        length = np.linalg.norm(thetas, axis=1)
        noise = 2 * length * self.envelope.reach(length / 2) + self.square_reach
        bounds = observed + scale * noise
        index = int(np.argmin(bounds))
        return CertifiedCoefficients(vectors @ thetas[index], float(bounds[index]))


def is_short(noisy_length: float, length: float, dimension: int, failure_probability: float) -> bool:
    """Return whether the exact vector is certainly no longer than ``length``; lengths in units of the noise's scale.

    A vector longer than ``length`` is taken for a short one with at most the failure probability. That the noise itself
    is about sqrt(2 dimension) long does not count against it (docs/proofs/ridge-certificate.md, 7).

    >>> is_short(12.0, 13.0, 77, 0.01), is_short(12.0, 9.0, 77, 0.01)
    (True, False)
    """
    return log_chance(noisy_length, length, dimension) <= math.log(failure_probability)


def log_chance(noisy_length: float, length: float, dimension: int) -> float:
    """Bound the log-probability that a vector of this length or longer is this short under noise.

    Markov's inequality for exp(-rate |z|^2). A Laplace variable is normal given an exponential variance, so the
    expectation of one coordinate is a mixture of exponentials in its square, its logarithm is convex there, and the worst
    vector of a given length lies along an axis.
    """
    square = noisy_length**2 * (1 + _SLACK) + _SLACK
    logs = _RATES * square + (dimension - 1) * _log_mean(0.0) + _log_mean(length)
    return min(float(logs.min()), 0.0)


def _log_mean(center: float) -> Floats:
    """Return the logarithm of E exp(-rate (center + Laplace)^2) for every rate: two Gaussian integrals."""
    # (1/2) int_0^inf exp(-b - rate (center +- b)^2) db = sqrt(pi / rate) / 2 exp(1 / (4 rate) +- center) Phi(-x sqrt 2).
    root = np.sqrt(2 * _RATES)
    sides = [sign * center + scipy.special.log_ndtr(-(1 + sign * 2 * _RATES * center) / root) for sign in (1, -1)]
    together: Floats = np.logaddexp(*sides) + 1 / (4 * _RATES) + 0.5 * np.log(math.pi / _RATES) - math.log(2)
    return together


# A bound known in law plus a remainder read under noise: how noisy the reading may be for one failure probability.

REMAINDER_RATIO = Fraction(7, 5)
"""The noise of a rung over that of the next one."""
THRESHOLDS = (Fraction(1, 2), Fraction(4, 5), Fraction(19, 20), Fraction(1), Fraction(19, 20), Fraction(9, 10))
"""A rung accepts when its noisy remainder is at most this, in units of the first rung's noise."""
CLIMB_COST = 1.28
"""What a remainder of zero costs on average, in units of the first rung."""
CELLS = np.concatenate([np.linspace(0.98, 0.31, 34), np.geomspace(0.3, 1e-4, 86)])
"""Probabilities that cut a law into cells: what lies in one is bounded by what lies at its end."""
_RAREST, _RARE_CELLS = (
    3e-9,
    12,
)  # quantiles a hundred times rarer are known; and cells per factor of ten below the usual ones


def cells_for(failure_probability: float) -> Floats:
    """Return cells fine enough for a failure probability: the last one has to be a small part of it.

    >>> cells_for(0.1)[-1], cells_for(1e-6)[-1]
    (np.float64(0.0001), np.float64(3e-09))
    """
    last = max(1e-3 * failure_probability, _RAREST)
    if last >= CELLS[-1]:
        return CELLS
    count = math.ceil(_RARE_CELLS * math.log10(CELLS[-1] / last)) + 1
    rare = np.geomspace(CELLS[-1], last, count)
    return np.concatenate([CELLS, rare[1:-1], [last]])


def acceptance(remainder: Floats, *, grain: float = 0.0) -> Floats:
    """Bound the probability that any rung accepts a remainder, given in units of the first rung's noise.

    Rung k accepts when the remainder plus N_k is at most its threshold. P(any) <= sum P(E_k) - sum P(E_k and E_k+1),
    because what is new at a rung is at most E_k without E_k-1; the second sum is bounded from below by the law of the
    path. ``grain`` is the grid in units of the last rung's noise (docs/proofs/truncated-ridge.md).

    >>> acceptance(np.array([0.0, 5.0])).round(3)
    array([1.   , 0.006])
    """
    accepted = _laplace_below((_BARS - remainder) * _FINER)
    stayed = _laplace_below((np.minimum(_BARS[:-1], _BARS[1:]) - remainder) * _FINER[1:])
    both = _STAY * stayed + (1 - _STAY) * _JUMPS * accepted[1:]
    total = (1 + grain) * accepted.sum(axis=0) - (1 - 4 * grain) * both.sum(axis=0)
    bound: Floats = np.where(remainder < 0, 1.0, np.minimum(total, 1.0))
    return bound


def _also_below(gap: float, ratio: float) -> float:
    """Return P(J <= gap + E) for J Laplace of scale 1 and E exponential of scale 1 / ratio, independent."""
    if gap >= 0:
        return 1 - ratio / (ratio + 1) * math.exp(-gap) / 2
    near, far = math.exp(gap), math.exp(ratio * gap)
    return ratio / (ratio - 1) * (near - far) / 2 + far * (1 - ratio / (ratio + 1) / 2)


def _laplace_below(x: Floats) -> Floats:
    """Return the distribution function of a unit Laplace variable."""
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


# One row per rung, so that all rungs are evaluated in one step.
_BARS = np.array([[float(each)] for each in THRESHOLDS])
_FINER = float(REMAINDER_RATIO) ** np.arange(len(THRESHOLDS))[:, None]  # the first rung's noise over each one's
_STAY = float(1 / REMAINDER_RATIO**2)  # the probability that the noise of a rung is that of the next one
_JUMPS = np.array(
    [
        [_also_below(float(here - after) * float(REMAINDER_RATIO) ** rung, float(REMAINDER_RATIO))]
        for rung, (here, after) in enumerate(pairwise(THRESHOLDS))
    ]
)


def largest_scale(
    limits: Floats, failure_probability: Fraction, *, grid: float, precision: float = 1e-6, cells: Floats = CELLS
) -> float | None:
    """Return the noise of the first rung with which a remainder above its limit is accepted this rarely.

    The limit is what a part known in law leaves: it is below ``limits`` with at most the probabilities ``cells``.
    Remainders are sums on the ``grid``, and may depend on the limit in any way. The result is at most ``precision`` too
    small; None if no noise is small enough.
    """
    weights = -np.diff(cells, prepend=1.0)
    last = float(REMAINDER_RATIO) ** (len(THRESHOLDS) - 1)

    def failure(scale: float) -> float:
        accepted = acceptance(limits / scale, grain=grid * last / scale)
        return float(weights @ accepted) + float(cells[-1])

    low, high = grid * last * 1e3, max(float(limits.max()), grid * last * 2e3)
    if failure(low) > failure_probability:
        return None
    while failure(high) <= failure_probability:
        high *= 2
    while high - low > precision * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if failure(middle) <= failure_probability else (low, middle)
    return low
