"""The SQL of a session: statements with an accuracy, and their prices."""

from __future__ import annotations

import importlib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from expost.core import (
    BudgetExceeded,
    InvalidRequest,
    Loss,
    MissingExtra,
    PlanContext,
    Query,
    QuestionCap,
    Receipt,
    Release,
    TargetNotMet,
    explain_arguments,
    share_parameters,
)
from expost.data import Dataset
from expost.ledger.ledger_account import LARGEST_QUESTION_CAP
from expost.session.price_quote import PriceQuote, guess_bill
from expost.stats import ReleaseCache

if TYPE_CHECKING:
    from expost.session.session import Session

__all__ = ["SqlMethods"]

_describe = share_parameters(
    {
        "text": "str\nOne SELECT, then the accuracy or the privacy level: ``ERROR WITHIN 5% AT CONFIDENCE 95%`` or "
        "``WITH EPSILON 0.1``, and perhaps ``AT MOST EPSILON 0.5`` and ``WITH DELTA 1e-6``. See docs/sql.md.",
        "dialect": '{"duckdb", "postgres", "spark"}, default "duckdb"\nThe dialect of SQL.',
        "tables": "mapping of str to table, optional\nPublic tables that the statement may join, by their names.",
        "bounds": "mapping of str to pair, optional\nPublic limits of columns that the statement makes, by their names.",
        "max_rows_per_unit": "int, optional\nThe most rows of one unit that count after a join of private tables. Default: "
        "the product of the limits of both.",
    },
    raises="""
    InvalidRequest
        If the statement is outside the subset, with the place, the reason and the nearest thing that works; nothing is spent.
    BudgetExceeded
        If the worst case is above the cap or the budget; nothing is spent.
    """,
)


class SqlMethods:
    """Statements in SQL about the tables of a session. The extra ``sql`` installs the parser."""

    dataset: Dataset
    tables: Mapping[str, Dataset]
    _cache: ReleaseCache
    _sql_views: dict[str, Dataset]

    @abstractmethod
    def view(self, dataset: Dataset) -> Session: ...
    @abstractmethod
    def ask(
        self, query: Query, *, request_id: str | None = None, keep: Callable[..., object] | None = None
    ) -> Release[Any]: ...
    @abstractmethod
    def _question_cap(self) -> QuestionCap: ...
    @abstractmethod
    def _paying_definitions(self) -> frozenset[str]: ...
    @abstractmethod
    def _own_receipts(self) -> Iterator[Receipt]: ...
    @abstractmethod
    def _account_note(self, worst_case: Loss) -> str | None: ...
    @abstractmethod
    def _note_filter(self, query: Any) -> str: ...

    def _read_sql(
        self,
        text: str,
        *,
        dialect: str,
        tables: Mapping[str, Any] | None,
        bounds: Mapping[str, Any] | None,
        max_rows_per_unit: int | None,
    ) -> tuple[Any, Any]:
        """Return a statement, and the session about its view."""
        statement = _load_sql().read_statement(
            text,
            {self.dataset.name or "data": self.dataset, **self.tables},
            dialect=dialect,
            public=tables,
            bounds=bounds,
            max_rows_per_unit=max_rows_per_unit,
            default_cap=self._question_cap,
            made=self._sql_views,
        )
        # A part of a table has no further views: it is asked as it is.
        own = self if statement.dataset is self.dataset else self.view(statement.dataset)
        return statement, own

    @explain_arguments
    @_describe
    def sql(
        self,
        text: str,
        *,
        dialect: str = "duckdb",
        tables: Mapping[str, Any] | None = None,
        bounds: Mapping[str, Any] | None = None,
        max_rows_per_unit: int | None = None,
        request_id: str | None = None,
        keep: Callable[..., object] | None = None,
    ) -> Any:
        """Answer a statement: one table with intervals, one receipt, one charge.

        Statistics of the same column are paid once, and a statement continues earlier releases. ``EXPLAIN PRICE`` before
        the statement returns its price, as ``sql_price`` does, and spends nothing.

        Parameters
        ----------
        request_id : str, optional
            As in ``ask``.
        keep : callable, optional
            As in ``ask``.

        Returns
        -------
        StatementRelease
            The table; of ``EXPLAIN PRICE``, a ``StatementPrice``.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> table = pa.table({"age": [30, 50] * 5000, "city": ["Rome", "Oslo"] * 5000})
        >>> people = Dataset(table, name="people", bounds={"age": (0, 100)}, categories={"city": ["Oslo", "Rome"]})
        >>> session = Session(people, budget=10)
        >>> release = session.sql("SELECT city, COUNT(*) AS n, AVG(age) AS age FROM people GROUP BY city ERROR WITHIN 5%")
        >>> [round(age, -1) for age in release.column("age")], release.receipt.outcome.value
        ([50.0, 30.0], 'certified')
        >>> session.sql("SELECT MEDAIN(age) FROM people WITH EPSILON 1")
        Traceback (most recent call last):
        expost.core.errors.InvalidRequest: Expected an aggregate of the subset, got 'MEDAIN'. Did you mean 'MEDIAN'?...
        """
        statement, session = self._read_sql(
            text, dialect=dialect, tables=tables, bounds=bounds, max_rows_per_unit=max_rows_per_unit
        )
        refusal: InvalidRequest | BudgetExceeded | TargetNotMet
        try:
            if statement.explain:
                return session._price_statement(statement)
            return session.ask(statement.query, request_id=request_id, keep=keep)
        except BudgetExceeded as error:
            expected, got, do = error._parts
            refusal = BudgetExceeded(_name_clauses(expected), got=got, do=_name_clauses(do))
        except TargetNotMet as error:
            refusal = TargetNotMet(_name_clauses(str(error)), error.release)
        except InvalidRequest as error:
            refusal = statement.mark(error)
        raise refusal

    @explain_arguments
    @_describe
    def sql_price(
        self,
        text: str,
        *,
        dialect: str = "duckdb",
        tables: Mapping[str, Any] | None = None,
        bounds: Mapping[str, Any] | None = None,
        max_rows_per_unit: int | None = None,
    ) -> Any:
        """Return what a statement would cost: its releases, their sensitivity, the worst and the likely price.

        Nothing is spent and no row is read.

        Returns
        -------
        StatementPrice

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, Session
        >>> session = Session(Dataset(pa.table({"age": [30, 50]}), name="people"), budget=1)
        >>> print(session.sql_price("SELECT COUNT(*) FROM people WITH EPSILON 0.5").quote)
        SELECT COUNT(*) FROM people: at most epsilon 0.5, probably about epsilon 0.5
        """
        statement, session = self._read_sql(
            text, dialect=dialect, tables=tables, bounds=bounds, max_rows_per_unit=max_rows_per_unit
        )
        try:
            return session._price_statement(statement)
        except InvalidRequest as error:
            refusal = statement.mark(error)
        raise refusal

    def _price_statement(self, statement: Any) -> Any:
        """Price a statement about this session's dataset."""
        query, dataset, above = statement.query, self.dataset, ""
        with self._cache.take_turn() as cache:
            context = PlanContext(cache, self._paying_definitions())
            try:
                plan = query.plan(dataset, context)
            except BudgetExceeded:
                if not isinstance(query.max_epsilon, QuestionCap):
                    raise
                # A price above the question cap is the answer, not a refusal.
                above = f"more than {_name_clauses(query.max_epsilon.note)}"
                query = replace(query, max_epsilon=LARGEST_QUESTION_CAP)
                plan = query.plan(dataset, context)
        sql = _load_sql()
        parts = sql.price_parts(plan)
        climbs = any(part.climbs for part in parts)
        likely = guess_bill(plan.worst_case, query.target, self._own_receipts(), climbs=climbs, question=query.question)
        quote = PriceQuote(
            query.question,
            plan.worst_case,
            likely,
            above_cap=above,
            account_note=self._account_note(plan.worst_case),
            filter_note=self._note_filter(query),
        )
        return sql.StatementPrice(quote, parts, sql.describe_unit(dataset), statement.groups)


def _name_clauses(text: str) -> str:
    """Return advice with clauses in place of arguments."""
    named = text.replace("max_epsilon epsilon", "max_epsilon")
    return re.sub(r"max_epsilon=?(?=(\d)?)", lambda found: "AT MOST EPSILON" + " " * bool(found[1]), named)


def _load_sql() -> Any:
    """Return the package that reads statements, which needs a parser that not everybody has installed."""
    try:
        return importlib.import_module("expost.sql")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("expost"):
            raise
        raise MissingExtra("sql", package=error.name or "sqlglot") from None
