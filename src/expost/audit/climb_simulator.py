"""Many climbs at once: how much of an ex-post bill the released outcomes really show.

The coordinates of one gradual release have noise of their own, so a path over a vector of equal answers is as many
independent runs, drawn by the kernels that every question uses. Stopping rules are those of the library, applied to
all columns at once. A million climbs of a single relative count take a minute.

``measure_tightness`` looks at one rung (one bill) at a time: for the outcomes that were billed it, the log-likelihood ratio of
the best event, as a lower confidence bound, against that bill. ``audit.attack`` accepts the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import relative_ladder, relative_rule
from expost.audit.pair_attack import AttackFinding, Outcomes, Pair, Sampler, at_least, at_most
from expost.audit.privacy_claim import ExPost
from expost.core import InvalidRequest, Ladder, PureGuarantee, Sealed, Sensitivity, Target
from expost.data import Clamp
from expost.noise import AboveThreshold, BitSource, DiscreteLaplacePath
from expost.noise.above_threshold import SessionBatch
from expost.stats.checkpoint_climb import CheckpointClimb
from expost.stats.gradual_release import GradualRelease
from expost.stats.reader import MeanReader
from expost.stats.relative_climb import StoppingTable

__all__ = ["Draw", "look_pair", "measure_tightness", "relative_pair", "simulate", "simulated_pairs", "stopped_fit_pair"]

Integers = NDArray[Any]
Draw = Callable[[int, Ladder, int, BitSource], Integers]
"""(exact answer, ladder, runs, bits) to the noisy answers, one row per rung and one column per run."""

_AT_ONCE = 1 << 24  # noisy answers held in memory
_LOOKS_AT_ONCE = 2_000  # cells of one climb by looks: they share a failure probability
_CANDIDATES = 48  # thresholds tried per rung and number
_LEAST_RUNS = 50  # runs at a rung below which it is not searched
_SEARCH = 4  # one in so many runs chooses the event, the others measure it


def draw_path(exact: int, ladder: Ladder, runs: int, bits: BitSource) -> Integers:
    """Draw independent gradual releases of one answer of sensitivity 1."""
    sealed = Sealed(np.full(runs, exact, np.int64), Sensitivity(1))
    return DiscreteLaplacePath(sealed, ladder, bits=bits).block(0, len(ladder))


def relative_pair(
    count: int,
    *,
    within: Fraction,
    failure_probability: Fraction,
    cap: Fraction,
    rows: int = 1,
    draw: Draw = draw_path,
) -> Pair:
    """Return a single count that climbs to a relative accuracy, on a table and on one with ``rows`` more.

    With several rows the bill is that of all of them, as many times as large (group privacy): one row among many is told
    by so little that no number of runs shows it.

    An outcome is what leaves: the value, whether it was met, and a summary of the readings below (the picture of the
    climb has them all). The summary weighs each rung as a path whose rungs had independent noise would.
    """
    ladder = relative_ladder(Fraction(1), cap)
    levels = np.array([float(level) for level in ladder])
    rule = relative_rule(within, failure_probability)
    table = StoppingTable.of([rule], ladder, Fraction(1))

    def sampler(exact: int) -> Sampler:
        def some(runs: int, bits: BitSource) -> Outcomes:
            noisy = draw(exact, ladder, runs, bits)
            met, rung = table.stops(noisy, range(len(ladder)))
            seen = noisy[rung, np.arange(runs)]
            value = np.where(met, rule.value(np.maximum(seen, 0), table.radii[rung, 0]), seen)
            return Outcomes.of(
                np.column_stack([value, met, _prefix(noisy, rung, levels, count, rows)]), rows * levels[rung]
            )

        return _in_parts(some, _AT_ONCE // len(ladder))

    name = f"{count} rows and {rows} more, within {float(within):.0%}"
    return Pair(name, ExPost(PureGuarantee(rows * cap)), sampler(count + rows), sampler(count))


def look_pair(rows: tuple[int, int], *, within: float, failure_probability: Fraction, cap: Fraction) -> Pair:
    """Return the mean of a flag that climbs by looks to an absolute accuracy: ``rows`` are those at 1 and at 0.

    Every run is a cell of one climb, with its own pilot and checks; its bill is the pilot and its own rung.
    """
    clamp = Clamp.of((0, 1), whole=True)

    def sampler(ones: int, zeros: int) -> Sampler:
        def some(runs: int, bits: BitSource) -> Outcomes:
            target = Target.within(within, confidence=1 - float(failure_probability))
            exact = np.tile([ones, zeros], runs)
            climb = CheckpointClimb(MeanReader(clamp), target, cap)
            ascent = climb.run(GradualRelease(Sealed(exact, Sensitivity(1))), Fraction(1), runs, bits)
            levels = np.array([float(ascent.pilot_cost + level) for level in ascent.ladder])
            reading = ascent.reading
            return Outcomes.of(
                np.column_stack([reading.value, ascent.met, reading.low, reading.high]), levels[ascent.rung]
            )

        return _in_parts(some, _LOOKS_AT_ONCE)

    name = f"mean of {sum(rows)} rows and one more, within {within}"
    return Pair(name, ExPost(PureGuarantee(cap)), sampler(rows[0] + 1, rows[1]), sampler(*rows))


def stopped_fit_pair(
    exact: int, *, tolerance: int, ladder: Sequence[Fraction], test: Fraction, draw: Draw = draw_path
) -> Pair:
    """Return a fit that a private test stops: a location with less and less noise, tested by above-threshold.

    The hypothesis of a rung is the exact location under the rung's noise, its loss the distance between the two, which one
    unit moves by at most 1. The bill is the rung and the test (LNRWW17, Algorithms 2 and 3): half of the test where no
    answer was "above".
    """
    rungs = Ladder(tuple(ladder))
    levels = np.array([float(level) for level in rungs])
    rule = AboveThreshold.paper2017(-tolerance, Sensitivity(1), epsilon=test)
    hit, unfinished = float(rule.guarantee.epsilon), float(rule.epsilon_threshold)

    def sampler(location: int) -> Sampler:
        def some(runs: int, bits: BitSource) -> Outcomes:
            noisy, batch = draw(location, rungs, runs, bits), SessionBatch(rule, runs, bits)
            above = np.stack([batch.step(-np.abs(row - location))[0] for row in noisy]) == 1
            met = above.any(axis=0)
            rung = np.where(met, above.argmax(axis=0), len(rungs) - 1)
            shown = np.column_stack([noisy[rung, np.arange(runs)], met, _prefix(noisy, rung, levels, exact)])
            return Outcomes.of(shown, levels[rung] + np.where(met, hit, unfinished))

        return _in_parts(some, _AT_ONCE // len(rungs))

    cap = rungs.cap + rule.guarantee.epsilon
    return Pair(
        "a location tested in private, and one unit on", ExPost(PureGuarantee(cap)), sampler(exact + 1), sampler(exact)
    )


def simulated_pairs() -> tuple[Pair, ...]:
    """Return the pairs of the audit: relative counts that stop at loud and at quiet rungs, looks, tested fits."""

    def count(rows: int, more: int = 1) -> Pair:
        return relative_pair(
            rows, rows=more, within=Fraction(1, 10), failure_probability=Fraction(1, 20), cap=Fraction(8)
        )

    doubling = [Fraction(2) ** step / 16 for step in range(7)]
    return (
        count(3),
        count(30),
        count(1000, 100),
        look_pair((4, 6), within=0.2, failure_probability=Fraction(9, 10), cap=Fraction(12)),
        stopped_fit_pair(5, tolerance=2, ladder=doubling, test=Fraction(1, 2)),
    )


def simulate(pair: Pair, runs: int, *, bits: BitSource, failure_probability: float = 1e-3) -> AttackFinding:
    """Run a pair and return the outcome that shows most of its bill; see ``measure_tightness``."""
    left, right = pair.left(runs, bits), pair.right(runs, bits)
    return measure_tightness(pair.name, left, right, failure_probability=failure_probability)


def measure_tightness(
    name: str, left: Outcomes, right: Outcomes, *, failure_probability: float = 1e-3
) -> AttackFinding:
    """Bound the loss of the event that exceeds its bill by most, as a share; the bound is too high at most this often.

    A quarter of the runs chooses one event among those billed one amount, in one direction; the others measure it with
    Clopper-Pearson bounds, so that the number of events compared needs no correction.
    """
    if left.bills is None or right.bills is None:
        raise InvalidRequest("Expected outcomes with bills", do="Pass those of an ex-post mechanism")
    cuts = len(left) // _SEARCH, len(right) // _SEARCH
    risk, samples = failure_probability / 2, len(left) + len(right)
    best = max(_candidates(left.rows(0, cuts[0]), right.rows(0, cuts[1]), risk), key=lambda each: each[0], default=None)
    if best is None:
        return AttackFinding(name, 0.0, float(left.bills.max()), samples)
    event = best[1]
    fresh = left.rows(cuts[0], len(left)), right.rows(cuts[1], len(right))
    likely, rare = fresh if event.forward else fresh[::-1]
    hits = np.array([event.hits(likely)]), np.array([event.hits(rare)])
    found = float(_losses(*hits, (len(likely), len(rare)), risk)[0])
    return AttackFinding(name, max(found, 0.0), event.bill, samples)


@dataclass(frozen=True)
class _Event:
    """Runs of one bill whose number in a column is at or beyond a threshold; likely on the left if ``forward``."""

    bill: float
    column: int
    threshold: float
    upwards: bool
    forward: bool

    def hits(self, outcomes: Outcomes) -> int:
        numbers = outcomes.values[:, self.column]
        beyond = numbers >= self.threshold if self.upwards else numbers <= self.threshold
        return int(np.count_nonzero(beyond & (outcomes.bills == self.bill)))


def _candidates(left: Outcomes, right: Outcomes, risk: float) -> Iterator[tuple[float, _Event]]:
    """Yield the best event of each bill, number, side and direction, with the share of the bill that it shows."""
    assert left.bills is not None and right.bills is not None
    trials = len(left), len(right)
    bills, counts = np.unique(np.concatenate([left.bills, right.bills]), return_counts=True)
    for bill in bills[counts >= _LEAST_RUNS].tolist():
        sides = [side.values[side.bills == bill] for side in (left, right)]
        for column in range(left.values.shape[1]):
            numbers = [np.sort(side[:, column]) for side in sides]
            thresholds = _thresholds(np.concatenate(numbers))
            for upwards in (True, False):
                hits = [_beyond(each, thresholds, upwards=upwards) for each in numbers]
                for forward in (True, False):
                    here, there = (0, 1) if forward else (1, 0)
                    losses = _losses(hits[here], hits[there], (trials[here], trials[there]), risk)
                    place = int(np.argmax(losses))
                    yield losses[place] / bill, _Event(bill, column, float(thresholds[place]), upwards, forward)


def _thresholds(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all different numbers where they are few, else some quantiles."""
    different = np.unique(numbers)
    if len(different) <= _CANDIDATES:
        return different
    return np.unique(np.quantile(numbers, np.linspace(0, 1, _CANDIDATES), method="nearest"))


def _beyond(numbers: NDArray[np.float64], thresholds: NDArray[np.float64], *, upwards: bool) -> NDArray[np.intp]:
    """Count the sorted numbers at or beyond each threshold."""
    if upwards:
        return len(numbers) - np.searchsorted(numbers, thresholds, side="left")
    return np.searchsorted(numbers, thresholds, side="right")


def _losses(
    likely: NDArray[np.intp], rare: NDArray[np.intp], trials: tuple[int, ...], risk: float
) -> NDArray[np.float64]:
    """Lower confidence bounds on the log-likelihood ratios of events."""
    p = at_least(likely, trials[0], failure_probability=risk)
    q = at_most(rare, trials[1], failure_probability=risk)
    losses: NDArray[np.float64] = np.log(np.maximum(p, 1e-300) / q)
    return losses


def _prefix(
    noisy: Integers, rung: NDArray[np.int64], levels: NDArray[np.float64], exact: int, more: int = 1
) -> NDArray[np.float64]:
    """Return the log-likelihood ratio of ``exact + more`` and ``exact`` if the noise of all rungs were independent."""
    read = np.arange(len(noisy))[:, None] <= rung
    nearer = np.clip(2 * (noisy - exact) - more, -more, more)  # |y - exact| - |y - exact - more|
    ratios: NDArray[np.float64] = np.where(read, nearer * levels[:, None], 0.0).sum(axis=0)
    return np.round(ratios, 6)


def _in_parts(some: Sampler, most: int) -> Sampler:
    """Run a sampler in parts that fit into memory."""

    def run(runs: int, bits: BitSource) -> Outcomes:
        parts = [some(min(most, runs - start), bits) for start in range(0, runs, most)]
        bills = [part.bills for part in parts if part.bills is not None]
        return Outcomes(np.concatenate([part.values for part in parts]), np.concatenate(bills))

    return run
