"""The algorithms of LNRWW17 as published, replayed on exact noise with the exact risk in view: simulations, not releases.

Two conventions are kept side by side. TEXT is the paper: half the squared error, and a test that costs what Theorems 3.2
and 3.4 say. CODE is the authors' program, which their figures show: a quarter of the squared error and an optimised
threshold. Their program prints half of the test's epsilon; their plots double it again, and so do these.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.paper2017 import PaperProblem, Task, TestPlan
from expost.core import Ladder, Sealed, Sensitivity
from expost.experiments.exact_risk import ExactRisk, exact_risk, shrunk
from expost.experiments.tables import Table
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["Convention", "Point", "Replay"]

Floats = NDArray[np.float64]

_BLOCK = 64
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


class Replay:
    """Noise reduction, doubling and the oracle on one table.

    >>> from expost.experiments.tables import load
    >>> from expost.noise import SeededBits
    >>> replay = Replay(load("made-up classification", None, rows=2000), penalty=0.05, rungs=50)
    >>> sorted({point.method for point in replay.points(0.1, 0, SeededBits(1))})
    ['doubling (code)', 'doubling (text)', 'noise reduction (code)', 'noise reduction (text)', 'oracle']
    """

    def __init__(
        self, table: Table, *, penalty: float = 0.005, failure_probability: float = 0.1, rungs: int = 1000
    ) -> None:
        task = Task.LOGISTIC_OUTPUT if table.classification else Task.RIDGE_COVARIANCE
        self.table, self.penalty, self.rungs = table, penalty, rungs
        self.failure_probability = failure_probability
        self.problem = PaperProblem(task, rows=table.rows, dimension=table.width, penalty=penalty)
        self._ladders: dict[float, Ladder] = {}

    @cached_property
    def risk(self) -> ExactRisk:
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
        """What each released row makes of itself: solved and shortened to the ball, as the authors' code does it."""
        if self.table.classification:
            return shrunk(np.asarray(released * _STEP, np.float64), self.problem.radius)
        width = self.table.width
        means = released * (_STEP / self.table.rows)
        matrices = means[:, : width * width].reshape(-1, width, width)
        symmetric = (matrices + matrices.transpose(0, 2, 1)) / 2 + self.penalty * np.eye(width)
        solved: Floats = np.asarray(np.linalg.solve(symmetric, means[:, width * width :, None])[..., 0], np.float64)
        return shrunk(solved, self.problem.radius)

    def _ladder(self, tolerance: float) -> Ladder:
        if tolerance not in self._ladders:
            levels = self.problem.levels(tolerance, self.rungs, printed=True)
            self._ladders[tolerance] = Ladder.of(float(f"{level:.9g}") for level in levels)
        return self._ladders[tolerance]

    # One trial ----------------------------------------------------------------------------------------------------

    def points(self, tolerance: float, trial: int, bits: BitSource) -> list[Point]:
        """Every method once."""
        return [*self._noise_reduction(tolerance, trial, bits), *self._doubling(tolerance, trial, bits)]

    def test(self, convention: Convention, tolerance: float) -> TestPlan:
        """The above-threshold test of a convention."""
        if convention is Convention.TEXT:
            return self.problem.theorem_test(tolerance, self.failure_probability, self.rungs)
        plan = self.problem.authors_test(tolerance, self.failure_probability, self.rungs)
        # The program halves the sensitivity of the logistic query, the plots make up for it: here as plotted.
        plotted = self.problem.query_sensitivity / self.problem.authors_query_sensitivity
        return TestPlan(plan.epsilon * plotted, plan.threshold)

    def _noise_reduction(self, tolerance: float, trial: int, bits: BitSource) -> Iterator[Point]:
        """CovNR and OutputNR (Algorithms 3 and 5), and the first rung that is good enough in truth."""
        path = DiscreteLaplacePath(self._sealed, self._ladder(tolerance), bits=bits)
        code, text = (self._noisy_bars(each, tolerance, bits) for each in (Convention.CODE, Convention.TEXT))
        bars = {
            "noise reduction (code)": code,
            "noise reduction (text)": text,
            "oracle": np.full(self.rungs, tolerance),
        }
        stops: dict[str, tuple[int, Floats]] = {}
        for start in range(0, self.rungs, _BLOCK):
            stop = min(start + _BLOCK, self.rungs)
            thetas = self._hypotheses(path.block(start, stop))
            highest = np.max([bar[start:stop] for bar in bars.values()], axis=0)
            half, authors = self._excesses(thetas, highest)
            for name, bar in bars.items():
                accepted = (authors if "code" in name else half) <= bar[start:stop]
                if name not in stops and accepted.any():
                    first = int(accepted.argmax())
                    stops[name] = start + first, thetas[first]
            if len(stops) == len(bars):
                break
        tests = dict(zip(bars, (*(self.test(each, tolerance).epsilon for each in Convention), 0.0), strict=True))
        for name, testing in tests.items():
            # A run that never stops has shown its last rung and paid for it.
            rung, theta = stops.get(name, (self.rungs - 1, thetas[-1]))
            yield self._point(name, tolerance, trial, (float(path.ladder[rung]), testing), theta, name in stops)

    def _excesses(self, thetas: Floats, highest: Floats) -> tuple[Floats, Floats]:
        """Both excess risks, or a bound that is already above every bar: most hypotheses are hopeless."""
        floor = self.risk.floor(thetas)
        half, authors, near = floor.copy(), floor.copy(), floor <= highest
        if near.any():
            half[near], authors[near] = self.risk.excesses(thetas[near])
        return half, authors

    def _noisy_bars(self, convention: Convention, tolerance: float, bits: BitSource) -> Floats:
        """The threshold minus what the noise adds, rung by rung (Algorithm 2: Lap(2 D / e) once, Lap(4 D / e) each)."""
        plan = self.test(convention, tolerance)
        width = 2 * self.problem.query_sensitivity / plan.epsilon
        noise = _laplace(self.rungs + 1, bits)
        bars: Floats = plan.threshold + width * noise[0] - 2 * width * noise[1:]
        return bars

    def _doubling(self, tolerance: float, trial: int, bits: BitSource) -> Iterator[Point]:
        """Algorithm 4: fresh noise and a fresh test at every doubling; both conventions see the same noise."""
        steps = self.problem.doublings(tolerance, printed=True)
        spread = math.log(steps / self.failure_probability)
        cost = 2 * self.problem.query_sensitivity * spread / tolerance
        noise = _laplace(steps, bits) * tolerance / (2 * spread)
        waiting = {"doubling (text)": 0, "doubling (code)": 1}
        generation = 0.0
        for step in range(steps):
            level = Ladder.of([float(f"{2.0**step / self.table.rows:.9g}")])
            theta = self._hypotheses(DiscreteLaplacePath(self._sealed, level, bits=bits).block(0, 1))
            generation += float(level.cap)
            bar = np.array([tolerance / 2 - noise[step]])
            excesses = self._excesses(theta, bar)
            last = step == steps - 1
            for name in [name for name, index in waiting.items() if last or excesses[index][0] <= bar[0]]:
                met = bool(excesses[waiting.pop(name)][0] <= bar[0])
                yield self._point(name, tolerance, trial, (generation, (step + 1) * cost), theta[0], met)
            if not waiting:
                break

    def _point(
        self, method: str, tolerance: float, trial: int, bill: tuple[float, float], theta: Floats, met: bool
    ) -> Point:
        half, authors = (float(each[0]) for each in self.risk.excesses(theta[None]))
        norm = float(np.linalg.norm(theta))
        return Point(self.table.name, method, tolerance, trial, *bill, half, authors, norm, met)


def _laplace(count: int, bits: BitSource) -> Floats:
    """Laplace noise of scale 1 in floats: for simulated tests only."""
    uniform = (bits.words(2 * count).astype(float) + 0.5) * 2.0**-64
    logs = np.log(uniform)
    difference: Floats = logs[:count] - logs[count:]
    return difference
