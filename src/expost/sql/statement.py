"""From the text of a statement to a query: parse, plan, and share the accuracy asked for among the statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from expost.core import BudgetExceeded, InvalidRequest, QuestionCap
from expost.data import Dataset
from expost.data.axis import Categories
from expost.sql.accuracy_clause import AccuracyClauses, Tolerance
from expost.sql.logical_plan import AggregateOf, LogicalPlan, aggregates_in, coefficients_of
from expost.sql.quotient import replace_quotients
from expost.sql.refusal import SourceText
from expost.sql.relation import ViewMemo
from expost.sql.relation_reader import RelationReader
from expost.sql.statement_parser import parse_statement
from expost.sql.statement_part import AskedError, divide_into_parts
from expost.sql.statement_query import StatementQuery
from expost.sql.statement_reader import read_select
from expost.stats.private_keys import PrivateKeys

__all__ = ["Statement", "read_statement"]

_KEYS_SHARE = Fraction(1, 4)  # of the epsilon or cap: for finding private keys


@dataclass(frozen=True)
class Statement:
    """A statement that can be asked: a query, the view that it is about, and whether only its price is wanted.

    Parameters
    ----------
    query : StatementQuery
        What is asked.
    dataset : Dataset
        The table or view that it is about.
    explain : bool
        Whether the statement begins with EXPLAIN PRICE.
    source : SourceText
        Its text.
    """

    query: StatementQuery
    dataset: Dataset
    explain: bool
    source: SourceText

    @property
    def groups(self) -> int:
        """Return the number of groups by public values; private keys count as one."""
        return self.query.logical.public_groups

    def mark(self, error: InvalidRequest) -> InvalidRequest:
        """Return a refusal by the plan of a statistic with the place of that statistic; other refusals as they are.

        Parameters
        ----------
        error : InvalidRequest
            What was raised when the statement was asked or priced.
        """
        aggregates = self.query.logical.aggregates
        places = [(replace(self.query, parts=(part,)), aggregates[part.places[0]].place) for part in self.query.parts]
        for query, place in [*places, (self.query, aggregates[0].place if aggregates else 0)]:
            try:
                query.plan(self.dataset)
            except InvalidRequest as own:
                expected, got, do = own._parts
                if expected == error._parts[0]:
                    return self.source.refusal(place, expected, do=do, got=got)
            except BudgetExceeded:
                continue
        return error


def read_statement(
    text: str,
    tables: Mapping[str, Dataset],
    *,
    dialect: str = "duckdb",
    public: Mapping[str, Any] | None = None,
    bounds: Mapping[str, Any] | None = None,
    max_rows_per_unit: int | None = None,
    default_cap: Callable[[], QuestionCap | Fraction] | None = None,
    made: dict[str, Dataset] | None = None,
) -> Statement:
    """Read a statement about private tables. Nothing is spent and no row is read.

    Parameters
    ----------
    text : str
        The statement.
    tables : mapping of str to Dataset
        The private tables by their names.
    dialect : {"duckdb", "postgres", "spark"}, default "duckdb"
        The dialect of SQL.
    public : mapping of str to table, optional
        Public tables that may be joined, by their names.
    bounds : mapping of str to pair, optional
        Public limits of columns that the statement makes, by their names.
    max_rows_per_unit : int, optional
        The most joined rows of one unit that count. Default: the product of the limits of the joined tables.
    default_cap : callable, optional
        Returns the epsilon that an accuracy may cost where the statement has no cap. Default: 1.
    made : dict of str to Dataset, optional
        Joins and tables of persons that earlier statements made, to continue their releases. It is added to.

    Returns
    -------
    Statement

    Raises
    ------
    InvalidRequest
        If the statement is outside the subset. The error has the place, the reason and the nearest thing that works.

    Examples
    --------
    >>> import pyarrow as pa
    >>> people = Dataset(pa.table({"age": [41, 17]}), name="people")
    >>> read_statement("SELECT AVG(age) FROM people ERROR WITHIN 5%", {"people": people})
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected public bounds of age. Add to the description: [bounds] age = [LOW, HIGH]...
    """
    parsed = parse_statement(text, dialect=dialect)
    source, clauses = parsed.source, parsed.clauses
    views = ViewMemo({} if made is None else made)
    if public is not None and not isinstance(public, Mapping):
        raise InvalidRequest("Expected public tables by their names", got=public, do='Pass tables={"hubs": hubs}')
    reader = RelationReader(source, tables, dict(public or {}), _check_bounds(bounds), max_rows_per_unit, made=views)
    try:
        plan = read_select(
            source, parsed.tree, reader, private=clauses.delta is not None, written=parsed.written_columns()
        )
        plan = replace_quotients(plan)
    except RecursionError:
        source.refuse(0, "fewer expressions inside each other", do="Use views: WITH v AS (SELECT ...)")
    query = _build_query(source, parsed.question, plan, clauses, default_cap)
    return Statement(query, plan.dataset, parsed.explain, source)


def _check_bounds(bounds: Any) -> dict[str, Any]:
    """Return limits of new columns; raise if they are not pairs of numbers."""
    if bounds is not None and not isinstance(bounds, Mapping):
        raise InvalidRequest("Expected bounds by column", got=bounds, do='Pass bounds={"total": (0, 1000)}')
    for name, pair in (bounds or {}).items():
        ends = list(pair) if isinstance(pair, tuple | list) else []
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
        if len(ends) != 2 or not numbers or not abs(ends[0]) + abs(ends[1]) < float("inf") or not ends[0] < ends[1]:
            raise InvalidRequest(f"Expected bounds of {name} as (low, high)", do='Pass bounds={"total": (0, 1000)}')
    return dict(bounds or {})


def _build_query(
    source: SourceText,
    question: str,
    plan: LogicalPlan,
    clauses: AccuracyClauses,
    default_cap: Callable[[], QuestionCap | Fraction] | None,
) -> StatementQuery:
    """Return the query of a plan, with the accuracy or the price that the clauses state."""
    private = [each for each in plan.groups if each.values is None]
    needs = bool(plan.aggregates or private)
    if needs and not clauses.within and clauses.epsilon is None:
        source.refuse(
            len(source.text.rstrip().rstrip(";")),
            "an accuracy or a privacy level after the statement",
            do="Add ERROR WITHIN 5% AT CONFIDENCE 95%, or WITH EPSILON 0.1",
        )
    if clauses.delta is not None and not private:
        source.refuse(clauses.places["delta"], "no delta: all groups are public", do="Leave WITH DELTA out")
    _check_limits(source, plan)
    errors = _share_tolerances(source, plan, clauses)
    if plan.public_groups == 0:  # WHERE excludes every public group: there is nothing to release
        return StatementQuery(question, plan, (), confidence=clauses.confidence, where=plan.where, epsilon=1)
    epsilon, cap = clauses.epsilon, clauses.max_epsilon
    if epsilon is None and needs and cap is None:
        cap = Fraction(1) if default_cap is None else default_cap()
    keys: list[Any] = [Categories.of(each.expression, each.values) for each in plan.groups if each.values is not None]
    if private:
        if clauses.within and not errors:  # keys alone
            source.refuse(
                clauses.places["within"], "WITH EPSILON, where only keys are asked for", do="Write WITH EPSILON 1"
            )
        total = epsilon if epsilon is not None else cap
        assert total is not None
        part = Fraction(total) * (_KEYS_SHARE if plan.aggregates else 1)
        columns = tuple(each.expression for each in private)
        keys.append(PrivateKeys(columns if len(columns) > 1 else columns[0], epsilon=part, delta=clauses.delta))
        rest = Fraction(total) - part
        if epsilon is not None:
            epsilon = rest or Fraction(1)  # without statistics it is spent on nothing
        else:
            cap = QuestionCap(rest, cap.source) if isinstance(cap, QuestionCap) else rest
    if not needs:
        epsilon, cap = Fraction(1), None
    measures = [each for each in errors.values()]
    terms: dict[str, Any] = {"within": measures[0].within, "max_epsilon": cap} if measures else {"epsilon": epsilon}
    return StatementQuery(
        question,
        plan,
        divide_into_parts(plan.aggregates, errors, plan.where),
        confidence=clauses.confidence,
        where=plan.where,
        by=keys or None,
        **terms,
    )


def _check_limits(source: SourceText, plan: LogicalPlan) -> None:
    """Refuse statistics of rows where one person may have any number of them."""
    dataset = plan.dataset
    together = dataset.max_groups_per_unit is not None and dataset.max_rows_per_group is not None
    if dataset.unit.is_row or dataset.max_rows_per_unit is not None or together:
        counted = next((each for each in plan.aggregates if each.kind == "units"), None)
        grouped = plan.groups and not dataset.unit.is_row and dataset.max_groups_per_unit is None
        if counted is not None and grouped:
            source.refuse(
                counted.place,
                f"a limit on the groups of one {dataset.unit.column}",
                do="Add to the description: [unit] max_groups_per_unit = 3",
            )
        return
    unlimited = next((each for each in plan.aggregates if each.kind != "units"), None)
    if unlimited is not None or any(each.values is None for each in plan.groups):
        source.refuse(
            unlimited.place if unlimited is not None else 0,
            f"a limit on the rows of one {dataset.unit.column}",
            do="Add to the description: [unit] max_rows_per_unit = 10",
        )


def _share_tolerances(source: SourceText, plan: LogicalPlan, clauses: AccuracyClauses) -> dict[int, AskedError]:
    """Return the error allowed for each aggregate, from those of the columns of the result."""
    if not clauses.within:
        _check_kinds(source, plan, {})
        return {}
    measured = [each for each in plan.outputs if aggregates_in(each.formula)]
    given = list(clauses.within)
    if len(given) > 1 and len(given) != len(measured):
        source.refuse(
            given[0].place,
            f"one error for all columns, or {len(measured)}: one for each column with a statistic",
            got=len(given),
            do="Write ERROR WITHIN 5%",
        )
    found: dict[int, AskedError] = {}
    for output, tolerance in zip(measured, given if len(given) > 1 else given * len(measured), strict=True):
        _ask_formula(source, output.formula, tolerance, found, plan)
    for formula in [each for each in (plan.having, *(order[0] for order in plan.order)) if each is not None]:
        for place in sorted(aggregates_in(formula) - set(found)):
            if len(given) > 1:
                source.refuse(
                    plan.aggregates[place].place,
                    "a statistic that is selected",
                    do="Select it, with an error of its own",
                )
            _ask_formula(source, AggregateOf(place), given[0], found, plan)
    _check_kinds(source, plan, found)
    return found


def _ask_formula(
    source: SourceText, formula: Any, tolerance: Tolerance, found: dict[int, AskedError], plan: LogicalPlan
) -> None:
    """Note the error of each aggregate of a formula: a share is that of each, an amount is divided."""
    places = aggregates_in(formula)
    amount = tolerance.amount
    if not tolerance.relative:
        factors = coefficients_of(formula)
        if factors is None:
            source.refuse(
                tolerance.place,
                "a share such as 5%: how the errors of this column add up depends on the answers",
                do="Write ERROR WITHIN 5%, which is then that of each statistic in the column",
            )
        total = sum(map(abs, factors.values()), Fraction(0))
        amount = amount / total if total else amount
    for place in sorted(places):
        known, asked = found.get(place), AskedError(amount, tolerance.relative)
        if known is not None and known.relative != asked.relative:
            source.refuse(
                plan.aggregates[place].place,
                "one kind of error for a statistic that is in two columns",
                do="Write shares for both",
            )
        found[place] = asked if known is None or asked.amount < known.amount else known


def _check_kinds(source: SourceText, plan: LogicalPlan, errors: Mapping[int, AskedError]) -> None:
    """Refuse errors that a statistic cannot have."""
    for place, each in enumerate(plan.aggregates):
        error = errors.get(place)
        if error is None:
            continue
        if each.kind in ("lower bound", "upper bound"):
            source.refuse(
                each.place, "WITH EPSILON for MIN and MAX, whose error is not known", do="Write QUANTILE_CONT(x, 0.99)"
            )
        if each.kind == "mode" and error.relative:
            source.refuse(each.place, "an error in rows for MODE", do="Write ERROR WITHIN 100, or WITH EPSILON 0.1")
