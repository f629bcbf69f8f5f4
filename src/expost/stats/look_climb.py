"""The climb of any other statistic: a scout tells where to look, and few looks share the failure probability."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval_groups import split_cap
from expost.accuracy.interval_relative import relative_ladder, rung_level
from expost.core import Measure, Step, Target
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.ascent import Ascent
from expost.stats.kept import Kept, Scouted
from expost.stats.readers.contract import Reader
from expost.stats.reading import Reading

__all__ = ["LookClimb"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

_RESERVE = 0.05  # of the failure probability: for the intervals of cells that miss the target
_FIRST = 0.8  # part of a cell's failure probability for its first look
_STRIDE = 2  # rungs between looks
_STEP = 3  # rungs between two looks at the scout
_SHOWN = 24  # rungs below the last that a picture gets
_SPARE = 1  # rungs that the first look is put above the scout's forecast


@dataclass(frozen=True)
class LookClimb:
    """Reads each cell at few rungs, chosen from the noise of an independent scout, until its interval is narrow enough.

    Given the scout, the looks of a cell are fixed rungs, so each look's interval holds at its own level and the
    levels add up: a union over looks, not over the ladder (docs/proofs/stopped-relative-error.md). That is so however
    far the path was read before: a scout is kept beside it, and looks at what was read before cost nothing.
    """

    reader: Reader
    target: Target
    cap: Fraction

    def run(self, kept: Kept, sensitivity: Fraction, cells: int, bits: BitSource | None) -> Ascent:
        """Climb all cells of a sealed vector, ``cells`` times the reader's number of coordinates long."""
        paid, cap, price = kept.paid, self.cap, Fraction(0)
        scout = None
        if kept.sealed is not None:
            most, cap = split_cap(self.cap)
            scout = DiscreteLaplacePath(kept.sealed, relative_ladder(sensitivity, most), bits=bits)
        path = kept.ladder_to(relative_ladder(sensitivity, cap, above=paid), bits)
        # Where the cap is below a level that was given and paid for before, that rung is looked at once more; where a
        # climb stopped is no rung to choose for a look: it depends on the noise there.
        highest = cap if kept.climbed else max(cap, paid)
        allowed = [level for level in path.ladder if level <= highest] or [path.ladder[0]]
        view = _View(self, cells, sensitivity, np.array([float(sensitivity / level) for level in allowed]), kept.read)
        first, parts = np.full(cells, kept.first_rung(len(allowed) - 1)), _blind_levels()
        if scout is not None:
            price, kept.scouted = view.scout(scout)
        if kept.scouted is not None:
            first, parts = view.first_looks(kept.scouted), _scouted_levels()
        return replace(view.look(path, first, parts), scouted=price, paid=paid)


def _scouted_levels() -> Iterator[float]:
    """The parts of a cell's failure probability for its looks: most for the first, the rest in falling parts."""
    yield _FIRST
    yield from ((1 - _FIRST) / (k * (k + 1)) for k in itertools.count(1))


def _blind_levels() -> Iterator[float]:
    """Parts that fall slowly and add up to one."""
    yield from (1 / (k * (k + 1)) for k in itertools.count(1))


@dataclass(frozen=True)
class _View:
    """A climb with its cells and the noise scales of its rungs."""

    climb: LookClimb
    cells: int
    sensitivity: Fraction
    scales: Floats
    read: int

    @property
    def level(self) -> float:
        """The failure probability of one cell's looks together."""
        return float(self.climb.target.failure_probability) * (1 - _RESERVE) / self.cells

    def reading(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        reading = self.climb.reader.read(noisy.reshape(self.cells, -1).T, scale, level)
        return reading.balanced() if self.climb.target.measure is Measure.RELATIVE_ERROR else reading

    def reaches(self, noisy: NDArray[Any], scale: float, level: float) -> tuple[Reading, Flags]:
        """A reading, and which cells reach the target with all their entries."""
        reading = self.reading(noisy, scale, level)
        entries = reading.reaches(self.climb.target).reshape(self.cells, -1)
        return reading, np.asarray(entries.all(axis=1))

    def forecast(self, noisy: NDArray[Any], scale: float, own: float) -> Flags:
        """Which cells would reach the target at this scale if the scout's values, of its ``own`` scale, were exact."""
        informed = self.climb.reader.informed(noisy.reshape(self.cells, -1).T, own)
        return informed & self.reaches(noisy, scale, _FIRST * self.level)[1] if informed.any() else informed

    def scout(self, path: DiscreteLaplacePath) -> tuple[Fraction, Scouted]:
        """The scout's price and what it showed: as little as tells where to look."""
        last = len(path.ladder) - 1
        for rung in range(last % _STEP, last + 1, _STEP):
            noisy = path.at(rung)
            afforded = float(path.ladder[last] / path.ladder[rung]) * self.scales[-1]
            own = float(self.sensitivity / path.ladder[rung])
            if rung == last or self.forecast(noisy, afforded, own).all():
                return path.ladder[rung], Scouted(noisy, own)
        raise AssertionError("a ladder has a last rung")

    def first_looks(self, scouted: Scouted) -> Indices:
        """The first rung of each cell whose noise would be small enough, by halving, and a rung to spare.

        Beyond the ladder where the forecast is out of reach.
        """
        low, high = np.full(self.cells, -1), np.full(self.cells, len(self.scales))
        while (high - low > 1).any():
            middle = (low + high) // 2
            flags = np.zeros(self.cells, bool)
            for rung in np.unique(middle[high - low > 1]).tolist():
                flags |= (middle == rung) & self.forecast(scouted.noisy, self.scales[rung], scouted.scale)
            low, high = np.where(flags, low, np.maximum(middle, low)), np.where(flags, middle, high)
            low = np.where(high - low < 1, high - 1, low)
        return np.where(high < len(self.scales), np.minimum(high + _SPARE, len(self.scales) - 1), high)

    def look(self, path: DiscreteLaplacePath, first: Indices, parts: Iterator[float]) -> Ascent:
        """Look at each cell until its interval is narrow enough or the ladder ends."""
        last = len(self.scales) - 1
        # A cell out of reach is given up, unless none is in reach: then the top rung is what the cap buys.
        tried = first <= last if (first <= last).any() else np.ones(self.cells, bool)
        rung = np.where(tried, np.minimum(first, last), 0)
        met, waiting = np.zeros(self.cells, bool), tried.copy()
        best: Reading | None = None
        while waiting.any():
            level = next(parts) * self.level
            for now in np.unique(rung[waiting]).tolist():
                reading, flags = self.reaches(path.at(now), self.scales[now], level)
                reached = waiting & (rung == now) & flags
                best, met = reading.where(reached, best or reading), met | reached
            waiting &= ~met & (rung < last)
            rung = np.where(waiting, np.minimum(rung + _STRIDE, last), rung)
        top = int(rung.max())
        best_known = max(top, self.read)
        flagged = self._flagged(path.at(best_known), path.ladder[best_known])
        found = flagged if best is None else best.where(met, flagged)
        return Ascent(found, np.where(met, rung, best_known), met, path.ladder, self._steps(path, top))

    def _flagged(self, noisy: NDArray[Any], epsilon: Fraction) -> Reading:
        """Intervals of cells that missed; their rung may depend on their own noise, so they pay for all rungs."""
        reserve = float(self.climb.target.failure_probability) * _RESERVE / self.cells
        return self.reading(noisy, float(self.sensitivity / epsilon), rung_level(reserve, float(epsilon)))

    def _steps(self, path: DiscreteLaplacePath, top: int) -> tuple[Step, ...]:
        """The climb of a single cell, for the picture."""
        if self.cells > 1 or len(self.reading(path.at(top), self.scales[top], self.level).value) > 1:
            return ()
        rungs = range(max(top + 1 - _SHOWN, 0), top + 1)
        rows = [self.reading(path.at(rung), self.scales[rung], _FIRST * self.level) for rung in rungs]
        return tuple(
            Step(path.ladder[rung], float(row.value[0]), float(row.low[0]), float(row.high[0]))
            for rung, row in zip(rungs, rows, strict=True)
        )
