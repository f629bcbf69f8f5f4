"""Counts and sums under Gaussian noise, where an account has a price for it and it leaves more of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from expost.accounting.concentrated import pure_to_zcdp
from expost.accuracy.gaussian_interval import gaussian_radius, rho_for_radius
from expost.accuracy.interval import shared_level
from expost.core import (
    BudgetExceeded,
    GaussianLoss,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    PlanContext,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    ZeroConcentratedLoss,
)
from expost.core.rational import round_up
from expost.data import Dataset
from expost.noise import BitSource
from expost.noise.gaussian_stream import SMOOTHING
from expost.noise.parameter import check_gaussian_ladder
from expost.stats.gradual_release import ClimbResult, GradualRelease, ReleaseCache, draw_bounding_secret
from expost.stats.query_terms import QueryPlan
from expost.stats.reader import TotalReader

if TYPE_CHECKING:
    from expost.stats.gradual_plan import Design, GradualQuery

__all__ = ["NOISES", "GaussianPlan", "leaves_more"]

NOISES = ("auto", "laplace", "gaussian")
"""What ``noise=`` may be."""

_KEPT = "/gaussian"  # suffix of the release under Gaussian noise, whose levels are in rho
_LEFT_OUT = Fraction(
    1, 10**11
)  # relative: far above the lattice's part of a Gaussian price (docs/proofs/small-terms.md)


@dataclass(frozen=True)
class GaussianPlan(QueryPlan):
    """How a count or a sum will be released under discrete Gaussian noise, within an absolute error.

    ``price`` is the rho of all releases together, ``paid`` that of the releases that are continued. The rhos of independent
    releases add up, so a refinement pays the difference in every currency.

    Guarantee: rho-zCDP, known before the run; in an account of Gaussian DP, mu-GDP.
    Adjacency: the dataset's.
    Sensitivity: L2, over all cells together (``Dataset.length``).
    Accuracy: the error asked for, of all cells at once, by the tail of ``gaussian_tail``.
    Numerics: exact integers and exact sampling; prices are rounded up.
    Reference: CKS20, Theorem 4 (mechanism); BS16, Lemma 2.3 (sum); docs/proofs/gaussian-statistics.md (L2, intervals).
    """

    query: GradualQuery
    design: Design
    sensitivity: Sensitivity
    failure_probability: Fraction
    price: Fraction
    paid: Fraction
    cache: ReleaseCache | None
    key: str
    continued: GradualRelease | None
    answer: ClimbResult | None
    gaussian_terms: bool
    comparison: str = ""
    climbs = False

    @classmethod
    def offer(
        cls, query: GradualQuery, design: Design, dataset: Dataset, context: PlanContext, failure: Fraction, name: str
    ) -> GaussianPlan:
        """Plan a query whose error is linear in the noise. ``name`` is that of its answers in a release."""
        sensitivity = dataset.length(design.form, design.tally, once=design.once)
        cache, key, target = context.released, design.cache_key(dataset) + _KEPT, query.accuracy.target
        continued = None if cache is None else cache.find_release(key)
        answer = None
        if continued is not None:
            answer = continued.find_answer(name, query.accuracy.failure_probability, epsilon=None, target=target)
        radius = query._lattice_radius(design)
        if radius < 1:
            continued = None  # weighted means of integers are no integers: no refinement makes them exact
        level = shared_level(failure, design.cells)
        earlier = () if continued is None or continued.path is None else continued.path.ladder.rungs
        paid = earlier[-1] if earlier else Fraction(0)
        price = rho_for_radius(radius, level, sensitivity.square, earlier) if answer is None else paid
        terms = "gdp" in context.definitions
        plan = cls(query, design, sensitivity, failure, price, paid, cache, key, continued, answer, terms)
        if plan.due:
            check_gaussian_ladder(Ladder((plan.due,)), sensitivity.amount)
        return plan

    @property
    def due(self) -> Fraction:
        """Return the rho that is still to be paid."""
        return self.price - self.paid

    @property
    def worst_case(self) -> Loss:
        """Return what the run costs, in the currency of the accounts."""
        return self._loss_of(self.due)

    def _loss_of(self, rho: Fraction) -> Loss:
        if not self.gaussian_terms:
            return ZeroConcentratedLoss(rho)
        if not rho:
            return GaussianLoss(Fraction(0))
        # Lattice noise of variance v is a rounding of real Gaussian noise of variance v - 4.
        real = self.sensitivity.square / (2 * rho) - SMOOTHING
        if real <= 0:
            raise InvalidRequest(
                "Expected an error of several units in an account of Gaussian DP", do='Pass noise="laplace"'
            )
        return GaussianLoss(round_up(self.sensitivity.square / real, relative=_LEFT_OUT))

    def check_cap(self, context: PlanContext) -> None:
        """Raise ``BudgetExceeded`` if the run would use more of the budget than a pure loss of ``max_epsilon``."""
        cap = self.query.accuracy.cap
        if cap is None or not self.due or "pure" in context.definitions:
            return  # a pure account has no price for Gaussian noise, and says so itself
        if context.budget_use is None:
            within = self.due <= pure_to_zcdp(cap)
        else:
            used, most = context.budget_use(self.worst_case), context.budget_use(PureLoss(cap))
            # What an account would refuse is above every cap; a cap that does not fit itself is no limit.
            within = used is not None and (most is None or used <= most)
        if not within:
            raise BudgetExceeded(
                f"This accuracy costs {self.worst_case} with Gaussian noise, which uses more of the budget than "
                f"{PureLoss(cap)}",
                do="Raise max_epsilon, or ask for less accuracy",
            )

    def measure(self, dataset: Dataset) -> Sealed | GradualRelease:
        """Return the exact integers, sealed with their L2 sensitivity; no rows are read if an earlier release has them."""
        if self.answer is not None:
            return GradualRelease()
        if self.continued is not None:
            return self.continued
        design = self.design
        terms: dict[str, Any] = {"once": design.once, "under": self.sensitivity}
        return dataset.measure_total(design.form, design.tally, secret=draw_bounding_secret(), **terms)

    def climb(self, sealed: Sealed | GradualRelease, bits: BitSource | None = None) -> Release[Any]:
        """Return the answer at the level that was priced beforehand."""
        result, design = self.answer, self.design
        if result is None:
            release = sealed if isinstance(sealed, GradualRelease) else GradualRelease(sealed)
            path = release.extend_path(Ladder((self.price,)), bits)
            rung = len(path.ladder) - 1
            level = float(shared_level(self.failure_probability, design.cells))
            radius = gaussian_radius(level, self.sensitivity.square, path.ladder.rungs)
            # An exact answer is whole, so rounding the estimate moves its error by less than to the next integer.
            noisy = np.rint(path.at(rung).astype(np.float64)).reshape(design.cells, -1).T
            reader = design.reader
            assert isinstance(reader, TotalReader)
            reading = reader.read_within(noisy, math.floor(radius + 0.5))
            met = np.ones(design.cells, bool)
            result = ClimbResult(reading, np.full(design.cells, rung), met, path.ladder, paid=self.paid)
            release.record_answer(self.query.answer_name(design), self.query.accuracy.failure_probability, result)
            if self.cache is not None:
                self.cache.keep_release(self.key, release)
        result = replace(result, gaussian=True)
        return self.query._shape_release(design, result, self._write_receipt(result))

    def _write_receipt(self, result: ClimbResult) -> Receipt:
        asked, design = self.query.accuracy, self.design
        terms = dict(design.terms) | ({"noise": self.comparison} if self.comparison else {})
        return Receipt(
            question=self.question,
            method="discrete Gaussian",
            promise=self.worst_case.promise(),
            bill=self.worst_case,
            adjacency=self.sensitivity.adjacency,
            unit=self.sensitivity.unit,
            outcome=Outcome.CERTIFIED,
            target=asked.target,
            achieved=float(result.reading.largest_error(relative=False).max()),
            terms=terms,
            citations=("CKS20, Theorem 4", "BS16, Lemma 2.3"),
            paid_before=self._loss_of(self.paid) if self.paid else None,
        )


def leaves_more(gaussian: GaussianPlan, laplace: Any, context: PlanContext) -> GaussianPlan | None:
    """Return the Gaussian plan if it leaves more of the budget than the Laplace plan, with both uses in its receipt.

    Only public facts count: prices, budgets, and what was spent before.
    """
    if context.budget_use is None:
        return None
    use = context.budget_use(gaussian.worst_case)
    other = context.budget_use(laplace.worst_case, before=laplace.refined_from)
    if use is None or (other is not None and use >= other):
        return None
    rest = "does not fit" if other is None else f"{float(other):.3%} of the budget is used"
    words = f"Gaussian: {float(use):.3%} of the budget is used after it; after Laplace noise {rest}"
    return replace(gaussian, comparison=words)
