"""The statistics of a session: one method each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from expost import stats
from expost.core import InvalidRequest, Query, QuestionCap, Release, explain_arguments, share_parameters
from expost.core.argument import suggest_name
from expost.data import Expression
from expost.stats.query_terms import Column, KeyColumns
from expost.stats.table_query import By

__all__ = ["STATISTICS", "StatisticMethods", "check_statistic"]

M = TypeVar("M", bound=Callable[..., Any])

Where = str | Expression | None
Level = float | Fraction | None
Within = float | str | None
Bounds = Sequence[float] | str | None

STATISTICS: dict[str, Callable[..., Query]] = {
    "count": stats.Count,
    "count-distinct": stats.CountDistinct,
    "count-by-private-keys": stats.CountByPrivateKeys,
    "sum": stats.Sum,
    "mean": stats.Mean,
    "variance": stats.Variance,
    "std": stats.StandardDeviation,
    "covariance": stats.Covariance,
    "correlation": stats.Correlation,
    "ratio": stats.Ratio,
    "histogram": stats.Histogram,
    "count-over-time": stats.CountOverTime,
    "cumulative": stats.Cumulative,
    "moving": stats.Moving,
    "value-counts": stats.ValueCounts,
    "contingency-table": stats.ContingencyTable,
    "quantile": stats.Quantile,
    "quantiles": stats.Quantiles,
    "median": stats.Median,
    "most-common": stats.MostCommon,
    "top-k": stats.TopK,
    "bounds": stats.ApproximateBounds,
    "private-keys": stats.PrivateKeys,
    "summary": stats.Summary,
}
"""Every statistic under its name in ``Session.price`` and on the command line."""


_SYNONYMS = {
    "average": "mean",
    "avg": "mean",
    "corr": "correlation",
    "cov": "covariance",
    "crosstab": "contingency-table",
    "cumsum": "cumulative",
    "describe": "summary",
    "hist": "histogram",
    "mode": "most-common",
    "nunique": "count-distinct",
    "percentile": "quantile",
    "rate": "ratio",
    "rolling": "moving",
    "standard_deviation": "std",
    "stddev": "std",
    "stdev": "std",
    "total": "sum",
    "var": "variance",
}
"""What other libraries call a statistic, and its name here."""


def _suggest_statistic(given: object, known: Iterable[str]) -> str:
    """Return a question that names the statistic, or attribute, that was probably meant; else an empty text."""
    names = list(known)
    word = str(given).casefold().replace("-", "_")
    if word in ("group_by", "groupby"):
        return 'Pass by= to a statistic: session.count(by="city", within=100)'
    listed = {name.replace("_", "-"): name for name in names}
    if found := listed.get(_SYNONYMS.get(word, "")):
        return f"Did you mean {found!r}?"
    near = suggest_name(word, [*names, *_SYNONYMS])
    for other, meant in _SYNONYMS.items():  # a misspelt name of another library
        if near == f"Did you mean {other!r}?":
            return f"Did you mean {listed[meant]!r}?" if meant in listed else ""
    return near


def check_statistic(statistic: str) -> None:
    """Raise if there is no statistic of this name."""
    if statistic not in STATISTICS:
        do = _suggest_statistic(statistic, STATISTICS) or f"Use one of: {', '.join(sorted(STATISTICS))}"
        raise InvalidRequest("Expected a statistic", got=statistic, do=do)


_IN_SESSION = {
    "max_epsilon": "float, optional\nThe most that an accuracy may cost. Default: the question cap of the account that "
    "pays, a tenth of its budget unless its owner set another.",
    "delta": "float\nThe probability that a key of one unit alone is shown. The budget must have a delta.",
}
_RAISES = """
InvalidRequest
    If the arguments do not fit together or the table's description cannot answer; nothing is spent.
BudgetExceeded
    If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
TargetNotMet
    If no level under the cap was accurate enough. The error carries the release that was paid for.
"""


def _asks(statistic: Callable[..., Query]) -> Callable[[M], M]:
    """Make a method explain wrong arguments, and describe its parameters as the statistic does."""
    describe = share_parameters(_IN_SESSION, statistic, raises=_RAISES)
    return lambda method: explain_arguments(describe(method))  # type: ignore[return-value]


class StatisticMethods(ABC):
    """One method per statistic. Each takes an accuracy (``within=``) or a privacy level (``epsilon=``).

    A method returns a ``Release``: the value, its interval and its receipt. With ``by=`` it is a ``GroupRelease``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from expost import Dataset, Session
    >>> ages, cities = [*range(100)] * 50, ["Rome", "Rome", "Rome", "Oslo"] * 1250
    >>> bounds = {"age": (0, 99), "pay": (0, 99)}
    >>> table = pa.table({"age": ages, "pay": ages, "city": cities})
    >>> people = Dataset(table, bounds=bounds, categories={"city": ["Oslo", "Rome"]})
    >>> session = Session(people, budget=(200, 1e-5))
    >>> abs(session.count(within=100).value - 5000) < 1000, session.count_distinct(epsilon=5).value > 4000
    (True, True)
    >>> abs(session.sum("age", within="5%").value - 247_500) < 100_000
    True
    >>> abs(session.mean("age", within=3).value - 49.5) < 20, abs(session.std("age", within=3).value - 28.9) < 20
    (True, True)
    >>> abs(session.variance("age", within="20%").value - 833) < 800
    True
    >>> session.covariance(["age", "pay"], epsilon=10).value.shape
    (2, 2)
    >>> session.correlation("age", "pay", epsilon=10).value > 0.9, 0.9 < session.ratio("age", "pay", epsilon=10).value < 1.1
    (True, True)
    >>> list(session.value_counts("city", epsilon=1).value), len(session.histogram("age", epsilon=1).value)
    (['Rome', 'Oslo'], 20)
    >>> list(session.cumulative("age", bins=3, within=100).value), list(session.moving("age", 2, bins=3, within=100).value)
    ([33.0, 66.0, 99.0], [66.0, 99.0])
    >>> list(session.summary(["age"], within="20%").value)
    [('age', 'mean'), ('age', 'standard deviation')]
    >>> list(session.histogram("age", edges=[0, 18, 65, 100], epsilon=1).value)
    [0.0, 18.0, 65.0]
    >>> list(session.contingency_table(["city"], epsilon=1).value)
    ['Oslo', 'Rome']
    >>> 20 < session.median("age", within=8).value < 80 and session.quantile("age", 0.9, rank_within=250).value > 50
    True
    >>> list(session.quantiles("age", [0.25, 0.75], within=8).value)
    [0.25, 0.75]
    >>> session.most_common("city", within=100).value, list(session.top_k("city", 1, within=100).value)
    ('Rome', ['Rome'])
    >>> session.bounds("age", epsilon=1, confidence=0.999999999).value
    (0.0, 128.0)
    >>> session.private_keys("city", epsilon=1, delta=1e-6).value
    ('Oslo', 'Rome')
    >>> sorted(session.count_by_private_keys("city", delta=1e-6, epsilon=2).value)
    ['Oslo', 'Rome']
    """

    if not TYPE_CHECKING:  # for a type checker every name would exist

        def __getattr__(self, name: str) -> Any:
            """Explain a name that a session does not have."""
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            hint = "" if name.startswith("_") else _suggest_statistic(name, known)
            # The argument name= would make Python append a suggestion of its own.
            raise AttributeError(
                f"A session has no attribute {name!r}. {hint or 'See help(expost.Session)'}".rstrip(".")
            )

    @abstractmethod
    def _answer_query(self, query: Query) -> Release[Any]:
        """Answer any query."""

    @abstractmethod
    def _question_cap(self) -> QuestionCap:
        """Return the epsilon that a new query may cost if its asker names no cap."""

    def build_query(self, statistic: str, *subject: Any, **terms: Any) -> Query:
        """Build the query of a statistic's name; an accuracy without a cap gets that of the accounts that pay."""
        check_statistic(statistic)
        by_accuracy = any(terms.get(name) is not None for name in ("within", "rank_within"))
        if by_accuracy and terms.get("max_epsilon") is None:
            keys = sum((each.epsilon for each in stats.private_keys_in(terms.get("by"))), Fraction(0))
            cap = self._question_cap()
            if cap <= keys:
                raise InvalidRequest(
                    f"Expected keys that leave something of the cap of one question ({cap.note})",
                    got=float(keys),
                    do="Pass max_epsilon= for the answer, or keys with a smaller epsilon",
                )
            terms["max_epsilon"] = QuestionCap(cap - keys, cap.source)
        return STATISTICS[statistic](*subject, **terms)

    def _query_of(self, statistic: str, arguments: dict[str, Any]) -> Query:
        """Build a statistic from the arguments of one of the methods below, which has the statistic's parameters."""
        return self.build_query(statistic, **{name: value for name, value in arguments.items() if name != "self"})

    @_asks(stats.Count)
    def count(
        self,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Count rows, in all or in each group."""
        return self._answer_query(self._query_of("count", locals()))

    @_asks(stats.CountDistinct)
    def count_distinct(
        self,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Count the different units (ids) that have a row, in all or in each group."""
        return self._answer_query(self._query_of("count-distinct", locals()))

    @_asks(stats.CountByPrivateKeys)
    def count_by_private_keys(
        self,
        column: KeyColumns,
        *,
        delta: float | Fraction,
        within: Within = None,
        epsilon: Level = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        keys_share: float = 0.25,
    ) -> Release[Any]:
        """Count rows in each group of a column whose values are not public; rare groups are left out."""
        return self._answer_query(self._query_of("count-by-private-keys", locals()))

    @_asks(stats.Sum)
    def sum(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Bounds = None,
        bounds_share: float = 0.1,
        smallest: float = 1.0,
        largest: float = 2.0**40,
        noise: str = "auto",
    ) -> Release[Any]:
        """Add up a column's clipped values, in all or in each group."""
        return self._answer_query(self._query_of("sum", locals()))

    @_asks(stats.Mean)
    def mean(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Bounds = None,
        bounds_share: float = 0.1,
        smallest: float = 1.0,
        largest: float = 2.0**40,
        weight: Column | None = None,
        weight_bounds: Sequence[float] | None = None,
    ) -> Release[Any]:
        """Average a column's clipped values, weighted or not, in all or in each group."""
        return self._answer_query(self._query_of("mean", locals()))

    @_asks(stats.Variance)
    def variance(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Bounds = None,
        bounds_share: float = 0.1,
        smallest: float = 1.0,
        largest: float = 2.0**40,
    ) -> Release[Any]:
        """Release the variance of a column's clipped values (divided by their number), in all or in each group."""
        return self._answer_query(self._query_of("variance", locals()))

    @_asks(stats.StandardDeviation)
    def std(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Bounds = None,
        bounds_share: float = 0.1,
        smallest: float = 1.0,
        largest: float = 2.0**40,
    ) -> Release[Any]:
        """Release the standard deviation of a column's clipped values, in all or in each group."""
        return self._answer_query(self._query_of("std", locals()))

    @_asks(stats.Covariance)
    def covariance(
        self,
        columns: Sequence[Column],
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Sequence[Sequence[float] | None] | None = None,
    ) -> Release[Any]:
        """Release the covariance matrix of several columns' clipped values, with matrices of lower and upper ends."""
        return self._answer_query(self._query_of("covariance", locals()))

    @_asks(stats.Correlation)
    def correlation(
        self,
        x: Column,
        y: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Sequence[Sequence[float] | None] | None = None,
    ) -> Release[Any]:
        """Release Pearson's correlation of two columns' clipped values, in all or in each group."""
        return self._answer_query(self._query_of("correlation", locals()))

    @_asks(stats.Ratio)
    def ratio(
        self,
        numerator: Column,
        denominator: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Sequence[Sequence[float] | None] | None = None,
    ) -> Release[Any]:
        """Divide the sum of one column by that of another, in all or in each group: a rate as one question."""
        return self._answer_query(self._query_of("ratio", locals()))

    @_asks(stats.Histogram)
    def histogram(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        edges: Sequence[float] | None = None,
        bins: int | None = None,
        every: str | None = None,
        bounds: Sequence[Any] | None = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Count the rows in each bin, period or category of a column. Bins are named by their lower edges."""
        return self._answer_query(self._query_of("histogram", locals()))

    @_asks(stats.CountOverTime)
    def count_over_time(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        every: str = "month",
        bounds: Sequence[Any] | None = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Count the rows in each calendar period of a column of times, named by its first day or hour."""
        return self._answer_query(self._query_of("count-over-time", locals()))

    @_asks(stats.Cumulative)
    def cumulative(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        edges: Sequence[float] | None = None,
        bins: int | None = None,
        every: str | None = None,
        bounds: Sequence[Any] | None = None,
    ) -> Release[Any]:
        """Count the rows up to the end of each bin, period or category: running totals from one release."""
        return self._answer_query(self._query_of("cumulative", locals()))

    @_asks(stats.Moving)
    def moving(
        self,
        column: Column,
        window: int,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        edges: Sequence[float] | None = None,
        bins: int | None = None,
        every: str | None = None,
        bounds: Sequence[Any] | None = None,
    ) -> Release[Any]:
        """Count the rows of every ``window`` consecutive bins or periods, from one release."""
        return self._answer_query(self._query_of("moving", locals()))

    @_asks(stats.ValueCounts)
    def value_counts(
        self,
        column: Column,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Count the rows of each of a column's public categories, the most common first."""
        return self._answer_query(self._query_of("value-counts", locals()))

    @_asks(stats.ContingencyTable)
    def contingency_table(
        self,
        columns: Sequence[Column],
        *,
        within: Within = None,
        epsilon: Level = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Count the rows of every combination of the categories of several columns."""
        return self._answer_query(self._query_of("contingency-table", locals()))

    @_asks(stats.Quantile)
    def quantile(
        self,
        column: Column,
        share: float = 0.5,
        *,
        within: Within = None,
        rank_within: float | None = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        method: str = "exponential",
        bounds: Sequence[float] | None = None,
        levels: int | None = None,
    ) -> Release[Any]:
        """Release one quantile of a column, in all or in each group; with ``within`` it has an interval."""
        return self._answer_query(self._query_of("quantile", locals()))

    @_asks(stats.Quantiles)
    def quantiles(
        self,
        column: Column,
        probabilities: Sequence[float],
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Sequence[float] | None = None,
        levels: int | None = None,
    ) -> Release[Any]:
        """Release several quantiles of a column from one tree of counts. The groups are named by their probabilities."""
        return self._answer_query(self._query_of("quantiles", locals()))

    @_asks(stats.Median)
    def median(
        self,
        column: Column,
        *,
        within: Within = None,
        rank_within: float | None = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        method: str = "exponential",
        bounds: Sequence[float] | None = None,
        levels: int | None = None,
    ) -> Release[Any]:
        """Release the median of a column, in all or in each group; with ``within`` it has an interval."""
        return self._answer_query(self._query_of("median", locals()))

    @_asks(stats.MostCommon)
    def most_common(
        self,
        column: Column,
        *,
        within: float | None = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        method: str = "permute-and-flip",
    ) -> Release[Any]:
        """Release the most common of a column's public categories, in all or in each group."""
        return self._answer_query(self._query_of("most-common", locals()))

    @_asks(stats.TopK)
    def top_k(
        self,
        column: Column,
        k: int,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        noise: str = "auto",
    ) -> Release[Any]:
        """Release the ``k`` most common of a column's public categories, with their counts, the most common first."""
        return self._answer_query(self._query_of("top-k", locals()))

    @_asks(stats.ApproximateBounds)
    def bounds(
        self,
        column: Column,
        *,
        epsilon: float | Fraction,
        confidence: float = 0.95,
        smallest: float = 1.0,
        largest: float = 2.0**40,
        where: Where = None,
    ) -> Release[Any]:
        """Find rough bounds for a column whose range is unknown: a pair, in the column's units."""
        return self._answer_query(self._query_of("bounds", locals()))

    @_asks(stats.PrivateKeys)
    def private_keys(
        self, column: KeyColumns, *, epsilon: float | Fraction, delta: float | Fraction, where: Where = None
    ) -> Release[Any]:
        """Find the values of a column that enough units have, where they are not public. Those found are public then."""
        return self._answer_query(self._query_of("private-keys", locals()))

    @_asks(stats.Summary)
    def summary(
        self,
        columns: Sequence[Column],
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        bounds: Mapping[str, Sequence[float]] | None = None,
    ) -> Release[Any]:
        """Release mean and standard deviation of several columns, from one release per column."""
        return self._answer_query(self._query_of("summary", locals()))
