"""Read a SELECT into a logical plan: groups, statistics, computed columns, and what is done with released values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from expost.data import Expression
from expost.data.canonical_cell import canonical_batch
from expost.data.evaluation import evaluate_filter
from expost.data.expression import ColumnName, Literal, Operation, Plain
from expost.sql.aggregate_reader import refuse_group
from expost.sql.formula_reader import FormulaReader, has_aggregate
from expost.sql.logical_plan import (
    Formula,
    GroupColumn,
    LogicalPlan,
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


@dataclass
class _SelectReader:
    """Reads one SELECT. Statistics that occur more than once are kept once."""

    source: SourceText
    tree: exp.Select
    relation: Relation
    private: bool
    written: Sequence[str]
    rows: RowReader = field(init=False)
    formulas: FormulaReader = field(init=False)
    groups: list[GroupColumn] = field(default_factory=list)
    outputs: list[OutputColumn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = self.relation.reader(self.source)
        self.formulas = FormulaReader(self.source, self.relation, self.rows, self.groups, self.outputs)

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
            formula = self.formulas.read(inner)
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
            None if having is None else self.formulas.read_condition(having.this),
            () if order is None else self._read_order(order),
            self._read_whole("limit"),
            self._read_whole("offset") or 0,
            distinct is not None,
        )
        if not self.formulas.aggregates and not self.groups:
            self.source.refuse(self.tree, "a statistic, such as COUNT(*)", do="Rows themselves are never shown")
        return replace(plan, aggregates=tuple(self.formulas.aggregates))

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
                items = [each.unalias() for each in self.tree.expressions if not has_aggregate(each)]
        elif distinct and not any(map(has_aggregate, self.tree.expressions)):
            items = [each.unalias() for each in self.tree.expressions]
        for item in items:
            node = self._resolve_item(item)
            expression = self.rows.read(node)
            if repr(expression) not in {repr(each.expression) for each in self.groups}:
                self.groups.append(self._group_column(node, expression))
        self.groups.sort(key=lambda each: each.values is None)  # private keys of several columns are found together

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
        if has_aggregate(node):
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
        if where is None or not isinstance(expression, ColumnName):
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
                formula = self.formulas.read(node, aliases=True)
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
