"""The threshold for unknown groups, against every way to spread a unit's rows."""

import math
from fractions import Fraction

import pytest

from expost.stats.private_keys import key_threshold


def spreads(rows: int, groups: int, least: int = 1) -> list[tuple[int, ...]]:
    """All ways to put at most ``rows`` rows into at most ``groups`` new groups."""
    found: list[tuple[int, ...]] = [()]
    if groups:
        for first in range(least, rows + 1):
            found += [(first, *rest) for rest in spreads(rows - first, groups - 1, first)]
    return found


def showing(threshold: int, spread: tuple[int, ...], scale: float) -> float:
    a = math.exp(-1 / scale)
    hidden = 1.0
    for m in spread:
        k = threshold - m
        hidden *= 1 - (a**k / (1 + a) if k >= 1 else 1 - a ** (1 - k) / (1 + a))
    return 1 - hidden


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (4, 1), (4, 4), (7, 3)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_no_way_to_spread_rows_shows_a_unit_alone_too_often(scale: float, rows: int, groups: int, delta: float) -> None:
    threshold = key_threshold(Fraction(str(delta)), scale, rows=rows, groups=groups)

    worst = max(showing(threshold, spread, scale) for spread in spreads(rows, groups))
    below = max(showing(threshold - 1, spread, scale) for spread in spreads(rows, groups))
    assert worst <= delta
    assert below > delta * 0.9  # the threshold is no higher than it must be
