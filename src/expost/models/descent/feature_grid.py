"""Feature rows as exact integers, so that sums of gradients are exact too."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, SingleOwner

__all__ = ["FeatureGrid", "GridRows", "Index"]

Index = NDArray[np.intp] | slice
"""Some rows of a table."""

_FINE = 20  # bits of the first rounding, from which lengths are computed exactly
_BITS = 12  # a row is at most 2^12 grid units long
_WIDEST = 1 << 20  # columns: rounding must stay a small part of a row's length
_CHUNK = 1 << 15  # values encoded at a time: they stay in the cache
_HUGE = 1e150  # stands for infinity: its square is still finite


@dataclass(frozen=True)
class FeatureGrid:
    """The public map from a raw row to integers of Euclidean length at most 2^12.

    A row longer than ``bound`` is shortened to it. Everything is computed value by value or in exact integers, so the
    integers of a row depend on that row alone, not on its place or its table. A missing value counts as zero. The
    intercept is one more column, half as long as the bound. Columns with public bounds ``lows`` and ``highs`` are first
    clipped to them and mapped to [-1, 1].

    >>> grid = FeatureGrid(width=2, bound=1.0)
    >>> rows = grid.encode_rows(np.array([[0.6, 0.8], [30.0, 40.0]]))
    >>> rows.integers()[:, :2].tolist()
    [[2457, 3275], [2457, 3275]]
    """

    width: int
    bound: float = 1.0
    intercept: bool = True
    lows: tuple[float, ...] | None = None
    highs: tuple[float, ...] | None = None
    intercept_share: float = field(default=0.5, repr=False)  # length of the intercept's column, as a share of the bound

    def __post_init__(self) -> None:
        if not 1 <= self.width <= _WIDEST:
            raise InvalidRequest(f"Expected between 1 and {_WIDEST} features", got=self.width, do="Drop some")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise InvalidRequest("Expected a positive feature_bound", got=self.bound, do="Pass a public length")

    @cached_property
    def length(self) -> float:
        """Return the length in grid units of a row as long as the bound, before it is rounded."""
        # Rounding to nearest adds at most sqrt(width) / 2 to a length; one more unit covers float errors.
        return float(1 << _BITS) - math.sqrt(self.width) / 2 - 1

    @cached_property
    def unit(self) -> float:
        """Return the number of grid units in a feature value of 1."""
        return self.length / self.bound

    @cached_property
    def constant(self) -> int:
        """Return the value of the intercept's column: by default half the length of the longest row."""
        return max(1, round(self.intercept_share * (1 << _BITS)))

    @cached_property
    def columns(self) -> int:
        """Return the number of integer columns, the intercept's included."""
        return self.width + self.intercept

    @cached_property
    def longest(self) -> int:
        """Return the largest squared length of an encoded row, exactly."""
        return (1 << 2 * _BITS) + (self.constant**2 if self.intercept else 0)

    def encode_rows(self, features: Any, change: Callable[[Any], Any] | None = None) -> GridRows:
        """Convert raw rows to integers, with their lengths; ``change`` is applied to blocks of raw rows first."""
        values = np.empty((features.shape[0], self.columns), np.int16)
        squares = np.empty(len(values))
        constant = float(self.constant**2) if self.intercept else 0.0
        for part in _split_rows(features.shape[0], self.width):
            block = features[part]
            block = block.toarray() if hasattr(block, "toarray") else block
            values[part, : self.width], squares[part] = self._round_rows(block if change is None else change(block))
        if self.intercept:
            values[:, -1] = self.constant
        squares += constant
        return GridRows(values, 1 / np.sqrt(np.maximum(squares, 1.0)))

    def _round_rows(self, raw: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Clip rows to the bound and round them to integers; return them with their squared lengths, which are exact."""
        values = np.asarray(raw, np.float64)
        if self.lows is not None and self.highs is not None:
            lows, highs = np.array(self.lows), np.array(self.highs)
            values = np.asarray((np.clip(values, lows, highs) - (lows + highs) / 2) * (2 / (highs - lows)))
        finite = np.isfinite(values).all()
        rows = values if finite else np.nan_to_num(values, nan=0.0, posinf=_HUGE, neginf=-_HUGE)
        # A long row is first scaled into the cube around the ball, by its largest value, then into the ball.
        largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), self.bound)
        fine = rows * ((1 << _FINE) / largest)[:, None]
        np.rint(fine, out=fine)
        # Integers below 2^40 add up exactly in float64 for up to 2^12 columns, in int64 for any number. Exact sums do not
        # depend on the order, so equal rows have equal lengths in every table.
        squares = np.einsum("ij,ij->i", fine, fine) if self.width <= 1 << 12 else _square_lengths(fine.astype(np.int64))
        factors = self.length / np.maximum(np.sqrt(squares), float(1 << _FINE))
        fine *= factors[:, None]
        found: NDArray[np.float64] = np.rint(fine, out=fine)
        lengths: NDArray[np.float64] = np.einsum("ij,ij->i", found, found)
        # Impossible by the choice of ``length``. The bound is enforced anyway: the sensitivity depends on it.
        wrong = lengths > 1 << 2 * _BITS
        found[wrong], lengths[wrong] = 0, 0
        return found, lengths

    def raw_weights(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Convert weights of encoded rows (outputs x columns) to coefficients and intercepts for raw rows."""
        slopes = weights[:, : self.width].copy()
        # A score is weights . integers / unit, and an integer is about unit times the centered value.
        constants = weights[:, self.width] * (self.constant / self.unit) if self.intercept else np.zeros(len(weights))
        if self.lows is not None and self.highs is not None:
            lows, highs = np.array(self.lows), np.array(self.highs)
            slopes *= 2 / (highs - lows)
            constants = constants - slopes @ ((lows + highs) / 2)
        return slopes, constants


class _Buffers(threading.local):
    """Memory of one thread for the rows it works on, reused because allocation costs time."""

    def __init__(self, columns: int) -> None:
        self.integers, self.singles = np.empty((0, columns), np.int16), np.empty((0, columns), np.float32)

    def reserve(self, rows: int) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
        """Return space for some rows in both types."""
        if len(self.singles) < rows:
            columns = self.singles.shape[1]
            self.integers, self.singles = np.empty((rows, columns), np.int16), np.empty((rows, columns), np.float32)
        return self.integers[:rows], self.singles[:rows]


class GridRows(SingleOwner):
    """Encoded rows. They are private, so they cannot be printed or pickled.

    ``inverses`` are one over the length of each row, and one for a row of zeros.
    """

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(self, values: NDArray[np.int16], inverses: NDArray[np.float64]) -> None:
        super().__init__()
        self._values, self._inverses, self._buffers = values, inverses, _Buffers(values.shape[1])

    @classmethod
    def join(cls, parts: Sequence[GridRows]) -> GridRows:
        """Return the rows of several tables of one grid as one table."""
        values, inverses = ([getattr(part, name) for part in parts] for name in ("_values", "_inverses"))
        return cls(np.concatenate(values), np.concatenate(inverses))

    def __len__(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the rows take in memory."""
        return self._values.nbytes + self._inverses.nbytes

    def integers(self) -> NDArray[np.int16]:
        return self._values

    def take_rows(self, index: Index) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return some rows as integers in float64, and one over their lengths."""
        if isinstance(index, slice):
            return self._values[index].astype(np.float64), self._inverses[index]
        return self._values.take(index, axis=0).astype(np.float64), self._inverses.take(index)

    def take_singles(self, index: Index) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return some rows as integers in float32, valid until this thread's next call, and one over their lengths."""
        inverses = self._inverses[index]
        chosen, singles = self._buffers.reserve(len(inverses))
        if isinstance(index, slice):
            chosen = self._values[index]
        else:
            self._values.take(index, axis=0, out=chosen, mode="clip")  # indices are valid: this mode avoids a copy
        np.copyto(singles, chosen)
        return singles, inverses

    def subset(self, index: NDArray[np.intp]) -> GridRows:
        """Return some rows as a table of their own."""
        return GridRows(self._values[index], self._inverses[index])

    def __repr__(self) -> str:
        return "<rows of a private table>"


def _square_lengths(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the squared length of each row, added in exact integers."""
    squares = np.empty(len(values))
    for part in _split_rows(*values.shape):
        block = values[part].astype(np.int64)
        squares[part] = np.einsum("ij,ij->i", block, block)
    return squares


def _split_rows(rows: int, width: int) -> Iterator[slice]:
    """Cut rows into blocks of limited size."""
    step = max(1, _CHUNK // max(width, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
