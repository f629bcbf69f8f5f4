"""Settings tried one after the other until one reaches the target, all within one bill."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from expost.accuracy.black_box import Attempt, BlackBoxLadder, LadderResult
from expost.core import Adjacency, ApproxLoss, InvalidRequest, Ladder, Outcome, PlanContext, Receipt, Release, Target
from expost.data.row_identity import KEY_BITS, row_coins
from expost.models.descent.stopping_price import PriceList
from expost.models.descent.stopping_test import ScoreRule
from expost.models.descent.trainer import Learner, Trainer, TrainingTable
from expost.models.descent.training_checkpoint import TrainingProgress
from expost.models.descent.training_schedule import Batches, Schedule
from expost.models.descent.training_watch import Progress, Quiet
from expost.noise import BitSource, LaplaceMechanism, sample_uniform
from expost.noise.coin import sample_rows

__all__ = ["TuningPlan", "TuningSetting", "doubling_ladder"]

_CITATIONS = (
    "docs/proofs/black-box-ladder.md",
    "ACG16, Algorithm 1",
    "docs/proofs/sgd-gradient.md",
    "DR14, Theorem 3.6",
)
_MARGIN = 1 + 1e-9  # for logarithms taken in floats
_HALVINGS = 40


@dataclass(frozen=True)
class TuningSetting:
    """One way to train: how rows become a table, how batches are drawn, how many steps there are."""

    name: str
    table: Callable[[Any], TrainingTable]
    batches: Batches
    steps: int


def doubling_ladder(max_epsilon: Fraction, delta: Fraction, *, levels: int, fallback: bool = False) -> BlackBoxLadder:
    """Return levels that double, as high as the whole bill allows.

    >>> ladder = doubling_ladder(Fraction(1), Fraction(1, 10**6), levels=4)
    >>> [round(float(level), 3) for level in ladder.levels], round(float(ladder.guarantee.epsilon), 3)
    ([0.068, 0.135, 0.27, 0.541], 1.0)
    """

    def ladder(top: Fraction) -> BlackBoxLadder:
        rungs = tuple(top / 2**step for step in reversed(range(levels)))
        # A coin of 1/2: one attempt per level on average, and one more where there is a fallback. Their deltas add up.
        return BlackBoxLadder(Ladder(rungs), delta=delta / (levels + fallback), fallback=fallback)

    low, high = max_epsilon / 4, max_epsilon
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if ladder(middle).guarantee.epsilon <= max_epsilon else (low, middle)
    return ladder(low)


@dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """Trains with a setting drawn at random, tests the model on rows held out, and repeats, at levels that double.

    An attempt draws a setting and splits the rows into training and validation again. A row pays for training, (level,
    delta), or for one noisy score, level; so an attempt is (level, delta)-DP, and the black-box ladder hides how many
    there were. ``read`` converts a dataset to what the settings make their tables of. With a ladder that has a fallback,
    a miss comes with one more model, of the setting numbered ``fallback``.

    The plan does not depend on the dataset, so it is its own query: ``plan`` returns it unchanged.

    Guarantee: approximate ex-post, known only after the run: that of BlackBoxLadder at the level that succeeded.
    Adjacency: add/remove of one row.
    Sensitivity: of each step that of its learner; of a score ``rule.sensitivity``.
    Accuracy: a model that misses the target on its validation rows is accepted with probability failure_probability at
        most, over all attempts.
    Numerics: exact noise, coins and integer sums; prices are rounded up.
    Reference: docs/proofs/black-box-ladder.md; LT19, Theorem 3.1; ACG16, Algorithm 1.
    """

    question: str
    settings: tuple[TuningSetting, ...]
    ladder: BlackBoxLadder
    target: Target
    rule: ScoreRule
    validation_share: Fraction
    accountant: str = "auto"
    terms: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Any], Any] = lambda data: data
    fallback: int = 0
    progress: Callable[[], Progress] | None = None

    def __post_init__(self) -> None:
        if not self.settings:
            raise InvalidRequest("Expected at least one setting", do="Pass the models to choose from")

    @property
    def worst_case(self) -> ApproxLoss:
        return ApproxLoss(*self.ladder.guarantee.amounts().values())

    @cached_property
    def schedules(self) -> Mapping[tuple[int, Fraction], Schedule]:
        """Return the noise of every setting at every level; raise if a level cannot be kept. All of it is public."""
        return {
            (number, level): Schedule.fixed(
                setting.batches, steps=setting.steps, epsilon=level, delta=self.ladder.delta, accountant=self.accountant
            )
            for number, setting in enumerate(self.settings)
            for level in self.ladder.levels
        }

    def plan(self, dataset: Any, context: PlanContext) -> TuningPlan:
        """Return this plan, once its schedules are found to be possible; reads no rows."""
        assert self.schedules
        return self

    def measure(self, dataset: Any) -> tuple[TrainingTable, ...]:
        data = self.read(dataset)
        return tuple(setting.table(data) for setting in self.settings)

    def margin_at(self, level: Fraction) -> int:
        """Return how far above the target a noisy score must be."""
        # There are at most (1 - leave) / leave attempts per level on average, so the failure probability is shared by as
        # many chances to err (Wald's identity).
        chances = len(self.ladder.levels) * float((1 - self.ladder.leave) / self.ladder.leave)
        share, scale = float(self.target.failure_probability) / chances, float(self.rule.sensitivity.amount / level)
        # P(X >= m) = a^m / (1 + a) for discrete Laplace noise of decay a = exp(-1 / scale).
        return max(0, math.ceil(scale * -math.log(share * (1 + math.exp(-1 / scale))) * _MARGIN))

    def climb(self, sealed: tuple[TrainingTable, ...], bits: BitSource) -> Release[Any]:
        """Try until one setting passes or the last level is left."""

        def attempt(number: int, level: Fraction) -> Attempt[tuple[int, Any]]:
            table = sealed[number]
            # A keyed coin of each row's own content, fresh in every attempt: no row moves another, nor any later draw.
            coins, _ = row_coins(table.yield_contents(), bits.integer(KEY_BITS) | 1)
            held_out = sample_rows(self.validation_share, len(table), words=coins)
            learner = table.learner(np.delete(np.arange(len(table)), held_out), held_out)
            self._train_setting(learner, number, level, bits)
            score = LaplaceMechanism(level).release(learner.score(self.rule, self.margin_at(level)), bits=bits)
            return Attempt((number, learner.build_result()), float(np.asarray(score).item()))

        def show(rung: int) -> None:
            # The level alone: how often a model was trained at it is hidden, and the bill relies on that.
            spent = Fraction(self.ladder.spent(rung).amounts()["epsilon"])
            shown.advance_steps(rung + 1, len(self.ladder.levels), spent, "level")

        with self.progress() if self.progress else Quiet() as shown:
            result = self.ladder.run(
                lambda level, _: attempt(int(sample_uniform(len(self.settings), 1, bits=bits)[0]), level),
                score=0.0,
                bits=bits,
                fallback=lambda level, _: attempt(self.fallback, level),
                entered=show,
            )
        return Release(None if result.attempt is None else result.attempt.model[1], self._build_receipt(result))

    def _train_setting(self, learner: Learner, number: int, level: Fraction, bits: BitSource) -> None:
        """Train one model at one level, to its end."""
        prices = PriceList((level,), self.ladder.delta, self.accountant)
        trainer = Trainer(learner, self.schedules[number, level], prices, bits=bits)
        if trainer.run(TrainingProgress({})).interrupted:
            raise KeyboardInterrupt  # the ladder's guarantee is about attempts that ran to their end

    def _build_receipt(self, result: LadderResult[Any]) -> Receipt:
        """Return the receipt of a climb."""
        assert isinstance(result.loss, ApproxLoss)
        passed = result.rung is not None
        terms = dict(self.terms) | {
            "levels": [float(f"{float(level):.6g}") for level in self.ladder.levels],
            "settings": [setting.name for setting in self.settings],
            "validation share": str(self.validation_share),
        }
        if result.attempt is not None:
            terms["setting"] = self.settings[result.attempt.model[0]].name
        return Receipt(
            question=self.question,
            method="private gradient descent, settings tried in a black-box ladder",
            promise=self.ladder.guarantee,
            bill=result.loss,
            adjacency=Adjacency.ADD_REMOVE,
            outcome=Outcome.TESTED if passed else Outcome.NOT_MET,
            target=self.target,
            achieved=float(self.target.tolerance) if passed else None,
            rung=result.rung,
            rungs=len(self.ladder.levels),
            terms=terms,
            citations=_CITATIONS,
        )
