"""Thresholdout: does the holdout agree with the training sample, and if not, what does it say?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from expost.core import PureLoss, Sealed
from expost.holdout.noise_level import GRID
from expost.holdout.plan import HoldoutPlan
from expost.holdout.question import SENSITIVITY
from expost.noise import BitSource
from expost.noise.above_threshold import AboveThreshold
from expost.noise.laplace_mechanism import LaplaceMechanism

__all__ = ["Thresholdout", "ThresholdoutSession"]


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

    >>> from expost.holdout.plan import plan_holdout
    >>> from expost.noise import SeededBits
    >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=100, variant="improved")
    >>> session = Thresholdout(plan).open(bits=SeededBits(1))
    >>> agrees = session.ask(25_000 * GRID, guess=Fraction(1, 2))
    >>> overfits = session.ask(25_000 * GRID, guess=Fraction(9, 10))
    >>> agrees is None, abs(overfits - Fraction(1, 2)) < Fraction(1, 20)
    (True, True)
    """

    plan: HoldoutPlan

    @property
    def rule(self) -> AboveThreshold:
        """The threshold test behind it, in lattice units of the total."""
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
        """A session that answers questions."""
        return ThresholdoutSession(self, bits)


class ThresholdoutSession:
    """One run of Thresholdout; exact totals go in, and are sealed before anything else happens to them.

    >>> from expost.holdout.plan import plan_holdout
    >>> plan = plan_holdout(50_000, tolerance=0.1, failure_probability=0.05, max_queries=100, variant="improved")
    >>> Thresholdout(plan).open().loss
    PureLoss(epsilon=Fraction(0, 1))
    """

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
        """The noisy mean of an exact total if it is far from the guess, on the lattice of answers; else nothing."""
        centre = round(guess * self._plan.rows * GRID)
        found = self._ask_gap(total, centre) if self._plan.level.one_sided else self._ask_fresh(total, centre)
        return None if found is None else self._rounded(found)

    def _ask_fresh(self, total: int, centre: int) -> Fraction | None:
        """The published way: compare the absolute difference, then release the total under noise of its own."""
        if not self._test.ask(Sealed(abs(total - centre), SENSITIVITY)).above:
            return None
        scale = self._plan.level.answer_scale
        assert scale is not None
        self._answers += 1
        noisy = LaplaceMechanism(1 / (scale * self._plan.rows)).release(Sealed(total, SENSITIVITY), bits=self._bits)
        return Fraction(int(noisy), self._plan.rows * GRID)

    def _ask_gap(self, total: int, centre: int) -> Fraction | None:
        """Compare both signed differences; the gap of the one that crosses is its noisy excess over the threshold."""
        rule = self._test.rule
        # The gap exceeds the true one by question noise minus threshold noise; their means are taken off.
        bias = _mean_of_geometric(rule.query_scale) - _mean_of_geometric(rule.threshold_scale)
        for sign in (1, -1):
            crossing = self._test.ask(Sealed(sign * (total - centre), SENSITIVITY))
            if crossing.above:
                assert crossing.gap is not None
                excess = rule.threshold + crossing.gap - round(bias)
                return Fraction(centre + sign * excess, self._plan.rows * GRID)
        return None

    def _rounded(self, mean: Fraction) -> Fraction:
        """The nearest of the few answers there are: the transcript stays short, and nothing is lost."""
        step = self._plan.answer_step
        return min(max(round(mean / step), 0), math.floor(1 / step)) * step


def _mean_of_geometric(scale: Fraction) -> float:
    return 1 / math.expm1(1 / float(scale))
