"""The climb of counts and sums to a relative accuracy: less and less noise until each cell is accurate enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import (
    HIGHEST_LEVEL,
    PILOT_SHARE,
    FailureParts,
    RelativeRule,
    count_rungs,
    failure_parts,
    is_tiny,
    least_rate,
    noise_radii,
    predicted_rate,
    relative_ladder,
    relative_rule,
    rung_level,
    split_cap,
)
from expost.core import HoldStages, Ladder, Sealed, Step
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.gradual_release import ClimbResult, GradualRelease, RungGate
from expost.stats.reader import CellReading

__all__ = ["RelativeClimb", "StoppingTable"]

Floats = NDArray[np.float64]

_RESERVE = Fraction(1, 20)  # of the failure probability: for the intervals of cells that miss the target
# Of the share, what is kept for the rounding to the grid: a part for each range of levels. The ranges do not depend on
# the cap. The first one reaches an epsilon of 8 and gets most of the failure probability: higher levels pay for a union.
_RESERVED = tuple(Fraction(1 << place, 128) for place in range(6))
_FIRST_REACH, _FIRST_FAILURE = 8, Fraction(9, 10)
_LOWER_END = 1.0  # noise scales by which a group may be smaller than the pilot shows
# Of tiny groups other parts and stricter shares are compared: for so many groups, over so many plausible sizes of each.
_LOWER_ENDS, _STRICTER_SHARES = (1.0, 0.0, 2.0, 4.0), tuple(Fraction(1, part) for part in (2, 3, 5, 10, 20))
_COMPARED, _DRAWS, _FEW = 32, 64, 8.0
_HOPELESS = 4.6  # noise scales: a cell out of reach by this much is given up (wrongly in 1 %, no promise depends on it)


@dataclass(frozen=True)
class RelativeClimb:
    """Lowers the noise until each cell is within a share of its exact answer, cell by cell.

    There is one coordinate per cell. The cells' paths are independent, each stops at its own rung, and a unit moves the
    cells by at most the L1 sensitivity together, so the loss is the highest rung read
    (docs/proofs/stopped-relative-error.md). With several cells a pilot of independent noise is released and paid first.

    ``slack`` is how far the integers can be from the answers, by rounding. A small part of the share is kept for it:
    the integers are climbed to a little less than the share, and what was met is checked with intervals that much wider.
    The less noise there is, the smaller are the answers that are accepted, and the larger is that part. So the ladder is
    divided into ranges of levels with a rule each, which share the failure probability.

    Answers that are not ``signed`` cannot be negative: no negative noisy answer is accepted or released.
    """

    share: Fraction
    failure_probability: Fraction
    cap: Fraction
    unit: Fraction = Fraction(1)
    slack: Fraction = Fraction(0)
    signed: bool = False

    def run(
        self,
        release: GradualRelease,
        sensitivity: Fraction,
        cells: int,
        bits: BitSource | None,
        stages: HoldStages | None = None,
    ) -> ClimbResult:
        """Climb all cells of a sealed vector; rungs that were read before cost nothing.

        Nothing is read above what ``stages`` has reserved; where no more can be, the climb ends.
        """
        found = self._climb_cells(release, sensitivity, cells, bits, stages)
        if not self.slack:
            return found
        reached = found.reading.largest_error(relative=True) <= float(self.share) * (1 + 1e-12)
        return replace(found, met=found.met & reached)

    def forecast(self, sizes: Floats, sensitivity: Fraction) -> Fraction | None:
        """Return what a climb of answers of these sizes costs if no noise misleads it; None if the cap is too low."""
        cap, pilot = self.cap, Fraction(0)
        failure, levels = self.certified_failure, [self.certified_failure]
        if len(sizes) > 1:
            most, cap = split_cap(self.cap)
            rate = predicted_rate(sizes, float(self.share), float(failure))
            ladder = relative_ladder(sensitivity, most)
            pilot = ladder[min(ladder.first_at_least(Fraction(rate) * PILOT_SHARE * sensitivity), len(ladder) - 1)]
            lower = np.maximum(sizes - _LOWER_END * float(sensitivity / pilot), 0.0)
            parts = failure_parts(lower, float(self.share), float(failure), float(sensitivity / pilot))
            levels = [parts.level(cell, failure) for cell in range(len(sizes))]
        ladder = relative_ladder(sensitivity, min(cap, Fraction(HIGHEST_LEVEL)))
        ranges = self._list_ranges(self.share, levels, sensitivity)
        accepted = sizes >= StoppingTable.of(ranges, ladder, sensitivity).least
        return pilot + ladder[int(accepted.argmax(axis=0).max())] if accepted.any(axis=0).all() else None

    def _list_ranges(self, share: Fraction, levels: list[Fraction], sensitivity: Fraction) -> list[RuleRange]:
        """Return the rules of all cells for each range of levels; there is one range if the integers are the answers."""
        if not self.slack:
            return [RuleRange(math.inf, [relative_rule(share, level, signed=self.signed) for level in levels])]
        # What is accepted at a level is at least its radius over the share: the slack is at most this part of it.
        radius = max(math.log(1 / float(self.failure_probability)), 1.0)
        widest = radius * float(sensitivity * self.unit / (Fraction(5, 4) * self.slack))
        kept = [each for each in _RESERVED if float(each) * widest >= _FIRST_REACH] or [_RESERVED[-1]]
        less = _three_digits(share * (1 - kept[0]))
        parts = [_three_digits(level * _FIRST_FAILURE) for level in levels]
        reach = [float(reserved) * widest for reserved in kept[:-1]] + [math.inf]
        ranges = [RuleRange(reach[0], [relative_rule(less, part, signed=self.signed) for part in parts])]
        for reserved, low, high in zip(kept[1:], reach[:-1], reach[1:], strict=True):
            # Few answers are so small that they climb there: a union over the rungs of the range needs no calibration.
            rungs = count_rungs(low, min(high, HIGHEST_LEVEL)) if low < HIGHEST_LEVEL else 1
            each = float((1 - _FIRST_FAILURE) / (len(kept) - 1) / (rungs + 1))
            width = float(share * (1 - reserved))
            ranges.append(
                RuleRange(high, [RelativeRule(width, float(level) * each, signed=self.signed) for level in levels])
            )
        return ranges

    def _climb_cells(
        self,
        release: GradualRelease,
        sensitivity: Fraction,
        cells: int,
        bits: BitSource | None,
        stages: HoldStages | None,
    ) -> ClimbResult:
        """Climb all cells as if integers were the answers."""
        paid, pilot_cost, cap, share = release.paid, Fraction(0), self.cap, self.share
        if release.failure_parts is None:
            release.failure_parts = (self.certified_failure / cells,) * cells
            if cells > 1 and release.sealed is not None:
                most, cap = split_cap(self.cap)
                pilot_cost, share, release.failure_parts = self._release_pilot(release.sealed, cells, most, cap, bits)
        path = release.extend_path(relative_ladder(sensitivity, cap, above=paid), bits)
        levels = self.scale_parts(release.failure_parts)
        ranges = self._list_ranges(share, levels, sensitivity)
        table = StoppingTable.of(ranges, path.ladder, sensitivity)
        rungs = self.rungs_to_check(release, path.ladder, sensitivity, cap, ranges[0].rules[0])
        gate = RungGate(stages, release.rung_costs(pilot_cost))
        stop, open_cells = rungs.start, True
        while open_cells and stop < rungs.stop and gate.open(stop) > stop:
            stop = min(gate.open(stop), rungs.stop)
            values: NDArray[Any] = path.block(0, max(stop, release.read + 1))
            met, decided, open_cells = table.stops(values, rungs, stop)
        if stop == rungs.start:  # not even the first rung to check could be reserved; a lower one is
            values = path.block(0, max(gate.last, release.read) + 1)
            met, decided = np.zeros(cells, bool), np.full(cells, gate.last)
        top = int(decided.max())
        rung = np.where(met, decided, max(top, release.read))
        noisy = values[rung, np.arange(cells)]
        met_ends = self._read_met(noisy, table.radii[rung, np.arange(cells)], table.shares[rung])
        missed_ends = self._read_missed(noisy, table.rates[rung], path.ladder[max(top, release.read)])
        reading = CellReading(*(np.where(met, a, b) for a, b in zip(met_ends, missed_ends, strict=True)))
        steps: tuple[Step, ...] = ()
        if cells == 1:  # only the climb of a single cell is drawn
            unit = float(self.unit)
            shown = zip(path.ladder, values[: top + 1, 0], table.radii[: top + 1, 0], strict=False)
            steps = tuple(Step(e, float(v) * unit, float(v - r) * unit, float(v + r) * unit) for e, v, r in shown)
        return ClimbResult(reading, rung, met, path.ladder, steps, pilot_cost=pilot_cost, paid=paid)

    def _choose_parts(
        self, guess: Floats, scale: float, sensitivity: Fraction, cap: Fraction
    ) -> tuple[Fraction, FailureParts]:
        """Return the share to climb to and the cells' parts of the failure probability, from what the pilot guesses.

        A group of a few rows is within a wide share only once its noise is zero. A stricter rule, whose radii are fewer
        noise scales, then accepts at a lower rung, and even parts are best for groups that cannot be told apart. So stricter
        shares, and parts for groups that are more or less smaller than the pilot shows, are compared by what they would
        cost on average over sizes that the pilot makes plausible. A looser target has all choices of a stricter one. Given
        the pilot the choice is a constant.
        """
        failure = float(self.certified_failure)

        def parts_of(share: Fraction, below: float) -> FailureParts:
            lower = np.maximum(guess - below * scale, 0.0)
            return failure_parts(lower, float(share), failure, scale)

        usual = parts_of(self.share, _LOWER_END)
        smallest = np.argsort(guess)[:_COMPARED]
        if not guess[smallest[0]] - _HOPELESS * scale < _FEW / float(self.share):
            return self.share, usual
        shares = (self.share, *(each for each in _STRICTER_SHARES if each < self.share))
        sizes = _plausible_sizes(guess[smallest], scale)
        ladder = relative_ladder(sensitivity, min(cap, Fraction(HIGHEST_LEVEL)))
        rates = np.array([float(level / sensitivity) for level in ladder])
        cheapest, found = math.inf, (self.share, usual)
        for share in shares:
            single = relative_rule(share, self.certified_failure, signed=self.signed)
            for below in _LOWER_ENDS:
                parts = parts_of(share, below)
                bill = _average_log_rate(single, parts.parts[smallest], rates, sizes)
                if bill < cheapest - 1e-9:
                    cheapest, found = bill, (share, parts)
        return found

    def rungs_to_check(
        self, release: GradualRelease, ladder: Ladder, sensitivity: Fraction, cap: Fraction, rule: RelativeRule
    ) -> range:
        """Return the rungs to check: never more than the rule allows for, wherever the path begins and ends.

        They follow from public numbers, and from how far the path was read, which only adds rungs to the end.
        """
        highest = ladder.first_at_least(min(cap, Fraction(HIGHEST_LEVEL)) + Fraction(1, 10**15)) - 1
        # Where the cap is below what was paid for already, rungs up to the last one read are checked too; not from
        # the rungs of a tiny cap on, which would be too many.
        free = 0 if release.climbed and is_tiny(sensitivity, cap) else release.read
        last = max(highest, free)
        lowest = max(relative_ladder(sensitivity, cap)[0], Fraction(rule.lowest))
        return range(min(max(release.first_rung(last), ladder.first_at_least(lowest)), last), last + 1)

    def scale_parts(self, parts: tuple[Fraction, ...]) -> list[Fraction]:
        """Scale the cells' parts of the failure probability to this query's: together never more than it."""
        if len(parts) == 1:
            return [self.certified_failure]
        scale = min(self.certified_failure / sum(parts), Fraction(1))
        return [_three_digits(part * scale) for part in parts] if scale < 1 else list(parts)

    @property
    def certified_failure(self) -> Fraction:
        """Return the part of the failure probability that is left for cells that reach the target."""
        return self.failure_probability * (1 - _RESERVE)

    def _release_pilot(
        self, sealed: Sealed, cells: int, most: Fraction, cap: Fraction, bits: BitSource | None
    ) -> tuple[Fraction, Fraction, tuple[Fraction, ...]]:
        """Return the pilot's price, the share to climb to, and each cell's part of the failure probability."""
        sensitivity = Fraction(sealed.sensitivity.amount)
        ladder = relative_ladder(sensitivity, most)
        # What is out of reach is only guessed, so the rule of a single rung does, which needs no calibration.
        rule = RelativeRule(float(self.share), float(self.certified_failure), signed=self.signed)
        noisy = rule.sizes(DiscreteLaplacePath(sealed, ladder, bits=bits).block(0, len(ladder)).astype(np.float64))
        noisy = np.maximum(noisy, 0.0)
        share, failure, pilot_share = float(self.share), float(self.certified_failure), float(PILOT_SHARE)
        # The smallest count that the cap can serve.
        reach = int(rule.least(rule.radii(np.array([float(cap / sensitivity)])))[0])
        for rung, level in enumerate(ladder):
            scale = float(sensitivity / level)
            hopeful = noisy[rung] + _HOPELESS * scale >= reach
            last = rung == len(ladder) - 1
            guess = np.where(hopeful, noisy[rung], np.inf)
            if not last and least_rate(guess, share, failure) * pilot_share * scale > 1:
                continue  # most rungs end here, without a search for the rate
            if last or predicted_rate(guess, share, failure) * pilot_share * scale <= 1:
                chosen, parts = self._choose_parts(guess, scale, sensitivity, cap)
                return level, chosen, tuple(parts.level(cell, self.certified_failure) for cell in range(cells))
        raise AssertionError("a ladder has a last rung")

    def _read_met(self, noisy: NDArray[Any], radii: NDArray[np.int64], shares: Floats) -> tuple[Floats, ...]:
        """Return value, low and high of cells that reached the target, each with the share that its rung allows."""
        size = np.zeros(len(noisy))
        for share in np.unique(shares).tolist():
            rule = RelativeRule(share, 0.5)  # the released value depends on the share alone
            cells = shares == share
            size[cells] = rule.value(np.abs(noisy[cells]), radii[cells]).astype(np.float64)
        sign, unit = np.where(noisy < 0, -1.0, 1.0), float(self.unit)
        ends = np.ceil(size / (1 + shares) - 1e-9), np.floor(size / (1 - shares) + 1e-9)
        low, high = np.minimum(sign * ends[0], sign * ends[1]), np.maximum(sign * ends[0], sign * ends[1])
        slack = float(self.slack)
        return sign * size * unit, low * unit - slack, high * unit + slack

    def _read_missed(self, noisy: NDArray[Any], rates: Floats, epsilon: Fraction) -> tuple[Floats, ...]:
        """Return value, low and high of cells that missed the target."""
        # The rung may depend on a missed cell's own noise, so these intervals pay for all rungs.
        level = rung_level(float(self.failure_probability * _RESERVE) / len(noisy), float(epsilon))
        radius, unit = noise_radii(level, rates), float(self.unit)
        value = noisy.astype(np.float64)
        wide, least = radius * unit + float(self.slack), -np.inf if self.signed else 0.0
        low, middle, high = (np.maximum(value * unit + side * wide, least) for side in (-1, 0, 1))
        return middle, low, high


@dataclass(frozen=True)
class RuleRange:
    """The rules of all cells up to a level."""

    limit: float
    rules: list[RelativeRule]


@dataclass(frozen=True)
class StoppingTable:
    """Radii and least accepted sizes, one row per rung and one column per cell, and the share that each rung allows."""

    ladder: Ladder
    rates: Floats
    radii: NDArray[np.int64]
    least: NDArray[np.int64]
    shares: Floats
    signed: bool

    @classmethod
    def of(cls, ranges: list[RuleRange], ladder: Ladder, sensitivity: Fraction) -> StoppingTable:
        """Tabulate the rules of all cells over a ladder; each rung has those of the first range that reaches it."""
        rates = np.array([float(level / sensitivity) for level in ladder])
        limits = np.array([each.limit for each in ranges]) / float(sensitivity) * (1 + 1e-12)
        place = np.searchsorted(limits, rates)
        radii = np.empty((len(rates), len(ranges[0].rules)), np.int64)
        least, shares = np.empty_like(radii), np.empty(len(rates))
        for number in np.unique(place).tolist():
            rules, rungs = ranges[number].rules, place == number
            distinct = {rule: rule.radii(rates[rungs]) for rule in rules}
            sizes = {rule: rule.least(radius) for rule, radius in distinct.items()}
            radii[rungs] = np.stack([distinct[rule] for rule in rules], axis=1)
            least[rungs] = np.stack([sizes[rule] for rule in rules], axis=1)
            shares[rungs] = rules[0].share
        return cls(ladder, rates, radii, least, shares, ranges[0].rules[0].signed)

    def stops(self, values: NDArray[Any], rungs: range, stop: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], bool]:
        """Return which cells are met, the rung at which each was decided, and whether any is still open.

        All rungs up to the highest of these are paid for. ``values`` has one row per rung from the first one on, up to
        ``stop``, and one column per cell. ``rungs`` are all that may be checked.
        """
        shown = values[rungs.start : stop]
        sizes = np.abs(shown) if self.signed else shown
        accepted = sizes >= self.least[rungs.start : stop]
        scales = np.ceil(_HOPELESS / self.rates[rungs.start : stop])
        hopeless = np.maximum(sizes, 0) + scales[:, None] < self.least[rungs.stop - 1]
        # The first rung whose flag is set, for each cell; the number of rungs where none is.
        found, given_up = (
            np.where(flags.any(axis=0), flags.argmax(axis=0), len(flags)) for flags in (accepted, hopeless)
        )
        met: NDArray[np.bool_] = accepted.any(axis=0) & (found <= given_up)
        decided = np.where(met, found, np.minimum(given_up, len(sizes) - 1)) + rungs.start
        return met, decided, bool((~met & (given_up == len(sizes))).any())


def _plausible_sizes(guess: Floats, scale: float) -> Floats:
    """Return sizes that noise of this scale could have shown as these guesses: one row per cell, always the same.

    What lies below zero counts as zero, because declared groups without rows are common and cost most.
    """
    spread = (math.sqrt(5) - 1) / 2 * np.arange(1, len(guess) + 1)  # evenly spread places that differ from row to row
    place = np.clip((spread[:, None] * np.arange(1, _DRAWS + 1) + 0.5 / _DRAWS) % 1, 1e-9, 1 - 1e-9)
    noise = np.where(place < 0.5, np.log(2 * place), -np.log(2 * (1 - place)))
    return np.asarray(np.rint(np.maximum(guess[:, None] + scale * noise, 0.0)))


def _average_log_rate(rule: RelativeRule, parts: Floats, rates: Floats, sizes: Floats) -> float:
    """Return how expensive it is on average to accept all cells, over columns of plausible sizes, if no noise misleads.

    Logarithms of rates are averaged: by the rates themselves a rare empty group, at a thousand times the rate, would decide.
    """
    stops = np.zeros(sizes.shape, np.int64)
    for part in np.unique(parts).tolist():
        cells = parts == part
        least = replace(rule, level=rule.level * part).least(noise_radii(rule.level * part, rates))
        stops[cells] = np.searchsorted(-least, -sizes[cells])
    top = np.append(rates, 2 * rates[-1])[stops.max(axis=0)]
    return float(np.log(top).mean())


def _three_digits(level: Fraction) -> Fraction:
    """Round down to three digits, so that few different rules have to be computed."""
    grid = Fraction(10) ** (math.floor(math.log10(level)) - 2)
    return math.floor(level / grid) * grid
