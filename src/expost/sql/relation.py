"""What a statement reads: a view of private tables, with the names under which its columns are known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from expost.core.argument import suggest_name
from expost.data import Dataset, Expression, Kind
from expost.data.expression import ColumnName, col
from expost.sql.expression_facts import ExpressionFacts
from expost.sql.refusal import SourceText
from expost.sql.row_expression import RowReader

__all__ = ["Relation", "RelationColumn", "ViewMemo", "find_column", "plain_name"]

_SHOWN = 12  # columns that a refusal lists
_MOST_VIEWS = 16


@dataclass(frozen=True)
class ViewMemo:
    """The joins and tables of persons that statements of one session made.

    A later statement about the same view reads the same object, with the same secret, so that it continues the releases of
    the earlier one. The oldest views are forgotten, because a joined table is kept in memory.
    """

    made: dict[str, Dataset] = field(default_factory=dict)

    def find(self, kind: tuple[Any, ...], sources: Sequence[Dataset], make: Callable[[], Dataset]) -> Dataset:
        """Return the view of some kind of the sources, and make it if there is none."""
        facts = [(each.identity, each.bounds, each.categories, each.time_ranges, each.schema.kinds) for each in sources]
        key = hashlib.sha256(repr((kind, facts)).encode()).hexdigest()
        found = self.made.pop(key, None)
        if found is None:
            found = make()
            while len(self.made) >= _MOST_VIEWS:
                self.made.pop(next(iter(self.made)))
        self.made[key] = found
        return found


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column by its source and name, and what it stands for. ``hidden`` columns are found by their source only."""

    source: str
    name: str
    expression: Expression
    hidden: bool = False


@dataclass(frozen=True)
class Relation:
    """Rows of a dataset that pass a filter, and their columns.

    The filter is kept apart until a join or an aggregate of persons needs it, so that a statement about a table shares its
    releases with other questions about that table.
    """

    dataset: Dataset
    columns: tuple[RelationColumn, ...]
    where: Expression | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, source: str, bounds: Mapping[str, Any] | None = None) -> Relation:
        """Return a table as it is."""
        names = (name for name, kind in dataset.schema.kinds.items() if kind is not Kind.OTHER)
        return cls(dataset, tuple(RelationColumn(source, name, col(name)) for name in names), bounds=dict(bounds or {}))

    @property
    def facts(self) -> ExpressionFacts:
        """Return the public facts about expressions of the rows."""
        return ExpressionFacts(self.dataset, self.bounds)

    def reader(self, source: SourceText, matches: Mapping[int, Expression] | None = None) -> RowReader:
        """Return what translates expressions of the rows; ``matches`` are what subqueries of EXISTS and IN stand for."""
        return RowReader(
            source, self.facts, lambda node: find_column(source, self.columns, node), matches=matches or {}
        )

    def narrow(self, condition: Expression | None) -> Relation:
        """Return the rows that also pass a condition."""
        if condition is None:
            return self
        return replace(self, where=condition if self.where is None else self.where & condition)

    def renamed(self, source: str, names: Sequence[str] = ()) -> Relation:
        """Return the same columns under another source; the first of them with new names, if there are some."""
        shown = [each for each in self.columns if not each.hidden]
        new = [*names, *(each.name for each in shown[len(names) :])]
        columns = (replace(each, source=source, name=name) for each, name in zip(shown, new, strict=False))
        return replace(self, columns=tuple(columns))

    def filtered(self) -> Dataset:
        """Return the dataset with the filter."""
        return self.dataset.where(self.where)

    def with_stored_columns(self, used: Mapping[str, Expression] | None = None) -> tuple[Dataset, dict[str, str]]:
        """Return the filtered dataset with a name of its own for each column, and that name by the column's own.

        Columns that are computed become derived ones.
        """
        found: dict[str, str] = {}
        made: dict[str, Expression] = {}
        limits: dict[str, Any] = {}
        for name, expression in (used or {each.name: each.expression for each in self.columns}).items():
            plain = plain_name(expression)
            if plain is not None:
                found[name] = plain
                continue
            found[name] = f"{name} (computed)"
            made[found[name]] = expression
            ends = self.facts.limits(expression)
            if ends is not None and ends[0] < ends[1] and self.facts.kind(expression) is not Kind.BOOLEAN:
                limits[found[name]] = tuple(map(float, ends))
        dataset = self.filtered()
        return (dataset.derive(bounds=limits, **made) if made else dataset), found


def plain_name(expression: Expression) -> str | None:
    """Return the name of a column that an expression is, None if it computes something."""
    return expression.name if isinstance(expression, ColumnName) else None


def find_column(source: SourceText, columns: tuple[RelationColumn, ...], node: exp.Column) -> Expression:
    """Return what a column of the statement stands for. Upper and lower case do not matter unless two names differ by them."""
    name, table = node.name, node.table
    if node.args.get("db") or node.args.get("catalog") or isinstance(node.this, exp.Star):
        source.refuse(node, "a column as name or table.name", do="Leave out the schema")
    found = [each for each in columns if each.name.casefold() == name.casefold()]
    if table:
        found = [each for each in found if each.source.casefold() == table.casefold()]
    elif any(not each.hidden for each in found):
        found = [each for each in found if not each.hidden]
    exact = [each for each in found if each.name == name]
    distinct = {repr(each.expression): each for each in exact or found}
    if len(distinct) == 1:
        column = next(iter(distinct.values()))
        if column.hidden:
            source.refuse(
                node,
                "the key of the other table: this one is missing where there is no match",
                do="Name that table's key",
            )
        return column.expression
    if distinct:
        tables = " or ".join(sorted({f"{each.source}.{each.name}" for each in distinct.values()}))
        source.refuse(node, "a column that only one table has", got=name, do=f"Write {tables}")
    if table and not any(each.source.casefold() == table.casefold() for each in columns):
        known = sorted({each.source for each in columns})
        source.refuse(node, f"one of the tables {', '.join(known)}", got=table, do=suggest_name(table, known))
    names = list(dict.fromkeys(each.name for each in columns if not each.hidden))
    listed = ", ".join(names[:_SHOWN]) + (" and others" if len(names) > _SHOWN else "")
    source.refuse(node, "a known column", got=name, do=suggest_name(name, names) or f"The columns are: {listed}")
