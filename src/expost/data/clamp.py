"""Public bounds of a number, divided into whole steps."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.core.rational import rational

__all__ = ["MOST_STEPS", "Clamp"]

MOST_STEPS = 1 << 20
"""Number of steps between the bounds, unless the column is a shorter range of integers."""

_MOST_DIGITS = 20  # floats have 17


@dataclass(frozen=True, slots=True)
class Clamp:
    """Clamps numbers to public bounds and counts them in whole steps from the lower bound.

    A value becomes an integer from 0 to ``steps`` that depends on that value only, so integer totals do not depend on
    order, batch, engine or thread. Rounding moves a value by at most half a step.

    Parameters
    ----------
    low : Fraction
        Lower bound, in the column's units.
    high : Fraction
        Upper bound, in the column's units.
    steps : int
        Number of steps between the bounds.
    whole : bool, default False
        True if the values are integers and one step is 1, so that nothing is rounded.

    Examples
    --------
    >>> clamp = Clamp.of((0, 120), whole=True)
    >>> clamp.to_steps(np.array([41.0, -5.0, 500.0, np.inf])).tolist()
    [41.0, 0.0, 120.0, 120.0]
    >>> clamp.to_value(41)
    41.0
    """

    low: Fraction
    high: Fraction
    steps: int
    _: KW_ONLY
    whole: bool = False

    @classmethod
    def of(cls, bounds: object, *, whole: bool = False) -> Clamp:
        """Build a clamp from public bounds.

        Parameters
        ----------
        bounds : pair of numbers
            Lower and upper bound. They must not be computed from the data.
        whole : bool, default False
            True if the values are integers. Up to 2^20 of them need no rounding.
        """
        do = "Pass bounds such as (0, 120) that hold whatever the data"
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            close = suggest_name(bounds, ["private"]) if isinstance(bounds, str) else ""
            if bounds == "private":
                do = 'Only sums, means and spreads find their own: ask session.bounds("age", epsilon=0.1) and pass what it finds'
                close = ""
            raise InvalidRequest("Expected public bounds (low, high)", got=bounds, do=close or do)
        ends = []
        for end in bounds:  # which may be negative
            negative = isinstance(end, int | float) and end < 0
            size = rational(-end if negative else end, "bound", positive=False, do=do)
            ends.append(-size if negative else size)
        low, high = ends
        if low >= high:
            raise InvalidRequest("Expected the lower bound below the upper one", got=f"{bounds[0]}, {bounds[1]}", do=do)
        if not (math.isfinite(float(low)) and float(high) - float(low) > 0):
            raise InvalidRequest("Expected finite bounds that differ as 64-bit floats", do=do)
        width = high - low
        if whole and low.denominator == high.denominator == 1 and width <= MOST_STEPS:
            return cls(low, high, int(width), whole=True)
        return cls(low, high, MOST_STEPS)

    @property
    def step(self) -> Fraction:
        """The width of one step, in the column's units."""
        return (self.high - self.low) / self.steps

    @property
    def rounding(self) -> Fraction:
        """The largest rounding error of a value between the bounds: half a step, or 0 for integers."""
        return Fraction(0) if self.whole else (self.high - self.low) / (2 * self.steps)

    def to_steps(
        self, values: NDArray[np.floating[Any]], out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Clamp numbers and round them to the nearest step.

        Parameters
        ----------
        values : array of floats
            Numbers without missing ones. Infinities are clamped like other numbers.
        out : array of floats, optional
            Where to write the result.
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
        """Return the number at a step.

        Parameters
        ----------
        steps : float or Fraction
            Steps from the lower bound; it may be fractional.
        """
        return float(self.low + Fraction(steps) * self.step)

    def to_roundest(self, step: int) -> float:
        """Return the number with the fewest decimal digits among those that round to a step.

        If all values are decimals more than a step apart (ages in a column of floats, prices), the value at a step is
        exactly this number: a shorter decimal that rounds to the step would be one of them.

        Parameters
        ----------
        step : int
            Steps from the lower bound.

        Examples
        --------
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
        """Return the bounds for a receipt."""
        return [float(self.low), float(self.high)]
