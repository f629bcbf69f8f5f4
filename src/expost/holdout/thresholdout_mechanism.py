"""Thresholdout: compare the holdout with the training sample, and answer from the holdout where they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from expost.core import PureLoss, Sealed
from expost.holdout.holdout_plan import GRID, HoldoutPlan
from expost.holdout.holdout_sample import SENSITIVITY
from expost.noise import BitSource
from expost.noise.above_threshold import AboveThreshold
from expost.noise.mechanism import LaplaceMechanism

__all__ = ["Thresholdout", "ThresholdoutSession", "gap_bias"]


@dataclass(frozen=True)
class Thresholdout:
    """Answers from a guess as long as it is close to the holdout, and from the holdout, with noise, when it is not.

    ``analysed``: the published algorithm: two-sided noise on the absolute difference, a fresh threshold after each
    answer from the holdout, and that answer with noise of its own. ``improved``: one-sided noise on both signed
    differences, and the gap of the one that crossed as the answer, which is free.

    Guarantee: pure ex-post, known only after the run: ``hit_epsilon`` for each answer from the holdout, plus
        ``threshold_epsilon`` if questions were asked since the last one; at most ``max_hits * hit_epsilon``.
    Adjacency: replace-one, the number of holdout rows is public. The training sample is not protected.
    Sensitivity: 1 for the total of values in [0, 1], GRID lattice units.
    Accuracy: plan.promise, against the population; plan.level.sample_errors, against the holdout sample.
    Numerics: exact; totals, thresholds and noise are integers on the lattice, scales exact rationals.
    Reference: LeeNotes, Algorithm 1 and Lemma 3.2(1); DFHPRR15, Theorem 25; docs/proofs/above-threshold.md;
        docs/proofs/generalization.md.

    Parameters
    ----------
    plan : HoldoutPlan
        The public terms of the session.

    Examples
    --------
    >>> from expost.holdout import plan_holdout
    >>> from expost.noise import SeededBits
    >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=100)
    >>> session = Thresholdout(plan).open(bits=SeededBits(1))
    >>> agrees = session.ask(25_000 * GRID, guess=Fraction(1, 2))
    >>> overfits = session.ask(25_000 * GRID, guess=Fraction(9, 10))
    >>> agrees is None, abs(overfits - Fraction(1, 2)) < Fraction(1, 20)
    (True, True)
    """

    plan: HoldoutPlan

    @property
    def rule(self) -> AboveThreshold:
        """The threshold test that decides, in lattice units of the total."""
        plan, level = self.plan, self.plan.level
        return AboveThreshold(
            threshold=round(level.threshold * plan.rows * GRID),
            sensitivity=SENSITIVITY,
            # One row moves the total by GRID: a scale of s in units of the mean is s rows GRID in lattice units.
            epsilon_threshold=1 / (level.threshold_scale * plan.rows),
            epsilon_query=2 / (level.query_scale * plan.rows),
            hits=plan.max_hits,
            two_sided=not level.one_sided,
        )

    def open(self, *, bits: BitSource | None = None) -> ThresholdoutSession:
        """Open a session that answers questions.

        Parameters
        ----------
        bits : BitSource, optional
            The source of randomness. Default: cryptographic.
        """
        return ThresholdoutSession(self, bits)


class ThresholdoutSession:
    """One run of Thresholdout. Exact totals go in, and are sealed before anything else happens to them."""

    def __init__(self, mechanism: Thresholdout, bits: BitSource | None) -> None:
        self._plan, self._bits = mechanism.plan, bits
        self._test = mechanism.rule.open(bits=bits)
        self._answers = 0

    @property
    def hits_left(self) -> int:
        """How many answers from the holdout are left."""
        return self._test.hits_left

    @property
    def loss(self) -> PureLoss:
        """What the answers so far have cost."""
        scale = self._plan.level.answer_scale
        answers = Fraction(0) if scale is None else self._answers / (scale * self._plan.rows)
        return PureLoss(self._test.loss.epsilon + answers)

    def ask(self, total: int, *, guess: Fraction) -> Fraction | None:
        """Return the noisy mean of an exact total if it is far from the guess, else None."""
        center = round(guess * self._plan.rows * GRID)
        found = self._ask_gap(total, center) if self._plan.level.one_sided else self._ask_fresh(total, center)
        if found is None:
            return None
        # Rounded to one of few answers, so that the transcript stays short.
        step = self._plan.answer_step
        mean = Fraction(found, self._plan.rows * GRID)
        return min(max(round(mean / step), 0), math.floor(1 / step)) * step

    def _ask_fresh(self, total: int, center: int) -> int | None:
        """Compare the absolute difference, then release the total under noise of its own, as published."""
        if not self._test.ask(Sealed(abs(total - center), SENSITIVITY)).above:
            return None
        scale = self._plan.level.answer_scale
        assert scale is not None
        self._answers += 1
        mechanism = LaplaceMechanism(1 / (scale * self._plan.rows))
        return int(mechanism.release(Sealed(total, SENSITIVITY), bits=self._bits))

    def _ask_gap(self, total: int, center: int) -> int | None:
        """Compare both signed differences; the gap of the one that crosses is its noisy excess over the threshold."""
        rule = self._test.rule
        for sign in (1, -1):
            crossing = self._test.ask(Sealed(sign * (total - center), SENSITIVITY))
            if crossing.above:
                assert crossing.gap is not None
                return center + sign * (rule.threshold + crossing.gap - gap_bias(rule))
        return None


def gap_bias(rule: AboveThreshold) -> int:
    """Return by how much a one-sided gap exceeds the true one on average, in lattice units."""
    # Question noise minus threshold noise; 1 / (e^(1/scale) - 1) is the mean of geometric noise.
    return round(1 / math.expm1(1 / float(rule.query_scale)) - 1 / math.expm1(1 / float(rule.threshold_scale)))
