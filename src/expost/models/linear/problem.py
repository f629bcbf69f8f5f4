"""The public side of a fit: rows, scaling, penalty and the units in which people state accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import Adjacency, ApproxLoss, InvalidRequest, Loss, Outcome, PureGuarantee, PureLoss, Receipt, Unit
from expost.core.rational import rational
from expost.data.matrix import GRID_BITS, RowSource, UnitBall, UnitRows, grid_numbers
from expost.models.linear.aim import Aim
from expost.models.linear.model import LinearModel, UnitReading

__all__ = ["Problem", "bill_of"]


def bill_of(epsilon: Fraction, delta: Fraction | None) -> Loss:
    """A pure loss, or with a delta an (epsilon, delta) loss.

    >>> str(bill_of(Fraction(1, 2), Fraction(1, 1000)))
    'epsilon 0.5, delta 0.001'
    """
    return PureLoss(epsilon) if delta is None else ApproxLoss(epsilon, delta)


@dataclass(frozen=True)
class Problem:
    """One regularised linear problem, as it can be described in public.

    Inside, rows and targets are divided by their bounds: with coef = target_bound * shrinkage / bound * theta the
    caller's risk is target_bound^2 times the risk of theta under ``penalty``.
    """

    ball: UnitBall
    rows: int
    regularization: float
    aim: Aim
    target_bound: float = 1.0

    def __post_init__(self) -> None:
        rational(self.regularization, "regularization")
        rational(self.target_bound, "target_bound")
        rational(self.ball.bound, "feature_bound")

    @property
    def penalty(self) -> float:
        """The penalty on theta that equals the caller's penalty on coef."""
        return self.regularization * (self.ball.shrinkage / self.ball.bound) ** 2

    @property
    def risk_unit(self) -> float:
        """What one unit of risk inside is worth outside."""
        return self.target_bound**2

    def check(self, source: RowSource) -> None:
        """Refuse rows that do not look as the problem was described; the shape is public."""
        if not isinstance(source, RowSource):
            raise InvalidRequest("Expected rows of a table", got=type(source).__name__, do="Read them with read_rows")
        if (source.rows, source.width) != (self.rows, self.ball.width):
            raise InvalidRequest("Expected the declared number of rows and features", do="Describe the table again")

    def unit_rows(self, source: RowSource) -> UnitRows:
        """The rows as learning reads them, for numeric targets."""
        return UnitRows(source, self.ball, grid_numbers(self.target_bound))

    def model(self, theta: Any) -> LinearModel:
        """The model for raw rows."""
        reading = UnitReading(self.ball, np.asarray(theta, np.float64), self.target_bound)
        return LinearModel(*self.ball.out(theta, self.target_bound), reading=reading)

    @property
    def terms(self) -> dict[str, Any]:
        """The public conditions of a receipt."""
        clipped = f"{self.ball.norm.value} norm at most {self.ball.bound:.6g}"
        terms: dict[str, Any] = {
            "rows": self.rows,
            "features": self.ball.width,
            "rows clipped to": clipped + (" after scaling by public bounds" if self.ball.lows is not None else ""),
            "targets clipped to": self.target_bound,
            "regularization": self.regularization,
            "intercept": self.ball.intercept,
            "grid": f"2^-{GRID_BITS} of each bound",
        }
        return terms

    def receipt(self, *, question: str, method: str, bill: Loss, outcome: Outcome, **facts: Any) -> Receipt:
        """A receipt on the terms of this problem, for a pure bill."""
        facts.setdefault("promise", PureGuarantee(self.aim.cap))
        facts.setdefault("terms", self.terms)
        return Receipt(
            question=question,
            method=method,
            bill=bill,
            adjacency=Adjacency.REPLACE_ONE,
            unit=Unit.row(),
            outcome=outcome,
            target=self.aim.target,
            **facts,
        )

    @property
    def worst_case(self) -> Loss:
        """The cap, as a pure loss."""
        return PureLoss(self.aim.cap)
