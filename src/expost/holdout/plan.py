"""Before a holdout is opened: how many answers it can carry, at which noise, and what they will promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from expost.core.errors import InvalidRequest
from expost.core.guarantee import ApproxGuarantee, PureGuarantee, ZeroConcentratedGuarantee
from expost.core.rational import probability, rational
from expost.holdout.generalization import Bound, generalization_error, transfer_error
from expost.holdout.noise_level import NoiseLevel, analysed_level, improved_level
from expost.holdout.published import approximate_epsilon, published_bounds
from expost.holdout.transcript import THEOREM as TRANSCRIPT
from expost.holdout.transcript import transcript_error
from expost.holdout.typed import count_of

__all__ = ["HoldoutPlan", "Variant", "affordable_hits", "largest", "plan_holdout", "rows_needed", "tolerance_reached"]

Variant = Literal["analysed", "improved"]

_NOISE_SHARE = Fraction(1, 4)
_STEPS_PER_TOLERANCE = 16  # answers from the holdout are rounded to tolerance/16: few values, short transcripts
_MOST_ROWS = 10**15


@dataclass(frozen=True, kw_only=True)
class HoldoutPlan:
    """The public terms of a session with a reusable holdout.

    ``promise`` bounds the error of every answer at once, against the population, with probability
    ``1 - failure_probability``, and names the statement it rests on.

    >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=1000, variant="improved")
    >>> plan.max_hits, plan.promise.error <= 0.1
    (47, True)
    """

    rows: int
    tolerance: Fraction
    failure_probability: Fraction
    max_queries: int
    max_hits: int
    variant: Variant
    level: NoiseLevel
    answer_step: Fraction

    @property
    def hit_epsilon(self) -> Fraction:
        """The pure privacy cost of one answer from the holdout, threshold included."""
        return self.level.hit_epsilon_rows / self.rows

    @property
    def threshold_epsilon(self) -> Fraction:
        """The pure privacy cost of a threshold that questions were compared with and none crossed."""
        return self.level.threshold_epsilon_rows / self.rows

    @property
    def guarantee(self) -> PureGuarantee:
        """The pure guarantee of the whole session (LeeNotes, Lemma 3.2(1))."""
        return PureGuarantee(self.max_hits * self.hit_epsilon)

    @property
    def concentrated(self) -> ZeroConcentratedGuarantee:
        """The zCDP guarantee of the session.

        Threshold tests and answers are pure mechanisms, epsilon^2/2 each (BS16, Proposition 1.4 and Lemma 2.3).
        """
        answer = Fraction(0) if self.level.answer_scale is None else 1 / (self.level.answer_scale * self.rows)
        test = self.hit_epsilon - answer
        return ZeroConcentratedGuarantee(self.max_hits * (test**2 + answer**2) / 2)

    def approximate(self, delta: object) -> ApproxGuarantee:
        """The smallest (epsilon, delta) guarantee of the session that is known.

        The least of the pure epsilon; Lemma 3.2(2) of the notes, where its condition holds (analysed variant only); and
        rho + 2 sqrt(rho ln(1/delta)) of ``concentrated`` (BS16, Proposition 1.3), rounded up.

        >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=1000, variant="improved")
        >>> float(plan.approximate(1e-6).epsilon) < float(plan.guarantee.epsilon)
        True
        """
        share = probability(delta, "delta")
        rho, log = float(self.concentrated.rho), math.log(1 / float(share))
        ways = [float(self.guarantee.epsilon), rho + 2 * math.sqrt(rho * log)]
        if self.level.answer_scale is not None:
            sigma = float(self.level.answer_scale)
            ways.append(approximate_epsilon(self.max_hits, sigma=sigma, rows=self.rows, delta=float(share)))
        # Floating-point error is far below one part in 10^9.
        return ApproxGuarantee(min(Fraction(min(ways) * (1 + 1e-9)), self.guarantee.epsilon), share)

    @property
    def alphabet(self) -> int:
        """How many different answers from the holdout there are."""
        return math.floor(1 / self.answer_step) + 1

    @cached_property
    def certificates(self) -> tuple[Bound, ...]:
        """What each known theorem promises for this plan, tightest first."""
        return tuple(sorted(_certificates(self)))

    @property
    def promise(self) -> Bound:
        """The tightest of the certificates."""
        return self.certificates[0]

    def bound_in_force(self, question: int, hits: int, *, from_holdout: bool) -> Bound:
        """What one answer promises, known from public counts alone.

        Only the plan's own certificate is used, so that its failure probability is spent once.
        """
        if self.promise.theorem != TRANSCRIPT:
            return self.promise
        training, holdout = self._half_errors
        error = _transcript(self, question, hits).error + (holdout if from_holdout else training)
        return Bound(min(1.0, error), TRANSCRIPT)

    @cached_property
    def _half_errors(self) -> tuple[float, float]:
        return _sample_errors(self, float(self.failure_probability) / 2)


def plan_holdout(
    rows: int,
    *,
    tolerance: object,
    failure_probability: object,
    max_queries: int,
    max_hits: int | None = None,
    variant: Variant = "analysed",
    noise_share: Fraction = _NOISE_SHARE,
) -> HoldoutPlan:
    """The plan with the most answers from the holdout that the tolerance allows, or with exactly ``max_hits``.

    Refuses when not a single answer, or not ``max_hits`` of them, can be promised.

    >>> plan_holdout(10_000, tolerance=0.02, failure_probability=0.05, max_queries=1000)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a holdout that carries at least 1 answer at this tolerance, got ...
    """
    draft = _drafter(rows, tolerance, failure_probability, max_queries, variant, noise_share)
    if max_hits is None:
        hits = largest(lambda count: _reached(draft(count)), 1, max_queries)
    else:
        hits = min(count_of(max_hits, "max_hits"), max_queries)
        hits = hits if _reached(draft(hits)) else 0
    if hits == 0:
        asked = 1 if max_hits is None else max_hits
        raise InvalidRequest(
            f"Expected a holdout that carries at least {asked} answer{'s' if asked > 1 else ''} at this tolerance",
            got=f"{rows} rows",
            do="Raise the tolerance (see tolerance_reached), or bring more rows (see rows_needed)",
        )
    return draft(hits)


def affordable_hits(
    rows: int, *, tolerance: object, failure_probability: object, max_queries: int, variant: Variant = "analysed"
) -> int:
    """How many answers from the holdout can be promised; 0 if none.

    >>> affordable_hits(1_000_000, tolerance=0.1, failure_probability=0.05, max_queries=1000)
    84
    """
    draft = _drafter(rows, tolerance, failure_probability, max_queries, variant, _NOISE_SHARE)
    return largest(lambda count: _reached(draft(count)), 1, max_queries)


def rows_needed(
    max_hits: int, *, tolerance: object, failure_probability: object, max_queries: int, variant: Variant = "analysed"
) -> int:
    """The smallest holdout that carries so many answers.

    >>> rows_needed(10, tolerance=0.1, failure_probability=0.05, max_queries=1000, variant="improved")
    12224
    """
    hits = count_of(max_hits, "max_hits")

    def falls_short(rows: int) -> bool:
        draft = _drafter(rows, tolerance, failure_probability, max_queries, variant, _NOISE_SHARE)
        return not _reached(draft(hits))

    return largest(falls_short, 1, _MOST_ROWS) + 1


def tolerance_reached(
    rows: int, *, max_hits: int, failure_probability: object, max_queries: int, variant: Variant = "analysed"
) -> float:
    """The smallest tolerance (to three digits, rounded up) at which a holdout carries so many answers; 1 if none.

    >>> tolerance_reached(10_000, max_hits=10, failure_probability=0.05, max_queries=1000, variant="improved")
    0.111
    """

    def falls_short(thousandths: int) -> bool:
        tolerance = Fraction(thousandths, 1000)
        draft = _drafter(rows, tolerance, failure_probability, max_queries, variant, _NOISE_SHARE)
        return not _reached(draft(count_of(max_hits, "max_hits")))

    return min(1.0, (largest(falls_short, 1, 999) + 1) / 1000)


def _drafter(
    rows: object, tolerance: object, failure_probability: object, max_queries: object, variant: Variant, share: Fraction
) -> Callable[[int], HoldoutPlan]:
    """Check what the caller typed; give the plan as a function of the number of answers from the holdout."""
    n, m = count_of(rows, "rows"), count_of(max_queries, "max_queries")
    tau = rational(tolerance, "tolerance")
    beta, part = probability(failure_probability, "failure_probability"), probability(share, "noise_share")
    if tau >= 1:
        raise InvalidRequest("Expected tolerance below 1", got=tolerance, do="Answers lie in [0, 1]")
    if not isinstance(variant, str) or variant not in ("analysed", "improved"):
        raise InvalidRequest("Expected variant to be 'analysed' or 'improved'", got=variant, do="Name one of them")

    def draft(hits: int) -> HoldoutPlan:
        if variant == "analysed":
            level = analysed_level(tolerance=tau, failure_probability=float(beta), max_queries=m)
        else:
            level = improved_level(
                tolerance=tau, failure_probability=float(beta), max_queries=m, max_hits=hits, noise_share=part
            )
        step = Fraction(1, math.ceil(_STEPS_PER_TOLERANCE / tau))
        return HoldoutPlan(
            rows=n,
            tolerance=tau,
            failure_probability=beta,
            max_queries=m,
            max_hits=hits,
            variant=variant,
            level=level,
            answer_step=step,
        )

    return draft


def _reached(plan: HoldoutPlan) -> bool:
    return plan.promise.error <= plan.tolerance


def _certificates(plan: HoldoutPlan) -> list[Bound]:
    beta = float(plan.failure_probability)
    training, holdout = plan._half_errors
    sample = max(training, holdout)
    per_query = plan.failure_probability / (2 * plan.max_queries)
    found = [Bound(1.0, "answers lie in [0, 1]"), *published_bounds(plan)]
    for guarantee in (plan.guarantee, plan.concentrated):
        chosen = generalization_error(guarantee, plan.rows, failure_probability=per_query)
        found.append(Bound(min(1.0, sample + chosen.error), chosen.theorem))
        fine = beta * float(plan.tolerance) / 50
        exact = max(_sample_errors(plan, fine))
        found.append(transfer_error(guarantee, sample_error=exact, sample_failure=fine, failure_probability=beta))
    most = min(plan.max_hits - 1, math.floor(plan.alphabet * plan.max_queries / (1 + plan.alphabet)))
    found.append(Bound(min(1.0, sample + _transcript(plan, plan.max_queries - 1, most).error), TRANSCRIPT))
    return found


def _sample_errors(plan: HoldoutPlan, failure_probability: float) -> tuple[float, float]:
    training, holdout = plan.level.sample_errors(
        max_queries=plan.max_queries, max_hits=plan.max_hits, failure_probability=failure_probability
    )
    return training, holdout + float(plan.answer_step) / 2


def _transcript(plan: HoldoutPlan, question: int, hits: int) -> Bound:
    return transcript_error(
        plan.rows,
        question=question,
        hits=min(hits, question),
        alphabet=plan.alphabet,
        max_questions=plan.max_queries,
        max_hits=plan.max_hits,
        failure_probability=float(plan.failure_probability) / 2,
    )


def largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number in the range for which a statement holds that holds for all smaller ones; low - 1 if none.

    >>> largest(lambda number: number**2 < 50, 1, 1000)
    7
    """
    if not holds(low):
        return low - 1
    step = low
    while step < high and holds(min(2 * step, high)):
        step = min(2 * step, high)
    below, above = step, min(2 * step, high)
    while below < above:
        middle = (below + above + 1) // 2
        below, above = (middle, above) if holds(middle) else (below, middle - 1)
    return below
