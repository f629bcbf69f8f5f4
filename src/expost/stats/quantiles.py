"""Quantiles from a tree of counts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Release
from expost.core.rational import probability
from expost.data import Clamp, Dataset, Expression
from expost.data.axis import Axis, Bins
from expost.data.form_tree import TreeForm
from expost.stats.ascent import Ascent
from expost.stats.by import columns_of
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.question import Design, Question
from expost.stats.readers.quantile import QuantileReader

__all__ = ["Quantiles"]


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
        return GroupRelease(Groups((*columns_of(design.axes), "probability"), tuple(rows)), receipt)
