"""A test on all rows: scores are measured with noise on the way, and a model that looks good enough is tested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from expost.core import Measure, Outcome, Sealed
from expost.models.descent.score_head import LARGEST_ERROR
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
_LAST_PHASES = 3  # of the schedule, that measure the model for a last time
_MOST_AHEAD = 24  # phases that a plan looks ahead
_BEST = 0.9  # surplus that a plan counts on at most, in errors allowed: all of them would be 1
_COLUMNS = 3
_USUAL_SPREAD = 0.05  # guess of a target's variance, in squares of half its range, where noise hides it
_CLEAR_SPREAD = 4.0  # deviations from which on a measured variance is used
_SIDE_SHARE = 0.1  # of the probability that a test of R^2 errs with, for each of rows, mean and variance of the targets
_TINY = 2.0**-60  # the parameter of a training whose first phases a crash lost


class MeasuredModel(Protocol):
    """The part of a learner that a measured test uses; ``weights`` is how many it has."""

    @property
    def weights(self) -> int: ...

    def measured_score(self, rule: ScoreRule, scale: MeasureScale) -> Sealed:
        """Return the sum of a score over all rows, their number and sums of targets, in lattice units, sealed."""


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
    scores says that a test would pass as often as not, the next phases take no steps: they measure the model again, and
    the mean of these measurements alone decides. The first test may err with ``_FIRST_TEST`` of the failure probability, the next with as
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
        self._squares = np.array([float(phase.steps / phase.noise_multiplier**2) for phase in phases])
        self._trained, self._flat = 0.0, 0
        self._left, self._last = 0, False  # phases of a test that are still to come; whether it is the last one
        self._allowed = 0.0  # the probability with which the test may err
        self._precision, self._sums = 0.0, np.zeros(self._scale.size)  # its measurements, weighted by their precision
        self._sides = np.zeros(
            3
        )  # of an R^2: mean and mean square of targets, weighted by precision, which is the last

    def training_share(self, phase: int) -> Fraction:
        """Return the share of a phase that steps get: none in a phase that tests, except that a lone one does both."""
        if len(self._phases) == 1:
            return Fraction(1, 2)
        return Fraction(0) if self._left else 1 - _WATCHED

    def judge_model(self, learner: MeasuredModel, phase: int) -> StopVerdict:
        """Measure the score; accept the model if this was a test and it passes."""
        steps, noise = self._phases[phase].divide(self.training_share(phase))
        assert noise is not None
        stream = GaussianStream(noise, self._scale.sensitivity, size=self._scale.size, releases=1, bits=self._bits)
        released = stream.release(learner.measured_score(self.rule, self._scale)).astype(np.float64)
        deviation = math.sqrt(stream.variance)
        if steps is not None:
            self._trained += float(steps.steps / steps.noise_multiplier**2)
        if self.rule.measure is Measure.R2:
            self._learn_targets(released, deviation)
        unit = self._unit
        self._points.append(CurvePoint(math.log(max(self._trained, _TINY)) / 2, released[0] / unit, deviation / unit))
        if phase == len(self._phases) - 1:  # nothing is left to go on with
            self._start_test(1, last=True)
        elif not self._left:
            self._plan_next(phase)
            self._move_centre()
            return self._answer(released[0], False)
        self._precision += deviation**-2
        self._sums += released * deviation**-2
        self._left -= 1
        if self._left:
            return self._answer(self._sums[0] / self._precision, False)
        verdict = self._decide()
        if not verdict.final:
            self._plan_next(phase)
            self._move_centre()
        return verdict

    @property
    def _unit(self) -> float:
        """Return the lattice units of all errors that the score allows, about."""
        if self.rule.measure is not Measure.R2:
            return self._scale.score * self.rule.allowed * self._rows
        return self._scale.score * self._rows * self.rule.span * self.rule.share * self._spread / LARGEST_ERROR**2

    @property
    def _spread(self) -> float:
        """Return about the variance of an R^2's targets."""
        mean, square, precision = self._sides
        if not precision:
            return _USUAL_SPREAD
        found = (square - mean * mean / precision) / precision
        return float(found) if found > _CLEAR_SPREAD * LARGEST_ERROR**2 * precision**-0.5 else _USUAL_SPREAD

    def _learn_targets(self, released: NDArray[np.float64], deviation: float) -> None:
        """Improve the estimates of the targets' mean and mean square by a measurement."""
        unit = self.rule.side_unit * self._rows
        offset, square = released[2:4] / unit
        centre, offset, square = self.rule.centre, offset * LARGEST_ERROR, square * LARGEST_ERROR**2
        precision = (unit / deviation) ** 2
        self._sides += precision * np.array([centre + offset, square + 2 * centre * offset + centre**2, 1.0])

    def _move_centre(self) -> None:
        """Measure targets from their mean as it is known by now; not while a test is under way, which has one centre."""
        if self.rule.measure is Measure.R2:
            centre = float(np.clip(self._sides[0] / self._sides[2], -1.0, 1.0))
            self.rule = replace(self.rule, centre=centre)

    def _answer(self, excess: float, passed: bool, ended: bool = False, certified: float | None = None) -> StopVerdict:
        if self.rule.measure is Measure.R2:
            score = 1 - self.rule.share * (1 - excess / self._unit)
        else:
            score = self.rule.score_at(excess / (self._scale.score * self._rows))
        return StopVerdict(passed, None, score, f"{self.rows} about", ended, certified)

    def _start_test(self, phases: int, *, last: bool) -> None:
        """Begin a test of the model as it is: this many phases measure it, and their mean decides.

        Its share of the failure probability is spent now. A test that is under way when it becomes the last one keeps its
        measurements and may err with the rest as well.
        """
        if not self._left:
            self._precision, self._sums, self._allowed = 0.0, np.zeros(self._scale.size), 0.0
        share = self._failure * (1.0 if last else _FIRST_TEST)
        self._failure -= share
        self._allowed += share
        self._left, self._last = phases, last

    def _decide(self) -> StopVerdict:
        """Decide a test from the mean of its measurements."""
        if self.rule.measure is Measure.R2:
            return self._decide_r2()
        excess, count = self._sums / self._precision
        deviation = self._precision**-0.5
        # The last test certifies a score whatever it is: half of what it may err with is for the number of rows.
        margin = -float(ndtri(self._allowed / 2 if self._last else self._allowed)) * deviation + 1.0
        passed = bool(excess >= margin)
        ended = self._last and not passed
        certified = self._certify(excess - margin, (count - margin) / self._scale.count) if ended else None
        return self._answer(excess, passed, ended, certified)

    def _decide_r2(self) -> StopVerdict:
        """Decide a test of R^2, and find the R^2 that holds where it is the last one and fails.

        Bounds of score, rows, mean and variance hold together, except with the probability that the test may err with.
        Rows are rounded: the score's down, distances of targets to half a unit (docs/proofs/measured-score.md, Theorem 3).
        """
        released, deviation = self._sums / self._precision, self._precision**-0.5
        level = self._allowed
        margin = -float(ndtri(level * (1 - 3 * _SIDE_SHARE))) * deviation + 1.0
        side = -float(ndtri(level * _SIDE_SHARE / 2)) * deviation + 1.0  # on both sides
        excess = (released[0] - margin) / self._scale.score * LARGEST_ERROR**2 / self.rule.span
        least, most = ((released[1] + sign * side) / self._scale.count for sign in (-1, 1))
        if least < 1:
            return self._answer(released[0], False, self._last)
        unit = self.rule.side_unit
        offset = (abs(released[2]) + side) * LARGEST_ERROR / unit  # sum of distances from the centre, but for rounding
        slack = LARGEST_ERROR / (2 * unit)  # of one distance
        off = offset**2 / least + 2 * offset * slack + most * slack**2  # rows times the squared distance of the mean
        passed = excess >= self.rule.share * off
        ended, certified = self._last and not passed, None
        if ended:
            squares = ((released[3] - side) / unit - most / (2 * unit)) * LARGEST_ERROR**2
            if squares > off:
                certified = 1 - (self.rule.share * squares - excess) / (squares - off)
        return self._answer(released[0], bool(passed), ended, certified)

    def _certify(self, excess: float, rows: float) -> float | None:
        """Return the score that holds where the sum is at least ``excess`` and rows are at least ``rows``; None if few."""
        if rows < 1:
            return None
        # The sum is negative here or near zero: dividing it by fewer rows errs on the safe side.
        return self.rule.score_at(min(excess, 0.0) / (self._scale.score * rows))

    def _plan_next(self, phase: int) -> None:
        """Decide whether the next phase begins a test, and of how many phases.

        Of all ways to train for some phases and then to measure for some, the one that passes soonest is followed, if the
        score goes on as its curve does. A test begins where that way has no more training.
        """
        left = len(self._phases) - 1 - phase
        if left <= min(_LAST_PHASES, len(self._phases) // 2):
            self._start_test(
                left, last=True
            )  # the model as it is, for as good a certificate as the rest of the cap buys
            return
        if len(self._points) < _LEAST_POINTS:
            return
        curve = LearningCurve(self._points)
        ahead = self._squares[phase + 1 :][:_MOST_AHEAD]
        total = np.concatenate([[0.0], np.cumsum(ahead)])
        # By training phases (rows) and all phases (columns) until a test would be decided.
        measured = np.maximum(total[None, :] - total[:, None], _TINY)
        deviation = float(self._scale.sensitivity.amount) / self._unit / np.sqrt(measured)
        needed = -float(ndtri(self._failure * _FIRST_TEST)) * deviation
        gain = max(curve.slope, 0.0) / 2 * np.log1p(total / (self._trained + _TINY))
        passes = (np.minimum(curve.value + gain[:, None], _BEST) >= needed) & (needed <= _POWERED)
        reached = np.flatnonzero(passes.any(axis=0))
        if len(reached) and passes[0, reached[0]]:
            self._start_test(int(reached[0]), last=False)
            return
        believed = math.sqrt(self._trained) >= self._learned and needed[0, 1] <= _POWERED
        self._flat = self._flat + 1 if believed and curve.hopeless else 0
        if self._flat >= _FLAT_PHASES:
            self._start_test(1, last=True)

    def recall_verdict(self, verdict: StopVerdict, learner: MeasuredModel, phase: int) -> StopVerdict:
        """Return the recorded answer: a second measurement would cost again."""
        return verdict

    def copy_state(self) -> dict[str, NDArray[Any]]:
        """Return what a checkpoint must keep, all of it released; its size follows from the number of phases."""
        curve = np.full((len(self._phases), _COLUMNS), np.nan)
        for row, point in zip(curve, self._points, strict=False):
            row[:] = point.place, point.surplus, point.deviation
        state = [len(self._points), self._trained, self._flat, self._failure]
        test = [self._left, self._last, self._allowed, self._precision, *self._sums]
        found = {"measured scores": curve, "measured test": np.array([*state, *test], np.float64)}
        if self.rule.measure is Measure.R2:
            found["measured targets"] = np.array([self.rule.centre, *self._sides])
        return found

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state. A measurement that a crash lost is paid for and was not seen."""
        count, trained, flat, failure, left, last, allowed, precision, *sums = map(float, state["measured test"])
        self._points = [CurvePoint(*map(float, row)) for row in state["measured scores"][: int(count)]]
        self._trained, self._flat, self._failure = trained, int(flat), failure
        self._left, self._last, self._allowed = int(left), bool(last), allowed
        self._precision, self._sums = precision, np.array(sums)
        if self.rule.measure is Measure.R2:
            centre, *sides = map(float, state["measured targets"])
            self.rule, self._sides = replace(self.rule, centre=centre), np.array(sides)
