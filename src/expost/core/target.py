"""What accuracy is asked for."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.core.errors import InvalidRequest
from expost.core.rational import decimal_text, probability, rational

__all__ = ["Measure", "Target"]


class Measure(enum.Enum):
    """How the distance from the exact answer is measured.

    >>> Measure("relative error").is_loss
    True
    """

    ABSOLUTE_ERROR = "absolute error"
    RELATIVE_ERROR = "relative error"
    EXCESS_RISK = "excess risk"
    MEAN_LOSS = "mean loss"
    LOG_LOSS = "log loss"
    RMSE = "rmse"
    R2 = "r2"
    ACCURACY = "accuracy"
    POWER = "power"
    RANK_ERROR = "rank error"

    @property
    def is_loss(self) -> bool:
        """Whether smaller is better."""
        return self not in (Measure.R2, Measure.ACCURACY, Measure.POWER)


@dataclass(frozen=True, slots=True)
class Target:
    """An accuracy asked for: measure, tolerance, and how often it may be missed.

    >>> print(Target.within("5%", confidence=0.95))
    relative error <= 0.05 with probability 0.95
    >>> print(Target.within(100, confidence=0.9))
    absolute error <= 100 with probability 0.9

    For a test ``tolerance`` is the power asked for and ``failure_probability`` its level.

    >>> print(Target(Measure.POWER, 0.8, 0.05))
    power >= 0.8 at level 0.05
    """

    measure: Measure
    tolerance: Fraction
    failure_probability: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", rational(self.tolerance, "tolerance"))
        object.__setattr__(self, "failure_probability", probability(self.failure_probability, "failure_probability"))

    @classmethod
    def within(cls, within: object, *, confidence: object = 0.95) -> Target:
        """The target of ``within=100`` (absolute) or ``within="5%"`` (relative)."""
        failure = 1 - probability(confidence, "confidence")
        if isinstance(within, str):
            return cls(Measure.RELATIVE_ERROR, _percentage(within), failure)
        do = 'Pass a positive number such as 100, or a percentage such as "5%"'
        return cls(Measure.ABSOLUTE_ERROR, rational(within, "within", do=do), failure)

    @property
    def confidence(self) -> Fraction:
        """The probability with which the target is reached."""
        return 1 - self.failure_probability

    def to_json(self) -> dict[str, str]:
        """A JSON object without loss."""
        return {
            "measure": self.measure.value,
            "tolerance": str(self.tolerance),
            "failure_probability": str(self.failure_probability),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Target:
        """The target that ``to_json`` wrote."""
        return cls(Measure(data["measure"]), Fraction(data["tolerance"]), Fraction(data["failure_probability"]))

    def __str__(self) -> str:
        if self.measure is Measure.POWER:
            return f"power >= {decimal_text(self.tolerance)} at level {decimal_text(self.failure_probability)}"
        sign = "<=" if self.measure.is_loss else ">="
        confidence = f"{float(self.confidence):.6g}"
        return f"{self.measure.value} {sign} {decimal_text(self.tolerance)} with probability {confidence}"


def _percentage(text: str) -> Fraction:
    do = 'Pass a positive number such as 100, or a percentage such as "5%"'
    number, sign, rest = text.strip().partition("%")
    try:
        share = Fraction(number.strip()) / 100 if sign and not rest else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 < share < 1:
        raise InvalidRequest("Expected within to be a percentage between 0% and 100%", got=text, do=do)
    return share
