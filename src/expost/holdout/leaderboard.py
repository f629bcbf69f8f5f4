"""Leaderboards that can be climbed only by real improvement."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import BudgetExceeded, InvalidRequest
from expost.core.mask import check_unmasked, filled
from expost.core.one_process import OneProcess
from expost.core.rational import probability, rational
from expost.holdout.generalization import Bound, _capped
from expost.holdout.noise_level import GRID
from expost.holdout.question import lattice_total
from expost.holdout.transcript import log_binomial
from expost.holdout.typed import count_of

__all__ = ["LadderBoard", "Leaderboard", "ParameterFreeBoard", "Standing"]

RowLoss = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a submitter gets to see: the leader's loss, whether this submission set it, and how sure that is.

    >>> Standing(loss=0.25, improved=True, bound=Bound(0.1, "theorem"), submissions_left=9).improved
    True
    """

    loss: float
    improved: bool
    bound: Bound
    submissions_left: int


class Leaderboard(OneProcess, ABC):
    """Keeps the labels, scores submissions, and shows a loss only when it falls clearly enough.

    A copy of a board is the board itself, and a fork cannot submit: another count of submissions would void the bound.
    """

    _called = "board"

    def __init__(
        self, labels: Any, *, max_submissions: int, failure_probability: object, loss: RowLoss | None = None
    ) -> None:
        OneProcess.__init__(self)
        check_unmasked(labels)
        self._labels = np.asarray(labels)
        if self._labels.ndim == 0 or len(self._labels) < 1:
            raise InvalidRequest("Expected labels of at least one row", do="Pass an array of labels")
        self._rows = len(self._labels)
        self._most = count_of(max_submissions, "max_submissions")
        self._failure = probability(failure_probability, "failure_probability")
        self._row_loss = loss or _zero_one
        self._shown, self._submitted, self._improved = 1.0, 0, 0
        self._lock = threading.Lock()

    @property
    def shown(self) -> float:
        """The loss at the top of the board; 1 before the first improvement."""
        return self._shown

    @property
    def submissions_left(self) -> int:
        """How many submissions are left."""
        return self._most - self._submitted

    def submit(self, predictions: Any) -> Standing:
        """Score predictions for the rows of the labels, in their order."""
        self._check_process()
        with self._lock:
            self._check()
            given = self._given(predictions)
            bound = self._bound()
            self._submitted += 1
            improved = self._judge(given)
            self._improved += improved
            return Standing(loss=self._shown, improved=improved, bound=bound, submissions_left=self.submissions_left)

    def _check(self) -> None:
        if not self.submissions_left:
            raise BudgetExceeded("Expected submissions left", got=0, do="Open a board on fresh labels")

    def _given(self, predictions: Any) -> NDArray[Any]:
        check_unmasked(predictions)
        given = np.asarray(predictions)
        # A loss of the caller's may take any shape for each row; comparing needs that of the labels.
        fits = given.shape == self._labels.shape if self._row_loss is _zero_one else given.shape[:1] == (self._rows,)
        if not fits:
            rows = len(given) if given.ndim else 0
            raise InvalidRequest("Expected one prediction for each label", got=rows, do="Predict every row")
        return given

    def _losses(self, predictions: NDArray[Any]) -> NDArray[np.float64]:
        """The loss of every row in [0, 1]; one that is not a number is the worst."""
        losses = np.asarray(filled(self._row_loss(self._labels, predictions), 1), np.float64)
        if losses.shape != (self._rows,):
            raise InvalidRequest("Expected a loss with one value for each row", do="Return an array of that length")
        return np.clip(np.nan_to_num(losses, nan=1.0), 0.0, 1.0)

    def _mean(self, predictions: NDArray[Any]) -> float:
        return int(lattice_total(self._losses(predictions), self._rows, "scored")) / (self._rows * GRID)

    @abstractmethod
    def _judge(self, predictions: NDArray[Any]) -> bool:
        """Whether a submission improves, updating what is shown."""

    @abstractmethod
    def _bound(self) -> Bound:
        """What the shown loss promises after the submission to come."""


class LadderBoard(Leaderboard):
    """The Ladder: shows a loss rounded to a step, and only when it is more than a step below the one shown.

    What is shown is within ``bound`` of the smallest population loss of all submissions so far, at all times at once,
    with probability 1 - ``failure_probability`` (BH15, Theorem 3.1, with the count of docs/proofs/generalization.md in
    the place of its exponent). It is not private: use ``PrivateBoard`` where the labels are secret. ``step`` is chosen
    to make the bound smallest.

    >>> board = LadderBoard([1, 0, 1, 1] * 1000, max_submissions=100, failure_probability=0.05, step=0.05)
    >>> board.submit([1, 1, 1, 1] * 1000).loss, board.submit([1, 1, 1, 1] * 1000).improved
    (0.25, False)
    """

    def __init__(
        self,
        labels: Any,
        *,
        max_submissions: int,
        failure_probability: object,
        step: object = None,
        loss: RowLoss | None = None,
    ) -> None:
        super().__init__(labels, max_submissions=max_submissions, failure_probability=failure_probability, loss=loss)
        if step is None:
            steps = [Fraction(1, levels) for levels in range(2, 201)]
            self.step = min(steps, key=lambda size: self._error(size))
        else:
            self.step = rational(step, "step")
            if self.step >= 1:
                raise InvalidRequest("Expected a step below 1", got=step, do="Losses lie in [0, 1]")

    def _judge(self, predictions: NDArray[Any]) -> bool:
        mean, step = self._mean(predictions), float(self.step)
        if mean >= self._shown - step:
            return False
        self._shown = round(mean / step) * step
        return True

    def _bound(self) -> Bound:
        return Bound(_capped(self._error(self.step)), "BH15, Theorem 3.1 (counted)")

    def _error(self, step: Fraction) -> float:
        share = math.log(2 / self._failure) + self._log_histories(step)
        # Losses are rounded to the lattice before they are averaged: half a unit.
        return float(step) + math.sqrt(share / (2 * self._rows)) + 0.5 / GRID

    def _log_histories(self, step: Fraction) -> float:
        """Count the shown values that can precede any submission, over all submissions (docs/proofs/generalization.md, 3).

        A submission is shown as k step with k <= floor(1/step); with the first value that is floor(1/step) + 2
        values, and the value shown never rises.
        """
        values = math.floor(1 / step) + 2
        return log_binomial(self._most + values - 1, values)


class ParameterFreeBoard(Leaderboard):
    """The Ladder without a step: a loss counts as better when it is better by one paired standard error.

    What is shown is within ``bound`` of the population loss *of the submission that set it*, whatever the row loss in
    [0, 1]; the bound grows with the
    number of improvements so far, which is small as long as people do not chase the board (BH15, Section 3.2;
    docs/proofs/generalization.md). Not private.

    >>> board = ParameterFreeBoard([1, 0, 1, 1] * 1000, max_submissions=100, failure_probability=0.05)
    >>> board.submit([1, 1, 1, 1] * 1000).loss
    0.25
    """

    def __init__(
        self, labels: Any, *, max_submissions: int, failure_probability: object, loss: RowLoss | None = None
    ) -> None:
        super().__init__(labels, max_submissions=max_submissions, failure_probability=failure_probability, loss=loss)
        self._leader: NDArray[np.float64] = np.ones(self._rows)

    def _judge(self, predictions: NDArray[Any]) -> bool:
        values = self._losses(predictions)
        spread = float(np.std(values - self._leader, ddof=1)) if self._rows > 1 else 1.0
        if values.mean() >= self._shown - spread / math.sqrt(self._rows):
            return False
        self._leader, self._shown = values, round(float(values.mean()) * self._rows) / self._rows
        return True

    def _bound(self) -> Bound:
        done, better = self._submitted, self._improved
        share = math.log(2 * self._most * (better + 1) * (better + 2) / self._failure)
        error = math.sqrt((self._log_histories(done, better) + share) / (2 * self._rows)) + 0.5 / self._rows
        return Bound(_capped(error), "BH15, Section 3.2 (counted)")

    def _log_histories(self, done: int, better: int) -> float:
        """Count the histories of so many submissions and improvements (docs/proofs/generalization.md, 3).

        Which submissions improved, and the rounded losses they showed: a sequence over rows + 1 values that never
        rises. It may repeat a value, since an improvement by less than 1/rows rounds to it.
        """
        return log_binomial(done, better) + log_binomial(self._rows + better, better)


def _zero_one(labels: NDArray[Any], predictions: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(labels != predictions)
