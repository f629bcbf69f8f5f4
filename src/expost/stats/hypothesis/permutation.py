"""Permutation tests on one part of a sample: valid for every law of the values and every number of rows.

Whether a part rejects is counted, and one row may change that for its own part only. So nothing here rounds by what
other rows or an order of summation make of it: scores are whole numbers of any size, and equal ones are equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expost.noise import BitSource
from expost.stats.hypothesis.draw import uniforms
from expost.stats.hypothesis.labels import coded

__all__ = ["INNER_LEVEL", "Relation", "Statistic", "part_rejects", "statistic_of"]

Column = NDArray[Any]
Orders = NDArray[np.intp]
Integers = NDArray[np.int64]
Relation = Literal["means", "independence", "correlation"]
Statistic = Callable[[Column, Column, Orders], list[int]]
"""Of two columns and orderings of the first (one a row): a number each, larger the more the two belong together."""

_ORDERINGS = 39  # besides the one seen
INNER_LEVEL = 0.25
"""The level of the test on one part: at most 10 of 40 orderings may be as extreme."""

_WORD = 62  # digits of a whole number that fit 64 bits with room for a sign and one more digit


def part_rejects(first: Column, second: Column, statistic: Statistic, bits: BitSource | None) -> bool:
    """Whether the order seen is among the most extreme quarter of 40 orderings; ties count as more extreme.

    If the second column is independent of the first, all orderings are equally likely, so this happens with probability
    at most ``INNER_LEVEL``. Total: a part of fewer than two rows does not reject.
    """
    if len(first) < 2:
        return False
    drawn = np.argsort(uniforms((_ORDERINGS, len(first)), bits), axis=1)
    seen, *others = statistic(first, second, np.vstack([np.arange(len(first)), drawn]))
    return 1 + sum(other >= seen for other in others) <= INNER_LEVEL * (1 + _ORDERINGS)


def statistic_of(relation: Relation) -> Statistic:
    """The statistic of a relation.

    >>> x = np.array([1.0, 2.0, 3.0])
    >>> statistic_of("correlation")(x, x, np.array([[0, 1, 2], [1, 0, 2]]))
    [8, 4]
    """
    return {"means": _between, "independence": _chi_squared, "correlation": _rank_correlation}[relation]


def _between(values: Column, labels: Column, orders: Orders) -> list[int]:
    """The sum of squares between groups, times a number that all orderings share."""
    codes, whole, rows = coded(labels), _whole(values), len(values)
    grouped = np.flatnonzero(codes >= 0)
    if not grouped.size:
        return [0] * len(orders)
    sizes = np.bincount(codes[grouped])
    by_group = grouped[np.argsort(codes[grouped], kind="stable")]
    sums = np.add.reduceat(whole[orders[:, by_group]], np.cumsum(sizes) - sizes, axis=1)
    away = sums.astype(object) * rows - sizes.astype(object) * int(whole.sum())
    scores: list[int] = (away**2 @ _shares_of(sizes)).tolist()
    return scores


def _chi_squared(first: Column, second: Column, orders: Orders) -> list[int]:
    """The sum of squared counts over their expectation, which grows with the chi-squared statistic."""
    x, y = coded(first), coded(second)
    by_row, by_column = (_shares_of(np.bincount(each[each >= 0])) for each in (x, y))
    width, table = max(len(by_column), 1), max(len(by_row) * len(by_column), 1)
    # A table for each ordering, one after another.
    cells = x[orders] * width + y + table * np.arange(len(orders))[:, None]
    cell, counts = np.unique(cells[(x[orders] >= 0) & (y >= 0)], return_counts=True)
    terms = counts.astype(object) ** 2 * by_row[cell % table // width] * by_column[cell % width]
    starts = np.searchsorted(cell, table * np.arange(len(orders) + 1))
    return [sum(terms[start:stop]) for start, stop in itertools.pairwise(starts)]


def _rank_correlation(first: Column, second: Column, orders: Orders) -> list[int]:
    """Four times the absolute covariation of ranks (Spearman's), which needs no bounds."""
    x, y, rows = _ranks(first), _ranks(second), len(first)
    block = max(1, (1 << _WORD) // rows**2)  # ranks are at most the number of rows: so many products fit 64 bits
    sums = np.add.reduceat(x[orders] * y, np.arange(0, rows, block), axis=1)
    scores: list[int] = np.abs(sums.astype(object).sum(axis=1)).tolist()
    return scores


def _whole(values: Column) -> Integers:
    """Values as whole numbers: a power of two for all, such that the sum of any of them fits 64 bits."""
    finite = np.nan_to_num(values, nan=0.0, posinf=np.finfo(float).max, neginf=np.finfo(float).min)
    digits = min(52, _WORD - len(values).bit_length())
    exponent = int(np.frexp(np.abs(finite).max())[1])
    whole: Integers = np.rint(np.ldexp(finite, digits - exponent)).astype(np.int64)
    return whole


def _shares_of(sizes: Integers) -> NDArray[Any]:
    """One over each size, times their least common multiple."""
    whole = sizes.astype(object)
    shares: NDArray[Any] = math.lcm(*whole.tolist()) // whole
    return shares


def _ranks(values: Column) -> Integers:
    """Twice the distance of each rank from the middle one; rows of equal value share theirs."""
    ordered = np.sort(values)
    found = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - len(values)
    return found.astype(np.int64)
