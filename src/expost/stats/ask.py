"""What the caller asks for: an accuracy, or a privacy level."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from expost.core import BudgetExceeded, InvalidRequest, Measure, Target
from expost.core.rational import rational

__all__ = ["Ask"]


@dataclass(frozen=True)
class Ask:
    """Either a target with a cap, or a fixed epsilon with the confidence of its interval.

    >>> Ask.of(within="5%", epsilon=None, confidence=0.95, max_epsilon=1).relative
    True
    >>> Ask.of(within=10, epsilon=0.1, confidence=0.95, max_epsilon=None)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected either within or epsilon. Pass within= for an accuracy ...
    """

    target: Target | None
    epsilon: Fraction | None
    failure_probability: Fraction
    cap: Fraction | None

    @classmethod
    def of(cls, *, within: object, epsilon: object, confidence: object, max_epsilon: object) -> Ask:
        """The ask behind the four usual arguments."""
        if (within is None) == (epsilon is None):
            raise InvalidRequest(
                "Expected either within or epsilon", do="Pass within= for an accuracy, or epsilon= for a privacy level"
            )
        cap = None if max_epsilon is None else rational(max_epsilon, "max_epsilon")
        failure = Target.within(1, confidence=confidence).failure_probability
        if within is None:
            return cls(None, rational(epsilon, "epsilon"), failure, cap)
        ask = cls(Target.within(within, confidence=confidence), None, failure, cap)
        if ask.relative and cap is None:
            raise InvalidRequest("Expected a cap beside a relative accuracy", do="Pass max_epsilon=")
        return ask

    @property
    def relative(self) -> bool:
        """Whether the accuracy depends on the answer, so that the level is found by climbing."""
        return self.target is not None and self.target.measure is Measure.RELATIVE_ERROR

    def check_price(self, price: Fraction) -> None:
        """Refuse a price above the cap; nothing is spent."""
        if self.cap is not None and price > self.cap:
            raise BudgetExceeded(
                f"Expected a price of at most epsilon {float(self.cap):.4g}",
                got=f"{float(price):.4g}",
                do="Raise max_epsilon, or ask for less accuracy",
            )
