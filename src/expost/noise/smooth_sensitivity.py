"""Noise scaled to a smooth bound on the local sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource
from expost.noise.heavy_tail import LEAST_SCALE, heavy_tail
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.sorted_records import Bounds

__all__ = ["SmoothNoise"]

# docs/proofs/smooth-sensitivity.md: per unit of epsilon, how far the answer may move in units of the scale, and how
# far the logarithm of the scale may move; the worst point of the two together costs at most epsilon.
_SLIDE = {2: Fraction(7071, 10**4), 4: Fraction(27, 100)}
_STRETCH = {2: Fraction(7071, 10**4), 4: Fraction(1, 6)}
_SCALE_BITS = 30
_ROUNDING = Fraction(1, 1 << _SCALE_BITS)  # relative; rounding of the scale and floats of the smooth bound, both sides
_LARGEST = 1000  # the smooth bound has a factor exp(smoothness), which must stay a float
_FLOATS = 1 + 1e-11  # the smooth bound errs by less than 1e-12


@dataclass(frozen=True)
class SmoothNoise(PureMechanism):
    """Adds integers of law 1 / (scale^power + |k|^power) with scale = steepness * S, S a smooth bound.

    S must bound the local sensitivity and change by at most a factor exp(smoothness) between neighbours. Power 4 has
    a variance and the lighter tail; power 2 (Cauchy) allows four times the smoothness at less than half the scale.

    Guarantee: pure DP with the given epsilon, known before the run, if S is smooth as said.
    Adjacency: the one under which S is smooth.
    Sensitivity: local, through S; nothing global is assumed.
    Accuracy: depends on S, which is private; the noise has the scale steepness * S.
    Numerics: the noise is exact; S is computed in floats and rounded up to a dyadic scale, a relative error below
        2^-31 that is inside the smoothness.
    Reference: NRS07, Definition 2.1 and Lemma 2.5 (framework, constants epsilon / (2 (power + 1)) for both moves);
        docs/proofs/smooth-sensitivity.md (sharper constants, on integers).

    >>> noise = SmoothNoise(1, power=2)
    >>> round(noise.smoothness, 3), round(float(noise.steepness), 3)
    (0.707, 1.414)
    """

    power: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power not in _SLIDE:
            raise InvalidRequest("Expected power 2 or 4", got=self.power, do="Pass 4 for the lighter tail")
        if self._smoothness() <= 0:
            raise InvalidRequest("Expected a larger epsilon", got=f"{float(self.epsilon):.3g}", do="Pass at least 1e-7")
        if self.epsilon > _LARGEST:
            raise InvalidRequest(
                f"Expected epsilon of at most {_LARGEST}", got=f"{float(self.epsilon):.3g}", do="Lower it"
            )

    def _smoothness(self) -> Fraction:
        return _STRETCH[self.power] * self.epsilon - _ROUNDING

    @property
    def smoothness(self) -> float:
        """How fast the logarithm of S may change from neighbour to neighbour, rounded down."""
        return float(self._smoothness()) * (1 - 1e-15)

    @property
    def steepness(self) -> Fraction:
        """The scale of the noise in units of S."""
        return 1 / (_SLIDE[self.power] * self.epsilon)

    def scale(self, smooth_bound: float) -> Fraction:
        """The scale for this bound, a dyadic number that is never too small."""
        raw = max(float(self.steepness) * smooth_bound * _FLOATS, float(LEAST_SCALE))
        return Fraction(math.ceil(Fraction(raw) * (1 << _SCALE_BITS)), 1 << _SCALE_BITS)

    def add(
        self, exact: int, smooth_bound: float, bounds: Bounds, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent noisy answers, clamped to the public bounds afterwards."""
        noise = heavy_tail(self.scale(smooth_bound), runs, power=self.power, bits=bits)
        # |exact| < 2^53 and |noise| <= 2^62: the sum fits.
        return np.clip(exact + noise, bounds.low, bounds.high)
