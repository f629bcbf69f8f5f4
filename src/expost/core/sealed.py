"""Exact answers that cannot be read, and how far one unit can move them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from expost.core.adjacency import Adjacency, Unit
from expost.core.errors import InvalidRequest, SealBroken

__all__ = ["Norm", "Sealed", "Sensitivity", "unseal"]

_REFUSED = (
    "Expected a released value, got a sealed exact answer. "
    "Release it through a mechanism of expost.noise, which adds the noise its sensitivity needs."
)


class Norm(enum.Enum):
    """The norm a sensitivity is measured in."""

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest distance between the answers on two adjacent tables, in lattice units.

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
        """Return an l2 sensitivity whose *square* is known exactly; the root is rounded up by at most 2^-40."""
        # isqrt rounds down, so one more unit of 2^-40 is above the root.
        scale = 1 << 80
        root = math.isqrt(math.ceil(Fraction(square) * scale)) + 1
        return cls(Fraction(root, 1 << 40), Norm.L2, adjacency, unit)

    @property
    def square(self) -> Fraction:
        """The squared amount, exact."""
        return Fraction(self.amount) ** 2


def _refuse_reading(*_: object, **__: object) -> NoReturn:
    raise SealBroken(_REFUSED)


class Sealed:
    """An exact answer together with its sensitivity; only ``expost.noise`` may open it.

    It cannot be shown, pickled, copied, compared, formatted, indexed, iterated or turned into a number. The
    architecture tests prove that no file outside ``noise`` opens one.

    >>> Sealed(41, Sensitivity(1))
    <sealed exact answer>
    >>> int(Sealed(41, Sensitivity(1)))
    Traceback (most recent call last):
    expost.core.errors.SealBroken: Expected a released value, got a sealed exact answer. Release it through ...
    """

    __slots__ = ("__exact", "__sensitivity")

    def __init__(self, exact: Any, sensitivity: Sensitivity) -> None:
        if not isinstance(sensitivity, Sensitivity):
            raise TypeError("Expected a Sensitivity together with the exact answer.")
        # Through object, because the class refuses to set its attributes.
        object.__setattr__(self, "_Sealed__exact", exact)
        object.__setattr__(self, "_Sealed__sensitivity", sensitivity)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one unit can move the answer; public."""
        # Public by design: sensitivities follow from declared bounds, never from rows.
        sensitivity: Sensitivity = object.__getattribute__(self, "_Sealed__sensitivity")
        return sensitivity

    def __repr__(self) -> str:
        return "<sealed exact answer>"

    __str__ = __repr__
    # Comparison and hashing would reveal whether two exact answers are equal.
    __hash__ = None  # type: ignore[assignment]
    __setattr__ = __delattr__ = _refuse_reading
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse_reading
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_reading
    __format__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = _refuse_reading
    __int__ = __float__ = __complex__ = __index__ = __round__ = __bytes__ = _refuse_reading
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse_reading
    __floordiv__ = __mod__ = __pow__ = __neg__ = __pos__ = __abs__ = __matmul__ = __rmatmul__ = _refuse_reading
    # NumPy and Arrow would otherwise read the value without calling any method above.
    __array__ = __array_interface__ = __array_ufunc__ = __arrow_c_array__ = _refuse_reading


def unseal(sealed: Sealed) -> Any:
    """Return the exact answer. Only ``expost.noise`` may call this (an architecture test checks)."""
    if not isinstance(sealed, Sealed):
        raise TypeError("Expected a Sealed answer.")
    return object.__getattribute__(sealed, "_Sealed__exact")
