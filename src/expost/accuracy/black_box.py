"""Accuracy first for any private trainer: levels that rise, and attempts that are almost free while they fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from expost.core import ApproxGuarantee, ApproxLoss, InvalidRequest, Ladder, PureGuarantee, PureLoss
from expost.core.rational import probability, round_up
from expost.noise import BitSource, sample_bernoulli

__all__ = ["Attempt", "BlackBoxLadder", "LadderResult"]

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """The result of a private trainer: a model and its score, both covered by the trainer's own epsilon."""

    model: T
    score: float


Trainer = Callable[[Fraction, BitSource | None], Attempt[Any]]


@dataclass(frozen=True)
class LadderResult(Generic[T]):
    """The end of a ladder: the attempt that reached the score, if any did, its level, and the bill of everything.

    If ``rung`` is None no attempt reached it; the attempt is then the fallback's, or None.
    """

    attempt: Attempt[T] | None
    rung: int | None
    loss: PureLoss | ApproxLoss


@dataclass(frozen=True)
class BlackBoxLadder:
    """Runs a private trainer repeatedly, at levels that rise, until its own private score reaches a target.

    At each level a coin comes *before* every attempt: with probability ``leave`` the level is left for the next one. The
    number of attempts is hidden by the coin, so failed attempts cost little: ln 1 / (leave + (1 - leave) e^-epsilon) per
    level. What a trainer draws for itself, such as its settings, is part of the attempt and costs nothing more. With
    ``fallback`` a ladder that reached nothing makes one more attempt at its highest level and releases that, good or
    bad; a miss then costs as much as a success there. Failed attempts are never released: their bill is for hiding them.

    Guarantee: pure ex-post DP, known only after the run: the level that succeeded plus the price of every level entered;
        at most the cap plus the prices of all levels. With a ``delta``, that of each attempt, approximate ex-post: the
        same, and (1 - leave) / leave deltas for every level there is, and one for a fallback.
    Adjacency: the trainer's.
    Sensitivity: none of its own; the trainer must be (epsilon, delta)-DP at each level, its score included.
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
    delta: Fraction = Fraction(0)
    fallback: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "leave", probability(self.leave, "leave"))
        if self.delta:
            object.__setattr__(self, "delta", probability(self.delta, "delta"))
            if self._missing >= 1:
                raise InvalidRequest("Expected a delta far below leave", got=float(self.delta), do="Lower delta")

    @property
    def _missing(self) -> Fraction:
        """The most that one level can add to delta: attempts are (1 - leave) / leave on average, at most."""
        return self.delta * (1 - self.leave) / self.leave

    def price(self, rung: int) -> Fraction:
        """Return the cost of entering a level, whatever happens there: ln 1 / (leave + (1 - leave) e^-epsilon)."""
        stay = float(1 - self.leave)
        # docs/proofs/black-box-ladder.md, with delta: the level is left with odds that delta shifts by this much.
        shifted = -math.log1p(-float(self._missing))
        return round_up(shifted - math.log1p(stay * math.expm1(-float(self.levels[rung]))))

    def spent(self, rung: int | None) -> PureLoss | ApproxLoss:
        """Return the bill of a success at this rung, or of no success."""
        last = len(self.levels) - 1 if rung is None else rung
        # Levels that failed cost their entry only; the one that succeeded also releases a model of its level.
        entered = sum((self.price(each) for each in range(last + 1)), Fraction(0))
        released = self.fallback if rung is None else True
        epsilon = entered + (self.levels[last] if released else 0)
        # For all levels, also those not entered: a delta is a worst case over runs, not a realized loss.
        delta = self._missing * len(self.levels) + self.delta * self.fallback
        return ApproxLoss(epsilon, delta) if self.delta else PureLoss(epsilon)

    @property
    def guarantee(self) -> PureGuarantee | ApproxGuarantee:
        """The promise: the most that a run can cost."""
        most = self.spent(len(self.levels) - 1)
        if isinstance(most, ApproxLoss):
            return ApproxGuarantee(most.epsilon, most.delta)
        return PureGuarantee(most.epsilon)

    def run(
        self,
        trainer: Trainer,
        *,
        score: float,
        bits: BitSource | None = None,
        fallback: Trainer | None = None,
        entered: Callable[[int], None] | None = None,
    ) -> LadderResult[Any]:
        """Return the first attempt whose score reaches the target.

        ``trainer(level, bits)`` must be (level, delta)-DP. ``fallback``, by default the trainer, makes the attempt after
        a miss. ``entered`` is called with each rung as it begins: the rungs are public, how often the trainer ran is not.
        """
        for rung, level in enumerate(self.levels):
            if entered is not None:
                entered(rung)
            # The coin must precede the run: a failed attempt must not reveal that it was made.
            while not bool(sample_bernoulli(self.leave, bits=bits)):
                attempt = _check_attempt(trainer(level, bits))
                if attempt.score >= score:
                    return LadderResult(attempt, rung, self.spent(rung))
        kept = _check_attempt((fallback or trainer)(self.levels[-1], bits)) if self.fallback else None
        return LadderResult(kept, None, self.spent(None))


def _check_attempt(attempt: object) -> Attempt[Any]:
    """Return what a trainer returned if it is an attempt; raise ``InvalidRequest`` otherwise."""
    if not isinstance(attempt, Attempt):
        raise InvalidRequest("Expected the trainer to return an Attempt", do="Return Attempt(model, score)")
    return attempt
