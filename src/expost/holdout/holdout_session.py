"""A billed session on a holdout: its budget, its hold in the ledger, its one process and its receipt."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from expost.answer import noted_receipt
from expost.core import (
    Adjacency,
    BudgetExceeded,
    Guarantee,
    InvalidRequest,
    Measure,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
    SingleOwner,
    Target,
    Unit,
    as_guarantee,
)
from expost.holdout.holdout_plan import HoldoutPlan, find_largest, plan_holdout
from expost.ledger import Hold, Ledger, Protected, open_ledger
from expost.ledger.ledger_account import check_name
from expost.noise import BitSource

__all__ = ["BilledSession", "HoldoutBudget", "LedgerPlace", "plan_within_budget", "read_budget"]

HoldoutBudget = int | Guarantee | tuple[float, float] | dict[str, float] | None
"""A number of answers from the holdout, a pure privacy budget, or None for as much as the tolerance allows."""

LedgerPlace = Ledger | str | os.PathLike[str] | None
"""Where a session is billed; None for nowhere."""

_ADJACENCY, _UNIT = Adjacency.REPLACE_ONE, Unit.row()  # what every session of a holdout protects


def read_budget(budget: object) -> int | PureGuarantee | None:
    """Return what a caller allows: a number of answers, a pure privacy budget, or None.

    >>> read_budget(10), read_budget({"epsilon": 1})
    (10, PureGuarantee(epsilon=Fraction(1, 1)))
    """
    do = 'Pass a number of answers such as 10, or a privacy budget such as {"epsilon": 1}'
    if budget is None:
        return None
    if isinstance(budget, int) and not isinstance(budget, bool):
        if budget < 1:
            raise InvalidRequest("Expected a budget of at least one answer", got=budget, do=do)
        return budget
    # A plain float is refused: 1 would mean an answer and 1.0 an epsilon.
    guarantee = None if isinstance(budget, bool | float | str) else as_guarantee(budget)
    if not isinstance(guarantee, PureGuarantee):
        raise InvalidRequest("Expected budget to be a number of answers or a pure privacy budget", got=budget, do=do)
    return guarantee


def plan_within_budget(rows: int, budget: int | PureGuarantee | None, **terms: Any) -> HoldoutPlan:
    """Plan a session with as many answers as the budget allows; ``terms`` are those of ``plan_holdout``.

    >>> terms = {"tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100, "variant": "improved"}
    >>> [plan_within_budget(50_000, budget, **terms).max_hits for budget in (PureGuarantee(1), 2)]
    [15, 2]
    """
    if not isinstance(budget, PureGuarantee):
        return plan_holdout(rows, max_hits=budget, **terms)
    most, limit = plan_holdout(rows, **terms).max_hits, budget.epsilon
    hits = find_largest(lambda count: plan_holdout(rows, max_hits=count, **terms).guarantee.epsilon <= limit, 1, most)
    if hits == 0:
        raise BudgetExceeded(
            "Expected a budget that pays for one answer from the holdout",
            got=limit,
            do="Raise the budget or the tolerance, or bring more rows",
        )
    return plan_holdout(rows, max_hits=hits, **terms)


class BilledSession(SingleOwner, ABC):
    """A session in one process whose worst case is held from its opening. Closing settles it to what was used.

    A session that is never closed stays charged. One that is broken off half-way costs its worst case, because when
    that happened may depend on the data.

    Parameters
    ----------
    ledger : Ledger, str or path, optional
        Where the worst case is held when the session opens, and settled to what was used when it closes.
    account : str, default "dataset:holdout"
        The account in the ledger.
    """

    _owned_noun, _copies_are_itself = "holdout", True

    plan: HoldoutPlan
    _bits: BitSource

    def __init__(self, *, ledger: LedgerPlace, account: str, budget: int | PureGuarantee | None, question: str) -> None:
        SingleOwner.__init__(self)
        self._closed = self._spoiled = False
        self.receipt: Receipt | None = None
        self._ledger: Ledger | None = None
        self._hold: Hold | None = None
        if ledger is not None:
            name, book = check_name(account), open_ledger(ledger)
            if name not in book.accounts():
                book.open_account(name, budget if isinstance(budget, Guarantee) else self.plan.guarantee)
            # Losses add up for one notion of a person only: an account about another one refuses the session.
            protected = Protected(book.root_of(name), _ADJACENCY, _UNIT)
            worst_case = PureLoss(self.plan.guarantee.epsilon)
            self._ledger, self._hold = book, book.hold([name], worst_case, question=question, protected=protected)

    @property
    @abstractmethod
    def loss(self) -> PureLoss:
        """What the session has cost so far."""

    @abstractmethod
    def _describe_run(self) -> tuple[str, str, tuple[str, ...]]:
        """Return question, method and citations for the receipt."""

    def close(self) -> Receipt:
        """End the session: settle the hold to what was used. Only the process that opened it can."""
        with self._draw_alone():
            if self.receipt is None:
                self._closed = True
                receipt = self._write_receipt()
                if self._ledger is not None and self._hold is not None:
                    receipt = noted_receipt(self._hold, receipt)
                    receipt = receipt.entered(self._ledger.settle(self._hold, receipt))
                self.receipt = receipt
            return self.receipt

    def _check_open(self) -> None:
        """Refuse a session that is closed or was broken off."""
        if self._closed or self._spoiled:
            reason = "closed" if self._closed else "broken off during a question"
            raise InvalidRequest(
                f"Cannot use this {self._owned_noun} because it was {reason}",
                do=f"Open a new {self._owned_noun}, which is billed again",
            )

    def _write_receipt(self) -> Receipt:
        """Return the receipt: what the session promised about its answers, and what it cost the holdout rows."""
        plan, (question, method, citations) = self.plan, self._describe_run()
        return Receipt(
            question=question,
            method=method,
            promise=plan.guarantee,
            bill=self.loss,
            adjacency=_ADJACENCY,
            unit=_UNIT,
            outcome=Outcome.CERTIFIED,
            target=Target(Measure.ABSOLUTE_ERROR, plan.tolerance, plan.failure_probability),
            achieved=plan.promise.error,
            terms={
                "rows of the holdout": plan.rows,
                "questions at most": plan.max_queries,
                "answers from the holdout at most": plan.max_hits,
                "bound": plan.promise.theorem,
            },
            citations=citations,
            simulation=not self._bits.private,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner_process == os.getpid():  # a fork that leaves the block ends nothing, and its own error goes on
            self.close()
