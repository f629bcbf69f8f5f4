"""Tests that stop a training once its score is reached: private ones on rows held out, free ones on public rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Ladder, Measure, Norm, Outcome, Sealed, Sensitivity, Target
from expost.models.descent.score_head import LARGEST_ERROR, Head
from expost.noise import BitSource, Crossing, ReducedAboveThreshold
from expost.noise.rising_threshold import RenewedThreshold

__all__ = [
    "MeasureScale",
    "PublicTest",
    "ScoreRule",
    "ScoredModel",
    "SeparateTest",
    "StopTest",
    "StopVerdict",
    "ValidationTest",
]

_ERROR_UNITS = 1 << 12  # grid units of the largest squared error
_FINE = 1 << 12  # lattice units, at least, that one row can move a measured score
_SIDE = _ERROR_UNITS // 5  # lattice units that one row can move each of the sums of an R^2's targets
# Share of a level for noise that is kept on the threshold. That noise and the margins add up to least at 1/4 to 1/3.
_KEPT_SHARE = Fraction(3, 10)
# Fresh noise may hide this factor more than kept noise before the latter is used: with fresh noise every rung is another
# chance to pass. Found by simulation on the learning curves of a network, which rise fast, and of a linear model.
_CHANCES = 4 / 3
_OPEN_RUNGS = 40  # of an open ladder, that have half of the failure probability


@dataclass(frozen=True)
class ScoreRule:
    """A score as a sum over rows: the score is reached when the sum is not negative.

    For accuracy p / m a row predicted correctly counts m - p, any other -p. For a root mean squared error of at most t a
    row counts t^2 less its squared error, cut at a public bound and put on a grid. All values of a row lie in an
    interval that contains 0 and is ``span`` long, so adding a row moves every query by an amount within it.

    For an R^2 of at least r a row counts 1 - r of its target's squared distance from a public ``centre``, less its squared
    error. That is reached where the sum is at least (1 - r) n (mean - centre)^2, so it is measured on all rows only, along
    with the targets' sums (docs/proofs/measured-score.md, R^2).
    """

    measure: Measure
    pass_mark: int
    span: int
    unit: float = 1.0
    """What a model's score of 1 is in the target's own units."""
    share: float = 0.0
    """Of an R^2, 1 - r: the share of the targets' variance that errors may have."""
    centre: float = 0.0
    """Of an R^2, from where targets are measured: any number in [-1, 1] that is public or was released."""
    rows_per_unit: int = 1
    """The most rows of a unit. They share one weight, and a score is then measured on all rows only."""

    @classmethod
    def of(cls, target: Target, *, scale: float = 1.0, measured: bool = False) -> ScoreRule:
        """Return the rule of a target. An rmse is in units of which a model's score of 1 is ``scale``.

        ``measured`` is whether the score is measured on all rows, which an R^2 needs.
        """
        if target.measure is Measure.R2:
            if not measured:
                raise InvalidRequest(
                    "Expected an rmse: an r2 is tested on all rows of a table",
                    do="Pass an rmse, or leave validation_share, phases, noise_multiplier, batches and public rows out",
                )
            if target.tolerance >= 1:
                raise InvalidRequest("Expected an r2 below 1", got=target.tolerance, do="Pass a smaller one")
            return cls(target.measure, 0, _ERROR_UNITS, scale, share=float(1 - target.tolerance))
        if target.measure is Measure.ACCURACY:
            if target.tolerance >= 1:
                raise InvalidRequest("Expected an accuracy below 1", got=target.tolerance, do="Pass a smaller one")
            return cls(target.measure, target.tolerance.numerator, target.tolerance.denominator)
        if target.measure is Measure.RMSE:
            # Rounded down: the test may be a little stricter than the rmse asked for, never weaker.
            mark = math.floor((float(target.tolerance) / scale / LARGEST_ERROR) ** 2 * _ERROR_UNITS)
            if not 0 < mark < _ERROR_UNITS:
                raise InvalidRequest("Expected an rmse well inside the target's bounds", do="Pass another")
            return cls(target.measure, mark, _ERROR_UNITS, scale)
        raise InvalidRequest("Expected a score of accuracy or rmse", got=target.measure.value, do="Name one of them")

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one row can move the sum: the longer side of its interval."""
        # docs/proofs/sgd-validation.md, Queries: a row's interval is [-pass_mark, span - pass_mark], or its mirror image.
        return Sensitivity(max(self.pass_mark, self.span - self.pass_mark), Norm.L1, Adjacency.ADD_REMOVE)

    @property
    def allowed(self) -> int:
        """Return the errors that the score allows, per row and in the units of the sum."""
        return self.span - self.pass_mark if self.measure is Measure.ACCURACY else self.pass_mark

    def score_at(self, excess: float) -> float:
        """Return the score at which the sum has this mean over rows, in the target's own units."""
        if self.measure is Measure.ACCURACY:
            return min(max((self.pass_mark + excess) / self.span, 0.0), 1.0)
        return math.sqrt(max(self.pass_mark - excess, 0.0) / self.span) * LARGEST_ERROR * self.unit

    def total(self, head: Head, scores: NDArray[np.float64], targets: NDArray[Any]) -> int:
        """Return the exact sum over rows."""
        if self.measure is Measure.ACCURACY:
            return self.sum_correct(int(np.count_nonzero(head.find_correct(scores, targets))), len(targets))
        # Predictions are clipped to the target's bounds, here and in ``predict``; so no error is larger than 2.
        errors = np.abs(np.clip(scores[0], -1.0, 1.0) - targets)
        lost = np.ceil(errors * errors * (_ERROR_UNITS / LARGEST_ERROR**2)).clip(max=self.span)
        if self.measure is Measure.R2:  # rounded against the model, in its own row
            spread = (targets - self.centre) ** 2 * (self.share * _ERROR_UNITS / LARGEST_ERROR**2)
            return int((np.floor(spread).clip(max=self.span) - lost).sum())
        return int(self.pass_mark * len(targets) - lost.sum())

    def total_of_shares(
        self, head: Head, scores: NDArray[np.float64], targets: NDArray[Any], shares: NDArray[np.float64]
    ) -> int:
        """Return the sum over rows of the value times the share of each, rounded down row by row: against the model."""
        if self.measure is Measure.ACCURACY:
            values = np.where(head.find_correct(scores, targets), self.span - self.pass_mark, -self.pass_mark)
        else:
            errors = np.abs(np.clip(scores[0], -1.0, 1.0) - targets)
            values = self.pass_mark - np.ceil(errors * errors * (_ERROR_UNITS / LARGEST_ERROR**2)).clip(max=self.span)
        return int(np.floor(values * shares).astype(np.int64).sum())

    def sum_sides(self, targets: NDArray[Any]) -> list[int]:
        """Return, for an R^2, the sums of the targets' distances from the centre and of their squares, on a grid.

        >>> rule = ScoreRule.of(Target(Measure.R2, Fraction(1, 2), Fraction(1, 10)), measured=True)
        >>> [round(side / rule.side_unit, 2) for side in rule.sum_sides(np.array([1.0, -0.5]))]
        [0.25, 0.31]
        """
        if self.measure is not Measure.R2:
            return []
        distance = (targets - self.centre) / LARGEST_ERROR
        return [int(np.rint(self.side_unit * part).sum()) for part in (distance, distance * distance)]

    @property
    def side_unit(self) -> int:
        """Return the lattice units of a side's largest value: a distance of 2, or a square of 4."""
        return _SIDE

    def sum_correct(self, right: int, rows: int) -> int:
        """Return the sum when ``right`` of the rows are predicted correctly."""
        return self.span * right - self.pass_mark * rows


@dataclass(frozen=True)
class MeasureScale:
    """Lattice units of a measured score and of the number of rows, which are released as one vector of ``size`` entries.

    Adjacency: add/remove of one row.
    Sensitivity: L2, of all entries together: a row moves the score's sum by at most ``rule.sensitivity``, the count by 1,
        and each of the two sums of an R^2's targets by at most ``rule.side_unit``. Of a person with k rows each may round
        the score's sum by one lattice unit more (docs/proofs/measured-score.md, Persons).
    """

    score: int
    count: int
    sensitivity: Sensitivity
    size: int = 2

    @classmethod
    def of(cls, rule: ScoreRule) -> MeasureScale:
        """Return a lattice that is fine compared with the noise, and a count of a tenth of the score's squared length."""
        most, rows = int(rule.sensitivity.amount), rule.rows_per_unit
        score = max(1, -(-_FINE * rows // most))
        moved = score * most + (0 if rows == 1 else rows)
        count = moved * 3 // 10
        sides = 2 if rule.measure is Measure.R2 else 0
        square = moved**2 + count**2 + sides * rule.side_unit**2
        return cls(score, count, Sensitivity.from_square(square), 2 + sides)


@dataclass(frozen=True)
class StopVerdict:
    """A test's answer after a phase. It is private, or about public rows, so it may be shown.

    ``gap`` is the released gap of a private test that passed; ``score`` is what is known of the score by then. ``ended``
    is whether the training should end without having passed, because the score is out of reach or nothing is left to
    spend; ``certified`` is then the score that holds all the same.
    """

    passed: bool
    gap: int | None = None
    score: float | None = None
    rows: str = "rows"
    ended: bool = False
    certified: float | None = None

    @property
    def final(self) -> bool:
        """Return whether the training ends with this answer."""
        return self.passed or self.ended

    def __str__(self) -> str:
        text = "target reached" if self.passed else "target not reached yet"
        return text if self.score is None else f"{text}, score of the {self.rows} {self.score:.3f}"


class ScoredModel(Protocol):
    """The part of a learner that a test uses."""

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        """Return the score of the validation rows in the rule's units, less a public margin, sealed."""

    def public_score(self, rule: ScoreRule, rows: Any) -> int:
        """Return the score of public rows, in the learner's own form, in the rule's units."""


class StopTest(Protocol):
    """Run after each phase to find whether the score is reached."""

    outcome: Outcome  # of a training that passed
    citation: str
    rows: str  # whose score it is, for the receipt

    @property
    def spent(self) -> Fraction: ...  # what the answers so far cost a row that is tested

    def training_share(self, phase: int) -> Fraction:
        """Return the share of what a phase spends that its steps get; the rest is for the test."""

    def judge_model(self, learner: Any, phase: int) -> StopVerdict: ...

    def recall_verdict(self, verdict: StopVerdict, learner: Any, phase: int) -> StopVerdict:
        """Return the answer of a training that was interrupted after it passed."""

    def copy_state(self) -> dict[str, NDArray[Any]]: ...  # what a checkpoint must keep of it
    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None: ...


class SeparateTest:
    """A test of rows that no step reads: steps get all of a phase, and no checkpoint keeps any of it."""

    def training_share(self, phase: int) -> Fraction:
        return Fraction(1)

    def copy_state(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        return None


class ValidationTest(SeparateTest):
    """Tests after each phase whether the score is reached, at the privacy level that the phase has reached anyway.

    Training and validation rows are disjoint: one row pays for the gradients or for the test, never for both. So the
    test may spend at each rung what training has spent, and the bill is that of training. Where levels rise fast the
    noise is fresh at every rung; where they rise slowly a part of it is kept on the threshold, which then hides less. A
    test that was interrupted continues at rung ``first`` with fresh noise: what was kept is lost, nothing is paid twice.
    ``expected_rows`` is about how many rows are held out, a public number from which scores are estimated. An ``open_ended``
    ladder is cut short by its cap, which changes nothing about the rungs before.

    Guarantee: pure ex-post, known only after the run: the level of the last rung asked. At most the cap of the ladder.
    Adjacency: add/remove of one row.
    Sensitivity: ``rule.sensitivity`` of every query, all within one interval of length ``rule.span``.
    Accuracy: a model that misses the score is accepted with probability ``failure_probability`` at most, over all rungs.
    Numerics: exact; integer sums, integer noise. Scores are floats, a row's own, bit for bit.
    Reference: docs/proofs/sgd-validation.md, Theorems 1 to 3; docs/proofs/above-threshold.md, Theorem 4.
    """

    outcome, citation, rows = Outcome.TESTED, "docs/proofs/sgd-validation.md", "rows held out"

    def __init__(
        self,
        rule: ScoreRule,
        ladder: Ladder,
        *,
        failure_probability: Fraction,
        first: int = 0,
        expected_rows: float = 0.0,
        open_ended: bool = False,
        bits: BitSource | None = None,
    ) -> None:
        self.rule, self._expected_rows = rule, expected_rows
        self._ladder, self._failure, self._open_ended = ladder, failure_probability, open_ended
        self._first = first
        terms: dict[str, Any] = {"sensitivity": rule.sensitivity, "span": rule.span, "ladder": ladder}
        renewed = RenewedThreshold(**terms)
        kept = ReducedAboveThreshold(threshold=0, threshold_share=_KEPT_SHARE, **terms)
        # An open ladder rises slowly, and its cap must not decide.
        slow = open_ended or self._hidden_score(renewed) > _CHANCES * self._hidden_score(kept)
        # The noise that an interrupted test kept is gone, and drawing it again would have to be paid for.
        self.threshold = kept if slow and not first else renewed
        self._blurred = slow and first > 0
        self._session = self.threshold.open(bits=bits)

    def _hidden_score(self, threshold: RenewedThreshold | ReducedAboveThreshold) -> float:
        """Return about how far above the mark a model must be to pass in the middle of the ladder: noise and margin."""
        middle = len(self._ladder) // 2
        margin = threshold.false_alarm_margin(
            self._failure_before(middle + 1) - self._failure_before(middle), rung=middle
        )
        return float(threshold.threshold_scale(middle)) + margin

    def _failure_before(self, rung: int) -> Fraction:
        """Return the share of the failure probability of all rungs before this one: a union bound.

        Rungs have equal shares. Those of an open ladder, which a larger cap makes longer, have shares that fall slowly and
        add up to the whole for infinitely many.
        """
        parts = _OPEN_RUNGS + rung if self._open_ended else len(self._ladder)
        return self._failure * rung / parts

    def margin_at(self, rung: int) -> int:
        """Return how far above the mark a score must be, in the rule's units, so that one just below rarely passes."""
        return self.threshold.false_alarm_margin(self._failure_before(rung + 1) - self._failure_before(rung), rung=rung)

    def judge_model(self, learner: ScoredModel, phase: int) -> StopVerdict:
        """Ask one private question. The gap is released with "above", so estimates from it are free."""
        crossing = self.test_score(learner.score(self.rule, self.margin_at(phase)), phase)
        score = None
        if crossing.gap is not None and self._expected_rows:
            score = self.estimate_accuracy(crossing.gap, phase, self._expected_rows)
        return StopVerdict(crossing.above, crossing.gap, score, f"{self.rows} about")

    def recall_verdict(self, verdict: StopVerdict, learner: ScoredModel, phase: int) -> StopVerdict:
        """Return the recorded answer: a second question would cost again."""
        return verdict

    def test_score(self, sealed: Sealed, rung: int) -> Crossing:
        """Test whether a score, less its margin, is above; every rung once, and rungs rise."""
        if not self._last_rung < rung < len(self._ladder):
            raise InvalidRequest("Expected a rung of the ladder above the last one asked", got=rung, do="Go up")
        return self._session.ask(sealed, rung=rung)

    @property
    def _last_rung(self) -> int:
        """Return the rung asked last, by this test or the one that it continues; -1 before the first."""
        return max(self._first - 1, self._session.last)

    @property
    def spent(self) -> Fraction:
        """Return what the answers so far cost a validation row: the level of the last rung asked.

        Answers "below" with kept noise cost less. They are billed in full, so that the bill does not depend on whether
        an answer was lost in a crash.
        """
        return self._ladder[self._last_rung] if self._last_rung >= 0 else Fraction(0)

    def estimate_excess(self, gap: int, rung: int) -> float:
        """Estimate the score's excess over the mark, in the rule's units, from the released gap."""
        # Given that the test passed, the threshold noise was low and the query noise high, each by about its scale.
        t, q = float(self.threshold.threshold_scale(rung)), float(self.threshold.query_scale(rung))
        return gap + self.margin_at(rung) + t - q

    def estimate_accuracy(self, gap: int, rung: int, rows: float) -> float | None:
        """Estimate the accuracy from the released gap, for a public number of validation rows; None for an rmse.

        There is none either where an interrupted test continues with much more noise: its noise, given that it passed,
        is too far from its usual size.
        """
        if self.rule.measure is not Measure.ACCURACY or self._blurred:
            return None
        return min(1.0, (self.rule.pass_mark + self.estimate_excess(gap, rung) / rows) / self.rule.span)


class PublicTest(SeparateTest):
    """Tests the score on public rows: exact and free, since it reads a private model and no private row.

    Its answers are a function of released sums and of rows that are the same for both neighbors, so they cost nothing
    (docs/proofs/sgd-stopping.md, Setting). How well they carry over to other rows depends on how similar the rows are.
    """

    outcome, citation, rows = Outcome.CERTIFIED, "docs/proofs/sgd-stopping.md, Setting", "public rows"
    spent = Fraction(0)

    def __init__(self, rule: ScoreRule, rows: Any, count: int) -> None:
        if count < 1:
            raise InvalidRequest("Expected public rows to validate on", got="none", do="Pass at least one")
        self._rule, self._public, self.count = rule, rows, count

    def judge_model(self, learner: ScoredModel, phase: int) -> StopVerdict:
        total = learner.public_score(self._rule, self._public)
        score = None
        if self._rule.measure is Measure.ACCURACY:
            score = (self._rule.pass_mark + total / self.count) / self._rule.span
        return StopVerdict(total >= 0, None, score, self.rows)

    def recall_verdict(self, verdict: StopVerdict, learner: ScoredModel, phase: int) -> StopVerdict:
        """Test again: it is free, and the public rows may have changed."""
        return self.judge_model(learner, phase)
