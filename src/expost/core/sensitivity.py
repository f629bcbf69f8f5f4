"""How far one unit can move an exact integer answer."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction

from expost.core.adjacency import Adjacency, Unit
from expost.core.errors import InvalidRequest

__all__ = ["Norm", "Sensitivity"]


class Norm(enum.Enum):
    """The norm a sensitivity is measured in.

    >>> Norm("l1")
    <Norm.L1: 'l1'>
    """

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest distance between the answers on two neighbouring tables, in lattice units.

    ``amount`` is an exact rational upper bound; l2 bounds given by their square are rounded up.

    >>> Sensitivity(3).amount
    Fraction(3, 1)
    >>> Sensitivity.from_square(2).amount > Fraction(14142, 10000)
    True
    """

    amount: int | Fraction
    norm: Norm = Norm.L1
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = Unit()

    def __post_init__(self) -> None:
        if isinstance(self.amount, bool) or not isinstance(self.amount, int | Fraction) or self.amount <= 0:
            # A zero sensitivity would ask for noise of scale zero: refuse (SENS-ZERO in docs/known-limits.md).
            raise InvalidRequest("Expected a positive exact sensitivity", do="Pass an int or a Fraction > 0")
        object.__setattr__(self, "amount", Fraction(self.amount))

    @classmethod
    def from_square(
        cls, square: int | Fraction, *, adjacency: Adjacency = Adjacency.ADD_REMOVE, unit: Unit = Unit()
    ) -> Sensitivity:
        """An l2 sensitivity whose *square* is known exactly; the root is rounded up by at most 2^-40."""
        scale = 1 << 80
        root = math.isqrt(math.ceil(Fraction(square) * scale)) + 1
        return cls(Fraction(root, 1 << 40), Norm.L2, adjacency, unit)

    @property
    def square(self) -> Fraction:
        """The squared amount, exact."""
        return Fraction(self.amount) ** 2
