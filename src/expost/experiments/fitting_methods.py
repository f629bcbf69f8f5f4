"""The methods that the accuracy-first figures compare: as published in 2017, and ours."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost.accuracy.paper2017 import PaperProblem, Task, TestPlan
from expost.core import BudgetExceeded, Ladder, Outcome, Plan, Sealed, Sensitivity
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall
from expost.experiments.experiment_data import ExperimentTable
from expost.models.linear.classifier_fit import TiltedClassifier, grid_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_moments import CertifiedRidge
from expost.models.linear.ridge_objective import TiltedRidge
from expost.models.linear.row_loss import LogisticLoss
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["CAP", "Convention", "TableRisk", "LogisticRisk", "OwnMethods", "Point", "Replay", "RidgeRisk", "exact_risk"]

Floats = NDArray[np.float64]

_NEWTON_STEPS = 50
_CHUNK = 16  # hypotheses at a time: their scores on all distinct rows stay in the cache of the processor


class RidgeRisk:
    """Half the mean squared error plus penalty / 2 |theta|^2, from second moments.

    The authors' code solves this problem but reports a quarter of the mean squared error plus the same penalty.
    """

    def __init__(self, table: ExperimentTable, penalty: float) -> None:
        rows, width = table.rows, table.width
        self.gram = table.features.T @ table.features / rows
        self.cross = table.features.T @ table.target / rows
        self._square = float(table.target @ table.target) / rows
        self._penalty = penalty
        self.best: Floats = np.asarray(np.linalg.solve(self.gram + penalty * np.eye(width), self.cross), np.float64)
        self._lowest = self._risk(self.best[None], 0.5)[0]
        self._authors_lowest = self._risk(self.best[None], 0.25)[0]

    def _risk(self, thetas: Floats, share: float) -> Floats:
        squared = np.einsum("ki,ki->k", thetas @ self.gram, thetas) - 2 * thetas @ self.cross + self._square
        return np.asarray(share * squared + self._penalty / 2 * (thetas**2).sum(axis=1))

    def excesses(self, thetas: Floats) -> tuple[Floats, Floats]:
        """Compute how far each is above the minimum; the authors' measure is lowest elsewhere and can be negative."""
        return self._risk(thetas, 0.5) - self._lowest, self._risk(thetas, 0.25) - self._authors_lowest

    def floor(self, thetas: Floats) -> Floats:
        """Bound nothing: moments are cheap enough to look at every hypothesis."""
        return np.full(len(thetas), -np.inf)


class LogisticRisk:
    """Mean logistic loss plus penalty / 2 |theta|^2, over distinct rows weighted by how often they occur."""

    def __init__(self, table: ExperimentTable, penalty: float) -> None:
        signed = np.ascontiguousarray(table.features * table.target[:, None])
        # Rows as bytes: sorting those is some ten times faster than sorting rows of floats.
        packed = signed.view(np.dtype((np.void, signed.itemsize * table.width)))
        distinct, counts = np.unique(packed, return_counts=True)
        self._rows: Floats = distinct.view(np.float64).reshape(len(distinct), table.width)
        self._weights = counts / table.rows
        self._penalty = penalty
        self.best = self._minimise(np.zeros(table.width))
        self._lowest = self._risk(self.best[None])[0]

    def _minimise(self, theta: Floats) -> Floats:
        """Run Newton's method; the loss is self-concordant enough for full steps from zero with rows of norm 1."""
        for _ in range(_NEWTON_STEPS):
            slope = self._weights * expit(-(self._rows @ theta))
            gradient = self._penalty * theta - self._rows.T @ slope
            if np.linalg.norm(gradient) < 1e-13:
                break
            curvature = slope * expit(self._rows @ theta)
            hessian = (self._rows.T * curvature) @ self._rows + self._penalty * np.eye(len(theta))
            theta = theta - np.linalg.solve(hessian, gradient)
        return theta

    def _risk(self, thetas: Floats) -> Floats:
        chunks = [thetas[start : start + _CHUNK] for start in range(0, len(thetas), _CHUNK)]
        losses = np.concatenate([self._weights @ _softplus(-(self._rows @ chunk.T)) for chunk in chunks])
        return np.asarray(losses + self._penalty / 2 * (thetas**2).sum(axis=1))

    def excesses(self, thetas: Floats) -> tuple[Floats, Floats]:
        """Compute how far each is above the minimum; the authors' code measures this loss as the paper writes it."""
        excess = self._risk(thetas) - self._lowest
        return excess, excess

    def floor(self, thetas: Floats) -> Floats:
        """Bound the excess risk from below without rows: penalty / 2 |theta - best|^2 (strong convexity)."""
        return np.asarray(self._penalty / 2 * ((thetas - self.best) ** 2).sum(axis=1))


TableRisk = RidgeRisk | LogisticRisk
"""Excess risks of rows of coefficients, in the paper's objective and in the one its authors' code measures."""


def exact_risk(table: ExperimentTable, penalty: float) -> TableRisk:
    """Build the risk that suits the table."""
    return LogisticRisk(table, penalty) if table.classification else RidgeRisk(table, penalty)


def _softplus(values: Floats) -> Floats:
    """Compute ln(1 + e^v) without overflow."""
    return np.asarray(np.log(1 + np.exp(-np.abs(values))) + np.maximum(values, 0))


def shrunk(thetas: Floats, radius: float) -> Floats:
    """Shorten hypotheses that are longer than the radius (LNRWW17, Algorithm 5 with its inequality the right way)."""
    length = np.linalg.norm(thetas, axis=1, keepdims=True)
    return np.where(length > radius, thetas * (radius / np.maximum(length, math.ulp(1.0))), thetas)


_BLOCK = 32  # rungs at a time: their matrices stay in the cache of the processor
_STEP = 2.0**-30  # the grid of what is released: fine enough to be real-valued, coarse enough for 64 bits
_MOMENT_SENSITIVITY = 4.0  # X'X and X'y together, 2 + 2 (LNRWW17, Lemma A.6)


class Convention(enum.Enum):
    """Whose numbers."""

    CODE = "code"
    TEXT = "text"


@dataclass(frozen=True)
class Point:
    """One run of one method at one tolerance."""

    table: str
    method: str
    tolerance: float
    trial: int
    generation: float
    testing: float
    excess_risk: float
    authors_excess_risk: float
    norm: float
    met: bool
    """Whether the method said that it reached the target; never what the simulation knows."""

    @property
    def epsilon(self) -> float:
        """The bill."""
        return self.generation + self.testing


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """What one level made, and how good it is in truth."""

    level: float
    theta: Floats
    excess_risk: float
    authors_excess_risk: float

    def excess(self, convention: Convention) -> float:
        return self.authors_excess_risk if convention is Convention.CODE else self.excess_risk


class Replay:
    """Noise reduction, doubling and the oracle on one table."""

    def __init__(
        self, table: ExperimentTable, *, penalty: float = 0.005, failure_probability: float = 0.1, rungs: int = 1000
    ) -> None:
        task = Task.LOGISTIC_OUTPUT if table.classification else Task.RIDGE_COVARIANCE
        self.table, self.penalty, self.rungs = table, penalty, rungs
        self.failure_probability = failure_probability
        self.problem = PaperProblem(task, rows=table.rows, dimension=table.width, penalty=penalty)
        self._ladders: dict[float, Ladder] = {}

    @cached_property
    def risk(self) -> TableRisk:
        return exact_risk(self.table, self.penalty)

    # Hypotheses ---------------------------------------------------------------------------------------------------

    @cached_property
    def _sealed(self) -> Sealed:
        """X'X and X'y, all entries noisy alike as in Theorem 3.1, or the minimum as in Theorem 3.3."""
        if self.table.classification:
            exact, sensitivity = self.risk.best, self.problem.output_sensitivity
        else:
            features, target = self.table.features, self.table.target
            exact, sensitivity = np.append(features.T @ features, features.T @ target), _MOMENT_SENSITIVITY
        units = math.ceil(sensitivity / _STEP) + exact.size  # one for the rounding of each entry
        return Sealed(np.rint(exact / _STEP).astype(np.int64), Sensitivity(units))

    def _hypotheses(self, released: NDArray[np.int64]) -> Floats:
        """Solve each released row and shorten the solution to the ball, as the authors' code does it."""
        if self.table.classification:
            return shrunk(np.asarray(released * _STEP, np.float64), self.problem.radius)
        width = self.table.width
        means = released * (_STEP / self.table.rows)
        matrices = means[:, : width * width].reshape(-1, width, width)
        doubled = matrices + matrices.transpose(0, 2, 1)  # a quadratic form knows the symmetric part only
        diagonal = np.arange(width)
        doubled[:, diagonal, diagonal] += 2 * self.penalty
        solved = np.linalg.solve(doubled, 2 * means[:, width * width :, None])[..., 0]
        return shrunk(np.asarray(solved, np.float64), self.problem.radius)

    def _ladder(self, tolerance: float) -> Ladder:
        if tolerance not in self._ladders:
            levels = self.problem.levels(tolerance, self.rungs, printed=True)
            self._ladders[tolerance] = Ladder.of(float(f"{level:.9g}") for level in levels)
        return self._ladders[tolerance]

    # One trial ----------------------------------------------------------------------------------------------------

    def points(self, tolerances: Sequence[float], trial: int, bits: BitSource) -> list[Point]:
        """Run every method once at every tolerance.

        The levels that doubling tries do not depend on the tolerance, so one list of hypotheses serves all of them; the
        noise of its tests is drawn again. Trials share nothing.
        """
        tried: list[Hypothesis] = []
        points: list[Point] = []
        for tolerance in tolerances:
            points += self._noise_reduction(tolerance, trial, bits)
            points += self._doubling(tolerance, trial, tried, bits)
        return points

    def test(self, convention: Convention, tolerance: float) -> TestPlan:
        """Plan the above-threshold test of a convention."""
        plan = self.problem.theorem_test if convention is Convention.TEXT else self.problem.authors_test
        return plan(tolerance, self.failure_probability, self.rungs)

    def _noise_reduction(self, tolerance: float, trial: int, bits: BitSource) -> Iterator[Point]:
        """Run CovNR and OutputNR (Algorithms 3 and 5), and find the first rung that is good enough in truth."""
        path = DiscreteLaplacePath(self._sealed, self._ladder(tolerance), bits=bits)
        bars = {f"noise reduction ({each.value})": self._noisy_bars(each, tolerance, bits) for each in Convention}
        bars["oracle"] = np.full(self.rungs, tolerance)
        stops, last = self._first_accepted(path, bars)
        tests = [*(self.test(each, tolerance).epsilon for each in Convention), 0.0]
        for name, testing in zip(bars, tests, strict=True):
            # A run that never stops has shown its last rung and paid for it.
            found = stops.get(name, last)
            yield self._point(name, tolerance, trial, (found.level, testing), found, name in stops)

    def _first_accepted(
        self, path: DiscreteLaplacePath, bars: dict[str, Floats]
    ) -> tuple[dict[str, Hypothesis], Hypothesis]:
        """Find the first hypothesis below each bar, if there is one, and the last one looked at."""
        stops: dict[str, Hypothesis] = {}
        waiting = dict(bars)
        for start in range(0, self.rungs, _BLOCK):
            stop = min(start + _BLOCK, self.rungs)
            thetas = self._hypotheses(path.block(start, stop))
            half, authors = self._excesses(thetas, np.max([bar[start:stop] for bar in waiting.values()], axis=0))
            for name, bar in list(waiting.items()):
                accepted = (authors if "code" in name else half) <= bar[start:stop]
                if accepted.any():
                    at = int(accepted.argmax())
                    level = float(path.ladder[start + at])
                    stops[name] = Hypothesis(level, thetas[at], float(half[at]), float(authors[at]))
                    del waiting[name]
            if not waiting:
                break
        return stops, self._hypothesis(float(path.ladder[stop - 1]), thetas[-1])

    def _excesses(self, thetas: Floats, highest: Floats) -> tuple[Floats, Floats]:
        """Compute both excess risks, or a bound that is already above every bar: most hypotheses are hopeless."""
        floor = self.risk.floor(thetas)
        half, authors, near = floor.copy(), floor.copy(), floor <= highest
        if near.any():
            half[near], authors[near] = self.risk.excesses(thetas[near])
        return half, authors

    def _noisy_bars(self, convention: Convention, tolerance: float, bits: BitSource) -> Floats:
        """Draw the threshold minus what the noise adds, rung by rung (Algorithm 2: Lap(2 D / e) once, Lap(4 D / e) each)."""
        plan = self.test(convention, tolerance)
        width = 2 * self.problem.query_sensitivity / plan.epsilon
        noise = _laplace(self.rungs + 1, bits)
        return np.asarray(plan.threshold + width * noise[0] - 2 * width * noise[1:])

    def _doubling(self, tolerance: float, trial: int, tried: list[Hypothesis], bits: BitSource) -> Iterator[Point]:
        """Run Algorithm 4: fresh noise and a fresh test at every doubling; both conventions see the same noise."""
        most = self.problem.doublings(tolerance, printed=True)
        noise = _laplace(most + 1, bits)
        # The program tries one level more, and knows that only one tail of the noise does harm (Theorem A.2, corrected).
        for convention, steps, tails in ((Convention.TEXT, most, 1), (Convention.CODE, most + 1, 2)):
            spread = math.log(steps / (tails * self.failure_probability))
            bars = tolerance / 2 - noise * tolerance / (2 * spread)
            for step in range(steps):
                if step == len(tried):
                    tried.append(self._fresh(step, bits))
                met = bool(tried[step].excess(convention) <= bars[step])
                if met:
                    break
            generation = math.fsum(each.level for each in tried[: step + 1])
            testing = (step + 1) * 2 * self.problem.query_sensitivity * spread / tolerance
            bill, name = (generation, testing), f"doubling ({convention.value})"
            yield self._point(name, tolerance, trial, bill, tried[step], met)

    def _fresh(self, step: int, bits: BitSource) -> Hypothesis:
        """Draw a hypothesis under fresh noise at the level 2^step / n."""
        ladder = Ladder.of([float(f"{2.0**step / self.table.rows:.9g}")])
        released = DiscreteLaplacePath(self._sealed, ladder, bits=bits).block(0, 1)
        return self._hypothesis(float(ladder.cap), self._hypotheses(released)[0])

    def _hypothesis(self, level: float, theta: Floats) -> Hypothesis:
        half, authors = (float(each[0]) for each in self.risk.excesses(theta[None]))
        return Hypothesis(level, theta, half, authors)

    def _point(
        self, method: str, tolerance: float, trial: int, bill: tuple[float, float], found: Hypothesis, met: bool
    ) -> Point:
        risks = found.excess_risk, found.authors_excess_risk
        return Point(self.table.name, method, tolerance, trial, *bill, *risks, float(np.linalg.norm(found.theta)), met)


def _laplace(count: int, bits: BitSource) -> Floats:
    """Draw Laplace noise of scale 1 in floats: for simulated tests only."""
    logs = np.log((bits.words(2 * count).astype(float) + 0.5) * 2.0**-64)
    return np.asarray(logs[:count] - logs[count:])


CAP = 2.0
"""The ``max_epsilon`` that the package's methods are run with; a target that would cost more is left out."""


class OwnMethods:
    """The plans behind ``expost.Ridge`` and ``expost.LogisticRegression`` on one table."""

    def __init__(self, replay: Replay) -> None:
        self._replay, self._table = replay, replay.table
        self._planned: dict[float, dict[str, Plan]] = {}
        self._measured: dict[str, Any] = {}

    def points(self, tolerance: float, trial: int, bits: BitSource) -> Iterator[Point]:
        """Run every method once, on fresh noise.

        Trials share what has no noise in it: a request is planned from public numbers alone, once per tolerance, and what
        it measures of the table is the same for every tolerance.
        """
        for name, request in self._requests(tolerance).items():
            if name not in self._measured:
                self._measured[name] = request.measure(read_rows(self._table.features, self._table.target))
            release: Any = request.climb(self._measured[name], bits)
            parts = release.receipt.breakdown
            bill = float(parts["generation"]), float(parts["testing"])
            found = self._replay._hypothesis(math.fsum(bill), np.asarray(release.value.coefficients))
            met = release.receipt.outcome is not Outcome.NOT_MET
            yield self._replay._point(name, tolerance, trial, bill, found, met)

    def _requests(self, tolerance: float) -> dict[str, Plan]:
        if tolerance not in self._planned:
            aim = Aim.of(excess_risk=tolerance, failure_probability=self._replay.failure_probability, max_epsilon=CAP)
            problem = Problem(UnitBall(self._table.width), self._table.rows, self._replay.penalty, aim)
            makers: dict[str, Callable[..., Plan]] = {"expost, objective": TiltedRidge}
            if self._table.classification:
                makers["expost, objective"] = partial(
                    TiltedClassifier, loss=LogisticLoss(), labels=grid_labels((-1, 1))
                )
            else:
                makers["expost, certificate"] = CertifiedRidge
            planned = self._planned[tolerance] = {}
            for name, make in makers.items():
                with suppress(BudgetExceeded):
                    planned[name] = make(problem)
        return self._planned[tolerance]
