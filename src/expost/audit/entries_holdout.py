"""Attacks on the reusable holdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from expost.audit.claim import ExPost
from expost.audit.entry import Entry
from expost.audit.pair import Outcomes, Pair, Sampler, repeat
from expost.holdout.noise_level import GRID, NoiseLevel
from expost.holdout.plan import HoldoutPlan, Variant
from expost.holdout.thresholdout import Thresholdout
from expost.noise.bits import BitSource

__all__ = ["entries", "holdout_pair", "small_plan"]

_RISE, _FALL = [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]  # all totals rise but the last, which falls: the worst case


def entries() -> Iterable[Entry]:
    """Thresholdout in both variants; what is built on it asks the same session."""
    wrappers = ("expost.holdout.ReusableHoldout", "expost.holdout.PrivateBoard")
    return (Entry("expost.holdout.Thresholdout", _pairs, also=wrappers),)


def small_plan(variant: Variant, *, hits: int = 1) -> HoldoutPlan:
    """A holdout of one row, so that all of a row's influence shows; scales of a few rows' worth."""
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


def _pairs() -> Sequence[Pair]:
    analysed, improved = Thresholdout(small_plan("analysed")), Thresholdout(small_plan("improved"))
    twice = Thresholdout(replace(small_plan("improved"), max_hits=2))
    return (
        holdout_pair("analysed, all rise but the last", analysed, _RISE, _FALL),
        holdout_pair("analysed, a single question", analysed, [1], [0]),
        holdout_pair("improved, all rise but the last", improved, _RISE, _FALL),
        holdout_pair("improved, a single question", improved, [1], [0]),
        holdout_pair("improved, two answers", twice, [0, 1, 0, 1], [1, 0, 1, 0]),
    )
