"""Questions about a column whose bounds are not public: a stated part of epsilon finds some first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn

from expost.core import BudgetExceeded, InvalidRequest, Loss, Outcome, PureGuarantee, PureLoss, Receipt, Release, Sealed
from expost.core.rational import probability, rational
from expost.data import Dataset, Expression
from expost.noise import BitSource
from expost.stats.approximate_bounds import ApproximateBounds
from expost.stats.table_release import AnswerRelease

__all__ = ["PrivatelyBounded"]


@dataclass(frozen=True, repr=False)
class _Stage:
    """The sealed bins, and the dataset for the second pass."""

    bins: Sealed
    dataset: Dataset

    def __reduce__(self) -> NoReturn:
        raise TypeError("Expected a stage to stay where it is; it holds exact counts.")


class PrivatelyBounded:
    """A question about a column, asked with ``bounds="private"``: approximate bounds first, then the question.

    ``bounds_share`` of the epsilon or cap is spent on the bounds, the rest is left for the question; both are on the
    receipt. The bounds are powers of two times ``smallest``, so they may be twice as wide as the data.

    Guarantee: pure ex-post DP; the sum of both stages, known only after the run and at most epsilon or ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: that of each stage; the second is measured with the bounds that the first has released.
    Accuracy: that of the question, for values clamped to the bounds that were found.
    Numerics: that of each stage.
    Reference: DR14, Theorem 3.16 (adaptive composition); WZLDSG20, Section 4 (approximate bounds).

    >>> from expost.stats import Mean
    >>> Mean("income", bounds="private", epsilon=1).question
    'mean of income with private bounds (for 10 % of epsilon)'
    """

    def __init__(
        self,
        build: Callable[..., Any],
        column: str | Expression,
        *,
        bounds_share: object = 0.1,
        smallest: float = 1.0,
        largest: float = 2.0**40,
        epsilon: object = None,
        max_epsilon: object = None,
        **terms: Any,
    ) -> None:
        total = epsilon if epsilon is not None else max_epsilon
        if total is None:
            raise InvalidRequest("Expected epsilon or max_epsilon beside private bounds", do="Pass max_epsilon=")
        self._total = rational(total, "epsilon")
        self._share = probability(bounds_share, "bounds_share")
        share = self._total * self._share
        rest = {"epsilon" if epsilon is not None else "max_epsilon": self._total - share}
        self._bounds = ApproximateBounds(
            column, epsilon=share, smallest=smallest, largest=largest, where=terms.get("where")
        )
        self._build, self._column, self._terms = build, column, rest | terms
        self._narrowest = smallest
        self._subject = self._asked((0, 1)).question

    def _asked(self, bounds: tuple[float, float]) -> Any:
        return self._build(self._column, bounds=bounds, **self._terms)

    @property
    def question(self) -> str:
        """The question in public words."""
        return f"{self._subject} with private bounds (for {float(100 * self._share):.4g} % of epsilon)"

    @property
    def worst_case(self) -> Loss:
        """All of the epsilon or cap."""
        return PureLoss(self._total)

    def check(self, dataset: Dataset) -> None:
        """Refuse what the dataset's public description cannot answer, or not even within the narrowest bounds."""
        self._bounds.check(dataset)
        self._asked((0, self._narrowest)).check(dataset)

    def measure(self, dataset: Dataset) -> _Stage:
        """The sealed bins of the first stage."""
        return _Stage(self._bounds.measure(dataset), dataset)

    def climb(self, stage: _Stage, bits: BitSource | None = None) -> Release[Any]:
        """Bounds, then the question with them."""
        found = self._bounds.climb(stage.bins, bits)
        if found.value is None or found.value[0] >= found.value[1]:
            return AnswerRelease(None, self._failed(found.receipt))
        question = self._asked(found.value)
        try:
            question.check(stage.dataset)
        except (BudgetExceeded, InvalidRequest):
            # How dear the target is, and how wide noise can be, depends on the bounds, which were paid for: a missed
            # target, not an error.
            return AnswerRelease(None, self._failed(found.receipt))
        answer: Release[Any] = question.climb(question.measure(stage.dataset), bits)
        return replace(answer, receipt=self._joined(found.receipt, answer.receipt))

    def _failed(self, bounds: Receipt) -> Receipt:
        return replace(bounds, question=self.question, promise=PureGuarantee(self._total), outcome=Outcome.NOT_MET)

    def _joined(self, bounds: Receipt, answer: Receipt) -> Receipt:
        parts = {"bounds": _level(bounds), "question": _level(answer)}
        return replace(
            answer,
            question=self.question,
            promise=PureGuarantee(self._total),
            bill=PureLoss(sum(parts.values(), Fraction(0))),
            terms={**answer.terms, "bounds found": {name: bounds.terms[name] for name in ("bins", "threshold")}},
            breakdown=parts,
            citations=(*answer.citations, *bounds.citations),
        )


def _level(receipt: Receipt) -> Fraction:
    return receipt.bill.amounts()["epsilon"]
