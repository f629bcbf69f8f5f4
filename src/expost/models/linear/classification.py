"""Linear classification by objective perturbation: logistic regression and the Huber support vector machine."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Outcome, Release
from expost.core import Loss as Bill
from expost.data.matrix import RowSource, UnitRows
from expost.data.places import label_codes
from expost.models.linear.losses import Loss
from expost.models.linear.model import LinearModel
from expost.models.linear.objective import Tilt, TiltedRisk
from expost.models.linear.problem import Problem, bill_of
from expost.models.linear.tilt import GaussianTilt, pure_tilt
from expost.noise import BitSource

__all__ = ["TiltedClassifier", "code_signs", "grid_labels", "known_labels", "signs"]

_CITATIONS = ("CMS11, Theorem 9", "INSTTW19, Theorem 1", "docs/proofs/objective-perturbation.md")


class TiltedClassifier:
    """A linear classifier with bounded slope, fitted by objective perturbation at an epsilon known before the run.

    The law of the tilt is the one that costs least, Gaussian only if ``delta`` is given.

    Guarantee: pure DP, or (epsilon, delta)-DP with a Gaussian tilt; the bill is known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: rows clipped to a public norm, labels to a public pair of classes; see TiltedRisk.
    Accuracy: excess risk within the target except with the failure probability; or the bound that epsilon buys.
    Numerics: exact noise on a grid; float64 errors are part of the sensitivity; see TiltedRisk.
    Reference: docs/proofs/objective-perturbation.md; docs/proofs/gaussian-tilt.md; CMS11, Theorem 9; KST12, Theorem 1.
    """

    def __init__(
        self,
        problem: Problem,
        loss: Loss,
        labels: Callable[[Any], NDArray[np.float64]],
        *,
        delta: Fraction | None = None,
    ) -> None:
        self._problem, self._labels = problem, labels
        ball, steepest = problem.ball, loss.steepest
        laws: list[Tilt] = [pure_tilt(ball, steepest)]
        if delta is not None:
            laws.append(GaussianTilt(ball.dimension, steepest, delta, one_sided=loss.one_sided))
        risks = [TiltedRisk(loss, ball, problem.rows, problem.penalty, law) for law in laws]
        self._risk, self._epsilon = self._cheapest(risks)
        self._delta = delta if isinstance(self._risk.law, GaussianTilt) else None
        problem.aim.afford(self._epsilon)

    def _cheapest(self, risks: list[TiltedRisk]) -> tuple[TiltedRisk, Fraction]:
        """The tilt of the least epsilon or, at a given epsilon, of the least risk; decided by public numbers alone."""
        aim = self._problem.aim
        failure, given = aim.failure_probability, aim.epsilon
        if given is not None:
            return min(risks, key=lambda risk: risk.prices.excess_risk(given, failure)), given
        priced = [(risk, risk.prices.epsilon_for(aim.tolerance, failure)) for risk in risks]
        return min(priced, key=lambda each: each[1])

    @property
    def excess_risk(self) -> float:
        """What is not exceeded but with the failure probability."""
        return self._risk.prices.excess_risk(self._epsilon, self._problem.aim.failure_probability)

    @property
    def question(self) -> str:
        return f"linear classifier minimising {self._risk.loss.name}"

    @property
    def epsilon(self) -> Fraction:
        """What the fit will cost."""
        return self._epsilon

    @property
    def worst_case(self) -> Bill:
        return bill_of(self._epsilon, self._delta)

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return UnitRows(source, self._problem.ball, self._labels)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        theta = self._risk.release(rows, self._epsilon, bits=bits)
        aim = self._problem.aim
        receipt = self._problem.receipt(
            question=self.question,
            method=f"objective perturbation, {self._risk.prices.tilt.name}",
            promise=self.worst_case.promise(),
            bill=self.worst_case,
            outcome=Outcome.FIXED if aim.target is None else Outcome.CERTIFIED,
            achieved=self.excess_risk,
            breakdown={"generation": self._epsilon, "testing": Fraction(0)},
            citations=_CITATIONS,
        )
        return Release(self._problem.model(theta), receipt)


def grid_labels(classes: tuple[Any, Any]) -> Callable[[Any], NDArray[np.float64]]:
    """Turns the two public classes into -1 and 1; any other label is fitted as the first class.

    >>> grid_labels(("no", "yes"))(np.array(["yes", "no", "?"])).tolist()
    [1.0, -1.0, -1.0]
    """
    known = known_labels(classes)
    return lambda target: signs(known(target))


def signs(known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Labels as a fit takes them: what is no class as the first one.

    >>> signs(np.array([1.0, -1.0, 0.0])).tolist()
    [1.0, -1.0, -1.0]
    """
    return np.where(known > 0, 1.0, -1.0)


def known_labels(classes: tuple[Any, Any]) -> Callable[[Any], NDArray[np.float64]]:
    """Turns the two public classes into -1 and 1, and any other label, which no prediction gets right, into 0.

    >>> known_labels(("no", "yes"))(np.array(["yes", "no", "?"])).tolist()
    [1.0, -1.0, 0.0]
    """
    if len(classes) != 2 or classes[0] == classes[1]:
        raise InvalidRequest("Expected two different classes", do="Pass classes=(negative, positive)")

    return lambda target: code_signs(label_codes(target, list(classes)))


def code_signs(codes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the places of labels among two classes as -1 and 1, and those of no class as 0.

    >>> code_signs(np.array([1, 0, -1])).tolist()
    [1.0, -1.0, 0.0]
    """
    return np.array([-1.0, 1.0, 0.0])[codes]
