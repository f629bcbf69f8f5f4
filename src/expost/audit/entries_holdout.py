"""Attacks on the reusable holdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Outcomes, Pair, repeat
from expost.audit.planted_fault import ABOVE_THRESHOLD, LAPLACE
from expost.audit.privacy_claim import ExPost
from expost.audit.threshold_views import session_pair
from expost.holdout.holdout_plan import GRID, HoldoutPlan, NoiseLevel, Variant
from expost.holdout.thresholdout_mechanism import Thresholdout
from expost.noise.bits import BitSource

__all__ = ["entries", "holdout_pair", "small_plan"]

_RISE, _FALL = [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]  # all totals rise but the last, which falls: the worst case


def entries() -> Iterable[AuditEntry]:
    """List Thresholdout in both variants; the wrappers around it use the same session."""
    wrappers = ("expost.holdout.ReusableHoldout", "expost.holdout.PrivateBoard")
    return (
        AuditEntry("expost.holdout.Thresholdout", _session_pairs, also=wrappers, noise=(*ABOVE_THRESHOLD, *LAPLACE)),
    )


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


def holdout_pair(name: str, mechanism: Thresholdout, left: Sequence[int], right: Sequence[int]) -> Pair:
    """Build a pair of sessions on two adjacent holdouts, given by the means of the questions; the guess is always 0."""

    def run_session(means: Sequence[int], bits: BitSource) -> Outcomes:
        session = mechanism.open(bits=bits)
        answers = [-1.0] * len(means)
        for place, mean in enumerate(means):
            if not session.hits_left:
                break
            answer = session.ask(mean * GRID, guess=Fraction(0))
            answers[place] = -0.5 if answer is None else float(answer)
        return Outcomes.of([answers], [float(session.loss.epsilon)])

    left_runs, right_runs = (repeat(partial(run_session, means)) for means in (left, right))
    return Pair(name, ExPost(mechanism.plan.guarantee), left_runs, right_runs, slow=True)


def threshold_pair(
    name: str,
    mechanism: Thresholdout,
    left: Sequence[int],
    right: Sequence[int],
    *,
    run_instead: Thresholdout | None = None,
) -> Pair:
    """Build a pair of the threshold test of a session alone; gaps are in quarters of a row's influence.

    ``run_instead`` plants a fault: another mechanism runs under the claim and the bills of this one.
    """
    return session_pair(
        name,
        mechanism.rule,
        [mean * GRID for mean in left],
        [mean * GRID for mean in right],
        show_gaps=lambda gaps: np.clip(gaps // (GRID // 4), -1, 12),
        run_instead=None if run_instead is None else run_instead.rule,
    )


def _session_pairs() -> Sequence[Pair]:
    analysed, improved = Thresholdout(small_plan("analysed")), Thresholdout(small_plan("improved"))
    twice = Thresholdout(small_plan("improved", hits=2))
    return (
        threshold_pair("analysed, its test", analysed, _RISE, _FALL),
        threshold_pair("improved, its test", improved, _RISE, _FALL),
        threshold_pair("improved, its test, two hits", twice, [0, 1, 0, 1], [1, 0, 1, 0]),
        holdout_pair("analysed, whole session", analysed, [1], [0]),
        holdout_pair("improved, whole session", improved, [1], [0]),
    )
