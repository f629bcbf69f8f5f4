"""Accuracy first for any private trainer: levels that rise, and attempts that cost nothing while they fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from expost.core import InvalidRequest, Ladder, PureGuarantee, PureLoss
from expost.core.rational import probability, round_up
from expost.noise import BitSource, bernoulli

__all__ = ["Attempt", "BlackBoxLadder", "LadderResult"]

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """What a private trainer returns: a model and its score, both covered by the trainer's own epsilon."""

    model: T
    score: float


@dataclass(frozen=True)
class LadderResult(Generic[T]):
    """How a ladder ended: the attempt that reached the score, or none; and what all of it cost."""

    attempt: Attempt[T] | None
    rung: int | None
    loss: PureLoss


@dataclass(frozen=True)
class BlackBoxLadder:
    """Runs a private trainer again and again, at levels that rise, until its own private score reaches a target.

    At each level a coin comes *before* every attempt: with probability ``leave`` the level is left for the next one. The
    number of attempts is hidden by the coin, so failed attempts cost little: ln 1 / (leave + (1 - leave) e^-epsilon) a level.

    Guarantee: pure ex-post DP, known only after the run: the level that succeeded plus the price of every level entered;
        at most the cap plus the prices of all levels.
    Adjacency: the trainer's.
    Sensitivity: none of its own; the trainer must be pure epsilon-DP at each level, its score included.
    Accuracy: the score returned is the trainer's own, at least the target.
    Numerics: the coin is exact; prices are rounded up.
    Reference: docs/proofs/black-box-ladder.md; LT19, Theorem 3.1 (one level); GKKKMZ25 (the same promise).

    >>> ladder = BlackBoxLadder(Ladder.of([0.1, 0.2, 0.4]))
    >>> result = ladder.run(lambda level, bits: Attempt("model", float(level)), score=0.35)
    >>> result.loss.within(ladder.guarantee)
    True
    """

    levels: Ladder
    leave: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leave", probability(self.leave, "leave"))

    def price(self, rung: int) -> Fraction:
        """What entering a level costs, whatever happens there: ln 1 / (leave + (1 - leave) e^-epsilon), rounded up."""
        stay = float(1 - self.leave)
        return round_up(-math.log1p(stay * math.expm1(-float(self.levels[rung]))))

    def spent(self, rung: int | None) -> PureLoss:
        """The bill of a success at this rung, or of none at all."""
        last = len(self.levels) - 1 if rung is None else rung
        entered = sum((self.price(each) for each in range(last + 1)), Fraction(0))
        return PureLoss(entered + (0 if rung is None else self.levels[rung]))

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise: the most that a run can cost."""
        return PureGuarantee(self.spent(len(self.levels) - 1).epsilon)

    def run(
        self,
        trainer: Callable[[Fraction, BitSource | None], Attempt[Any]],
        *,
        score: float,
        bits: BitSource | None = None,
    ) -> LadderResult[Any]:
        """The first attempt whose score reaches the target; ``trainer(level, bits)`` must be level-DP."""
        for rung, level in enumerate(self.levels):
            # The coin must precede the run: an attempt that fails must not tell that it was made.
            while not bool(bernoulli(self.leave, bits=bits)):
                attempt = trainer(level, bits)
                if not isinstance(attempt, Attempt):
                    raise InvalidRequest("Expected the trainer to return an Attempt", do="Return Attempt(model, score)")
                if attempt.score >= score:
                    return LadderResult(attempt, rung, self.spent(rung))
        return LadderResult(None, None, self.spent(None))
