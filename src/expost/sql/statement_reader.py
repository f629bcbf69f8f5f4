"""Read a SELECT into a logical plan: groups, statistics, computed columns, and what is done with released values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import pyarrow as pa
from sqlglot import exp

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data import Expression
from expost.data.canonical_cell import canonical_batch
from expost.data.evaluation import evaluate_filter
from expost.data.expression import ColumnName, Literal, Operation, Plain, col
from expost.sql.aggregate_reader import AggregateReader, refuse_group
from expost.sql.logical_plan import (
    Aggregate,
    AggregateOf,
    Call,
    Constant,
    Formula,
    GroupColumn,
    KeyOf,
    LogicalPlan,
    OfKeys,
    OutputColumn,
    aggregates_in,
)
from expost.sql.refusal import Node, SourceText, check_arguments, find_place
from expost.sql.relation import Relation
from expost.sql.relation_reader import RelationReader
from expost.sql.row_expression import RowReader

__all__ = ["read_select"]

_SELECT = (
    "with_",
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "distinct",
    "kind",
)
_FORMULAS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_RISING = {exp.Round: "round", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt", exp.Abs: "abs"}
_KEEP_WHOLE = frozenset({"+", "-", "*", "abs", "nullif", "coalesce", "least", "greatest"})
_MOST_OUTPUTS = 100


def read_select(
    source: SourceText, tree: Node, reader: RelationReader, *, private: bool, written: Sequence[str] = ()
) -> LogicalPlan:
    """Return the logical plan of a statement.

    ``private`` allows groups whose values are not public. ``written`` are the columns as they were written, if that is known.
    """
    if not isinstance(tree, exp.Select):
        source.refuse(tree, "one SELECT without UNION", do="Ask one statement for each")
    check_arguments(source, tree, *_SELECT)
    reader = reader.with_views(tree)
    return _SelectReader(source, tree, reader.read_rows(tree), private, written).read()


def _replace_parts(expression: Expression, parts: Mapping[str, Expression]) -> Expression | None:
    """Return an expression with others in place of some of its parts; None if a column of the rows is left."""
    known = parts.get(repr(expression))
    if known is not None or isinstance(expression, Literal):
        return expression if known is None else known
    if not isinstance(expression, Operation):
        return None
    replaced = [_replace_parts(each, parts) for each in expression.arguments]
    kept = [each for each in replaced if each is not None]
    return Operation(expression.name, tuple(kept)) if len(kept) == len(replaced) else None


@dataclass
class _SelectReader:
    """Reads one SELECT. Statistics that occur more than once are kept once."""

    source: SourceText
    tree: exp.Select
    relation: Relation
    private: bool
    written: Sequence[str]
    rows: RowReader = field(init=False)
    groups: list[GroupColumn] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    outputs: list[OutputColumn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = self.relation.reader(self.source)

    def read(self) -> LogicalPlan:
        """Return the plan."""
        distinct = self.tree.args.get("distinct")
        if distinct is not None:
            check_arguments(self.source, distinct)
        if len(self.tree.expressions) > _MOST_OUTPUTS:
            self.source.refuse(self.tree, f"at most {_MOST_OUTPUTS} columns", do="Ask several statements")
        self._read_groups(distinct is not None)
        for place, node in enumerate(self.tree.expressions):
            inner = node.this if isinstance(node, exp.Alias) else node
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                self.source.refuse(inner, "statistics: rows themselves are never shown", do="Write COUNT(*) or AVG(x)")
            formula = self.read_formula(inner)
            name = node.alias or self._default_name(inner, place)
            self.outputs.append(OutputColumn(name, formula, find_place(node)))
        self._check_names()
        having, order = self.tree.args.get("having"), self.tree.args.get("order")
        plan = LogicalPlan(
            self.relation.dataset,
            self.relation.where,
            tuple(self.groups),
            (),
            tuple(self.outputs),
            None if having is None else self.read_formula(having.this, aliases=True),
            () if order is None else self._read_order(order),
            self._read_whole("limit"),
            self._read_whole("offset") or 0,
            distinct is not None,
        )
        if not self.aggregates and not self.groups:
            self.source.refuse(self.tree, "a statistic, such as COUNT(*)", do="Rows themselves are never shown")
        return replace(plan, aggregates=tuple(self.aggregates))

    def _default_name(self, node: Node, place: int) -> str:
        """Return the name of a column, or its text as it was written."""
        if isinstance(node, exp.Column):
            return node.name
        known = len(self.written) == len(self.tree.expressions)
        return self.written[place] if known else node.sql(dialect=self.source.dialect)

    def _check_names(self) -> None:
        seen: dict[str, None] = {}
        for output in self.outputs:
            names = [output.name] + (
                [f"{output.name} low", f"{output.name} high"] if aggregates_in(output.formula) else []
            )
            for name in names:
                if name.casefold() in seen or name.casefold() == "met":
                    self.source.refuse(output.place, "a name of its own for each column", got=name, do="Write AS name")
                seen[name.casefold()] = None

    # Groups --------------------------------------------------------------------------------------------------------

    def _read_groups(self, distinct: bool) -> None:
        group = self.tree.args.get("group")
        items: list[Node] = []
        if group is not None:
            check_arguments(self.source, group, "expressions", "all")
            items = list(group.expressions)
            if group.args.get("all"):
                items = [each.unalias() for each in self.tree.expressions if not self._has_aggregate(each)]
        elif distinct and not any(map(self._has_aggregate, self.tree.expressions)):
            items = [each.unalias() for each in self.tree.expressions]
        for item in items:
            node = self._resolve_item(item)
            expression = self.rows.read(node)
            if repr(expression) not in {repr(each.expression) for each in self.groups}:
                self.groups.append(self._group_column(node, expression))
        self.groups.sort(key=lambda each: each.values is None)  # private keys of several columns are found together

    @staticmethod
    def _has_aggregate(node: Node) -> bool:
        return node.find(exp.AggFunc) is not None

    def _resolve_item(self, item: Node) -> Node:
        """Return what an item of GROUP BY stands for: a place in the list, an alias, or an expression."""
        if isinstance(item, exp.Literal) and not item.is_string and str(item.this).isdigit():
            place = int(item.this) if len(item.this) < 6 else 0
            if not 1 <= place <= len(self.tree.expressions):
                self.source.refuse(
                    item, f"a place from 1 to {len(self.tree.expressions)}", do="Write the column's name"
                )
            return self._not_aggregate(item, self.tree.expressions[place - 1].unalias())
        if isinstance(item, exp.Column) and not item.table:
            aliased = [each for each in self.tree.expressions if isinstance(each, exp.Alias)]
            found = [each.this for each in aliased if each.alias.casefold() == item.name.casefold()]
            known = any(each.name.casefold() == item.name.casefold() for each in self.relation.columns)
            if (
                found
                and known
                and not (isinstance(found[0], exp.Column) and found[0].name.casefold() == item.name.casefold())
            ):
                self.source.refuse(
                    item, "a name that is either a column or an alias", got=item.name, do="Choose another alias"
                )
            if found:
                return self._not_aggregate(item, found[0])
        return item

    def _not_aggregate(self, item: Node, node: Node) -> Node:
        if self._has_aggregate(node):
            self.source.refuse(
                item, "a column of the rows to group by, not an aggregate", do="Group per person in a view"
            )
        return node

    def _group_column(self, node: Node, expression: Expression) -> GroupColumn:
        with self.source.point_at(node):
            kind = self.relation.facts.kind(expression)
        if kind is None or isinstance(expression, Literal):
            self.source.refuse(node, "a column to group by", do="Leave constants out")
        values = self.relation.facts.values(expression)
        if values is None and self.private:
            return GroupColumn(expression, None)
        if values is None:
            refuse_group(self.source, node, expression, kind)
        return GroupColumn(expression, self._possible_values(expression, tuple(values or ())))

    def _possible_values(self, expression: Expression, values: tuple[Plain, ...]) -> tuple[Plain, ...]:
        """Leave out public values that WHERE excludes by itself: their groups would be empty whatever the rows."""
        dataset, where = self.relation.dataset, self.relation.where
        if where is None or not isinstance(expression, ColumnName) or not dataset.stores(expression.name):
            return values
        parts = where.arguments if isinstance(where, Operation) and where.name == "AND" else (where,)
        own = [part for part in parts if part.columns() == frozenset([expression.name])]
        if not own:
            return values
        try:
            column = pa.array(values, dataset.key_type(expression))
        except (pa.ArrowException, OverflowError):  # public values that no row can have
            return values
        batch = canonical_batch(pa.record_batch({expression.name: column}))
        kept = np.logical_and.reduce([evaluate_filter(part, batch, {}) for part in own])
        return tuple(value for value, keep in zip(values, kept.tolist(), strict=True) if keep)

    # Formulas ------------------------------------------------------------------------------------------------------

    def read_formula(self, node: Node, *, aliases: bool = False) -> Formula:
        """Return what a column of the result, or a condition on released values, is computed from."""
        key = self._find_key(node, aliases=aliases)
        if key is not None:
            return key
        aggregate = self._statistics.read(node)
        if aggregate is not None:
            return self._keep_aggregate(aggregate)

        def read(part: Node) -> Formula:
            return self.read_formula(part, aliases=aliases)

        if isinstance(node, exp.Paren):
            return read(node.this)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.Neg):
            return self._read_constant(node, read)
        found = self._read_arithmetic(node, read) or self._read_condition(node, read) or self._compute_keys(node)
        if found is not None:
            return found
        self._refuse_formula(node)

    def _compute_keys(self, node: Node) -> Formula | None:
        """Return an expression of the labels of a group, such as CASE WHEN city = 'A' THEN 1 END; None if it is not one."""
        if self._has_aggregate(node) or not self.groups:
            return None
        try:
            expression = self.rows.read(node)
        except InvalidRequest:
            return None
        labels = {repr(each.expression): col(f"k{place}") for place, each in enumerate(self.groups)}
        replaced = _replace_parts(expression, labels)
        if replaced is None or not replaced.columns():
            return None
        return OfKeys(replaced, tuple(self.relation.dataset.key_type(each.expression) for each in self.groups))

    def _read_arithmetic(self, node: Node, read: Callable[[Node], Formula]) -> Formula | None:
        """Read a calculation with released values."""
        kind = type(node)
        if kind in _FORMULAS:
            check_arguments(self.source, node, "this", "expression", "typed", "safe")
            both = read(node.this), read(node.expression)
            if kind is exp.Div and node.args.get("typed") and all(map(self._counts, both)):
                self.source.refuse(
                    node, "a division of numbers with a fraction", do="Write CAST(COUNT(*) AS DOUBLE PRECISION) / b"
                )
            return Call(_FORMULAS[kind], both)
        if kind in _RISING:
            given = [node.this, *([node.args["decimals"]] if node.args.get("decimals") is not None else [])]
            check_arguments(self.source, node, "this", "decimals")
            return Call(_RISING[kind], tuple(map(read, given)))
        if isinstance(node, exp.Coalesce):
            self._check_replaced(node, read(node.this))
        if isinstance(node, exp.Coalesce | exp.Least | exp.Greatest):
            return Call(node.key, tuple(map(read, [node.this, *node.expressions])))
        if isinstance(node, exp.Nullif):
            return Call("nullif", (read(node.this), read(node.expression)))
        if isinstance(node, exp.Cast) and self._is_real(node.args["to"]):
            return Call("*", (Constant(1.0), read(node.this)))
        return None

    def _is_real(self, wanted: exp.DataType) -> bool:
        """Return whether a type holds all reals; that of NUMERIC in PostgreSQL does."""
        name = getattr(wanted.this, "name", "")
        decimal = name == "DECIMAL" and self.source.dialect == "postgres"
        return not wanted.expressions and (name in ("DOUBLE", "FLOAT") or decimal)

    def _check_replaced(self, node: Node, formula: Formula) -> None:
        """Refuse to replace what is never missing here: whether there were rows at all is not known."""
        kinds = {self.aggregates[place].kind for place in aggregates_in(formula)}
        if not kinds <= {"rows", "count", "units", "sum"}:
            self.source.refuse(
                node,
                "no COALESCE of a mean or a spread, which is a number for an empty group too",
                do="Select COUNT(*) as well, and use HAVING COUNT(*) > 10",
            )

    def _counts(self, formula: Formula) -> bool:
        """Return whether a formula is a whole number in SQL, whose quotient some dialects cut."""
        if isinstance(formula, AggregateOf):
            aggregate = self.aggregates[formula.index]
            whole = aggregate.kind == "sum" and self.relation.facts.is_whole(aggregate.columns[0])
            return whole or aggregate.kind in ("rows", "count", "units")
        if isinstance(formula, Call):
            return formula.name in _KEEP_WHOLE and all(map(self._counts, formula.arguments))
        return isinstance(formula, Constant) and isinstance(formula.value, int)

    def _read_constant(self, node: Node, read: Callable[[Node], Formula]) -> Formula:
        if isinstance(node, exp.Neg):
            inner = read(node.this)
            if isinstance(inner, Constant) and isinstance(inner.value, int | float):
                return Constant(-inner.value)
            return Call("-", (Constant(0), inner))
        value = self.rows.read(node)
        assert isinstance(value, Literal)
        return Constant(value.value)

    def _read_condition(self, node: Node, read: Callable[[Node], Formula]) -> Formula | None:
        """Read a condition on released values."""
        kind = type(node)
        if kind in _COMPARISONS:
            return Call(_COMPARISONS[kind], (read(node.this), read(node.expression)))
        if isinstance(node, exp.And | exp.Or):
            return Call(node.key.upper(), (read(node.this), read(node.expression)))
        if isinstance(node, exp.Not):
            return Call("NOT", (read(node.this),))
        if isinstance(node, exp.Between):
            check_arguments(self.source, node, "this", "low", "high")
            value = read(node.this)
            ends = Call(">=", (value, read(node.args["low"]))), Call("<=", (value, read(node.args["high"])))
            return Call("AND", ends)
        if isinstance(node, exp.In):
            check_arguments(self.source, node, "this", "expressions")
            if node.expressions:
                return Call("IN", tuple(map(read, [node.this, *node.expressions])))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Call("IS NULL", (read(node.this),))
        return None

    def _find_key(self, node: Node, *, aliases: bool) -> Formula | None:
        """Return the group or the output column that an expression stands for."""
        if aliases and isinstance(node, exp.Column) and not node.table:
            found = [each for each in self.outputs if each.name.casefold() == node.name.casefold()]
            if found:
                return found[0].formula
        if self._has_aggregate(node) or isinstance(node, exp.Literal) or not self.groups:
            return None
        try:
            expression = self.rows.read(node)
        except InvalidRequest:
            return None
        return next((KeyOf(k) for k, each in enumerate(self.groups) if repr(each.expression) == repr(expression)), None)

    def _refuse_formula(self, node: Node) -> NoReturn:
        """Refuse a column that is neither a group nor inside an aggregate, or an unknown function."""
        if isinstance(node, exp.Window):
            self.source.refuse(node, "no OVER: windows over rows are not released", do="Use GROUP BY")
        if isinstance(node, exp.Subquery | exp.Exists | exp.In | exp.Query):
            self.source.refuse(node, "no subquery here", do="Put it into FROM, one row per person, or ask it first")
        if isinstance(node, exp.Column):
            self.rows.read(node)  # an unknown column first
            self.source.refuse(
                node, "a column inside an aggregate, or one of GROUP BY", got=node.name, do=f"Write AVG({node.name})"
            )
        if isinstance(node, exp.AggFunc | exp.Anonymous | exp.WithinGroup | exp.Filter | exp.AnonymousAggFunc):
            name = str(node.this) if isinstance(node, exp.Anonymous) else node.key.upper()
            known = (
                "COUNT",
                "SUM",
                "AVG",
                "MEDIAN",
                "MODE",
                "STDDEV_POP",
                "VAR_POP",
                "CORR",
                "QUANTILE_CONT",
                "MIN",
                "MAX",
            )
            do = suggest_name(name, known) or "See docs/sql.md for them"
            self.source.refuse_function(node, "an aggregate of the subset", do=do)
        inside = "Put conditions on rows inside: SUM(CASE WHEN x > 1 THEN 1 ELSE 0 END)"
        if isinstance(node, exp.Case | exp.If):
            shown = "Write HAVING COUNT(*) > 10 to leave out groups"
            self.source.refuse(node, "no CASE of aggregates", do=f"{inside}. {shown}")
        self.source.refuse_function(node, "arithmetic with aggregates and groups", do=inside)

    # Aggregates ----------------------------------------------------------------------------------------------------

    @property
    def _statistics(self) -> AggregateReader:
        return AggregateReader(self.source, self.relation, self.rows, grouped=bool(self.groups))

    def _keep_aggregate(self, aggregate: Aggregate) -> AggregateOf:
        known = [each.key for each in self.aggregates]
        if aggregate.key not in known:
            self.aggregates.append(aggregate)
            known.append(aggregate.key)
        return AggregateOf(known.index(aggregate.key))

    # Released values -----------------------------------------------------------------------------------------------

    def _read_order(self, order: exp.Order) -> tuple[tuple[Formula, bool, bool], ...]:
        """Return formulas with whether each is descending, and whether missing values come first."""
        found = []
        for each in order.expressions:
            check_arguments(self.source, each, "this", "desc", "nulls_first")
            node = each.this
            if isinstance(node, exp.Var) and str(node.this).upper() == "ALL":
                flags = bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
                found += [(output.formula, *flags) for output in self.outputs]
                continue
            if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
                place = int(node.this) if len(node.this) < 6 else 0
                if not 1 <= place <= len(self.outputs):
                    self.source.refuse(node, f"a place from 1 to {len(self.outputs)}", do="Write the column's name")
                formula = self.outputs[place - 1].formula
            else:
                formula = self.read_formula(node, aliases=True)
            found.append((formula, bool(each.args.get("desc")), bool(each.args.get("nulls_first"))))
        return tuple(found)

    def _read_whole(self, name: str) -> int | None:
        """Return the number of LIMIT or OFFSET."""
        node = self.tree.args.get(name)
        if node is None:
            return None
        if isinstance(node, exp.Fetch):  # FETCH FIRST 3 ROWS ONLY
            check_arguments(self.source, node, "count", "direction", "limit_options")
            options = node.args.get("limit_options")
            tied = options is not None and (options.args.get("percent") or options.args.get("with_ties"))
            number = Literal(1) if node.args.get("count") is None else self.rows.read(node.args["count"])
            value = Literal(None) if tied else number
        elif isinstance(node, exp.Limit | exp.Offset):
            check_arguments(self.source, node, "expression")
            value = self.rows.read(node.expression)
        else:
            self.source.refuse(node, "LIMIT and a number", do="Write LIMIT 10")
        if not isinstance(value, Literal) or not isinstance(value.value, int) or value.value < 0 or value.value is True:
            self.source.refuse(node, "a whole number that is not negative", do=f"Write {name.upper()} 10")
        return value.value
