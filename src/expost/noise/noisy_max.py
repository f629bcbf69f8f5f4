"""Report-noisy-max with two-sided noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core.rational import probability
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Norm, Sensitivity
from expost.noise.bits import BitSource, source_of
from expost.noise.laplace import discrete_laplace
from expost.noise.lattice import add_exactly, distance_in
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.scores import pick_one, read_scores

__all__ = ["NoisyMax"]


@dataclass(frozen=True)
class NoisyMax(PureMechanism):
    """Adds discrete Laplace noise of scale 2 sensitivity / epsilon to each score and reports the index of the largest.

    Only the index leaves; ties, which integers do have, are broken uniformly. With one-sided noise this would be
    permute-and-flip, which is never worse (docs/proofs/permute-and-flip.md); this one is here for comparison and
    because it is what most texts describe. ``monotone`` as in the exponential mechanism.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: the score picked is at most shortfall(...) below the best with probability 1 - failure_probability.
    Numerics: exact; integer noise, integer comparisons.
    Reference: DR14, Claim 3.9 (guarantee); docs/proofs/permute-and-flip.md (integers and ties).

    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 90, 30], Sensitivity(1, Norm.LINF))
    >>> NoisyMax(1).release(scores, bits=SeededBits(1))
    1
    """

    monotone: bool = False

    def scale(self, sensitivity: Sensitivity, *, candidates: int = 1) -> Fraction:
        """The scale of the noise on each score."""
        # DR14, Claim 3.9 proves scale 1 / epsilon for counts, which are monotone; in general both sides may move.
        distance = distance_in(Norm.LINF, sensitivity, candidates)
        return (distance if self.monotone else 2 * distance) / self.epsilon

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int:
        """The index of the candidate picked; ``sealed`` holds one integer score a candidate."""
        return int(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        """Independent picks from scores the caller knows anyway: for audits and planning."""
        source, scores = source_of(bits), read_scores(exact)
        scale = self.scale(sensitivity, candidates=scores.size)
        noisy = add_exactly(scores[None], discrete_laplace(scale, (runs, scores.size), bits=source))
        return pick_one((noisy == noisy.max(axis=1, keepdims=True)).astype(bool), bits=source)

    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        """How far below the best score the pick is at most, except with ``failure_probability``."""
        share = float(probability(failure_probability, "failure_probability"))
        scale = float(self.scale(sensitivity, candidates=candidates))
        # A gap above 2 h needs the best to fall below -h or a rival to rise above h: one tail each, exp(-(h+1)/scale).
        return 2 * math.floor(scale * math.log(candidates / share) * (1 + 1e-9))
