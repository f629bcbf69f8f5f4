"""A holdout that may be asked again and again."""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import BudgetExceeded, InvalidRequest, PureLoss, Receipt
from expost.holdout.answer import HoldoutAnswer, Origin
from expost.holdout.budget import Budget, budgeted_plan
from expost.holdout.charge import BilledSession, Charge, session_receipt
from expost.holdout.noise_level import GRID
from expost.holdout.plan import Variant
from expost.holdout.question import Metric, Question, Sample, row_scores
from expost.holdout.scorer import HoldoutScorer
from expost.holdout.thresholdout import Thresholdout
from expost.ledger import Ledger
from expost.noise import BitSource, system_bits

__all__ = ["ReusableHoldout"]

_CITATIONS = ("LeeNotes, Lemma 3.2(1)", "docs/proofs/above-threshold.md", "docs/proofs/generalization.md")


class ReusableHoldout(BilledSession):
    """Answers adaptive questions about models without wearing the holdout out.

    A question is a vectorised function of rows into [0, 1] that judges each row by itself. As long as its mean on the
    training sample is close to that on the holdout, the training mean is the answer; when it is not, the question
    overfits, and the answer comes from the holdout with noise. Only those answers use up the budget; when it is spent,
    nothing more is said.

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
        budget: Budget = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: str = "dataset:holdout",
        variant: Variant = "analysed",
        bits: BitSource | None = None,
    ) -> None:
        self._train, self._holdout = Sample(train, "training"), Sample(holdout, "holdout")
        self.plan = budgeted_plan(
            self._holdout.rows,
            tolerance=tolerance,
            failure_probability=failure_probability,
            max_queries=max_queries,
            budget=budget,
            variant=variant,
        )
        self._bits = bits or system_bits()
        self._session = Thresholdout(self.plan).open(bits=self._bits)
        self._asked, self._lock = 0, threading.RLock()
        super().__init__(Charge(ledger, account, budget=budget, plan=self.plan, question="reusable holdout"))

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
            self._check_usable(question)
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
            self._check_usable(question)
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
        if not hasattr(estimator, "predict"):
            raise InvalidRequest("Expected a fitted estimator", got=type(estimator).__name__, do="Pass a fitted model")
        if self._train.parts != 2 or self._holdout.parts != 2:
            raise InvalidRequest("Expected both samples to be (X, y)", do="Open the holdout with (X, y) tuples")
        return self.ask(row_scores(estimator, metric), guess=guess)

    def scorer(self, metric: str | Metric = "accuracy") -> HoldoutScorer:
        """A ``scoring=`` object for scikit-learn: the score of a fold, corrected by the holdout where it overfits."""
        return HoldoutScorer(self, metric)

    def _check_usable(self, question: object) -> None:
        self._check_process()
        if not callable(question):
            raise InvalidRequest(
                "Expected a question that is a function of rows",
                got=type(question).__name__,
                do="Pass a function, or use score(model)",
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
        hits = self.plan.max_hits - self.hits_left
        return session_receipt(
            self.plan,
            self.loss,
            question=f"reusable holdout: {self._asked} questions, {hits} answered from the holdout",
            method=f"Thresholdout, {self.plan.variant}",
            citations=_CITATIONS,
            private=self._bits.private,
        )

    def __repr__(self) -> str:
        return f"<reusable holdout, {self.hits_left} answers and {self.queries_left} questions left>"


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
