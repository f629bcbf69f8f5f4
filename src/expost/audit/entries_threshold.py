"""Attacks on the variants of above-threshold and on the reusable holdout: sessions on two lists of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.noise_laws import above_threshold_law, reduced_law
from expost.audit.output_law import Law, LawPair
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import ABOVE_THRESHOLD, LAPLACE, REDUCED
from expost.audit.privacy_claim import ExPost
from expost.core import Ladder, Sensitivity
from expost.holdout.holdout_plan import GRID, HoldoutPlan, NoiseLevel, Variant
from expost.holdout.thresholdout_mechanism import Thresholdout
from expost.noise import AboveThreshold, ReducedAboveThreshold
from expost.noise.bits import BitSource

__all__ = ["entries", "queries_around", "reduced_pair", "session_pair", "small_plan", "threshold_pair"]

Queries = Sequence[int]

# All queries rise but the last, which falls: the worst case.
_UP, _DOWN = [0] * 8 + [1], [1] * 8 + [0]
_RISE, _FALL = _UP[-5:], _DOWN[-5:]


def entries() -> Iterable[AuditEntry]:
    """List the variants, and Thresholdout; the wrappers around it use the same session."""
    wrappers = ("expost.holdout.ReusableHoldout", "expost.holdout.PrivateBoard")
    return (
        AuditEntry("expost.noise.AboveThreshold", _above_pairs, _above_laws, noise=ABOVE_THRESHOLD),
        AuditEntry("expost.noise.ReducedAboveThreshold", _reduced_pairs, _reduced_laws, noise=REDUCED),
        AuditEntry("expost.holdout.Thresholdout", _holdout_pairs, also=wrappers, noise=(*ABOVE_THRESHOLD, *LAPLACE)),
    )


def session_pair(
    name: str,
    rule: AboveThreshold,
    left: Queries,
    right: Queries,
    *,
    show_gaps: Callable[[Any], Any] | None = None,
    run_instead: AboveThreshold | None = None,
) -> Pair:
    """Build a pair of sessions of one rule; outcomes are all answers, billed as a session would bill them.

    ``show_gaps`` adds the gaps in the form it returns. ``run_instead`` plants a fault: another rule runs under the
    claim and the bills of this one.
    """
    runner = run_instead or rule
    per_hit, unfinished = float(rule.epsilon_threshold + rule.epsilon_query), float(rule.epsilon_threshold)

    def sample_sessions(queries: Queries, runs: int, bits: BitSource) -> Outcomes:
        answers, gaps = runner.simulate(queries, runs=runs, bits=bits)
        bills = (answers == 1).sum(axis=1) * per_hit + (answers[:, -1] == 0) * unfinished
        return Outcomes.of(answers if show_gaps is None else np.hstack([answers, show_gaps(gaps)]), bills)

    return Pair.of(name, ExPost(rule.guarantee), sample_sessions, left, right)


def reduced_pair(name: str, rule: ReducedAboveThreshold, left: Queries, right: Queries) -> Pair:
    """Build a pair of sessions of a test whose noise shrinks, with as many queries as rungs."""
    bills = np.array([*map(float, rule.ladder), float(rule.ladder.cap * rule.threshold_share)])
    units = np.array([1, int(rule.sensitivity.amount)])

    def sample_sessions(queries: Queries, runs: int, bits: BitSource) -> Outcomes:
        stopped = rule.simulate(queries, runs=runs, bits=bits)
        return Outcomes.of(np.minimum(stopped // units, 6), bills[stopped[:, 0]])  # -1, not stopped, is the last entry

    return Pair.of(name, ExPost(rule.guarantee), sample_sessions, left, right)


def queries_around(rule: AboveThreshold | ReducedAboveThreshold, moves: Queries) -> list[int]:
    """Place queries one sensitivity below the threshold, each moved up by a number of sensitivities."""
    unit = int(rule.sensitivity.amount)
    return [rule.threshold + (move - 1) * unit for move in moves]


def _build_rule(**changes: Any) -> AboveThreshold:
    """Build a rule at threshold 1, with an epsilon of 1 for the threshold and 1 for each query."""
    settings: dict[str, Any] = {
        "sensitivity": Sensitivity(1),
        "epsilon_threshold": Fraction(1),
        "epsilon_query": Fraction(1),
    }
    return AboveThreshold(threshold=1, **(settings | changes))


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
    a, b, depth = Fraction(1, 2), Fraction(2, 3), 80

    def build_pair(name: str, left: Queries, right: Queries, *, hits: int = 1, moves: int = 2, **terms: Any) -> LawPair:
        sides = (above_threshold_law(side, a, b, depth=depth, hits=hits, **terms) for side in (left, right))
        ours, theirs = (Law(side, error=4 * a**depth) for side in sides)

        def allowed_ratio(outcome: Any) -> Fraction:
            """Charge both shares for each hit and the threshold's share for an unfinished segment."""
            last = outcome[-1][0] if outcome else -1
            unfinished = len(outcome) < hits and last < len(left) - 1
            return (b**-moves / a) ** len(outcome) * (1 / a if unfinished else 1)

        return LawPair(name, ours, theirs, ratio=allowed_ratio)

    rising, falling = (-2, -2, 0), (-1, -1, -1)
    return (
        build_pair("one hit, with gaps", rising, falling, gaps=4),
        build_pair("two hits", (-1, 0, -1, 0), (0, -1, 0, -1), hits=2),
        build_pair("two-sided", rising, falling, two_sided=True),
        build_pair("monotone", falling, (0, 0, 0), gaps=3, moves=1),
    )


def _reduced_pairs() -> Sequence[Pair]:
    ladder = Ladder.of([Fraction(1, 2), Fraction(1), Fraction(2)])
    build = partial(ReducedAboveThreshold, threshold=1, sensitivity=Sensitivity(1), ladder=ladder)
    return (
        reduced_pair("two rise, the last falls", build(), [0, 0, 1], [1, 1, 0]),
        reduced_pair("the first falls", build(), [1, 1, 1], [0, 1, 1]),
        reduced_pair("monotone", build(threshold_share=Fraction(1, 3), monotone=True), [0, 0, 0], [1, 1, 1]),
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


def small_plan(variant: Variant, *, hits: int = 1) -> HoldoutPlan:
    """Plan a holdout of one row, so that the full influence of a row is visible, with noise of a few rows."""
    one_sided = variant == "improved"
    level = NoiseLevel(
        one_sided=one_sided,
        threshold=Fraction(1),
        threshold_scale=Fraction(1),
        query_scale=Fraction(2),
        answer_scale=None if one_sided else Fraction(1),
    )
    return HoldoutPlan(
        rows=1,
        tolerance=Fraction(1, 2),
        failure_probability=Fraction(1, 20),
        max_queries=5,
        max_hits=hits,
        variant=variant,
        level=level,
        answer_step=Fraction(1, 4),
    )


def threshold_pair(
    name: str, mechanism: Thresholdout, left: Queries, right: Queries, *, run_instead: Thresholdout | None = None
) -> Pair:
    """Build a pair of the threshold test of a session alone; gaps are in quarters of a row's influence.

    ``run_instead`` plants a fault: another mechanism runs under the claim and the bills of this one.
    """
    totals = ([mean * GRID for mean in side] for side in (left, right))
    return session_pair(
        name,
        mechanism.rule,
        *totals,
        show_gaps=lambda gaps: np.clip(gaps // (GRID // 4), -1, 12),
        run_instead=None if run_instead is None else run_instead.rule,
    )


def _holdout_pairs() -> Sequence[Pair]:
    """Attack the test of a session, then whole sessions, given by the means of the questions; the guess is always 0."""
    analysed, improved = Thresholdout(small_plan("analysed")), Thresholdout(small_plan("improved"))

    def whole_sessions(name: str, mechanism: Thresholdout) -> Pair:
        def run_session(mean: int, bits: BitSource) -> Outcomes:
            session = mechanism.open(bits=bits)
            answer = session.ask(mean * GRID, guess=Fraction(0))
            return Outcomes.of([-0.5 if answer is None else float(answer)], [float(session.loss.epsilon)])

        return Pair.repeated(name, ExPost(mechanism.plan.guarantee), run_session, 1, 0)

    twice = Thresholdout(small_plan("improved", hits=2))
    return (
        threshold_pair("analysed, its test", analysed, _RISE, _FALL),
        threshold_pair("improved, its test", improved, _RISE, _FALL),
        threshold_pair("improved, its test, two hits", twice, [0, 1, 0, 1], [1, 0, 1, 0]),
        whole_sessions("analysed, whole session", analysed),
        whole_sessions("improved, whole session", improved),
    )
