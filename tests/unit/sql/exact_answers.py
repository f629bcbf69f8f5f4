"""Statements without noise, for comparison with a database. Tests alone can do this: they replace the draw itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np

from expost.core import Ladder
from expost.noise.jump_noise import JumpNoise

__all__ = ["without_noise"]


def _draw_nothing(ladder: Ladder, sensitivity: Fraction, count: int, **_: Any) -> JumpNoise:
    """Return noise of zero at every rung."""
    none = np.empty(0, np.intp)
    return JumpNoise(np.zeros(count, np.int64), none, none, np.empty(0, np.int64))


@contextmanager
def without_noise() -> Iterator[None]:
    """Draw no Laplace noise meanwhile."""
    with mock.patch.object(JumpNoise, "draw", _draw_nothing):
        yield
