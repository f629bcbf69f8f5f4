"""Private selection among candidates by integer scores: exponential mechanism, noisy max, permute-and-flip."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, Sensitivity
from expost.core.rational import probability
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.coin import draw_uniform
from expost.noise.enclosure import bound_exp_minus
from expost.noise.lattice import add_exactly, read_compact_integers
from expost.noise.lattice_sampler import sample_geometric, sample_laplace
from expost.noise.mechanism import PureMechanism, SealedMechanism
from expost.noise.parameter import check_scale, sensitivity_in, share_noise_parameters

__all__ = [
    "ExponentialMechanism",
    "NoisyMax",
    "PermuteAndFlip",
    "choose_index",
    "gaps_to_best",
    "pick_one",
    "read_scores",
]

_MARGIN = 1 + 1e-9  # for logarithms computed in floats
_ROUNDING = 2.0**-52
_EXP_ERROR = 2.0**-48  # relative, for NumPy's exp and the conversion of the weight: both are within 2^-51
_RATE_ERROR = 2.0**-50  # relative, for the product of rate and gap
_MORE = 64


def read_scores(exact: object) -> NDArray[Any]:
    """Read one integer score per candidate."""
    scores = read_compact_integers(exact)
    if scores.ndim != 1 or not scores.size:
        raise InvalidRequest("Expected one score per candidate", do="Pass a list of integers, at least one")
    return scores


def gaps_to_best(scores: NDArray[Any]) -> NDArray[Any]:
    """Return how far each score is below the largest."""
    return add_exactly(scores.max(keepdims=True), -scores)


def pick_one(flags: NDArray[np.bool_], *, bits: BitSource) -> NDArray[np.intp]:
    """Pick, in each row of flags, one of the set ones uniformly; each row must have one."""
    numbers = np.cumsum(flags, axis=1)
    wanted = draw_uniform(numbers[:, -1].astype(np.uint64), bits)
    picks: NDArray[np.intp] = np.argmax(numbers > wanted[:, None], axis=1)
    return picks


def choose_index(
    gaps: NDArray[Any], rate: Fraction, runs: int, *, bits: BitSource, weights: NDArray[Any] | None = None
) -> NDArray[np.intp]:
    """Choose indices with P(i) proportional to weights[i] * exp(-rate * gaps[i]), one per run; gaps are integers >= 0.

    The law is exact: a uniform real picks a cell of the cumulated weights; where the float sums cannot decide the cell
    for sure, more digits are drawn and the sums bounded by rigorous integers until they can. One gap must be 0 and
    have a positive weight.

    >>> from expost.noise.bits import SeededBits
    >>> choose_index(np.array([0, 50]), Fraction(1), 5, bits=SeededBits(1)).tolist()
    [0, 0, 0, 0, 0]
    """
    exponents = float(rate) * gaps.astype(np.float64)
    masses = np.exp(-np.minimum(exponents, 700.0)) * (1.0 if weights is None else weights.astype(np.float64))
    ends = np.cumsum(masses)
    # How far a scaled point and an end are from their true values: a cumulated sum of n terms errs by n roundings; a
    # point is a product of two rounded numbers and a 64-bit integer.
    cell_error = float(np.sum(masses * (exponents * _RATE_ERROR + _EXP_ERROR)))
    error = 4 * (cell_error + (len(ends) + 4) * _ROUNDING * float(ends[-1]))
    words = bits.words(runs)
    points = words.astype(np.float64) * (2.0**-64 * ends[-1])
    picked: NDArray[np.intp] = np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1)
    starts = np.concatenate([[-np.inf], ends[:-1]])  # nothing lies below the first cell, nothing above the last
    ends[-1] = np.inf
    doubtful = (points - error < starts[picked]) | (points + error > ends[picked])
    if doubtful.any():
        exact_gaps: list[int] = [int(gap) for gap in gaps.tolist()]
        exact_weights = [1] * len(exact_gaps) if weights is None else [int(weight) for weight in weights.tolist()]
        for run in np.flatnonzero(doubtful).tolist():
            picked[run] = _choose_exactly(int(words[run]), exact_gaps, exact_weights, rate, bits)
    return picked


def _choose_exactly(prefix: int, gaps: list[int], weights: list[int], rate: Fraction, bits: BitSource) -> int:
    """Find the cell of a uniform real whose first 64 binary digits are ``prefix``, by rigorous integer bounds."""
    length = _MORE
    while True:
        prefix, length = prefix << _MORE | bits.integer(_MORE), length + _MORE
        known = {gap: bound_exp_minus(rate * gap, length) for gap in set(gaps)}
        pairs = [(known[gap], weight) for gap, weight in zip(gaps, weights, strict=True)]
        lows = list(accumulate(low * weight for (low, _), weight in pairs))
        highs = list(accumulate(high * weight for (_, high), weight in pairs))
        least, most = prefix * lows[-1] >> length, (prefix + 1) * highs[-1] >> length
        cell = next(index for index, high in enumerate(highs) if high > least)
        if most < lows[cell]:
            return cell


@dataclass(frozen=True)
class _ScoreMechanism(PureMechanism, SealedMechanism[int]):
    """What the three mechanisms share: scores of which one unit moves each by at most the sensitivity."""

    monotone: bool = False

    def _largest_move(self, sensitivity: Sensitivity, candidates: int) -> Fraction:
        """Return how far the gap between two scores can move: both may, monotone scores in one direction only."""
        distance = sensitivity_in(Norm.LINF, sensitivity, candidates)
        return distance if self.monotone else 2 * distance

    @abc.abstractmethod
    @share_noise_parameters
    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        """Return how far below the best score the pick is at most, except with ``failure_probability``."""


@share_noise_parameters
@dataclass(frozen=True)
class ExponentialMechanism(_ScoreMechanism):
    """Picks candidate i with probability proportional to exp(epsilon score_i / (2 sensitivity)).

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: the score picked is at most shortfall(...) below the best with probability 1 - failure_probability.
    Numerics: exact; integer scores, a float filter whose error is bounded, the rest in exact arithmetic.
    Reference: MT07, Theorem 6 (guarantee, also DR14, Theorem 3.10); DR14, Corollary 3.12 (accuracy).

    Examples
    --------
    >>> from expost.core import Sealed
    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 90, 30], Sensitivity(1, Norm.LINF))
    >>> ExponentialMechanism(1).release(scores, bits=SeededBits(1))
    1
    """

    @share_noise_parameters
    def rate(self, sensitivity: Sensitivity, *, candidates: int = 1) -> Fraction:
        """Return the factor of a score in the exponent."""
        # DR14, Theorem 3.10: numerator and normalising sum move by exp(rate * sensitivity) each; monotone scores move
        # them in the same direction, so that only one of the two counts.
        return self.epsilon / self._largest_move(sensitivity, candidates)

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        scores = read_scores(exact)
        rate = self.rate(sensitivity, candidates=scores.size)
        return choose_index(gaps_to_best(scores), rate, runs, bits=resolve_bits(bits))

    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        share = float(probability(failure_probability, "failure_probability"))
        # DR14, Theorem 3.11: P(gap >= g) <= candidates * exp(-rate g), whatever the scores.
        return math.floor(math.log(candidates / share) / float(self.rate(sensitivity, candidates=candidates)) * _MARGIN)


@share_noise_parameters
@dataclass(frozen=True)
class NoisyMax(_ScoreMechanism):
    """Adds discrete Laplace noise of scale 2 sensitivity / epsilon to each score and reports the index of the largest.

    Only the index is released; ties, which integers do have, are broken uniformly. With one-sided noise this would be
    permute-and-flip, which is never worse (docs/proofs/permute-and-flip.md); this one is here for comparison and
    because it is what most texts describe.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: the score picked is at most shortfall(...) below the best with probability 1 - failure_probability.
    Numerics: exact; integer noise, integer comparisons.
    Reference: DR14, Claim 3.9 (guarantee); docs/proofs/permute-and-flip.md (integers and ties).

    Examples
    --------
    >>> from expost.core import Sealed
    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 90, 30], Sensitivity(1, Norm.LINF))
    >>> NoisyMax(1).release(scores, bits=SeededBits(1))
    1
    """

    @share_noise_parameters
    def scale(self, sensitivity: Sensitivity, *, candidates: int = 1) -> Fraction:
        """Return the scale of the noise on each score."""
        # DR14, Claim 3.9 proves scale 1 / epsilon for counts, which are monotone; in general both sides may move.
        return self._largest_move(sensitivity, candidates) / self.epsilon

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        source, scores = resolve_bits(bits), read_scores(exact)
        scale = self.scale(sensitivity, candidates=scores.size)
        noisy = add_exactly(scores[None], sample_laplace(scale, (runs, scores.size), bits=source))
        return pick_one((noisy == noisy.max(axis=1, keepdims=True)).astype(bool), bits=source)

    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        share = float(probability(failure_probability, "failure_probability"))
        scale = float(self.scale(sensitivity, candidates=candidates))
        # A gap above 2 h needs the best to fall below -h or a rival to rise above h: one tail each, exp(-(h+1)/scale).
        return 2 * math.floor(scale * math.log(candidates / share) * _MARGIN)


@share_noise_parameters
@dataclass(frozen=True)
class PermuteAndFlip(_ScoreMechanism):
    """Flips a coin of probability exp(-epsilon gap_i / (2 sensitivity)) for each candidate, picks among the heads.

    The gap is the distance to the best score, so the best always shows heads. In a random order the first head is a
    uniform one, which is how the pick is made: all coins at once, in one batch. It is never worse than the exponential
    mechanism at the same price.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: Linf, the most that one unit moves any single score.
    Accuracy: the score picked is at most shortfall(...) below the best with probability 1 - failure_probability.
    Numerics: exact; a coin is the event that exact geometric noise reaches the gap.
    Reference: MS20, Theorem 1 (guarantee); DKSSWXZ21 (as noisy max); docs/proofs/permute-and-flip.md (integers).

    Examples
    --------
    >>> from expost.core import Sealed
    >>> from expost.noise import SeededBits
    >>> scores = Sealed([10, 90, 30], Sensitivity(1, Norm.LINF))
    >>> PermuteAndFlip(1).release(scores, bits=SeededBits(1))
    1
    """

    @share_noise_parameters
    def rate(self, sensitivity: Sensitivity, *, candidates: int = 1) -> Fraction:
        """Return the factor of a gap in the exponent."""
        # MS20, Theorem 1 and docs/proofs/permute-and-flip.md: a winner's noise must make up for two moves, its own
        # and the rival's; monotone scores move together, which leaves one.
        rate = self.epsilon / self._largest_move(sensitivity, candidates)
        check_scale(rate, 1)
        return rate

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        source, scores = resolve_bits(bits), read_scores(exact)
        scale = 1 / self.rate(sensitivity, candidates=scores.size)
        # P(G >= g) = exp(-g / scale) for geometric G.
        heads = sample_geometric(scale, (runs, scores.size), bits=source) >= gaps_to_best(scores)
        return pick_one(heads.astype(bool), bits=source)

    def shortfall(self, sensitivity: Sensitivity, failure_probability: float | Fraction, *, candidates: int) -> int:
        share = float(probability(failure_probability, "failure_probability"))
        # Some candidate with a gap of g or more must show heads: at most (candidates - 1) exp(-rate g), and the best
        # one, a head too, halves the chance that such a candidate is picked.
        heads = max(candidates - 1, 1) / 2
        rate = float(self.rate(sensitivity, candidates=candidates))
        return max(math.floor(math.log(heads / share) / rate * _MARGIN), 0)
