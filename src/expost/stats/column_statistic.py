"""Sums, means, variances and standard deviations of one column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

from expost.core import InvalidRequest
from expost.data import Clamp, Dataset, Expression
from expost.data.sealed_form import CentredForm, ShareForm, SquareForm, TotalForm, WeightedForm
from expost.data.tally import Measured
from expost.stats.gradual_plan import Design, GradualQuery
from expost.stats.private_bounds import PrivatelyBounded
from expost.stats.private_keys import private_keys_in
from expost.stats.query_terms import Column, statistic
from expost.stats.reader import (
    CentredMeanReader,
    CombinationReader,
    DeviationReader,
    MeanReader,
    SquareMeanReader,
    TotalReader,
    VarianceReader,
)

__all__ = ["ColumnQuery", "Mean", "StandardDeviation", "Sum", "Variance", "refine_clamp", "rounding_of_rows"]

MOST_ROWS = 1 << 29
"""The rows for which intervals of sums include the rounding where the number of rows is not public."""

_ROW_BITS = 37  # steps are then below 2^38: block sums stay below 2^62 up to 2^24 rows, and floats are exact
_UNIT_BITS = 31  # rows that are sorted by unit are kept in 32 bits
_FLOATS = Fraction(1, 1 << 11)  # of a step: what float arithmetic adds to half a step (38 bits of 53 are used)


@statistic
class ColumnQuery(GradualQuery):
    """Base of the statistics about the numbers of one column.

    Parameters
    ----------
    column : str or Expression
        The numeric column.
    bounds : (float, float) or "private", optional
        The limits to which values are clipped, in the column's units. Default: those declared for the column.
        ``"private"`` finds some with a part of the epsilon first.
    bounds_share : float, default 0.1
        With private bounds: the part of ``epsilon`` or ``max_epsilon`` that finds them.
    smallest, largest : float, default 1 and 2**40
        With private bounds: the range of sizes to search, in the column's units. Do not read it off the data.
    """

    column: Column
    bounds: Sequence[float] | str | None = field(default=None, kw_only=True)
    bounds_share: Any = field(default=0.1, kw_only=True)
    smallest: float = field(default=1.0, kw_only=True)
    largest: float = field(default=2.0**40, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.bounds, str) and self.bounds == "private":
            if private_keys_in(self.by):
                raise InvalidRequest(
                    "Private bounds cannot be combined with private keys", do="Ask for bounds first, then pass them"
                )
            PrivatelyBounded(self)  # raises if the shares of epsilon make no sense

    @property
    def bounded_first(self) -> PrivatelyBounded | None:
        return PrivatelyBounded(self) if isinstance(self.bounds, str) and self.bounds == "private" else None

    @property
    def question(self) -> str:
        stages = self.bounded_first
        return super().question if stages is None else stages.question

    @abstractmethod
    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        """Fit the query to a dataset and the clipped column."""

    def design(self, dataset: Dataset) -> Design:
        return self._design_column(dataset, self._clip_column(dataset))

    def _clip_column(self, dataset: Dataset) -> Measured:
        """Return the column with the limits to which it is clipped."""
        expression = dataset.expression(self.column)
        return Measured(expression, dataset.clamp(expression, self.bounds))


@statistic
class Sum(ColumnQuery):
    """The sum of a column's clipped values, in all or in each group.

    Guarantee: pure ex-post DP; an absolute accuracy or an epsilon is priced before the run, a relative climb costs
        pilot and highest rung, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the larger bound in size, times the rows a unit may have (L1, over all groups together).
    Accuracy: intervals cover the sums of the clipped values, of all groups at once; they include the rounding to the
        grid, for up to 2^29 rows where the number of rows is not public.
    Numerics: values become whole steps before they are added; sums are exact integers, sampling is exact.
    Reference: GRS09, Definition 2.1 (mechanism); LNRWW17, Theorem 2.7 (a gradual release costs its last rung).

    Parameters
    ----------
    noise : {"auto", "laplace", "gaussian"}, default "auto"
        The noise of an answer within an absolute error, as for ``Count``.

    Examples
    --------
    >>> Sum("age", epsilon=0.1, by="city").question
    'sum of age by city'
    """

    noise: str = field(default="auto", kw_only=True)

    @property
    def subject(self) -> str:
        return f"sum of {self.column}"

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        """Fit the query to a dataset, on a finer grid than other statistics need."""
        declared, clamp = measured.clamp, refine_clamp(measured.clamp, dataset)
        form = TotalForm(clamp)
        reader = TotalReader(
            form.unit,
            least=0.0 if clamp.low >= 0 else float("-inf"),
            most=0.0 if clamp.high <= 0 else float("inf"),
            slack=rounding_of_rows(declared, clamp, dataset),
        )
        # The receipt states the bounds as declared, not as moved to the grid.
        bounds = {repr(measured.expression): declared.to_terms()}
        return self.fit_design(dataset, form, reader, measured=[replace(measured, clamp=clamp)], bounds=bounds)

    def _alternative_designs(self, dataset: Dataset) -> list[Design]:
        """Return the designs of mean and variance: their releases have the sum in them."""
        measured = self._clip_column(dataset)
        clamp = measured.clamp
        low, high, steps, rounding = clamp.low, clamp.high, clamp.steps, float(clamp.rounding)
        shares = CombinationReader((high / steps, low / steps), rows=(1 / Fraction(steps),) * 2, rounding=rounding)
        squares = CombinationReader(
            tuple(each / steps**2 for each in (high, (low + high) / 2, low)),
            rows=(1 / Fraction(steps) ** 2,) * 3,
            rounding=rounding,
        )
        found = [
            self.fit_design(dataset, ShareForm(clamp), shares, measured=[measured]),
            self.fit_design(dataset, SquareForm(clamp), squares, measured=[measured]),
        ]
        if _count_is_free(self, dataset):
            weights = ((high - low) / (2 * steps), (high + low) / (2 * steps))
            centred = CombinationReader(weights, rows=(Fraction(0), 1 / Fraction(steps)), rounding=rounding)
            found.append(self.fit_design(dataset, CentredForm(clamp), centred, measured=[measured]))
        return found


@statistic
class Mean(ColumnQuery):
    """The mean of a column's clipped values, weighted or not, in all or in each group.

    The number of rows is private under add/remove, so two shares of every row are released instead of a sum and a
    count: its distance from the lower bound and its distance to the upper one. Together they are constant, so both fit
    into the sensitivity that one of them alone would need. Under replace-one with rows as units, and without groups, a
    centred sum is released; the number of rows that have a value and pass the filter is then released at no extra cost.
    With a weight, each row's two shares are multiplied by it; rows without a weight are left out.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the number of steps between the bounds, times the rows a unit may have (L1, all groups together), times
        the largest weight.
    Accuracy: intervals cover the means of the clipped values, of all groups at once. Weights that are not whole numbers
        are rounded to 2^20 steps between their bounds, which the receipt states.
    Numerics: values become whole steps before they are added; sums are exact integers, sampling is exact.
    Reference: WZLDSG20, Section 4 (middle of the interval); docs/proofs/shares.md (two shares, intervals);
        docs/proofs/ratios.md (weights).

    Parameters
    ----------
    weight : str or Expression, optional
        The column of weights, none below 0. Default: every row has weight 1.
    weight_bounds : (float, float), optional
        The limits to which weights are clipped. Default: those declared for the column.

    Examples
    --------
    >>> Mean("age", within=1, max_epsilon=1).question
    'mean of age'
    >>> Mean("income", bounds="private", epsilon=1).question
    'mean of income with private bounds (for 10 % of epsilon)'
    >>> Mean("price", weight="pieces", epsilon=1).question
    'mean of price weighted by pieces'
    """

    weight: Column | None = field(default=None, kw_only=True)
    weight_bounds: Sequence[float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight is None and self.weight_bounds is not None:
            raise InvalidRequest(
                "Expected a weight for weight_bounds", do='Pass weight="pieces", or drop weight_bounds'
            )

    @property
    def subject(self) -> str:
        return f"mean of {self.column}" + ("" if self.weight is None else f" weighted by {self.weight}")

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        clamp = measured.clamp
        if self.weight is not None:
            return self._design_weighted(dataset, measured, dataset.expression(self.weight))
        if _count_is_free(self, dataset):
            return self.fit_design(dataset, CentredForm(clamp), CentredMeanReader(clamp), measured=[measured])
        return self.fit_design(dataset, ShareForm(clamp), MeanReader(clamp), measured=[measured])

    def _design_weighted(self, dataset: Dataset, measured: Measured, weight: Expression) -> Design:
        """Fit the query to a dataset, the clipped column and its weights."""
        limits = dataset.clamp(weight, self.weight_bounds)
        if limits.low < 0:
            raise InvalidRequest(
                f"Expected weights that are never negative, got bounds of {weight!r} that begin below 0",
                do="Pass weight_bounds=(0, 100)",
            )
        form, columns = WeightedForm(measured.clamp, limits), [measured, Measured(weight, limits)]
        design = self.fit_design(dataset, form, MeanReader(measured.clamp), measured=columns)
        rounded = {} if limits.whole else {"weights rounded to steps of": float(limits.step)}
        return replace(design, terms={**design.terms, **rounded})

    def _alternative_designs(self, dataset: Dataset) -> list[Design]:
        """Return the design of the variance: its releases have the mean in them."""
        if self.weight is not None:
            return []
        measured = self._clip_column(dataset)
        clamp = measured.clamp
        return [self.fit_design(dataset, SquareForm(clamp), SquareMeanReader(clamp), measured=[measured])]


@statistic
class Variance(ColumnQuery):
    """The variance of a column's clipped values (divided by their number), in all or in each group.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the squared number of steps between the bounds, times the rows a unit may have (L1): three shares of a
        row that add up to a constant.
    Accuracy: intervals cover the variances of the clipped values, of all groups at once.
    Numerics: values become whole steps before they are squared and added; sums are exact integers.
    Reference: WZLDSG20, Section 4 (variance from bounded sums); docs/proofs/shares.md (three shares, intervals).

    Parameters
    ----------
    within : float or str, optional
        The error allowed, in the square of the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.

    Examples
    --------
    >>> Variance("age", epsilon=1).question
    'variance of age'
    """

    @property
    def subject(self) -> str:
        return f"variance of {self.column}"

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        clamp = measured.clamp
        return self.fit_design(dataset, SquareForm(clamp), VarianceReader(clamp), measured=[measured])


@statistic
class StandardDeviation(ColumnQuery):
    """The standard deviation of a column's clipped values, in all or in each group.

    Guarantee: as ``Variance``.
    Adjacency: the dataset's.
    Sensitivity: as ``Variance``.
    Accuracy: intervals cover the deviations of the clipped values, of all groups at once.
    Numerics: as ``Variance``; the root is taken after the noise.
    Reference: docs/proofs/shares.md (three shares, intervals).

    Examples
    --------
    >>> StandardDeviation("age", epsilon=1).question
    'standard deviation of age'
    """

    @property
    def subject(self) -> str:
        return f"standard deviation of {self.column}"

    def _design_column(self, dataset: Dataset, measured: Measured) -> Design:
        clamp = measured.clamp
        return self.fit_design(dataset, SquareForm(clamp), DeviationReader(clamp), measured=[measured])


def _count_is_free(query: ColumnQuery, dataset: Dataset) -> bool:
    """Return whether a centred sum includes a count: single rows are replaced, and all of them are in one cell."""
    return dataset.adjacency.public_size and dataset.unit.is_row and not query.group_keys


# The grid of sums ----------------------------------------------------------------------------------------------------


def refine_clamp(clamp: Clamp, dataset: Dataset) -> Clamp:
    """Return a clamp so fine that rounding all rows is a small part of the noise; whole numbers need none.

    The step is a power of two, so that bounds and steps have a common measure however odd the bounds are. The bounds
    move to the nearest grid points.
    """
    if clamp.whole:
        return clamp
    bits, width = (_ROW_BITS if dataset.unit.is_row else _UNIT_BITS), clamp.high - clamp.low
    log = width.numerator.bit_length() - width.denominator.bit_length()
    log -= Fraction(2) ** log > width  # rounded down
    step = Fraction(2) ** (log - bits)
    if round(clamp.high / step) - round(clamp.low / step) >= 2 << bits:
        step *= 2
    low, high = round(clamp.low / step), round(clamp.high / step)
    return replace(clamp, low=low * step, high=high * step, steps=high - low)


def rounding_of_rows(declared: Clamp, clamp: Clamp, dataset: Dataset) -> Fraction:
    """Bound how far clipping to grid points and rounding every row to its step can move a sum. The bound is public.

    A row is moved by half a step, by the error of the float operations, by what its bound was moved, and by the
    distance of that bound from its float.
    """
    if clamp.whole:
        return Fraction(0)
    ends = ((declared.low, clamp.low), (declared.high, clamp.high))
    moved = max(abs(first - second) for first, second in ends)
    floats = sum((abs(Fraction(float(end)) - end) for _, end in ends), Fraction(0))
    rows = MOST_ROWS if dataset.rows is None else dataset.rows
    return rows * (clamp.step * (Fraction(1, 2) + _FLOATS) + moved + floats)
