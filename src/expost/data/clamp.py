"""Public bounds of a number, cut into whole steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.rational import rational

__all__ = ["MOST_STEPS", "Clamp"]

MOST_STEPS = 1 << 20
"""Steps between the bounds of a column that is not a short range of integers."""

_MOST_DIGITS = 20  # floats have 17


@dataclass(frozen=True, slots=True)
class Clamp:
    """Clamps numbers to public bounds and counts them in whole steps from the lower one.

    A value becomes an integer from 0 to ``steps`` by a function of that value alone, so integer totals do not depend
    on order, batch, engine or thread. The rounding moves a value by at most half a step.

    >>> clamp = Clamp.of((0, 120), whole=True)
    >>> clamp.to_steps(np.array([41.0, -5.0, 500.0, np.inf])).tolist()
    [41.0, 0.0, 120.0, 120.0]
    >>> clamp.to_value(41)
    41.0
    """

    low: Fraction
    high: Fraction
    steps: int
    whole: bool = False

    @classmethod
    def of(cls, bounds: object, *, whole: bool = False) -> Clamp:
        """The clamp for public bounds; ``whole`` says that the values are integers, which need no rounding."""
        low, high = _bounds(bounds)
        width = high - low
        if whole and low.denominator == high.denominator == 1 and width <= MOST_STEPS:
            return cls(low, high, int(width), whole=True)
        return cls(low, high, MOST_STEPS)

    @property
    def step(self) -> Fraction:
        """The distance of two neighbouring steps."""
        return (self.high - self.low) / self.steps

    @property
    def rounding(self) -> Fraction:
        """How far a value between the bounds can be from its step."""
        return Fraction(0) if self.whole else self.step / 2

    def to_steps(
        self, values: NDArray[np.floating[Any]], out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Each number, clamped and rounded to the nearest step: whole floats, exact because they are below 2^53.

        Missing numbers must be taken out before; infinities are clamped like other numbers.
        """
        low, high = float(self.low), float(self.high)
        with np.errstate(all="ignore"):
            steps: NDArray[np.float64] = np.subtract(values, low, out=out, dtype=np.float64)
            np.multiply(steps, self.steps / (high - low), out=steps)
            # Clamping comes after scaling, so that no rounding can lead beyond the last step.
            np.clip(steps, 0, self.steps, out=steps)
            np.rint(steps, out=steps)
        return steps

    def to_value(self, steps: float | Fraction) -> float:
        """The number at a (possibly fractional) step."""
        return float(self.low + Fraction(steps) * self.step)

    def to_roundest(self, step: int) -> float:
        """The number with the fewest decimal digits among those that count as this step; at the ends a bound.

        Where all values are decimals further than a step from each other (ages in a column of floats, prices), the
        values at a step are this very number: a shorter decimal in the cell would be one of theirs.

        >>> clamp = Clamp.of((0, 120))
        >>> step = int(clamp.to_steps(np.array([54.1]))[0])
        >>> clamp.to_value(step), clamp.to_roundest(step)
        (54.099998474121094, 54.1)
        """
        centre = self.low + step * self.step
        if self.whole or not 0 < step < self.steps:
            return float(centre)
        leading = math.floor(math.log10(max(abs(float(self.low)), abs(float(self.high)))))
        for digits in range(-leading - 1, _MOST_DIGITS - leading):
            number = float(round(centre * Fraction(10) ** digits) / Fraction(10) ** digits)
            if self.to_steps(np.array([number]))[0] == step:
                return number
        return float(centre)

    def to_terms(self) -> list[float]:
        """The bounds, for a receipt."""
        return [float(self.low), float(self.high)]


def _bounds(bounds: object) -> tuple[Fraction, Fraction]:
    do = "Pass bounds such as (0, 120) that hold whatever the data"
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidRequest("Expected public bounds (low, high)", got=bounds, do=do)
    low, high = (_signed(end, do) for end in bounds)
    if low >= high:
        raise InvalidRequest("Expected the lower bound below the upper one", got=f"{bounds[0]}, {bounds[1]}", do=do)
    if not (math.isfinite(float(low)) and float(high) - float(low) > 0):
        raise InvalidRequest("Expected finite bounds that floats can tell apart", do=do)
    return low, high


def _signed(value: object, do: str) -> Fraction:
    negative = isinstance(value, int | float) and value < 0
    size = rational(-value if negative else value, "bound", positive=False, do=do)  # type: ignore[operator]
    return -size if negative else size
