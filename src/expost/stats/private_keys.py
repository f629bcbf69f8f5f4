"""Groups whose labels are not public: a key is shown only if enough units have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    BudgetExceeded,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    Plan,
    PlanContext,
    Query,
    Receipt,
    RefiningPlan,
    Release,
    Sealed,
    Sensitivity,
    TargetNotMet,
)
from expost.core.rational import probability, rational
from expost.core.release import add_losses
from expost.data import Dataset, Expression, Kind
from expost.data.axis import Axis, Categories, KeyTuples
from expost.data.expression import Operation
from expost.data.key_tuple import read_keys
from expost.data.tally import Tally
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.key_threshold import key_threshold
from expost.noise.parameter import check_level
from expost.stats.gradual_release import draw_bounding_secret
from expost.stats.query_terms import KeyColumns, QueryPlan, describe_plan, read_list, statistic
from expost.stats.table_release import AnswerRelease, GroupRelease, Groups

if TYPE_CHECKING:
    from expost.stats.table_query import TableQuery

__all__ = ["ByPrivateKeys", "FoundKeyCounts", "PrivateKeys", "key_threshold", "private_keys_in"]

_ANY_KEY = ("",)  # stands for a key where only the shape of a tally matters


@statistic
class PrivateKeys:
    """The values of a column that enough units have, where the values themselves are not public.

    With several columns, the combinations of values that enough units have.

    Ask for them alone, or pass this as ``by=`` of another statistic. Keys that were shown are public: declare them as
    the dataset's categories, and further questions about them need no delta.

    Guarantee: (epsilon, delta)-DP, known before the run. That a key is shown at all is protected by delta.
    Adjacency: add/remove; one row, or all rows of a unit.
    Sensitivity: the rows a unit may have; with ``max_groups_per_unit`` units are counted, and it is that number (L1).
    Accuracy: a key is shown if its noisy count reaches the threshold, which is on the receipt.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: KKMN09, Theorem 1 (thresholding); docs/proofs/private-keys.md (this threshold).

    Parameters
    ----------
    column : str or Expression or sequence of these
        The column of texts or numbers whose values are searched. A key of several columns is a tuple.
    epsilon : float or Fraction
        The privacy level of the noisy counts.
    delta : float or Fraction
        The probability that a key of one unit alone is shown.
    where : str or Expression, optional
        Count only the rows for which this holds. Default: the rows of the statistic that groups by the keys.

    Raises
    ------
    InvalidRequest
        If epsilon or delta is not a valid number.

    Examples
    --------
    >>> PrivateKeys("city", epsilon=0.5, delta=1e-6).question
    'keys of city'
    """

    column: KeyColumns
    epsilon: Any = field(kw_only=True)
    delta: Any = field(kw_only=True)
    where: Expression | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.column, str | Expression):
            columns = read_list(self.column, "column", do='Pass "city" or ["city", "job"]')
            if not columns or not all(isinstance(each, str | Expression) for each in columns):
                raise InvalidRequest("Expected columns whose values are searched", do='Pass ["city", "job"]')
            object.__setattr__(self, "column", columns if len(columns) > 1 else columns[0])
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", probability(self.delta, "delta"))

    @property
    def columns(self) -> tuple[str | Expression, ...]:
        """Return the columns as a tuple."""
        return self.column if isinstance(self.column, tuple) else (self.column,)

    def __str__(self) -> str:
        return f"private {', '.join(map(str, self.columns))}"

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return f"keys of {', '.join(map(str, self.columns))}" + ("" if self.where is None else f" where {self.where}")

    @describe_plan
    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> KeyPlan:
        """Fit the query to a dataset's public description. Reads no rows. Keys are searched again each time."""
        if dataset.adjacency.public_size:
            raise InvalidRequest("Private keys need add-remove adjacency", do="Use adjacency='add-remove'")
        types = tuple(dataset.key_type(dataset.expression(each)) for each in self.columns)
        for each, kind in zip(self.columns, types, strict=True):
            if Kind.of(kind) is Kind.TIME and (isinstance(each, str) or len(types) > 1):
                raise InvalidRequest("Expected texts or numbers as private keys", got=str(each), do="Derive a text")
        tally = self._tally_rows(dataset, self._to_axis(dataset, _ANY_KEY))
        groups = dataset.max_groups_per_unit
        once = not dataset.unit.is_row and groups is not None
        limits = None if once else dataset.limits(tally)
        rows = groups if once and groups else 1 if limits is None or limits.rows is None else limits.rows
        check_level(self.epsilon, rows)
        return KeyPlan(self, rows, once, types)

    def _expression(self, dataset: Dataset) -> Expression:
        """Return what the keys are values of."""
        expressions = tuple(map(dataset.expression, self.columns))
        return expressions[0] if len(expressions) == 1 else Operation("TUPLE", expressions)

    def _to_axis(self, dataset: Dataset, keys: tuple[Any, ...]) -> Categories:
        """Return keys that were shown as public categories."""
        expressions = tuple(map(dataset.expression, self.columns))
        if len(expressions) > 1 and keys != _ANY_KEY:
            return KeyTuples.of_keys(expressions, tuple(map(dataset.key_type, expressions)), keys)
        return Categories.of(self._expression(dataset), keys)

    def _tally_rows(self, dataset: Dataset, axis: Axis) -> Tally:
        """Return the tally of the rows of each key."""
        return dataset.tally(axes=(axis,), where=dataset.condition(self.where))


@dataclass(frozen=True, repr=False)
class FoundKeyCounts:
    """Exact counts with the keys they belong to. SECRET until the threshold has chosen."""

    sealed: Sealed
    column: pa.Array

    @property
    def keys(self) -> tuple[Any, ...]:
        """Return the keys as Python values."""
        return tuple(self.column.to_pylist())


@dataclass(frozen=True)
class KeyPlan(QueryPlan):
    """How keys are found: ``rows`` is the sensitivity, ``once`` whether units rather than rows are counted."""

    query: PrivateKeys
    rows: int
    once: bool
    types: tuple[pa.DataType, ...]

    @property
    def worst_case(self) -> Loss:
        """Return the price."""
        return ApproxLoss(self.query.epsilon, self.query.delta)

    def measure(self, dataset: Dataset) -> FoundKeyCounts:
        """Count the keys that occur and return the exact counts, sealed, with their keys."""
        query, secret = self.query, draw_bounding_secret()
        first = query._tally_rows(dataset, query._to_axis(dataset, _ANY_KEY))
        keys = dataset.find_keys(query._expression(dataset), first, secret=secret)
        under = Sensitivity(self.rows, adjacency=dataset.adjacency, unit=dataset.unit)
        sealed, found = dataset.measure_occupied(
            query._tally_rows(dataset, keys), secret=secret, under=under, once=self.once
        )
        return FoundKeyCounts(sealed, keys.column.take(pa.array(found)))

    def climb(self, sealed: FoundKeyCounts, bits: BitSource | None = None) -> Release[tuple[Any, ...]]:
        """Return the keys whose noisy count reaches the threshold, in order."""
        query, sensitivity = self.query, sealed.sealed.sensitivity
        noisy = DiscreteLaplacePath(sealed.sealed, Ladder((query.epsilon,)), bits=bits).at(0)
        scale = float(sensitivity.amount / query.epsilon)
        threshold = key_threshold(query.delta, scale, rows=self.rows, groups=self.rows, once=self.once)
        shown = tuple(sealed.column.filter(pa.array((noisy >= threshold).astype(bool))).to_pylist())
        if len(query.columns) > 1:
            shown = tuple(sorted(read_keys(shown, self.types)))
        receipt = Receipt(
            question=self.question,
            method="discrete Laplace above a threshold",
            promise=ApproxGuarantee(query.epsilon, query.delta),
            bill=ApproxLoss(query.epsilon, query.delta),
            adjacency=sensitivity.adjacency,
            unit=sensitivity.unit,
            terms={"threshold": threshold, "counted": "units" if self.once else "rows", "keys shown": len(shown)},
            citations=("KKMN09, Theorem 1",),
        )
        return AnswerRelease(shown, receipt)


# A statistic by private keys -----------------------------------------------------------------------------------------


def private_keys_in(by: Any) -> tuple[PrivateKeys, ...]:
    """Return the private keys among the columns of ``by=``.

    Parameters
    ----------
    by : object
        What a statistic was given as ``by=``: one column, a sequence of columns, or None.

    Returns
    -------
    tuple of PrivateKeys

    Examples
    --------
    >>> private_keys_in(["city", PrivateKeys("job", epsilon=1, delta=1e-6)])[0].question
    'keys of job'
    """
    listed = by if isinstance(by, list | tuple) else (by,)
    return tuple(each for each in listed if isinstance(each, PrivateKeys))


@dataclass(frozen=True, eq=False)
class ByPrivateKeys:
    """A statistic with ``by=PrivateKeys(...)``: keys above a threshold first, then the statistic about them.

    The noise of the answers is independent of the noise that chose the keys. So intervals hold for all groups shown at
    once, which they would not if the same noise had lifted a group over the threshold.

    Guarantee: (epsilon, delta)-DP: the keys' epsilon and delta, known before the run, and the statistic's own pure
        ex-post loss, known only after the run and at most epsilon or ``max_epsilon``.
    Adjacency: the dataset's, which must be add/remove.
    Sensitivity: that of each stage; the second is measured with the keys that the first has released.
    Accuracy: that of the statistic, for the groups shown, all at once; rare groups are left out.
    Numerics: that of each stage.
    Reference: DR14, Theorem 3.16 (composition); docs/proofs/ex-post-composition.md (Theorem 3, the refund);
        docs/proofs/private-keys.md (threshold).

    Parameters
    ----------
    query : TableQuery
        The statistic, with private keys among its ``by=`` columns.

    Raises
    ------
    InvalidRequest
        If the statistic also asks for private bounds.

    Examples
    --------
    >>> from expost.stats import Sum
    >>> by_city = Sum("pay", by=PrivateKeys("city", epsilon=0.2, delta=1e-6), epsilon=1)
    >>> ByPrivateKeys(by_city).question
    'sum of pay by private city'
    """

    query: TableQuery
    keys: tuple[PrivateKeys, ...] = field(init=False)

    def __post_init__(self) -> None:
        where = self.query.where
        listed = private_keys_in(self.query.group_keys)
        keys = tuple(each if each.where is not None else replace(each, where=where) for each in listed)
        object.__setattr__(self, "keys", keys)

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return self.query.question

    @property
    def keys_epsilon(self) -> Fraction:
        """Return the epsilon of all lists of keys together."""
        return sum((each.epsilon for each in self.keys), Fraction(0))

    @property
    def promise(self) -> ApproxGuarantee:
        """Return what keys and statistic cost together at most."""
        accuracy = self.query.accuracy
        most = accuracy.epsilon if accuracy.epsilon is not None else accuracy.cap
        delta = sum((each.delta for each in self.keys), Fraction(0))
        return ApproxGuarantee(self.keys_epsilon + (most or Fraction(0)), delta)

    @property
    def worst_case(self) -> Loss:
        """Return what keys and statistic cost together at most, as a loss."""
        return ApproxLoss(self.promise.epsilon, self.promise.delta)

    @describe_plan
    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> KeysFirstPlan:
        """Plan the keys, and check that the statistic fits the table and its cap for at least one group."""
        plans = tuple(each.plan(dataset) for each in self.keys)
        self._query_about(dataset, [_ANY_KEY] * len(self.keys)).plan(dataset)
        return KeysFirstPlan(self, plans)

    def _query_about(self, dataset: Dataset, shown: Sequence[tuple[Any, ...]]) -> TableQuery:
        """Return the statistic about keys that were shown."""
        lists = iter(zip(self.keys, shown, strict=True))
        by: list[Any] = []
        for each in self.query.group_keys:
            if isinstance(each, PrivateKeys):
                keys, values = next(lists)
                by.append(keys._to_axis(dataset, values))
            else:
                by.append(each)
        return replace(self.query, by=by)

    def ask_in_stages(
        self, ask: Callable[..., Release[Any]], dataset: Dataset, request_id: str | None = None
    ) -> Release[Any]:
        """Ask for keys and statistic one after the other, each with a receipt of its own.

        The keys are then on record before the statistic runs, and a crash in between loses the statistic's part only.
        A refusal after that point is a missed target, whose release holds the keys: they were paid for.

        Parameters
        ----------
        ask : callable
            Answers one query: ``ask(query, request_id=...)``.
        dataset : Dataset
            The table.
        request_id : str, optional
            The name of the request; the keys' requests are named after it.
        """
        self.plan(dataset)
        shown: list[Release[Any]] = []
        try:
            for each in self.keys:
                shown.append(ask(each, request_id=None if request_id is None else f"{request_id}: {each.question}"))
            receipts = [each.receipt for each in shown]
            if not all(each.value for each in shown):
                return self._release_no_groups(receipts)
            query = self._query_about(dataset, [each.value for each in shown])
            paid = reduce(add_losses, (each.in_all for each in receipts))
            return ask(NotedQuery(query, describe_keys(receipts), paid), request_id=request_id)
        except (BudgetExceeded, InvalidRequest) as refusal:
            if not shown:
                raise
            why = str(refusal)
        release = self._release_keys(shown)
        raise TargetNotMet(
            f"{why} The keys were shown before that and cost {release.receipt.bill}: they are public now and the value "
            "of this error's release. Declare them as categories to ask about them again.",
            release,
        )

    def _release_no_groups(self, receipts: Sequence[Receipt]) -> Release[Any]:
        """Return the release of a statistic by keys of which none was shown."""
        keys = (each.columns if isinstance(each, PrivateKeys) else (each,) for each in self.query.group_keys)
        names = tuple(str(each) for columns in keys for each in columns)
        return GroupRelease(Groups(names, ()), self._keys_receipt(receipts, Outcome.FIXED))

    def _release_keys(self, shown: Sequence[Release[Any]]) -> Release[Any]:
        """Return the keys that were paid for, where the statistic about them could not be asked."""
        keys = shown[0].value if len(self.keys) == 1 else tuple(each.value for each in shown)
        return AnswerRelease(keys, self._keys_receipt([each.receipt for each in shown], Outcome.NOT_MET))

    def _keys_receipt(self, receipts: Sequence[Receipt], outcome: Outcome) -> Receipt:
        paid = [each.bill.amounts() for each in receipts]
        return replace(
            receipts[0],
            question=self.question,
            promise=self.promise,
            bill=ApproxLoss(*(sum((each[name] for each in paid), Fraction(0)) for name in ("epsilon", "delta"))),
            outcome=outcome,
            terms=describe_keys(receipts),
        )


@dataclass(frozen=True)
class KeysFirstPlan:
    """How a statistic by private keys is answered under one hold: the keys, then the statistic about those shown."""

    stages: ByPrivateKeys
    key_plans: tuple[KeyPlan, ...]

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return self.stages.question

    @property
    def worst_case(self) -> Loss:
        """Return what keys and statistic may cost together."""
        return self.stages.worst_case

    def measure(self, dataset: Dataset) -> tuple[tuple[FoundKeyCounts, ...], Dataset]:
        """Return the sealed counts of the keys, and the dataset for the second stage."""
        return tuple(plan.measure(dataset) for plan in self.key_plans), dataset

    def climb(self, sealed: tuple[tuple[FoundKeyCounts, ...], Dataset], bits: BitSource | None = None) -> Release[Any]:
        """Release the keys, then the statistic about those shown."""
        (found, dataset), stages = sealed, self.stages
        shown = [plan.climb(each, bits) for plan, each in zip(self.key_plans, found, strict=True)]
        receipts = [each.receipt for each in shown]
        if not all(each.value for each in shown):
            return stages._release_no_groups(receipts)
        try:
            plan = stages._query_about(dataset, [each.value for each in shown]).plan(dataset)
        except BudgetExceeded:
            # The price of the target depends on the number of keys, which were paid for: a missed target, no error.
            return stages._release_keys(shown)
        answer = plan.climb(plan.measure(dataset), bits)
        own = answer.receipt.bill.amounts()["epsilon"]
        receipt = replace(
            answer.receipt,
            question=self.question,
            promise=stages.promise,
            bill=ApproxLoss(stages.keys_epsilon + own, stages.promise.delta),
            terms={**answer.receipt.terms, **describe_keys(receipts)},
            breakdown={"keys": stages.keys_epsilon, "question": own},
            citations=(*answer.receipt.citations, *receipts[0].citations),
        )
        return replace(answer, receipt=receipt)


def describe_keys(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Return what the keys cost and how they were chosen, for the statistic's receipt."""
    return {
        each.question: {
            "paid": str(each.bill),
            "threshold": each.terms["threshold"],
            "counted": each.terms["counted"],
            "keys shown": each.terms["keys shown"],
            "ledger": each.ledger_entry or "the same entry",
        }
        for each in receipts
    }


@dataclass(frozen=True, eq=False)
class NotedQuery:
    """A query whose receipt also states public facts and what was paid before for what it rests on."""

    query: Query
    facts: Mapping[str, Any]
    paid_before: Loss

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return self.query.question

    def plan(self, dataset: Dataset, context: PlanContext) -> NotedPlan:
        """Plan the query itself."""
        # The bills of both stages are added up, so the second is in epsilon too.
        return NotedPlan(self.query.plan(dataset, replace(context, budget_use=None)), self)


@dataclass(frozen=True)
class NotedPlan:
    """The plan of a ``NotedQuery``."""

    plan: Plan
    noted: NotedQuery

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return self.plan.question

    @property
    def worst_case(self) -> Loss:
        """Return the most that the query itself can cost."""
        return self.plan.worst_case

    @property
    def refined_from(self) -> Fraction:
        """Return what was paid for the releases that the query itself continues."""
        return self.plan.refined_from if isinstance(self.plan, RefiningPlan) else Fraction(0)

    def measure(self, dataset: Dataset) -> Any:
        """Measure the query itself."""
        return self.plan.measure(dataset)

    def climb(self, sealed: Any, bits: BitSource | None = None) -> Release[Any]:
        """Answer the query itself and add the notes to its receipt."""
        release = self.plan.climb(sealed, bits)
        before = self.noted.paid_before
        own = release.receipt.paid_before
        terms = {**release.receipt.terms, **self.noted.facts}
        paid = before if own is None else add_losses(own, before)
        return replace(release, receipt=replace(release.receipt, terms=terms, paid_before=paid))
