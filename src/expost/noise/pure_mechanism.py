"""What all mechanisms of one epsilon share."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from expost.core.guarantee import PureGuarantee
from expost.core.loss import PureLoss
from expost.core.rational import rational

__all__ = ["PureMechanism"]


@dataclass(frozen=True)
class PureMechanism:
    """The base of mechanisms that promise, and cost, one epsilon known before the run.

    >>> PureMechanism(0.5).guarantee
    PureGuarantee(epsilon=Fraction(1, 2))
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise."""
        return PureGuarantee(self.epsilon)

    @property
    def loss(self) -> PureLoss:
        """The bill of one release."""
        return PureLoss(self.epsilon)
