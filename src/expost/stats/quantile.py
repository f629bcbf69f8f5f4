"""One quantile, and the median."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from expost.core import Adjacency, InvalidRequest, Measure, Sealed, Sensitivity, Target
from expost.core.rational import probability, rational, round_up
from expost.data import Clamp, Dataset, Expression
from expost.data.tally import Measured, Tally
from expost.noise import BitSource, Bounds, ExponentialQuantile, SmoothQuantile, system_bits
from expost.stats.by import axes_of
from expost.stats.pick import PickQuestion

__all__ = ["Median", "Quantile"]

_METHODS: dict[str, type[ExponentialQuantile] | type[SmoothQuantile]] = {
    "exponential": ExponentialQuantile,
    "smooth": SmoothQuantile,
}


class Quantile(PickQuestion):
    """One quantile of a column by the exponential mechanism, or with noise fitted to smooth sensitivity.

    ``within`` is the rank error in rows: how many rows may lie between the answer and the quantile (exponential
    mechanism only; priced before the run). Rows are ranked by their values in whole steps: integers as they are, other
    numbers rounded to 2^20 steps between the bounds, which the receipt tells. The answer of the exponential mechanism
    is the roundest number at its step, so that where values are decimals further apart than a step (ages in a column of
    floats, prices) the rank error is that among the values themselves. For an error in the value itself, or many quantiles, use ``Quantiles``.

    Guarantee: pure DP, known before the run; all groups together cost what is billed.
    Adjacency: the dataset's.
    Sensitivity: the number of rows a unit may have, over all groups together.
    Accuracy: rank error among the rounded values bounded beforehand (exponential), in all groups at once; none
        bounded beforehand (smooth).
    Numerics: exact; whole steps between the bounds, an exact choice.
    Reference: Smi11, Algorithm 2 (exponential mechanism); NRS07, Claim 3.3 (smooth sensitivity of a quantile);
        docs/proofs/parallel-picks.md (groups).

    >>> Quantile("age", 0.9, epsilon=0.5, by="city").question
    'quantile 0.9 of age by city'
    """

    def __init__(
        self,
        column: str | Expression,
        share: float = 0.5,
        *,
        method: str = "exponential",
        bounds: Sequence[float] | None = None,
        **terms: Any,
    ) -> None:
        if method not in _METHODS:
            raise InvalidRequest('Expected method "exponential" or "smooth"', got=method, do="Name one of them")
        super().__init__(**terms)
        if self._ask.target is not None and (self._ask.relative or method == "smooth"):
            raise InvalidRequest(
                "Expected a rank error in rows beside the exponential mechanism",
                got=terms.get("within"),
                do="Pass within=100 (rows), epsilon=, or ask expost.stats.Quantiles for an error of the value",
            )
        self._column, self._bounds, self._method = column, bounds, method
        self._share = probability(share, "share")
        self._clamp: Clamp | None = None
        self._under: Sensitivity | None = None
        self._parts = 1

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"quantile {float(self._share)} of {self._column}"

    def _tally(self, dataset: Dataset) -> Tally:
        expression = dataset.expression(self._column)
        self._clamp = dataset.clamp(expression, self._bounds)
        return dataset.tally(
            measured=(Measured(expression, self._clamp),),
            axes=axes_of(self._by, dataset),
            where=dataset.condition(self._where),
            degree=1,
        )

    def prepare(self, dataset: Dataset) -> None:
        """What one unit can do to the groups' records, and into how many parts epsilon is cut for it."""
        limits = dataset.limits(self._tally(dataset))
        self._under, self._parts = dataset.rows_per_unit(limits), 1
        if self._axes:
            # docs/proofs/parallel-picks.md: a replaced unit leaves some groups and enters others, two moves; the loss
            # of the exponential mechanism is in proportion to a unit's rows in a group, that of smooth noise is not.
            rows = int(self._under.amount)
            groups = rows if limits is None or limits.groups is None else min(limits.groups, rows)
            self._parts = (2 if dataset.adjacency.public_size else 1) * (groups if self._method == "smooth" else 1)
            self._under = Sensitivity(rows, adjacency=Adjacency.ADD_REMOVE, unit=dataset.unit)

    def _mechanism(self, level: Fraction) -> ExponentialQuantile | SmoothQuantile:
        assert self._clamp is not None
        return _METHODS[self._method](level / self._parts, Bounds(0, self._clamp.steps), self._share)

    def price(self, target: Target, failure_probability: Fraction) -> Fraction:
        """The least epsilon for a rank error: the error at epsilon 1 is proportional to 1 / epsilon."""
        mechanism = self._mechanism(Fraction(1))
        assert isinstance(mechanism, ExponentialQuantile) and self._under is not None
        at_one = Fraction(mechanism.rank_error(self._under, failure_probability))
        return rational(round_up(at_one / target.tolerance), "epsilon")

    def measure(self, dataset: Dataset) -> list[Sealed]:
        """The steps of all rows, sealed group by group."""
        assert self._under is not None
        return dataset.steps(self._tally(dataset), secret=system_bits().words(4).tobytes(), under=self._under)

    def pick(self, sealed: Sealed, bits: BitSource | None) -> float:
        """One pick of the mechanism."""
        assert self._clamp is not None
        step = self._mechanism(self.level).release(sealed, bits=bits)
        return self._clamp.to_roundest(int(step)) if self._method == "exponential" else self._clamp.to_value(step)

    def error(self, failure_probability: Fraction) -> float | None:
        """The rank error, where it is known beforehand."""
        mechanism = self._mechanism(self.level)
        if not isinstance(mechanism, ExponentialQuantile) or self._under is None:
            return None
        return float(mechanism.rank_error(self._under, failure_probability))

    def facts(self) -> dict[str, Any]:
        """Method, target, terms and citations for the receipt."""
        assert self._clamp is not None
        target, exponential = self._ask.target, self._method == "exponential"
        rounded = {} if self._clamp.whole else {"values rounded to steps of": float(self._clamp.step)}
        return {
            "method": "exponential mechanism" if exponential else "smooth sensitivity",
            "target": target and Target(Measure.RANK_ERROR, target.tolerance, target.failure_probability),
            "terms": {"bounds": {str(self._column): self._clamp.to_terms()}, **rounded},
            "citations": ("Smi11, Algorithm 2",) if exponential else ("NRS07, Claim 3.3",),
        }


class Median(Quantile):
    """The median of a column; the same as ``Quantile(column, 0.5)``.

    >>> Median("age", epsilon=0.5).question
    'quantile 0.5 of age'
    """

    def __init__(self, column: str | Expression, **terms: Any) -> None:
        super().__init__(column, 0.5, **terms)
