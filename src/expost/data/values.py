"""Columns of one batch while an expression is computed; each kind says how it spells a missing value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.canonical import canonical_column, canonical_type
from expost.data.schema import Kind

__all__ = ["Numbers", "Texts", "Times", "Truths", "Values", "decoded", "float_cells", "read_column"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Floats in canonical form; NaN is missing."""

    numbers: NDArray[np.float64]

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> Numbers:
        """Return computed numbers in canonical form: NaN and infinities are missing, and zero has no sign."""
        return cls(np.where(np.isfinite(numbers), numbers + 0.0, np.nan))

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.numbers)

    def column(self) -> pa.Array:
        """The Arrow column; NaN stays NaN."""
        return pa.array(self.numbers)


@dataclass(frozen=True, slots=True)
class Truths:
    """True or false where known."""

    true: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @property
    def missing(self) -> NDArray[np.bool_]:
        return ~self.known

    def column(self) -> pa.Array:
        """The Arrow column; null where unknown."""
        return pa.array(self.true, mask=~self.known)

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Known to be true: what a filter keeps."""
        return self.true & self.known


@dataclass(frozen=True, slots=True)
class Texts:
    """An Arrow array of text; null is missing."""

    texts: pa.Array

    @property
    def missing(self) -> NDArray[np.bool_]:
        return _flags(self.texts.is_null())

    def column(self) -> pa.Array:
        """The Arrow column."""
        return self.texts


@dataclass(frozen=True, slots=True)
class Times:
    """Moments in microseconds since 1970 (UTC); NaT is missing."""

    moments: NDArray[np.datetime64]

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnat(self.moments)

    def column(self) -> pa.Array:
        """The Arrow column; null where missing."""
        return pa.array(self.moments)


Values = Numbers | Truths | Texts | Times


def read_column(column: pa.Array) -> Values:
    """Return a canonical column as values; infinities stay numbers here, because clamping knows what to do with them."""
    column = decoded(column)
    kind = Kind.of(column.type)
    if kind is Kind.BOOLEAN:
        return Truths(_flags(pc.fill_null(column, False)), _flags(column.is_valid()))
    if kind is Kind.TEXT:
        return Texts(column)
    if kind is Kind.TIME:
        return Times(np.asarray(column.to_numpy(zero_copy_only=False)).astype("datetime64[us]"))
    return Numbers(float_cells(column))


def float_cells(column: pa.Array) -> NDArray[np.float64]:
    """Return a column of numbers or truths as floats, NaN where a cell is missing.

    Whole numbers beyond 2^53 and decimals are rounded, each cell by itself, whatever the others are.

    >>> float_cells(pa.array([2**53 + 1, None])).tolist()
    [9007199254740992.0, nan]
    """
    column = decoded(column)
    wide = column if pa.types.is_floating(column.type) else column.cast(pa.float64(), safe=False)
    return np.asarray(wide.to_numpy(zero_copy_only=False), dtype=np.float64)


def decoded(column: pa.Array) -> pa.Array:
    """Return a column in canonical form if its type is not canonical; engines hand out canonical columns only."""
    return column if column.type == canonical_type(column.type) else canonical_column(column)


def _flags(column: Any) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
