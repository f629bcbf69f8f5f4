"""The attack on one pair: find a bad event on some runs, measure it on the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

from expost.audit.event import Event, find_events
from expost.audit.pair import Outcomes, Pair
from expost.core import InvalidRequest
from expost.noise.bits import BitSource

__all__ = ["Finding", "attack"]

_SEARCH_RUNS = 200_000  # more runs than this go to the measurement, which is what tightens the bound
_DIRECTIONS = 2


@dataclass(frozen=True)
class Finding:
    """The privacy loss that was found and the one that was allowed there, in the claim's unit.

    ``exact`` says that ``found`` was computed from the output law; else it is a lower confidence bound.

    >>> Finding("pair", found=1.2, allowed=1.0, samples=1000).violated
    True
    """

    pair: str
    found: float
    allowed: float
    samples: int = 0
    exact: bool = False

    @property
    def violated(self) -> bool:
        """Whether the claim is wrong (at the confidence of the audit)."""
        return self.found > self.allowed

    @property
    def share(self) -> float:
        """How much of what was allowed was found."""
        return self.found / self.allowed if self.allowed else float(self.found > 0)


def attack(pair: Pair, runs: int, *, bits: BitSource, failure_probability: float = 1e-3) -> Finding:
    """A bound on the loss of this pair that is too high with probability at most ``failure_probability``.

    A quarter of the runs (at most 200,000 a side) choose one event a direction, the others measure it with
    Clopper-Pearson bounds; the probability is shared between the two directions and the two bounds of each, so the
    number of events compared in the search needs no further correction.

    >>> import numpy as np
    >>> from expost.core import PureGuarantee
    >>> from expost.noise.bits import SeededBits
    >>> biased = lambda one_in: lambda runs, bits: Outcomes.of(bits.words(runs, np.uint8) % one_in == 0)
    >>> pair = Pair("two coins", PureGuarantee(0.1), biased(2), biased(4))
    >>> attack(pair, 20_000, bits=SeededBits(1)).violated
    True
    """
    if runs < 100:
        raise InvalidRequest("Expected at least 100 runs", got=runs, do="Ask for more runs")
    left, right = pair.left(runs, bits), pair.right(runs, bits)
    risk = failure_probability / _DIRECTIONS / 2
    search = min(runs // 4, _SEARCH_RUNS)
    events = find_events(pair, left.rows(0, search), right.rows(0, search), failure_probability=risk)
    ours, theirs = left.rows(search, runs), right.rows(search, runs)
    findings = [
        _measure(pair, event, *sides, risk)
        for event, sides in zip(events, ((ours, theirs), (theirs, ours)), strict=False)
    ]
    worst = max(findings, key=lambda finding: finding.found - finding.allowed)
    return replace(worst, samples=2 * runs)


def _measure(pair: Pair, event: Event, likely: Outcomes, rare: Outcomes, risk: float) -> Finding:
    """The bound that fresh outcomes give for an event chosen before."""
    return Finding(pair.name, event.bound(pair.claim, likely, rare, failure_probability=risk), event.allowed)
