"""How much noise a reusable holdout adds, and how far that noise may push an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from expost.core.errors import InvalidRequest
from expost.core.rational import floor_decimal

__all__ = ["GRID", "NoiseLevel", "analysed_level", "improved_level"]

GRID = 1 << 20
"""Lattice points between 0 and 1: the values of a question on single rows are rounded to this grid."""

# Rounding of single values (half a lattice unit each on holdout and training rows), of the training total to the
# holdout's lattice, and the lattice unit by which a discrete Laplace tail may exceed the continuous one: each at most
# one unit of the mean.
_ROUNDING = 4 / GRID


@dataclass(frozen=True, kw_only=True)
class NoiseLevel:
    """Threshold and noise scales of one session, all in units of the mean of a question.

    ``answer_scale`` is ``None`` when the answer is the free gap of the threshold test, which costs nothing more.

    >>> analysed_level(tolerance=Fraction(1, 10), failure_probability=0.05, max_queries=100).threshold
    Fraction(3, 40)
    """

    one_sided: bool
    threshold: Fraction
    threshold_scale: Fraction
    query_scale: Fraction
    answer_scale: Fraction | None

    @property
    def threshold_epsilon_rows(self) -> Fraction:
        """What a threshold costs that nothing has crossed yet, times the number of rows."""
        return 1 / self.threshold_scale

    @property
    def hit_epsilon_rows(self) -> Fraction:
        """What one answer from the holdout costs, threshold included, times the number of rows.

        One row moves a mean by at most 1/rows. Threshold noise pays that once and the noise of the crossing question
        twice (DR14, Theorem 3.23), the answer's own noise once (DMNS06, Theorem 1).
        """
        answer = Fraction(0) if self.answer_scale is None else 1 / self.answer_scale
        return 1 / self.threshold_scale + 2 / self.query_scale + answer

    def sample_errors(self, *, max_queries: int, max_hits: int, failure_probability: float) -> tuple[float, float]:
        """How far answers from training and from the holdout may be from the holdout's own mean, all at once."""
        thresholds, queries, answers = self._tails(max_queries, max_hits, failure_probability)
        kept = float(self.threshold) + thresholds + (0.0 if self.one_sided else queries)
        if self.answer_scale is None:
            b1, b2 = float(self.threshold_scale), float(self.query_scale)
            answers = max(queries - b2 + b1, thresholds - b1 + b2)
        return kept + _ROUNDING, answers + _ROUNDING

    def hit_margin(self, *, max_queries: int, max_hits: int, failure_probability: float) -> float:
        """The least difference between training and holdout means at which the holdout answers."""
        thresholds, queries, _ = self._tails(max_queries, max_hits, failure_probability)
        return float(self.threshold) - queries - (0.0 if self.one_sided else thresholds) - _ROUNDING

    def _tails(self, max_queries: int, max_hits: int, failure_probability: float) -> tuple[float, float, float]:
        # Union bound with equal shares for the thresholds drawn, the questions (two tests each when one-sided) and
        # the answers' own noise; P(|Laplace(b)| > b ln(1/p)) = P(Exponential(b) > b ln(1/p)) = p.
        kinds = 2 if self.answer_scale is None else 3
        tests = 2 * max_queries if self.one_sided else max_queries
        per_threshold = math.log(kinds * max_hits / failure_probability)
        per_query = math.log(kinds * tests / failure_probability)
        answer = 0.0 if self.answer_scale is None else float(self.answer_scale) * per_threshold
        return float(self.threshold_scale) * per_threshold, float(self.query_scale) * per_query, answer


def analysed_level(*, tolerance: Fraction, failure_probability: float, max_queries: int) -> NoiseLevel:
    """The constants of the published analysis: T = 3 tolerance/4, sigma = tolerance / (96 ln(4 m / beta)).

    Threshold noise Laplace(2 sigma), comparison noise Laplace(4 sigma), answer noise Laplace(sigma) (LeeNotes,
    Theorem 3.3 with Algorithm 1; DFHPRR15, Theorem 25).
    """
    sigma = _short(float(tolerance) / (96 * math.log(4 * max_queries / failure_probability)))
    return NoiseLevel(
        one_sided=False,
        threshold=3 * tolerance / 4,
        threshold_scale=2 * sigma,
        query_scale=4 * sigma,
        answer_scale=sigma,
    )


def improved_level(
    *, tolerance: Fraction, failure_probability: float, max_queries: int, max_hits: int, noise_share: Fraction
) -> NoiseLevel:
    """One-sided noise with the split that costs least, and the gap as a free answer.

    Of the tolerance, ``noise_share`` goes to the noise of threshold and questions together, one eighth is the margin
    below which no question is taken for overfitting, the rest is for generalisation. With tails ``L1`` and ``L2`` the
    cheapest split of ``b1 L1 + b2 L2`` for ``1/b1 + 2/b2`` is ``b1 : b2 = 1/sqrt(L1) : sqrt(2/L2)`` (LWLLC24;
    docs/proofs/generalization.md).
    """
    if not 0 < noise_share < Fraction(7, 8):
        raise InvalidRequest("Expected noise_share between 0 and 7/8", got=noise_share, do="Pass 1/4")
    fine = failure_probability * float(tolerance) / 50
    first = math.sqrt(math.log(2 * max_hits / fine))
    second = math.sqrt(math.log(4 * max_queries / fine))
    room = float(noise_share * tolerance) / (first + math.sqrt(2) * second)
    threshold_scale, query_scale = _short(room / first), _short(room * math.sqrt(2) / second)
    above_margin = _short(float(query_scale) * second**2)
    return NoiseLevel(
        one_sided=True,
        threshold=tolerance / 8 + above_margin,
        threshold_scale=threshold_scale,
        query_scale=query_scale,
        answer_scale=None,
    )


def _short(value: float) -> Fraction:
    """A short decimal just below ``value``: noise scales are exact rationals."""
    places = 6 - math.floor(math.log10(value))
    return floor_decimal(Fraction(value), places)
