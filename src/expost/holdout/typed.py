"""Numbers of a plan as callers type them, read once and in one way."""

from __future__ import annotations

from expost.core.errors import InvalidRequest
from expost.core.rational import finite

__all__ = ["amount_of", "chance_of", "count_of"]

_MOST = 1 << 53  # whole numbers up to it are floats too
_LEAST, _LARGEST = 1e-150, 1e150  # squares of what is between them are floats


def count_of(value: object, name: str) -> int:
    """A positive whole number.

    >>> count_of(0, "rows")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected rows to be a positive whole number, got 0. Pass rows >= 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"Expected {name} to be a positive whole number", got=value, do=f"Pass {name} >= 1")
    if value > _MOST:
        raise InvalidRequest(f"Expected {name} of at most 2^53", got=value, do=f"Pass a smaller {name}")
    return value


def amount_of(value: object, name: str, *, zero: bool = False) -> float:
    """A positive finite number, or one that may be zero; smaller than the ones callers type, for it may be computed.

    >>> amount_of(0.5, "sigma")
    0.5
    """
    bound = ">= 0" if zero else "> 0"
    do = f"Pass a finite {name} {bound}"
    found = finite(value, name, do=do)
    if not _LEAST <= found <= _LARGEST and not (zero and found == 0):
        raise InvalidRequest(f"Expected {name} to be a number {bound}", got=value, do=do)
    return found


def chance_of(value: object, name: str, *, zero: bool = False) -> float:
    """A probability below 1, above 0 unless it may be zero.

    >>> chance_of(0.05, "failure_probability")
    0.05
    """
    found = amount_of(value, name, zero=zero)
    if found >= 1:
        raise InvalidRequest(f"Expected {name} below 1", got=value, do=f"Pass a smaller {name}")
    return found
