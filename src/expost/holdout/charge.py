"""A session's place in the ledger, and in one process."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from expost.core import Adjacency, Guarantee, Measure, Outcome, PureLoss, Receipt, Target, Unit
from expost.core.one_process import OneProcess
from expost.holdout.budget import Budget
from expost.holdout.plan import HoldoutPlan
from expost.ledger import Hold, Ledger, Protected, open_ledger
from expost.ledger.account import checked_name

__all__ = ["BilledSession", "Charge", "session_receipt"]

_ADJACENCY, _UNIT = Adjacency.REPLACE_ONE, Unit.row()  # what every session of a holdout is about


class Charge:
    """The worst case of a session, held until it is settled to what was used; a session never closed stays charged.

    >>> from expost.holdout.plan import plan_holdout
    >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=100, variant="improved")
    >>> book = open_ledger(None)
    >>> charge = Charge(book, "dataset:holdout", budget=None, plan=plan, question="reusable holdout")
    >>> book.spent("dataset:holdout").epsilon == plan.guarantee.epsilon
    True
    """

    def __init__(
        self,
        ledger: Ledger | str | os.PathLike[str] | None,
        account: str,
        *,
        budget: Budget,
        plan: HoldoutPlan,
        question: str,
    ) -> None:
        self._ledger: Ledger | None = None
        self._hold: Hold | None = None
        if ledger is None:
            return
        name = checked_name(account)
        book = open_ledger(ledger)
        if name not in book.accounts():
            book.open_account(name, budget if isinstance(budget, Guarantee) else plan.guarantee)
        # Losses add up for one notion of a person only: an account about another one refuses the session.
        protected = Protected(book.root_of(name), _ADJACENCY, _UNIT)
        worst_case = PureLoss(plan.guarantee.epsilon)
        self._ledger, self._hold = book, book.hold([name], worst_case, question=question, protected=protected)

    def settled(self, receipt: Receipt) -> Receipt:
        """The receipt, entered in the ledger if there is one."""
        if self._ledger is None or self._hold is None:
            return receipt
        return receipt.entered(self._ledger.settle(self._hold, receipt))


class BilledSession(OneProcess, ABC):
    """A session in one process whose worst case is held from its opening; closing settles it to what was used.

    One that is broken off half-way costs its worst case: when that happened may tell something.
    """

    _called = "holdout"
    _lock: Any  # set by the session: what its answers are taken under

    def __init__(self, charge: Charge) -> None:
        super().__init__()
        self._charge = charge
        self._closed = self._spoiled = False
        self.receipt: Receipt | None = None

    @abstractmethod
    def _receipt(self) -> Receipt:
        """What was promised and used so far."""

    def close(self) -> Receipt:
        """End the session: settle the hold to what was used, and give the receipt; in the process that opened it."""
        self._check_process()
        with self._lock:
            if self.receipt is None:
                self._closed = True
                self.receipt = self._charge.settled(self._receipt())
            return self.receipt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process == os.getpid():  # a fork that leaves the block ends nothing, and its own error goes on
            self.close()


def session_receipt(
    plan: HoldoutPlan, bill: PureLoss, *, question: str, method: str, citations: tuple[str, ...], private: bool
) -> Receipt:
    """The receipt of a session: what it promised about its answers, and what it cost the holdout rows."""
    return Receipt(
        question=question,
        method=method,
        promise=plan.guarantee,
        bill=bill,
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
        simulation=not private,
    )
