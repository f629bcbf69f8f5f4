"""A private test of a trained model on rows it was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Ladder, Measure, Norm, Sealed, Sensitivity, Target
from expost.models.descent.head import Head
from expost.noise import BitSource, Crossing, ReducedAboveThreshold
from expost.noise.renewed_threshold import RenewedThreshold

__all__ = ["ScoreRule", "ValidationTest"]

_STEPS = 1 << 12  # grid units of the largest squared error
_LARGEST_ERROR = 2.0  # targets and useful scores lie in [-1, 1]
# Of a level, for noise that is kept on the threshold. It and the margins add up to least from a quarter to a third.
_KEPT_SHARE = Fraction(3, 10)
# How much more fresh noise may hide: every rung gives it another chance, the more often the slower scores rise.
# Found by simulation on the learning curves of a network, which rise fast, and of a linear model.
_CHANCES = 4 / 3


@dataclass(frozen=True)
class ScoreRule:
    """A target as a sum over rows: the target is met when the sum is not negative.

    For accuracy p / m a row predicted right counts m - p, any other -p. For a root mean squared error of at most t a
    row counts t^2 less its squared error, cut at a public bound and put on a grid. All values of a row lie in an
    interval that contains 0 and is ``span`` long, so adding a row moves every query by an amount within it.

    >>> ScoreRule.of(Target(Measure.ACCURACY, Fraction(19, 20), Fraction(1, 10))).span
    20
    """

    measure: Measure
    pass_mark: int
    span: int

    @classmethod
    def of(cls, target: Target, *, scale: float = 1.0) -> ScoreRule:
        """The rule of a target; an rmse is in units of which a score of 1 is worth ``scale``, errors are cut at 2."""
        if target.measure is Measure.ACCURACY:
            if target.tolerance >= 1:
                raise InvalidRequest("Expected an accuracy below 1", got=target.tolerance, do="Ask for less")
            return cls(target.measure, target.tolerance.numerator, target.tolerance.denominator)
        if target.measure is Measure.RMSE:
            mark = math.floor((float(target.tolerance) / scale / _LARGEST_ERROR) ** 2 * _STEPS)
            if not 0 < mark < _STEPS:
                raise InvalidRequest("Expected an rmse well inside the target's bounds", do="Ask for another")
            return cls(target.measure, mark, _STEPS)
        raise InvalidRequest("Expected a target of accuracy or rmse", got=target.measure.value, do="Name one of them")

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one row can move the sum: its interval's longer side."""
        # docs/proofs/sgd-validation.md, Queries: a row's interval is [-pass_mark, span - pass_mark], or its mirror image.
        return Sensitivity(max(self.pass_mark, self.span - self.pass_mark), Norm.L1, Adjacency.ADD_REMOVE)

    def total(self, head: Head, scores: NDArray[np.float64], targets: NDArray[Any]) -> int:
        """The exact sum over rows."""
        if self.measure is Measure.ACCURACY:
            return self.counted(int(np.count_nonzero(head.correct(scores, targets))), len(targets))
        # Predictions are cut to the target's bounds, here and where they are shown; so no error is larger than 2.
        errors = np.abs(np.clip(scores[0], -1.0, 1.0) - targets)
        lost = np.ceil(errors * errors * (_STEPS / _LARGEST_ERROR**2)).clip(max=self.span)
        return int(self.pass_mark * len(targets) - lost.sum())

    def counted(self, right: int, rows: int) -> int:
        """The sum when ``right`` of the rows are predicted right."""
        return self.span * right - self.pass_mark * rows


class ValidationTest:
    """Asks after each phase whether the target is met, at the privacy level that the phase has reached anyway.

    Training and validation rows are disjoint: one row pays for the gradients or for the test, never for both. So the
    test may spend at each rung what training has spent, and the bill is that of training. Where levels rise fast the
    noise is fresh at every rung; where they rise slowly a part of it is kept on the threshold, which then hides less. A test that was
    interrupted goes on at rung ``first`` with fresh noise: what was kept is lost, nothing is paid twice.

    Guarantee: pure ex-post, known only after the run: the level of the last rung asked. At most the cap of the ladder.
    Adjacency: add/remove of one row.
    Sensitivity: ``rule.sensitivity`` of every query, all within one interval of length ``rule.span``.
    Accuracy: a model that misses the target is accepted with probability ``failure_probability`` at most, over all rungs.
    Numerics: exact; integer sums, integer noise. Scores are floats, a row's own, bit for bit.
    Reference: docs/proofs/sgd-validation.md, Theorems 1 to 3; docs/proofs/above-threshold.md, Theorem 4.

    >>> rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(9, 10), Fraction(1, 10)))
    >>> test = ValidationTest(rule, Ladder.of([0.5, 1, 2]), failure_probability=Fraction(1, 10))
    >>> [test.margin(rung) for rung in range(3)]
    [56, 25, 13]
    """

    def __init__(
        self,
        rule: ScoreRule,
        ladder: Ladder,
        *,
        failure_probability: Fraction,
        first: int = 0,
        bits: BitSource | None = None,
    ) -> None:
        self.rule = rule
        self._ladder, self._failure_share = ladder, failure_probability / len(ladder)
        self._first = first
        terms: dict[str, Any] = {"sensitivity": rule.sensitivity, "span": rule.span, "ladder": ladder}
        renewed = RenewedThreshold(**terms)
        kept = ReducedAboveThreshold(threshold=0, threshold_share=_KEPT_SHARE, **terms)
        slow = self._hidden(renewed) > _CHANCES * self._hidden(kept)
        # Noise that an interrupted test kept is gone, and anew it would have to be paid for.
        self.threshold = kept if slow and not first else renewed
        self._blurred = slow and first > 0
        self._session = self.threshold.open(bits=bits)

    def _hidden(self, threshold: RenewedThreshold | ReducedAboveThreshold) -> float:
        """About how far above the target a model must be to pass, in the middle of the ladder: noise and margin."""
        middle = len(self._ladder) // 2
        return float(threshold.threshold_scale(middle)) + threshold.false_alarm_margin(self._failure_share, rung=middle)

    def margin(self, rung: int) -> int:
        """How far above the target a score must be, in the rule's units, to be told from one just below it."""
        return self.threshold.false_alarm_margin(self._failure_share, rung=rung)

    def ask(self, sealed: Sealed, rung: int) -> Crossing:
        """Whether a score, less its margin, is above; every rung once, and rungs rise."""
        if not self._last < rung < len(self._ladder):
            raise InvalidRequest("Expected a rung of the ladder above the last one asked", got=rung, do="Go up")
        return self._session.ask(sealed, rung=rung)

    @property
    def _last(self) -> int:
        """The rung asked last, by this test or the one that it goes on from; -1 before the first."""
        return max(self._first - 1, self._session.last)

    @property
    def spent(self) -> Fraction:
        """What the answers so far cost a validation row: the level of the last rung asked.

        Answers "below" with noise that is kept cost less, but so the bill does not tell an answer that got lost on its way.
        """
        return self._ladder[self._last] if self._last >= 0 else Fraction(0)

    def estimate(self, gap: int, rung: int) -> float:
        """The score's excess over the target, in the rule's units, guessed from the released gap."""
        t, q = float(self.threshold.threshold_scale(rung)), float(self.threshold.query_scale(rung))
        return gap + self.margin(rung) + t - q

    def accuracy(self, gap: int, rung: int, rows: float) -> float | None:
        """The accuracy guessed from the released gap, for a public number of validation rows; none for an rmse.

        Nor is there one where an interrupted test goes on with much more noise: given that it passed, it had less than usual.
        """
        if self.rule.measure is not Measure.ACCURACY or self._blurred:
            return None
        return min(1.0, (self.rule.pass_mark + self.estimate(gap, rung) / rows) / self.rule.span)
