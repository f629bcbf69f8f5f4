"""The levels of a pure training: what each fit, each test and the summary of the table may spend, rung by rung."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from expost.core import InvalidRequest, Ladder

__all__ = ["MOST_PURE_RUNGS", "PureRung", "PureSchedule", "plan_pure_epsilon", "plan_pure_score"]

MOST_PURE_RUNGS = 16
"""The most rungs: the failure probability of the summaries is shared among so many."""
_FIRST_LEVEL = Fraction(1, 128)  # of the first fit. Levels double, whatever the cap: a larger cap adds rungs only
_LEAST_LEVEL, _LARGEST_LEVEL = Fraction(1, 10**6), Fraction(1000)
# Of a fit's level, for classes and for numbers: R^2 is measured from a noisy middle of the target.
_SUMMARY = {True: Fraction(1, 32), False: Fraction(1, 8)}
# Of a fit's level, for classes and for numbers: a squared error can be as large as the square of the target's range, so
# its test needs more.
_TEST = {True: Fraction(1, 8), False: Fraction(1)}
_PATH_TEST = Fraction(1, 4)  # of one path only the last fit is paid, but every test
_FAR_TEST = Fraction(1, 8)  # of a test, where the score before was far from the target
_FIXED_SUMMARY, _FIXED_TEST = Fraction(2, 100), {True: Fraction(6, 100), False: Fraction(12, 100)}  # of epsilon
_LEAST_GROWTH = Fraction(5, 4)  # of the last level, which the cap sets


@dataclass(frozen=True)
class PureRung:
    """What one rung may spend: a fit, a test of its score, and the level to which the summary is refined."""

    fit: Fraction
    test: Fraction
    summary: Fraction

    @property
    def far_test(self) -> Fraction:
        """Return the level of a test without a chance to pass, which only watches the score."""
        return self.test * _FAR_TEST


@dataclass(frozen=True)
class PureSchedule:
    """Rungs whose levels are fixed before the run. ``refines`` if fits are rungs of one path, of which the last is paid.

    Guarantee: pure ex-post: ``price(k, tests)`` if the training stopped after rung k.
    Adjacency: add/remove of one unit.
    Sensitivity: that of each release, inside its level.
    Accuracy: none promised.
    Numerics: exact fractions.
    Reference: docs/proofs/pure-tabular-models.md, Theorem 2; docs/proofs/ex-post-composition.md.
    """

    rungs: tuple[PureRung, ...]
    refines: bool = False

    @cached_property
    def cap(self) -> Fraction:
        """Return what the whole schedule costs."""
        fits = [rung.fit for rung in self.rungs]
        return self.price(fits, [rung.test for rung in self.rungs], len(self.rungs) - 1)

    def price(self, fits: list[Fraction], tests: list[Fraction], last: int) -> Fraction:
        """Return the cost of fits and tests that ran, with the summary of the last rung."""
        fitted = fits[-1] if self.refines and fits else sum(fits, Fraction(0))
        return fitted + sum(tests, Fraction(0)) + self.rungs[last].summary

    @property
    def summary_ladder(self) -> Ladder:
        """Return the levels of the summary."""
        return Ladder(tuple(rung.summary for rung in self.rungs))

    @property
    def fit_ladder(self) -> Ladder:
        """Return the levels of the fits, where they are rungs of one path."""
        return Ladder(tuple(rung.fit for rung in self.rungs))


def plan_pure_epsilon(epsilon: Fraction, *, classes: bool) -> PureSchedule:
    """Return the one rung of a training at a given epsilon; ``classes`` for a classifier.

    >>> plan_pure_epsilon(Fraction(1), classes=True).cap
    Fraction(1, 1)
    """
    _check_level(epsilon, "epsilon")
    test, summary = epsilon * _FIXED_TEST[classes], epsilon * _FIXED_SUMMARY
    return PureSchedule((PureRung(epsilon - test - summary, test, summary),))


def plan_pure_score(cap: Fraction, *, classes: bool, refines: bool = False) -> PureSchedule:
    """Return rungs whose levels double up to a cap, for a training that stops at a score.

    ``classes`` for a classifier, whose tests need less; ``refines`` if only the last fit is paid.

    >>> schedule = plan_pure_score(Fraction(1), classes=True)
    >>> [float(rung.fit) for rung in schedule.rungs[:3]], float(schedule.cap) <= 1
    ([0.0078125, 0.015625, 0.03125], True)
    """
    _check_level(cap, "max_epsilon")
    share, summary = _PATH_TEST if refines else _TEST[classes], _SUMMARY[classes]
    rungs: list[PureRung] = []
    level = _FIRST_LEVEL
    while len(rungs) < MOST_PURE_RUNGS:
        grown = PureSchedule((*rungs, _rung(level, share, summary)), refines)
        if grown.cap > cap:
            break
        rungs.append(grown.rungs[-1])
        level *= 2
    if len(rungs) < MOST_PURE_RUNGS:
        # A last rung at what the cap leaves, if that is clearly more than the one before.
        fits = [rung.fit for rung in rungs]
        before = sum((rung.test for rung in rungs), Fraction(0)) + (0 if refines else sum(fits, Fraction(0)))
        last = (cap - before) / (1 + share + summary)
        if not rungs or last >= _LEAST_GROWTH * rungs[-1].fit:
            rungs.append(_rung(last, share, summary))
    return PureSchedule(tuple(rungs), refines)


def _rung(level: Fraction, share: Fraction, summary: Fraction) -> PureRung:
    return PureRung(level, level * share, level * summary)


def _check_level(level: Fraction, name: str) -> None:
    if not _LEAST_LEVEL <= level <= _LARGEST_LEVEL:
        raise InvalidRequest(f"Expected {name} from 1e-6 to 1000", got=float(level), do="Pass one such as 0.5")
