"""The statistics of a session: one method each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from expost import stats
from expost.core import InvalidRequest, Query, Release, explain_arguments
from expost.data import Expression
from expost.stats.query_terms import Column
from expost.stats.table_query import By

__all__ = ["STATISTICS", "StatisticMethods", "build_statistic"]

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
"""Every statistic under its name in ``Session.price`` and on the command line."""


def build_statistic(statistic: str, *subject: Any, **terms: Any) -> Query:
    """Build the query of a statistic's name.

    >>> build_statistic("mean", "age", within=1, max_epsilon=1).question
    'mean of age'
    >>> build_statistic("mode", "age")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a statistic, got 'mode'. Use one of: bounds, contingency-table, ...
    """
    if statistic not in STATISTICS:
        raise InvalidRequest("Expected a statistic", got=statistic, do=f"Use one of: {', '.join(sorted(STATISTICS))}")
    return STATISTICS[statistic](*subject, **terms)


class StatisticMethods(ABC):
    """One method per statistic. Each takes an accuracy (``within=``) or a privacy level (``epsilon=``)."""

    @abstractmethod
    def _answer_query(self, query: Query) -> Release[Any]:
        """Answer any query."""

    @abstractmethod
    def _epsilon_left(self) -> Fraction:
        """Return the epsilon that a new query may still ask for."""

    def _find_cap(self, within: object, max_epsilon: Level, by: By = None) -> Level:
        """Return the cap of an accuracy: by default all that is left, less what private keys cost."""
        if within is None or max_epsilon is not None:
            return max_epsilon
        return self._epsilon_left() - sum((keys.epsilon for keys in stats.private_keys_in(by)), Fraction(0))

    def build_query(self, statistic: str, *subject: Any, **terms: Any) -> Query:
        """Build the query of a statistic's name; an accuracy without a cap may cost all that is left.

        Parameters
        ----------
        statistic : str
            The statistic's name, such as ``"mean"`` or ``"top-k"``.
        *subject : object
            The positional arguments of the statistic: its column or columns.
        **terms : object
            The keyword arguments of the statistic, such as ``within=3``.

        Returns
        -------
        Query

        Raises
        ------
        InvalidRequest
            If the name or an argument is unknown; nothing is spent.
        """
        within = terms.get("within") if terms.get("within") is not None else terms.get("rank_within")
        cap = self._find_cap(within, terms.get("max_epsilon"), terms.get("by"))
        return build_statistic(statistic, *subject, **(terms if cap is None else terms | {"max_epsilon": cap}))

    @explain_arguments
    def count(
        self,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
    ) -> Release[Any]:
        """Count rows, in all or in each group.

        Parameters
        ----------
        within : float or str, optional
            The error allowed, in rows, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.

        Returns
        -------
        Release
            The number of rows with its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> release = session.count(within=100)
        >>> abs(release.value - 5000) < 1000
        True
        """
        query = stats.Count(
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
        )
        return self._answer_query(query)

    @explain_arguments
    def count_distinct(
        self,
        *,
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
    ) -> Release[Any]:
        """Count the different units (ids) that have a row, in all or in each group.

        Parameters
        ----------
        within : float or str, optional
            The error allowed, in units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.

        Returns
        -------
        Release
            The number of units with its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"id": list(range(500)) * 2}), unit="id", max_rows_per_unit=2)
        >>> session = Session(people, budget=20)
        >>> abs(session.count_distinct(epsilon=5).value - 500) < 50
        True
        """
        query = stats.CountDistinct(
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
        )
        return self._answer_query(query)

    @explain_arguments
    def count_by_private_keys(
        self,
        column: Column,
        *,
        delta: float | Fraction,
        within: Within = None,
        epsilon: Level = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
        keys_share: float = 0.25,
    ) -> Release[Any]:
        """Count rows in each group of a column whose values are not public; rare groups are left out.

        Parameters
        ----------
        column : str or Expression
            The column of texts or numbers to group by.
        delta : float
            The probability that a key of one unit alone is shown. The budget must have a delta.
        within : float or str, optional
            The error allowed, in rows, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        keys_share : float, default 0.25
            The part of ``epsilon`` or ``max_epsilon`` that finds the keys.

        Returns
        -------
        GroupRelease
            The number of rows of each key shown.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"city": ["Rome", "Oslo"] * 2000}))
        >>> session = Session(people, budget=(20, 1e-5))
        >>> release = session.count_by_private_keys("city", delta=1e-6, epsilon=2)
        >>> sorted(release.value)
        ['Oslo', 'Rome']
        """
        query = stats.CountByPrivateKeys(
            column,
            delta=delta,
            within=within,
            epsilon=epsilon,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon),
            keys_share=keys_share,
        )
        return self._answer_query(query)

    @explain_arguments
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
    ) -> Release[Any]:
        """Add up a column's clipped values, in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        within : float or str, optional
            The error allowed, in the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : (float, float) or "private", optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
            ``"private"`` finds some with a part of the epsilon first.
        bounds_share : float, default 0.1
            With private bounds: the part of ``epsilon`` or ``max_epsilon`` that finds them.
        smallest, largest : float, default 1 and 2**40
            With private bounds: the range of sizes to search, in the column's units. Do not read it off the data.

        Returns
        -------
        Release
            The sum with its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> abs(session.sum("age", within="5%").value - 247_500) < 100_000
        True
        """
        query = stats.Sum(
            column,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
            bounds_share=bounds_share,
            smallest=smallest,
            largest=largest,
        )
        return self._answer_query(query)

    @explain_arguments
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
    ) -> Release[Any]:
        """Average a column's clipped values, in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        within : float or str, optional
            The error allowed, in the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : (float, float) or "private", optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
            ``"private"`` finds some with a part of the epsilon first.
        bounds_share : float, default 0.1
            With private bounds: the part of ``epsilon`` or ``max_epsilon`` that finds them.
        smallest, largest : float, default 1 and 2**40
            With private bounds: the range of sizes to search, in the column's units. Do not read it off the data.

        Returns
        -------
        Release
            The mean with its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> abs(session.mean("age", within=3).value - 49.5) < 20
        True
        """
        query = stats.Mean(
            column,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
            bounds_share=bounds_share,
            smallest=smallest,
            largest=largest,
        )
        return self._answer_query(query)

    @explain_arguments
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
        """Release the variance of a column's clipped values (divided by their number), in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        within : float or str, optional
            The error allowed, in the square of the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : (float, float) or "private", optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
            ``"private"`` finds some with a part of the epsilon first.
        bounds_share : float, default 0.1
            With private bounds: the part of ``epsilon`` or ``max_epsilon`` that finds them.
        smallest, largest : float, default 1 and 2**40
            With private bounds: the range of sizes to search, in the column's units. Do not read it off the data.

        Returns
        -------
        Release
            The variance with its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> abs(session.variance("age", within="20%").value - 833) < 800
        True
        """
        query = stats.Variance(
            column,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
            bounds_share=bounds_share,
            smallest=smallest,
            largest=largest,
        )
        return self._answer_query(query)

    @explain_arguments
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
        """Release the standard deviation of a column's clipped values, in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        within : float or str, optional
            The error allowed, in the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : (float, float) or "private", optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
            ``"private"`` finds some with a part of the epsilon first.
        bounds_share : float, default 0.1
            With private bounds: the part of ``epsilon`` or ``max_epsilon`` that finds them.
        smallest, largest : float, default 1 and 2**40
            With private bounds: the range of sizes to search, in the column's units. Do not read it off the data.

        Returns
        -------
        Release
            The standard deviation with its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> abs(session.std("age", within=3).value - 28.9) < 20
        True
        """
        query = stats.StandardDeviation(
            column,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
            bounds_share=bounds_share,
            smallest=smallest,
            largest=largest,
        )
        return self._answer_query(query)

    @explain_arguments
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
        """Release the covariance matrix of several columns' clipped values.

        Parameters
        ----------
        columns : sequence of str or Expression
            Two or more numeric columns.
        within : float or str, optional
            The error allowed, in the product of two columns' units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : sequence of (float, float) or None, optional
            The limits to which each column is clipped, in its units. Default: those declared for the columns.

        Returns
        -------
        Release
            The matrix, with matrices of lower and upper ends; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> table = pa.table({"age": list(range(100)) * 50, "pay": list(range(100)) * 50})
        >>> people = Dataset(table, bounds={"age": (0, 99), "pay": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> session.covariance(["age", "pay"], epsilon=10).value.shape
        (2, 2)
        """
        query = stats.Covariance(
            columns,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
        )
        return self._answer_query(query)

    @explain_arguments
    def histogram(
        self,
        column: Column,
        *,
        edges: Sequence[float],
        within: Within = None,
        epsilon: Level = None,
        by: By = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
    ) -> Release[Any]:
        """Count the rows in each bin of a column.

        Parameters
        ----------
        column : str or Expression
            The numeric column to bin.
        edges : sequence of float
            The public edges of the bins, in the column's units, increasing.
        within : float or str, optional
            The error allowed, in rows, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.

        Returns
        -------
        GroupRelease
            The number of rows in each bin, by its lower edge.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> list(session.histogram("age", edges=[0, 18, 65, 100], epsilon=1).value)
        [0.0, 18.0, 65.0]
        """
        query = stats.Histogram(
            column,
            edges=edges,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
        )
        return self._answer_query(query)

    @explain_arguments
    def contingency_table(
        self,
        columns: Sequence[Column],
        *,
        within: Within = None,
        epsilon: Level = None,
        where: Where = None,
        confidence: float = 0.95,
        max_epsilon: Level = None,
    ) -> Release[Any]:
        """Count the rows of every combination of the categories of several columns.

        Parameters
        ----------
        columns : sequence of str or Expression
            The columns of public categories.
        within : float or str, optional
            The error allowed, in rows, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.

        Returns
        -------
        GroupRelease
            The number of rows of each combination.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"city": ["Rome", "Oslo"] * 2000}), categories={"city": ["Oslo", "Rome"]})
        >>> session = Session(people, budget=20)
        >>> list(session.contingency_table(["city"], epsilon=1).value)
        ['Oslo', 'Rome']
        """
        query = stats.ContingencyTable(
            columns,
            within=within,
            epsilon=epsilon,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon),
        )
        return self._answer_query(query)

    @explain_arguments
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
        levels: int = 3,
    ) -> Release[Any]:
        """Release one quantile of a column, in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        share : float, default 0.5
            Which quantile: 0.5 is the median.
        within : float or str, optional
            The error allowed in the value, in the column's units, or a share such as ``"5%"``. Give one of ``within``,
            ``rank_within`` and ``epsilon``.
        rank_within : float, optional
            The error allowed in ranks: how many rows may lie between the answer and the quantile. Priced before the run.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        method : {"exponential", "smooth"}, default "exponential"
            How a value is picked. ``"smooth"`` takes ``epsilon`` only.
        bounds : (float, float), optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
        levels : int, default 3
            With ``within``: the levels of the tree of counts, 8 ** levels leaves.

        Returns
        -------
        Release
            The quantile, in the column's units, and, with ``within``, its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> session.quantile("age", 0.9, rank_within=250).value > 50
        True
        """
        query = stats.Quantile(
            column,
            share,
            within=within,
            rank_within=rank_within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within if within is not None else rank_within, max_epsilon, by),
            method=method,
            bounds=bounds,
            levels=levels,
        )
        return self._answer_query(query)

    @explain_arguments
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
        levels: int = 3,
    ) -> Release[Any]:
        """Release several quantiles of a column from one tree of counts.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        probabilities : sequence of float
            The quantiles to release, each between 0 and 1.
        within : float or str, optional
            The error allowed, in the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : (float, float), optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
        levels : int, default 3
            The levels of the tree: 8 ** levels leaves. More levels give finer answers and cost more.

        Returns
        -------
        GroupRelease
            Each quantile with its interval, by its probability, in the column's units.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> list(session.quantiles("age", [0.25, 0.75], within=8).value)
        [0.25, 0.75]
        """
        query = stats.Quantiles(
            column,
            probabilities,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
            levels=levels,
        )
        return self._answer_query(query)

    @explain_arguments
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
        levels: int = 3,
    ) -> Release[Any]:
        """Release the median of a column, in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        within : float or str, optional
            The error allowed in the value, in the column's units, or a share such as ``"5%"``. Give one of ``within``,
            ``rank_within`` and ``epsilon``.
        rank_within : float, optional
            The error allowed in ranks: how many rows may lie between the answer and the median. Priced before the run.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        method : {"exponential", "smooth"}, default "exponential"
            How a value is picked. ``"smooth"`` takes ``epsilon`` only.
        bounds : (float, float), optional
            The limits to which values are clipped, in the column's units. Default: those declared for the column.
        levels : int, default 3
            With ``within``: the levels of the tree of counts, 8 ** levels leaves.

        Returns
        -------
        Release
            The median, in the column's units, and, with ``within``, its interval; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> 20 < session.median("age", within=8).value < 80
        True
        """
        query = stats.Median(
            column,
            within=within,
            rank_within=rank_within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within if within is not None else rank_within, max_epsilon, by),
            method=method,
            bounds=bounds,
            levels=levels,
        )
        return self._answer_query(query)

    @explain_arguments
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
        """Release the most common of a column's public categories, in all or in each group.

        Parameters
        ----------
        column : str or Expression
            The column of public categories.
        within : float, optional
            The shortfall allowed, in rows: how much rarer than the most common category the answer may be. Give either
            this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        method : {"permute-and-flip", "exponential"}, default "permute-and-flip"
            How the category is picked.

        Returns
        -------
        Release
            The category; a ``GroupRelease`` if ``by`` is given.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> table = pa.table({"city": ["Rome", "Rome", "Oslo"] * 900})
        >>> people = Dataset(table, categories={"city": ["Oslo", "Rome"]})
        >>> session = Session(people, budget=20)
        >>> session.most_common("city", within=100).value
        'Rome'
        """
        query = stats.MostCommon(
            column,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            method=method,
        )
        return self._answer_query(query)

    @explain_arguments
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
    ) -> Release[Any]:
        """Release the ``k`` most common of a column's public categories, with their counts.

        Parameters
        ----------
        column : str or Expression
            The column of public categories.
        k : int
            How many categories to report.
        within : float or str, optional
            The error allowed, in rows, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.

        Returns
        -------
        GroupRelease
            The categories with their numbers of rows, the most common first.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> table = pa.table({"city": ["Rome", "Rome", "Oslo"] * 900})
        >>> people = Dataset(table, categories={"city": ["Oslo", "Rome"]})
        >>> session = Session(people, budget=20)
        >>> list(session.top_k("city", 1, within=100).value)
        ['Rome']
        """
        query = stats.TopK(
            column,
            k,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
        )
        return self._answer_query(query)

    @explain_arguments
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
        """Find rough bounds for a column whose range is unknown.

        Parameters
        ----------
        column : str or Expression
            The numeric column.
        epsilon : float
            The privacy level.
        confidence : float, default 0.95
            The probability that no *empty* bin is mistaken for a filled one.
        smallest, largest : float, default 1 and 2**40
            The range of sizes to search, in the column's units. Do not read it off the data.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.

        Returns
        -------
        Release
            The pair of bounds, in the column's units.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}))
        >>> session = Session(people, budget=20)
        >>> session.bounds("age", epsilon=1, confidence=0.999999999).value
        (0.0, 128.0)
        """
        query = stats.ApproximateBounds(
            column, epsilon=epsilon, confidence=confidence, smallest=smallest, largest=largest, where=where
        )
        return self._answer_query(query)

    @explain_arguments
    def private_keys(
        self,
        column: Column,
        *,
        epsilon: float | Fraction,
        delta: float | Fraction,
        where: Where = None,
    ) -> Release[Any]:
        """Find the values of a column that enough units have, where the values are not public.

        Parameters
        ----------
        column : str or Expression
            The column of texts or numbers whose values are searched.
        epsilon : float
            The privacy level of the noisy counts.
        delta : float
            The probability that a key of one unit alone is shown. The budget must have a delta.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.

        Returns
        -------
        Release
            The tuple of keys shown, which are public from then on.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"city": ["Rome", "Oslo"] * 2000}))
        >>> session = Session(people, budget=(20, 1e-5))
        >>> session.private_keys("city", epsilon=1, delta=1e-6).value
        ('Oslo', 'Rome')
        """
        query = stats.PrivateKeys(column, epsilon=epsilon, delta=delta, where=where)
        return self._answer_query(query)

    @explain_arguments
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
        """Release mean and standard deviation of several columns, from one release per column.

        Parameters
        ----------
        columns : sequence of str or Expression
            The numeric columns.
        within : float or str, optional
            The error allowed, in the column's units, or a share of the answer such as ``"5%"``. Give either this or ``epsilon``.
        epsilon : float, optional
            A fixed privacy level instead of an accuracy.
        by : str, Expression, PrivateKeys or a list of these, optional
            Group by these columns: public categories, or private keys, which are found first.
        where : str or Expression, optional
            Keep only the rows for which this holds, such as ``"age >= 65"``.
        confidence : float, default 0.95
            The probability with which all intervals hold at once.
        max_epsilon : float, optional
            The most that an accuracy may cost. Default: all that is left in the budget.
        bounds : mapping from str to (float, float), optional
            The limits to which columns are clipped, in their units. Default: those declared for the columns.

        Returns
        -------
        GroupRelease
            Each statistic, by column and name.

        Raises
        ------
        InvalidRequest
            If the arguments do not fit together or the table's description cannot answer; nothing is spent.
        BudgetExceeded
            If the worst case is above ``max_epsilon`` or the budget; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), bounds={"age": (0, 99)})
        >>> session = Session(people, budget=20)
        >>> list(session.summary(["age"], within="20%").value)
        [('age', 'mean'), ('age', 'standard deviation')]
        """
        query = stats.Summary(
            columns,
            within=within,
            epsilon=epsilon,
            by=by,
            where=where,
            confidence=confidence,
            max_epsilon=self._find_cap(within, max_epsilon, by),
            bounds=bounds,
        )
        return self._answer_query(query)
