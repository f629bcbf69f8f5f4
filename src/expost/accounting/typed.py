"""Numbers as callers type them, read once and in one way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from expost.core import InvalidRequest
from expost.core.rational import rational

__all__ = ["amount_of", "curve_of", "delta_of", "shares_of"]

Curve = tuple[tuple[Fraction, Fraction], ...]


def amount_of(value: object, name: str) -> Fraction:
    """An exact number >= 0; one that is exact already is taken as it is, for this runs for every event.

    >>> amount_of(0.1, "epsilon")
    Fraction(1, 10)
    """
    return value if isinstance(value, Fraction) and value >= 0 else rational(value, name, positive=False)


def delta_of(value: object, name: str = "delta") -> Fraction:
    """A delta: at least 0 and below 1, for at 1 everything is private.

    >>> delta_of(2)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected delta below 1, got 2. Pass a small delta such as 1e-6.
    """
    exact = rational(value, name, positive=False)
    if exact >= 1:
        raise InvalidRequest(f"Expected {name} below 1", got=value, do=f"Pass a small {name} such as 1e-6")
    return exact


def curve_of(value: object) -> Curve:
    """Pairs of an order and an epsilon.

    >>> curve_of([(2, 0.5)])
    ((Fraction(2, 1), Fraction(1, 2)),)
    """
    pairs: list[Any] = list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InvalidRequest("Expected pairs of an order and an epsilon", do="Pass e.g. [(2, 0.1), (4, 0.3)]")
    return tuple((rational(order, "order"), rational(cost, "epsilon", positive=False)) for order, cost in pairs)


def shares_of(value: object) -> dict[float, float]:
    """Shares of a probability by Renyi order.

    >>> shares_of({2: 0.5, 8: 0.5})
    {2.0: 0.5, 8.0: 0.5}
    """
    given: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
    shares = {float(rational(order, "order")): float(rational(share, "shares")) for order, share in given.items()}
    if not shares or min(shares) <= 1 or math.fsum(shares.values()) > 1 + 1e-12:
        raise InvalidRequest("Expected orders above 1 with positive shares that sum to 1", do="Divide by their sum")
    return shares
