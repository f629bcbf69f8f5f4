"""Quantiles and the median."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Loss, Measure, Outcome, PureLoss, Receipt, Release, Sealed, Target
from expost.core.rational import probability, rational, round_up
from expost.data import Clamp, Dataset, Expression
from expost.data.axis import Axis, Bins
from expost.data.form_tree import TreeForm
from expost.data.tally import Measured
from expost.noise import BitSource, Bounds, ExponentialQuantile, SmoothQuantile, system_bits
from expost.stats.ascent import Ascent
from expost.stats.ask import Ask
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.question import Design, Question
from expost.stats.readers.quantile import QuantileReader

__all__ = ["Median", "Quantile", "Quantiles"]


class Quantiles(Question):
    """Several quantiles of a column from one tree of counts, in all or in each group, each with an interval.

    The tree has 8, 64, 512 or 4096 leaves between the bounds; an answer is an edge between leaves. One release serves
    any number of probabilities. ``within`` is the error of the value.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else scout and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the levels of the tree, times the rows a unit may have (L1).
    Accuracy: intervals cover all quantiles (of all groups) at once; they are never narrower than a leaf.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: HRMS10, Section 4 (tree of counts); docs/proofs/stopped-relative-error.md (looks).

    >>> Quantiles("age", [0.25, 0.5, 0.75], within=2, max_epsilon=1).question
    'quantiles 0.25, 0.5, 0.75 of age'
    """

    def __init__(
        self,
        column: str | Expression,
        probabilities: Sequence[float],
        *,
        bounds: Sequence[float] | None = None,
        levels: int = 3,
        **terms: Any,
    ) -> None:
        super().__init__(**terms)
        self._column, self._bounds = column, bounds
        self._probabilities = tuple(probability(share, "probability") for share in probabilities)
        if not self._probabilities or levels not in (1, 2, 3, 4):
            raise InvalidRequest("Expected some probabilities and 1 to 4 levels", got=levels, do="Pass levels=3")
        self._form = TreeForm(levels)

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"quantiles {', '.join(str(float(share)) for share in self._probabilities)} of {self._column}"

    def _clamp(self, dataset: Dataset) -> Clamp:
        return dataset.clamp(dataset.expression(self._column), self._bounds)

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        clamp = self._clamp(dataset)
        tally = dataset.tally(axes=self._all_axes(dataset, clamp), where=dataset.condition(self._where))
        reader = QuantileReader(self._form, clamp, self._probabilities)
        return Design(tally, self._form, reader, dataset.sensitivity(self._form, tally), leaves=self._form.leaves)

    def _all_axes(self, dataset: Dataset, clamp: Clamp) -> tuple[Axis, ...]:
        edges = float(clamp.low) + np.linspace(0, 1, self._form.leaves + 1) * float(clamp.high - clamp.low)
        bins = Bins.of(dataset.expression(self._column), edges.tolist(), clamped=True)
        return (*self.axes(dataset), bins)

    def terms(self, design: Design) -> dict[str, Any]:
        """Public conditions for the receipt."""
        reader = design.reader
        assert isinstance(reader, QuantileReader)
        return {"bounds": {str(self._column): reader.clamp.to_terms()}, "leaves": self._form.leaves}

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        entries = len(self._probabilities)
        receipt, reading = self._receipt(design, ascent, promise), ascent.reading
        labels = [label for label in design.labels for _ in range(entries)] if self._by else [()] * entries
        rows = []
        for place, label in enumerate(labels):
            cell, share = divmod(place, entries)
            parts = (*(label if isinstance(label, tuple) else (label,)), float(self._probabilities[share]))
            rows.append(
                Group(
                    parts if len(parts) > 1 else parts[0],
                    float(reading.value[place]),
                    float(reading.low[place]),
                    float(reading.high[place]),
                    ascent.ladder[int(ascent.rung[cell])],
                    bool(ascent.met[cell]),
                )
            )
        columns = (*(str(each) for each in self._by), "probability")
        return GroupRelease(Groups(columns, tuple(rows)), receipt)


class Quantile:
    """One quantile of a column by the exponential mechanism, or with noise fitted to smooth sensitivity.

    ``within`` is the rank error in rows: how many rows may lie between the answer and the quantile (exponential
    mechanism only; priced before the run). For an error in the value itself, or many quantiles, use ``Quantiles``.

    Guarantee: pure DP, known before the run.
    Adjacency: the dataset's.
    Sensitivity: the number of rows a unit may have.
    Accuracy: rank error bounded beforehand (exponential); none bounded beforehand (smooth).
    Numerics: exact; whole steps between the bounds, an exact choice.
    Reference: Smi11, Algorithm 2 (exponential mechanism); NRS07, Claim 3.3 (smooth sensitivity of a quantile).

    >>> Quantile("age", 0.9, epsilon=0.5).question
    'quantile 0.9 of age'
    """

    def __init__(
        self,
        column: str | Expression,
        share: float = 0.5,
        *,
        method: str = "exponential",
        within: object = None,
        epsilon: object = None,
        confidence: object = 0.95,
        max_epsilon: object = None,
        bounds: Sequence[float] | None = None,
        where: Expression | str | None = None,
    ) -> None:
        if method not in ("exponential", "smooth"):
            raise InvalidRequest('Expected method "exponential" or "smooth"', got=method, do="Name one of them")
        self._ask = Ask.of(within=within, epsilon=epsilon, confidence=confidence, max_epsilon=max_epsilon)
        if self._ask.target is not None and (self._ask.relative or method == "smooth"):
            raise InvalidRequest(
                "Expected a rank error in rows beside the exponential mechanism",
                got=within,
                do="Pass within=100 (rows), epsilon=, or ask expost.stats.Quantiles for an error of the value",
            )
        self._column, self._bounds, self._where, self._method = column, bounds, where, method
        self._share = probability(share, "share")
        self._mechanism: ExponentialQuantile | SmoothQuantile | None = None
        self._clamp: Clamp | None = None

    @property
    def question(self) -> str:
        """The question in public words."""
        where = "" if self._where is None else f" where {self._where}"
        return f"quantile {float(self._share)} of {self._column}{where}"

    @property
    def worst_case(self) -> Loss:
        """The price; known after ``check``."""
        level = self._mechanism.epsilon if self._mechanism is not None else self._ask.epsilon or self._ask.cap
        return PureLoss(level if level is not None else Fraction(0))

    def _measured(self, dataset: Dataset) -> Any:
        expression = dataset.expression(self._column)
        self._clamp = dataset.clamp(expression, self._bounds)
        where = dataset.condition(self._where)
        return dataset.tally(measured=(Measured(expression, self._clamp),), where=where, degree=1)

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset and price it; reads no rows."""
        tally = self._measured(dataset)
        assert self._clamp is not None
        limits, bounds = dataset.limits(tally), Bounds(0, self._clamp.steps)
        sensitivity = dataset.rows_per_unit(limits)
        level = self._ask.epsilon
        if level is None:
            assert self._ask.target is not None
            level = _price(ExponentialQuantile(Fraction(1), bounds, self._share), sensitivity, self._ask.target)
            self._ask.check_price(level)
        kind = ExponentialQuantile if self._method == "exponential" else SmoothQuantile
        self._mechanism = kind(level, bounds, self._share)

    def measure(self, dataset: Dataset) -> Sealed:
        """The steps of all rows, sealed."""
        return dataset.steps(self._measured(dataset), secret=system_bits().words(4).tobytes())

    def climb(self, sealed: Sealed, bits: BitSource | None = None) -> Release[float]:
        """One pick of the mechanism."""
        assert self._mechanism is not None and self._clamp is not None
        step = self._mechanism.release(sealed, bits=bits)
        error = None
        if isinstance(self._mechanism, ExponentialQuantile):
            error = float(self._mechanism.rank_error(sealed.sensitivity, self._ask.failure_probability))
        target = self._ask.target
        receipt = Receipt(
            question=self.question,
            method=f"{self._method} {'mechanism' if self._method == 'exponential' else 'sensitivity'}",
            promise=self._mechanism.guarantee,
            bill=self._mechanism.loss,
            adjacency=sealed.sensitivity.adjacency,
            unit=sealed.sensitivity.unit,
            outcome=Outcome.FIXED if target is None else Outcome.CERTIFIED,
            target=None if target is None else Target(Measure.RANK_ERROR, target.tolerance, target.failure_probability),
            achieved=error,
            terms={"bounds": {str(self._column): self._clamp.to_terms()}},
            citations=("Smi11, Algorithm 2",) if error is not None else ("NRS07, Claim 3.3",),
        )
        return Release(self._clamp.to_value(step), receipt)


class Median(Quantile):
    """The median of a column; the same as ``Quantile(column, 0.5)``.

    >>> Median("age", epsilon=0.5).question
    'quantile 0.5 of age'
    """

    def __init__(self, column: str | Expression, **terms: Any) -> None:
        super().__init__(column, 0.5, **terms)


def _price(mechanism: ExponentialQuantile, sensitivity: Any, target: Target) -> Fraction:
    """The least epsilon whose rank error is within the target: the error at epsilon 1 is proportional to 1/epsilon."""
    level = rational(
        round_up(Fraction(mechanism.rank_error(sensitivity, target.failure_probability)) / target.tolerance), "epsilon"
    )
    return level
