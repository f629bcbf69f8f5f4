"""Values of an expression on the rows of a batch: numbers, truths, texts or times, each possibly missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.canonical_cell import Kind, decode_column, float_cells

__all__ = ["Found", "Nulls", "Numbers", "Texts", "Times", "Truths", "Values", "choose", "read_column", "to_mask"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Floats in canonical form; NaN is missing."""

    numbers: NDArray[np.float64]

    @classmethod
    def from_computed(cls, numbers: NDArray[np.float64]) -> Numbers:
        """Convert computed numbers to canonical form: NaN and infinities are missing, and zero has no sign."""
        return cls(np.where(np.isfinite(numbers), numbers + 0.0, np.nan))

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.numbers)

    def to_column(self) -> pa.Array:
        return pa.array(self.numbers)

    def to_floats(self) -> NDArray[np.float64]:
        return self.numbers


@dataclass(frozen=True, slots=True)
class Truths:
    """Booleans in three-valued logic: ``true`` counts only where ``known``."""

    true: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @property
    def missing(self) -> NDArray[np.bool_]:
        return ~self.known

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Mask of the values known to be true, which is what a filter keeps."""
        return self.true & self.known

    def to_column(self) -> pa.Array:
        return pa.array(self.true, mask=~self.known)

    def to_floats(self) -> NDArray[np.float64]:
        return np.where(self.known, self.true, np.nan)


@dataclass(frozen=True, slots=True)
class Texts:
    """An Arrow array of text; null is missing."""

    texts: pa.Array

    @property
    def missing(self) -> NDArray[np.bool_]:
        return to_mask(self.texts.is_null())

    def to_column(self) -> pa.Array:
        return self.texts


@dataclass(frozen=True, slots=True)
class Times:
    """Moments in microseconds since 1970 (UTC); NaT is missing."""

    moments: NDArray[np.datetime64]

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnat(self.moments)

    def to_column(self) -> pa.Array:
        return pa.array(self.moments)


@dataclass(frozen=True, slots=True)
class Nulls:
    """The bare constant NULL, which has no kind until it is combined with a value that has one."""

    rows: int

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.ones(self.rows, bool)

    def to_column(self) -> pa.Array:
        return pa.nulls(self.rows, pa.float64())

    def to_floats(self) -> NDArray[np.float64]:
        return np.full(self.rows, np.nan)


Values = Numbers | Truths | Texts | Times
Found = Values | Nulls


def choose(mask: NDArray[np.bool_], first: Found, second: Found) -> Found:
    """Return the first values where the mask is true, and the second ones elsewhere. They are of one family."""
    first, second = _give_kind(first, second), _give_kind(second, first)
    if isinstance(first, Nulls) or isinstance(second, Nulls):
        return first
    if isinstance(first, Texts) and isinstance(second, Texts):
        return Texts(pc.if_else(pa.array(mask), first.texts, second.texts))
    if isinstance(first, Times) and isinstance(second, Times):
        return Times(np.where(mask, first.moments, second.moments))
    if isinstance(first, Truths) and isinstance(second, Truths):
        return Truths(np.where(mask, first.true, second.true), np.where(mask, first.known, second.known))
    assert isinstance(first, Numbers | Truths)
    assert isinstance(second, Numbers | Truths)
    return Numbers(np.where(mask, first.to_floats(), second.to_floats()))


def _give_kind(values: Found, other: Found) -> Found:
    """Give the bare NULL the kind of another value; all its rows stay missing."""
    if not isinstance(values, Nulls) or isinstance(other, Nulls):
        return values
    if isinstance(other, Texts):
        return Texts(pa.nulls(values.rows, pa.large_string()))
    if isinstance(other, Times):
        return Times(np.full(values.rows, np.datetime64("NaT", "us")))
    if isinstance(other, Truths):
        return Truths(np.zeros(values.rows, bool), np.zeros(values.rows, bool))
    return Numbers(values.to_floats())


def read_column(column: pa.Array) -> Values:
    """Read a canonical column as values. Infinities stay numbers here, because clamping moves them to a bound."""
    column = decode_column(column)
    kind = Kind.of(column.type)
    if kind is Kind.BOOLEAN:
        return Truths(to_mask(pc.fill_null(column, False)), to_mask(column.is_valid()))
    if kind is Kind.TEXT:
        return Texts(column)
    if kind is Kind.TIME:
        return Times(np.asarray(column.to_numpy(zero_copy_only=False)).astype("datetime64[us]"))
    return Numbers(float_cells(column))


def to_mask(column: Any) -> NDArray[np.bool_]:
    """Convert an Arrow column of booleans without nulls to a mask."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
