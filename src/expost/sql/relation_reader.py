"""Read FROM and WHERE: tables, views, and the rows that pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from expost.core.argument import suggest_name
from expost.data import Dataset, Expression
from expost.sql.join_reader import JoinReader, split_conjunction
from expost.sql.person_reader import read_persons
from expost.sql.refusal import Node, SourceText, check_arguments
from expost.sql.relation import Relation, RelationColumn, ViewMemo
from expost.sql.row_expression import RowReader

__all__ = ["RelationReader"]

_UNNAMED = "data"
_DEEPEST = 20  # views inside each other


@dataclass(frozen=True)
class RelationReader:
    """Reads what statements name in FROM.

    ``private`` are the tables of the session, ``public`` the tables that anyone may see, by their names; ``views`` are the
    common tables of the statement. ``joined_rows`` are the most joined rows of one unit that count. ``made`` are the joins of
    earlier statements.
    """

    source: SourceText
    private: Mapping[str, Dataset]
    public: Mapping[str, Any]
    bounds: Mapping[str, Any] = field(default_factory=dict)
    joined_rows: int | None = None
    views: Mapping[str, Node] = field(default_factory=dict)
    depth: int = 0
    made: ViewMemo = field(default_factory=ViewMemo)

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
            if name.casefold() in views:
                self.source.refuse(each, "a new name of a common table", got=name, do="Choose another name")
            views[name.casefold()] = each
        return replace(self, views=views)

    def read_rows(self, select: exp.Select) -> Relation:
        """Return the rows that a SELECT reads: those of FROM that pass its WHERE."""
        where = select.args.get("where")
        conditions = [] if where is None else split_conjunction(where.this)
        relation, rest = self.read_from(select, conditions)
        if where is None or rest == []:
            return relation
        if len(rest) == len(conditions):
            return self.narrow(relation, where.this)
        for each in rest:
            relation = self.narrow(relation, each)
        return relation

    def narrow(self, relation: Relation, condition: Node) -> Relation:
        """Return the rows of a relation that pass a condition, which may have subqueries about the same person."""
        matches: dict[int, Expression] = {}
        for node in condition.walk(prune=lambda each: isinstance(each, exp.Query)):
            if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None):
                relation, matches[id(node)] = JoinReader(self).match(relation, node)
        return relation.narrow(relation.reader(self.source, matches).read_condition(condition))

    def read_from(self, select: exp.Select, conditions: Sequence[Node]) -> tuple[Relation, list[Node]]:
        """Return what FROM says, and the conditions of WHERE that are not used up as keys of tables after a comma."""
        if self.depth > _DEEPEST:
            self.source.refuse(select, f"at most {_DEEPEST} views inside each other", do="Check for a view of itself")
        tables = select.args.get("from_")
        if tables is None:
            self.source.refuse(select, "FROM and a table", do=f"Write FROM {self._names()[0]}")
        found = self.read_table(tables.this)
        if found is None:
            self.source.refuse(
                tables.this,
                "a private table first: what is public can be read for free elsewhere",
                do=f"Write FROM {self._names()[0]} LEFT JOIN ... USING (key)",
            )
        rest = list(conditions)
        for join in select.args.get("joins") or ():
            found, rest = JoinReader(self).read(found, join, rest)
        return found, rest

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
            if query.args.get(name) and not (name == "distinct" and len(query.expressions) == 1):
                at = query.args[name]
                self.source.refuse(
                    at if isinstance(at, exp.Expression) else query, f"no {name.upper()} in a view", do=do
                )
        check_arguments(
            self.source, query, "with_", "expressions", "from_", "joins", "where", "group", "having", "kind", "distinct"
        )
        reader = replace(self.with_views(query), depth=self.depth + 1)
        relation = reader.read_rows(query)
        grouped = query.args.get("group") is not None or query.args.get("distinct") is not None
        if grouped or any(each.find(exp.AggFunc) for each in query.expressions):
            outer, rows = read_persons(self.source, query, relation, self.bounds, self.made)
            projected, having = self._project(query, outer, rows), query.args.get("having")
            return projected if having is None else projected.narrow(rows.read_condition(having.this))
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
            # One without a name can be named by the alias of the view: AS v(id, total).
            name = each.alias_or_name if isinstance(each, exp.Alias | exp.Column) else each.sql()
            columns.append(RelationColumn("", name, rows.read(inner)))
        names = [each.name.casefold() for each in columns]
        twice = next((column.name for column in columns if names.count(column.name.casefold()) > 1), None)
        if twice is not None:
            self.source.refuse(query, "each column of a view once", got=twice, do="Name them with AS")
        return replace(relation, columns=tuple(columns))

    def _rename(self, relation: Relation, source: str, node: Node) -> Relation:
        """Return a relation under the alias of a table, which may rename its columns: AS t(a, b)."""
        names = _new_names(node)
        known = sum(not each.hidden for each in relation.columns)
        if len(names) > known or len({name.casefold() for name in names}) < len(names):
            self.source.refuse(node, f"at most {known} new names, each once", got=len(names), do="Name them with AS")
        return relation.renamed(source, names)

    # Tables --------------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [*self.views, *(name or _UNNAMED for name in self.private)]

    def read_table(self, node: Node) -> Relation | None:
        """Return a private table, a view or a subquery; None for a public table."""
        if isinstance(node, exp.Subquery):
            return self._rename(self.read_view(node), node.alias, node)
        if not isinstance(node, exp.Table):
            self.source.refuse(node, "a table or a subquery in FROM", do=f"Write FROM {self._names()[0]}")
        if node.args.get("db") or node.args.get("catalog"):
            self.source.refuse(node, "the name of a table, without a schema", do=f"Write FROM {self._names()[0]}")
        check_arguments(self.source, node, "this", "alias")
        if not isinstance(node.this, exp.Identifier):
            self.source.refuse(node, "the name of a table", do=f"Write FROM {self._names()[0]}")
        name = node.name
        view = self.views.get(name.casefold())
        if view is not None:
            # A view does not know itself, nor what is defined after it.
            known = list(self.views)
            earlier = {each: self.views[each] for each in known[: known.index(name.casefold())]}
            inner = replace(self, views=earlier, depth=self.depth + 1).read_view(view.this)
            return self._rename(self._rename(inner, name, view), node.alias or name, node)
        private = {(each or _UNNAMED).casefold(): dataset for each, dataset in self.private.items()}
        if name.casefold() in private:
            return self._rename(Relation.of(private[name.casefold()], name, self.bounds), node.alias or name, node)
        if name.casefold() in {each.casefold() for each in self.public}:
            if _new_names(node):
                self.source.refuse(node, "an alias without a list of columns", do="Rename the columns of the table")
            return None
        known = [*self._names(), *self.public]
        self.source.refuse(
            node, "a known table", got=name, do=suggest_name(name, known) or f"The tables are: {', '.join(known[:12])}"
        )


def _new_names(node: Node) -> list[str]:
    """Return the names that the alias of a table or common table gives to its columns."""
    alias = node.args.get("alias")
    return [] if alias is None else [each.name for each in alias.args.get("columns") or ()]
