"""Read what is computed from released values: columns of the result, HAVING and ORDER BY.

Every formula gets its kind when it is read, so that no formula can fail on the values that a release has: by then it is
paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data import Expression, Kind
from expost.data.expression import Literal, Operation, col
from expost.sql.aggregate_reader import AggregateReader
from expost.sql.logical_plan import (
    Aggregate,
    AggregateOf,
    Call,
    Constant,
    Formula,
    GroupColumn,
    KeyOf,
    OfKeys,
    OutputColumn,
    aggregates_in,
)
from expost.sql.refusal import Node, SourceText, check_arguments
from expost.sql.relation import Relation
from expost.sql.row_expression import RowReader
from expost.sql.time_expression import as_moment, is_integer_type

__all__ = ["FormulaReader", "has_aggregate"]

_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_RISING = {exp.Round: "round", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt", exp.Abs: "abs"}
_KEEP_WHOLE = frozenset({"+", "-", "*", "abs", "nullif", "coalesce", "least", "greatest"})
_NUMBERS = frozenset({*_ARITHMETIC.values(), *_RISING.values()})
_LOGIC = frozenset({"AND", "OR", "NOT"})
_TRUTHS = frozenset({*_LOGIC, "IS NULL", "IN", *_COMPARISONS.values()})
_MOST_DIGITS = 9
_PLURALS = {Kind.REAL: "numbers", Kind.TEXT: "texts", Kind.TIME: "times", Kind.BOOLEAN: "truths"}


def has_aggregate(node: Node) -> bool:
    """Return whether a part of a statement has an aggregate."""
    return node.find(exp.AggFunc) is not None


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
class FormulaReader:
    """Reads formulas of groups and aggregates, and collects the aggregates, each once.

    ``outputs`` are the columns that were read so far, which HAVING and ORDER BY may name.
    """

    source: SourceText
    relation: Relation
    rows: RowReader
    groups: list[GroupColumn]
    outputs: list[OutputColumn]
    aggregates: list[Aggregate] = field(default_factory=list)

    def read_condition(self, node: Node) -> Formula:
        """Read HAVING."""
        found = self.read(node, aliases=True)
        if self.kind(found) not in (Kind.BOOLEAN, None):
            self.source.refuse(node, "a condition", do="Compare something, such as COUNT(*) > 10")
        return found

    def read(self, node: Node, *, aliases: bool = False) -> Formula:
        """Return what a column of the result, or a condition on released values, is computed from."""
        key = self._find_key(node, aliases=aliases)
        if key is not None:
            return key
        aggregate = self._statistics.read(node)
        if aggregate is not None:
            return self._keep_aggregate(aggregate)

        def read(part: Node) -> Formula:
            return self.read(part, aliases=aliases)

        if isinstance(node, exp.Paren):
            return read(node.this)
        constant = self._compute_constant(node)
        if constant is not None:
            return constant
        if isinstance(node, exp.Neg):
            return self._checked(node, Call("-", (Constant(0), read(node.this))))
        found = self._read_arithmetic(node, read) or self._read_condition(node, read) or self._compute_keys(node)
        if found is not None:
            return found
        self._refuse_formula(node)

    def _compute_constant(self, node: Node) -> Constant | None:
        """Return a constant of any kind, such as DATE '2024-01-31'; None if an expression is not one."""
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
            value = self.rows.read(node)
        elif node.find(exp.Column, exp.AggFunc, exp.Query) is not None:
            return None
        else:
            try:
                value = self.rows.read(node)
            except InvalidRequest:
                return None
        return Constant(value.value) if isinstance(value, Literal) else None

    def _compute_keys(self, node: Node) -> Formula | None:
        """Return an expression of the labels of a group, such as CASE WHEN city = 'A' THEN 1 END; None if it is not one."""
        if has_aggregate(node) or not self.groups:
            return None
        try:
            expression = self.rows.read(node)
        except InvalidRequest:
            return None
        labels = {repr(each.expression): col(f"k{place}") for place, each in enumerate(self.groups)}
        replaced = _replace_parts(expression, labels)
        if replaced is None or not replaced.columns():
            return None
        types = tuple(self.relation.dataset.key_type(each.expression) for each in self.groups)
        return OfKeys(replaced, types, self.relation.facts.kind(expression))

    # Kinds ---------------------------------------------------------------------------------------------------------

    def kind(self, formula: Formula) -> Kind | None:
        """Return the kind of the values of a formula; None for NULL. All numbers count as real ones."""
        if isinstance(formula, Constant):
            found = self.relation.facts.kind(Literal(formula.value))
        elif isinstance(formula, KeyOf):
            found = self.relation.facts.kind(self.groups[formula.index].expression)
        elif isinstance(formula, OfKeys):
            found = formula.kind
        elif isinstance(formula, AggregateOf):
            aggregate = self.aggregates[formula.index]
            found = self.relation.facts.kind(aggregate.columns[0]) if aggregate.kind == "mode" else Kind.REAL
        else:
            assert isinstance(formula, Call)
            if formula.name in _TRUTHS:
                return Kind.BOOLEAN
            if formula.name in _NUMBERS:
                return Kind.REAL
            return next((each for each in map(self.kind, formula.arguments) if each is not None), None)
        return Kind.REAL if found is Kind.INTEGER else found

    def _checked(self, node: Node, call: Call) -> Call:
        """Return a function whose arguments fit together, or refuse it. A text compared with a time is read as a time."""
        kinds = list(map(self.kind, call.arguments))
        if Kind.TIME in kinds and Kind.TEXT in kinds:
            call = Call(call.name, tuple(map(self._as_time, call.arguments)))
            kinds = list(map(self.kind, call.arguments))
        known = [each for each in kinds if each is not None]
        if call.name in _NUMBERS:
            wrong = next(iter(set(known) - {Kind.REAL}), None)
            if wrong is not None:
                self.source.refuse(node, "numbers to compute with", got=_PLURALS[wrong], do="Write COUNT(*) or AVG(x)")
        elif call.name in _LOGIC:
            wrong = next(iter(set(known) - {Kind.BOOLEAN}), None)
            if wrong is not None:
                self.source.refuse(
                    node, "conditions", got=_PLURALS[wrong], do="Compare something, such as COUNT(*) > 10"
                )
        elif call.name != "IS NULL" and len(set(known)) > 1:
            named = " and ".join(_PLURALS[each] for each in dict.fromkeys(known))
            self.source.refuse(
                node, "values of one kind", got=named, do="Compare numbers with numbers, texts with texts"
            )
        if call.name == "round" and len(call.arguments) == 2:
            self._check_digits(node, call.arguments[1])
        return call

    def _check_digits(self, node: Node, digits: Formula) -> None:
        """Refuse digits of ROUND that are not a small constant."""
        value = digits.value if isinstance(digits, Constant) else None
        if not isinstance(value, int) or abs(value) > _MOST_DIGITS:
            self.source.refuse(
                node.args["decimals"],
                f"a number of digits from -{_MOST_DIGITS} to {_MOST_DIGITS}",
                do="Write ROUND(x, 2)",
            )

    def _as_time(self, formula: Formula) -> Formula:
        """Return a text constant that spells a time as that time."""
        if not isinstance(formula, Constant) or not isinstance(formula.value, str):
            return formula
        moment = as_moment(Literal(formula.value), self.source.dialect)
        return formula if moment is None else Constant(moment.value)

    # Functions -----------------------------------------------------------------------------------------------------

    def _read_arithmetic(self, node: Node, read: Callable[[Node], Formula]) -> Formula | None:
        """Read a calculation with released values."""
        kind = type(node)
        if kind in _ARITHMETIC:
            check_arguments(self.source, node, "this", "expression", "typed", "safe")
            both = read(node.this), read(node.expression)
            if kind is exp.Div and node.args.get("typed") and all(map(self._counts, both)):
                self.source.refuse(
                    node, "a division of numbers with a fraction", do="Write CAST(COUNT(*) AS DOUBLE PRECISION) / b"
                )
            return self._checked(node, Call(_ARITHMETIC[kind], both))
        if kind in _RISING:
            given = [node.this, *([node.args["decimals"]] if node.args.get("decimals") is not None else [])]
            check_arguments(self.source, node, "this", "decimals")
            return self._checked(node, Call(_RISING[kind], tuple(map(read, given))))
        if isinstance(node, exp.Coalesce):
            self._check_replaced(node, read(node.this))
        if isinstance(node, exp.Coalesce | exp.Least | exp.Greatest):
            return self._checked(node, Call(node.key, tuple(map(read, [node.this, *node.expressions]))))
        if isinstance(node, exp.Nullif):
            return self._checked(node, Call("nullif", (read(node.this), read(node.expression))))
        if isinstance(node, exp.Cast) and self._is_real(node.args["to"]):
            return self._checked(node, Call("*", (Constant(1.0), read(node.this))))
        if isinstance(node, exp.Cast) and self.source.dialect != "spark" and is_integer_type(node.args["to"]):
            return self._checked(node, Call("round", (read(node.this),)))
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

    def _read_condition(self, node: Node, read: Callable[[Node], Formula]) -> Formula | None:
        """Read a condition on released values."""
        kind = type(node)
        if kind in _COMPARISONS:
            return self._checked(node, Call(_COMPARISONS[kind], (read(node.this), read(node.expression))))
        if isinstance(node, exp.And | exp.Or):
            return self._checked(node, Call(node.key.upper(), (read(node.this), read(node.expression))))
        if isinstance(node, exp.Not):
            return self._checked(node, Call("NOT", (read(node.this),)))
        if isinstance(node, exp.Between):
            check_arguments(self.source, node, "this", "low", "high")
            value = read(node.this)
            low, high = (Call(sign, (value, read(node.args[end]))) for sign, end in ((">=", "low"), ("<=", "high")))
            return Call("AND", (self._checked(node, low), self._checked(node, high)))
        if isinstance(node, exp.In):
            check_arguments(self.source, node, "this", "expressions")
            if node.expressions:
                return self._checked(node, Call("IN", tuple(map(read, [node.this, *node.expressions]))))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Call("IS NULL", (read(node.this),))
        return None

    def _find_key(self, node: Node, *, aliases: bool) -> Formula | None:
        """Return the group or the output column that an expression stands for."""
        if aliases and isinstance(node, exp.Column) and not node.table:
            found = [each for each in self.outputs if each.name.casefold() == node.name.casefold()]
            if found:
                return found[0].formula
        if has_aggregate(node) or isinstance(node, exp.Literal) or not self.groups:
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
        if has_aggregate(node):
            inside = "Select the statistic, and compute the rest from what is released"
        self.source.refuse_function(
            node, "arithmetic with aggregates and groups", do=inside, known=not has_aggregate(node)
        )

    @property
    def _statistics(self) -> AggregateReader:
        return AggregateReader(self.source, self.relation, self.rows, grouped=bool(self.groups))

    def _keep_aggregate(self, aggregate: Aggregate) -> AggregateOf:
        known = [each.key for each in self.aggregates]
        if aggregate.key not in known:
            self.aggregates.append(aggregate)
            known.append(aggregate.key)
        return AggregateOf(known.index(aggregate.key))
