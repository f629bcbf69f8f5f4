"""The climb of any other statistic: a pilot chooses a few checkpoints, which share the failure probability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import RATIO, parts_for_rates, relative_ladder, rung_level
from expost.core import HoldStages, Ladder, Measure, Step, Target
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.release_path import AnswerPath, ReleasePath
from expost.stats.gradual_release import ClimbResult, GradualRelease, PilotRelease, RungGate
from expost.stats.reader import CellReading, Reader

__all__ = ["CheckpointClimb"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

_RESERVE = 0.05  # of the failure probability: for the intervals of cells that miss the target
_FIRST_PARTS = (0.6, 0.25, 0.1)  # of a cell's failure probability: for the first checkpoints of a forecast
_STRIDE = (
    4  # rungs between checkpoints: smaller parts widen intervals, so closer ones would hardly be nearer to the target
)
_PILOT_STRIDE = 3  # rungs between two readings of the pilot
_PILOT_BLOCK = 16  # readings of the pilot that are computed together
_PILOT_PART = Fraction(1, 4)  # of the cap, at most, for a pilot
_PILOT_RATIO = 10  # a pilot is enough once a climb to this many times its level is expected to reach the target
_DOUBT = 0.03  # how often a pilot's numbers may be farther off than a safe forecast supposes
_OPTIMISM = 3.0  # noise scales by which a coordinate may be larger than the pilot shows
_STEPS_SHOWN = 24  # rungs below the last that a picture gets
_SPARE = 1  # rungs by which the first checkpoint is above the pilot's forecast


@dataclass(frozen=True)
class CheckpointClimb:
    """Reads each cell at few rungs, chosen from the noise of an independent pilot, until its interval is narrow enough.

    Given the pilot, the checkpoints of a cell are fixed rungs, so each checkpoint's interval holds at its own level and
    the levels add up: a union over checkpoints, not over the ladder (docs/proofs/stopped-relative-error.md). That is so
    however far the path was read before: the pilot is kept with it, and rungs that were read before cost nothing.
    """

    reader: Reader
    target: Target
    cap: Fraction

    def run(
        self,
        release: GradualRelease,
        sensitivity: Fraction,
        cells: int,
        bits: BitSource | None,
        stages: HoldStages | None = None,
    ) -> ClimbResult:
        """Climb all cells of a sealed vector, ``cells`` times the reader's number of coordinates long.

        Nothing is read above what ``stages`` has reserved; where no more can be, the climb ends.
        """
        paid, price = release.paid, Fraction(0)
        rungs = _Rungs(self, cells, sensitivity)
        if release.sealed is not None:
            ladder = relative_ladder(sensitivity, self.cap * _PILOT_PART)
            pilot = DiscreteLaplacePath(release.sealed, ladder, bits=bits)
            price, release.pilot = rungs.release_pilot(pilot, stages)
        cap = self.cap - price
        path = release.extend_path(relative_ladder(sensitivity, cap, above=paid), bits)
        # Where the cap is below a level that was given and paid for before, that rung is read once more. Do not reuse
        # the rung where a climb stopped as a checkpoint: it is correlated with the noise.
        highest = cap if release.climbed else max(cap, paid)
        levels = path.ladder.rungs
        allowed = [level for level in levels if level <= highest] or [levels[0]]
        scales = np.array([float(sensitivity / level) for level in allowed])
        start = np.full(cells, release.first_rung(len(allowed) - 1))
        plan = _Checkpoints(start, np.zeros(cells, bool), np.full(cells, rungs.level))
        if release.pilot is not None:
            plan = rungs.plan_checkpoints(release.pilot, scales)
        gate = RungGate(stages, release.rung_costs(price))
        return replace(rungs.climb_path(path, scales, plan, gate, release.read), pilot_cost=price, paid=paid)

    def forecast(self, exact: NDArray[Any], sensitivity: Fraction, cells: int) -> Fraction | None:
        """Return what a climb costs if no noise misleads it, for these integers; None if the cap is too low."""
        rungs = _Rungs(self, cells, sensitivity)
        pilot = _GuessedPath(exact, relative_ladder(sensitivity, self.cap * _PILOT_PART))
        price, shown = rungs.release_pilot(pilot, None)
        levels = relative_ladder(sensitivity, self.cap - price).rungs
        plan = rungs.plan_checkpoints(shown, np.array([float(sensitivity / level) for level in levels]))
        return price + levels[int(plan.first.max())] if plan.forecast.all() else None


class _GuessedPath(ReleasePath):
    """Rungs without noise, of integers that were guessed: they show what a path would on average."""

    def __init__(self, exact: NDArray[Any], ladder: Ladder) -> None:
        super().__init__()
        self._exact, self._ladder, self._size = exact, ladder, len(exact)

    def at(self, rung: int) -> NDArray[Any]:
        return self._exact

    def block(self, start: int, stop: int) -> NDArray[Any]:
        return np.broadcast_to(self._exact, (stop - start, self._size))


def checkpoint_parts(*, first: tuple[float, ...] = ()) -> Iterator[float]:
    """Yield the parts of a cell's failure probability for its checkpoints; they add up to one.

    With a forecast the ``first`` checkpoints get most of it, the rest falls slowly; without one all parts fall slowly.
    """
    yield from first
    yield from ((1 - sum(first)) / (k * (k + 1)) for k in itertools.count(1))


@dataclass(frozen=True)
class _Checkpoints:
    """The first checkpoint of each cell, whether the pilot has forecast it, and the failure probability of its checkpoints.

    A first checkpoint beyond the ladder marks a cell to give up.
    """

    first: Indices
    forecast: Flags
    levels: Floats


@dataclass(frozen=True)
class _Rungs:
    """A climb with its cells."""

    climb: CheckpointClimb
    cells: int
    sensitivity: Fraction

    @property
    def level(self) -> float:
        """Return the failure probability of one cell's checkpoints together, if all cells have the same."""
        return float(self.climb.target.failure_probability) * (1 - _RESERVE) / self.cells

    def read_cells(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        reading = self.climb.reader.read(noisy.reshape(self.cells, -1).T, scale, level)
        return reading.balance_values() if self.climb.target.measure is Measure.RELATIVE_ERROR else reading

    def read_each(self, noisy: NDArray[Any], scale: float, levels: Floats) -> CellReading:
        """Return the reading of every cell at its own level. There are few different ones."""
        distinct = np.unique(levels)
        found = self.read_cells(noisy, scale, float(distinct[0]))
        for level in distinct[1:].tolist():
            found = found.choose_cells(levels < level, self.read_cells(noisy, scale, level))
        return found

    def check_cells(self, reading: CellReading) -> Flags:
        """Return which cells reach the target with all their entries."""
        entries = reading.reaches_target(self.climb.target).reshape(self.cells, -1)
        return np.asarray(entries.all(axis=1))

    def forecast_cells(self, noisy: NDArray[Any], scale: float) -> Flags:
        """Return which cells would reach the target at this scale if these numbers were exact."""
        return self.check_cells(self.read_cells(noisy, scale, _FIRST_PARTS[0] * self.level))

    def forecast_safely(self, pilot: PilotRelease, scale: float) -> Flags:
        """Return which cells would probably reach the target at this scale, although the pilot is noisy.

        A relative error is compared with the end of the pilot's interval that is nearest to zero.
        """
        if self.climb.target.measure is not Measure.RELATIVE_ERROR:
            return self.forecast_cells(pilot.noisy, scale)
        rough = self.read_cells(pilot.noisy, pilot.scale, _DOUBT)
        nearest = np.where(rough.low * rough.high > 0, np.minimum(np.abs(rough.low), np.abs(rough.high)), 0.0)
        return self._compare_relative(pilot.noisy, scale, nearest)

    def forecast_hopefully(self, pilot: PilotRelease, scale: float) -> Flags:
        """Return which cells may reach the target at this scale: there may be more rows than the pilot shows.

        A relative error is compared with the end of the pilot's interval that is farthest from zero.
        """
        numbers = pilot.noisy.reshape(self.cells, -1).T
        raised = self.climb.reader.add_rows(numbers, math.ceil(_OPTIMISM * pilot.scale)).T
        if self.climb.target.measure is not Measure.RELATIVE_ERROR:
            return self.forecast_cells(raised, scale)
        rough = self.read_cells(pilot.noisy, pilot.scale, _DOUBT / 10)
        return self._compare_relative(raised, scale, np.maximum(np.abs(rough.low), np.abs(rough.high)))

    def _compare_relative(self, noisy: NDArray[Any], scale: float, sizes: Floats) -> Flags:
        """Return which cells have intervals of at most the target's share of these sizes."""
        fine = self.read_cells(noisy, scale, _FIRST_PARTS[0] * self.level)
        enough = (fine.high - fine.low) / 2 <= float(self.climb.target.tolerance) * sizes
        return np.asarray(enough.reshape(self.cells, -1).all(axis=1))

    def release_pilot(self, path: ReleasePath, stages: HoldStages | None) -> tuple[Fraction, PilotRelease]:
        """Return the pilot's price and what it showed: the first rung that says enough about every cell.

        That is a forecast of its checkpoint, or that it is out of reach of the cap. What a pilot costs depends on the rows
        and the target; the cap only limits it.
        """
        levels = path.ladder.rungs
        last, best = len(levels) - 1, float(self.sensitivity / self.climb.cap)
        gate = RungGate(stages, list(levels))
        block: NDArray[Any] = np.empty((0, 0))
        start, clear = 0, self._first_clear(levels, best, path.size)
        for rung in [*range(0, last, _PILOT_STRIDE), last]:
            if rung >= start + len(block):
                reserved = gate.open(rung)
                if reserved <= rung:
                    break
                start, block = rung, path.block(rung, min(rung + _PILOT_BLOCK * _PILOT_STRIDE, reserved, last + 1))
            noisy, own = block[rung - start], float(self.sensitivity / levels[rung])
            shown = levels[rung], PilotRelease(noisy, own)
            afforded = max(own / _PILOT_RATIO, float(self.sensitivity / (self.climb.cap - levels[rung])))
            told = self.climb.reader.has_rows(noisy.reshape(self.cells, -1).T, own)
            if rung < min(clear, last) and not told.all():
                continue  # this much noise could hide enough rows for any target, so the unseen cells are not out of reach
            told &= self.forecast_safely(shown[1], afforded)
            if told.all() or (told | ~self.forecast_hopefully(shown[1], best)).all():
                break
        return shown

    def _first_clear(self, levels: tuple[Fraction, ...], best: float, size: int) -> int:
        """Find by bisection the first rung of the pilot at which cells without rows would be out of reach."""
        low, high = -1, len(levels)
        while high - low > 1:
            middle = (low + high) // 2
            empty = PilotRelease(np.zeros(size, np.int64), float(self.sensitivity / levels[middle]))
            hidden = self.forecast_hopefully(empty, best).any()
            low, high = (middle, high) if hidden else (low, middle)
        return high

    def plan_checkpoints(self, pilot: PilotRelease, scales: Floats) -> _Checkpoints:
        """Choose the first checkpoint of each cell from what the pilot showed.

        A cell that the pilot sees clearly begins a spare rung above its forecast. Any other one begins where it would reach
        the target if its numbers were as much larger as the pilot's noise makes plausible, and is beyond the ladder if even
        that is not enough.
        """
        seen = self.climb.reader.has_rows(pilot.noisy.reshape(self.cells, -1).T, pilot.scale)
        found = self._find_rungs(partial(self.forecast_cells, pilot.noisy), scales)
        forecast = seen & (found < len(scales))
        hopeful = found if forecast.all() else self._find_rungs(partial(self.forecast_hopefully, pilot), scales)
        levels = np.full(self.cells, self.level)
        if forecast.any() and self.cells > 1:
            # The bill is the highest rung, so cells that are forecast to need it get most of the failure probability. Given
            # the pilot, whose noise is independent of the path's, these are constants. A cell without a forecast counts
            # as one that needs the most.
            needs = np.where(forecast, 1 / scales[np.minimum(found, len(scales) - 1)], 0.0)
            levels = (
                self.cells
                * self.level
                * parts_for_rates(np.where(forecast, needs, needs.max()), self.cells * self.level).parts
            )
            # Radii are about proportional to log(2 / level), and a rung is a factor of RATIO.
            wider = np.log(2 / (_FIRST_PARTS[0] * levels)) / math.log(2 / (_FIRST_PARTS[0] * self.level))
            found = np.maximum(found + np.ceil(np.log(wider) / math.log(RATIO)).astype(np.int64), 0)
        return _Checkpoints(np.where(forecast, np.minimum(found + _SPARE, len(scales) - 1), hopeful), forecast, levels)

    def _find_rungs(self, forecast: Callable[[float], Flags], scales: Floats) -> Indices:
        """Find by bisection the first rung of each cell whose noise is forecast to be small enough.

        It is beyond the ladder if no rung is.
        """
        low, high = np.full(self.cells, -1), np.full(self.cells, len(scales))
        while (high - low > 1).any():
            middle = (low + high) // 2
            flags = np.zeros(self.cells, bool)
            for rung in np.unique(middle[high - low > 1]).tolist():
                flags |= (middle == rung) & forecast(float(scales[rung]))
            low, high = np.where(flags, low, np.maximum(middle, low)), np.where(flags, middle, high)
            low = np.where(high - low < 1, high - 1, low)
        return high

    def climb_path(
        self, path: AnswerPath, scales: Floats, plan: _Checkpoints, gate: RungGate, read: int
    ) -> ClimbResult:
        """Read each cell at its checkpoints until its interval is narrow enough or the ladder ends."""
        last = len(scales) - 1
        # Skip cells whose forecast exceeds the cap. If all do, use the top rung.
        tried = plan.first <= last if (plan.first <= last).any() else np.ones(self.cells, bool)
        rung = np.where(tried, np.minimum(plan.first, last), 0)
        met, waiting = np.zeros(self.cells, bool), tried.copy()
        best: CellReading | None = None
        parts = {True: checkpoint_parts(first=_FIRST_PARTS), False: checkpoint_parts()}
        left = {True: 1.0, False: 1.0}
        while waiting.any():
            part = {forecast: next(each) for forecast, each in parts.items()}
            for now, forecast in sorted(set(zip(rung[waiting].tolist(), plan.forecast[waiting].tolist(), strict=True))):
                if gate.open(now) <= now:  # no more can be reserved: the ladder ends below
                    last = min(last, gate.last)
                    break
                # No checkpoint follows the last rung, so it gets all that is left.
                levels = plan.levels * (left if now == len(scales) - 1 else part)[forecast]
                reading = self.read_each(path.at(now), scales[now], levels)
                reached = waiting & (rung == now) & (plan.forecast == forecast) & self.check_cells(reading)
                best, met = reading.choose_cells(reached, best or reading), met | reached
            left = {forecast: left[forecast] - part[forecast] for forecast in left}
            waiting &= ~met & (rung < last)
            rung = np.minimum(np.where(waiting, rung + _STRIDE, rung), last)
        top = int(rung.max())
        best_known = max(top, read)
        # The rung of a cell that missed may depend on its own noise, so its interval pays for all rungs.
        epsilon = path.ladder[best_known]
        reserve = float(self.climb.target.failure_probability) * _RESERVE / self.cells
        wide = rung_level(reserve, float(epsilon))
        found = self.read_cells(path.at(best_known), float(self.sensitivity / epsilon), wide)
        late = self.check_cells(found) & ~met
        found = found if best is None else best.choose_cells(met, found)
        steps = self._collect_steps(path, scales, top) if len(found.value) == 1 else ()
        return ClimbResult(found, np.where(met, rung, best_known), met | late, path.ladder, steps)

    def _collect_steps(self, path: AnswerPath, scales: Floats, top: int) -> tuple[Step, ...]:
        """Return the climb of a single cell with a single entry, for the picture."""
        first, levels = max(top + 1 - _STEPS_SHOWN, 0), path.ladder.rungs
        steps = []
        for rung, noisy in enumerate(path.block(first, top + 1), start=first):
            row = self.read_cells(noisy, scales[rung], _FIRST_PARTS[0] * self.level)
            steps.append(Step(levels[rung], float(row.value[0]), float(row.low[0]), float(row.high[0])))
        return tuple(steps)
