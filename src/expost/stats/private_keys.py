"""Counts of groups nobody has listed: groups are shown only if enough units are in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.accuracy.interval import epsilon_for_radius, noise_radius
from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
)
from expost.core.rational import probability
from expost.data import Dataset, Expression, Kind
from expost.data.axis import Categories
from expost.data.tally import Tally
from expost.noise import BitSource, DiscreteLaplacePath, system_bits
from expost.stats.ask import Ask
from expost.stats.groups import Group, GroupRelease, Groups

__all__ = ["CountByPrivateKeys", "key_threshold"]


def key_threshold(delta: Fraction, scale: float, *, rows: int, groups: int) -> int:
    """The noisy count from which a group is shown, so that groups of one unit alone show with at most ``delta``.

    A unit that is added may open up to ``groups`` new groups and has at most ``rows`` rows in all, m_i in group i. A
    group of m rows passes threshold t with P(noise >= t - m) = a^(t-m) / (1 + a), which is convex in m; so the sum
    over its groups is largest when j groups have one row each but one, which has the rest, for some j. The smallest
    t whose largest sum is at most delta is taken (docs/proofs/private-keys.md).

    >>> key_threshold(Fraction(1, 10**6), 1.0, rows=1, groups=1)
    15
    """
    a = math.exp(-1 / scale)

    def passing(threshold: int) -> float:
        def one(m: int) -> float:
            return a ** (threshold - m) / (1 + a) if threshold > m else 1.0

        return max((j - 1) * one(1) + one(rows - j + 1) for j in range(1, min(groups, rows) + 1))

    low, high = rows, rows + math.ceil(scale * math.log((groups + 1) / float(delta))) + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if passing(middle) * (1 + 1e-9) <= float(delta) else (middle + 1, high)
    return high


@dataclass(frozen=True, repr=False)
class _FoundKeys:
    """Exact counts with the keys they belong to; secret until the threshold has chosen."""

    sealed: Sealed
    keys: tuple[Any, ...]

    def __reduce__(self) -> Any:
        raise TypeError("Expected keys to stay where they are; they may leave only after thresholding.")


class CountByPrivateKeys:
    """The number of rows in each group of a column whose values are not public; rare groups are left out.

    Guarantee: (epsilon, delta)-DP, known before the run. That a group is shown at all is protected by delta.
    Adjacency: the dataset's; one row or all rows of a unit.
    Sensitivity: the rows a unit may have, in L1, over all groups together.
    Accuracy: intervals cover the counts of the groups shown, each with the asked confidence.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: KKMN09, Theorem 1 (thresholding); docs/proofs/private-keys.md (this threshold).

    >>> CountByPrivateKeys("city", epsilon=1, delta=1e-6).question
    'count of rows by private city'
    """

    def __init__(
        self,
        column: str | Expression,
        *,
        delta: object,
        within: object = None,
        epsilon: object = None,
        confidence: object = 0.95,
        max_epsilon: object = None,
        where: Expression | str | None = None,
    ) -> None:
        self._ask = Ask.of(within=within, epsilon=epsilon, confidence=confidence, max_epsilon=max_epsilon)
        if self._ask.relative:
            raise InvalidRequest("Expected an absolute error beside private keys", got=within, do="Pass within=100")
        self._delta = probability(delta, "delta")
        self._column, self._where = column, where
        self._level: Fraction | None = self._ask.epsilon
        self._limits = (1, 1)

    @property
    def question(self) -> str:
        """The question in public words."""
        return f"count of rows by private {self._column}" + ("" if self._where is None else f" where {self._where}")

    @property
    def worst_case(self) -> Loss:
        """The price; known after ``check``."""
        level = self._level or self._ask.cap
        return ApproxLoss(level if level is not None else Fraction(0), self._delta)

    def _tally(self, dataset: Dataset) -> Tally:
        expression = dataset.expression(self._column)
        return dataset.tally(axes=(Categories.of(expression, ("",)),), where=dataset.condition(self._where))

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset and price it; reads no rows."""
        if dataset.adjacency.public_size:
            raise InvalidRequest("Expected add-remove adjacency beside private keys", do="Use adjacency='add-remove'")
        if isinstance(self._column, str) and dataset.schema.kind(self._column) is Kind.TIME:
            raise InvalidRequest("Expected texts or numbers as private keys", got=self._column, do="Derive a text")
        limits = dataset.limits(self._tally(dataset))
        rows = 1 if limits is None or limits.rows is None else limits.rows
        self._limits = rows, rows if limits is None or limits.groups is None else min(limits.groups, rows)
        if self._ask.target is not None:
            radius = math.floor(self._ask.target.tolerance)
            self._level = epsilon_for_radius(radius, self._ask.failure_probability, rows)
            self._ask.check_price(self._level)

    def measure(self, dataset: Dataset) -> _FoundKeys:
        """Exact counts of the keys that occur, sealed with their keys."""
        tally = self._tally(dataset)
        keys = dataset.keys(dataset.expression(self._column), tally) or [""]
        axis = Categories.of(dataset.expression(self._column), keys)
        counted = dataset.tally(axes=(axis,), where=dataset.condition(self._where))
        under = Sensitivity(self._limits[0], adjacency=dataset.adjacency, unit=dataset.unit)
        return _FoundKeys(*dataset.occupied(counted, keys, secret=system_bits().words(4).tobytes(), under=under))

    def climb(self, found: _FoundKeys, bits: BitSource | None = None) -> Release[Groups]:
        """The groups whose noisy count reaches the threshold."""
        level, sensitivity = self._level, found.sealed.sensitivity
        assert level is not None
        noisy = DiscreteLaplacePath(found.sealed, Ladder((level,)), bits=bits).at(0)
        scale = float(sensitivity.amount / level)
        threshold = key_threshold(self._delta, scale, rows=self._limits[0], groups=self._limits[1])
        radius = noise_radius(float(self._ask.failure_probability), scale)
        rows = tuple(
            Group(key, float(count), float(max(count - radius, 0)), float(count + radius), level, True)
            for key, count in zip(found.keys, noisy.tolist(), strict=True)
            if count >= threshold
        )
        target = self._ask.target
        receipt = Receipt(
            question=self.question,
            method="discrete Laplace above a threshold",
            promise=ApproxGuarantee(level, self._delta),
            bill=ApproxLoss(level, self._delta),
            adjacency=sensitivity.adjacency,
            unit=sensitivity.unit,
            outcome=Outcome.FIXED if target is None else Outcome.CERTIFIED,
            target=target,
            achieved=float(radius),
            terms={"threshold": threshold},
            citations=("KKMN09, Theorem 1",),
        )
        return GroupRelease(Groups((str(self._column),), rows), receipt)
