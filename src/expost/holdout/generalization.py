"""How far an answer on a sample may be from the population when the question was chosen adaptively."""

from __future__ import annotations

import math
from dataclasses import dataclass

from expost.core.errors import InvalidRequest
from expost.core.guarantee import ApproxGuarantee, Guarantee, PureGuarantee, ZeroConcentratedGuarantee
from expost.core.rational import probability
from expost.holdout.typed import amount_of, chance_of, count_of

__all__ = ["Bound", "generalization_error", "sampling_error", "transfer_error"]

_DELTAS = tuple(10.0**-k for k in range(3, 41))  # where a zCDP guarantee is read as (epsilon, delta)
_SLACK = 1 + 1e-9  # a bound is an upper bound: its floating-point error is far below this


@dataclass(frozen=True, order=True)
class Bound:
    """An error that is exceeded with at most the failure probability, and the statement it comes from.

    Bounds compare by their error, so ``min`` picks the tightest.

    >>> min(Bound(0.1, "A"), Bound(0.05, "B")).theorem
    'B'
    """

    error: float
    theorem: str


def sampling_error(rows: int, failure_probability: object) -> Bound:
    """The error of a mean of [0, 1] values for a question fixed before the data were seen.

    Hoeffding's inequality: P(|mean - truth| > t) <= 2 exp(-2 t^2 rows).

    >>> round(sampling_error(10_000, 0.05).error, 4)
    0.0136
    """
    n, beta = count_of(rows, "rows"), float(probability(failure_probability, "failure_probability"))
    return Bound(_capped(math.sqrt(math.log(2 / beta) / (2 * n))), "Hoeffding")


def generalization_error(guarantee: Guarantee, rows: int, *, failure_probability: object) -> Bound:
    """How far the sample mean of a function chosen by a private algorithm may be from the truth; the tightest bound.

    The algorithm sees ``rows`` independent rows under ``guarantee`` (replace-one) and outputs a function of one row
    into [0, 1]. For several functions divide the failure probability by their number.

    >>> from expost.core import epsilon
    >>> bound = generalization_error(epsilon(0.01), 100_000, failure_probability=0.05)
    >>> round(bound.error, 4), bound.theorem
    (0.007, 'max-information of independent rows')
    """
    n, beta = count_of(rows, "rows"), float(probability(failure_probability, "failure_probability"))
    return min(Bound(1.0, "answers lie in [0, 1]"), *_candidates(guarantee, n, beta))


def transfer_error(
    guarantee: Guarantee, *, sample_error: float, sample_failure: float, failure_probability: object
) -> Bound:
    """How far the *answers* of a private and sample-accurate mechanism may be from the truth, all of them at once.

    The mechanism answers adaptive questions in [0, 1] under ``guarantee``; with probability ``1 - sample_failure`` no
    answer is farther than ``sample_error`` from its value on the sample. JLNRSS20 (Theorem 3.5) with
    tanh(epsilon/4) for pure and tanh(epsilon/2) for approximate privacy in the place of e^epsilon - 1, proved in
    docs/proofs/generalization.md.

    >>> from expost.core import epsilon
    >>> round(transfer_error(epsilon(0.1), sample_error=0.02, sample_failure=1e-6, failure_probability=0.01).error, 4)
    0.0451
    """
    beta = float(probability(failure_probability, "failure_probability"))
    apart, missed = (
        amount_of(sample_error, "sample_error", zero=True),
        chance_of(sample_failure, "sample_failure", zero=True),
    )
    theorem = "transfer from the sample (JLNRSS20, Theorem 3.5, sharpened)"
    added = min(
        _posterior_shift(epsilon, delta) + _markov(epsilon, delta, missed, beta)
        for epsilon, delta in _as_approx(guarantee)
    )
    return Bound(_capped(apart + added), theorem)


def _candidates(guarantee: Guarantee, n: int, beta: float) -> list[Bound]:
    found = []
    for epsilon, delta in _as_approx(guarantee):
        if delta == 0:
            found += [_preserving_validity(epsilon, n, beta), _max_information(epsilon, n, beta)]
        else:
            found.append(_approximate(epsilon, delta, n, beta))
    return found


def _preserving_validity(epsilon: float, n: int, beta: float) -> Bound:
    # LeeNotes, Corollary 2.3.1: epsilon <= t gives P(|mean - truth| >= t) <= 6 exp(-t^2 n). Its Theorem 2.3 prints
    # 3 / sqrt(beta) for 3 sqrt(beta).
    return Bound(_capped(max(epsilon, math.sqrt(math.log(6 / beta) / n))), "LeeNotes, Corollary 2.3.1")


def _max_information(epsilon: float, n: int, beta: float) -> Bound:
    # Half of beta pays for approximate max-information, half for Hoeffding's event (docs/proofs/generalization.md).
    nats = epsilon**2 * n / 8 + epsilon * math.sqrt(n * math.log(2 / beta) / 2)
    error = math.sqrt((math.log(4 / beta) + min(nats, epsilon * n)) / (2 * n))
    return Bound(_capped(error), "max-information of independent rows")


def _approximate(epsilon: float, delta: float, n: int, beta: float) -> Bound:
    # LeeNotes, Theorem 2.4: n >= 48 ln(8/beta)/t^2, epsilon <= t/4 and delta <= (beta/8)^(4/t) give error t.
    log = math.log(8 / beta)
    error = max(math.sqrt(48 * log / n), 4 * epsilon, 4 * log / math.log(1 / delta))
    return Bound(_capped(error), "LeeNotes, Theorem 2.4")


def _posterior_shift(epsilon: float, delta: float) -> float:
    return math.tanh(epsilon / 4) if delta == 0 else math.tanh(epsilon / 2)


def _markov(epsilon: float, delta: float, sample_failure: float, beta: float) -> float:
    # The least c + 2 d with sample_failure / c + leak / d = beta.
    leak = 2 * delta / (1 + math.exp(min(epsilon, 700.0)))
    return (math.sqrt(sample_failure) + math.sqrt(2 * leak)) ** 2 / beta


def _as_approx(guarantee: Guarantee) -> list[tuple[float, float]]:
    """The (epsilon, delta) pairs a guarantee implies."""
    match guarantee:
        case PureGuarantee(epsilon):
            # A pure promise is also a concentrated one (BS16, Proposition 1.4: rho = epsilon^2 / 2).
            return [(float(epsilon), 0.0)]
        case ApproxGuarantee(epsilon, delta):
            return [(float(epsilon), float(delta))]
        case ZeroConcentratedGuarantee(rho):
            # BS16, Proposition 1.3.
            return [(float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / delta)), delta) for delta in _DELTAS]
    raise InvalidRequest(
        "Expected a pure, approximate or zCDP guarantee", got=type(guarantee).__name__, do="Convert it first"
    )


def _capped(error: float) -> float:
    return min(1.0, error * _SLACK)
