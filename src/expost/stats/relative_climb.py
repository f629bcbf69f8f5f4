"""The climb of counts and sums to a relative accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radii
from expost.accuracy.interval_groups import SCOUT_SHARE, failure_parts, least_rate, predicted_rate, split_cap
from expost.accuracy.interval_relative import (
    HIGHEST_LEVEL,
    RelativeRule,
    is_tiny,
    relative_ladder,
    relative_rule,
    rung_level,
)
from expost.core import Ladder, Sealed, Step
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.ascent import Ascent
from expost.stats.kept import Kept
from expost.stats.reading import Reading

__all__ = ["RelativeClimb", "StoppingTable"]

Floats = NDArray[np.float64]

_RESERVE = Fraction(1, 20)  # of the failure probability: for the intervals of cells that miss the target
_LEAST_ROOM, _MOST_ROOM = Fraction(1, 128), Fraction(1, 4)  # of the share, for the rounding to the grid
_HOPELESS = 4.6  # noise scales: a cell that looks out of reach by this much is given up (1 % of error, no promise)


@dataclass(frozen=True)
class RelativeClimb:
    """Lowers the noise until each cell is within a share of its exact answer, cell by cell.

    One coordinate a cell. The cells' paths are independent, each stops at its own rung, and a unit moves the cells by
    at most the L1 sensitivity together, so the loss is the highest rung read (docs/proofs/stopped-relative-error.md).
    With several cells a scout of independent noise is released first and paid for too.

    ``slack`` is how far the integers can be from the answers, by rounding. A small part of the share is kept for it:
    the integers are climbed to a little less than the share, and what was met is checked with intervals that much wider.

    Answers that are not ``signed`` cannot be negative: no negative noisy answer is accepted or released.
    """

    share: Fraction
    failure_probability: Fraction
    cap: Fraction
    unit: Fraction = Fraction(1)
    slack: Fraction = Fraction(0)
    signed: bool = False

    def run(self, kept: Kept, sensitivity: Fraction, cells: int, bits: BitSource | None) -> Ascent:
        """Climb all cells of a sealed vector; rungs that were read before cost nothing."""
        if self.slack:
            return replace(self, share=self._lowered(sensitivity))._run(kept, sensitivity, cells, bits, self.share)
        return self._run(kept, sensitivity, cells, bits, self.share)

    def _lowered(self, sensitivity: Fraction) -> Fraction:
        """The share to climb to, so that what is left of the asked one has room for the slack.

        What is accepted at a rung is at least a noise scale over the share, and the scale is least at the cap.
        """
        part = Fraction(5, 4) * self.slack / self.unit * self.cap / sensitivity
        return _three_digits(self.share * (1 - min(max(part, _LEAST_ROOM), _MOST_ROOM)))

    def _run(self, kept: Kept, sensitivity: Fraction, cells: int, bits: BitSource | None, asked: Fraction) -> Ascent:
        paid, scouted, cap = kept.paid, Fraction(0), self.cap
        if kept.parts is None:
            kept.parts = (self._certified,) * cells
            if cells > 1 and kept.sealed is not None:
                most, cap = split_cap(self.cap)
                scouted, kept.parts = self._scout(kept.sealed, cells, most, cap, bits)
            elif cells > 1:
                kept.parts = (self._certified / cells,) * cells
        path = kept.ladder_to(relative_ladder(sensitivity, cap, above=paid), bits)
        rules = [self._rule(level) for level in self._parts_of(kept.parts)]
        table = StoppingTable.of(rules, path.ladder, sensitivity)
        found = self._climb(path, table, self._looks(kept, path.ladder, sensitivity, cap, rules[0]), kept.read)
        found = replace(found, scouted=scouted, paid=paid)
        reached = found.reading.achieved(relative=True) <= float(asked) * (1 + 1e-12)
        return replace(found, met=found.met & reached) if self.slack else found

    def _rule(self, level: Fraction) -> RelativeRule:
        return relative_rule(self.share, level, signed=self.signed)

    def _looks(self, kept: Kept, ladder: Ladder, sensitivity: Fraction, cap: Fraction, rule: RelativeRule) -> range:
        """The rungs to look at: never more than the rule allows for, wherever the path begins and ends.

        They follow from public numbers, and from how far the path was read, which only adds rungs to the end.
        """
        highest = ladder.first_at_least(min(cap, Fraction(HIGHEST_LEVEL)) + Fraction(1, 10**15)) - 1
        # Where the cap is below what was paid for already, rungs up to the last one read are looked at too; not from
        # the rungs of a tiny cap on, which would be too many.
        free = 0 if kept.climbed and is_tiny(sensitivity, cap) else kept.read
        last = max(highest, free)
        lowest = max(relative_ladder(sensitivity, cap)[0], Fraction(rule.lowest))
        return range(min(max(kept.first_rung(last), ladder.first_at_least(lowest)), last), last + 1)

    def _parts_of(self, parts: tuple[Fraction, ...]) -> list[Fraction]:
        """The cells' parts of the failure probability, scaled to this question's: together never more than it."""
        if len(parts) == 1:
            return [self._certified]
        scale = min(self._certified / sum(parts), Fraction(1))
        return [_three_digits(part * scale) for part in parts] if scale < 1 else list(parts)

    @property
    def _certified(self) -> Fraction:
        return self.failure_probability * (1 - _RESERVE)

    def _scout(
        self, sealed: Sealed, cells: int, most: Fraction, cap: Fraction, bits: BitSource | None
    ) -> tuple[Fraction, tuple[Fraction, ...]]:
        """The scout's price and each cell's part of the failure probability."""
        sensitivity = Fraction(sealed.sensitivity.amount)
        ladder = relative_ladder(sensitivity, most)
        rule, best = self._rule(self._certified), np.array([float(cap / sensitivity)])
        noisy = rule.sizes(DiscreteLaplacePath(sealed, ladder, bits=bits).block(0, len(ladder)).astype(np.float64))
        noisy = np.maximum(noisy, 0.0)
        share, failure = float(self.share), float(self._certified)
        reach = int(rule.least(rule.radii(best))[0])  # the smallest count that the cap can serve
        for rung, level in enumerate(ladder):
            scale = float(sensitivity / level)
            hopeful = noisy[rung] + _HOPELESS * scale >= reach
            last = rung == len(ladder) - 1
            guess = np.where(hopeful, noisy[rung], np.inf)
            if not last and least_rate(guess, share, failure) * float(SCOUT_SHARE) * scale > 1:
                continue  # most rungs end here, without a search for the rate
            if last or predicted_rate(guess, share, failure) * float(SCOUT_SHARE) * scale <= 1:
                parts = failure_parts(np.maximum(guess - scale, guess / 2), share, failure)
                return level, tuple(parts.level(cell, self._certified) for cell in range(cells))
        raise AssertionError("a ladder has a last rung")

    def _climb(self, path: DiscreteLaplacePath, table: StoppingTable, rungs: range, read: int) -> Ascent:
        values: NDArray[Any] = path.block(0, max(rungs.stop, read + 1))
        met, decided = table.stops(values, rungs)
        top = int(decided.max())
        rung = np.where(met, decided, max(top, read))
        cells = np.arange(values.shape[1])
        noisy, radii = values[rung, cells], table.radii[rung, cells]
        met_reading = self._met(noisy, radii, table.rules)
        missed = self._missed(noisy, table.rates[rung], path.ladder[max(top, read)])
        reading = Reading(*(np.where(met, a, b) for a, b in zip(met_reading, missed, strict=True)))
        return Ascent(reading, rung, met, path.ladder, self._steps(values, table, top))

    def _met(self, noisy: NDArray[Any], radii: NDArray[np.int64], rules: list[RelativeRule]) -> tuple[Floats, ...]:
        rule = rules[0]  # the released value depends on the share alone
        size = rule.value(np.abs(noisy), radii).astype(np.float64)
        sign, share, unit = np.where(noisy < 0, -1.0, 1.0), float(self.share), float(self.unit)
        ends = np.ceil(size / (1 + share) - 1e-9), np.floor(size / (1 - share) + 1e-9)
        low, high = np.minimum(sign * ends[0], sign * ends[1]), np.maximum(sign * ends[0], sign * ends[1])
        slack = float(self.slack)
        return sign * size * unit, low * unit - slack, high * unit + slack

    def _missed(self, noisy: NDArray[Any], rates: Floats, epsilon: Fraction) -> tuple[Floats, ...]:
        # The rung may depend on a missed cell's own noise, so these intervals pay for all rungs.
        level = rung_level(float(self.failure_probability * _RESERVE) / len(noisy), float(epsilon))
        radius, unit = noise_radii(level, rates), float(self.unit)
        value = noisy.astype(np.float64)
        wide, least = radius * unit + float(self.slack), -np.inf if self.signed else 0.0
        low, middle, high = (np.maximum(value * unit + side * wide, least) for side in (-1, 0, 1))
        return middle, low, high

    def _steps(self, values: NDArray[Any], table: StoppingTable, top: int) -> tuple[Step, ...]:
        """The climb of a single cell, for the picture."""
        if values.shape[1] > 1:
            return ()
        unit = float(self.unit)
        return tuple(
            Step(level, float(v) * unit, float(v - r) * unit, float(v + r) * unit)
            for level, v, r in zip(table.ladder, values[: top + 1, 0], table.radii[: top + 1, 0], strict=False)
        )


@dataclass(frozen=True)
class StoppingTable:
    """Radii and least accepted sizes, one row per rung and one column per cell."""

    rules: list[RelativeRule]
    ladder: Ladder
    rates: Floats
    radii: NDArray[np.int64]
    least: NDArray[np.int64]

    @classmethod
    def of(cls, rules: list[RelativeRule], ladder: Ladder, sensitivity: Fraction) -> StoppingTable:
        """Tabulate the rules of all cells over a ladder."""
        rates = np.array([float(level / sensitivity) for level in ladder])
        distinct = {rule: rule.radii(rates) for rule in rules}
        radii = np.stack([distinct[rule] for rule in rules], axis=1)
        least = {rule: rule.least(radius) for rule, radius in distinct.items()}
        return cls(rules, ladder, rates, radii, np.stack([least[rule] for rule in rules], axis=1))

    def stops(self, values: NDArray[Any], rungs: range) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which cells are met, and the rung at which each was decided: all rungs up to it are paid for.

        ``values`` has one row per rung from the first one on, and one column per cell.
        """
        sizes = self.rules[0].sizes(values[rungs.start : rungs.stop])
        accepted = sizes >= self.least[rungs.start : rungs.stop]
        scales = np.ceil(_HOPELESS / self.rates[rungs.start : rungs.stop])
        hopeless = np.maximum(sizes, 0) + scales[:, None] < self.least[rungs.stop - 1]
        stop, given_up = _first(accepted), _first(hopeless)
        met: NDArray[np.bool_] = accepted.any(axis=0) & (stop <= given_up)
        return met, np.where(met, stop, np.minimum(given_up, len(rungs) - 1)) + rungs.start


def _three_digits(level: Fraction) -> Fraction:
    """A number of three digits, rounded down: few different ones, so that few rules have to be worked out."""
    grid = Fraction(10) ** (math.floor(math.log10(level)) - 2)
    return math.floor(level / grid) * grid


def _first(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first rung whose flag is set, for each cell; the number of rungs where none is."""
    return np.where(flags.any(axis=0), flags.argmax(axis=0), len(flags))
