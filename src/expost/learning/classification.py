"""Linear classification by objective perturbation: logistic regression and the Huber support vector machine."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Outcome, PureGuarantee, PureLoss, Release
from expost.core import Loss as Bill
from expost.data.matrix import RowSource, UnitRows
from expost.learning.losses import Loss
from expost.learning.model import LinearModel
from expost.learning.objective import TiltedRisk
from expost.learning.problem import Problem
from expost.noise import BitSource

__all__ = ["TiltedClassifier", "grid_labels"]

_CITATIONS = ("CMS11, Theorem 9", "INSTTW19, Theorem 1", "docs/proofs/objective-perturbation.md")


class TiltedClassifier:
    """A linear classifier with bounded slope, fitted by objective perturbation at an epsilon known before the run.

    Guarantee: pure DP; the bill is known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: rows clipped to a public norm, labels to a public pair of classes; see TiltedRisk.
    Accuracy: excess risk within the target except with the failure probability; or the bound that epsilon buys.
    Numerics: exact noise on a grid; float64 errors are part of the sensitivity; see TiltedRisk.
    Reference: docs/proofs/objective-perturbation.md; CMS11, Theorem 9; KST12, Theorem 1.
    """

    def __init__(self, problem: Problem, loss: Loss, labels: Callable[[Any], NDArray[np.float64]]) -> None:
        self._problem, self._labels = problem, labels
        self._risk = TiltedRisk(loss, problem.ball, problem.rows, problem.penalty)
        self._epsilon = self._price()

    def _price(self) -> Fraction:
        aim = self._problem.aim
        if aim.epsilon is not None:
            self._risk.prices.split(aim.epsilon)
            return aim.epsilon
        return aim.afford(self._risk.prices.epsilon_for(aim.tolerance, aim.failure_probability))

    @property
    def question(self) -> str:
        return f"linear classifier minimising {self._risk.loss.name}"

    @property
    def epsilon(self) -> Fraction:
        """What the fit will cost."""
        return self._epsilon

    @property
    def worst_case(self) -> Bill:
        return PureLoss(self._epsilon)

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return UnitRows(source, self._problem.ball, self._labels)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        theta = self._risk.release(rows, self._epsilon, bits=bits)
        aim = self._problem.aim
        receipt = self._problem.receipt(
            question=self.question,
            method="objective perturbation, discrete Laplace tilt",
            promise=PureGuarantee(self._epsilon),
            bill=PureLoss(self._epsilon),
            outcome=Outcome.FIXED if aim.target is None else Outcome.CERTIFIED,
            achieved=self._risk.prices.excess_risk(self._epsilon, aim.failure_probability),
            breakdown={"generation": self._epsilon, "testing": Fraction(0)},
            citations=_CITATIONS,
        )
        return Release(self._problem.model(theta), receipt)


def grid_labels(classes: tuple[Any, Any]) -> Callable[[Any], NDArray[np.float64]]:
    """Turns the two public classes into -1 and 1; any other label counts as the first class.

    >>> grid_labels(("no", "yes"))(np.array(["yes", "no", "?"])).tolist()
    [1.0, -1.0, -1.0]
    """
    if len(classes) != 2 or classes[0] == classes[1]:
        raise InvalidRequest("Expected two different classes", do="Pass classes=(negative, positive)")

    def onto_signs(target: Any) -> NDArray[np.float64]:
        return np.where(np.asarray(target) == classes[1], 1.0, -1.0)

    return onto_signs
