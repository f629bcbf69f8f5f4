"""Exact laws of rank scores on tiny tables, by listing every order, and the distance of two such laws."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

__all__ = ["law_distance", "ranked_law"]

Row = tuple[float | None, int]  # value (None: missing) and group
Law = dict[int, Fraction]


def ranked_law(rows: Sequence[Row], places: Sequence[int], score: Callable[[Any], int]) -> Law:
    """The law of a score of the groups in ranked order: kept rows, added rows and orders of ties all equally likely."""
    present = [[value for value, group in rows if group == place and value is not None] for place in range(len(places))]
    kept = list(
        itertools.product(
            *(itertools.combinations(found, min(len(found), most)) for found, most in zip(present, places, strict=True))
        )
    )
    law: dict[int, Fraction] = {}
    for chosen in kept:
        items = [(value, group) for group, values in enumerate(chosen) for value in values]
        items += [(None, group) for group, most in enumerate(places) for _ in range(most - len(chosen[group]))]
        scores = Counter(
            score([group for _, group in order])
            for order in itertools.permutations(items)
            if (values := [value for value, _ in order if value is not None]) == sorted(values)
        )
        for found, count in scores.items():
            law[found] = law.get(found, Fraction(0)) + Fraction(count, scores.total() * len(kept))
    return law


def law_distance(left: Law, right: Law) -> int:
    """The least d such that draws of both laws can be paired never more than d apart: quantiles are paired."""
    points = [sorted(law.items()) for law in (left, right)]
    furthest, places, used = 0, [0, 0], [Fraction(0), Fraction(0)]
    while places[0] < len(points[0]) and places[1] < len(points[1]):
        (a, mass), (b, other) = points[0][places[0]], points[1][places[1]]
        furthest = max(furthest, abs(a - b))
        step = min(mass - used[0], other - used[1])
        for side, whole in enumerate((mass, other)):
            used[side] += step
            if used[side] == whole:
                places[side], used[side] = places[side] + 1, Fraction(0)
    return furthest
