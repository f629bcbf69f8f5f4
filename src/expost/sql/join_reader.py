"""Read joins: of private tables on the id of the unit, with public tables by a key, and EXISTS and IN about a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from expost.data import Expression
from expost.data.data_source import public_table
from expost.data.expression import col
from expost.data.public_lookup import remember_table
from expost.sql.refusal import Node, SourceText, check_arguments
from expost.sql.relation import Relation, RelationColumn, find_column, plain_name
from expost.sql.row_expression import RowReader

if TYPE_CHECKING:
    from expost.sql.relation_reader import RelationReader

__all__ = ["JoinReader", "split_conjunction"]

_MATCH = "(matched)"
_HALVES = {"SEMI": True, "ANTI": False}
"""Joins that only say whether there is a match, and which answer keeps a row."""

_Pair = tuple[RelationColumn, RelationColumn, Node]


@dataclass(frozen=True)
class JoinReader:
    """Reads the joins of one FROM; ``tables`` reads what is joined."""

    tables: RelationReader

    @property
    def source(self) -> SourceText:
        """Return the text of the statement."""
        return self.tables.source

    def read(self, left: Relation, join: exp.Join, conditions: Sequence[Node]) -> tuple[Relation, list[Node]]:
        """Return the joined relation, and the conditions of WHERE that are left: some are keys of a table after a comma."""
        check_arguments(self.source, join, "this", "side", "kind", "on", "using", "method")
        side, kind = ((join.args.get(name) or "").upper() for name in ("side", "kind"))
        bare = join.args.get("on") is None and not join.args.get("using")
        if join.args.get("method"):
            self.source.refuse(join, "the keys of the join", do="Write JOIN u USING (id)")
        known = kind in ("", "INNER", "OUTER", *_HALVES) if side == "LEFT" else kind in ("", "INNER", "CROSS", *_HALVES)
        if side not in ("", "LEFT") or not known:
            self.source.refuse(join, "JOIN or LEFT JOIN", got=f"{side} {kind} JOIN".strip(), do="Swap the tables")
        table = join.this
        alias = table.alias_or_name
        if not alias or alias.casefold() in {each.source.casefold() for each in left.columns}:
            self.source.refuse(
                join, "a name of its own for each table", got=alias, do="Write JOIN u AS name USING (id)"
            )
        right = self.tables.read_table(table)
        public = self._public_columns(left, join, alias) if right is None else None
        beside = public if right is None else right.renamed(alias)
        assert beside is not None
        on: list[Node] = [] if join.args.get("on") is None else split_conjunction(join.args["on"])
        if bare:
            on = [each for each in conditions if self._is_key(left, beside, each)]
        if not on and not join.args.get("using"):
            self.source.refuse(join, "the keys of the join", do="Write JOIN u USING (id)")
        rest = [each for each in conditions if not any(each is used for used in on)]
        how = "left" if side == "LEFT" else "inner"
        split = self._split_on(left, beside, join, on)
        if right is None:
            if kind in _HALVES:
                self.source.refuse(join, "JOIN with a public table", do="Write JOIN: each key of it occurs once")
            return self._join_public(left, join, how, alias, split), rest
        if kind in _HALVES:
            return self._join_half(left, beside, join, split, keep=_HALVES[kind]), rest
        return self._join_private(left, beside, join, how, alias, split), rest

    def _join_private(
        self,
        left: Relation,
        right: Relation,
        join: exp.Join,
        how: str,
        alias: str,
        split: tuple[list[_Pair], list[Node], list[Node]],
    ) -> Relation:
        """Join a private table on the id of the unit, and perhaps further columns of the same names."""
        keys, own, rest = split
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
            most, on = self.tables.joined_rows, list(pairs)
            view = self.tables.made.find(
                ("join", on, prefix, how, most),
                [left.dataset, dataset],
                lambda: left.dataset.join(dataset, on=on, prefix=prefix, how=how, max_rows_per_unit=most),
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
        self, left: Relation, right: Relation, join: exp.Join, on: Sequence[Node]
    ) -> tuple[list[_Pair], list[Node], list[Node]]:
        """Return the pairs of equal columns, the conditions about the joined table only, and all others."""
        keys: list[_Pair] = []
        own: list[Node] = []
        rest: list[Node] = []
        for name in join.args.get("using") or ():
            column = exp.column(name.name)
            column.this.meta.update(name.meta)
            keys.append((self._entry(left, column), self._entry(right, column), name))
        for part in on:
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

    def _public_columns(self, left: Relation, join: exp.Join, alias: str) -> Relation:
        """Return a relation that has the names of a public table's columns."""
        names = self._public_table(join).column_names
        return replace(left, columns=tuple(RelationColumn(alias, each, col(each)) for each in names))

    def _public_table(self, join: exp.Join) -> pa.Table:
        name = join.this.name
        given = next(table for each, table in self.tables.public.items() if each.casefold() == name.casefold())
        with self.source.point_at(join):
            return remember_table(given, "canonical", lambda: public_table(given))

    def _join_public(
        self,
        left: Relation,
        join: exp.Join,
        how: str,
        alias: str,
        split: tuple[list[_Pair], list[Node], list[Node]],
    ) -> Relation:
        """Look up the rows of a public table by its key."""
        table, (keys, own, rest) = self._public_table(join), split
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
        renamed = remember_table(table, ("renamed", key, second.name), lambda: _mark_rows(table, second.name, key))
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

    def _is_key(self, left: Relation, right: Relation, part: Node) -> bool:
        """Return whether a condition of WHERE says that a column of each of two tables is equal."""
        if not isinstance(part, exp.EQ) or not all(
            isinstance(each, exp.Column) for each in (part.this, part.expression)
        ):
            return False
        first, second = part.this, part.expression
        return (_has(left, first) and _has(right, second)) != (_has(left, second) and _has(right, first))

    # Whether there is a match ----------------------------------------------------------------------------------------

    def match(self, relation: Relation, node: Node) -> tuple[Relation, Expression]:
        """Return the relation with a column of truths that stands for EXISTS (SELECT ...) or id IN (SELECT ...)."""
        query = node.this if isinstance(node, exp.Exists) else node.args["query"]
        query = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(query, exp.Select):
            self.source.refuse(query, "a SELECT without UNION", do="Write two conditions, joined by OR")
        check_arguments(self.source, query, "with_", "expressions", "from_", "joins", "where", "kind", "distinct")
        tables = replace(self.tables.with_views(query), depth=self.tables.depth + 1)
        where = query.args.get("where")
        conditions = [] if where is None else split_conjunction(where.this)
        inner, conditions = tables.read_from(query, conditions)
        keys: list[_Pair] = []
        if isinstance(node, exp.In):
            keys.append(self._member(relation, inner, node, query))
        for part in conditions:
            outside = [each for each in part.find_all(exp.Column) if not _has(inner, each) and _has(relation, each)]
            if not outside or part.find(exp.Exists, exp.Query):
                inner = tables.narrow(inner, part)
                continue
            sides = [part.this, part.expression] if isinstance(part, exp.EQ) else []
            if len(sides) != 2 or len(outside) != 1 or not all(isinstance(each, exp.Column) for each in sides):
                self.source.refuse(
                    outside[0],
                    "equal columns of both tables, or a condition about the inner table alone",
                    do="Join the table, and put the condition into WHERE",
                )
            own = sides[0] if sides[1] is outside[0] else sides[1]
            keys.append((self._entry(relation, outside[0]), self._entry(inner, own), part))
        return self._mark(relation, inner, keys, node)

    def _member(self, relation: Relation, inner: Relation, node: exp.In, query: exp.Select) -> _Pair:
        """Return the pair of columns of IN. Only ids: NOT IN (SELECT x) is never true where an x is NULL."""
        unit = relation.dataset.unit.column
        listed = query.expressions[0].unalias() if len(query.expressions) == 1 else None
        if isinstance(node.this, exp.Column) and isinstance(listed, exp.Column):
            pair = self._entry(relation, node.this), self._entry(inner, listed), node
            if unit is not None and all(plain_name(each.expression) == unit for each in pair[:2]):
                return pair
        self.source.refuse(
            node,
            f"the id of the unit, {unit}, on both sides of IN (SELECT ...)",
            do=f"Write EXISTS (SELECT * FROM u WHERE u.{unit} = t.{unit} AND u.x = t.x)" if unit else "Join the table",
        )

    def _join_half(
        self,
        left: Relation,
        right: Relation,
        join: exp.Join,
        split: tuple[list[_Pair], list[Node], list[Node]],
        *,
        keep: bool,
    ) -> Relation:
        """Return the rows of a relation that have a match, or those that have none."""
        keys, own, rest = split
        if rest:
            self.source.refuse(rest[0], "equal columns, or conditions about the joined table only", do="Use JOIN")
        for condition in own:
            right = right.narrow(right.reader(self.source).read_condition(condition))
        marked, flag = self._mark(left, right, keys, join)
        return marked.narrow(flag if keep else ~flag)

    def _mark(self, left: Relation, right: Relation, keys: Sequence[_Pair], node: Node) -> tuple[Relation, Expression]:
        """Return a relation with a column of truths: whether a row of another private table agrees in all keys."""
        unit = left.dataset.unit.column
        wanted = {plain_name(first.expression) or "": second.expression for first, second, _ in keys}
        if unit is None or unit not in wanted:
            self.source.refuse(
                node,
                f"the id of the unit, {unit}, among the equal columns: one person is one id in all tables",
                do=f"Write EXISTS (SELECT * FROM u WHERE u.{unit} = t.{unit})" if unit else "Declare the unit",
            )
        dataset, names = right.with_stored_columns(wanted)
        other = next((part for first, _, part in keys if names[plain_name(first.expression) or ""] not in wanted), None)
        if other is not None or any(name != wanted_name for wanted_name, name in names.items()):
            self.source.refuse(
                other if other is not None else node,
                "keys that have the same name in both tables",
                do="Rename the column of one file or table",
            )
        on = list(wanted)
        mark = f"(match {sum(name.startswith('(match ') for name in left.dataset.schema) + 1})"
        with self.source.point_at(node):
            view = self.tables.made.find(
                ("exists", on, mark),
                [left.dataset, dataset],
                lambda: left.dataset.join(dataset, on=on, prefix=mark, how="exists"),
            )
        return replace(left, dataset=view), col(mark)


def _mark_rows(table: pa.Table, key: str, name: str) -> pa.Table:
    """Return a public table with a new name of its key, and a column that is true in every row."""
    renamed = table.rename_columns([name if each == key else each for each in table.column_names])
    return renamed.append_column(_MATCH, pa.array([True] * table.num_rows))


def _has(relation: Relation, node: exp.Column) -> bool:
    """Return whether a relation has a column of this name, and of this table if it names one."""
    return any(
        each.name.casefold() == node.name.casefold()
        and (not node.table or each.source.casefold() == node.table.casefold())
        for each in relation.columns
    )


def split_conjunction(node: Node) -> list[Node]:
    """Return the parts of a condition that are joined by AND."""
    if isinstance(node, exp.Paren):
        return split_conjunction(node.this)
    if isinstance(node, exp.And):
        return [*split_conjunction(node.this), *split_conjunction(node.expression)]
    return [node]
