"""A holdout that may be asked again and again, and its scorer for scikit-learn."""

from __future__ import annotations

import enum
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import BudgetExceeded, InvalidRequest, PureLoss, SingleOwner, explain_arguments, share_parameters
from expost.core.argument import fill_masked
from expost.holdout.generalization import Bound
from expost.holdout.holdout_plan import GRID, HoldoutPlan, Variant
from expost.holdout.holdout_sample import HoldoutSample, RowMetric, RowQuestion, metric_of, score_rows
from expost.holdout.holdout_session import BilledSession, HoldoutBudget, LedgerPlace, plan_within_budget, read_budget
from expost.holdout.thresholdout_mechanism import Thresholdout
from expost.noise import BitSource, system_bits

__all__ = ["HoldoutAnswer", "HoldoutScorer", "Origin", "ReusableHoldout"]

_CITATIONS = ("LeeNotes, Lemma 3.2(1)", "docs/proofs/above-threshold.md", "docs/proofs/generalization.md")
_REFUSED = """
BudgetExceeded
    If no answers or no questions are left.
InvalidRequest
    If the question is not a function of rows (or, for ``score``, the samples are not (X, y)), or the session is closed
    or was broken off.
"""


class Origin(enum.Enum):
    """Where an answer comes from.

    Examples
    --------
    >>> Origin("holdout")
    <Origin.HOLDOUT: 'holdout'>
    """

    TRAINING = "training"
    """The caller's own estimate: holdout and training agree within the threshold."""
    HOLDOUT = "holdout"
    """The noisy value on the holdout: the question overfits the training sample. Costs one of the budget."""


@dataclass(frozen=True, kw_only=True)
class HoldoutAnswer:
    """An answer, where it comes from, what it promises and what is left.

    Parameters
    ----------
    value : float
        The mean of the question, in [0, 1].
    origin : Origin
        Whether it comes from training or from the holdout.
    bound : Bound
        The error against the population. It holds for all answers of the session at once, with the session's failure
        probability, and is computed from public counts only.
    hits_left : int
        How many answers from the holdout are left.
    queries_left : int
        How many questions are left.

    Examples
    --------
    >>> answer = HoldoutAnswer(
    ...     value=0.71, origin=Origin.TRAINING, bound=Bound(0.05, "theorem"), hits_left=3, queries_left=90
    ... )
    >>> float(answer), answer.interval
    (0.71, (0.6599999999999999, 0.76))
    """

    value: float
    origin: Origin
    bound: Bound
    hits_left: int
    queries_left: int

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that contains the value on the population."""
        return max(self.value - self.bound.error, 0.0), min(self.value + self.bound.error, 1.0)

    def __float__(self) -> float:
        return self.value


@share_parameters(HoldoutPlan, BilledSession, Thresholdout.open)
class ReusableHoldout(BilledSession):
    """Answers adaptive questions about models without wearing the holdout out.

    A question is a vectorised function of rows into [0, 1] that judges each row by itself. As long as its mean on the
    training sample is close to that on the holdout, the training mean is the answer. When it is not, the question
    overfits, and the answer comes from the holdout with noise. Only those answers use up the budget. Use it as a
    context manager: a session that is never closed stays charged at its worst case.

    Guarantee: pure ex-post for the holdout rows, known only after the run; at most ``plan.guarantee``.
    Adjacency: replace-one, the number of holdout rows is public. The training sample is not protected.
    Sensitivity: 1 for the total of values in [0, 1], each of which depends on its own row alone.
    Accuracy: every answer is within its ``bound`` of the population, all at once, with probability
        1 - ``failure_probability``, however adaptively the questions are chosen.
    Numerics: exact integers on a lattice of 2^-20; values of rows are clipped to [0, 1]; NaN counts as 0, and so does a
        holdout row on which the question fails, silently.
    Reference: LeeNotes, Algorithm 1, Lemma 3.2 and Theorem 3.3 (corrected); LWLLC24 (the improved variant);
        docs/proofs/generalization.md.

    Parameters
    ----------
    train : array, table, or tuple of them
        The training sample, which is not protected. A tuple such as (X, y) passes its parts to the questions.
    holdout : array, table, or tuple of them
        The holdout sample, in the same form.
    budget : int, Guarantee or dict, optional
        A number of answers from the holdout, or a pure privacy budget such as ``expost.epsilon(1)``. Default: as many
        answers as the tolerance allows.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(60_000, 3))
    >>> terms = {"tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100}
    >>> with ReusableHoldout(rows[:30_000], rows[30_000:], **terms) as holdout:
    ...     answer = holdout.ask(lambda rows: rows[:, 0] > 0)
    >>> answer.origin.value, abs(answer.value - 0.5) < 0.02
    ('training', True)
    """

    @explain_arguments
    def __init__(
        self,
        train: Any,
        holdout: Any,
        *,
        tolerance: float | Fraction,
        failure_probability: float | Fraction,
        max_queries: int,
        budget: HoldoutBudget = None,
        ledger: LedgerPlace = None,
        account: str = "dataset:holdout",
        variant: Variant = "improved",
        bits: BitSource | None = None,
    ) -> None:
        self._train, self._holdout = HoldoutSample(train, "training"), HoldoutSample(holdout, "holdout")
        allowed = read_budget(budget)
        self.plan = plan_within_budget(
            self._holdout.rows,
            allowed,
            tolerance=tolerance,
            failure_probability=failure_probability,
            max_queries=max_queries,
            variant=variant,
        )
        self._bits = bits or system_bits()
        self._session = Thresholdout(self.plan).open(bits=self._bits)
        self._asked, self._reentrant_lock = 0, threading.RLock()
        super().__init__(ledger=ledger, account=account, budget=allowed, question="reusable holdout")

    def _draw_alone(self) -> AbstractContextManager[object]:
        self._check_owner()
        return self._reentrant_lock  # a question may itself ask the holdout

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

    @share_parameters(raises=_REFUSED)
    def ask(self, question: RowQuestion, *, guess: Any = None) -> HoldoutAnswer:
        """Return the mean of a question, from training or from the holdout.

        Parameters
        ----------
        question : callable
            A vectorised function of the parts of a sample: one value in [0, 1] per row.
        guess : float, optional
            Replaces the training mean: any number found without the holdout, e.g. a cross-validation score. The
            question is then tried out on one training row; an error there costs nothing.
        """
        with self._draw_alone():
            self._check_question(question)
            if guess is None:
                total = self._train.total(question)
                if np.ndim(total) != 0:
                    raise InvalidRequest("Expected one value per row", do="Use ask_many for several questions at once")
                center = Fraction(int(total), self._train.rows * GRID)
            else:
                center = _check_guess(guess)
                self._train.try_out(question)
            return self._answer_total(int(self._measure_total(question)), center)

    @share_parameters(raises=_REFUSED)
    def ask_many(self, question: RowQuestion) -> list[HoldoutAnswer]:
        """Return answers to several questions at once.

        Parameters
        ----------
        question : callable
            Returns one column of values per question.

        Returns
        -------
        list of HoldoutAnswer
            In order, until the budget is spent; the list is then shorter than the number of columns.
        """
        with self._draw_alone():
            self._check_question(question)
            guesses = self._train.total(question)
            totals = self._measure_total(question, columns=guesses.size if guesses.ndim else None)
            answers = []
            for total, guess in zip(np.atleast_1d(totals).tolist(), np.atleast_1d(guesses).tolist(), strict=True):
                if not (self.hits_left and self.queries_left):
                    break
                answers.append(self._answer_total(total, Fraction(guess, self._train.rows * GRID)))
            return answers

    @share_parameters(ask, raises=_REFUSED)
    def score(self, estimator: Any, metric: str | RowMetric = "accuracy", *, guess: Any = None) -> HoldoutAnswer:
        """Return the score of a fitted estimator. Both samples must be (X, y).

        Parameters
        ----------
        estimator : object
            Anything fitted that has ``predict``.
        metric : "accuracy" or callable, default "accuracy"
            A function of true and predicted values into [0, 1], row by row.
        """
        if not hasattr(estimator, "predict"):
            raise InvalidRequest("Expected a fitted estimator", got=type(estimator).__name__, do="Pass a fitted model")
        if self._train.parts != 2 or self._holdout.parts != 2:
            raise InvalidRequest("Expected both samples to be (X, y)", do="Open the holdout with (X, y) tuples")
        return self.ask(score_rows(estimator, metric), guess=guess)

    @share_parameters(score)
    def scorer(self, metric: str | RowMetric = "accuracy") -> HoldoutScorer:
        """Return a ``scoring=`` object for scikit-learn."""
        return HoldoutScorer(self, metric)

    def _check_question(self, question: object) -> None:
        """Refuse an object that is not a function, and a session with nothing left."""
        if not callable(question):
            raise InvalidRequest(
                "Expected a question that is a function of rows",
                got=type(question).__name__,
                do="Pass a function, or use score(model)",
            )
        self._check_open()
        for left, what in ((self.hits_left, "answers from the holdout"), (self.queries_left, "questions")):
            if not left:
                raise BudgetExceeded(f"All {what} have been used", do="Bring fresh rows for a new holdout")

    def _measure_total(self, question: RowQuestion, *, columns: int | None = None) -> Any:
        """Return exact totals on the holdout. A question broken off there may depend on a row: it ends the session."""
        try:
            return self._holdout.sealed_total(question, columns=columns)
        except BaseException:
            self._spoiled = True
            raise

    def _answer_total(self, total: int, guess: Fraction) -> HoldoutAnswer:
        """Answer from the guess or from the holdout, and state what is left."""
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

    def _describe_run(self) -> tuple[str, str, tuple[str, ...]]:
        hits = self.plan.max_hits - self.hits_left
        question = f"reusable holdout: {self._asked} questions, {hits} answered from the holdout"
        return question, f"Thresholdout, {self.plan.variant}", _CITATIONS

    def __repr__(self) -> str:
        return f"<reusable holdout, {self.hits_left} answers and {self.queries_left} questions left>"


def _check_guess(value: Any) -> Fraction:
    """Return a guess between 0 and 1."""
    if isinstance(value, Fraction):
        return min(max(value, Fraction(0)), Fraction(1))
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise InvalidRequest("Expected a guess between 0 and 1", got=value, do="Leave it out to use the training mean")
    return Fraction(number)


@share_parameters(ReusableHoldout.score)
class HoldoutScorer(SingleOwner):
    """Scores a fitted estimator for ``GridSearchCV(scoring=...)``, ``cross_val_score`` and the like.

    The score of the fold that scikit-learn passes is the guess. Where the holdout disagrees by more than the
    threshold, its own noisy answer takes the fold's place. Each call is one question. Run with ``n_jobs=1``: the budget
    belongs to one process.

    Parameters
    ----------
    holdout : ReusableHoldout
        The holdout, opened with (X, y) samples.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> y = np.arange(40_000) % 2
    >>> X = y[:, None] * 1.0
    >>> with ReusableHoldout((X, y), (X, y), tolerance=0.2, failure_probability=0.05, max_queries=20) as holdout:
    ...     float(holdout.scorer()(DummyClassifier(strategy="constant", constant=1).fit(X, y), X, y))
    0.5
    """

    _owned_noun, _copies_are_itself, _owner_hint = "holdout scorer", True, "Run with n_jobs=1"

    def __init__(self, holdout: ReusableHoldout, metric: str | RowMetric = "accuracy") -> None:
        super().__init__()
        self._holdout, self._metric = holdout, metric_of(metric)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the score of one fold, corrected by the holdout."""
        question = score_rows(estimator, self._metric)
        scores = np.asarray(fill_masked(question(X, y), 0), np.float64)
        fold = float(np.clip(np.nan_to_num(scores), 0.0, 1.0).mean())
        return float(self._holdout.ask(question, guess=fold))
