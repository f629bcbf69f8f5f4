"""The climb of any other statistic: a pilot chooses a few checkpoints, which share the failure probability."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import fine_rung, parts_for_rates, relative_ladder, rung_level
from expost.core import HoldStages, Ladder, Measure, Step, Target
from expost.noise import BitSource, DiscreteLaplacePath
from expost.noise.release_path import AnswerPath, ReleasePath
from expost.stats.gradual_release import ClimbResult, GradualRelease, PilotRelease, RungGate
from expost.stats.reader import CellReading, Reader

__all__ = ["CheckpointClimb"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

_RESERVE = 0.02  # of the failure probability: for the intervals of cells that miss the target
_FIRST_PARTS = (0.88, 0.06, 0.03)  # of a cell's failure probability: for the first checkpoints of a forecast
# Rungs between checkpoints: smaller parts widen intervals, so closer checkpoints would hardly be nearer to the target.
_FIRST_STRIDE, _STRIDE = 6, 3
_PILOT_STRIDE = 3  # rungs between two readings of the pilot
_PILOT_BLOCK = 16  # readings of the pilot that are computed together
_PILOT_PART = Fraction(1, 4)  # of the cap, at most, for a pilot
_LEAST_PILOT, _MOST_PILOT = (
    1 / 40,
    0.3,
)  # of the level that is forecast: a pilot of that much is never, or always, enough
_PILOT_WORTH = (
    2.0  # a pilot that costs this many times the forecast's error, as parts of the level, is not worth improving
)
_WIDEST_ERROR = 0.7  # of a forecast, as a standard deviation of its logarithm; what misleads more is taken as this
_MOST_MARGIN = 2.5  # standard deviations of a forecast that a first checkpoint lies above it
_LATE_ERROR, _MOST_RESERVE = (
    1.25,
    0.5,
)  # of a forecast, that the top rung makes up for; of the failure probability, for that
_DOUBT = 0.03  # how often a pilot's numbers may be farther off than a hopeful forecast supposes
_OPTIMISM = 3.0  # noise scales by which a coordinate may be larger than the pilot shows
_STEPS_SHOWN = 10  # rungs below the last that a picture gets


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
        plan = _Checkpoints(np.zeros(cells), np.zeros(cells, bool), np.full(cells, rungs.level))
        if release.pilot is not None:
            plan = rungs.plan_checkpoints(release.pilot, relative_ladder(sensitivity, cap).rungs)
        coarse = relative_ladder(sensitivity, cap, above=paid).rungs
        path = release.extend_path(Ladder(_insert_rungs(coarse, plan.rungs(sensitivity), paid)), bits)
        # Where the cap is below a level that was given and paid for before, that rung is read once more. Do not reuse
        # the rung where a climb stopped as a checkpoint: it is correlated with the noise.
        levels = path.ladder.rungs
        allowed = levels[: max(bisect_right(levels, cap if release.climbed else max(cap, paid)), 1)]
        start = release.first_rung(len(allowed) - 1)
        gate = RungGate(stages, release.rung_costs(price))
        found = rungs.climb_path(path, allowed, plan, start, gate, release.read)
        return replace(found, pilot_cost=price, paid=paid)

    def forecast(self, exact: NDArray[Any], sensitivity: Fraction, cells: int) -> Fraction | None:
        """Return what a climb costs if no noise misleads it, for these integers; None if the cap is too low."""
        rungs = _Rungs(self, cells, sensitivity)
        pilot = _GuessedPath(exact, relative_ladder(sensitivity, self.cap * _PILOT_PART))
        price, shown = rungs.release_pilot(pilot, None)
        plan = rungs.plan_checkpoints(shown, relative_ladder(sensitivity, self.cap - price).rungs)
        if not plan.forecast.all():
            return None
        return price + min(fine_rung(sensitivity, float(plan.first.max())), self.cap - price)


def _insert_rungs(coarse: tuple[Fraction, ...], planned: Iterable[Fraction], paid: Fraction) -> tuple[Fraction, ...]:
    """Return rungs in order with the planned ones that lie between them and above what was paid."""
    rungs = list(coarse)
    for rung in planned:
        place = bisect_left(rungs, rung)
        if paid < rung and place < len(rungs) and rungs[place] != rung:
            rungs.insert(place, rung)
    return tuple(rungs)


class _GuessedPath(ReleasePath):
    """Rungs without noise, of integers that were guessed: they show what a path would on average."""

    def __init__(self, exact: NDArray[Any], ladder: Ladder) -> None:
        super().__init__()
        self._exact, self._ladder, self._size = exact, ladder, len(exact)

    def at(self, rung: int) -> NDArray[Any]:
        return self._exact

    def block(self, start: int, stop: int) -> NDArray[Any]:
        return np.broadcast_to(self._exact, (stop - start, self._size))


@lru_cache(maxsize=64)
def _sign_table(coordinates: int) -> Floats:
    """Return up to eight orthogonal columns of signs, one row per coordinate (Sylvester's matrix).

    >>> _sign_table(2).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    size = 1 << max(coordinates - 1, 0).bit_length()
    # Rows far apart in the matrix, so that neighbouring coordinates of a long vector do not move in step.
    columns = [(place * (1 if size <= 8 else 5 * size // 8 + 1)) % size for place in range(min(size, 8))]
    return np.array(
        [[(-1.0) ** (row & column).bit_count() for column in columns] for row in range(coordinates)]
    ).reshape(coordinates, -1)


def checkpoint_parts(*, first: tuple[float, ...] = ()) -> Iterator[float]:
    """Yield the parts of a cell's failure probability for its checkpoints; they add up to one.

    With a forecast the ``first`` checkpoints get most of it, the rest falls slowly; without one all parts fall slowly.
    """
    yield from first
    yield from ((1 - sum(first)) / (k * (k + 1)) for k in itertools.count(1))


@dataclass(frozen=True)
class _Checkpoints:
    """The level of each cell's first checkpoint, whether the pilot has forecast it, and all its failure probability.

    An infinite level marks a cell to give up. ``reserve`` is the part of the failure probability of forecast cells that is kept
    for the last rung under the cap.
    """

    first: Floats
    forecast: Flags
    levels: Floats
    reserve: float = 0.0

    def rungs(self, sensitivity: Fraction) -> set[Fraction]:
        """Return the rungs of the first checkpoints that were forecast."""
        return {fine_rung(sensitivity, level) for level in np.unique(self.first[self.forecast]).tolist()}

    def place(self, allowed: tuple[Fraction, ...], start: int) -> Indices:
        """Return the rung of each first checkpoint; it is beyond those allowed where a cell is given up.

        A checkpoint that is forecast a little above the last rung allowed is at that rung.
        """
        listed = np.array([float(level) for level in allowed]) * (1 + 1e-9)
        found = np.searchsorted(listed, self.first)
        found = np.where(self.forecast, np.minimum(found, len(allowed) - 1), found)
        return np.maximum(found, start)


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
        return self.read_columns(noisy.reshape(self.cells, -1).T, scale, level)

    def read_columns(self, numbers: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return the reading of numbers that have one row per coordinate."""
        reading = self.climb.reader.read(numbers, scale, level)
        return reading.balance_values() if self.relative else reading.fit_values(float(self.climb.target.tolerance))

    @property
    def relative(self) -> bool:
        return self.climb.target.measure is Measure.RELATIVE_ERROR

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

    def smooth_pilot(self, pilot: PilotRelease) -> NDArray[Any]:
        """Return the numbers that the pilot makes plausible, one row per coordinate and one column per cell."""
        return self.climb.reader.smooth(pilot.noisy.reshape(self.cells, -1).T, pilot.scale)

    def forecast_cells(self, numbers: NDArray[Any], scale: float) -> Flags:
        """Return which cells would reach the target at this scale if these numbers were exact."""
        return self.check_cells(self.read_columns(numbers, scale, _FIRST_PARTS[0] * self.level))

    def find_excess(self, numbers: NDArray[Any], scale: float, failure: float | None = None) -> Floats:
        """Return by which factor the error at this scale would be above the target if these numbers were exact."""
        reading = self.read_columns(numbers, scale, _FIRST_PARTS[0] * (failure or self.level))
        # A value is moved within its interval, so that an absolute error is half of the width.
        errors = reading.largest_error(relative=True) if self.relative else (reading.high - reading.low) / 2
        errors = errors / float(self.climb.target.tolerance)
        worst: Floats = np.maximum(errors.reshape(numbers.shape[1], -1).max(axis=1), 1e-9)
        return worst

    def find_spread(self, pilot: PilotRelease, scale: float) -> Floats:
        """Return the standard deviation of the logarithm of each cell's forecast, which is the error of the pilot.

        It is found by moving all numbers by a standard deviation of their noise, up or down by a table of signs.
        """
        numbers = pilot.noisy.reshape(self.cells, -1).T
        signs = _sign_table(len(numbers))
        shifts = math.ceil(math.sqrt(2) * pilot.scale) * np.concatenate([signs, -signs], axis=1)
        moved = (numbers[:, None, :] + shifts[:, :, None]).reshape(len(numbers), -1)
        excess = self.find_excess(self.climb.reader.smooth(moved, pilot.scale), scale).reshape(2, -1, self.cells)
        with np.errstate(invalid="ignore", divide="ignore"):
            half = np.log(excess[0] / excess[1]) / 2
        spread = np.sqrt((np.where(np.isfinite(half), half, _WIDEST_ERROR) ** 2).mean(axis=0))
        return np.asarray(np.minimum(spread, _WIDEST_ERROR))

    def says_enough(self, pilot: PilotRelease, level: float, most: float) -> Flags:
        """Return the cells for which a larger pilot would cost more than it could save, and that ``most`` can serve."""
        numbers, amount = self.smooth_pilot(pilot), float(self.sensitivity)
        needs, reference = np.full(self.cells, np.inf), level / _MOST_PILOT
        for _ in range(2):
            needs = reference * self.find_excess(numbers, amount / reference)
            needs = np.where(needs <= most, needs, np.inf)
            served = needs[np.isfinite(needs)]
            if not served.size or served.max() * _LEAST_PILOT > level:
                return np.zeros(self.cells, bool)
            reference = float(served.max())
        reached = np.isfinite(needs)
        spread = self.find_spread(pilot, amount / reference)
        wanted = np.minimum(_PILOT_WORTH * spread, _MOST_PILOT) * np.where(reached, needs, 0.0)
        return np.asarray(reached & (level >= np.maximum(wanted, _LEAST_PILOT * reference)))

    def forecast_hopefully(self, pilot: PilotRelease, scale: float) -> Flags:
        """Return which cells may reach the target at this scale: there may be more rows than the pilot shows.

        A relative error is compared with the end of the pilot's interval that is farthest from zero.
        """
        numbers = pilot.noisy.reshape(self.cells, -1).T
        raised = self.climb.reader.add_rows(numbers, math.ceil(_OPTIMISM * pilot.scale))
        if not self.relative:
            return self.forecast_cells(raised, scale)
        rough = self.read_cells(pilot.noisy, pilot.scale, _DOUBT / 10)
        sizes = np.maximum(np.abs(rough.low), np.abs(rough.high))
        fine = self.read_columns(raised, scale, _FIRST_PARTS[0] * self.level)
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
            told = self.climb.reader.has_rows(noisy.reshape(self.cells, -1).T, own)
            if rung < min(clear, last) and not told.all():
                continue  # this much noise could hide enough rows for any target, so the unseen cells are not out of reach
            told &= self.says_enough(shown[1], float(levels[rung]), float(self.climb.cap - levels[rung]))
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

    def plan_checkpoints(self, pilot: PilotRelease, rungs: tuple[Fraction, ...]) -> _Checkpoints:
        """Choose the first checkpoint of each cell from what the pilot showed.

        A cell that the pilot sees clearly begins above its forecast, by a margin for the error of the pilot. Any other one
        begins where it would reach the target if its numbers were as much larger as the pilot's noise makes plausible, and
        is given up if even that is not enough.
        """
        levels = np.array([float(rung) for rung in rungs])
        scales = float(self.sensitivity) / levels
        numbers = self.smooth_pilot(pilot)
        found = self._find_rungs(partial(self.forecast_cells, numbers), scales)
        forecast = self.climb.reader.has_rows(pilot.noisy.reshape(self.cells, -1).T, pilot.scale)
        forecast &= found < len(scales)
        first, failures = np.full(self.cells, np.inf), np.full(self.cells, self.level)
        if not forecast.all():
            hopeful = self._find_rungs(partial(self.forecast_hopefully, pilot), scales)
            first[hopeful < len(scales)] = levels[hopeful[hopeful < len(scales)]]
        if not forecast.any():
            return _Checkpoints(first, forecast, failures)
        needs = np.zeros(self.cells)
        for rung in np.unique(found[forecast]).tolist():
            # Between two rungs errors are proportional to the noise.
            excess = np.minimum(self.find_excess(numbers, float(scales[rung])), 1.0)
            needs = np.where(found == rung, np.maximum(levels[rung] * excess, levels[max(rung - 1, 0)]), needs)
        if self.cells > 1:
            # The bill is the highest rung, so cells that are forecast to need it get most of the failure probability. Given
            # the pilot, whose noise is independent of the path's, these are constants. A cell without a forecast counts
            # as one that needs the most.
            together = self.cells * self.level
            failures = together * parts_for_rates(np.where(forecast, needs, needs.max()), together).parts
            needs = self.correct_needs(numbers, needs, failures)
        spread = self.find_spread(pilot, float(self.sensitivity) / float(needs[forecast].max()))
        # The margin that costs least on average if a missed first checkpoint costs another three quarters.
        margin = np.sqrt(2 * np.log(np.maximum(0.3 / np.maximum(spread, 1e-3), 1.0)))
        raised = self.climb.reader.widening * needs * np.exp(np.minimum(margin, _MOST_MARGIN) * spread)
        reserve, higher = self.reserve_last(float(raised[forecast].max()), float(levels[-1]))
        return _Checkpoints(np.where(forecast, raised * higher, first), forecast, failures, reserve)

    def reserve_last(self, first: float, top: float) -> tuple[float, float]:
        """Return the part of the failure probability to keep for the top rung, and by how much that raises first checkpoints.

        A first checkpoint that misses leaves little, so that a top rung close above it could miss what a single checkpoint there would
        have met. Enough is kept for it to serve an error of the forecast; where it is far above, nothing is.
        """
        radius = math.log(2 / (_FIRST_PARTS[0] * self.level))
        reserve = min(math.exp(-radius * max(top / (_LATE_ERROR * first) - 1, 0.0)), _MOST_RESERVE)
        return reserve, 1 - math.log(1 - reserve) / radius

    def correct_needs(self, numbers: NDArray[Any], needs: Floats, failures: Floats) -> Floats:
        """Return the levels that cells need at unequal failure probabilities, from those that they need at equal ones."""
        # Radii are about proportional to log(2 / level); at these scales the difference is read off the intervals.
        near = needs * np.log(2 / (_FIRST_PARTS[0] * failures)) / math.log(2 / (_FIRST_PARTS[0] * self.level))
        for failure in np.unique(failures).tolist():
            cells = (failures == failure) & (near > 0)
            if cells.any():
                reference = float(near[cells].max())
                excess = self.find_excess(numbers, float(self.sensitivity) / reference, failure)
                near = np.where(cells & np.isfinite(excess), reference * excess, near)
        return near

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
        self,
        path: AnswerPath,
        allowed: tuple[Fraction, ...],
        plan: _Checkpoints,
        start: int,
        gate: RungGate,
        read: int,
    ) -> ClimbResult:
        """Read each cell at its checkpoints, from ``start`` on, until its interval is narrow enough or the ladder ends."""
        scales, last = np.array([float(self.sensitivity / level) for level in allowed]), len(allowed) - 1
        first = plan.place(allowed, start)
        # Skip cells whose forecast exceeds the cap. If all do, use the top rung.
        tried = first <= last if (first <= last).any() else np.ones(self.cells, bool)
        rung, stride = np.where(tried, np.minimum(first, last), 0), _FIRST_STRIDE
        met, waiting = np.zeros(self.cells, bool), tried.copy()
        best: CellReading | None = None
        parts = {True: checkpoint_parts(first=_FIRST_PARTS), False: checkpoint_parts()}
        left = {True: 1.0, False: 1.0}
        while waiting.any():
            part = {forecast: next(each) * (1 - plan.reserve * forecast) for forecast, each in parts.items()}
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
            rung, stride = np.minimum(np.where(waiting, rung + stride, rung), last), _STRIDE
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
