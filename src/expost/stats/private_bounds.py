"""Bounds of a column that are not public: found privately, alone or before another statistic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.core import (
    BudgetExceeded,
    HoldStages,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    StagedPlan,
)
from expost.core.hold_stages import FIRST_STAGE
from expost.core.rational import probability, rational
from expost.data import Dataset, Expression
from expost.data.axis import LogBins
from expost.data.sealed_form import CountForm
from expost.data.tally import Tally
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.parameter import check_level
from expost.stats.gradual_release import draw_bounding_secret
from expost.stats.query_terms import QueryPlan, describe_plan, statistic
from expost.stats.table_release import AnswerRelease

if TYPE_CHECKING:
    from expost.stats.column_statistic import ColumnQuery

__all__ = ["ApproximateBounds", "PrivatelyBounded", "bin_threshold", "outer_bounds"]


def bin_threshold(success_probability: float, scale: float, bins: int) -> int:
    """Return the smallest t such that noise alone lifts none of ``bins`` empty bins above t, with this probability.

    The bins' noises are independent and P(noise > t) = a^(t+1) / (1 + a), a = exp(-1 / scale), so the condition is
    (1 - P(noise > t))^bins >= c; for continuous noise this is scale * ln(1 / (2 (1 - c^(1/bins)))) with *all* bins in
    the exponent and the factor 2 (the slide this statistic comes from has neither, and a wrong sign).

    >>> bin_threshold(0.9, 1.0, 8)
    4
    """
    allowed = -math.expm1(math.log(success_probability) / bins)
    tail = math.log(1 / (allowed * (1 + math.exp(-1 / scale))))
    return max(math.ceil(scale * tail * (1 + 1e-12)) - 1, 0)


def outer_bounds(noisy: Any, threshold: int, axis: LogBins) -> tuple[float, float] | None:
    """Return the outer ends of the outermost bins whose noisy counts exceed the threshold, or None.

    >>> outer_bounds([0, 0, 0, 50], 10, LogBins(Expression(), 1.0, 2))
    (1.0, 2.0)
    """
    above = np.flatnonzero(np.asarray(noisy) > threshold)
    if not above.size:
        return None
    ends = np.array(axis.labels, dtype=float)
    first, last = int(above[0]), int(above[-1])
    # The inner end of the first positive bin is zero, of a later one the end of the bin before it.
    low = ends[first] if first < axis.count else (0.0 if first == axis.count else ends[first - 1])
    high = ends[last] if last >= axis.count else (0.0 if last == axis.count - 1 else ends[last + 1])
    return float(low), float(high)


@statistic
class ApproximateBounds:
    """Bounds for a column whose range is unknown: rough (a factor 2), and paid for.

    Values in thin outer bins may be cut off.

    Guarantee: pure DP, known before the run.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all bins together.
    Accuracy: with the asked confidence no bound lies beyond the values' own bins.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: WZLDSG20, Section 4 (approximate bounds; threshold corrected, see ``bin_threshold``).

    Parameters
    ----------
    column : str or Expression
        The numeric column.
    epsilon : float
        The privacy level.
    confidence : float, default 0.95
        The probability that no *empty* bin is mistaken for a filled one.
    smallest, largest : float, default 1 and 2**40
        The range of sizes to search, in the column's units. Do not read it off the data.
    where : str or Expression, optional
        Keep only the rows for which this holds, such as ``"age >= 65"``.

    Raises
    ------
    InvalidRequest
        If the arguments do not fit together; nothing is spent.

    Examples
    --------
    >>> ApproximateBounds("income", epsilon=0.1).question
    'approximate bounds of income'
    """

    column: str | Expression
    epsilon: Any = field(kw_only=True)
    confidence: Any = field(default=0.95, kw_only=True)
    smallest: Any = field(default=1.0, kw_only=True)
    largest: Any = field(default=2.0**40, kw_only=True)
    where: Expression | str | None = field(default=None, kw_only=True)
    bin_count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))
        object.__setattr__(self, "confidence", probability(self.confidence, "confidence"))
        low, high = rational(self.smallest, "smallest"), rational(self.largest, "largest")
        if low >= high:
            raise InvalidRequest(
                "Expected smallest below largest", got=self.smallest, do="Pass smallest=1, largest=1e9"
            )
        object.__setattr__(self, "smallest", low)
        object.__setattr__(self, "bin_count", math.ceil(math.log2(high / low)) + 1)

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return f"approximate bounds of {self.column}" + ("" if self.where is None else f" where {self.where}")

    @describe_plan
    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> BoundsPlan:
        """Fit the query to a dataset's public description. Reads no rows. Bounds are searched again each time."""
        expression = dataset.expression(self.column)
        axis = LogBins(expression, float(self.smallest), self.bin_count)
        tally = dataset.tally(axes=(axis,), where=dataset.condition(self.where))
        dataset.clamp(expression, (0, 1))  # raises for a column that is not numeric
        check_level(self.epsilon, dataset.sensitivity(CountForm(), tally).amount)
        return BoundsPlan(self, tally, axis)


@dataclass(frozen=True)
class BoundsPlan(QueryPlan):
    """How approximate bounds are found: noisy counts of doubling bins against a threshold."""

    query: ApproximateBounds
    tally: Tally
    axis: LogBins

    @property
    def worst_case(self) -> Loss:
        """Return the price."""
        return PureLoss(self.query.epsilon)

    def measure(self, dataset: Dataset) -> Sealed:
        """Return the exact counts of the bins, sealed."""
        return dataset.measure_total(CountForm(), self.tally, secret=draw_bounding_secret())

    def climb(self, sealed: Sealed, bits: BitSource | None = None) -> Release[tuple[float, float] | None]:
        """Return the bounds, or None marked as not met if no bin stands out."""
        level, confidence = self.query.epsilon, float(self.query.confidence)
        noisy = DiscreteLaplacePath(sealed, Ladder((level,)), bits=bits).at(0)
        threshold = bin_threshold(confidence, float(sealed.sensitivity.amount / level), len(noisy))
        found = outer_bounds(noisy, threshold, self.axis)
        receipt = Receipt(
            question=self.question,
            method="doubling bins above a threshold, discrete Laplace",
            promise=PureGuarantee(level),
            bill=PureLoss(level),
            adjacency=sealed.sensitivity.adjacency,
            unit=sealed.sensitivity.unit,
            outcome=Outcome.NOT_MET if found is None else Outcome.FIXED,
            terms={"bins": len(noisy), "threshold": threshold, "confidence": confidence},
            citations=("WZLDSG20, Section 4",),
        )
        return AnswerRelease(found, receipt)


# A statistic with private bounds -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PrivatelyBounded:
    """A statistic with ``bounds="private"``: approximate bounds first, then the statistic with them.

    ``bounds_share`` of the epsilon or cap is spent on the bounds, the rest is left for the statistic; both are on the
    receipt. The bounds are powers of two times ``smallest``, so they may be twice as wide as the data.

    Guarantee: pure ex-post DP; the sum of both stages, known only after the run and at most epsilon or ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: that of each stage; the second is measured with the bounds that the first has released.
    Accuracy: that of the statistic, for values clipped to the bounds that were found.
    Numerics: that of each stage.
    Reference: DR14, Theorem 3.16 (adaptive composition); WZLDSG20, Section 4 (approximate bounds).

    Parameters
    ----------
    query : ColumnQuery
        The statistic, with ``bounds="private"``.

    Raises
    ------
    InvalidRequest
        If the arguments do not fit together; nothing is spent.

    Examples
    --------
    >>> from expost.stats import Mean
    >>> PrivatelyBounded(Mean("income", bounds="private", epsilon=1)).question
    'mean of income with private bounds (for 10 % of epsilon)'
    """

    query: ColumnQuery
    bounds: ApproximateBounds = field(init=False)
    total: Fraction = field(init=False)

    def __post_init__(self) -> None:
        query = self.query
        level = query.epsilon if query.epsilon is not None else query.max_epsilon
        if level is None:
            raise InvalidRequest("Expected epsilon or max_epsilon for private bounds", do="Pass max_epsilon=")
        object.__setattr__(self, "total", rational(level, "epsilon"))
        part = self.total * probability(query.bounds_share, "bounds_share")
        sizes = {"smallest": query.smallest, "largest": query.largest}
        bounds = ApproximateBounds(query.column, epsilon=part, where=query.where, **sizes)
        object.__setattr__(self, "bounds", bounds)

    @property
    def question(self) -> str:
        """Return the question in public words."""
        share = float(100 * self.bounds.epsilon / self.total)
        return f"{self._query_with((0, 1)).question} with private bounds (for {share:.4g} % of epsilon)"

    def _query_with(self, bounds: tuple[float, float]) -> ColumnQuery:
        """Return the statistic with public bounds and what is left of the epsilon or cap."""
        rest = self.total - self.bounds.epsilon
        if self.query.epsilon is not None:
            return replace(self.query, bounds=bounds, epsilon=rest)
        return replace(self.query, bounds=bounds, max_epsilon=rest)

    @describe_plan
    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> BoundsFirstPlan:
        """Plan the bounds, and check that the statistic fits the table and its cap with the narrowest bounds."""
        plan = self.bounds.plan(dataset)
        self._query_with((0, self.query.smallest)).plan(dataset)
        return BoundsFirstPlan(self, plan)


@dataclass(frozen=True)
class BoundsFirstPlan:
    """How a statistic with private bounds is answered: the bounds, then the statistic with them."""

    stages: PrivatelyBounded
    bounds_plan: BoundsPlan
    held: HoldStages | None = None

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return self.stages.question

    @property
    def worst_case(self) -> Loss:
        """Return all of the epsilon or cap."""
        return PureLoss(self.stages.total)

    @property
    def first_stage(self) -> Fraction | None:
        """Return what is held at the start of a climb: the bounds and the first stage of the statistic."""
        found = self.stages.bounds.epsilon
        return None if self.stages.query.epsilon is not None else found + (self.stages.total - found) * FIRST_STAGE

    def in_stages(self, stages: HoldStages) -> BoundsFirstPlan:
        """Return the plan that reserves the rungs of the statistic as it climbs."""
        return replace(self, held=stages)

    def measure(self, dataset: Dataset) -> tuple[Sealed, Dataset]:
        """Return the sealed bins, and the dataset for the second stage."""
        return self.bounds_plan.measure(dataset), dataset

    def climb(self, sealed: tuple[Sealed, Dataset], bits: BitSource | None = None) -> Release[Any]:
        """Release the bounds, then the statistic with them."""
        (bins, dataset), promise = sealed, PureGuarantee(self.stages.total)
        found = self.bounds_plan.climb(bins, bits)
        failed = replace(found.receipt, question=self.question, promise=promise, outcome=Outcome.NOT_MET)
        if found.value is None or found.value[0] >= found.value[1]:
            return AnswerRelease(None, failed)
        try:
            plan = self.stages._query_with(found.value).plan(dataset)
        except (BudgetExceeded, InvalidRequest):
            # The price of the target, and which noise is representable, depend on the bounds, which were paid for: a
            # missed target, not an error.
            return AnswerRelease(None, failed)
        if self.held is not None:
            stages = self.held.after(self.bounds_plan.query.epsilon)
            needed = plan.worst_case.amounts()["epsilon"]
            if isinstance(plan, StagedPlan) and plan.first_stage is not None:
                needed, plan = plan.first_stage, plan.in_stages(stages)
            if stages.held_after(needed) < needed:
                return AnswerRelease(None, failed)
        answer = plan.climb(plan.measure(dataset), bits)
        parts = {"bounds": self.bounds_plan.query.epsilon, "question": answer.receipt.bill.amounts()["epsilon"]}
        how = {name: found.receipt.terms[name] for name in ("bins", "threshold")}
        receipt = replace(
            answer.receipt,
            question=self.question,
            promise=promise,
            bill=PureLoss(sum(parts.values(), Fraction(0))),
            terms={**answer.receipt.terms, "bounds found": how},
            breakdown=parts,
            citations=(*answer.receipt.citations, *found.receipt.citations),
        )
        return replace(answer, receipt=receipt)
