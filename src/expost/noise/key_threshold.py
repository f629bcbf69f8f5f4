"""The noisy count from which a key is shown whose existence is private."""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["key_threshold"]


def key_threshold(delta: Fraction, scale: float, *, rows: int, groups: int, once: bool = False) -> int:
    """Return the noisy count from which a group is shown, so that groups of one unit alone show with at most ``delta``.

    A unit that is added may open up to ``groups`` new groups and has at most ``rows`` rows in all, m_i in group i. A
    group of m rows passes threshold t with P(noise >= t - m) = a^(t-m) / (1 + a), which is convex in m; so the sum
    over its groups is largest when j groups have one row each but one, which has the rest, for some j. With ``once``
    a group counts a unit once, so all its groups have one. The smallest t whose largest sum is at most delta is taken
    (docs/proofs/private-keys.md).

    >>> key_threshold(Fraction(1, 10**6), 1.0, rows=1, groups=1)
    15
    """
    a = math.exp(-1 / scale)

    def passing(threshold: int) -> float:
        def one(m: int) -> float:
            return a ** (threshold - m) / (1 + a) if threshold > m else 1.0

        if once:
            return groups * one(1)
        return max((j - 1) * one(1) + one(rows - j + 1) for j in range(1, min(groups, rows) + 1))

    low, high = rows, rows + math.ceil(scale * math.log((groups + 1) / float(delta))) + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if passing(middle) * (1 + 1e-9) <= float(delta) else (middle + 1, high)
    return high
