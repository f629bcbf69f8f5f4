"""A test on rows held out that gives up a score which the training rows show to be out of reach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder, Measure, Target
from expost.models.descent.measured_test import CurvePoint, LearningCurve
from expost.models.descent.stopping_test import ScoredModel, ScoreRule, StopVerdict, ValidationTest
from expost.models.descent.training_schedule import Phase
from expost.models.descent.training_watch import WatchReading
from expost.noise import BitSource, LaplaceMechanism

__all__ = ["PlateauTest"]

_LEAST_POINTS = 4  # readings before a plateau is believed
_FLAT_PHASES = 2  # phases in a row that must show it
_STILL_TO_COME, _CLEAR = (
    4.0,
    3.0,
)  # gain still expected, over the curve's slope; deviations that a plateau must be below
_MARGIN = 1.01  # on the safe side of floats
_FINE = 1000  # denominator of a certified accuracy
_COLUMNS = 3


class PlateauTest(ValidationTest):
    """Tests after each phase, and ends a training whose readings stay clearly below the accuracy asked for.

    At the end of a phase the accuracy of the averaged weights on the rows of its last step is released with the gradient
    (``Watch``). A line through these readings
    tells whether the accuracy can still be reached, from a price of ``patience`` on; nothing is promised of it. The training then ends, and what the next
    phase would have cost pays for one measurement: whether the rows held out have a lower accuracy, chosen from the
    readings, which the receipt then states.

    Guarantee: pure ex-post, known only after the run: the level of the last rung asked, or of the next one if a
        training was given up. At most the cap of the ladder.
    Adjacency: add/remove of one row.
    Sensitivity: that of the rule asked for, and of the rule of the lower accuracy (L1).
    Accuracy: a model that misses the score is accepted, or a certified accuracy is missed, with probability
        ``failure_probability`` at most, over all rungs.
    Numerics: exact; integer sums, integer noise.
    Reference: docs/proofs/sgd-validation.md, Theorems 1 to 4.
    """

    def __init__(
        self,
        rule: ScoreRule,
        ladder: Ladder,
        *,
        phases: tuple[Phase, ...],
        patience: Fraction = Fraction(0),
        failure_probability: Fraction,
        first: int = 0,
        expected_rows: float = 0.0,
        open_ended: bool = False,
        bits: BitSource | None = None,
    ) -> None:
        terms: dict[str, Any] = {"failure_probability": failure_probability, "first": first, "open_ended": open_ended}
        super().__init__(rule, ladder, expected_rows=expected_rows, bits=bits, **terms)
        squares = accumulate(phase.steps / float(phase.noise_multiplier) ** 2 for phase in phases)
        self._places = [math.log(square) / 2 for square in squares]
        self._bits, self._patience = bits, patience
        self._points: list[CurvePoint] = []
        self._flat, self._score = 0, 0.0
        self._given_up = False

    def note_reading(self, reading: WatchReading | None, phase: int) -> None:
        """Keep a reading of the training rows: how far the accuracy is from its target, in errors allowed."""
        if reading is None or self.rule.measure is not Measure.ACCURACY:
            return
        allowed = self.rule.allowed / self.rule.span
        surplus = 1 - (1 - reading.score) / allowed
        self._points.append(CurvePoint(self._places[phase], surplus, reading.deviation / allowed))
        self._flat = self._flat + 1 if self._is_hopeless(phase) else 0
        curve = LearningCurve(self._points)
        self._score = 1 - (1 - curve.value) * allowed

    def _is_hopeless(self, phase: int) -> bool:
        """Return whether all that may still be gained leaves the accuracy clearly below its target."""
        if self._ladder[phase] < self._patience or len(self._points) < _LEAST_POINTS:
            return False
        curve = LearningCurve(self._points)
        gain = _STILL_TO_COME * (max(curve.slope, 0.0) + curve.slope_deviation)
        return curve.value + gain + _CLEAR * curve.deviation < 0

    def judge_model(self, learner: ScoredModel, phase: int) -> StopVerdict:
        """Ask one private question and, where a plateau was noticed, a last one about a lower accuracy."""
        verdict = super().judge_model(learner, phase)
        last = phase + 1 == len(self._ladder)
        if verdict.passed or last or self._flat < _FLAT_PHASES:
            return verdict
        self._given_up = True
        return replace(verdict, ended=True, certified=self._certify(learner, phase))

    def _certify(self, learner: ScoredModel, phase: int) -> float | None:
        """Return a lower accuracy if a measurement shows that the rows held out have it, else None."""
        level = self._ladder[phase + 1] - self._ladder[phase]
        # The rungs that are not asked any more leave their shares of the failure probability.
        failure = float(self._failure - self._failure_before(phase + 1))
        scale = 1 / float(level)  # in rows: one row moves the sum by less than the span
        margin = scale * math.log(1 / failure) * _MARGIN + 1
        accuracy = Fraction(math.floor(self._aim_below(margin, scale) * _FINE), _FINE)
        if not 0 < accuracy < 1:
            return None
        rule = ScoreRule.of(Target(Measure.ACCURACY, accuracy, self._failure))
        sealed = learner.score(rule, math.ceil(margin * rule.span))
        released = LaplaceMechanism(level).release(sealed, bits=self._bits)
        return float(accuracy) if int(np.asarray(released).item()) >= 0 else None

    def _aim_below(self, margin: float, scale: float) -> float:
        """Return an accuracy that the measurement will probably confirm. Nothing is promised of this guess."""
        return self._score - (margin + scale) / max(self._expected_rows, 1.0)

    @property
    def spent(self) -> Fraction:
        """Return what the answers so far cost a validation row; giving up costs what the next rung would have."""
        return self._ladder[self._last_rung + 1] if self._given_up else super().spent

    def recall_verdict(self, verdict: StopVerdict, learner: ScoredModel, phase: int) -> StopVerdict:
        """Return the recorded answer: a second question would cost again."""
        self._given_up = verdict.ended
        return verdict

    def copy_state(self) -> dict[str, NDArray[Any]]:
        """Return the readings, all of them released; their size follows from the number of phases."""
        curve = np.full((len(self._ladder), _COLUMNS), np.nan)
        for row, point in zip(curve, self._points, strict=False):
            row[:] = point.place, point.surplus, point.deviation
        return {"readings": curve, "flat readings": np.array([len(self._points), self._flat], np.float64)}

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        count, self._flat = map(int, state["flat readings"])
        self._points = [CurvePoint(*map(float, row)) for row in state["readings"][:count]]
