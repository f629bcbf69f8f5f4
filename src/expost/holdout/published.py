"""The published promise of Thresholdout, with its conditions: when does Theorem 3.3 apply?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from expost.holdout.generalization import Bound
from expost.holdout.typed import amount_of, chance_of, count_of

if TYPE_CHECKING:
    from expost.holdout.plan import HoldoutPlan

__all__ = [
    "approximate_epsilon",
    "published_bounds",
    "rows_for_approximate",
    "rows_for_concentrated",
    "rows_for_pure",
]


def rows_for_pure(max_hits: int, *, sigma: float, error: float, failure_probability: float) -> float:
    """The holdout size at which the pure guarantee generalises: n_0 = max{2 B/(sigma t), ln(6/beta)/t^2}.

    LeeNotes, Lemma 3.2(1) with Corollary 2.3.1.

    >>> round(rows_for_pure(10, sigma=0.01, error=0.1, failure_probability=0.05))
    20000
    """
    hits, scale, apart, beta = _terms(max_hits, sigma, error, failure_probability)
    return max(2 * hits / (scale * apart), math.log(6 / beta) / apart**2)


def rows_for_approximate(max_hits: int, *, sigma: float, error: float, failure_probability: float) -> float:
    """The holdout size at which the approximate guarantee generalises, all conditions included.

    With delta = (beta/8)^(4/t) and epsilon = t/4 (LeeNotes, Theorem 2.4), the larger of three: 48 ln(8/beta)/t^2; the
    size at which ``approximate_epsilon`` is at most t/4; and the size at which its own condition holds. The source
    prints the second as 32 sqrt(2 B ln(8/beta)) / (t^1.5 sigma) + 16 sqrt(ln 2 B) / (t sigma), where the last root
    must be sqrt(2 ln 2 B), and leaves the other two out.

    >>> round(rows_for_approximate(10, sigma=0.01, error=0.1, failure_probability=0.05))
    1021247
    """
    hits, scale, apart, beta = _terms(max_hits, sigma, error, failure_probability)
    log_two_over_delta = math.log(2) + 4 / apart * math.log(8 / beta)
    accurate = 4 / apart * math.sqrt(32 * hits * log_two_over_delta) / scale
    valid = 1 / (scale * math.log1p(_LIMIT * math.sqrt(log_two_over_delta / hits)))
    return max(48 * math.log(8 / beta) / apart**2, accurate, valid)


def approximate_epsilon(max_hits: int, *, sigma: float, rows: int, delta: float) -> float:
    """Lemma 3.2(2): sqrt(32 B ln(2/delta)) / (sigma n), or infinity where its condition fails.

    The lemma is advanced composition over 2 B steps of e0 = 1/(sigma n), which gives
    sqrt(4 B ln(1/delta)) e0 + 2 B e0 (exp(e0) - 1); the printed form covers it only when
    exp(e0) - 1 <= (sqrt 8 - 1) sqrt(ln(2/delta) / B), a condition the source leaves out.

    >>> round(approximate_epsilon(100, sigma=0.01, rows=100_000, delta=1e-6), 4)
    0.2155
    >>> approximate_epsilon(100, sigma=0.01, rows=100, delta=1e-6)
    inf
    """
    step = 1 / (amount_of(sigma, "sigma") * count_of(rows, "rows"))
    hits, log = count_of(max_hits, "max_hits"), math.log(2 / chance_of(delta, "delta"))
    if math.expm1(min(step, 700.0)) > _LIMIT * math.sqrt(log / hits):
        return math.inf
    return math.sqrt(32 * hits * log) * step


_LIMIT = math.sqrt(8) - 1  # (sqrt 32 - 2) / 2: what is left for the second term of advanced composition


def published_bounds(plan: HoldoutPlan) -> list[Bound]:
    """The tolerance itself, once for each form of LeeNotes, Theorem 3.3 whose conditions hold."""
    if plan.level.one_sided or plan.level.answer_scale is None:
        return []
    sigma = float(plan.level.answer_scale)
    error, failure = float(plan.tolerance) / 8, float(plan.failure_probability) / (2 * plan.max_queries)
    sizes = {
        "LeeNotes, Theorem 3.3 (pure)": rows_for_pure(
            plan.max_hits, sigma=sigma, error=error, failure_probability=failure
        ),
        "LeeNotes, Theorem 3.3 (approximate, corrected)": rows_for_approximate(
            plan.max_hits, sigma=sigma, error=error, failure_probability=failure
        ),
        "LeeNotes, Theorem 3.3 (through zCDP)": rows_for_concentrated(
            plan.max_hits, sigma=sigma, error=error, failure_probability=failure
        ),
    }
    return [Bound(float(plan.tolerance), theorem) for theorem, size in sizes.items() if plan.rows >= size]


def rows_for_concentrated(max_hits: int, *, sigma: float, error: float, failure_probability: float) -> float:
    """The same through zCDP: rho = B e0^2, epsilon = rho + 2 sqrt(rho ln(1/delta)) (BS16, Proposition 1.3).

    About 2.8 times fewer rows than ``rows_for_approximate``.

    >>> round(rows_for_concentrated(10, sigma=0.01, error=0.1, failure_probability=0.05))
    360461
    """
    hits, scale, apart, beta = _terms(max_hits, sigma, error, failure_probability)
    log = 4 / apart * math.log(8 / beta)
    # The root rho of rho + 2 sqrt(rho log) = error/4 is (sqrt(log + error/4) - sqrt(log))^2, written without a
    # difference of near numbers.
    root = apart / 4 / (math.sqrt(log + apart / 4) + math.sqrt(log))
    accurate = math.sqrt(hits) / (scale * root)
    return max(48 * math.log(8 / beta) / apart**2, accurate)


def _terms(
    max_hits: object, sigma: object, error: object, failure_probability: object
) -> tuple[int, float, float, float]:
    return (
        count_of(max_hits, "max_hits"),
        amount_of(sigma, "sigma"),
        amount_of(error, "error"),
        chance_of(failure_probability, "failure_probability"),
    )
