"""Free certificates for ridge regression: accuracy decided from noisy moments and the public law of their noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Certified", "Envelope", "ExcessRiskCertificate", "SquaredErrorCertificate"]

Floats = NDArray[np.float64]

_MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)  # how much of the noisy curvature, instead of the penalty, bounds the curvature
_WEIGHTS = np.concatenate([[0.0], np.geomspace(1e-8, 1e2, 60)])  # of length against residual in the search for theta
_PENALTIES = np.geomspace(1e-3, 1e3, 61)  # in units of the noise


class Envelope(Protocol):
    """What a certificate knows of the noise B, b: bounds that hold for all vectors at once."""

    @property
    def matrix(self) -> float:
        """A bound on the spectral norm of B."""
        ...

    def reach(self, length: Floats) -> Floats:
        """A bound on |B t - b| for vectors of these lengths."""
        ...


@dataclass(frozen=True)
class Certified:
    """A vector of coefficients and a bound on its loss that holds except with the certificate's failure probability."""

    theta: Floats
    bound: float


@dataclass(frozen=True)
class ExcessRiskCertificate:
    """Bounds the excess risk of coefficients chosen after the noise was seen, uniformly over them.

    With noisy moments Z = A + B, z = a + b (means over rows), H = A + penalty I and g = Z t - z + penalty t, the gradient
    at t is g - (B t - b), and the excess risk is half of its square in H^-1. The envelope bounds |B t - b| for all t at
    once, and H >= s (Z + penalty I - |B| I) + (1 - s) penalty I for each s in [0, 1]. The coefficients are those that
    minimise the bound along a path in the eigenbasis of Z; zero is always among them. Proof: docs/proofs/ridge-certificate.md.

    >>> from expost.accuracy.noise_envelope import NoiseEnvelope
    >>> certificate = ExcessRiskCertificate(0.1, NoiseEnvelope.of(2, 0.01))
    >>> best = certificate.best(np.diag([0.5, 0.1]), np.array([0.2, 0.0]), scale=1e-6)
    >>> best.bound < 1e-8, best.theta.round(3)
    (True, array([0.333, 0.   ]))
    """

    penalty: float
    envelope: Envelope

    def best(self, gram: Floats, cross: Floats, *, scale: float) -> Certified:
        """The coefficients with the lowest bound; ``scale`` is that of the noise on the means."""
        values, vectors = np.linalg.eigh(gram)
        curvature, turned = values + self.penalty, vectors.T @ cross
        slack = self.envelope.matrix * scale
        candidates = [self._search(curvature, turned, slack, scale, mix) for mix in _MIXES]
        best = min(candidates, key=lambda each: each.bound)
        return Certified(vectors @ best.theta, best.bound)

    def _search(self, curvature: Floats, turned: Floats, slack: float, scale: float, mix: float) -> Certified:
        floor = mix * (curvature - slack) + (1 - mix) * self.penalty  # curvature that is certain, by direction
        nothing = np.zeros_like(turned)
        if floor.min() <= 0:
            return Certified(nothing, np.inf)
        thetas = curvature * turned / (curvature**2 + _WEIGHTS[:, None] * floor)
        thetas = np.vstack([thetas, nothing])
        residual = np.sqrt(((curvature * thetas - turned) ** 2 / floor).sum(axis=1))
        noise = scale * self.envelope.reach(np.linalg.norm(thetas, axis=1)) / np.sqrt(floor.min())
        bounds = (residual + noise) ** 2 / 2
        index = int(np.argmin(bounds))
        return Certified(thetas[index], float(bounds[index]))


@dataclass(frozen=True)
class SquaredErrorCertificate:
    """Bounds the mean squared error itself, uniformly over coefficients.

    mean (y - x.t)^2 = c - 2 a.t + t'A t; with noisy moments the error is at most |e| + |t| |B t - 2 b|, and
    |B t - 2 b| = 2 |B (t/2) - b|, which the envelope bounds. The minimiser is looked for among ridge solutions whose
    penalty is of the size of the noise, but at least ``penalty``. Proof: docs/proofs/ridge-certificate.md.
    """

    penalty: float
    envelope: Envelope
    square_reach: float
    """A bound on the noise of the mean of y^2, in units of its scale."""

    def best(self, gram: Floats, cross: Floats, square: float, *, scale: float) -> Certified:
        """The coefficients with the lowest bound on their mean squared error."""
        values, vectors = np.linalg.eigh(gram)
        turned = vectors.T @ cross
        penalties = np.maximum(_PENALTIES * self.envelope.matrix * scale, self.penalty)
        thetas = turned / (np.maximum(values, 0.0) + penalties[:, None])
        thetas = np.vstack([thetas, np.zeros_like(turned)])
        bounds = self._bounds(values, turned, square, thetas, scale)
        index = int(np.argmin(bounds))
        return Certified(vectors @ thetas[index], float(bounds[index]))

    def _bounds(self, values: Floats, turned: Floats, square: float, thetas: Floats, scale: float) -> Floats:
        observed = square - 2 * thetas @ turned + (thetas**2) @ values
        length = np.linalg.norm(thetas, axis=1)
        noise = 2 * length * self.envelope.reach(length / 2) + self.square_reach
        bounds: Floats = observed + scale * noise
        return bounds
