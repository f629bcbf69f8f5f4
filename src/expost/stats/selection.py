"""The most common value, and the most common ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Norm, Release, Sealed, Sensitivity, Target
from expost.core.rational import rational, round_up
from expost.data import Dataset, Expression
from expost.data.form import CountForm
from expost.data.tally import Tally
from expost.noise import BitSource, ExponentialMechanism, PermuteAndFlip, system_bits
from expost.stats.ascent import Ascent
from expost.stats.by import By, axes_of, by_text, read_by
from expost.stats.count import Count
from expost.stats.groups import GroupRelease, Groups
from expost.stats.pick import PickQuestion
from expost.stats.question import Design

__all__ = ["MostCommon", "TopK"]

_METHODS: dict[str, type[PermuteAndFlip] | type[ExponentialMechanism]] = {
    "permute-and-flip": PermuteAndFlip,
    "exponential": ExponentialMechanism,
}


class MostCommon(PickQuestion):
    """The most common of a column's public categories, in all or in each group.

    ``within`` is the shortfall in rows: how much rarer than the most common one the answer may be; priced before the
    run. The default method is never worse than the exponential mechanism.

    Guarantee: pure DP, known before the run; all groups together cost what is billed.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have in one category (Linf), over all groups together.
    Accuracy: the shortfall is bounded beforehand with the asked confidence, in all groups at once.
    Numerics: exact integer counts, an exact choice.
    Reference: MS20, Theorem 1 (permute-and-flip); DR14, Theorem 3.10 (exponential mechanism);
        docs/proofs/parallel-picks.md (groups).

    >>> MostCommon("city", epsilon=1, by="job").question
    'most common city by job'
    """

    def __init__(self, column: str | Expression, *, method: str = "permute-and-flip", **terms: Any) -> None:
        super().__init__(**terms)
        if self._ask.relative:
            raise InvalidRequest(
                "Expected a shortfall in rows", got=terms.get("within"), do="Pass within=100, or epsilon="
            )
        if method not in _METHODS:
            raise InvalidRequest(f"Expected one of {', '.join(_METHODS)}", got=method, do="Name one of them")
        self._column, self._method = column, method
        self._categories: tuple[Any, ...] = ()
        self._under: Sensitivity | None = None
        self._monotone = False

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"most common {self._column}"

    def _tally(self, dataset: Dataset) -> Tally:
        axes = (*axes_of(self._by, dataset), dataset.axis(self._column))
        return dataset.tally(axes=axes, where=dataset.condition(self._where))

    def prepare(self, dataset: Dataset) -> None:
        """The categories, and what one unit can do to their counts."""
        tally = self._tally(dataset)
        self._categories = tally.axes[-1].labels
        # Rows move in one category by at most their number (Linf), up in one and down in another when replaced.
        rows = dataset.rows_per_unit(dataset.limits(tally)).amount
        self._under = Sensitivity(rows, Norm.LINF, dataset.adjacency, dataset.unit)
        # Adding a unit moves no count down and removing one none up: monotone. Replacing does both.
        self._monotone = not dataset.adjacency.public_size

    def _mechanism(self, level: Fraction) -> PermuteAndFlip | ExponentialMechanism:
        return _METHODS[self._method](level, monotone=self._monotone)

    def price(self, target: Target, failure_probability: Fraction) -> Fraction:
        """The least epsilon for a shortfall: that at epsilon 1 is proportional to 1 / epsilon."""
        assert self._under is not None
        at_one = self._mechanism(Fraction(1)).shortfall(
            self._under, failure_probability, candidates=len(self._categories)
        )
        return rational(round_up(Fraction(at_one + 1) / target.tolerance), "epsilon")

    def measure(self, dataset: Dataset) -> list[Sealed]:
        """The exact counts of each group, sealed under their Linf sensitivity."""
        assert self._under is not None
        secret, parts = system_bits().words(4).tobytes(), len(self.labels)
        return dataset.totals(CountForm(), self._tally(dataset), parts=parts, secret=secret, under=self._under)

    def pick(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """One pick of the mechanism."""
        return self._categories[self._mechanism(self.level).release(sealed, bits=bits)]

    def error(self, failure_probability: Fraction) -> float | None:
        """The shortfall."""
        assert self._under is not None
        mechanism = self._mechanism(self.level)
        return float(mechanism.shortfall(self._under, failure_probability, candidates=len(self._categories)))

    def facts(self) -> dict[str, Any]:
        """Method, target, terms and citations for the receipt."""
        return {
            "method": self._method,
            "target": self._ask.target,
            "terms": {"categories": len(self._categories)},
            "citations": ("MS20, Theorem 1",) if self._method == "permute-and-flip" else ("DR14, Theorem 3.10",),
        }


class TopK(Count):
    """The ``k`` most common of a column's public categories, with their counts, in all or in each group.

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

    def __init__(self, column: str | Expression, k: int, *, by: By = None, **terms: Any) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InvalidRequest("Expected k >= 1", got=k, do="Pass how many categories you want")
        super().__init__(by=(*read_by(by), column), **terms)
        self._column, self._k = column, k

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"top {self._k} of {self._column}"

    @property
    def question(self) -> str:
        """The question in public words; the categories are its subject, not its groups."""
        return self.subject + ("" if self._where is None else f" where {self._where}") + by_text(self._by[:-1])

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        everything = super()._release(design, ascent, promise)
        assert isinstance(everything, GroupRelease)
        categories = design.axes[-1].size
        values = np.array([row.value for row in everything.value.rows]).reshape(-1, categories)
        order = np.argsort(-values, axis=1, kind="stable")[:, : self._k] + categories * np.arange(len(values))[:, None]
        rows = tuple(everything.value.rows[place] for place in order.ravel().tolist())
        return GroupRelease(Groups(everything.value.columns, rows), everything.receipt)
