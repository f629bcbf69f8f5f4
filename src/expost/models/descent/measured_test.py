"""A test on all rows: scores are measured with noise on the way, and a model that looks good enough is tested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from expost.core import Outcome, Sealed
from expost.models.descent.stopping_test import MeasureScale, ScoreRule, StopVerdict
from expost.models.descent.training_schedule import Phase
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["CurvePoint", "LearningCurve", "MeasuredModel", "MeasuredTest"]

# Chosen by simulation on learning curves of MNIST; factors of 1.5 either way cost a few percent.
_WATCHED = Fraction(8, 100)  # share of a phase that measures the score while it is not tested
_FIRST_TEST = 0.7  # share of the failure probability for the first test; each later one has this share of the rest
_POWERED = 0.7  # a test's margin may be this part of the errors allowed
_MEMORY = 0.7  # of a learning curve, in units of the parameter's logarithm
_SLOPE = 0.3  # usual gain per unit of that logarithm, in errors allowed, and its deviation
_POINTS = 16  # points of the curve that count
_LEAST_POINTS = 3
_CLEAR = 3.0  # deviations that separate a plateau from the target
_STILL_TO_COME = 2.0  # what a curve still gains, over its slope: 1 if the gap is proportional to one over the parameter
_FLAT_PHASES = 2  # phases in a row that must show the plateau
_LEARNED = 60.0  # parameter times rows over the root of the model's size, from which on a plateau is believed
_COLUMNS = 3
_TINY = 2.0**-60  # the parameter of a training whose first phases a crash lost


class MeasuredModel(Protocol):
    """The part of a learner that a measured test uses; ``weights`` is how many it has."""

    @property
    def weights(self) -> int: ...

    def measured_score(self, rule: ScoreRule, scale: MeasureScale) -> Sealed:
        """Return the sum of a score over all rows and their number, in lattice units, sealed."""


@dataclass(frozen=True)
class CurvePoint:
    """A measured score: the logarithm of the training's parameter, the surplus in errors allowed, and its deviation."""

    place: float
    surplus: float
    deviation: float


class LearningCurve:
    """A line through the last measured scores, in the logarithm of the training's privacy parameter.

    It decides when a test is worth its price and when a target is out of reach; nothing is promised of it.
    """

    def __init__(self, points: list[CurvePoint]) -> None:
        used = points[-_POINTS:]
        place, surplus, deviation = (
            np.array([getattr(point, name) for point in used]) for name in ("place", "surplus", "deviation")
        )
        ahead = place - place[-1]
        weight = deviation**-2 * np.exp(ahead / _MEMORY)
        prior = _SLOPE**-2
        matrix = np.array([[weight.sum(), weight @ ahead], [weight @ ahead, weight @ ahead**2 + prior]])
        spread = np.linalg.inv(matrix)
        value, slope = spread @ np.array([weight @ surplus, weight @ (ahead * surplus) + prior * _SLOPE])
        self.value, self.slope = float(value), float(slope)
        self.deviation, self.slope_deviation = (math.sqrt(each) for each in np.diag(spread))

    @property
    def hopeless(self) -> bool:
        """Return whether all that may still be gained leaves the score clearly below its target."""
        gain = _STILL_TO_COME * (max(self.slope, 0.0) + self.slope_deviation)
        return self.value + gain + _CLEAR * self.deviation < 0


class MeasuredTest:
    """Measures the score on all rows after each phase, and tests models that look good enough.

    A phase is one Gaussian event. Its steps get most of it, and a noisy score of the model the rest. Once the curve of these
    scores says that a test would pass as often as not, the next phase takes no steps: all of it measures the model again, and
    that measurement alone decides. The first test may err with ``_FIRST_TEST`` of the failure probability, the next with as
    much of what is left, and so on. A curve that stays below the target ends the training after one last measurement, and
    so does the end of the schedule: the score that then holds has the failure probability that is left.

    Guarantee: none of its own: steps and measurement of a phase are the Gaussian event that its price is made of.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of score and count together: see ``MeasureScale``.
    Accuracy: a model that misses the score is accepted, or a certified score is missed, with probability
        ``failure_probability`` at most, over all tests. The score is that of the rows of the table.
    Numerics: exact integer sums and noise; margins are floats, rounded up.
    Reference: docs/proofs/measured-score.md.
    """

    outcome, citation, rows = Outcome.TESTED, "docs/proofs/measured-score.md", "rows of the table"
    spent = Fraction(0)

    def __init__(
        self,
        rule: ScoreRule,
        phases: tuple[Phase, ...],
        *,
        failure_probability: Fraction,
        expected_rows: float,
        size: int,
        bits: BitSource,
    ) -> None:
        self.rule, self._phases, self._bits = rule, phases, bits
        self._scale = MeasureScale.of(rule)
        self._rows = max(expected_rows, 1.0)
        self._learned = _LEARNED * math.sqrt(size) / self._rows
        self._failure = float(failure_probability)
        self._points: list[CurvePoint] = []
        self._trained, self._flat = 0.0, 0
        self._tested, self._last = len(phases) == 1, False

    def training_share(self, phase: int) -> Fraction:
        """Return the share of a phase that steps get: none in a phase that tests, except that a lone one does both."""
        if len(self._phases) == 1:
            return Fraction(1, 2)
        return Fraction(0) if self._is_test(phase) else 1 - _WATCHED

    def _is_test(self, phase: int) -> bool:
        return self._tested or phase == len(self._phases) - 1

    def judge_model(self, learner: MeasuredModel, phase: int) -> StopVerdict:
        """Measure the score; accept the model if this was a test and it passes."""
        steps, noise = self._phases[phase].divide(self.training_share(phase))
        assert noise is not None
        stream = GaussianStream(noise, self._scale.sensitivity, size=2, releases=1, bits=self._bits)
        excess, count = (float(each) for each in stream.release(learner.measured_score(self.rule, self._scale)))
        deviation = math.sqrt(stream.variance)
        if steps is not None:
            self._trained += float(steps.steps / steps.noise_multiplier**2)
        unit = self._scale.score * self.rule.allowed * self._rows
        self._points.append(CurvePoint(math.log(max(self._trained, _TINY)) / 2, excess / unit, deviation / unit))
        score = self.rule.score_at(excess / (self._scale.score * self._rows))
        if not self._is_test(phase):
            self._plan_next(phase)
            return StopVerdict(False, None, score, f"{self.rows} about")
        ended = self._last or phase == len(self._phases) - 1
        # The last measurement certifies a score whatever it is, so it has all that is left.
        allowed = self._failure * (1.0 if ended else _FIRST_TEST)
        self._failure -= allowed
        # Half of what the last one may err with is for the number of rows.
        margin = -float(ndtri(allowed / 2 if ended else allowed)) * deviation + 1.0
        passed = excess >= margin
        certified = None
        if ended and not passed:
            rows = (count - margin) / self._scale.count
            certified = self._certify(excess - margin, rows)
        self._plan_next(phase)
        return StopVerdict(passed, None, score, f"{self.rows} about", ended and not passed, certified)

    def _certify(self, excess: float, rows: float) -> float | None:
        """Return the score that holds where the sum is at least ``excess`` and rows are at least ``rows``; None if few."""
        if rows < 1:
            return None
        # The sum is negative here or near zero: dividing it by fewer rows errs on the safe side.
        return self.rule.score_at(min(excess, 0.0) / (self._scale.score * rows))

    def _plan_next(self, phase: int) -> None:
        """Decide whether the next phase is a test, and whether it is the last one."""
        self._tested = self._last = False
        if len(self._points) < _LEAST_POINTS or phase + 2 >= len(self._phases):
            return
        curve = LearningCurve(self._points)
        noise = self._phases[phase + 1].divide(Fraction(0))[1]
        assert noise is not None
        deviation = float(noise * self._scale.sensitivity.amount) / (
            self._scale.score * self.rule.allowed * self._rows
        )
        needed = -float(ndtri(self._failure * _FIRST_TEST)) * deviation
        self._tested = curve.value >= needed and needed <= _POWERED
        believed = math.sqrt(self._trained) >= self._learned and needed <= _POWERED
        self._flat = self._flat + 1 if believed and curve.hopeless else 0
        if self._flat >= _FLAT_PHASES:
            self._tested = self._last = True

    def recall_verdict(self, verdict: StopVerdict, learner: MeasuredModel, phase: int) -> StopVerdict:
        """Return the recorded answer: a second measurement would cost again."""
        return verdict

    def copy_state(self) -> dict[str, NDArray[Any]]:
        """Return what a checkpoint must keep, all of it released; its size follows from the number of phases."""
        curve = np.full((len(self._phases), _COLUMNS), np.nan)
        for row, point in zip(curve, self._points, strict=False):
            row[:] = point.place, point.surplus, point.deviation
        state = [len(self._points), self._trained, self._flat, self._failure, self._tested, self._last]
        return {"measured scores": curve, "measured test": np.array(state, np.float64)}

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state. A measurement that a crash lost is paid for and was not seen."""
        count, trained, flat, failure, tested, last = (float(each) for each in state["measured test"])
        self._points = [CurvePoint(*map(float, row)) for row in state["measured scores"][: int(count)]]
        self._trained, self._flat, self._failure = trained, int(flat), failure
        self._tested, self._last = bool(tested), bool(last)
