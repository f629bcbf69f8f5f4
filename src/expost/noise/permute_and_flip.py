"""Permute-and-flip: never worse than the exponential mechanism, at the same price."""

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
from expost.noise.geometric import geometric
from expost.noise.lattice import distance_in
from expost.noise.level import check_scale
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.scores import gaps_to_best, pick_one, read_scores

__all__ = ["PermuteAndFlip"]


@dataclass(frozen=True)
class PermuteAndFlip(PureMechanism):
    """Flips a coin of probability exp(-epsilon gap_i / (2 sensitivity)) for each candidate, picks among the heads.

    The gap is the distance to the best score, so the best always shows heads. In a random order the first head is a
    uniform one, which is how the pick is made: all coins at once, in one batch. ``monotone`` as in the exponential
    mechanism.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: the score picked is at most shortfall(...) below the best with probability 1 - failure_probability.
    Numerics: exact; a coin is the event that exact geometric noise reaches the gap.
    Reference: MS20, Theorem 1 (guarantee); DKSSWXZ21 (as noisy max); docs/proofs/permute-and-flip.md (integers).

    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 90, 30], Sensitivity(1, Norm.LINF))
    >>> PermuteAndFlip(1).release(scores, bits=SeededBits(1))
    1
    """

    monotone: bool = False

    def rate(self, sensitivity: Sensitivity, *, candidates: int = 1) -> Fraction:
        """The factor of a gap in the exponent."""
        # MS20, Theorem 1 and docs/proofs/permute-and-flip.md: a winner's noise must make up for two moves, its own
        # and the rival's; monotone scores move together, which leaves one.
        distance = distance_in(Norm.LINF, sensitivity, candidates)
        rate = self.epsilon / (distance if self.monotone else 2 * distance)
        check_scale(rate, 1)
        return rate

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int:
        """The index of the candidate picked; ``sealed`` holds one integer score a candidate."""
        return int(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        """Independent picks from scores the caller knows anyway: for audits and planning."""
        source, scores = source_of(bits), read_scores(exact)
        scale = 1 / self.rate(sensitivity, candidates=scores.size)
        heads = geometric(scale, (runs, scores.size), bits=source) >= gaps_to_best(scores)  # P(G >= g) = exp(-g/scale)
        return pick_one(heads.astype(bool), bits=source)

    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        """How far below the best score the pick is at most, except with ``failure_probability``."""
        share = float(probability(failure_probability, "failure_probability"))
        # Some candidate with a gap of g or more must show heads: at most (candidates - 1) exp(-rate g), and the best
        # one, a head too, halves the chance that such a candidate is picked.
        heads = max(candidates - 1, 1) / 2
        rate = float(self.rate(sensitivity, candidates=candidates))
        return max(math.floor(math.log(heads / share) / rate * (1 + 1e-9)), 0)
