"""Read FROM: tables, views, joins on the id of the unit, joins with public tables, and one row per person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from expost.core.argument import suggest_name
from expost.data import Dataset, Expression
from expost.data.data_source import public_table
from expost.data.expression import Literal, Operation, col
from expost.data.unit_aggregate import UnitAggregate
from expost.sql.expression_facts import ExpressionFacts
from expost.sql.refusal import Node, SourceText
from expost.sql.relation import Relation, RelationColumn, find_column, plain_name
from expost.sql.row_expression import RowReader, check_arguments

__all__ = ["RelationReader", "split_conjunction"]

_UNNAMED = "data"
_DEEPEST = 20  # views inside each other
_PERSON_AGGREGATES = {exp.Sum: "sum", exp.Avg: "mean", exp.Min: "min", exp.Max: "max", exp.Count: "count"}
_MATCH = "(matched)"


@dataclass(frozen=True)
class RelationReader:
    """Reads what statements name in FROM.

    ``private`` are the tables of the session, ``public`` the tables that anyone may see, by their names; ``views`` are the
    common tables of the statement. ``joined_rows`` are the most joined rows of one unit that count.
    """

    source: SourceText
    private: Mapping[str, Dataset]
    public: Mapping[str, Any]
    bounds: Mapping[str, Any] = field(default_factory=dict)
    joined_rows: int | None = None
    views: Mapping[str, Node] = field(default_factory=dict)
    depth: int = 0

    def with_views(self, select: Node) -> RelationReader:
        """Return a reader that also knows the common tables of a statement."""
        common = select.args.get("with_")
        if common is None:
            return self
        check_arguments(self.source, common, "expressions")
        views = dict(self.views)
        for each in common.expressions:
            check_arguments(self.source, each, "this", "alias")
            name = each.alias
            if each.args["alias"].args.get("columns"):
                self.source.refuse(each, "a common table without a list of columns", do="Name its columns with AS")
            if name.casefold() in views:
                self.source.refuse(each, "a new name of a common table", got=name, do="Choose another name")
            views[name.casefold()] = each.this
        return replace(self, views=views)

    def read_from(self, select: exp.Select) -> Relation:
        """Return the relation that a SELECT reads, without its WHERE."""
        if self.depth > _DEEPEST:
            self.source.refuse(select, f"at most {_DEEPEST} views inside each other", do="Check for a view of itself")
        tables = select.args.get("from_")
        if tables is None:
            self.source.refuse(select, "FROM and a table", do=f"Write FROM {self._names()[0]}")
        found = self._read_table(tables.this)
        if found is None:
            self.source.refuse(
                tables.this,
                "a private table first: what is public can be read for free elsewhere",
                do=f"Write FROM {self._names()[0]} LEFT JOIN ... USING (key)",
            )
        for join in select.args.get("joins") or ():
            found = self._read_join(found, join)
        return found

    def read_view(self, query: Node) -> Relation:
        """Return what a subquery or common table is: rows with computed columns, or one row per person."""
        if isinstance(query, exp.Subquery):
            check_arguments(self.source, query, "this", "alias")
            query = query.this
        if not isinstance(query, exp.Select):
            self.source.refuse(query, "a SELECT without UNION", do="Ask one statement for each")
        for name, do in (
            ("order", "Order the whole statement: its last line"),
            ("limit", "Limit the whole statement: its last line"),
            ("distinct", "Aggregate per person instead: GROUP BY the id"),
        ):
            if query.args.get(name):
                at = query.args[name]
                self.source.refuse(
                    at if isinstance(at, exp.Expression) else query, f"no {name.upper()} in a view", do=do
                )
        check_arguments(
            self.source, query, "with_", "expressions", "from_", "joins", "where", "group", "having", "kind"
        )
        reader = replace(self.with_views(query), depth=self.depth + 1)
        relation = reader.read_from(query)
        if query.args.get("where") is not None:
            relation = relation.narrow(relation.reader(self.source).read_condition(query.args["where"].this))
        if query.args.get("group") is not None or any(each.find(exp.AggFunc) for each in query.expressions):
            return reader._read_persons(query, relation)
        if query.args.get("having") is not None:
            self.source.refuse(query.args["having"], "WHERE in a view of rows", do="Write WHERE in place of HAVING")
        return self._project(query, relation, relation.reader(self.source))

    def _project(self, query: exp.Select, relation: Relation, rows: RowReader) -> Relation:
        """Return the columns that a view selects."""
        columns: list[RelationColumn] = []
        for each in query.expressions:
            if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
                check_arguments(self.source, each, "this", "table")
                table = each.table.casefold() if isinstance(each, exp.Column) else ""
                columns += [c for c in relation.columns if not c.hidden and table in ("", c.source.casefold())]
                continue
            inner = each.this if isinstance(each, exp.Alias) else each
            name = each.alias_or_name
            if not name:
                self.source.refuse(each, "a name for a computed column of a view", do="Write expression AS name")
            columns.append(RelationColumn("", name, rows.read(inner)))
        names = [each.name.casefold() for each in columns]
        twice = next((column.name for column in columns if names.count(column.name.casefold()) > 1), None)
        if twice is not None:
            self.source.refuse(query, "each column of a view once", got=twice, do="Name them with AS")
        return replace(relation, columns=tuple(columns))

    # Tables --------------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [*self.views, *(name or _UNNAMED for name in self.private)]

    def _read_table(self, node: Node) -> Relation | None:
        """Return a private table, a view or a subquery; None for a public table."""
        if isinstance(node, exp.Subquery):
            return self.read_view(node).renamed(node.alias)
        if not isinstance(node, exp.Table):
            self.source.refuse(node, "a table or a subquery in FROM", do=f"Write FROM {self._names()[0]}")
        check_arguments(self.source, node, "this", "alias")
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            self.source.refuse(node, "an alias without a list of columns", do="Name columns with AS in a subquery")
        if not isinstance(node.this, exp.Identifier):
            self.source.refuse(node, "the name of a table", do=f"Write FROM {self._names()[0]}")
        name = node.name
        view = self.views.get(name.casefold())
        if view is not None:
            # A view does not know itself, nor what is defined after it.
            known = list(self.views)
            earlier = {each: self.views[each] for each in known[: known.index(name.casefold())]}
            return replace(self, views=earlier, depth=self.depth + 1).read_view(view).renamed(node.alias or name)
        private = {(each or _UNNAMED).casefold(): dataset for each, dataset in self.private.items()}
        if name.casefold() in private:
            return Relation.of(private[name.casefold()], node.alias or name, self.bounds)
        if name.casefold() in {each.casefold() for each in self.public}:
            return None
        known = [*self._names(), *self.public]
        self.source.refuse(
            node, "a known table", got=name, do=suggest_name(name, known) or f"The tables are: {', '.join(known[:12])}"
        )

    # Joins ---------------------------------------------------------------------------------------------------------

    def _read_join(self, left: Relation, join: exp.Join) -> Relation:
        check_arguments(self.source, join, "this", "side", "kind", "on", "using")
        side, kind = (join.args.get(name) or "" for name in ("side", "kind"))
        if side.upper() not in ("", "LEFT") or kind.upper() not in ("", "INNER", "OUTER"):
            self.source.refuse(join, "JOIN or LEFT JOIN", got=f"{side} {kind} JOIN".strip(), do="Swap the tables")
        how = "left" if side.upper() == "LEFT" else "inner"
        if join.args.get("on") is None and not join.args.get("using"):
            self.source.refuse(join, "the keys of the join", do="Write JOIN u USING (id)")
        table = join.this
        alias = table.alias_or_name
        if not alias or alias.casefold() in {each.source.casefold() for each in left.columns}:
            self.source.refuse(
                join, "a name of its own for each table", got=alias, do="Write JOIN u AS name USING (id)"
            )
        right = self._read_table(table)
        if right is None:
            return self._join_public(left, join, how, alias)
        return self._join_private(left, right.renamed(alias), join, how, alias)

    def _join_private(self, left: Relation, right: Relation, join: exp.Join, how: str, alias: str) -> Relation:
        """Join a private table on the id of the unit, and perhaps further columns of the same names."""
        keys, own, rest = self._split_on(left, right, join)
        if rest and how == "left":
            self.source.refuse(
                rest[0], "equal columns, or conditions about the joined table only, in a LEFT JOIN", do="Use WHERE"
            )
        rows = RowReader(self.source, right.facts, lambda node: find_column(self.source, tuple(right.columns), node))
        for condition in own:
            right = right.narrow(rows.read_condition(condition))
        dataset, names = right.with_stored_columns()
        unit = left.dataset.unit.column
        pairs: dict[str, Node] = {}
        for first, second, node in keys:
            name = names[second.name]
            if plain_name(first.expression) != name:
                if how == "inner" and isinstance(node, exp.EQ) and unit not in (name, first.name):
                    rest.append(node)  # a condition on the joined rows means the same
                    continue
                self.source.refuse(
                    node, "keys that have the same name in both tables", do="Rename the column of one file or table"
                )
            pairs[name] = node
        if unit not in pairs:
            self.source.refuse(
                join,
                f"the id of the unit, {unit}, among the keys: one person is one id in all tables",
                do=f"Write USING ({unit}), or ON a.{unit} = b.{unit}"
                if unit
                else "Declare the unit: [unit] column = ...",
            )
        if dataset.max_rows_per_unit is None:
            self.source.refuse(
                join.this,
                f"a limit on the rows of one {unit} in this table",
                do="Add to its description: [unit] max_rows_per_unit = 10",
            )
        prefix = f"{alias}."
        with self.source.point_at(join):
            view = left.dataset.join(
                dataset, on=list(pairs), prefix=prefix, how=how, max_rows_per_unit=self.joined_rows
            )
        columns = [*left.columns]
        for each in right.columns:
            stored = names[each.name]
            if stored in pairs:
                columns.append(RelationColumn(alias, each.name, col(stored), hidden=how == "left"))
            else:
                columns.append(RelationColumn(alias, each.name, col(prefix + stored)))
        joined = replace(left, dataset=view, columns=tuple(columns))
        if rest:
            rows = RowReader(self.source, joined.facts, lambda node: find_column(self.source, joined.columns, node))
            for condition in rest:
                joined = joined.narrow(rows.read_condition(condition))
        return joined

    def _split_on(
        self, left: Relation, right: Relation, join: exp.Join
    ) -> tuple[list[tuple[RelationColumn, RelationColumn, Node]], list[Node], list[Node]]:
        """Return the pairs of equal columns, the conditions about the joined table only, and all others."""
        keys: list[tuple[RelationColumn, RelationColumn, Node]] = []
        own: list[Node] = []
        rest: list[Node] = []
        for name in join.args.get("using") or ():
            column = exp.column(name.name)
            column.this.meta.update(name.meta)
            keys.append((self._entry(left, column), self._entry(right, column), name))
        if join.args.get("on") is None:
            return keys, own, rest
        for part in split_conjunction(join.args["on"]):
            sides = [part.this, part.expression] if isinstance(part, exp.EQ) else []
            if len(sides) == 2 and all(isinstance(each, exp.Column) for each in sides):
                places = [self._side(left, right, each) for each in sides]
                if places[0] != places[1]:
                    first, second = sides if places[0] == "left" else sides[::-1]
                    keys.append((self._entry(left, first), self._entry(right, second), part))
                    continue
            used = {self._side(left, right, each) for each in part.find_all(exp.Column)}
            (own if used == {"right"} else rest).append(part)
        return keys, own, rest

    def _side(self, left: Relation, right: Relation, node: exp.Column) -> str:
        """Return which table a column of ON belongs to."""
        if node.table:
            mine = {each.source.casefold() for each in right.columns}
            return "right" if node.table.casefold() in mine else "left"
        has = [any(c.name.casefold() == node.name.casefold() for c in each.columns) for each in (left, right)]
        if has == [True, True]:
            self.source.refuse(
                node, "the table of the column", got=node.name, do=f"Write {right.columns[0].source}.{node.name}"
            )
        return "right" if has[1] else "left"

    def _entry(self, relation: Relation, node: exp.Column) -> RelationColumn:
        """Return the column of a relation that a key names."""
        wanted = find_column(self.source, relation.columns, node)
        return next(each for each in relation.columns if each.expression is wanted)

    def _join_public(self, left: Relation, join: exp.Join, how: str, alias: str) -> Relation:
        """Look up the rows of a public table by its key."""
        name = join.this.name
        given = next(table for each, table in self.public.items() if each.casefold() == name.casefold())
        with self.source.point_at(join):
            table = public_table(given)
        stand_in = tuple(RelationColumn(alias, each, col(each)) for each in table.column_names)
        right = replace(left, columns=stand_in)
        keys, own, rest = self._split_on(left, right, join)
        if len(keys) != 1 or own or rest:
            self.source.refuse(
                join, "one pair of equal columns as the key of a public table", do="Use WHERE for the rest"
            )
        (first, second, _) = keys[0]
        dataset, key = left.dataset, plain_name(first.expression)
        if key is None:
            key = f"{alias} (key)"
            dataset = dataset.derive(**{key: first.expression})
        prefix = f"{alias}."
        renamed = table.rename_columns([key if each == second.name else each for each in table.column_names])
        renamed = renamed.append_column(_MATCH, pa.array([True] * table.num_rows))
        with self.source.point_at(join):
            view = dataset.join(renamed, on=key, prefix=prefix)
        columns = [RelationColumn(alias, second.name, first.expression, hidden=how == "left")]
        columns += [
            RelationColumn(alias, each, col(prefix + each))
            for each in table.column_names
            if each != second.name and prefix + each in view.schema
        ]
        joined = replace(left, dataset=view, columns=(*left.columns, *columns))
        return joined if how == "left" else joined.narrow(~col(f"{prefix}{_MATCH}").is_missing())

    # One row per person ----------------------------------------------------------------------------------------------

    def _read_persons(self, query: exp.Select, relation: Relation) -> Relation:
        """Return a view with one row per person: the aggregates of that person's rows."""
        unit, group = relation.dataset.unit, query.args.get("group")
        rows = relation.reader(self.source)
        if group is not None:
            check_arguments(self.source, group, "expressions")
        by = [rows.read(each) for each in (group.expressions if group is not None else ())]
        if unit.is_row or unit.window is not None or len(by) != 1 or repr(by[0]) != repr(col(unit.column or "")):
            wanted = f"GROUP BY {unit.column}" if not unit.is_row else "a table whose unit is an id"
            self.source.refuse(
                group if group is not None else query,
                f"one row per person in a view with aggregates: {wanted} alone",
                do="Ask for other aggregates in the statement itself, and compute with what it releases",
            )
        persons = _PersonAggregates(self.source, relation, dict(self.bounds))
        inner = RowReader(self.source, relation.facts, lambda node: find_column(self.source, relation.columns, node))
        reading = _PersonReader(persons, inner, query)
        made = {name: (aggregate, limits) for name, aggregate, limits in reading.collect()}
        if not made:
            self.source.refuse(
                query, "an aggregate of each person's rows", do="Write SUM(x) AS total, or COUNT(*) AS visits"
            )
        with self.source.point_at(query):
            dataset = relation.filtered().per_unit(
                bounds={name: limits for name, (_, limits) in made.items() if limits is not None},
                **{name: aggregate for name, (aggregate, _) in made.items()},
            )
        outer = Relation(
            dataset, tuple(RelationColumn("", each, col(each)) for each in dataset.schema), None, self.bounds
        )

        def find(node: exp.Column) -> Expression:
            found = rows.find(node)
            if repr(found) != repr(by[0]):
                self.source.refuse(node, "the id, or an aggregate, in a view per person", do="Write MAX(x) AS x")
            return found

        reader = RowReader(self.source, ExpressionFacts(dataset, self.bounds), find, reading.find)
        projected = self._project(query, outer, reader)
        having = query.args.get("having")
        return projected if having is None else projected.narrow(reader.read_condition(having.this))


@dataclass(frozen=True)
class _PersonAggregates:
    """How the aggregates of a person's rows are made and bounded."""

    source: SourceText
    relation: Relation
    bounds: Mapping[str, Any]

    def make(self, node: Node, rows: RowReader, name: str) -> tuple[UnitAggregate, Any]:
        """Return an aggregate and the public limits of its values."""
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
        taken = {self.persons.relation.dataset.unit.column, "bounds"}
        for place, alias in places:
            for node in place.find_all(exp.AggFunc):
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
        return col(self.names[node.sql()])


def split_conjunction(node: Node) -> list[Node]:
    """Return the parts of a condition that are joined by AND."""
    if isinstance(node, exp.Paren):
        return split_conjunction(node.this)
    if isinstance(node, exp.And):
        return [*split_conjunction(node.this), *split_conjunction(node.expression)]
    return [node]
