"""A statement as one query: its statistics under one hold, and the table that is made of what they release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from expost.core import (
    BudgetExceeded,
    Outcome,
    Plan,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
)
from expost.data import Dataset
from expost.sql.logical_plan import LogicalPlan, Shown, aggregates_in, evaluate_formula, is_true
from expost.sql.statement_part import StatementPart
from expost.stats.gradual_plan import GradualPlan
from expost.stats.plans_in_turn import FixedPlan, PlanInTurn, PlansInTurn
from expost.stats.private_keys import ByPrivateKeys
from expost.stats.query_terms import statistic
from expost.stats.statement_release import StatementRelease
from expost.stats.table_query import TableQuery, group_labels

__all__ = ["StatementPlan", "StatementQuery"]

GroupKey = tuple[Any, ...]


@statistic
class StatementQuery(TableQuery):
    """All statistics of a statement, released under one hold and shown as one table.

    Statistics of the same rows and column are read off one release. What is computed from released values (arithmetic,
    HAVING, ORDER BY, LIMIT) costs nothing (DR14, Proposition 2.1).

    Guarantee: pure ex-post DP; the sum of the parts' bills, known only after the run and at most the sum of their worst
        cases. By private keys (epsilon, delta)-DP, as ``ByPrivateKeys``.
    Adjacency: the dataset's.
    Sensitivity: that of each part.
    Accuracy: all intervals of the table hold at once; the failure probability is split evenly over the parts.
    Numerics: those of each part.
    Reference: DR14, Theorem 3.16 (composition); docs/proofs/shares.md (shared statistics).

    Parameters
    ----------
    text : str
        The statement without its accuracy clauses.
    logical : LogicalPlan
        What is asked.
    parts : sequence of StatementPart
        The statistics that are released.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from expost import Dataset
    >>> from expost.sql import read_statement
    >>> people = Dataset(pa.table({"age": [41, 17]}), name="people", bounds={"age": (0, 120)})
    >>> read_statement("SELECT COUNT(*), AVG(age) FROM people WITH EPSILON 1", {"people": people}).query.question
    'SELECT COUNT(*), AVG(age) FROM people'
    """

    text: str
    logical: LogicalPlan
    parts: Sequence[StatementPart]

    @property
    def subject(self) -> str:
        return self.text

    @property
    def question(self) -> str:
        return self.text

    @property
    def keys_first(self) -> ByPrivateKeys | None:
        found = super().keys_first
        return None if found is None else _StatementKeys(self)

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> StatementPlan:
        """Plan every part. Prices that are known come first; what they leave of the cap is for climbs, in even parts."""
        asked, by = self.accuracy, self.group_keys
        # The bills of the parts are added up as pure losses.
        pure = replace(context, budget_use=None)
        count = max(len(self.parts), 1)
        terms: dict[str, Any] = {
            "confidence": 1 - asked.failure_probability / count,
            "by": by or None,
            "epsilon": None if asked.epsilon is None else asked.epsilon / count,
        }
        contexts = self._own_contexts(dataset, pure, terms)
        plans = [
            part.query(cap=asked.cap, **terms).plan(dataset, own)
            for part, own in zip(self.parts, contexts, strict=True)
        ]
        climbing = [plan.climbs if isinstance(plan, GradualPlan) else False for plan in plans]
        fixed = sum((_due(plan) for plan, climbs in zip(plans, climbing, strict=True) if not climbs), Fraction(0))
        if asked.target is not None and asked.cap is not None:
            asked.check_price(fixed)
            if any(climbing):
                rest = asked.cap - fixed
                if rest <= 0:
                    raise BudgetExceeded(
                        f"The parts with a known price cost {PureLoss(fixed)}, all that the cap allows",
                        do="Write AT MOST EPSILON with more, or ask for less accuracy",
                    )
                share = rest / sum(climbing)
            if any(climbing) and share < asked.cap:
                plans = [
                    part.query(cap=share, **terms).plan(dataset, own) if climbs else plan
                    for plan, part, climbs, own in zip(plans, self.parts, climbing, contexts, strict=True)
                ]
        return StatementPlan(self, tuple(map(_in_turn, plans)), dataset=dataset)

    def _own_contexts(self, dataset: Dataset, context: PlanContext, terms: Mapping[str, Any]) -> list[PlanContext]:
        """Return the context of each part. No two parts may continue one release: the second draws one of its own."""
        if len(self.parts) == 1:
            return [context]
        seen: set[str] = set()
        found = []
        for part in self.parts:
            key = part.cache_key(dataset, terms["by"])
            found.append(replace(context, released=None) if key in seen else context)
            if key is not None:
                seen.add(key)
        return found


def _due(plan: Plan) -> Fraction:
    return plan.worst_case.amounts()["epsilon"]


def _in_turn(plan: Plan) -> PlanInTurn:
    return plan if isinstance(plan, GradualPlan) else FixedPlan(plan)


class _StatementKeys(ByPrivateKeys):
    """A statement by private keys: the keys, then the statement about those shown."""

    def _release_no_groups(self, receipts: Sequence[Receipt]) -> Release[Any]:
        query = self.query
        assert isinstance(query, StatementQuery)
        return _make_table(query, [], {}, self._keys_receipt(receipts, Outcome.FIXED), met={})


@dataclass(frozen=True)
class StatementPlan(PlansInTurn):
    """How the parts of a statement are released, one after the other, and made one table."""

    query: StatementQuery
    dataset: Dataset | None = field(default=None, kw_only=True)

    @property
    def target(self) -> Any:
        """Return the accuracy asked for."""
        return self.query.target

    def _join_parts(self, parts: Sequence[Release[Any]], bills: Sequence[Fraction]) -> StatementRelease:
        query, dataset = self.query, self.dataset
        assert dataset is not None
        labels = _labels_of(query, dataset)
        receipt = self._join_receipts([each.receipt for each in parts], bills) if parts else self._free_receipt(dataset)
        numbers: dict[GroupKey, dict[int, Shown]] = {label: {} for label in labels}
        met: dict[GroupKey, bool] = dict.fromkeys(labels, True)
        for part, release in zip(query.parts, parts, strict=True):
            for label, (found, reached) in part.read(release, labels).items():
                numbers[label] |= found
                met[label] &= reached
        table = _make_table(query, labels, numbers, receipt, met=met)
        return replace(table, confidence=1 - query.accuracy.failure_probability)

    def _join_receipts(self, receipts: Sequence[Receipt], bills: Sequence[Fraction]) -> Receipt:
        joined = super()._join_receipts(receipts, bills)
        methods = list(dict.fromkeys(each.method for each in receipts))
        citations = tuple(dict.fromkeys(each for receipt in receipts for each in receipt.citations))
        names = [f"{each.question}" for each in receipts]
        breakdown = dict.fromkeys(names, Fraction(0))
        for name, bill in zip(names, bills, strict=True):
            breakdown[name] += bill
        groups = {
            name: receipt.terms["groups"]
            for name, receipt in zip(names, receipts, strict=True)
            if "groups" in receipt.terms
        }
        terms = {**joined.terms, **({"groups": max(groups.values())} if groups else {})}
        if self.query.where is not None:
            terms["rows where"] = str(self.query.where)
        achieved = receipts[0].achieved if len(receipts) == 1 and not self.query.parts[0].scaled else None
        target = self.query.target
        return replace(
            joined,
            method=", ".join(methods),
            citations=citations,
            breakdown=breakdown,
            terms=terms,
            target=target,
            achieved=achieved,
        )

    def _free_receipt(self, dataset: Dataset) -> Receipt:
        """Return the receipt of a statement that lists public values only."""
        return Receipt(
            question=self.query.question,
            method="public values of the description",
            promise=PureGuarantee(Fraction(0)),
            bill=PureLoss(Fraction(0)),
            adjacency=dataset.adjacency,
            unit=dataset.unit,
        )


def _labels_of(query: StatementQuery, dataset: Dataset) -> list[GroupKey]:
    """Return the labels of all groups as tuples, in the order of the statement's groups."""
    if query.logical.public_groups == 0:
        return []
    if not query.group_keys:
        return [()]
    found = group_labels(query._group_axes(dataset))
    return [label if isinstance(label, tuple) else (label,) for label in found]


def _make_table(
    query: StatementQuery,
    labels: Sequence[GroupKey],
    numbers: Mapping[GroupKey, Mapping[int, Shown]],
    receipt: Receipt,
    *,
    met: Mapping[GroupKey, bool],
) -> StatementRelease:
    """Compute the columns of the result and do what is asked with released values: HAVING, ORDER BY, LIMIT."""
    plan = query.logical
    kept = [label for label in labels if plan.having is None or is_true(plan.having, label, numbers[label])]
    for formula, descending, nulls_first in reversed(plan.order):
        found = {label: evaluate_formula(formula, label, numbers[label]).value for label in kept}
        # Equal ones stay in their order, whichever the direction.
        given = [label for label in (reversed(kept) if descending else kept) if found[label] is not None]
        rising = sorted(given, key=lambda label: _rank(found[label]))
        known = rising[::-1] if descending else rising
        unknown = [label for label in kept if found[label] is None]
        kept = [*unknown, *known] if nulls_first else [*known, *unknown]
    rows = [[evaluate_formula(each.formula, label, numbers[label]) for each in plan.outputs] for label in kept]
    flags = [met.get(label, True) for label in kept]
    if plan.distinct:
        firsts = {
            tuple(map(repr, (each.value for each in row))): place for place, row in reversed(list(enumerate(rows)))
        }
        places = sorted(firsts.values())
        rows, flags = [rows[place] for place in places], [flags[place] for place in places]
    stop = None if plan.limit is None else plan.offset + plan.limit
    rows, flags = rows[plan.offset : stop], flags[plan.offset : stop]
    ends = tuple(
        tuple((each.low, each.high) if each.low is not None and each.high is not None else None for each in row)
        for row in rows
    )
    return StatementRelease(
        tuple(tuple(each.value for each in row) for row in rows),
        receipt,
        columns=tuple(each.name for each in plan.outputs),
        measured=tuple(bool(aggregates_in(each.formula)) for each in plan.outputs),
        ends=ends,
        met=tuple(flags),
    )


def _rank(value: Any) -> tuple[int, Any]:
    """Return what values of one column are ordered by; truths count as numbers."""
    return (0, value) if isinstance(value, int | float) else (1, value) if isinstance(value, str) else (2, value)
