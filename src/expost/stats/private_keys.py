"""Groups nobody has listed: a key is shown only if enough units have it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    InvalidRequest,
    Ladder,
    Loss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
)
from expost.core.rational import probability, rational
from expost.data import Dataset, Expression, Kind
from expost.data.axis import Axis, Categories
from expost.data.tally import Tally
from expost.noise import BitSource, DiscreteLaplacePath, system_bits
from expost.noise.level import check_level
from expost.stats.table_release import AnswerRelease

__all__ = ["PrivateKeys", "key_threshold"]


def key_threshold(delta: Fraction, scale: float, *, rows: int, groups: int, once: bool = False) -> int:
    """The noisy count from which a group is shown, so that groups of one unit alone show with at most ``delta``.

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


@dataclass(frozen=True, repr=False)
class _FoundKeys:
    """Exact counts with the keys they belong to; secret until the threshold has chosen."""

    sealed: Sealed
    column: pa.Array

    @property
    def keys(self) -> tuple[Any, ...]:
        """The keys as Python values."""
        return tuple(self.column.to_pylist())

    def __reduce__(self) -> Any:
        raise TypeError("Expected keys to stay where they are; they may leave only after thresholding.")


class PrivateKeys:
    """The values of a column that enough units have, where the values themselves are not public.

    Ask for them alone, or pass this as ``by=`` of another question. Keys that were shown are public: list them as the
    dataset's categories, and further questions about them need no delta.

    Guarantee: (epsilon, delta)-DP, known before the run. That a key is shown at all is protected by delta.
    Adjacency: add/remove; one row, or all rows of a unit.
    Sensitivity: the rows a unit may have; with ``max_groups_per_unit`` units are counted, and it is that number (L1).
    Accuracy: a key is shown if its noisy count reaches the threshold, which is on the receipt.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: KKMN09, Theorem 1 (thresholding); docs/proofs/private-keys.md (this threshold).

    >>> PrivateKeys("city", epsilon=0.5, delta=1e-6).question
    'keys of city'
    """

    def __init__(
        self, column: str | Expression, *, epsilon: object, delta: object, where: Expression | str | None = None
    ) -> None:
        self.column, self.where = column, where
        self.epsilon, self.delta = rational(epsilon, "epsilon"), probability(delta, "delta")
        self._once, self._limits = False, (1, 1)

    def __str__(self) -> str:
        return f"private {self.column}"

    def among(self, where: Expression | str | None) -> PrivateKeys:
        """The same keys among the rows that another question is about."""
        return (
            self
            if self.where is not None
            else PrivateKeys(self.column, epsilon=self.epsilon, delta=self.delta, where=where)
        )

    @property
    def question(self) -> str:
        """The question in public words."""
        return f"keys of {self.column}" + ("" if self.where is None else f" where {self.where}")

    @property
    def worst_case(self) -> Loss:
        """The price."""
        return ApproxLoss(self.epsilon, self.delta)

    def axis(self, dataset: Dataset, keys: tuple[Any, ...]) -> Categories:
        """The keys as public categories."""
        return Categories.of(dataset.expression(self.column), keys)

    def _tally(self, dataset: Dataset, axis: Axis | None = None) -> Tally:
        axes = (self.axis(dataset, ("",)) if axis is None else axis,)
        return dataset.tally(axes=axes, where=dataset.condition(self.where))

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset; reads no rows."""
        if dataset.adjacency.public_size:
            raise InvalidRequest("Expected add-remove adjacency beside private keys", do="Use adjacency='add-remove'")
        if isinstance(self.column, str) and dataset.schema.kind(self.column) is Kind.TIME:
            raise InvalidRequest("Expected texts or numbers as private keys", got=self.column, do="Derive a text")
        tally = self._tally(dataset)
        groups = dataset.max_groups_per_unit
        self._once = not dataset.unit.is_row and groups is not None
        limits = None if self._once else dataset.limits(tally)
        rows = groups if self._once and groups else 1 if limits is None or limits.rows is None else limits.rows
        self._limits = rows, rows
        check_level(self.epsilon, rows)

    def measure(self, dataset: Dataset) -> _FoundKeys:
        """Exact counts of the keys that occur, sealed with their keys."""
        secret = system_bits().words(4).tobytes()
        keys = dataset.keys(dataset.expression(self.column), self._tally(dataset), secret=secret)
        under = Sensitivity(self._limits[0], adjacency=dataset.adjacency, unit=dataset.unit)
        sealed, found = dataset.occupied(self._tally(dataset, keys), secret=secret, under=under, once=self._once)
        return _FoundKeys(sealed, keys.column.take(pa.array(found)))

    def climb(self, found: _FoundKeys, bits: BitSource | None = None) -> Release[tuple[Any, ...]]:
        """The keys whose noisy count reaches the threshold, in order."""
        sensitivity = found.sealed.sensitivity
        noisy = DiscreteLaplacePath(found.sealed, Ladder((self.epsilon,)), bits=bits).at(0)
        scale, (rows, groups) = float(sensitivity.amount / self.epsilon), self._limits
        threshold = key_threshold(self.delta, scale, rows=rows, groups=groups, once=self._once)
        shown = tuple(found.column.filter(pa.array((noisy >= threshold).astype(bool))).to_pylist())
        receipt = Receipt(
            question=self.question,
            method="discrete Laplace above a threshold",
            promise=ApproxGuarantee(self.epsilon, self.delta),
            bill=ApproxLoss(self.epsilon, self.delta),
            adjacency=sensitivity.adjacency,
            unit=sensitivity.unit,
            terms={"threshold": threshold, "counted": "units" if self._once else "rows", "keys shown": len(shown)},
            citations=("KKMN09, Theorem 1",),
        )
        return AnswerRelease(shown, receipt)
