"""The most common value, and the most common ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Loss, Norm, Outcome, PureLoss, Receipt, Release, Sealed, Sensitivity
from expost.core.rational import rational, round_up
from expost.data import Dataset, Expression
from expost.data.axis import Categories
from expost.data.form import CountForm
from expost.data.tally import Tally
from expost.noise import BitSource, ExponentialMechanism, PermuteAndFlip, system_bits
from expost.stats.ascent import Ascent
from expost.stats.ask import Ask
from expost.stats.count import Count
from expost.stats.groups import GroupRelease, Groups
from expost.stats.question import Design

__all__ = ["MostCommon", "TopK"]

_METHODS: dict[str, type[PermuteAndFlip] | type[ExponentialMechanism]] = {
    "permute-and-flip": PermuteAndFlip,
    "exponential": ExponentialMechanism,
}


class MostCommon:
    """The most common of a column's public categories.

    ``within`` is the shortfall in rows: how much rarer than the most common one the answer may be; priced before the
    run. The default method is never worse than the exponential mechanism.

    Guarantee: pure DP, known before the run.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have in one category (Linf).
    Accuracy: the shortfall is bounded beforehand with the asked confidence.
    Numerics: exact integer counts, an exact choice.
    Reference: MS20, Theorem 1 (permute-and-flip); DR14, Theorem 3.10 (exponential mechanism).

    >>> MostCommon("city", epsilon=1).question
    'most common city'
    """

    def __init__(
        self,
        column: str | Expression,
        *,
        within: object = None,
        epsilon: object = None,
        confidence: object = 0.95,
        max_epsilon: object = None,
        where: Expression | str | None = None,
        method: str = "permute-and-flip",
    ) -> None:
        self._ask = Ask.of(within=within, epsilon=epsilon, confidence=confidence, max_epsilon=max_epsilon)
        if self._ask.relative:
            raise InvalidRequest("Expected a shortfall in rows", got=within, do="Pass within=100, or epsilon=")
        if method not in _METHODS:
            raise InvalidRequest(f"Expected one of {', '.join(_METHODS)}", got=method, do="Name one of them")
        self._column, self._where, self._method = column, where, method
        self._mechanism: PermuteAndFlip | ExponentialMechanism | None = None
        self._labels: tuple[Any, ...] = ()

    @property
    def question(self) -> str:
        """The question in public words."""
        return f"most common {self._column}" + ("" if self._where is None else f" where {self._where}")

    @property
    def worst_case(self) -> Loss:
        """The price; known after ``check``."""
        level = self._mechanism.epsilon if self._mechanism is not None else self._ask.epsilon or self._ask.cap
        return PureLoss(level if level is not None else Fraction(0))

    def _tally(self, dataset: Dataset) -> Tally:
        return dataset.tally(axes=(dataset.axis(self._column),), where=dataset.condition(self._where))

    def _sensitivity(self, dataset: Dataset, tally: Tally) -> Sensitivity:
        # Rows move in one category by at most their number (Linf), up in one and down in another when replaced.
        return Sensitivity(
            dataset.rows_per_unit(dataset.limits(tally)).amount, Norm.LINF, dataset.adjacency, dataset.unit
        )

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset and price it; reads no rows."""
        tally = self._tally(dataset)
        axis = tally.axes[0]
        assert isinstance(axis, Categories)
        self._labels = axis.labels
        # Adding a unit moves no count down and removing one none up: monotone. Replacing does both.
        kind, monotone = _METHODS[self._method], not dataset.adjacency.public_size
        level = self._ask.epsilon
        if level is None:
            assert self._ask.target is not None
            at_one = kind(Fraction(1), monotone=monotone)
            shortfall = at_one.shortfall(
                self._sensitivity(dataset, tally), self._ask.failure_probability, candidates=len(self._labels)
            )
            level = rational(round_up(Fraction(shortfall + 1) / self._ask.target.tolerance), "epsilon")
            self._ask.check_price(level)
        self._mechanism = kind(level, monotone=monotone)

    def measure(self, dataset: Dataset) -> Sealed:
        """The exact counts, sealed under their Linf sensitivity."""
        tally = self._tally(dataset)
        secret = system_bits().words(4).tobytes()
        return dataset.total(CountForm(), tally, secret=secret, under=self._sensitivity(dataset, tally))

    def climb(self, sealed: Sealed, bits: BitSource | None = None) -> Release[Any]:
        """One pick of the mechanism."""
        assert self._mechanism is not None
        label = self._labels[self._mechanism.release(sealed, bits=bits)]
        target, failure = self._ask.target, self._ask.failure_probability
        shortfall = self._mechanism.shortfall(sealed.sensitivity, failure, candidates=len(self._labels))
        receipt = Receipt(
            question=self.question,
            method=self._method,
            promise=self._mechanism.guarantee,
            bill=self._mechanism.loss,
            adjacency=sealed.sensitivity.adjacency,
            unit=sealed.sensitivity.unit,
            outcome=Outcome.FIXED if target is None else Outcome.CERTIFIED,
            target=target,
            achieved=float(shortfall),
            terms={"categories": len(self._labels)},
            citations=("MS20, Theorem 1",) if self._method == "permute-and-flip" else ("DR14, Theorem 3.10",),
        )
        return Release(label, receipt)


class TopK(Count):
    """The ``k`` most common of a column's public categories, with their counts.

    All counts are released at once, which costs what one count costs, and the largest are reported. ``within=100``
    asks for counts within 100 rows, so that no category left out is more common by over 200 than one reported.

    Guarantee: as ``Count``; choosing the largest is post-processing.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all categories together.
    Accuracy: intervals cover the counts of all categories at once, so also of those reported.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2.1 (mechanism); DR14, Proposition 2.1 (post-processing).

    >>> TopK("city", 3, epsilon=1).question
    'top 3 of city'
    """

    def __init__(self, column: str | Expression, k: int, **terms: Any) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InvalidRequest("Expected k >= 1", got=k, do="Pass how many categories you want")
        super().__init__(by=column, **terms)
        self._column, self._k = column, k

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"top {self._k} of {self._column}"

    @property
    def question(self) -> str:
        """The question in public words; the categories are its subject, not its groups."""
        return self.subject + ("" if self._where is None else f" where {self._where}")

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        everything = super()._release(design, ascent, promise)
        assert isinstance(everything, GroupRelease)
        order = np.argsort([-row.value for row in everything.value.rows], kind="stable")[: self._k]
        rows = tuple(everything.value.rows[place] for place in order.tolist())
        return GroupRelease(Groups(everything.value.columns, rows), everything.receipt)
