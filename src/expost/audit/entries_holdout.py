"""Attacks on the reusable holdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Outcomes, Pair, Sampler, repeat
from expost.audit.planted_fault import ABOVE_THRESHOLD, LAPLACE
from expost.audit.privacy_claim import ExPost
from expost.holdout.holdout_plan import GRID, HoldoutPlan, NoiseLevel, Variant
from expost.holdout.thresholdout_mechanism import Thresholdout
from expost.noise.bits import BitSource

__all__ = ["entries", "holdout_pair", "small_plan"]

_RISE, _FALL = [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]  # all totals rise but the last, which falls: the worst case


def entries() -> Iterable[AuditEntry]:
    """Thresholdout in both variants; what is built on it asks the same session."""
    wrappers = ("expost.holdout.ReusableHoldout", "expost.holdout.PrivateBoard")
    return (AuditEntry("expost.holdout.Thresholdout", _pairs, also=wrappers, noise=(*ABOVE_THRESHOLD, *LAPLACE)),)


def small_plan(variant: Variant, *, hits: int = 1) -> HoldoutPlan:
    """Return a holdout of one row, so that all of a row's influence shows; scales of a few rows' worth."""
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
    """Sessions on two neighbouring holdouts, given by the means of the questions; the guess is always 0."""
    return Pair(
        name, ExPost(mechanism.plan.guarantee), _sessions(mechanism, left), _sessions(mechanism, right), slow=True
    )


def _sessions(mechanism: Thresholdout, means: Sequence[int]) -> Sampler:
    def run(bits: BitSource) -> Outcomes:
        session = mechanism.open(bits=bits)
        answers = [-1.0] * len(means)
        for place, mean in enumerate(means):
            if not session.hits_left:
                break
            answer = session.ask(mean * GRID, guess=Fraction(0))
            answers[place] = -0.5 if answer is None else float(answer)
        return Outcomes.of([answers], [float(session.loss.epsilon)])

    return repeat(run)


def threshold_pair(
    name: str,
    mechanism: Thresholdout,
    left: Sequence[int],
    right: Sequence[int],
    *,
    run_instead: Thresholdout | None = None,
) -> Pair:
    """Return the threshold test of a session alone, many runs at once; gaps in quarters of a row's influence.

    ``run_instead`` plants a fault: another mechanism runs under the claim and the bills of this one.
    """
    rule, runner = mechanism.rule, (run_instead or mechanism).rule

    def sampler(means: Sequence[int]) -> Sampler:
        def runs(count: int, bits: BitSource) -> Outcomes:
            answers, gaps = runner.simulate([mean * GRID for mean in means], runs=count, bits=bits)
            bills = (answers == 1).sum(1) * float(rule.epsilon_threshold + rule.epsilon_query)
            bills = bills + (answers[:, -1] == 0) * float(rule.epsilon_threshold)
            return Outcomes.of(np.hstack([answers, np.clip(gaps // (GRID // 4), -1, 12)]), bills)

        return runs

    return Pair(name, ExPost(rule.guarantee), sampler(left), sampler(right))


def _pairs() -> Sequence[Pair]:
    analysed, improved = Thresholdout(small_plan("analysed")), Thresholdout(small_plan("improved"))
    twice = Thresholdout(small_plan("improved", hits=2))
    return (
        threshold_pair("analysed, its test", analysed, _RISE, _FALL),
        threshold_pair("improved, its test", improved, _RISE, _FALL),
        threshold_pair("improved, its test, two hits", twice, [0, 1, 0, 1], [1, 0, 1, 0]),
        holdout_pair("analysed, whole session", analysed, [1], [0]),
        holdout_pair("improved, whole session", improved, [1], [0]),
    )
