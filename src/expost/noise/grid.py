"""The public grid through which floats enter: clamp, round toward zero, count in whole steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expost.core.errors import InvalidRequest
from expost.core.mask import check_unmasked
from expost.core.rational import finite, whole
from expost.core.sealed import Sealed
from expost.core.sensitivity import Norm, Sensitivity

__all__ = ["Grid"]

_MOST_STEPS = 1 << 53  # beyond it a float no longer tells neighbouring steps apart
_FEWEST_BITS, _MOST_BITS = -60, 60


@dataclass(frozen=True)
class Grid:
    """The multiples of 2^-bits between two public bounds.

    Scaling by a power of two and rounding toward zero are exact in floats, so the lattice point of a number is a
    function of that number alone; NaN counts as the lower bound. Rounding toward zero never makes a norm larger.

    >>> grid = Grid(-1.0, 1.0, bits=3)
    >>> grid.to_lattice([0.3, -0.3, 7.0, float("nan")]).tolist()
    [2, -2, 8, -8]
    >>> grid.to_float([2, -2, 8]).tolist()
    [0.25, -0.25, 1.0]
    """

    low: float
    high: float
    bits: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", finite(self.low, "low"))
        object.__setattr__(self, "high", finite(self.high, "high"))
        bits = whole(self.bits, "bits", least=_FEWEST_BITS, most=_MOST_BITS, do="Pass an integer such as 20")
        object.__setattr__(self, "bits", bits)
        if self.low >= self.high:
            raise InvalidRequest("Expected finite bounds, the lower below the upper", do="Pass public bounds")
        if max(abs(self.lattice_low), abs(self.lattice_high)) > _MOST_STEPS:
            raise InvalidRequest(
                "Expected at most 2^53 steps between zero and a bound", got=self.bits, do="Use fewer bits"
            )
        if self.lattice_low == self.lattice_high:
            raise InvalidRequest("Expected bounds at least one step apart", got=self.bits, do="Use more bits")

    @property
    def step(self) -> Fraction:
        """The distance of two grid points."""
        return Fraction(2) ** -self.bits

    @property
    def lattice_low(self) -> int:
        """The lower bound in steps, rounded toward zero."""
        return math.trunc(Fraction(self.low) / self.step)

    @property
    def lattice_high(self) -> int:
        """The upper bound in steps, rounded toward zero."""
        return math.trunc(Fraction(self.high) / self.step)

    def to_lattice(self, values: ArrayLike) -> NDArray[np.int64]:
        """Each number clamped and rounded toward zero, in steps."""
        numbers = np.nan_to_num(_floats(values), nan=self.low, posinf=self.high, neginf=self.low)
        return np.trunc(np.ldexp(np.clip(numbers, self.low, self.high), self.bits)).astype(np.int64)

    def to_float(self, steps: ArrayLike) -> NDArray[np.float64]:
        """Lattice points as floats: the one rounding, after the noise."""
        return np.ldexp(_floats(steps), -self.bits)

    def rounded(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Sensitivity:
        """The sensitivity in steps of an answer that moves by ``sensitivity`` *before* it is put on this grid.

        Two numbers at distance d land at most d / step + 1 steps apart, hence the number of coordinates is added in
        l1, its root in l2 and one in linf (triangle inequality).
        """
        extra = {Norm.L1: Fraction(coordinates), Norm.L2: _root_up(coordinates), Norm.LINF: Fraction(1)}
        amount = sensitivity.amount / self.step + extra[sensitivity.norm]
        return Sensitivity(amount, sensitivity.norm, sensitivity.adjacency, sensitivity.unit)

    def seal(self, values: ArrayLike, sensitivity: Sensitivity) -> Sealed:
        """A real-valued answer on the grid, sealed; ``sensitivity`` is that of the exact real answer.

        A sum of records needs no such allowance: put the records on the grid first and add integers.

        >>> Grid(-1.0, 1.0, bits=10).seal([0.5, 0.25], Sensitivity(1)).sensitivity.amount
        Fraction(1026, 1)
        """
        steps = self.to_lattice(values)
        return Sealed(steps, self.rounded(sensitivity, coordinates=max(1, steps.size)))

    def largest_step_sum(self, *, replace: bool) -> int:
        """How far one record can move a sum of records on this grid: the sensitivity of such a sum, in steps."""
        if replace:
            return self.lattice_high - self.lattice_low
        return max(abs(self.lattice_low), abs(self.lattice_high))


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    check_unmasked(values)
    try:
        given = np.asarray(values)
        if given.dtype.kind in "biufO":
            return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass  # a ragged list, or one with more than numbers
    raise InvalidRequest("Expected numbers", do="Pass one number, or an array of them")


def _root_up(number: int) -> Fraction:
    return Fraction(math.isqrt(number << 80) + 1, 1 << 40)
