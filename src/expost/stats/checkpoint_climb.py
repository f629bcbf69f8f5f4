"""The climb of any other statistic: a pilot chooses a few checkpoints, which share the failure probability."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import relative_ladder, rung_level, split_cap
from expost.core import HoldStages, Measure, Step, Target
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.gradual_release import ClimbResult, GradualRelease, PilotRelease, RungGate
from expost.stats.reader import CellReading, Reader

__all__ = ["CheckpointClimb"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

_RESERVE = 0.05  # of the failure probability: for the intervals of cells that miss the target
_FIRST_PART = 0.8  # of a cell's failure probability: for its first checkpoint
_STRIDE = 2  # rungs between checkpoints
_PILOT_STRIDE = 3  # rungs between two readings of the pilot
_PILOT_BLOCK = 16  # readings of the pilot that are computed together
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
        paid, cap, price = release.paid, self.cap, Fraction(0)
        pilot = None
        if release.sealed is not None:
            most, cap = split_cap(self.cap)
            pilot = DiscreteLaplacePath(release.sealed, relative_ladder(sensitivity, most), bits=bits)
        path = release.extend_path(relative_ladder(sensitivity, cap, above=paid), bits)
        # Where the cap is below a level that was given and paid for before, that rung is read once more. Do not reuse
        # the rung where a climb stopped as a checkpoint: it is correlated with the noise.
        highest = cap if release.climbed else max(cap, paid)
        levels = path.ladder.rungs
        allowed = [level for level in levels if level <= highest] or [levels[0]]
        scales = np.array([float(sensitivity / level) for level in allowed])
        rungs = _Rungs(self, cells, sensitivity, scales, release.read)
        first, parts = np.full(cells, release.first_rung(len(allowed) - 1)), checkpoint_parts(first=None)
        if pilot is not None:
            price, release.pilot = rungs.release_pilot(pilot)
        if release.pilot is not None:
            first, parts = rungs.first_checkpoints(release.pilot), checkpoint_parts(first=_FIRST_PART)
        gate = RungGate(stages, release.rung_costs(price))
        return replace(rungs.climb_path(path, first, parts, gate), pilot_cost=price, paid=paid)


def checkpoint_parts(*, first: float | None) -> Iterator[float]:
    """Yield the parts of a cell's failure probability for its checkpoints; they add up to one.

    With a pilot the first checkpoint gets most of it, the rest falls slowly; without one all parts fall slowly.
    """
    if first is not None:
        yield first
    yield from ((1 - (first or 0.0)) / (k * (k + 1)) for k in itertools.count(1))


@dataclass(frozen=True)
class _Rungs:
    """A climb with its cells and the noise scales of its rungs."""

    climb: CheckpointClimb
    cells: int
    sensitivity: Fraction
    scales: Floats
    read: int

    @property
    def level(self) -> float:
        """Return the failure probability of one cell's checkpoints together."""
        return float(self.climb.target.failure_probability) * (1 - _RESERVE) / self.cells

    def read_cells(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        reading = self.climb.reader.read(noisy.reshape(self.cells, -1).T, scale, level)
        return reading.balance_values() if self.climb.target.measure is Measure.RELATIVE_ERROR else reading

    def check_cells(self, noisy: NDArray[Any], scale: float, level: float) -> tuple[CellReading, Flags]:
        """Return a reading, and which cells reach the target with all their entries."""
        reading = self.read_cells(noisy, scale, level)
        entries = reading.reaches_target(self.climb.target).reshape(self.cells, -1)
        return reading, np.asarray(entries.all(axis=1))

    def forecast_cells(self, noisy: NDArray[Any], scale: float, own: float) -> Flags:
        """Return which cells would reach the target at this scale if a pilot of scale ``own`` were exact."""
        known = self.climb.reader.has_rows(noisy.reshape(self.cells, -1).T, own)
        return known & self.check_cells(noisy, scale, _FIRST_PART * self.level)[1] if known.any() else known

    def release_pilot(self, path: DiscreteLaplacePath) -> tuple[Fraction, PilotRelease]:
        """Return the pilot's price and what it showed: the first rung that can choose all checkpoints."""
        levels = path.ladder.rungs
        last = len(levels) - 1
        block: NDArray[Any] = np.empty((0, 0))
        for place, rung in enumerate(range(last % _PILOT_STRIDE, last + 1, _PILOT_STRIDE)):
            if place % _PILOT_BLOCK == 0:
                block = path.block(rung, min(rung + _PILOT_BLOCK * _PILOT_STRIDE, last + 1))[::_PILOT_STRIDE]
            noisy = block[place % _PILOT_BLOCK]
            afforded = float(levels[last] / levels[rung]) * self.scales[-1]
            own = float(self.sensitivity / levels[rung])
            if rung == last or self.forecast_cells(noisy, afforded, own).all():
                return levels[rung], PilotRelease(noisy, own)
        raise AssertionError("a ladder has a last rung")

    def first_checkpoints(self, pilot: PilotRelease) -> Indices:
        """Find by bisection the first rung of each cell whose noise would be small enough, and add a spare rung.

        Beyond the ladder where the forecast is out of reach.
        """
        low, high = np.full(self.cells, -1), np.full(self.cells, len(self.scales))
        while (high - low > 1).any():
            middle = (low + high) // 2
            flags = np.zeros(self.cells, bool)
            for rung in np.unique(middle[high - low > 1]).tolist():
                flags |= (middle == rung) & self.forecast_cells(pilot.noisy, self.scales[rung], pilot.scale)
            low, high = np.where(flags, low, np.maximum(middle, low)), np.where(flags, middle, high)
            low = np.where(high - low < 1, high - 1, low)
        return np.where(high < len(self.scales), np.minimum(high + _SPARE, len(self.scales) - 1), high)

    def climb_path(
        self, path: DiscreteLaplacePath, first: Indices, parts: Iterator[float], gate: RungGate
    ) -> ClimbResult:
        """Read each cell at its checkpoints until its interval is narrow enough or the ladder ends."""
        last = len(self.scales) - 1
        # Skip cells whose forecast exceeds the cap. If all do, use the top rung.
        tried = first <= last if (first <= last).any() else np.ones(self.cells, bool)
        rung = np.where(tried, np.minimum(first, last), 0)
        met, waiting = np.zeros(self.cells, bool), tried.copy()
        best: CellReading | None = None
        while waiting.any():
            level = next(parts) * self.level
            for now in np.unique(rung[waiting]).tolist():
                if gate.open(now) <= now:  # no more can be reserved: the ladder ends below
                    last = min(last, gate.last)
                    break
                reading, flags = self.check_cells(path.at(now), self.scales[now], level)
                reached = waiting & (rung == now) & flags
                best, met = reading.choose_cells(reached, best or reading), met | reached
            waiting &= ~met & (rung < last)
            rung = np.minimum(np.where(waiting, rung + _STRIDE, rung), last)
        top = int(rung.max())
        best_known = max(top, self.read)
        # The rung of a cell that missed may depend on its own noise, so its interval pays for all rungs.
        epsilon = path.ladder[best_known]
        reserve = float(self.climb.target.failure_probability) * _RESERVE / self.cells
        wide = rung_level(reserve, float(epsilon))
        found = self.read_cells(path.at(best_known), float(self.sensitivity / epsilon), wide)
        found = found if best is None else best.choose_cells(met, found)
        steps = self._collect_steps(path, top) if len(found.value) == 1 else ()
        return ClimbResult(found, np.where(met, rung, best_known), met, path.ladder, steps)

    def _collect_steps(self, path: DiscreteLaplacePath, top: int) -> tuple[Step, ...]:
        """Return the climb of a single cell with a single entry, for the picture."""
        first, levels = max(top + 1 - _STEPS_SHOWN, 0), path.ladder.rungs
        steps = []
        for rung, noisy in enumerate(path.block(first, top + 1), start=first):
            row = self.read_cells(noisy, self.scales[rung], _FIRST_PART * self.level)
            steps.append(Step(levels[rung], float(row.value[0]), float(row.low[0]), float(row.high[0])))
        return tuple(steps)
