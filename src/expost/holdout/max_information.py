"""Max-information: how much more likely a bad coincidence becomes once the question depends on the data."""

from __future__ import annotations

import math

from expost.core.rational import rational
from expost.holdout.typed import amount_of, chance_of, count_of

__all__ = ["chance_of_overfitting", "max_information_of_privacy", "max_information_of_transcripts"]

_LOG2E = math.log2(math.e)


def max_information_of_privacy(epsilon: object, rows: int, *, failure_probability: float = 0.0) -> float:
    """Bits of (approximate) max-information between ``rows`` independent rows and an epsilon-private output.

    With failure probability 0 the worst case over all laws of the data, ``epsilon * rows`` nats (LeeNotes, Lemma 2.2;
    DFHPRR15, Theorem 19). With a positive one, for independent rows,
    ``epsilon^2 rows / 8 + epsilon sqrt(rows ln(1/failure) / 2)`` nats, a constant four times better in the first term
    than DFHPRR15, Theorem 20; proved in docs/proofs/generalization.md.

    >>> round(max_information_of_privacy(0.01, 10_000), 1)
    144.3
    >>> round(max_information_of_privacy(0.01, 10_000, failure_probability=0.01), 2)
    2.37
    """
    privacy, n = float(rational(epsilon, "epsilon", positive=False)), count_of(rows, "rows")
    failure = chance_of(failure_probability, "failure_probability", zero=True)
    worst = privacy * n
    if failure == 0:
        return worst * _LOG2E
    typical = privacy**2 * n / 8 + privacy * math.sqrt(n * math.log(1 / failure) / 2)
    return min(worst, typical) * _LOG2E


def max_information_of_transcripts(log_count: float) -> float:
    """Bits that an output with only ``exp(log_count)`` possible values counts for in ``chance_of_overfitting``.

    The description-length bound (DFHPRR15, Section 4): the event that the output y meets a data set bad for y lies in
    the union over all y of "the data set is bad for y", so the chance grows at most by the number of outputs.

    >>> round(max_information_of_transcripts(math.log(1024)), 6)
    10.0
    """
    return amount_of(log_count, "log_count", zero=True) * _LOG2E


def chance_of_overfitting(bits: float, chance_when_fixed: float, *, failure_probability: float = 0.0) -> float:
    """The probability of a bad event that has ``chance_when_fixed`` for each question asked without looking.

    At most ``2^bits * chance_when_fixed + failure_probability`` (LeeNotes, Theorem 2.1; DFHPRR15, Definition 10), and 1.

    >>> round(chance_of_overfitting(10, 1e-6), 6)
    0.001024
    """
    known, chance = amount_of(bits, "bits", zero=True), amount_of(chance_when_fixed, "chance_when_fixed", zero=True)
    exponent = known + math.log2(chance) if chance > 0 else -math.inf
    failure = amount_of(failure_probability, "failure_probability", zero=True)
    return min(1.0, (2.0**exponent if exponent < 0 else 1.0) + failure)
