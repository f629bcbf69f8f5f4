"""How much of an ex-post bill the outcomes of many climbs really show: an oracle for the bills of climbs.

One rung (one bill) at a time: among the outcomes with that bill, the log-likelihood ratio of the best event, as a lower
confidence bound, is compared with the bill.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.audit.climb_simulator import Draw, draw_path, sample_in_parts, summarize_prefix
from expost.audit.pair_attack import AttackFinding, Outcomes, Pair, at_least, at_most
from expost.audit.privacy_claim import ExPost
from expost.core import InvalidRequest, Ladder, PureGuarantee, Sealed, Sensitivity, Target
from expost.data import Clamp
from expost.noise import AboveThreshold, BitSource
from expost.noise.above_threshold import SessionBatch
from expost.stats.checkpoint_climb import CheckpointClimb
from expost.stats.gradual_release import GradualRelease
from expost.stats.reader import MeanReader

_AT_ONCE = 1 << 24  # noisy answers held in memory
_CELLS_AT_ONCE = 2_000  # cells of one climb by checkpoints: they share a failure probability
_CANDIDATES = 48  # thresholds tried per rung and number
_LEAST_RUNS = 50  # runs at a rung below which it is not searched
_SEARCH = 4  # one in so many runs chooses the event, the others measure it


def look_pair(rows: tuple[int, int], *, within: float, failure_probability: Fraction, cap: Fraction) -> Pair:
    """Build a pair of the mean of a flag that climbs by checkpoints to an absolute accuracy; ``rows`` counts ones and zeros.

    Every run is a cell of one climb, with a separate pilot and separate checks; its bill is the pilot and its rung.
    """
    clamp = Clamp.of((0, 1), whole=True)

    def sample_climbs(ones: int, zeros: int, runs: int, bits: BitSource) -> Outcomes:
        target = Target.within(within, confidence=1 - float(failure_probability))
        exact = np.tile([ones, zeros], runs)
        climb = CheckpointClimb(MeanReader(clamp), target, cap)
        result = climb.run(GradualRelease(Sealed(exact, Sensitivity(1))), Fraction(1), runs, bits)
        levels = np.array([float(result.pilot_cost + level) for level in result.ladder])
        reading = result.reading
        shown = np.column_stack([reading.value, result.met, reading.low, reading.high])
        return Outcomes.of(shown, levels[result.rung])

    left, right = (
        sample_in_parts(partial(sample_climbs, ones, rows[1]), _CELLS_AT_ONCE) for ones in (rows[0] + 1, rows[0])
    )
    name = f"mean of {sum(rows)} rows and one more, within {within}"
    return Pair(name, ExPost(PureGuarantee(cap)), left, right)


def stopped_fit_pair(
    exact: int, *, tolerance: int, ladder: Sequence[Fraction], test: Fraction, draw: Draw = draw_path
) -> Pair:
    """Build a pair of a fit that a private test stops: a location with less and less noise, tested by above-threshold.

    The hypothesis of a rung is the exact location under the rung's noise. Its loss is the distance between the two,
    which one unit moves by at most 1. The bill is the rung and the test (LNRWW17, Algorithms 2 and 3), or half of the
    test if no answer was "above".
    """
    rungs = Ladder(tuple(ladder))
    levels = np.array([float(level) for level in rungs])
    rule = AboveThreshold.paper2017(-tolerance, Sensitivity(1), epsilon=test)
    hit, unfinished = float(rule.guarantee.epsilon), float(rule.epsilon_threshold)

    def sample_fits(location: int, runs: int, bits: BitSource) -> Outcomes:
        noisy, batch = draw(location, rungs, runs, bits), SessionBatch(rule, runs, bits)
        above = np.stack([batch.step(-np.abs(row - location))[0] for row in noisy]) == 1
        met = above.any(axis=0)
        rung = np.where(met, above.argmax(axis=0), len(rungs) - 1)
        shown = np.column_stack([noisy[rung, np.arange(runs)], met, summarize_prefix(noisy, rung, levels, exact)])
        return Outcomes.of(shown, levels[rung] + np.where(met, hit, unfinished))

    left, right = (
        sample_in_parts(partial(sample_fits, location), _AT_ONCE // len(rungs)) for location in (exact + 1, exact)
    )
    claim = ExPost(PureGuarantee(rungs.cap + rule.guarantee.epsilon))
    return Pair("a location tested in private, and one unit on", claim, left, right)


def simulate(pair: Pair, runs: int, *, bits: BitSource, failure_probability: float = 1e-3) -> AttackFinding:
    """Run a pair and return the outcome that shows most of its bill; see ``measure_tightness``."""
    left, right = pair.left(runs, bits), pair.right(runs, bits)
    return measure_tightness(pair.name, left, right, failure_probability=failure_probability)


def measure_tightness(
    name: str, left: Outcomes, right: Outcomes, *, failure_probability: float = 1e-3
) -> AttackFinding:
    """Bound the loss of the event that shows the largest share of its bill; the bound fails with ``failure_probability``.

    A quarter of the runs choose one event among those with one bill, in one direction. The others measure it with
    Clopper-Pearson bounds, so the number of events compared needs no correction.
    """
    if left.bills is None or right.bills is None:
        raise InvalidRequest("Expected outcomes with bills", do="Pass those of an ex-post mechanism")
    cuts = len(left) // _SEARCH, len(right) // _SEARCH
    risk, samples = failure_probability / 2, len(left) + len(right)
    best = max(
        _best_events(left.rows(0, cuts[0]), right.rows(0, cuts[1]), risk), key=lambda each: each[0], default=None
    )
    if best is None:
        return AttackFinding(name, 0.0, float(left.bills.max()), samples)
    event = best[1]
    fresh = left.rows(cuts[0], len(left)), right.rows(cuts[1], len(right))
    likely, rare = fresh if event.forward else fresh[::-1]
    hits = np.array([event.hits(likely)]), np.array([event.hits(rare)])
    found = float(_bound_losses(*hits, (len(likely), len(rare)), risk)[0])
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


def _best_events(left: Outcomes, right: Outcomes, risk: float) -> Iterator[tuple[float, _Event]]:
    """Yield the best event of each bill, number, side and direction, with the share of the bill that it shows."""
    assert left.bills is not None and right.bills is not None
    trials = len(left), len(right)
    bills, counts = np.unique(np.concatenate([left.bills, right.bills]), return_counts=True)
    for bill in bills[counts >= _LEAST_RUNS].tolist():
        sides = [side.values[side.bills == bill] for side in (left, right)]
        for column in range(left.values.shape[1]):
            numbers = [np.sort(side[:, column]) for side in sides]
            thresholds = _choose_thresholds(np.concatenate(numbers))
            for upwards in (True, False):
                hits = [_count_beyond(each, thresholds, upwards=upwards) for each in numbers]
                for forward in (True, False):
                    here, there = (0, 1) if forward else (1, 0)
                    losses = _bound_losses(hits[here], hits[there], (trials[here], trials[there]), risk)
                    place = int(np.argmax(losses))
                    yield losses[place] / bill, _Event(bill, column, float(thresholds[place]), upwards, forward)


def _choose_thresholds(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose all different numbers where they are few, otherwise some quantiles."""
    different = np.unique(numbers)
    if len(different) <= _CANDIDATES:
        return different
    return np.unique(np.quantile(numbers, np.linspace(0, 1, _CANDIDATES), method="nearest"))


def _count_beyond(numbers: NDArray[np.float64], thresholds: NDArray[np.float64], *, upwards: bool) -> NDArray[np.intp]:
    """Count the sorted numbers at or beyond each threshold."""
    if upwards:
        return len(numbers) - np.searchsorted(numbers, thresholds, side="left")
    return np.searchsorted(numbers, thresholds, side="right")


def _bound_losses(
    likely: NDArray[np.intp], rare: NDArray[np.intp], trials: tuple[int, ...], risk: float
) -> NDArray[np.float64]:
    """Bound the log-likelihood ratios of events from below."""
    p = at_least(likely, trials[0], failure_probability=risk)
    q = at_most(rare, trials[1], failure_probability=risk)
    losses: NDArray[np.float64] = np.log(np.maximum(p, 1e-300) / q)
    return losses
