"""Before a holdout is opened: how many answers it can carry, at which noise, and what they will promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from expost.core import (
    ApproxGuarantee,
    InvalidRequest,
    PureGuarantee,
    ZeroConcentratedGuarantee,
    explain_arguments,
    share_parameters,
)
from expost.core.rational import floor_decimal, probability, rational
from expost.holdout.generalization import (
    OUT_OF_RANGE,
    TRANSCRIPT_THEOREM,
    Bound,
    check_count,
    generalization_error,
    transcript_error,
    transfer_error,
)
from expost.holdout.holdout_size import approximate_epsilon, published_bounds

__all__ = [
    "GRID",
    "HoldoutPlan",
    "NoiseLevel",
    "Variant",
    "affordable_hits",
    "analysed_level",
    "find_largest",
    "improved_level",
    "plan_holdout",
    "rows_needed",
    "tolerance_reached",
]

Variant = Literal["analysed", "improved"]

GRID = 1 << 20
"""Lattice points between 0 and 1: the values of a question on single rows are rounded to this grid."""

# Rounding of single values (half a lattice unit each on holdout and training rows), of the training total to the
# holdout's lattice, and the lattice unit by which a discrete Laplace tail may exceed the continuous one: each at most
# one unit of the mean.
_ROUNDING = 4 / GRID

_NOISE_SHARE = Fraction(1, 4)
_STEPS_PER_TOLERANCE = 16  # answers from the holdout are rounded to tolerance/16: few values, short transcripts
_MOST_ROWS = 10**15


# Noise


@dataclass(frozen=True, kw_only=True)
class NoiseLevel:
    """Threshold and noise scales of one session, all in units of the mean of a question.

    ``answer_scale`` is None when the answer is the free gap of the threshold test, which costs nothing more.

    >>> analysed_level(tolerance=Fraction(1, 10), failure_probability=0.05, max_queries=100).threshold
    Fraction(3, 40)
    """

    one_sided: bool
    threshold: Fraction
    threshold_scale: Fraction
    query_scale: Fraction
    answer_scale: Fraction | None

    @property
    def hit_epsilon_rows(self) -> Fraction:
        """What one answer from the holdout costs, threshold included, times the number of rows."""
        # One row moves a mean by at most 1/rows. Threshold noise pays that once and the noise of the crossing question
        # twice (DR14, Theorem 3.23), the answer's own noise once (DMNS06, Theorem 1).
        answer = Fraction(0) if self.answer_scale is None else 1 / self.answer_scale
        return 1 / self.threshold_scale + 2 / self.query_scale + answer

    def sample_errors(self, *, max_queries: int, max_hits: int, failure_probability: float) -> tuple[float, float]:
        """Return how far answers from training and from the holdout may be from the holdout's own mean, all at once."""
        # Union bound with equal shares for the thresholds drawn, the questions (two tests each when one-sided) and
        # the answers' own noise; P(|Laplace(b)| > b ln(1/p)) = P(Exponential(b) > b ln(1/p)) = p.
        kinds = 2 if self.answer_scale is None else 3
        tests = 2 * max_queries if self.one_sided else max_queries
        per_threshold = math.log(kinds * max_hits / failure_probability)
        per_query = math.log(kinds * tests / failure_probability)
        b1, b2 = float(self.threshold_scale), float(self.query_scale)
        thresholds, queries = b1 * per_threshold, b2 * per_query
        kept = float(self.threshold) + thresholds + (0.0 if self.one_sided else queries)
        if self.answer_scale is None:
            answers = max(queries - b2 + b1, thresholds - b1 + b2)
        else:
            answers = float(self.answer_scale) * per_threshold
        return kept + _ROUNDING, answers + _ROUNDING


def analysed_level(*, tolerance: Fraction, failure_probability: float, max_queries: int) -> NoiseLevel:
    """Return the constants of the published analysis: T = 3 tolerance/4, sigma = tolerance / (96 ln(4 m / beta)).

    Threshold noise Laplace(2 sigma), comparison noise Laplace(4 sigma), answer noise Laplace(sigma) (LeeNotes,
    Theorem 3.3 with Algorithm 1; DFHPRR15, Theorem 25).
    """
    sigma = _round_scale(float(tolerance) / (96 * math.log(4 * max_queries / failure_probability)))
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
    """Return one-sided noise with the split that costs least, and the gap as a free answer.

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
    unit = float(noise_share * tolerance) / (first + math.sqrt(2) * second)
    threshold_scale, query_scale = _round_scale(unit / first), _round_scale(unit * math.sqrt(2) / second)
    above_margin = _round_scale(float(query_scale) * second**2)
    return NoiseLevel(
        one_sided=True,
        threshold=tolerance / 8 + above_margin,
        threshold_scale=threshold_scale,
        query_scale=query_scale,
        answer_scale=None,
    )


def _round_scale(value: float) -> Fraction:
    """Return a short decimal just below ``value``: noise scales are exact rationals."""
    return floor_decimal(Fraction(value), 6 - math.floor(math.log10(value)))


# Plans


@dataclass(frozen=True, kw_only=True)
class HoldoutPlan:
    """The public terms of a session with a reusable holdout. Use ``plan_holdout`` to make one.

    Parameters
    ----------
    rows : int
        The number of holdout rows.
    tolerance : float
        The largest error of an answer against the population, in (0, 1).
    failure_probability : float
        How often any answer of the session may be farther off, in (0, 1).
    max_queries : int
        The most questions.
    max_hits : int
        The most answers from the holdout.
    variant : {"improved", "analysed"}, default "improved"
        One-sided noise with the gap as a free answer, or the published algorithm with its constants, which carries fewer
        answers within the same epsilon (docs/decisions/0013-improved-holdout-by-default.md).
    level : NoiseLevel
        Threshold and noise scales.
    answer_step : Fraction
        Answers from the holdout are multiples of it.

    Examples
    --------
    >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=1000)
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
        return 1 / self.level.threshold_scale / self.rows

    @property
    def guarantee(self) -> PureGuarantee:
        """The pure guarantee of the whole session (LeeNotes, Lemma 3.2(1))."""
        return PureGuarantee(self.max_hits * self.hit_epsilon)

    @property
    def concentrated(self) -> ZeroConcentratedGuarantee:
        """The zCDP guarantee of the session."""
        # Threshold tests and answers are pure mechanisms, epsilon^2/2 each (BS16, Proposition 1.4 and Lemma 2.3).
        answer = Fraction(0) if self.level.answer_scale is None else 1 / (self.level.answer_scale * self.rows)
        test = self.hit_epsilon - answer
        return ZeroConcentratedGuarantee(self.max_hits * (test**2 + answer**2) / 2)

    def approximate(self, delta: float | Fraction) -> ApproxGuarantee:
        """Return the smallest known (epsilon, delta) guarantee of the session.

        The least of the pure epsilon; Lemma 3.2(2) of the notes, where its condition holds (analysed variant only); and
        rho + 2 sqrt(rho ln(1/delta)) of ``concentrated`` (BS16, Proposition 1.3), rounded up.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Examples
        --------
        >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=1000)
        >>> float(plan.approximate(1e-6).epsilon) < float(plan.guarantee.epsilon)
        True
        """
        share = probability(delta, "delta")
        rho, log = float(self.concentrated.rho), math.log(1 / float(share))
        candidates = [float(self.guarantee.epsilon), rho + 2 * math.sqrt(rho * log)]
        if self.level.answer_scale is not None:
            sigma = float(self.level.answer_scale)
            candidates.append(approximate_epsilon(self.max_hits, sigma=sigma, rows=self.rows, delta=float(share)))
        # Floating-point error is far below one part in 10^9.
        return ApproxGuarantee(min(Fraction(min(candidates) * (1 + 1e-9)), self.guarantee.epsilon), share)

    @property
    def alphabet(self) -> int:
        """The number of different answers from the holdout."""
        return math.floor(1 / self.answer_step) + 1

    @cached_property
    def certificates(self) -> tuple[Bound, ...]:
        """What each known theorem promises for this plan, tightest first."""
        beta, (training, holdout) = float(self.failure_probability), self._half_errors
        sample = max(training, holdout)
        per_query = self.failure_probability / (2 * self.max_queries)
        found = [Bound(1.0, "answers lie in [0, 1]"), *published_bounds(self)]
        for guarantee in (self.guarantee, self.concentrated):
            chosen = generalization_error(guarantee, self.rows, failure_probability=per_query)
            found.append(Bound(min(1.0, sample + chosen.error), chosen.theorem))
            fine = beta * float(self.tolerance) / 50
            exact = max(self._sample_errors(fine))
            found.append(transfer_error(guarantee, sample_error=exact, sample_failure=fine, failure_probability=beta))
        # The number of transcripts peaks at this many answers from the holdout.
        most = min(self.max_hits - 1, math.floor(self.alphabet * self.max_queries / (1 + self.alphabet)))
        counted = self._transcript_bound(self.max_queries - 1, most)
        found.append(Bound(min(1.0, sample + counted.error), TRANSCRIPT_THEOREM))
        return tuple(sorted(found))

    @property
    def promise(self) -> Bound:
        """The tightest certificate: it bounds the error of every answer at once, against the population."""
        return self.certificates[0]

    def bound_in_force(self, question: int, hits: int, *, from_holdout: bool) -> Bound:
        """Return what one answer promises, from public counts alone.

        Only the plan's own certificate is used, so that its failure probability is spent once.

        Parameters
        ----------
        question : int
            The number of the question, from 0.
        hits : int
            How many of the earlier questions were answered from the holdout.
        from_holdout : bool
            Whether this one is.
        """
        if self.promise.theorem != TRANSCRIPT_THEOREM:
            return self.promise
        training, holdout = self._half_errors
        error = self._transcript_bound(question, hits).error + (holdout if from_holdout else training)
        return Bound(min(1.0, error), TRANSCRIPT_THEOREM)

    @cached_property
    def _half_errors(self) -> tuple[float, float]:
        return self._sample_errors(float(self.failure_probability) / 2)

    def _sample_errors(self, failure_probability: float) -> tuple[float, float]:
        """Return how far answers from training and holdout may be from the holdout's mean, rounding included."""
        training, holdout = self.level.sample_errors(
            max_queries=self.max_queries, max_hits=self.max_hits, failure_probability=failure_probability
        )
        return training, holdout + float(self.answer_step) / 2

    def _transcript_bound(self, question: int, hits: int) -> Bound:
        """Return the description-length bound with half of the failure probability."""
        return transcript_error(
            self.rows,
            question=question,
            hits=min(hits, question),
            alphabet=self.alphabet,
            max_questions=self.max_queries,
            max_hits=self.max_hits,
            failure_probability=float(self.failure_probability) / 2,
        )


@explain_arguments
@share_parameters(HoldoutPlan)
def plan_holdout(
    rows: int,
    *,
    tolerance: float | Fraction,
    failure_probability: float | Fraction,
    max_queries: int,
    max_hits: int | None = None,
    variant: Variant = "improved",
    noise_share: Fraction = _NOISE_SHARE,
) -> HoldoutPlan:
    """Plan a session with the most answers from the holdout that the tolerance allows, or with exactly ``max_hits``.

    Parameters
    ----------
    max_hits : int, optional
        The most answers from the holdout. Default: as many as can be promised.
    noise_share : Fraction, default 1/4
        The part of the tolerance for noise (improved variant only).

    Returns
    -------
    HoldoutPlan

    Raises
    ------
    InvalidRequest
        If not a single answer, or not ``max_hits`` of them, can be promised.

    Examples
    --------
    >>> plan_holdout(10_000, tolerance=0.02, failure_probability=0.05, max_queries=1000)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a holdout that carries at least 1 answer at this tolerance, got ...
    """
    draft = _plan_drafter(rows, tolerance, failure_probability, max_queries, variant, noise_share)
    if max_hits is None:
        hits = find_largest(lambda count: _keeps_tolerance(draft(count)), 1, max_queries)
    else:
        hits = min(check_count(max_hits, "max_hits"), max_queries)
        hits = hits if _keeps_tolerance(draft(hits)) else 0
    if hits == 0:
        asked = 1 if max_hits is None else max_hits
        raise InvalidRequest(
            f"Expected a holdout that carries at least {asked} answer{'s' if asked > 1 else ''} at this tolerance",
            got=f"{rows} rows",
            do="Raise the tolerance (see tolerance_reached), or bring more rows (see rows_needed)",
        )
    return draft(hits)


@explain_arguments
@share_parameters(HoldoutPlan, raises=OUT_OF_RANGE)
def affordable_hits(
    rows: int,
    *,
    tolerance: float | Fraction,
    failure_probability: float | Fraction,
    max_queries: int,
    variant: Variant = "improved",
) -> int:
    """Return how many answers from the holdout can be promised; 0 if none.

    Returns
    -------
    int

    Examples
    --------
    >>> terms = {"tolerance": 0.1, "failure_probability": 0.05, "max_queries": 1000}
    >>> affordable_hits(100_000, **terms), affordable_hits(100_000, **terms, variant="analysed")
    (105, 6)
    """
    draft = _plan_drafter(rows, tolerance, failure_probability, max_queries, variant, _NOISE_SHARE)
    return find_largest(lambda count: _keeps_tolerance(draft(count)), 1, max_queries)


@explain_arguments
@share_parameters(HoldoutPlan, raises=OUT_OF_RANGE)
def rows_needed(
    max_hits: int,
    *,
    tolerance: float | Fraction,
    failure_probability: float | Fraction,
    max_queries: int,
    variant: Variant = "improved",
) -> int:
    """Return the smallest holdout that carries so many answers.

    Returns
    -------
    int
        Rows.

    Examples
    --------
    >>> rows_needed(10, tolerance=0.1, failure_probability=0.05, max_queries=1000)
    12224
    """
    hits = check_count(max_hits, "max_hits")

    def falls_short(rows: int) -> bool:
        draft = _plan_drafter(rows, tolerance, failure_probability, max_queries, variant, _NOISE_SHARE)
        return not _keeps_tolerance(draft(hits))

    return find_largest(falls_short, 1, _MOST_ROWS) + 1


@explain_arguments
@share_parameters(HoldoutPlan, raises=OUT_OF_RANGE)
def tolerance_reached(
    rows: int, *, max_hits: int, failure_probability: float | Fraction, max_queries: int, variant: Variant = "improved"
) -> float:
    """Return the smallest tolerance at which a holdout carries so many answers; 1 if none.

    Returns
    -------
    float
        To three digits, rounded up.

    Examples
    --------
    >>> tolerance_reached(10_000, max_hits=10, failure_probability=0.05, max_queries=1000)
    0.111
    """
    hits = check_count(max_hits, "max_hits")

    def falls_short(thousandths: int) -> bool:
        tolerance = Fraction(thousandths, 1000)
        draft = _plan_drafter(rows, tolerance, failure_probability, max_queries, variant, _NOISE_SHARE)
        return not _keeps_tolerance(draft(hits))

    return min(1.0, (find_largest(falls_short, 1, 999) + 1) / 1000)


def _plan_drafter(
    rows: object, tolerance: object, failure_probability: object, max_queries: object, variant: Variant, share: Fraction
) -> Callable[[int], HoldoutPlan]:
    """Check what the caller typed and return the plan as a function of the number of answers from the holdout."""
    n, m = check_count(rows, "rows"), check_count(max_queries, "max_queries")
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
        return HoldoutPlan(
            rows=n,
            tolerance=tau,
            failure_probability=beta,
            max_queries=m,
            max_hits=hits,
            variant=variant,
            level=level,
            answer_step=Fraction(1, math.ceil(_STEPS_PER_TOLERANCE / tau)),
        )

    return draft


def _keeps_tolerance(plan: HoldoutPlan) -> bool:
    return plan.promise.error <= plan.tolerance


def find_largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number in the range for which a monotone statement holds; low - 1 if there is none.

    >>> find_largest(lambda number: number**2 < 50, 1, 1000)
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
