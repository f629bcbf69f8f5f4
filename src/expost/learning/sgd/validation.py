"""A private test of a trained model on rows it was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Ladder, Measure, Norm, Sealed, Sensitivity, Target
from expost.learning.sgd.head import Head
from expost.noise import BitSource, Crossing, ReducedAboveThreshold

__all__ = ["ScoreRule", "ValidationTest"]

_STEPS = 1 << 12  # grid units of the largest squared error
_LARGEST_ERROR = 2.0  # targets and useful scores lie in [-1, 1]
_MARGIN = 1 + 1e-9  # for logarithms taken in floats


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
        """How far one row can move the sum."""
        return Sensitivity(self.span, Norm.L1, Adjacency.ADD_REMOVE)

    def total(self, head: Head, scores: NDArray[np.float64], targets: NDArray[Any]) -> int:
        """The exact sum over rows."""
        if self.measure is Measure.ACCURACY:
            return self.counted(int(np.count_nonzero(head.correct(scores, targets))), len(targets))
        errors = np.clip(np.abs(scores[0] - targets), 0.0, _LARGEST_ERROR)
        lost = np.ceil(errors * errors * (_STEPS / _LARGEST_ERROR**2)).clip(max=self.span)
        return int(self.pass_mark * len(targets) - lost.sum())

    def counted(self, right: int, rows: int) -> int:
        """The sum when ``right`` of the rows are predicted right."""
        return self.span * right - self.pass_mark * rows


class ValidationTest:
    """Asks after each phase whether the target is met, at the privacy level that the phase has reached anyway.

    Training and validation rows are disjoint: one row pays for the gradients or for the test, never for both. So the
    test may spend at each rung what training has spent, and the bill is that of training. After a restart a new session
    begins at rung ``first``, and what the old one ``spent`` is taken off every level.

    Guarantee: pure ex-post, known only after the run: the level of the rung at which it stopped, plus what was spent
        before; if it has not stopped, the threshold's share of the last level. At most the cap of the ladder.
    Adjacency: add/remove of one row.
    Sensitivity: ``rule.span``, of every query, all within one interval of that length.
    Accuracy: a model that misses the target is accepted with probability ``failure_probability`` at most, over all rungs.
    Numerics: exact; integer sums, integer noise. Scores are floats, a row's own, bit for bit.
    Reference: docs/proofs/sgd-validation.md, on docs/proofs/above-threshold.md.

    >>> rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(9, 10), Fraction(1, 10)))
    >>> test = ValidationTest(rule, Ladder.of([0.5, 1, 2]), failure_probability=Fraction(1, 10))
    >>> [test.margin(rung) for rung in range(3)]
    [68, 35, 18]
    """

    def __init__(
        self,
        rule: ScoreRule,
        ladder: Ladder,
        *,
        failure_probability: Fraction,
        first: int = 0,
        spent: Fraction = Fraction(0),
        bits: BitSource | None = None,
    ) -> None:
        self.rule, self._failure, self._first = rule, failure_probability, first
        self._rungs = len(ladder)
        # Balances the tail of the query's noise, ln(rungs / failure) scales long, against the threshold's mean.
        share = 1 / (1 + math.sqrt(math.log(len(ladder) / float(failure_probability)) + 1))
        self.reduced = ReducedAboveThreshold(
            threshold=0,
            sensitivity=rule.sensitivity,
            ladder=Ladder(tuple(level - spent for level in ladder.rungs[first:])),
            threshold_share=Fraction(share).limit_denominator(100),
            # Queries move within one interval of length ``span``: what "monotone" needs, docs/proofs/sgd-validation.md.
            monotone=True,
        )
        self._spent = spent
        self._session = self.reduced.open(bits=bits)

    def margin(self, rung: int) -> int:
        """How far above the target a score must be, in the rule's units, to be told from one just below it."""
        t, q = self._scales(rung)
        # docs/proofs/above-threshold.md, accuracy: P(Q >= m + T) = b^m (1 - a) / (1 - a b).
        together = -math.expm1(-1 / t) / -math.expm1(-1 / t - 1 / q)
        return max(0, math.ceil(q * math.log(together * self._rungs / float(self._failure)) * _MARGIN))

    def _scales(self, rung: int) -> tuple[float, float]:
        """Of the noise on the threshold and on the query at this rung."""
        level = self.reduced.threshold_share * self.reduced.ladder[rung - self._first]
        return float(self.rule.span / level), float(self.reduced.query_scale(rung - self._first))

    def ask(self, sealed: Sealed, rung: int) -> Crossing:
        """Whether a score, less its margin, is above; rungs may only rise."""
        return self._session.ask(sealed, rung=rung - self._first)

    @property
    def spent(self) -> Fraction:
        """What the answers so far cost a validation row."""
        return self._spent + self._session.loss.epsilon

    def worst_if_below(self, rung: int) -> Fraction:
        """What it will have cost when the answer at this rung is "below"."""
        return self._spent + self.reduced.threshold_share * self.reduced.ladder[rung - self._first]

    def estimate(self, gap: int, rung: int) -> float:
        """The score's excess over the target, in the rule's units, guessed from the released gap."""
        t, q = self._scales(rung)
        return gap + self.margin(rung) + t - q
