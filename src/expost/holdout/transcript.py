"""Few possible conversations, little overfitting: the description-length bound of a holdout session."""

from __future__ import annotations

import math

from expost.holdout.generalization import Bound, _capped

__all__ = ["log_binomial", "transcript_error"]

THEOREM = "description length of the transcript (docs/proofs/generalization.md)"


def log_binomial(total: int, chosen: int) -> float:
    """The natural logarithm of the number of ways to choose.

    >>> round(math.exp(log_binomial(5, 2)), 9)
    10.0
    """
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def transcript_error(
    rows: int, *, question: int, hits: int, alphabet: int, max_questions: int, max_hits: int, failure_probability: float
) -> Bound:
    """How far the holdout mean of the question with this number may be from the truth, for all questions at once.

    ``question`` counts from 0 and ``hits`` of the earlier ones were answered from the holdout with one of
    ``alphabet`` values; all others were answered without news. At most ``C(question, hits) alphabet^hits``
    conversations lead here, each fixes the question before the rows are drawn, and Hoeffding's inequality is paid for
    all of them (DFHPRR15, Section 4; docs/proofs/generalization.md). Nothing is asked of the noise but independence
    of the rows.

    >>> few = transcript_error(10_000, question=99, hits=1, alphabet=50, max_questions=100, max_hits=10,
    ...                        failure_probability=0.05)
    >>> many = transcript_error(10_000, question=99, hits=10, alphabet=50, max_questions=100, max_hits=10,
    ...                         failure_probability=0.05)
    >>> round(few.error, 3), round(many.error, 3)
    (0.031, 0.063)
    """
    conversations = log_binomial(question, hits) + hits * math.log(alphabet)
    share = math.log(2 * max_questions * (max_hits + 1) / failure_probability)
    return Bound(_capped(math.sqrt((conversations + share) / (2 * rows))), THEOREM)
