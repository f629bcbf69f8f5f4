"""Whatever is typed where a number is wanted: a number comes out, or the house's refusal."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest

ODD: list[Any] = [None, 0, -1, 1, 2, 0.5, 1e-40, 1e-9, 1e12, 1e40, 1e308, math.nan, math.inf, -math.inf, True, 1.5]
ODD += [10**30, 10**400, "1", "x", b"x", [], {}, (1, 2), [1, "a"], [math.nan, 1], object(), Fraction(1, 3)]
ODD += [np.float64(0.1), np.int64(50), np.float32(0.5), np.True_, np.array([1, 2]), 1j]
ODD += [Decimal("0.5"), Decimal("nan"), Decimal("snan"), Decimal("inf"), Decimal("1e-99999999"), Decimal("1e99999999")]


def answers(call: Any, usual: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What a call answers with each argument made odd in turn; refusals must be ours, and nothing may warn."""
    call(**usual)
    for argument in usual:
        for value in ODD:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    found = call(**{**usual, argument: value})
                except InvalidRequest as refusal:
                    assert str(refusal).startswith("Expected "), (argument, value)
                else:
                    yield argument, value, found
