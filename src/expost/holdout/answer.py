"""What a reusable holdout says."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from expost.holdout.generalization import Bound

__all__ = ["HoldoutAnswer", "Origin"]


class Origin(enum.Enum):
    """Where an answer comes from.

    >>> Origin("holdout")
    <Origin.HOLDOUT: 'holdout'>
    """

    TRAINING = "training"
    """The caller's own estimate: holdout and training agree within the threshold."""
    HOLDOUT = "holdout"
    """The noisy value on the holdout: the question overfits the training sample. Costs one of the budget."""


@dataclass(frozen=True, kw_only=True)
class HoldoutAnswer:
    """An answer, where it comes from, what it promises and what is left.

    ``bound`` holds for the value on the population, for all answers of the session at once, with the session's failure
    probability; it rests on public counts only.

    >>> answer = HoldoutAnswer(
    ...     value=0.71, origin=Origin.TRAINING, bound=Bound(0.05, "theorem"), hits_left=3, queries_left=90
    ... )
    >>> float(answer), answer.interval
    (0.71, (0.6599999999999999, 0.76))
    """

    value: float
    origin: Origin
    bound: Bound
    hits_left: int
    queries_left: int

    @property
    def interval(self) -> tuple[float, float]:
        """Where the value on the population lies."""
        return max(self.value - self.bound.error, 0.0), min(self.value + self.bound.error, 1.0)

    def __float__(self) -> float:
        return self.value
