"""Output laws written out in exact rationals, and the loss between two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.audit.pair_attack import AttackFinding
from expost.core import InvalidRequest

__all__ = ["Law", "LawPair", "compare"]

_UNDECIDED = Fraction(1, 10**9)  # how much of a ratio the error of an enumeration may hide


@dataclass(frozen=True)
class Law:
    """The probabilities of some or all outcomes; each entry is exact, or too low by at most ``error``."""

    mass: Mapping[Any, Fraction]
    error: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.unlisted < 0 or min(self.mass.values(), default=0) < 0:
            raise InvalidRequest("Expected probabilities that sum to at most 1", do="Check the enumeration")

    @property
    def unlisted(self) -> Fraction:
        """Probability of the outcomes that are not listed."""
        return 1 - sum(self.mass.values(), Fraction(0))


@dataclass(frozen=True)
class LawPair:
    """Two adjacent inputs whose output laws are known, and how far they may differ.

    ``ratio`` is e^epsilon as a rational, or for ex-post claims a function from the outcome to it. The noise of these
    laws has a rational decay ``a`` instead of epsilon = -ln a, so that no logarithm or exponential is rounded.
    """

    name: str
    left: Law
    right: Law
    ratio: Fraction | Callable[[Hashable], Fraction]
    delta: Fraction = Fraction(0)

    def allowed(self, outcome: Hashable) -> Fraction:
        """Look up the largest ratio that this outcome may have."""
        return self.ratio(outcome) if callable(self.ratio) else self.ratio


def compare(pair: LawPair) -> AttackFinding:
    """Compute the worst loss between the two laws; the decision is exact, the numbers shown are floats.

    >>> left = Law({"heads": Fraction(1, 2), "tails": Fraction(1, 2)})
    >>> right = Law({"heads": Fraction(1, 4), "tails": Fraction(3, 4)})
    >>> compare(LawPair("coins", left, right, ratio=Fraction(2))).violated
    False
    >>> compare(LawPair("coins", left, right, ratio=Fraction(3, 2))).violated
    True
    """
    findings = []
    for ours, theirs in ((pair.left, pair.right), (pair.right, pair.left)):
        if pair.delta:
            findings.append(_compare_with_delta(pair, ours, theirs))
        else:
            findings += [_compare_outcome(pair, outcome, ours, theirs) for outcome, p in ours.mass.items() if p]
    return max(findings, key=lambda finding: finding.found - finding.allowed)


def _compare_outcome(pair: LawPair, outcome: Hashable, ours: Law, theirs: Law) -> AttackFinding:
    """Compare the probabilities of one outcome, whose ratio must not exceed e^epsilon."""
    p, q, ratio = ours.mass[outcome], theirs.mass.get(outcome, Fraction(0)), pair.allowed(outcome)
    limit, loss = _log_fraction(ratio), _log_fraction(p / q) if q else math.inf
    if p > ratio * (q + theirs.error):
        return AttackFinding(pair.name, max(loss, math.nextafter(limit, math.inf)), limit, exact=True)
    if p + ours.error > ratio * q * (1 + _UNDECIDED):
        raise InvalidRequest("Expected an enumeration fine enough to decide", do="Widen its window")
    return AttackFinding(pair.name, min(loss, limit), limit, exact=True)


def _compare_with_delta(pair: LawPair, ours: Law, theirs: Law) -> AttackFinding:
    """Compare two laws for (epsilon, delta): the excess of one over e^epsilon times the other must stay within delta."""
    ratio = pair.allowed(None)
    limit = _log_fraction(ratio)
    if _sum_excess(ours, theirs, ratio) > pair.delta + ratio * theirs.error * len(ours.mass):
        return AttackFinding(pair.name, math.nextafter(limit, math.inf), limit, exact=True)
    if _sum_excess(ours, theirs, ratio) + ours.unlisted > pair.delta * (1 + _UNDECIDED):
        raise InvalidRequest("Expected an enumeration fine enough to decide", do="Widen its window")
    low, high = 0.0, limit
    for _ in range(40):
        middle = (low + high) / 2
        exceeds = _sum_excess(ours, theirs, Fraction(math.exp(middle))) > pair.delta
        low, high = (middle, high) if exceeds else (low, middle)
    return AttackFinding(pair.name, low, limit, exact=True)


def _sum_excess(ours: Law, theirs: Law, ratio: Fraction) -> Fraction:
    """Sum what one law has in excess of ``ratio`` times the other (the hockey-stick divergence)."""
    terms = (p - ratio * theirs.mass.get(outcome, Fraction(0)) for outcome, p in ours.mass.items())
    return sum((term for term in terms if term > 0), Fraction(0))


def _log_fraction(ratio: Fraction) -> float:
    """Take the logarithm of a fraction whose parts may be too large for floats."""
    return math.log(ratio.numerator) - math.log(ratio.denominator)
