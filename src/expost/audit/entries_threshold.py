"""Attacks on above-threshold in its forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.noise_laws import above_threshold_law, reduced_law
from expost.audit.output_law import Law, LawPair
from expost.audit.pair_attack import Outcomes, Pair, Sampler
from expost.audit.planted_fault import ABOVE_THRESHOLD, REDUCED
from expost.audit.privacy_claim import ExPost
from expost.core import Ladder, Sensitivity
from expost.noise import AboveThreshold, ReducedAboveThreshold
from expost.noise.bits import BitSource

__all__ = ["entries", "threshold_pair"]

_UP, _DOWN = [0] * 8 + [1], [1] * 8 + [0]  # all queries rise but the last, which falls: the worst case
_RISING = [0] * 8 + [0], [1] * 8 + [1]


def entries() -> Iterable[AuditEntry]:
    """One entry a form."""
    return (
        AuditEntry("expost.noise.AboveThreshold", _above, _above_laws, noise=ABOVE_THRESHOLD),
        AuditEntry("expost.noise.ReducedAboveThreshold", _reduced, _reduced_laws, noise=REDUCED),
    )


def threshold_pair(name: str, rule: AboveThreshold, left: Sequence[int], right: Sequence[int]) -> Pair:
    """Return a rule on two neighbouring lists of queries; outcomes are all answers and gaps, billed as a session would."""
    return Pair(name, ExPost(rule.guarantee), _sessions(rule, left), _sessions(rule, right))


def _sessions(rule: AboveThreshold, queries: Sequence[int]) -> Sampler:
    def sampler(runs: int, bits: BitSource) -> Outcomes:
        answers, gaps = rule.simulate(queries, runs=runs, bits=bits)
        hits = (answers == 1).sum(axis=1)
        unfinished = answers[:, -1] == 0
        per_hit = float(rule.epsilon_threshold + rule.epsilon_query)
        shown = np.minimum(gaps, 3)  # small gaps are the telling ones; fewer values are better known
        return Outcomes.of(np.hstack([answers, shown]), hits * per_hit + unfinished * float(rule.epsilon_threshold))

    return sampler


def _rule(**changes: object) -> AboveThreshold:
    settings: dict[str, object] = {
        "threshold": 1,
        "sensitivity": Sensitivity(1),
        "epsilon_threshold": Fraction(1),
        "epsilon_query": Fraction(1),
    }
    return AboveThreshold(**(settings | changes))  # type: ignore[arg-type]


def _above() -> Sequence[Pair]:
    once, twice, together = _rule(), _rule(hits=2), _rule(monotone=True)
    paper = AboveThreshold.paper2017(1, Sensitivity(1), epsilon=2)
    return (
        threshold_pair("one hit", once, _UP, _DOWN),
        threshold_pair("one hit, a single query", once, [1], [0]),
        threshold_pair("two hits", twice, [0, 0, 1, 0, 1], [1, 1, 0, 1, 0]),
        threshold_pair("monotone queries", together, *_RISING),
        threshold_pair("monotone, one query moves", together, [0] * 6, [0] * 5 + [1]),
        threshold_pair("two-sided, as printed", paper, _UP, _DOWN),
        threshold_pair("a wide sensitivity", _rule(sensitivity=Sensitivity(50)), [0] * 5 + [50], [50] * 5 + [0]),
    )


def _above_laws() -> Sequence[LawPair]:
    rising, falling, alternating = (-2, -2, 0), (-1, -1, -1), (-1, 0, -1, 0)
    return (
        _law_pair("one hit, with gaps", rising, falling, gaps=4),
        _law_pair("two hits", alternating, tuple(-1 - query for query in alternating), hits=2),
        _law_pair("two-sided", rising, falling, two_sided=True),
        _law_pair("monotone", falling, (0, 0, 0), gaps=3, moves=1),
    )


def _law_pair(
    name: str,
    left: Sequence[int],
    right: Sequence[int],
    *,
    gaps: int = 1,
    hits: int = 1,
    two_sided: bool = False,
    moves: int = 2,
) -> LawPair:
    a, b, depth = Fraction(1, 2), Fraction(2, 3), 80
    ours, theirs = (
        Law(
            above_threshold_law(side, a, b, depth=depth, hits=hits, two_sided=two_sided, gaps=gaps),
            error=4 * a**depth,
        )
        for side in (left, right)
    )

    def ratio(outcome: Any) -> Fraction:
        """Return both shares for each hit, the threshold's for an unfinished segment."""
        last = outcome[-1][0] if outcome else -1
        unfinished = len(outcome) < hits and last < len(left) - 1
        return (b**-moves / a) ** len(outcome) * (1 / a if unfinished else 1)

    return LawPair(name, ours, theirs, ratio=ratio)


def _reduced() -> Sequence[Pair]:
    ladder = Ladder.of([Fraction(1, 2), Fraction(1), Fraction(2)])
    rule = ReducedAboveThreshold(threshold=1, sensitivity=Sensitivity(1), ladder=ladder)
    third = ReducedAboveThreshold(
        threshold=1, sensitivity=Sensitivity(1), ladder=ladder, threshold_share=Fraction(1, 3), monotone=True
    )

    def sessions(rule: ReducedAboveThreshold, queries: Sequence[int]) -> Sampler:
        levels = np.array([float(rung) for rung in ladder] + [float(ladder.cap * rule.threshold_share)])

        def sampler(runs: int, bits: BitSource) -> Outcomes:
            stopped = rule.simulate(queries, runs=runs, bits=bits)
            return Outcomes.of(np.minimum(stopped, 6), levels[stopped[:, 0]])  # -1, not stopped, is the last entry

        return sampler

    def pair(name: str, rule: ReducedAboveThreshold, left: Sequence[int], right: Sequence[int]) -> Pair:
        return Pair(name, ExPost(rule.guarantee), sessions(rule, left), sessions(rule, right))

    return (
        pair("two rise, the last falls", rule, [0, 0, 1], [1, 1, 0]),
        pair("the first falls", rule, [1, 1, 1], [0, 1, 1]),
        pair("monotone", third, [0, 0, 0], [1, 1, 1]),
    )


def _reduced_laws() -> Sequence[LawPair]:
    # Levels e, 2e, 4e in halves: decays a of the threshold, b = sqrt(a) of a query; with b rational both are.
    queries = [Fraction(3, 5), Fraction(9, 25), Fraction(81, 625)]
    decays = [b**2 for b in queries]
    left, right = (
        Law(reduced_law(side, decays, queries, depth=24), error=3 * decays[0] ** 24)
        for side in ((-1, -1, 0), (0, 0, -1))
    )

    def ratio(outcome: Any) -> Fraction:
        return 1 / decays[-1] if outcome is None else decays[outcome] ** -1 * queries[outcome] ** -2

    return (LawPair("two rise, the last falls", left, right, ratio=ratio),)
