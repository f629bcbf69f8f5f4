"""Sums and means."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from expost.data import Dataset, Expression
from expost.data.form import ShareForm, SquareForm, TotalForm
from expost.data.form_centred import CentredForm
from expost.data.tally import Measured
from expost.stats.by_private_keys import private_keys_in
from expost.stats.fine_grid import finer, rounding_of_rows
from expost.stats.private_bounds import PrivatelyBounded
from expost.stats.question import Design, Question
from expost.stats.readers import CentredMeanReader, CombinationReader, MeanReader, SquareMeanReader, TotalReader

__all__ = ["ColumnQuestion", "Mean", "Sum"]


class ColumnQuestion(Question):
    """A question about the numbers of one column; ``bounds`` overrides those declared for it.

    With ``bounds="private"`` the question becomes a ``PrivatelyBounded`` one.
    """

    def __new__(cls, column: str | Expression, *, bounds: Sequence[float] | str | None = None, **terms: Any) -> Any:
        if isinstance(bounds, str) and bounds == "private" and not private_keys_in(terms.get("by")):
            return PrivatelyBounded(cls, column, **terms)
        return super().__new__(cls, column, bounds=bounds, **terms)

    def __init__(self, column: str | Expression, *, bounds: Sequence[float] | str | None = None, **terms: Any) -> None:
        super().__init__(**terms)
        self._column, self._bounds = column, bounds

    def measured(self, dataset: Dataset) -> Measured:
        """The column with its clamp."""
        expression = dataset.expression(self._column)
        return Measured(expression, dataset.clamp(expression, self._bounds))

    def fitted(self, dataset: Dataset, form: Any, reader: Any, measured: Measured) -> Design:
        """A design over this column."""
        tally = dataset.tally(
            measured=(measured,),
            axes=self.axes(dataset),
            where=dataset.condition(self._where),
            degree=form.degree,
        )
        return Design(tally, form, reader, dataset.sensitivity(form, tally))


class Sum(ColumnQuestion):
    """The sum of a column's clamped values, in all or in each group.

    Guarantee: pure ex-post DP; an absolute accuracy or an epsilon is priced before the run, a relative climb costs
        scout and highest rung, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the larger bound in size, times the rows a unit may have (L1, over all groups together).
    Accuracy: intervals cover the sums of the clamped values, of all groups at once; they include the rounding to the
        grid, for up to 2^29 rows where the number of rows is not public.
    Numerics: values become whole steps before they are added; sums are exact integers, sampling is exact.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    >>> Sum("age", epsilon=0.1, by="city").question
    'sum of age by city'
    """

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"sum of {self._column}"

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        coarse = self.measured(dataset)
        measured = Measured(coarse.expression, finer(coarse.clamp, dataset))
        form = TotalForm(measured.clamp)
        reader = TotalReader(
            form.unit,
            least=0.0 if measured.clamp.low >= 0 else float("-inf"),
            most=0.0 if measured.clamp.high <= 0 else float("inf"),
            slack=rounding_of_rows(coarse.clamp, measured.clamp, dataset),
        )
        self._declared = {repr(coarse.expression): coarse.clamp.to_terms()}
        return self.fitted(dataset, form, reader, measured)

    def terms(self, design: Design) -> dict[str, Any]:
        """Public conditions for the receipt: the bounds as declared, not as moved to the grid."""
        return super().terms(design) | {"bounds": self._declared}

    def alternatives(self, dataset: Dataset) -> list[Design]:
        """A kept path of the mean or of the variance has the sum in it."""
        measured = self.measured(dataset)
        low, high, steps = measured.clamp.low, measured.clamp.high, measured.clamp.steps
        rounding = float(measured.clamp.rounding)
        shares = CombinationReader((high / steps, low / steps), rows=(1 / Fraction(steps),) * 2, rounding=rounding)
        squares = CombinationReader(
            tuple(each / steps**2 for each in (high, (low + high) / 2, low)),
            rows=(1 / Fraction(steps) ** 2,) * 3,
            rounding=rounding,
        )
        found = [
            self.fitted(dataset, ShareForm(measured.clamp), shares, measured),
            self.fitted(dataset, SquareForm(measured.clamp), squares, measured),
        ]
        if _counts_for_nothing(dataset, self._by):
            weights = ((high - low) / (2 * steps), (high + low) / (2 * steps))
            centred = CombinationReader(weights, rows=(Fraction(0), 1 / Fraction(steps)), rounding=rounding)
            found.append(self.fitted(dataset, CentredForm(measured.clamp), centred, measured))
        return found


class Mean(ColumnQuestion):
    """The mean of a column's clamped values, in all or in each group.

    The number of rows is private under add/remove, so two shares of every row are released instead of a sum and a
    count: the way from the lower bound and the way to the upper one. Together they are constant, so both fit into
    the sensitivity that one of them alone would need. Under replace-one with rows as units, and without groups, a
    centred sum is released; the number of rows that have a value and pass the filter comes with it for nothing.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else scout and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the number of steps between the bounds, times the rows a unit may have (L1, all groups together).
    Accuracy: intervals cover the means of the clamped values, of all groups at once.
    Numerics: values become whole steps before they are added; sums are exact integers, sampling is exact.
    Reference: WZLDSG20, Section 4 (middle of the interval); docs/proofs/shares.md (two shares, intervals).

    >>> Mean("age", within=1, max_epsilon=1).question
    'mean of age'
    """

    @property
    def subject(self) -> str:
        """What is asked for."""
        return f"mean of {self._column}"

    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset."""
        measured = self.measured(dataset)
        if _counts_for_nothing(dataset, self._by):
            return self.fitted(dataset, CentredForm(measured.clamp), CentredMeanReader(measured.clamp), measured)
        return self.fitted(dataset, ShareForm(measured.clamp), MeanReader(measured.clamp), measured)

    def alternatives(self, dataset: Dataset) -> list[Design]:
        """A kept path of the variance has the mean in it."""
        measured = self.measured(dataset)
        return [self.fitted(dataset, SquareForm(measured.clamp), SquareMeanReader(measured.clamp), measured)]


def _counts_for_nothing(dataset: Dataset, by: Sequence[Any]) -> bool:
    """Whether a centred sum has room for a count: single rows are replaced, and all of them are in one cell."""
    return dataset.adjacency.public_size and dataset.unit.is_row and not by
