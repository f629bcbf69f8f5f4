"""How far an answer on a sample may be from the population when the question was chosen adaptively.

Three arguments bound it: privacy (the answer hardly depends on single rows), max-information (how much likelier a bad
coincidence becomes once the question depends on the data), and description length (few transcripts, little
overfitting). Proofs: docs/proofs/generalization.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from expost.core import (
    ApproxGuarantee,
    GuaranteeLike,
    InvalidRequest,
    PureGuarantee,
    ZeroConcentratedGuarantee,
    as_guarantee,
    share_parameters,
)
from expost.core.rational import finite, probability, rational

__all__ = [
    "OUT_OF_RANGE",
    "TRANSCRIPT_THEOREM",
    "Bound",
    "cap_error",
    "chance_of_overfitting",
    "check_amount",
    "check_chance",
    "check_count",
    "generalization_error",
    "log_binomial",
    "max_information_of_privacy",
    "max_information_of_transcripts",
    "sampling_error",
    "transcript_error",
    "transfer_error",
]

TRANSCRIPT_THEOREM = "description length of the transcript (docs/proofs/generalization.md)"

_DELTAS = tuple(10.0**-k for k in range(3, 41))  # where a zCDP guarantee is read as (epsilon, delta)
_SLACK = 1 + 1e-9  # a bound is an upper bound: its floating-point error is far below this
_LOG2E = math.log2(math.e)
_MOST = 1 << 53  # whole numbers up to it are floats too
_LEAST, _LARGEST = 1e-150, 1e150  # squares of what is between them are floats

OUT_OF_RANGE = """
InvalidRequest
    If an argument is out of its range.
"""
_describes_bound = share_parameters(
    {
        "guarantee": "Guarantee, number, (epsilon, delta) pair or dict\n"
        "The privacy of the algorithm: pure, approximate or zCDP. No other definition is accepted.",
        "rows": "int\nThe number of independent rows.",
        "failure_probability": "float\nHow often the error may exceed the bound, in (0, 1).",
    },
    raises=OUT_OF_RANGE,
)


@dataclass(frozen=True, order=True)
class Bound:
    """An error that is exceeded with at most the failure probability, and the statement it comes from.

    Bounds compare by their error, so ``min`` picks the tightest.

    Parameters
    ----------
    error : float
        The bound, in units of the answer.
    theorem : str
        The statement that proves it.

    Examples
    --------
    >>> min(Bound(0.1, "A"), Bound(0.05, "B")).theorem
    'B'
    """

    error: float
    theorem: str


@_describes_bound
def sampling_error(rows: int, failure_probability: float | Fraction) -> Bound:
    """Bound the error of a mean of [0, 1] values for a question fixed before the data were seen.

    Hoeffding's inequality: P(|mean - truth| > t) <= 2 exp(-2 t^2 rows).

    Returns
    -------
    Bound

    Examples
    --------
    >>> round(sampling_error(10_000, 0.05).error, 4)
    0.0136
    """
    n, beta = check_count(rows, "rows"), float(probability(failure_probability, "failure_probability"))
    return Bound(cap_error(math.sqrt(math.log(2 / beta) / (2 * n))), "Hoeffding")


@_describes_bound
def generalization_error(guarantee: GuaranteeLike, rows: int, *, failure_probability: float | Fraction) -> Bound:
    """Bound how far the sample mean of a function chosen by a private algorithm may be from the truth.

    The algorithm sees ``rows`` independent rows under ``guarantee`` (replace-one) and outputs a function of one row
    into [0, 1]. For several functions divide the failure probability by their number.

    Returns
    -------
    Bound
        The tightest of the known bounds.

    Examples
    --------
    >>> bound = generalization_error(0.01, 100_000, failure_probability=0.05)
    >>> round(bound.error, 4), bound.theorem
    (0.007, 'max-information of independent rows')
    """
    n, beta = check_count(rows, "rows"), float(probability(failure_probability, "failure_probability"))
    found = [Bound(1.0, "answers lie in [0, 1]")]
    for epsilon, delta in _guarantee_to_pairs(guarantee):
        if delta == 0:
            # LeeNotes, Corollary 2.3.1: epsilon <= t gives P(|mean - truth| >= t) <= 6 exp(-t^2 n). Its Theorem 2.3
            # prints 3 / sqrt(beta) for 3 sqrt(beta).
            valid = max(epsilon, math.sqrt(math.log(6 / beta) / n))
            found.append(Bound(cap_error(valid), "LeeNotes, Corollary 2.3.1"))
            # Half of beta pays for approximate max-information, half for Hoeffding's event (generalization.md).
            nats = epsilon**2 * n / 8 + epsilon * math.sqrt(n * math.log(2 / beta) / 2)
            error = math.sqrt((math.log(4 / beta) + min(nats, epsilon * n)) / (2 * n))
            found.append(Bound(cap_error(error), "max-information of independent rows"))
        else:
            # LeeNotes, Theorem 2.4: n >= 48 ln(8/beta)/t^2, epsilon <= t/4 and delta <= (beta/8)^(4/t) give error t.
            log = math.log(8 / beta)
            error = max(math.sqrt(48 * log / n), 4 * epsilon, 4 * log / math.log(1 / delta))
            found.append(Bound(cap_error(error), "LeeNotes, Theorem 2.4"))
    return min(found)


@_describes_bound
def transfer_error(
    guarantee: GuaranteeLike, *, sample_error: float, sample_failure: float, failure_probability: float | Fraction
) -> Bound:
    """Bound how far the *answers* of a private and sample-accurate mechanism may be from the truth, all at once.

    The mechanism answers adaptive questions in [0, 1] under ``guarantee``. JLNRSS20 (Theorem 3.5) with tanh(epsilon/4)
    for pure and tanh(epsilon/2) for approximate privacy in the place of e^epsilon - 1, proved in
    docs/proofs/generalization.md.

    Parameters
    ----------
    sample_error : float
        How far an answer may be from its value on the sample.
    sample_failure : float
        How often some answer may be farther, in [0, 1).

    Returns
    -------
    Bound

    Examples
    --------
    >>> round(transfer_error(0.1, sample_error=0.02, sample_failure=1e-6, failure_probability=0.01).error, 4)
    0.0451
    """
    beta = float(probability(failure_probability, "failure_probability"))
    apart = check_amount(sample_error, "sample_error", zero=True)
    missed = check_chance(sample_failure, "sample_failure", zero=True)
    added = math.inf
    for epsilon, delta in _guarantee_to_pairs(guarantee):
        # The least c + 2 d with sample_failure / c + leak / d = beta (Markov's inequality for both events).
        leak = 2 * delta / (1 + math.exp(min(epsilon, 700.0)))
        markov = (math.sqrt(missed) + math.sqrt(2 * leak)) ** 2 / beta
        added = min(added, _posterior_shift(epsilon, delta) + markov)
    return Bound(cap_error(apart + added), "transfer from the sample (JLNRSS20, Theorem 3.5, sharpened)")


def _posterior_shift(epsilon: float, delta: float) -> float:
    """Return how far a private answer moves the posterior mean of a value in [0, 1]."""
    return math.tanh(epsilon / 4) if delta == 0 else math.tanh(epsilon / 2)


def _guarantee_to_pairs(guarantee: GuaranteeLike) -> list[tuple[float, float]]:
    """Return the (epsilon, delta) pairs that a guarantee implies."""
    match as_guarantee(guarantee, "guarantee"):
        case PureGuarantee(epsilon):
            return [(float(epsilon), 0.0)]
        case ApproxGuarantee(epsilon, delta):
            return [(float(epsilon), float(delta))]
        case ZeroConcentratedGuarantee(rho):
            # BS16, Proposition 1.3.
            return [(float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / delta)), delta) for delta in _DELTAS]
    raise InvalidRequest(
        "Expected a pure, approximate or zCDP guarantee", got=type(guarantee).__name__, do="Convert it first"
    )


def cap_error(error: float) -> float:
    """Return an error with slack for rounding, at most 1 since answers lie in [0, 1]."""
    return min(1.0, error * _SLACK)


# Max-information


@_describes_bound
def max_information_of_privacy(epsilon: float | Fraction, rows: int, *, failure_probability: float = 0.0) -> float:
    """Return bits of (approximate) max-information between independent rows and an epsilon-private output.

    With failure probability 0 this is the worst case over all laws of the data, ``epsilon * rows`` nats (LeeNotes,
    Lemma 2.2; DFHPRR15, Theorem 19). With a positive one it is, for independent rows,
    ``epsilon^2 rows / 8 + epsilon sqrt(rows ln(1/failure) / 2)`` nats, a constant four times better in the first term
    than DFHPRR15, Theorem 20; proved in docs/proofs/generalization.md.

    Parameters
    ----------
    epsilon : float
        The pure privacy of the output, at least 0.
    failure_probability : float, default 0.0
        The share of outcomes on which the bound may fail, in [0, 1).

    Returns
    -------
    float
        Bits.

    Examples
    --------
    >>> round(max_information_of_privacy(0.01, 10_000), 1)
    144.3
    >>> round(max_information_of_privacy(0.01, 10_000, failure_probability=0.01), 2)
    2.37
    """
    privacy, n = float(rational(epsilon, "epsilon", positive=False)), check_count(rows, "rows")
    failure = check_chance(failure_probability, "failure_probability", zero=True)
    worst = privacy * n
    if failure == 0:
        return worst * _LOG2E
    typical = privacy**2 * n / 8 + privacy * math.sqrt(n * math.log(1 / failure) / 2)
    return min(worst, typical) * _LOG2E


@_describes_bound
def max_information_of_transcripts(log_count: float) -> float:
    """Return the bits that an output with ``exp(log_count)`` possible values counts for in ``chance_of_overfitting``.

    The description-length bound (DFHPRR15, Section 4): the event that the output y meets a data set bad for y lies in
    the union over all y of "the data set is bad for y", so the chance grows at most by the number of outputs.

    Parameters
    ----------
    log_count : float
        The natural logarithm of the number of possible outputs.

    Returns
    -------
    float
        Bits.

    Examples
    --------
    >>> round(max_information_of_transcripts(math.log(1024)), 6)
    10.0
    """
    return check_amount(log_count, "log_count", zero=True) * _LOG2E


@_describes_bound
def chance_of_overfitting(bits: float, chance_when_fixed: float, *, failure_probability: float = 0.0) -> float:
    """Bound the probability of a bad event when questions are chosen adaptively.

    At most ``2^bits * chance_when_fixed + failure_probability`` (LeeNotes, Theorem 2.1; DFHPRR15, Definition 10), and 1.

    Parameters
    ----------
    bits : float
        The max-information between data and questions.
    chance_when_fixed : float
        The probability of the event for each question fixed before the data were seen.
    failure_probability : float, default 0.0
        The share of outcomes on which the max-information bound may fail.

    Returns
    -------
    float

    Examples
    --------
    >>> round(chance_of_overfitting(10, 1e-6), 6)
    0.001024
    """
    known = check_amount(bits, "bits", zero=True)
    chance = check_amount(chance_when_fixed, "chance_when_fixed", zero=True)
    exponent = known + math.log2(chance) if chance > 0 else -math.inf
    failure = check_amount(failure_probability, "failure_probability", zero=True)
    return min(1.0, (2.0**exponent if exponent < 0 else 1.0) + failure)


# Description length


def log_binomial(total: int, chosen: int) -> float:
    """Return the natural logarithm of a binomial coefficient."""
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def transcript_error(
    rows: int, *, question: int, hits: int, alphabet: int, max_questions: int, max_hits: int, failure_probability: float
) -> Bound:
    """Bound how far the holdout mean of the question with this number may be from the truth, for all questions at once.

    ``question`` counts from 0 and ``hits`` of the earlier ones were answered from the holdout with one of
    ``alphabet`` values; all others were answered without news. At most ``C(question, hits) alphabet^hits``
    transcripts lead here, each fixes the question before the rows are drawn, and Hoeffding's inequality is paid for
    all of them (DFHPRR15, Section 4; docs/proofs/generalization.md). Only independence of the rows is assumed.
    """
    transcripts = log_binomial(question, hits) + hits * math.log(alphabet)
    share = math.log(2 * max_questions * (max_hits + 1) / failure_probability)
    return Bound(cap_error(math.sqrt((transcripts + share) / (2 * rows))), TRANSCRIPT_THEOREM)


# Numbers as callers type them


def check_count(value: object, name: str) -> int:
    """Return a positive whole number, or raise ``InvalidRequest``.

    >>> check_count(0, "rows")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected rows to be a positive whole number, got 0. Pass rows >= 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"Expected {name} to be a positive whole number", got=value, do=f"Pass {name} >= 1")
    if value > _MOST:
        raise InvalidRequest(f"Expected {name} of at most 2^53", got=value, do=f"Pass a smaller {name}")
    return value


def check_amount(value: object, name: str, *, zero: bool = False) -> float:
    """Return a positive finite number, or zero where allowed. It may be tiny, since it may be computed."""
    bound = ">= 0" if zero else "> 0"
    do = f"Pass a finite {name} {bound}"
    found = finite(value, name, do=do)
    if not _LEAST <= found <= _LARGEST and not (zero and found == 0):
        raise InvalidRequest(f"Expected {name} to be a number {bound}", got=value, do=do)
    return found


def check_chance(value: object, name: str, *, zero: bool = False) -> float:
    """Return a probability below 1, and above 0 unless zero is allowed."""
    found = check_amount(value, name, zero=zero)
    if found >= 1:
        raise InvalidRequest(f"Expected {name} below 1", got=value, do=f"Pass a smaller {name}")
    return found
