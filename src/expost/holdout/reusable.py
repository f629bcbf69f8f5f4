"""A holdout that may be asked again and again."""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from expost.core import (
    Adjacency,
    BudgetExceeded,
    Guarantee,
    InvalidRequest,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
)
from expost.holdout.answer import HoldoutAnswer, Origin
from expost.holdout.noise_level import GRID
from expost.holdout.plan import HoldoutPlan, Variant, largest, plan_holdout
from expost.holdout.question import Metric, Question, Sample, row_scores
from expost.holdout.scorer import HoldoutScorer
from expost.holdout.thresholdout import Thresholdout
from expost.ledger import Hold, Ledger, open_ledger
from expost.noise import BitSource, system_bits

__all__ = ["ReusableHoldout"]

_CITATIONS = ("LeeNotes, Lemma 3.2(1)", "docs/proofs/above-threshold.md", "docs/proofs/generalization.md")


class ReusableHoldout:
    """Answers adaptive questions about models without wearing the holdout out.

    A question is a vectorised function of rows into [0, 1] that judges each row by itself. As long as its mean on the training sample is close to
    that on the holdout, the training mean is the answer; when it is not, the question overfits, and the answer comes
    from the holdout with noise. Only those answers use up the budget; when it is spent, nothing more is said.

    ``budget`` is a number of answers from the holdout, or a privacy budget such as ``expost.epsilon(1)``; left out, as
    many as the tolerance allows. With a ledger the worst case is held when the session opens, and settled to what was
    used when it closes; use it as a context manager. A session that is never closed stays charged.

    Guarantee: pure ex-post for the holdout rows, known only after the run; at most ``plan.guarantee``.
    Adjacency: replace-one, the number of holdout rows is public. The training sample is not protected.
    Sensitivity: 1 for the total of values in [0, 1], each of which depends on its own row alone.
    Accuracy: every answer is within its ``bound`` of the population, all at once, with probability
        1 - ``failure_probability``, however adaptively the questions are chosen.
    Numerics: exact integers on a lattice of 2^-20; values of rows are clipped to [0, 1]; NaN counts as 0, and so does a
        holdout row on which the question fails, without a word about it.
    Reference: LeeNotes, Algorithm 1, Lemma 3.2 and Theorem 3.3 (corrected); docs/proofs/generalization.md.

    >>> rows = np.random.default_rng(0).normal(size=(60_000, 3))
    >>> with ReusableHoldout(rows[:30_000], rows[30_000:], tolerance=0.1, failure_probability=0.05, max_queries=100,
    ...                      variant="improved") as holdout:
    ...     answer = holdout.ask(lambda rows: rows[:, 0] > 0)
    >>> answer.origin.value, abs(answer.value - 0.5) < 0.02
    ('training', True)
    """

    def __init__(
        self,
        train: Any,
        holdout: Any,
        *,
        tolerance: object,
        failure_probability: object,
        max_queries: int,
        budget: int | Guarantee | None = None,
        ledger: Ledger | str | None = None,
        account: str = "dataset:holdout",
        variant: Variant = "analysed",
        bits: BitSource | None = None,
    ) -> None:
        self._train, self._holdout = Sample(train, "training"), Sample(holdout, "holdout")
        self.plan = _plan(self._holdout.rows, tolerance, failure_probability, max_queries, budget, variant)
        self._bits = bits or system_bits()
        self._session = Thresholdout(self.plan).open(bits=self._bits)
        self._asked, self._closed, self._spoiled = 0, False, False
        self._lock, self._process = threading.RLock(), os.getpid()
        self._ledger, self._hold = _open(ledger, account, budget, self.plan)
        self.receipt: Receipt | None = None

    @property
    def hits_left(self) -> int:
        """How many answers from the holdout are left."""
        return self._session.hits_left

    @property
    def queries_left(self) -> int:
        """How many questions are left."""
        return self.plan.max_queries - self._asked

    @property
    def loss(self) -> PureLoss:
        """What the session has cost so far; the worst case once a question was broken off on the holdout."""
        return PureLoss(self.plan.guarantee.epsilon) if self._spoiled else self._session.loss

    def ask(self, question: Question, *, guess: object = None) -> HoldoutAnswer:
        """The mean of a question, from training or from the holdout.

        ``guess`` replaces the training mean: any number found without the holdout, e.g. a cross-validation score.
        The question is tried out on one training row then; an error there costs nothing.
        """
        with self._lock:
            self._check_usable()
            if guess is None:
                total, rows = self._train.total(question), self._train.rows
                centre = Fraction(int(_single(total)), rows * GRID)
            else:
                centre = _guess(guess)
                self._train.try_out(question)
            return self._answer(int(self._exact(question)), centre)

    def ask_many(self, question: Question) -> list[HoldoutAnswer]:
        """Answers to several questions at once: ``question`` gives one column of values for each.

        They are answered in order until the budget is spent; the list is then shorter than the number of columns.
        """
        with self._lock:
            self._check_usable()
            guesses = self._train.total(question)
            totals = self._exact(question, columns=guesses.size if guesses.ndim else None)
            answers = []
            for total, guess in zip(np.atleast_1d(totals).tolist(), np.atleast_1d(guesses).tolist(), strict=True):
                if not (self.hits_left and self.queries_left):
                    break
                answers.append(self._answer(total, Fraction(guess, self._train.rows * GRID)))
            return answers

    def score(self, estimator: Any, metric: str | Metric = "accuracy", *, guess: object = None) -> HoldoutAnswer:
        """The score of a fitted estimator; both samples are (X, y).

        ``metric`` is ``"accuracy"`` or a function of true and predicted values into [0, 1], row by row.
        """
        return self.ask(row_scores(estimator, metric), guess=guess)

    def scorer(self, metric: str | Metric = "accuracy") -> HoldoutScorer:
        """A ``scoring=`` object for scikit-learn: the score of a fold, corrected by the holdout where it overfits."""
        return HoldoutScorer(self, metric)

    def close(self) -> Receipt:
        """End the session: settle the hold to what was used, and give the receipt."""
        with self._lock:
            if self.receipt is None:
                self._closed = True
                receipt = self._receipt()
                if self._ledger is not None and self._hold is not None:
                    receipt = receipt.entered(self._ledger.settle(self._hold, receipt))
                self.receipt = receipt
            return self.receipt

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise InvalidRequest(
                "Expected the process that opened the holdout", do="Ask from there; budgets do not fork"
            )
        if self._closed:
            raise InvalidRequest("Expected an open session", do="Open the holdout anew, which is billed anew")
        if self._spoiled:
            raise InvalidRequest(
                "Expected a session in which no question was broken off", do="Open the holdout anew, billed anew"
            )
        if not self.hits_left:
            raise BudgetExceeded(
                "Expected answers from the holdout left in the budget", got=0, do="Bring fresh rows for a new holdout"
            )
        if not self.queries_left:
            raise BudgetExceeded("Expected questions left", got=0, do="Bring fresh rows for a new holdout")

    def _exact(self, question: Question, *, columns: int | None = None) -> Any:
        """Exact totals on the holdout; a question broken off there may tell something: it ends the session."""
        try:
            return self._holdout.sealed_total(question, columns=columns)
        except BaseException:
            self._spoiled = True
            raise

    def _answer(self, total: int, guess: Fraction) -> HoldoutAnswer:
        question, hits = self._asked, self.plan.max_hits - self.hits_left
        self._asked += 1
        found = self._session.ask(total, guess=guess)
        from_holdout = found is not None
        return HoldoutAnswer(
            value=float(guess if found is None else found),
            origin=Origin.HOLDOUT if from_holdout else Origin.TRAINING,
            bound=self.plan.bound_in_force(question, hits, from_holdout=from_holdout),
            hits_left=self.hits_left,
            queries_left=self.queries_left,
        )

    def _receipt(self) -> Receipt:
        plan, hits = self.plan, self.plan.max_hits - self.hits_left
        return Receipt(
            question=f"reusable holdout: {self._asked} questions, {hits} answered from the holdout",
            method=f"Thresholdout, {plan.variant}",
            promise=plan.guarantee,
            bill=self.loss,
            adjacency=Adjacency.REPLACE_ONE,
            outcome=Outcome.CERTIFIED,
            achieved=plan.promise.error,
            terms={
                "rows of the holdout": plan.rows,
                "tolerance": plan.tolerance,
                "failure probability": plan.failure_probability,
                "questions at most": plan.max_queries,
                "answers from the holdout at most": plan.max_hits,
                "bound": plan.promise.theorem,
            },
            citations=_CITATIONS,
            simulation=not self._bits.private,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<reusable holdout, {self.hits_left} answers and {self.queries_left} questions left>"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("Expected a holdout to stay in its process; a pickled one would spend its budget twice.")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __copy__(self) -> Self:
        return self  # one budget, however often it is handed on

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _plan(
    rows: int,
    tolerance: object,
    failure_probability: object,
    max_queries: int,
    budget: int | Guarantee | None,
    variant: Variant,
) -> HoldoutPlan:
    hits = budget if isinstance(budget, int) and not isinstance(budget, bool) else None
    if budget is not None and hits is None and not isinstance(budget, PureGuarantee):
        raise InvalidRequest(
            "Expected budget to be a number of answers or a pure privacy budget", do="Pass 10, or expost.epsilon(1)"
        )
    plan = plan_holdout(
        rows,
        tolerance=tolerance,
        failure_probability=failure_probability,
        max_queries=max_queries,
        max_hits=hits,
        variant=variant,
    )
    return _within(plan, budget) if isinstance(budget, PureGuarantee) else plan


def _within(plan: HoldoutPlan, budget: PureGuarantee) -> HoldoutPlan:
    """The plan with as many answers as a privacy budget pays for."""

    def smaller(hits: int) -> HoldoutPlan:
        return plan_holdout(
            plan.rows,
            tolerance=plan.tolerance,
            failure_probability=plan.failure_probability,
            max_queries=plan.max_queries,
            max_hits=hits,
            variant=plan.variant,
        )

    hits = largest(lambda count: smaller(count).guarantee.epsilon <= budget.epsilon, 1, plan.max_hits)
    if hits == 0:
        raise BudgetExceeded(
            "Expected a budget that pays for one answer from the holdout",
            got=budget.epsilon,
            do="Raise the budget or the tolerance, or bring more rows",
        )
    return smaller(hits)


def _open(
    ledger: Ledger | str | None, account: str, budget: int | Guarantee | None, plan: HoldoutPlan
) -> tuple[Ledger | None, Hold | None]:
    if ledger is None:
        return None, None
    book = open_ledger(ledger) if isinstance(ledger, str) else ledger
    if account not in book.accounts():
        book.open_account(account, budget if isinstance(budget, Guarantee) else plan.guarantee)
    worst = PureLoss(plan.guarantee.epsilon)
    return book, book.hold([account], worst, question="reusable holdout")


def _single(total: Any) -> Any:
    if np.ndim(total) != 0:
        raise InvalidRequest("Expected one value a row", do="Use ask_many for several questions at once")
    return total


def _guess(value: object) -> Fraction:
    if isinstance(value, Fraction):
        return min(max(value, Fraction(0)), Fraction(1))
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise InvalidRequest("Expected a guess between 0 and 1", got=value, do="Leave it out to use the training mean")
    return Fraction(number)
