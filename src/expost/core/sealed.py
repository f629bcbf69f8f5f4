"""An exact answer that cannot be looked at."""

from __future__ import annotations

from typing import Any, NoReturn

from expost.core.errors import SealBroken
from expost.core.sensitivity import Sensitivity

__all__ = ["Sealed", "unseal"]

_REFUSED = (
    "Expected a released value, got a sealed exact answer. "
    "Release it through a mechanism of expost.noise, which adds the noise its sensitivity needs."
)


def _refuse(*_: object, **__: object) -> NoReturn:
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
            raise TypeError("Expected a Sensitivity beside the exact answer.")
        object.__setattr__(self, "_Sealed__exact", exact)
        object.__setattr__(self, "_Sealed__sensitivity", sensitivity)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one unit can move the answer; public."""
        sensitivity: Sensitivity = object.__getattribute__(self, "_Sealed__sensitivity")
        return sensitivity

    def __repr__(self) -> str:
        return "<sealed exact answer>"

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment]
    __setattr__ = __delattr__ = _refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __format__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = _refuse
    __int__ = __float__ = __complex__ = __index__ = __round__ = __bytes__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __mod__ = __pow__ = __neg__ = __pos__ = __abs__ = __matmul__ = __rmatmul__ = _refuse
    __array__ = __array_interface__ = __array_ufunc__ = __arrow_c_array__ = _refuse


def unseal(sealed: Sealed) -> Any:
    """The exact answer; called by ``expost.noise`` and by nothing else (an architecture test checks)."""
    if not isinstance(sealed, Sealed):
        raise TypeError("Expected a Sealed answer.")
    return object.__getattribute__(sealed, "_Sealed__exact")
