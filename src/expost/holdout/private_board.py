"""A leaderboard that protects the labels too."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import BudgetExceeded, InvalidRequest, PureLoss, Receipt, Sealed
from expost.core.mask import filled
from expost.holdout.budget import Budget, budgeted_plan
from expost.holdout.charge import BilledSession, Charge, session_receipt
from expost.holdout.generalization import Bound
from expost.holdout.leaderboard import Leaderboard, RowLoss
from expost.holdout.noise_level import GRID
from expost.holdout.question import SENSITIVITY, forgiving_total
from expost.holdout.thresholdout import Thresholdout
from expost.ledger import Ledger
from expost.noise import BitSource, system_bits

__all__ = ["PrivateBoard"]

_CITATIONS = ("DFHPRR15, Theorem 25", "docs/proofs/above-threshold.md", "docs/proofs/generalization.md")


class PrivateBoard(Leaderboard, BilledSession):
    """A leaderboard that protects the labels: improvements are found by a private threshold test.

    The loss shown moves only when the private test finds it lower by more than its threshold; the free gap of the test
    is the new loss. Ends when the budget of improvements is used up. ``budget`` is their number, or a privacy budget
    such as ``expost.epsilon(1)``. With a ledger the worst case is held when the board opens and settled to what was
    used when it closes; use it as a context manager. A board that is never closed stays charged.

    Guarantee: pure ex-post for the labelled rows, known only after the run: see ``loss``; at most ``plan.guarantee``.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: 1 for the total of losses in [0, 1], each of which depends on its own row alone.
    Accuracy: the loss shown is within ``bound`` of the population loss of the submission that set it.
    Numerics: exact integers on a lattice of 2^-20; a loss that is not a number, or fails on a row, counts as 1 there.
    Reference: DFHPRR15, Theorem 25; BH15, Section 3; docs/proofs/above-threshold.md; docs/proofs/generalization.md.

    >>> from expost.noise import SeededBits
    >>> labels = np.arange(60_000) % 4 > 0
    >>> with PrivateBoard(labels, max_submissions=50, tolerance=0.1, failure_probability=0.05, budget=3,
    ...                   bits=SeededBits(1)) as board:
    ...     standing = board.submit(np.ones(60_000))
    >>> abs(standing.loss - 0.25) < 0.05, board.receipt.bill.epsilon == board.plan.hit_epsilon
    (True, True)
    """

    def __init__(
        self,
        labels: Any,
        *,
        max_submissions: int,
        tolerance: object,
        failure_probability: object,
        budget: Budget = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        account: str = "dataset:leaderboard",
        loss: RowLoss | None = None,
        bits: BitSource | None = None,
    ) -> None:
        Leaderboard.__init__(
            self, labels, max_submissions=max_submissions, failure_probability=failure_probability, loss=loss
        )
        self.plan = budgeted_plan(
            self._rows,
            tolerance=tolerance,
            failure_probability=failure_probability,
            max_queries=max_submissions,
            budget=budget,
            variant="improved",
        )
        self._bits = bits or system_bits()
        self._rule = Thresholdout(self.plan).rule
        self._test = self._rule.open(bits=self._bits)
        BilledSession.__init__(
            self, Charge(ledger, account, budget=budget, plan=self.plan, question="private leaderboard")
        )

    @property
    def loss(self) -> PureLoss:
        """What the board has cost so far; the worst case once a submission was broken off."""
        return PureLoss(self.plan.guarantee.epsilon) if self._spoiled else self._test.loss

    @property
    def improvements_left(self) -> int:
        """How many improvements the budget still pays for."""
        return self._test.hits_left

    def _receipt(self) -> Receipt:
        return session_receipt(
            self.plan,
            self.loss,
            question=f"private leaderboard: {self._submitted} submissions, {self._improved} improvements",
            method="Thresholdout, improved, one-sided",
            citations=_CITATIONS,
            private=self._bits.private,
        )

    def _check(self) -> None:
        self._check_process()
        if self._closed:
            raise InvalidRequest("Expected an open board", do="Open a new one, which is billed anew")
        if self._spoiled:
            raise InvalidRequest("Expected a board on which no submission was broken off", do="Open a new one")
        super()._check()
        if not self._test.hits_left:
            raise BudgetExceeded("Expected improvements left", got=0, do="Open a board on fresh labels")

    def _judge(self, predictions: NDArray[Any]) -> bool:
        unit = self._rows * GRID
        try:
            total = unit - self._gain(predictions)
        except BaseException:
            self._spoiled = True  # broken off half-way: when it happened may tell something
            raise
        crossing = self._test.ask(Sealed(round(self._shown * unit) - total, SENSITIVITY))
        if crossing.gap is None:
            return False
        bias = 1 / math.expm1(1 / float(self._rule.query_scale)) - 1 / math.expm1(1 / float(self._rule.threshold_scale))
        fall = Fraction(self._rule.threshold + crossing.gap - round(bias), unit)
        step = self.plan.answer_step
        lower = max(round((Fraction(self._shown) - fall) / step), 0) * step
        self._shown = min(float(lower), self._shown)
        return True

    def _gain(self, predictions: NDArray[Any]) -> int:
        """The total of 1 - loss; rows on which the loss fails add 0 to it, so that no label can raise an error."""

        def gains(start: int, stop: int) -> Any:
            losses = self._row_loss(self._labels[start:stop], predictions[start:stop])
            return 1.0 - np.asarray(filled(losses, 1), np.float64)

        return int(forgiving_total(gains, self._rows))

    def _bound(self) -> Bound:
        return self.plan.bound_in_force(self._submitted, self._improved, from_holdout=True)
