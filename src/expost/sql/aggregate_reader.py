"""Read the aggregates of a statement: counts, sums, means, spreads, quantiles, modes and bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from expost.core import InvalidRequest
from expost.data import Expression, Kind
from expost.data.clamp import Clamp
from expost.data.expression import ColumnName, Literal, Operation, col
from expost.sql.logical_plan import Aggregate
from expost.sql.refusal import Node, SourceText, check_arguments, find_place
from expost.sql.relation import Relation, plain_name
from expost.sql.row_expression import RowReader

__all__ = ["AggregateReader", "refuse_group"]

_SPREADS = {
    exp.VariancePop: "variance",
    exp.Variance: "sample variance",
    exp.StddevPop: "std",
    exp.Stddev: "sample std",
    exp.StddevSamp: "sample std",
}
_NUMBERS = {exp.Sum: "sum", exp.Avg: "mean", exp.Median: "quantile", **_SPREADS}


@dataclass(frozen=True)
class AggregateReader:
    """Reads the aggregates of the rows of one relation; ``grouped`` says whether there are groups."""

    source: SourceText
    relation: Relation
    rows: RowReader
    grouped: bool

    def read(self, node: Node) -> Aggregate | None:
        """Return a statistic, or None if a part of the statement is not one."""
        place = find_place(node)
        if isinstance(node, exp.Filter):
            inner = self.read(node.this)
            if inner is None:
                return None
            condition = self.rows.read_condition(node.expression.this)
            return replace(inner, where=condition if inner.where is None else inner.where & condition)
        with self.source.point_at(node):
            if isinstance(node, exp.Count):
                return replace(self._read_count(node), place=place)
            if isinstance(node, exp.ApproxDistinct):
                check_arguments(self.source, node, "this")
                return replace(self._read_distinct(exp.Distinct(expressions=[node.this])), place=place)
            if isinstance(node, exp.CountIf):
                check_arguments(self.source, node, "this")
                return Aggregate("rows", where=self.rows.read_condition(node.this), place=place)
            found = self._read_numbers(node)
        return None if found is None else replace(found, place=place)

    def _read_numbers(self, node: Node) -> Aggregate | None:
        kind = type(node)
        if kind in _NUMBERS:
            check_arguments(self.source, node, "this")
            column, bounds = self._read_column(node.this)
            share = Fraction(1, 2) if kind is exp.Median else None
            return Aggregate(_NUMBERS[kind], (column,), None, (bounds,), share)
        if isinstance(
            node, exp.Quantile | exp.ApproxQuantile | exp.PercentileCont | exp.PercentileDisc | exp.WithinGroup
        ):
            return self._read_quantile(node)
        if isinstance(node, exp.CovarPop | exp.Corr):
            check_arguments(self.source, node, "this", "expression")
            columns = [self._read_column(each) for each in (node.this, node.expression)]
            name = "correlation" if isinstance(node, exp.Corr) else "covariance"
            return Aggregate(name, tuple(each for each, _ in columns), None, tuple(ends for _, ends in columns))
        if isinstance(node, exp.CovarSamp):
            self.source.refuse(node, "COVAR_POP, divided by the number of rows", do="Write COVAR_POP(x, y)")
        if isinstance(node, exp.Mode) and node.this is not None:
            check_arguments(self.source, node, "this")
            return self._read_mode(node.this)
        if isinstance(node, exp.Min | exp.Max):
            check_arguments(self.source, node, "this")
            if self.grouped:
                self.source.refuse(
                    node,
                    "MIN and MAX without groups: they are rough bounds of all rows",
                    do="Write QUANTILE_CONT(x, 0.99)",
                )
            value = self.rows.read(node.this)
            if not (self.relation.facts.kind(value) or Kind.TEXT).is_number:
                self.source.refuse(node.this, "a column of numbers", do="Order matters for numbers only")
            limits = self.relation.facts.limits(value)
            ends = None if limits is None else (float(limits[0]), float(limits[1]))
            return Aggregate("lower bound" if isinstance(node, exp.Min) else "upper bound", (value,), None, (ends,))
        return None

    def _read_count(self, node: exp.Count) -> Aggregate:
        check_arguments(self.source, node, "this", "big_int", "expressions")
        if node.expressions:
            self.source.refuse(node, "COUNT of one column", do="Write COUNT(*)")
        if isinstance(node.this, exp.Distinct):
            return self._read_distinct(node.this)
        if isinstance(node.this, exp.Star):
            check_arguments(self.source, node.this)
            return Aggregate("rows")
        value, unit = self.rows.read(node.this), self.relation.dataset.unit
        constant = isinstance(value, Literal) and value.value is not None
        if constant or (not unit.is_row and repr(value) == repr(col(unit.column or ""))):
            return Aggregate("rows")  # rows without an id belong to nobody, and are never counted
        kind = self.relation.facts.kind(value)
        if kind is None or not kind.is_number:
            return Aggregate("rows", where=~value.is_missing())
        return Aggregate("count", (value,), None, (self._bounds_of(value),))

    def _read_distinct(self, node: exp.Distinct) -> Aggregate:
        check_arguments(self.source, node, "expressions")
        unit = self.relation.dataset.unit
        columns = list(map(self.rows.read, node.expressions))
        if (
            unit.is_row
            or unit.window is not None
            or len(columns) != 1
            or repr(columns[0]) != repr(col(unit.column or ""))
        ):
            do = f"Write COUNT(DISTINCT {unit.column})"
            if unit.is_row:
                do = "Declare the id as the unit: [unit] column = ..."
            elif unit.window is not None:
                do = f"Write COUNT(*): the unit is {unit}, so persons of several windows are not one"
            self.source.refuse(node, "COUNT(DISTINCT) of the id of the unit alone", do=do)
        # One row per person: the rows are the persons.
        return Aggregate("rows" if self.grouped and self.relation.dataset.max_rows_per_unit == 1 else "units")

    def _read_quantile(self, node: Node) -> Aggregate | None:
        """Read a quantile in one of its forms, or MODE() WITHIN GROUP."""
        if isinstance(node, exp.WithinGroup):
            order = node.expression
            ordered = order.expressions[0] if isinstance(order, exp.Order) and len(order.expressions) == 1 else None
            if ordered is None or ordered.args.get("desc"):
                self.source.refuse(node, "ORDER BY one column, ascending, in WITHIN GROUP", do="Write (ORDER BY x)")
            if isinstance(node.this, exp.Mode) and node.this.this is None:
                return self._read_mode(ordered.this)
            if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
                return None
            value, share = ordered.this, node.this.this
        else:
            value, share = node.this, node.args.get("quantile") or node.args.get("expression")
        number = self.rows.read(share) if share is not None else Literal(None)
        if not isinstance(number, Literal) or not isinstance(number.value, int | float) or not 0 < number.value < 1:
            self.source.refuse(
                share if share is not None else node, "a share between 0 and 1", do="Write 0.5 for the median"
            )
        column, bounds = self._read_column(value)
        return Aggregate("quantile", (column,), None, (bounds,), Fraction(str(number.value)))

    def _read_mode(self, node: Node) -> Aggregate:
        value = self.rows.read(node)
        try:
            self.relation.dataset.axis(value)
        except InvalidRequest:
            name = plain_name(value)
            do = f"Add to the description: [categories] {name} = [1, 2, 3]" if name else "Name a column of the table"
            self.source.refuse(node, "a column with public values in MODE", do=do)
        return Aggregate("mode", (value,))

    def _read_column(self, node: Node) -> tuple[Expression, tuple[float, float] | None]:
        """Return a column of numbers with the limits to which it is clipped, None for those that are declared."""
        if isinstance(node, exp.Distinct):
            self.source.refuse(
                node, "no DISTINCT in this aggregate", do="Leave it out, or aggregate per person in a view"
            )
        value = self.rows.read(node)
        kind = self.relation.facts.kind(value)
        if kind is Kind.BOOLEAN and self.source.dialect == "duckdb":  # a truth counts as 0 or 1
            value, kind = Operation("integer", (value + 0,)), Kind.INTEGER
        if kind is None or not kind.is_number or kind is Kind.BOOLEAN:
            held = "nothing but NULL" if kind is None else f"{kind.value} values"
            do = "Write CAST(x AS INTEGER)" if kind is Kind.BOOLEAN else "Write CAST(x AS DOUBLE)"
            self.source.refuse(node, f"a column of numbers; it holds {held}", do=do)
        if isinstance(value, Literal):
            value = Operation("+", (value, Literal(0)))
        bounds = self._bounds_of(value)
        if bounds is None and not self._declared(value):
            unknown = self._without_bounds(value)
            self.source.refuse(
                node,
                f"public bounds of {unknown}" if unknown else "public bounds of this expression",
                do=f"Add to the description: [bounds] {unknown.split('.', 1)[-1]} = [LOW, HIGH]"
                if unknown
                else "Write LEAST(GREATEST(x, 0), 100)",
            )
        if bounds is not None:
            with self.source.point_at(node):
                Clamp.of(bounds)
        # Whole numbers in SQL stay exact: the data layer would take the result of arithmetic for a real number.
        if kind is Kind.REAL and self.relation.facts.is_whole(value):
            value = Operation("integer", (value,))
        return value, bounds

    def _declared(self, value: Expression) -> bool:
        return isinstance(value, ColumnName) and value.name in self.relation.dataset.bounds

    def _bounds_of(self, value: Expression) -> tuple[float, float] | None:
        """Return limits that follow from those of columns and constants; None if they are declared, or unknown."""
        if self._declared(value) or self.relation.facts.kind(value) is Kind.BOOLEAN:
            return None
        limits = self.relation.facts.limits(value)
        if limits is None:
            return None
        low, high = (int(end) if end.denominator == 1 else float(end) for end in limits)
        if low < high:
            return low, high
        return (min(low, 0), max(high, 0)) if low else (0, 1)

    def _without_bounds(self, value: Expression) -> str:
        """Return a column of an expression without public bounds; empty if all have some."""
        facts = self.relation.facts
        numbers = (name for name in sorted(value.columns()) if (facts.kind(col(name)) or Kind.TEXT).is_number)
        return next((name for name in numbers if facts.limits(col(name)) is None), "")


def refuse_group(source: SourceText, node: Node, expression: Expression, kind: Kind) -> NoReturn:
    """Refuse a group without public values, with the line of the description that would declare them."""
    name = expression.name if isinstance(expression, ColumnName) else sorted(expression.columns() or {"x"})[0]
    name = name.split(".", 1)[-1]  # without the table that a join adds
    if kind is Kind.REAL or (kind is Kind.INTEGER and not isinstance(expression, ColumnName)):
        line = f"Write bin({name}, 0, 100, 10), or declare bounds and group by FLOOR({name} / 10)"
    elif kind is Kind.TIME or (isinstance(expression, Operation) and expression.name in ("year", "date", "date_trunc")):
        line = f'Add the range of the time to the description: [bounds] {name} = ["2024-01-01", "2024-12-31"]'
    else:
        shown = '["A", "B"]' if kind is Kind.TEXT else "[1, 2, 3]"
        line = f"Add to the description: [categories] {name} = {shown}"
    source.refuse(node, "public values to group by", do=f"{line}; or find frequent values privately: WITH DELTA 1e-6")
