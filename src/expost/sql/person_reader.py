"""One row per person in a view: the aggregates of that person's rows, and the public limits of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from expost.data import Expression
from expost.data.expression import Literal, Operation, col
from expost.data.unit_aggregate import UnitAggregate
from expost.sql.expression_facts import LARGEST, ExpressionFacts
from expost.sql.refusal import Node, SourceText, check_arguments
from expost.sql.relation import Relation, RelationColumn, ViewMemo, find_column
from expost.sql.row_expression import RowReader

__all__ = ["read_persons"]

_PERSON_AGGREGATES = {exp.Sum: "sum", exp.Avg: "mean", exp.Min: "min", exp.Max: "max", exp.Count: "count"}
_ROWS = "(rows)"
_RESERVED = frozenset({"self", "bounds", "categories"})  # arguments of Dataset.per_unit


def read_persons(
    source: SourceText, query: exp.Select, relation: Relation, bounds: Mapping[str, Any], views: ViewMemo
) -> tuple[Relation, RowReader]:
    """Return a view with one row per person, the aggregates of that person's rows, and what reads its columns."""
    unit, group = relation.dataset.unit, query.args.get("group")
    rows = relation.reader(source)
    if group is not None:
        check_arguments(source, group, "expressions")
        items = [_resolve_item(source, query, each) for each in group.expressions]
    else:
        items = list(query.expressions) if query.args.get("distinct") else []
    by = [rows.read(each) for each in items]
    if unit.is_row or unit.window is not None or len(by) != 1 or repr(by[0]) != repr(col(unit.column or "")):
        wanted = f"GROUP BY {unit.column}" if not unit.is_row else "a table whose unit is an id"
        source.refuse(
            group if group is not None else query,
            f"one row per person in a view with aggregates: {wanted} alone",
            do="Ask for other aggregates in the statement itself, and compute with what it releases",
        )
    persons = _PersonAggregates(source, relation, dict(bounds))
    inner = RowReader(source, relation.facts, lambda node: find_column(source, relation.columns, node))
    reading = _PersonReader(persons, inner, query)
    made = {name: (aggregate, limits) for name, aggregate, limits in reading.collect()}
    made = made or {_ROWS: (UnitAggregate("count"), None)}  # SELECT id ... GROUP BY id
    limited = {name: limits for name, (_, limits) in made.items() if limits is not None}
    with source.point_at(query):
        dataset = views.find(
            ("per unit", limited, made),
            [relation.filtered()],
            lambda: relation.filtered().per_unit(bounds=limited, **{name: each for name, (each, _) in made.items()}),
        )
    columns = tuple(RelationColumn("", each, col(each)) for each in dataset.schema if each != _ROWS)
    outer = Relation(dataset, columns, None, bounds)

    def find(node: exp.Column) -> Expression:
        found = rows.find(node)
        if repr(found) != repr(by[0]):
            source.refuse(node, "the id, or an aggregate, in a view per person", do="Write MAX(x) AS x")
        return found

    return outer, RowReader(source, ExpressionFacts(dataset, bounds), find, reading.find)


def _resolve_item(source: SourceText, query: exp.Select, item: Node) -> Node:
    """Return what an item of GROUP BY stands for: a place in the list, an alias, or itself."""
    if isinstance(item, exp.Literal) and not item.is_string and str(item.this).isdigit():
        place = int(item.this) if len(item.this) < 6 else 0
        if not 1 <= place <= len(query.expressions):
            source.refuse(item, f"a place from 1 to {len(query.expressions)}", do="Write the id")
        return query.expressions[place - 1].unalias()
    if isinstance(item, exp.Column) and not item.table:
        named = [each.this for each in query.expressions if isinstance(each, exp.Alias) and each.alias == item.name]
        return named[0] if named else item
    return item


@dataclass(frozen=True)
class _PersonAggregates:
    """How the aggregates of a person's rows are made and bounded."""

    source: SourceText
    relation: Relation
    bounds: Mapping[str, Any]

    def make(self, node: Node, rows: RowReader, name: str) -> tuple[UnitAggregate, Any]:
        """Return an aggregate and the public limits of its values."""
        if isinstance(node, exp.Filter):
            return self._make_filtered(node, rows, name)
        function = _PERSON_AGGREGATES.get(type(node))
        if function is None:
            self.source.refuse(
                node, "COUNT, SUM, AVG, MIN or MAX of a person's rows", got=node.key.upper(), do="Use one of them"
            )
        check_arguments(self.source, node, "this", "big_int", "expressions")
        if isinstance(node.this, exp.Distinct) or node.expressions:
            self.source.refuse(node, "an aggregate of one column, without DISTINCT", do="Write COUNT(*) or SUM(x)")
        most, declared = self.most_rows(), self.bounds.get(name)
        if isinstance(node, exp.Count):
            limits = declared or (None if most is None else (0, most))
            if isinstance(node.this, exp.Star | exp.Literal):
                return UnitAggregate("count"), limits
            value = rows.read(node.this)
            with self.source.point_at(node):
                rows.facts.kind(value)
            counted = Operation("CASE", (value.is_missing(), Literal(None), Literal(1)))
            return UnitAggregate("count", counted), limits
        value = rows.read(node.this)
        with self.source.point_at(node):
            ends = declared or rows.facts.limits(value)
        if declared is None and function == "sum" and ends is not None:
            low, high = ends
            ends = None if most is None else (min(low, low * most), max(high, high * most))
            ends = None if ends is None or max(map(abs, ends)) > LARGEST else ends
        if ends is not None and declared is None:
            ends = tuple(map(float, ends)) if ends[0] < ends[1] else None
        if ends is None and function in ("sum", "mean"):
            missing = sorted(value.columns() - set(self.relation.dataset.bounds))
            line = f"[bounds] {missing[0]} = [LOW, HIGH]" if missing else "[unit] max_rows_per_unit = 10"
            self.source.refuse(
                node,
                f"public limits of {name}",
                do=f'Add to the description: {line}; or pass session.sql(..., bounds={{"{name}": (0, 1000)}})',
            )
        return UnitAggregate(function, value), ends

    def _make_filtered(self, node: exp.Filter, rows: RowReader, name: str) -> tuple[UnitAggregate, Any]:
        """Return an aggregate of the rows that pass a condition: others are as if their value were missing."""
        condition = rows.read_condition(node.expression.this)
        found, limits = self.make(node.this, rows, name)
        value = Literal(1) if found.column is None else found.column
        return UnitAggregate(found.function, Operation("CASE", (condition, value, Literal(None)))), limits

    def most_rows(self) -> int | None:
        """Return the most rows of one person that statistics count."""
        dataset = self.relation.dataset
        groups, each = dataset.max_groups_per_unit, dataset.max_rows_per_group
        together = None if groups is None or each is None else groups * each
        limits = [most for most in (dataset.max_rows_per_unit, together) if most is not None]
        return min(limits) if limits else None


@dataclass(frozen=True)
class _PersonReader:
    """Gives each aggregate of a view per person the name of a column."""

    persons: _PersonAggregates
    rows: RowReader
    query: exp.Select
    names: dict[str, str] = field(default_factory=dict)

    def collect(self) -> list[tuple[str, UnitAggregate, Any]]:
        """Return name, aggregate and limits of each aggregate of the view, each once."""
        made: list[tuple[str, UnitAggregate, Any]] = []
        places: list[tuple[Node, str]] = [(each, each.alias) for each in self.query.expressions]
        if self.query.args.get("having") is not None:
            places.append((self.query.args["having"], ""))
        taken = {self.persons.relation.dataset.unit.column, *_RESERVED}
        for place, alias in places:
            for found in place.find_all(exp.AggFunc):
                node = found.parent if isinstance(found.parent, exp.Filter) and found.arg_key == "this" else found
                key = node.sql()
                if key in self.names:
                    continue
                whole = isinstance(place, exp.Alias) and place.this is node
                name = alias if whole and alias and alias not in taken else f"{key} of a person"
                taken.add(name)
                self.names[key] = name
                made.append((name, *self.persons.make(node, self.rows, alias if whole and alias else name)))
        return made

    def find(self, node: Node) -> Expression:
        """Return the column that holds an aggregate."""
        name = self.names.get(node.sql())
        if name is None:
            source = self.persons.source
            source.refuse(node, "FILTER after COUNT, SUM, AVG, MIN or MAX", do="Write SUM(x) FILTER (WHERE c)")
        return col(name)
