"""Columns of one batch while an expression is computed; each kind says how it spells a missing value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.schema import Kind

__all__ = ["Numbers", "Texts", "Times", "Truths", "Values", "decoded", "read_column"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Finite floats; NaN is missing."""

    numbers: NDArray[np.float64]

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> Numbers:
        """Numbers whose NaNs and infinities all count as missing."""
        return cls(np.where(np.isfinite(numbers), numbers, np.nan))

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
    """An Arrow column as values; infinities stay numbers here, because clamping knows what to do with them."""
    column = decoded(column)
    kind = Kind.of(column.type)
    if kind is Kind.BOOLEAN:
        return Truths(_flags(pc.fill_null(column, False)), _flags(column.is_valid()))
    if kind is Kind.TEXT:
        return Texts(column.cast(pa.large_string()))
    if kind is Kind.TIME:
        return Times(_moments(column))
    if pa.types.is_floating(column.type) and column.null_count == 0:
        return Numbers(column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    # safe=False: a whole number beyond 2^53 is rounded, never refused.
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return Numbers(np.asarray(numbers, dtype=np.float64))


def decoded(column: pa.Array) -> pa.Array:
    """The column itself, or what a dictionary encodes."""
    if not pa.types.is_dictionary(column.type):
        return column
    words = column.dictionary
    # Arrow has no way yet to decode a dictionary of string views, which is what Polars makes of categories.
    return (words.cast(pa.large_string()) if Kind.of(words.type) is Kind.TEXT else words).take(column.indices)


def _moments(column: pa.Array) -> NDArray[np.datetime64]:
    if pa.types.is_date32(column.type):
        days = column.to_numpy(zero_copy_only=False)
        return np.asarray(days, dtype="datetime64[D]").astype("datetime64[us]")
    wide = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
    return np.asarray(wide.to_numpy(zero_copy_only=False), dtype="datetime64[us]")


def _flags(column: Any) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
