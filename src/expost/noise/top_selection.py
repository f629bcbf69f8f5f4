"""Private choice of several candidates: rounds of permute-and-flip among those that are left."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Sensitivity
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.lattice import add_exactly
from expost.noise.lattice_sampler import sample_geometric
from expost.noise.mechanism import PureMechanism, SealedMechanism
from expost.noise.parameter import share_noise_parameters
from expost.noise.selection_mechanism import PermuteAndFlip, pick_one, read_scores

__all__ = ["TopSelection"]


@dataclass(frozen=True)
class TopSelection(PureMechanism, SealedMechanism[NDArray[np.intp]]):
    """Picks several candidates with large scores, one per round, each round at an equal share of epsilon.

    A round is permute-and-flip among the candidates that earlier rounds left. Which ones are left is what those rounds
    released, so the rounds compose adaptively and their shares add up to epsilon.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: each pick is at most shortfall(...) below the best of those left, with probability
        1 - failure_probability for all picks together.
    Numerics: exact; the coins of permute-and-flip are exact.
    Reference: MS20, Theorem 1 (one round); DR14, Theorem 3.16 (the sum over rounds).

    Parameters
    ----------
    epsilon : float or Fraction
        The privacy level of all picks together, > 0.
    picks : int, default 1
        How many candidates to pick.

    Examples
    --------
    >>> from expost.core import Norm, Sealed
    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 900, 300, 20], Sensitivity(1, Norm.LINF))
    >>> TopSelection(2, picks=2).release(scores, bits=SeededBits(1)).tolist()
    [1, 2]
    """

    picks: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.picks, bool) or not isinstance(self.picks, int | np.integer) or self.picks < 1:
            raise InvalidRequest("Expected picks to be a whole number >= 1", got=self.picks, do="Pass how many to pick")

    @property
    def round(self) -> PermuteAndFlip:
        """The mechanism of one round."""
        return PermuteAndFlip(self.epsilon / self.picks)

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        scores, source = read_scores(exact), resolve_bits(bits)
        if self.picks > scores.size:
            raise InvalidRequest("Expected at most as many picks as candidates", got=self.picks, do="Pick fewer")
        scale = 1 / self.round.rate(sensitivity, candidates=scores.size)
        picked, left = np.empty((runs, self.picks), np.intp), np.ones((runs, scores.size), bool)
        for each in range(self.picks):
            # One batch of coins per round, for all candidates: how many are drawn depends on public numbers only.
            best = np.where(left, scores, scores.min()).max(axis=1, keepdims=True)
            heads = sample_geometric(scale, (runs, scores.size), bits=source) >= add_exactly(best, -scores[None])
            picked[:, each] = pick_one(left & heads.astype(bool), bits=source)
            left[np.arange(runs), picked[:, each]] = False
        return picked

    @share_noise_parameters
    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        """Return how far below the best of those left any pick is at most, except with ``failure_probability``."""
        share = Fraction(failure_probability) / self.picks  # a union over the rounds
        return self.round.shortfall(sensitivity, share, candidates=candidates)
