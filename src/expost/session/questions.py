"""The questions of a session, by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from expost import stats
from expost.core import InvalidRequest, Release, Request

__all__ = ["STATISTICS", "Questions", "build"]

STATISTICS: dict[str, Callable[..., Request]] = {
    "count": stats.Count,
    "count-distinct": stats.CountDistinct,
    "count-by-private-keys": stats.CountByPrivateKeys,
    "sum": stats.Sum,
    "mean": stats.Mean,
    "variance": stats.Variance,
    "std": stats.StandardDeviation,
    "covariance": stats.Covariance,
    "histogram": stats.Histogram,
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
"""Every statistic under the name that sessions and the command line know it by."""


def build(statistic: str, *subject: Any, **terms: Any) -> Request:
    """The request of a statistic's name.

    >>> build("mean", "age", within=1, max_epsilon=1).question
    'mean of age'
    >>> build("mode", "age")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a statistic, got 'mode'. Use one of: bounds, contingency-table, ...
    """
    if statistic not in STATISTICS:
        raise InvalidRequest("Expected a statistic", got=statistic, do=f"Use one of: {', '.join(sorted(STATISTICS))}")
    try:
        return STATISTICS[statistic](*subject, **terms)
    except TypeError:
        given = ", ".join([*map(str, subject), *sorted(terms)]) or "nothing"
        raise InvalidRequest(
            f"Expected the column and terms that {statistic} needs",
            got=given,
            do=f"See expost.stats.{STATISTICS[statistic].__name__}; most statistics take one column",
        ) from None


class Questions(ABC):
    """One method a statistic; each takes ``within=`` or ``epsilon=`` and what ``expost.stats`` documents for it."""

    @abstractmethod
    def ask(self, request: Request, *, request_id: str | None = None) -> Release[Any]:
        """The release of any request."""

    @abstractmethod
    def _left(self) -> Fraction:
        """The epsilon that a new question may still ask for."""

    def _named(self, statistic: str, *subject: Any, **terms: Any) -> Release[Any]:
        return self.ask(self.request(statistic, *subject, **terms))

    def request(self, statistic: str, *subject: Any, **terms: Any) -> Request:
        """The request of a name; where an accuracy is asked for without a cap, the cap is all that is left."""
        if terms.get("within") is not None and terms.get("max_epsilon") is None:
            terms["max_epsilon"] = self._left() - sum(keys.epsilon for keys in stats.private_keys_in(terms.get("by")))
        return build(statistic, *subject, **terms)

    def count(self, **terms: Any) -> Release[Any]:
        """How many rows, in all or ``by=`` groups."""
        return self._named("count", **terms)

    def count_distinct(self, **terms: Any) -> Release[Any]:
        """How many different units."""
        return self._named("count-distinct", **terms)

    def count_by_private_keys(self, column: Any, **terms: Any) -> Release[Any]:
        """How many rows in each group of a column whose values are not public; costs a ``delta=``."""
        return self._named("count-by-private-keys", column, **terms)

    def sum(self, column: Any, **terms: Any) -> Release[Any]:
        """The sum of a column."""
        return self._named("sum", column, **terms)

    def mean(self, column: Any, **terms: Any) -> Release[Any]:
        """The mean of a column."""
        return self._named("mean", column, **terms)

    def variance(self, column: Any, **terms: Any) -> Release[Any]:
        """The variance of a column."""
        return self._named("variance", column, **terms)

    def std(self, column: Any, **terms: Any) -> Release[Any]:
        """The standard deviation of a column."""
        return self._named("std", column, **terms)

    def covariance(self, columns: Sequence[Any], **terms: Any) -> Release[Any]:
        """The covariance matrix of several columns."""
        return self._named("covariance", columns, **terms)

    def histogram(self, column: Any, **terms: Any) -> Release[Any]:
        """How many rows in each bin of a column, by public ``edges=``."""
        return self._named("histogram", column, **terms)

    def contingency_table(self, columns: Sequence[Any], **terms: Any) -> Release[Any]:
        """How many rows for every combination of categories."""
        return self._named("contingency-table", columns, **terms)

    def quantile(self, column: Any, share: float = 0.5, **terms: Any) -> Release[Any]:
        """One quantile of a column."""
        return self._named("quantile", column, share, **terms)

    def quantiles(self, column: Any, probabilities: Sequence[float], **terms: Any) -> Release[Any]:
        """Several quantiles of a column from one release."""
        return self._named("quantiles", column, probabilities, **terms)

    def median(self, column: Any, **terms: Any) -> Release[Any]:
        """The median of a column."""
        return self._named("median", column, **terms)

    def most_common(self, column: Any, **terms: Any) -> Release[Any]:
        """The most common category of a column."""
        return self._named("most-common", column, **terms)

    def top_k(self, column: Any, k: int, **terms: Any) -> Release[Any]:
        """The most common categories of a column, with their counts."""
        return self._named("top-k", column, k, **terms)

    def bounds(self, column: Any, **terms: Any) -> Release[Any]:
        """Rough bounds for a column whose range is unknown."""
        return self._named("bounds", column, **terms)

    def private_keys(self, column: Any, **terms: Any) -> Release[Any]:
        """The values of a column that enough units have, where they are not public; costs a ``delta=``."""
        return self._named("private-keys", column, **terms)

    def summary(self, columns: Sequence[Any], **terms: Any) -> Release[Any]:
        """Mean and standard deviation of several columns, from one release a column."""
        return self._named("summary", columns, **terms)
