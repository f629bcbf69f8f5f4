"""The published promise of Thresholdout (LeeNotes, Theorem 3.3): the holdout sizes from which on it applies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from expost.core import share_parameters
from expost.holdout.generalization import OUT_OF_RANGE, Bound, check_amount, check_chance, check_count

if TYPE_CHECKING:
    from expost.holdout.holdout_plan import HoldoutPlan

__all__ = ["approximate_epsilon", "published_bounds", "rows_for_approximate", "rows_for_concentrated", "rows_for_pure"]

_LIMIT = math.sqrt(8) - 1  # (sqrt 32 - 2) / 2: what is left for the second term of advanced composition

_describes_size = share_parameters(
    {
        "max_hits": "int\nThe number B of answers from the holdout.",
        "sigma": "float\nThe noise scale of an answer, in units of the mean.",
        "error": "float\nThe error t of generalisation.",
        "failure_probability": "float\nThe probability beta of a larger one, in (0, 1).",
        "rows": "int\nThe number n of holdout rows.",
        "delta": "float\nIn (0, 1).",
    },
    raises=OUT_OF_RANGE,
)


@_describes_size
def rows_for_pure(max_hits: int, *, sigma: float, error: float, failure_probability: float) -> float:
    """Return the holdout size at which the pure guarantee generalises: n_0 = max{2 B/(sigma t), ln(6/beta)/t^2}.

    LeeNotes, Lemma 3.2(1) with Corollary 2.3.1.

    Returns
    -------
    float
        Rows.

    Examples
    --------
    >>> round(rows_for_pure(10, sigma=0.01, error=0.1, failure_probability=0.05))
    20000
    """
    hits, scale, apart, beta = _check_terms(max_hits, sigma, error, failure_probability)
    return max(2 * hits / (scale * apart), math.log(6 / beta) / apart**2)


@_describes_size
def rows_for_approximate(max_hits: int, *, sigma: float, error: float, failure_probability: float) -> float:
    """Return the holdout size at which the approximate guarantee generalises, all conditions included.

    With delta = (beta/8)^(4/t) and epsilon = t/4 (LeeNotes, Theorem 2.4), the larger of three: 48 ln(8/beta)/t^2; the
    size at which ``approximate_epsilon`` is at most t/4; and the size at which its own condition holds. The source
    prints the second as 32 sqrt(2 B ln(8/beta)) / (t^1.5 sigma) + 16 sqrt(ln 2 B) / (t sigma), where the last root
    must be sqrt(2 ln 2 B), and leaves the other two out.

    Returns
    -------
    float
        Rows.

    Examples
    --------
    >>> round(rows_for_approximate(10, sigma=0.01, error=0.1, failure_probability=0.05))
    1021247
    """
    hits, scale, apart, beta = _check_terms(max_hits, sigma, error, failure_probability)
    log_two_over_delta = math.log(2) + 4 / apart * math.log(8 / beta)
    accurate = 4 / apart * math.sqrt(32 * hits * log_two_over_delta) / scale
    valid = 1 / (scale * math.log1p(_LIMIT * math.sqrt(log_two_over_delta / hits)))
    return max(48 * math.log(8 / beta) / apart**2, accurate, valid)


@_describes_size
def rows_for_concentrated(max_hits: int, *, sigma: float, error: float, failure_probability: float) -> float:
    """Return the holdout size at which the guarantee through zCDP generalises.

    rho = B e0^2 and epsilon = rho + 2 sqrt(rho ln(1/delta)) (BS16, Proposition 1.3). About 2.8 times fewer rows than
    ``rows_for_approximate``.

    Returns
    -------
    float
        Rows.

    Examples
    --------
    >>> round(rows_for_concentrated(10, sigma=0.01, error=0.1, failure_probability=0.05))
    360461
    """
    hits, scale, apart, beta = _check_terms(max_hits, sigma, error, failure_probability)
    log = 4 / apart * math.log(8 / beta)
    # The root rho of rho + 2 sqrt(rho log) = error/4 is (sqrt(log + error/4) - sqrt(log))^2, written without a
    # difference of near numbers.
    root = apart / 4 / (math.sqrt(log + apart / 4) + math.sqrt(log))
    return max(48 * math.log(8 / beta) / apart**2, math.sqrt(hits) / (scale * root))


@_describes_size
def approximate_epsilon(max_hits: int, *, sigma: float, rows: int, delta: float) -> float:
    """Return sqrt(32 B ln(2/delta)) / (sigma n) of Lemma 3.2(2), or infinity where its condition fails.

    The lemma is advanced composition over 2 B steps of e0 = 1/(sigma n), which gives
    sqrt(4 B ln(1/delta)) e0 + 2 B e0 (exp(e0) - 1); the printed form covers it only when
    exp(e0) - 1 <= (sqrt 8 - 1) sqrt(ln(2/delta) / B), a condition the source leaves out.

    Returns
    -------
    float
        Epsilon.

    Examples
    --------
    >>> round(approximate_epsilon(100, sigma=0.01, rows=100_000, delta=1e-6), 4)
    0.2155
    >>> approximate_epsilon(100, sigma=0.01, rows=100, delta=1e-6)
    inf
    """
    step = 1 / (check_amount(sigma, "sigma") * check_count(rows, "rows"))
    hits, log = check_count(max_hits, "max_hits"), math.log(2 / check_chance(delta, "delta"))
    if math.expm1(min(step, 700.0)) > _LIMIT * math.sqrt(log / hits):
        return math.inf
    return math.sqrt(32 * hits * log) * step


def published_bounds(plan: HoldoutPlan) -> list[Bound]:
    """Return the tolerance itself, once for each form of LeeNotes, Theorem 3.3 whose conditions hold."""
    if plan.level.one_sided or plan.level.answer_scale is None:
        return []
    forms = {
        "pure": rows_for_pure,
        "approximate, corrected": rows_for_approximate,
        "through zCDP": rows_for_concentrated,
    }
    sigma, error = float(plan.level.answer_scale), float(plan.tolerance) / 8
    failure = float(plan.failure_probability) / (2 * plan.max_queries)
    return [
        Bound(float(plan.tolerance), f"LeeNotes, Theorem 3.3 ({form})")
        for form, size in forms.items()
        if plan.rows >= size(plan.max_hits, sigma=sigma, error=error, failure_probability=failure)
    ]


def _check_terms(
    max_hits: object, sigma: object, error: object, failure_probability: object
) -> tuple[int, float, float, float]:
    """Check the arguments that the published sizes share."""
    return (
        check_count(max_hits, "max_hits"),
        check_amount(sigma, "sigma"),
        check_amount(error, "error"),
        check_chance(failure_probability, "failure_probability"),
    )
