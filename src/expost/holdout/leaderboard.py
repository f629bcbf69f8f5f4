"""Leaderboards that can be climbed only by real improvement: the Ladder, its form without a step, and a private one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    BudgetExceeded,
    InvalidRequest,
    PureLoss,
    Sealed,
    SingleOwner,
    explain_arguments,
    share_parameters,
)
from expost.core.argument import check_unmasked, fill_masked
from expost.core.rational import probability, rational
from expost.holdout.generalization import Bound, cap_error, check_count, log_binomial
from expost.holdout.holdout_plan import GRID
from expost.holdout.holdout_sample import SENSITIVITY, forgiving_total, lattice_total
from expost.holdout.holdout_session import BilledSession, HoldoutBudget, LedgerPlace, plan_within_budget, read_budget
from expost.holdout.thresholdout_mechanism import Thresholdout, gap_bias
from expost.noise import BitSource, system_bits

__all__ = ["LadderBoard", "Leaderboard", "ParameterFreeBoard", "PrivateBoard", "RowLoss", "Standing"]

RowLoss = Callable[[Any, Any], Any]
"""A vectorised function of labels and predictions: one loss in [0, 1] per row, which depends on that row alone."""

_CITATIONS = ("DFHPRR15, Theorem 25", "docs/proofs/above-threshold.md", "docs/proofs/generalization.md")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a submitter sees.

    Parameters
    ----------
    loss : float
        The loss at the top of the board.
    improved : bool
        Whether this submission set it.
    bound : Bound
        The error of the loss against the population.
    submissions_left : int
        How many submissions are left.

    Examples
    --------
    >>> Standing(loss=0.25, improved=True, bound=Bound(0.1, "theorem"), submissions_left=9).improved
    True
    """

    loss: float
    improved: bool
    bound: Bound
    submissions_left: int


def zero_one_loss(labels: NDArray[Any], predictions: NDArray[Any]) -> NDArray[np.bool_]:
    """Return 1 where a prediction differs from its label."""
    return np.asarray(labels != predictions)


class Leaderboard(SingleOwner, ABC):
    """The base of boards: keeps the labels, scores submissions, and shows a loss only when it falls clearly enough.

    A copy of a board is the board itself, and a fork cannot submit: another count of submissions would void the bound.

    Parameters
    ----------
    labels : array
        The labels to score against.
    max_submissions : int
        The most submissions.
    failure_probability : float
        How often any shown loss may be farther off than its bound, in (0, 1).
    loss : callable, optional
        A function of labels and predictions into [0, 1], row by row. Default: the zero-one loss.

    Examples
    --------
    >>> issubclass(LadderBoard, Leaderboard)
    True
    """

    _owned_noun, _copies_are_itself = "board", True

    def __init__(
        self, labels: Any, *, max_submissions: int, failure_probability: float | Fraction, loss: RowLoss | None = None
    ) -> None:
        SingleOwner.__init__(self)
        check_unmasked(labels)
        self._labels = np.asarray(labels)
        if self._labels.ndim == 0 or len(self._labels) < 1:
            raise InvalidRequest("Expected labels of at least one row", do="Pass an array of labels")
        self._rows = len(self._labels)
        self._most = check_count(max_submissions, "max_submissions")
        self._failure = probability(failure_probability, "failure_probability")
        self._row_loss = loss or zero_one_loss
        self._shown, self._submitted, self._improved = 1.0, 0, 0

    @property
    def shown(self) -> float:
        """The loss at the top of the board; 1 before the first improvement."""
        return self._shown

    @property
    def submissions_left(self) -> int:
        """How many submissions are left."""
        return self._most - self._submitted

    def submit(self, predictions: Any) -> Standing:
        """Score predictions for the rows of the labels, in their order.

        Parameters
        ----------
        predictions : array
            One prediction per label.

        Raises
        ------
        BudgetExceeded
            If no submissions (or, on a private board, no improvements) are left.
        InvalidRequest
            If the predictions do not fit the labels.
        """
        with self._draw_alone():
            self._check_left()
            check_unmasked(predictions)
            given = np.asarray(predictions)
            # A loss of the caller's may take any shape for each row; comparing needs that of the labels.
            any_shape = self._row_loss is not zero_one_loss
            if given.shape[:1] != (self._rows,) if any_shape else given.shape != self._labels.shape:
                rows = len(given) if given.ndim else 0
                raise InvalidRequest("Expected one prediction for each label", got=rows, do="Predict every row")
            bound = self._current_bound()
            self._submitted += 1
            improved = self._judge_submission(given)
            self._improved += improved
            return Standing(loss=self._shown, improved=improved, bound=bound, submissions_left=self.submissions_left)

    def _check_left(self) -> None:
        """Refuse when nothing is left."""
        if not self.submissions_left:
            raise BudgetExceeded(
                "Cannot score because there are no submissions left", do="Open a board on fresh labels"
            )

    def _score_rows(self, predictions: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of every row in [0, 1]; NaN counts as the worst."""
        losses = np.asarray(fill_masked(self._row_loss(self._labels, predictions), 1), np.float64)
        if losses.shape != (self._rows,):
            raise InvalidRequest("Expected a loss with one value for each row", do="Return an array of that length")
        return np.clip(np.nan_to_num(losses, nan=1.0), 0.0, 1.0)

    @abstractmethod
    def _judge_submission(self, predictions: NDArray[Any]) -> bool:
        """Return whether a submission improves, and update what is shown."""

    @abstractmethod
    def _current_bound(self) -> Bound:
        """Return what the shown loss promises after the submission to come."""


@share_parameters(Leaderboard)
class LadderBoard(Leaderboard):
    """The Ladder: shows a loss rounded to a step, and only when it is more than a step below the one shown.

    What is shown is within ``bound`` of the smallest population loss of all submissions so far, at all times at once,
    with probability 1 - ``failure_probability`` (BH15, Theorem 3.1, with the count of docs/proofs/generalization.md in
    the place of its exponent). It is not private: use ``PrivateBoard`` where the labels are secret.

    Parameters
    ----------
    step : float, optional
        The step, in (0, 1). Default: the one that makes the bound smallest.

    Examples
    --------
    >>> board = LadderBoard([1, 0, 1, 1] * 1000, max_submissions=100, failure_probability=0.05, step=0.05)
    >>> board.submit([1, 1, 1, 1] * 1000).loss, board.submit([1, 1, 1, 1] * 1000).improved
    (0.25, False)
    """

    @explain_arguments
    def __init__(
        self,
        labels: Any,
        *,
        max_submissions: int,
        failure_probability: float | Fraction,
        step: float | Fraction | None = None,
        loss: RowLoss | None = None,
    ) -> None:
        super().__init__(labels, max_submissions=max_submissions, failure_probability=failure_probability, loss=loss)
        if step is None:
            self.step = min((Fraction(1, levels) for levels in range(2, 201)), key=self._error_at)
        else:
            self.step = rational(step, "step")
            if self.step >= 1:
                raise InvalidRequest("Expected a step below 1", got=step, do="Losses lie in [0, 1]")

    def _mean_loss(self, predictions: NDArray[Any]) -> float:
        return int(lattice_total(self._score_rows(predictions), self._rows, "scored")) / (self._rows * GRID)

    def _judge_submission(self, predictions: NDArray[Any]) -> bool:
        mean, step = self._mean_loss(predictions), float(self.step)
        if mean >= self._shown - step:
            return False
        self._shown = round(mean / step) * step
        return True

    def _current_bound(self) -> Bound:
        return Bound(cap_error(self._error_at(self.step)), "BH15, Theorem 3.1 (counted)")

    def _error_at(self, step: Fraction) -> float:
        """Return the error of what is shown with this step."""
        share = math.log(2 / self._failure) + self._log_histories(step)
        # Losses are rounded to the lattice before they are averaged: half a unit.
        return float(step) + math.sqrt(share / (2 * self._rows)) + 0.5 / GRID

    def _log_histories(self, step: Fraction) -> float:
        """Count the shown values that can precede any submission, over all submissions, as a logarithm."""
        # docs/proofs/generalization.md, 3: a submission is shown as k step with k <= floor(1/step). With the first value
        # that is floor(1/step) + 2 values, and the value shown never rises.
        values = math.floor(1 / step) + 2
        return log_binomial(self._most + values - 1, values)


@share_parameters(Leaderboard)
class ParameterFreeBoard(Leaderboard):
    """The Ladder without a step: a loss counts as better when it is better by one paired standard error.

    What is shown is within ``bound`` of the population loss *of the submission that set it*, whatever the row loss in
    [0, 1]. The bound grows with the number of improvements so far, which is small as long as submitters do not adapt to
    the board (BH15, Section 3.2; docs/proofs/generalization.md). Not private.

    Examples
    --------
    >>> board = ParameterFreeBoard([1, 0, 1, 1] * 1000, max_submissions=100, failure_probability=0.05)
    >>> board.submit([1, 1, 1, 1] * 1000).loss
    0.25
    """

    @explain_arguments
    def __init__(
        self, labels: Any, *, max_submissions: int, failure_probability: float | Fraction, loss: RowLoss | None = None
    ) -> None:
        super().__init__(labels, max_submissions=max_submissions, failure_probability=failure_probability, loss=loss)
        self._leader: NDArray[np.float64] = np.ones(self._rows)

    def _judge_submission(self, predictions: NDArray[Any]) -> bool:
        values = self._score_rows(predictions)
        spread = float(np.std(values - self._leader, ddof=1)) if self._rows > 1 else 1.0
        if values.mean() >= self._shown - spread / math.sqrt(self._rows):
            return False
        self._leader, self._shown = values, round(float(values.mean()) * self._rows) / self._rows
        return True

    def _current_bound(self) -> Bound:
        done, better = self._submitted, self._improved
        share = math.log(2 * self._most * (better + 1) * (better + 2) / self._failure)
        error = math.sqrt((self._log_histories(done, better) + share) / (2 * self._rows)) + 0.5 / self._rows
        return Bound(cap_error(error), "BH15, Section 3.2 (counted)")

    def _log_histories(self, done: int, better: int) -> float:
        """Count the histories of so many submissions and improvements, as a logarithm."""
        # docs/proofs/generalization.md, 3: which submissions improved, and the rounded losses they showed: a sequence
        # over rows + 1 values that never rises. It may repeat a value: an improvement below 1/rows rounds to it.
        return log_binomial(done, better) + log_binomial(self._rows + better, better)


@share_parameters(Leaderboard, BilledSession, Thresholdout.open)
class PrivateBoard(Leaderboard, BilledSession):
    """A leaderboard that protects the labels: improvements are found by a private threshold test.

    The loss shown moves only when the private test finds it lower by more than its threshold; the free gap of the test
    is the new loss. The board ends when the budget of improvements is used up. Use it as a context manager: a board
    that is never closed stays charged at its worst case.

    Guarantee: pure ex-post for the labelled rows, known only after the run: see ``loss``; at most ``plan.guarantee``.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: 1 for the total of losses in [0, 1], each of which depends on its own row alone.
    Accuracy: the loss shown is within ``bound`` of the population loss of the submission that set it.
    Numerics: exact integers on a lattice of 2^-20; a loss that is not a number, or fails on a row, counts as 1 there.
    Reference: DFHPRR15, Theorem 25; BH15, Section 3; docs/proofs/above-threshold.md; docs/proofs/generalization.md.

    Parameters
    ----------
    tolerance : float
        The largest error of a shown loss against the population, in (0, 1).
    budget : int, Guarantee or dict, optional
        A number of improvements, or a pure privacy budget such as ``expost.epsilon(1)``. Default: as many improvements
        as the tolerance allows.
    account : str, default "dataset:leaderboard"
        The account in the ledger.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> labels = np.arange(60_000) % 4 > 0
    >>> with PrivateBoard(labels, max_submissions=50, tolerance=0.1, failure_probability=0.05, budget=3,
    ...                   bits=SeededBits(1)) as board:
    ...     standing = board.submit(np.ones(60_000))
    >>> abs(standing.loss - 0.25) < 0.05, board.receipt.bill.epsilon == board.plan.hit_epsilon
    (True, True)
    """

    @explain_arguments
    def __init__(
        self,
        labels: Any,
        *,
        max_submissions: int,
        tolerance: float | Fraction,
        failure_probability: float | Fraction,
        budget: HoldoutBudget = None,
        ledger: LedgerPlace = None,
        account: str = "dataset:leaderboard",
        loss: RowLoss | None = None,
        bits: BitSource | None = None,
    ) -> None:
        Leaderboard.__init__(
            self, labels, max_submissions=max_submissions, failure_probability=failure_probability, loss=loss
        )
        allowed = read_budget(budget)
        self.plan = plan_within_budget(
            self._rows,
            allowed,
            tolerance=tolerance,
            failure_probability=failure_probability,
            max_queries=max_submissions,
            variant="improved",
        )
        self._bits = bits or system_bits()
        self._test = Thresholdout(self.plan).rule.open(bits=self._bits)
        BilledSession.__init__(self, ledger=ledger, account=account, budget=allowed, question="private leaderboard")

    @property
    def loss(self) -> PureLoss:
        """What the board has cost so far; the worst case once a submission was broken off."""
        return PureLoss(self.plan.guarantee.epsilon) if self._spoiled else self._test.loss

    @property
    def improvements_left(self) -> int:
        """How many improvements the budget still pays for."""
        return self._test.hits_left

    def _describe_run(self) -> tuple[str, str, tuple[str, ...]]:
        question = f"private leaderboard: {self._submitted} submissions, {self._improved} improvements"
        return question, "Thresholdout, improved, one-sided", _CITATIONS

    def _check_left(self) -> None:
        self._check_open()
        super()._check_left()
        if not self._test.hits_left:
            raise BudgetExceeded(
                "Cannot score because there are no improvements left", do="Open a board on fresh labels"
            )

    def _judge_submission(self, predictions: NDArray[Any]) -> bool:
        unit, rule = self._rows * GRID, self._test.rule
        try:
            total = unit - self._measure_gain(predictions)
        except BaseException:
            self._spoiled = True  # when it broke off may depend on a label
            raise
        crossing = self._test.ask(Sealed(round(self._shown * unit) - total, SENSITIVITY))
        if crossing.gap is None:
            return False
        fall = Fraction(rule.threshold + crossing.gap - gap_bias(rule), unit)
        step = self.plan.answer_step
        lower = max(round((Fraction(self._shown) - fall) / step), 0) * step
        self._shown = min(float(lower), self._shown)
        return True

    def _measure_gain(self, predictions: NDArray[Any]) -> int:
        """Return the total of 1 - loss. Rows on which the loss fails add 0, so that no label can raise an error."""

        def gains(start: int, stop: int) -> Any:
            losses = self._row_loss(self._labels[start:stop], predictions[start:stop])
            return 1.0 - np.asarray(fill_masked(losses, 1), np.float64)

        return int(forgiving_total(gains, self._rows))

    def _current_bound(self) -> Bound:
        return self.plan.bound_in_force(self._submitted, self._improved, from_holdout=True)
