"""Permutation tests on one part of a sample: valid for every law of the values and every number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expost.noise import BitSource
from expost.stats.hypothesis.draw import uniforms

__all__ = ["INNER_LEVEL", "Relation", "part_rejects", "statistic_of"]

Floats = NDArray[np.float64]
Relation = Literal["means", "independence", "correlation"]
Statistic = Callable[[Floats, Floats], Floats]
"""Of one column and many orderings of the other (one a row): a number that is larger the more the two belong together."""

_ORDERINGS = 39  # besides the one seen
INNER_LEVEL = 0.25
"""The level of the test on one part: at most 10 of 40 orderings may be as extreme."""


def part_rejects(first: Floats, second: Floats, statistic: Statistic, bits: BitSource | None) -> bool:
    """Whether the order seen is among the most extreme quarter of 40 orderings; ties count as more extreme.

    If the second column is independent of the first, all orderings are equally likely, so this happens with probability
    at most ``INNER_LEVEL``. Total: a part of fewer than two rows does not reject.
    """
    if len(first) < 2:
        return False
    orders = np.argsort(uniforms((_ORDERINGS, len(second)), bits), axis=1)
    with np.errstate(all="ignore"):
        values = np.nan_to_num(statistic(first, np.vstack([second, second[orders]])))
    larger = int((values[1:] >= values[0] * (1 - 1e-9)).sum())
    return 1 + larger <= INNER_LEVEL * (1 + _ORDERINGS)


def statistic_of(relation: Relation) -> Statistic:
    """The statistic of a relation.

    >>> x = np.array([1.0, 2.0, 3.0])
    >>> statistic_of("correlation")(x, np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 3.0]])).tolist()
    [2.0, 1.0]
    """
    return {"means": _between, "independence": _chi_squared, "correlation": _rank_correlation}[relation]


def _between(values: Floats, labels: Floats) -> Floats:
    """The sum of squares between groups; labels are whole numbers, those below zero are in no group."""
    finite = np.nan_to_num(values, nan=0.0, posinf=np.finfo(float).max, neginf=np.finfo(float).min)
    share = finite / max(float(np.abs(finite).max()), 1e-300)
    share = share - share.mean()
    total = np.zeros(len(labels))
    for group in range(int(labels.max(initial=-1)) + 1):
        inside = labels == group
        total += (inside @ share) ** 2 / np.maximum(inside.sum(1), 1)
    return total


def _chi_squared(first: Floats, second: Floats) -> Floats:
    """The sum of squared counts over their expectation, which grows with the chi-squared statistic."""
    total = np.zeros(len(second))
    rows = [first == value for value in range(int(first.max(initial=-1)) + 1)]
    for column in range(int(second.max(initial=-1)) + 1):
        inside = (second == column).astype(np.float64)
        size = np.maximum(inside.sum(1), 1)
        for row in rows:
            total += (inside @ row.astype(np.float64)) ** 2 / (size * max(int(row.sum()), 1))
    return total


def _rank_correlation(first: Floats, second: Floats) -> Floats:
    """The absolute covariation of ranks (Spearman's), which needs no bounds."""
    x, y = _ranks(first), _ranks(second[0])
    place = np.argsort(second[0], kind="stable")
    # The other orderings have the same values, so their ranks are looked up.
    ranks = y[place][np.searchsorted(second[0][place], second)]
    found: Floats = np.abs((ranks - y.mean()) @ (x - x.mean()))
    return found


def _ranks(values: Any) -> Floats:
    ordered = np.sort(values)
    ranks: Floats = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2.0
    return ranks
