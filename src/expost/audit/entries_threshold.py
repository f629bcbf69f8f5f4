"""Attacks on the variants of above-threshold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.noise_laws import above_threshold_law, reduced_law
from expost.audit.output_law import Law, LawPair
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import ABOVE_THRESHOLD, REDUCED
from expost.audit.threshold_views import reduced_pair, session_pair
from expost.core import Ladder, Sensitivity
from expost.noise import AboveThreshold, ReducedAboveThreshold

__all__ = ["entries"]

_UP, _DOWN = [0] * 8 + [1], [1] * 8 + [0]  # all queries rise but the last, which falls: the worst case


def entries() -> Iterable[AuditEntry]:
    """List one entry per variant."""
    return (
        AuditEntry("expost.noise.AboveThreshold", _above_pairs, _above_laws, noise=ABOVE_THRESHOLD),
        AuditEntry("expost.noise.ReducedAboveThreshold", _reduced_pairs, _reduced_laws, noise=REDUCED),
    )


def _build_rule(**changes: object) -> AboveThreshold:
    """Build a rule at threshold 1, with an epsilon of 1 for the threshold and 1 for each query."""
    settings: dict[str, object] = {
        "threshold": 1,
        "sensitivity": Sensitivity(1),
        "epsilon_threshold": Fraction(1),
        "epsilon_query": Fraction(1),
    }
    return AboveThreshold(**(settings | changes))  # type: ignore[arg-type]


def _above_pairs() -> Sequence[Pair]:
    once, twice, together = _build_rule(), _build_rule(hits=2), _build_rule(monotone=True)
    paper = AboveThreshold.paper2017(1, Sensitivity(1), epsilon=2)
    # Small gaps show most of the loss, and with fewer distinct values each is measured better.
    threshold_pair = partial(session_pair, show_gaps=lambda gaps: np.minimum(gaps, 3))
    return (
        threshold_pair("one hit", once, _UP, _DOWN),
        threshold_pair("one hit, a single query", once, [1], [0]),
        threshold_pair("two hits", twice, [0, 0, 1, 0, 1], [1, 1, 0, 1, 0]),
        threshold_pair("monotone queries", together, [0] * 9, [1] * 9),
        threshold_pair("monotone, one query moves", together, [0] * 6, [0] * 5 + [1]),
        threshold_pair("two-sided, as printed", paper, _UP, _DOWN),
        threshold_pair("a wide sensitivity", _build_rule(sensitivity=Sensitivity(50)), [0] * 5 + [50], [50] * 5 + [0]),
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

    def allowed_ratio(outcome: Any) -> Fraction:
        """Charge both shares for each hit and the threshold's share for an unfinished segment."""
        last = outcome[-1][0] if outcome else -1
        unfinished = len(outcome) < hits and last < len(left) - 1
        return (b**-moves / a) ** len(outcome) * (1 / a if unfinished else 1)

    return LawPair(name, ours, theirs, ratio=allowed_ratio)


def _reduced_pairs() -> Sequence[Pair]:
    ladder = Ladder.of([Fraction(1, 2), Fraction(1), Fraction(2)])
    rule = ReducedAboveThreshold(threshold=1, sensitivity=Sensitivity(1), ladder=ladder)
    third = ReducedAboveThreshold(
        threshold=1, sensitivity=Sensitivity(1), ladder=ladder, threshold_share=Fraction(1, 3), monotone=True
    )
    return (
        reduced_pair("two rise, the last falls", rule, [0, 0, 1], [1, 1, 0]),
        reduced_pair("the first falls", rule, [1, 1, 1], [0, 1, 1]),
        reduced_pair("monotone", third, [0, 0, 0], [1, 1, 1]),
    )


def _reduced_laws() -> Sequence[LawPair]:
    # Levels e, 2e, 4e in halves: decays a of the threshold, b = sqrt(a) of a query; with b rational both are.
    queries = [Fraction(3, 5), Fraction(9, 25), Fraction(81, 625)]
    decays = [b**2 for b in queries]
    left, right = (
        Law(reduced_law(side, decays, queries, depth=24), error=3 * decays[0] ** 24)
        for side in ((-1, -1, 0), (0, 0, -1))
    )

    def allowed_ratio(outcome: Any) -> Fraction:
        return 1 / decays[-1] if outcome is None else decays[outcome] ** -1 * queries[outcome] ** -2

    return (LawPair("two rise, the last falls", left, right, ratio=allowed_ratio),)
