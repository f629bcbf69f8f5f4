"""Arrays that keep beside their values which of them are missing (NumPy's masked arrays).

Whoever makes a plain array of one takes what is missing for real. Such arrays are therefore refused where rows come in,
by their type and never by what they hide; what a caller's own function returns is filled instead, since that type may
depend on rows.
"""

from __future__ import annotations

from typing import Any

from expost.core.errors import InvalidRequest

__all__ = ["check_unmasked", "filled"]


def check_unmasked(*values: object) -> None:
    """Refuse masked arrays, and lists of them.

    >>> check_unmasked([1.0, 2.0], None)
    """
    for value in values:
        if _is_masked(type(value)) or (isinstance(value, list | tuple) and any(map(_is_masked, set(map(type, value))))):
            raise InvalidRequest(
                "Expected an array without a mask, which would be lost",
                got=value,
                do="Write missing values as NaN: values.filled(numpy.nan), after values.astype(float) if they are whole",
            )


def filled(values: Any, missing: float) -> Any:
    """The values with ``missing`` where a mask hides them; everything without a mask as it is.

    >>> filled([1, 2], 0)
    [1, 2]
    """
    return values.filled(missing) if _is_masked(type(values)) else values


def _is_masked(kind: type) -> bool:
    # By name: the words of the house import no NumPy.
    return any(base.__name__ == "MaskedArray" for base in kind.__mro__)
