"""The exponential mechanism on integer scores."""

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
from expost.noise.choice import choose
from expost.noise.lattice import distance_in
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.scores import gaps_to_best, read_scores

__all__ = ["ExponentialMechanism"]


@dataclass(frozen=True)
class ExponentialMechanism(PureMechanism):
    """Picks candidate i with probability proportional to exp(epsilon score_i / (2 sensitivity)).

    ``monotone`` says that one unit moves all scores in the same direction (counts under add/remove are an example);
    the factor 2 is then not needed.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: the score picked is at most shortfall(...) below the best with probability 1 - failure_probability.
    Numerics: exact; integer scores, a float filter whose error is bounded, the rest in exact arithmetic.
    Reference: MT07, Theorem 6 (guarantee, also DR14, Theorem 3.10); DR14, Corollary 3.12 (accuracy).

    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 90, 30], Sensitivity(1, Norm.LINF))
    >>> ExponentialMechanism(1).release(scores, bits=SeededBits(1))
    1
    """

    monotone: bool = False

    def rate(self, sensitivity: Sensitivity, *, candidates: int = 1) -> Fraction:
        """The factor of a score in the exponent."""
        # DR14, Theorem 3.10: numerator and normalising sum move by exp(rate * sensitivity) each; monotone scores move
        # them in the same direction, so that only one of the two counts.
        distance = distance_in(Norm.LINF, sensitivity, candidates)
        return self.epsilon / (distance if self.monotone else 2 * distance)

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int:
        """The index of the candidate picked; ``sealed`` holds one integer score a candidate."""
        return int(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        """Independent picks from scores the caller knows anyway: for audits and planning."""
        scores = read_scores(exact)
        rate = self.rate(sensitivity, candidates=scores.size)
        return choose(gaps_to_best(scores), rate, runs, bits=source_of(bits))

    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        """How far below the best score the pick is at most, except with ``failure_probability``."""
        share = float(probability(failure_probability, "failure_probability"))
        # DR14, Theorem 3.11: P(gap >= g) <= candidates * exp(-rate g), whatever the scores.
        return math.floor(
            math.log(candidates / share) / float(self.rate(sensitivity, candidates=candidates)) * (1 + 1e-9)
        )
