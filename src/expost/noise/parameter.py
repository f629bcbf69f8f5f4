"""Exact parameters of a sampler: one for all elements, or one per element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.rational import rational, whole

__all__ = ["BLOCK", "LARGEST_SCALE", "MOST_NUMBERS", "Parameter", "as_shape", "blocks", "exact_parameter"]

LARGEST_SCALE = 1 << 60  # lattice units; values beyond 62 bits are Python integers
MOST_NUMBERS = 1 << 36  # drawn at once: half a terabyte
BLOCK = 1 << 15  # elements worked on at a time: their temporaries stay in the cache


def blocks(count: int) -> Iterator[slice]:
    """Slices that cover ``count`` elements, each short enough for the cache.

    >>> [part.stop for part in blocks(40_000)]
    [32768, 40000]
    """
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


class Parameter:
    """Distinct exact rationals and, per element, which of them it takes.

    ``floats`` are within 2^-50 (relative) of the exact values: they steer float filters, never an outcome.

    >>> Parameter.read([0.5, 2, 0.5], None, "scale").exact(1)
    Fraction(2, 1)
    """

    def __init__(
        self,
        floats: NDArray[np.float64],
        exact: Callable[[int], Fraction],
        index: NDArray[np.intp] | None,
        shape: tuple[int, ...] | None,
    ) -> None:
        self.floats, self._exact, self.index, self._shape = floats, exact, index, shape
        self.count = math.prod(shape or ()) if index is None else index.size

    @classmethod
    def read(
        cls, value: object, size: object, name: str, *, positive: bool = True, largest: int = LARGEST_SCALE
    ) -> Parameter:
        """The parameter a caller typed: a number with a size, or a sequence or array of numbers."""
        if not isinstance(value, np.ndarray | Sequence) or isinstance(value, str):
            exact = exact_parameter(value, name, positive=positive, largest=largest)
            return cls.of_table([exact], None, as_shape(size))
        given = value if isinstance(value, np.ndarray) else _array(value, name)
        if size is not None and as_shape(size) != given.shape:
            raise InvalidRequest(f"Expected one {name} per element", do="Leave size out, or pass a single number")
        if given.dtype == object:
            table, index = _distinct(given.ravel().tolist())
        else:
            kept, index = np.unique(given.ravel(), return_inverse=True)
            table = kept.tolist()
        exacts = [exact_parameter(each, name, positive=positive, largest=largest) for each in table]
        return cls.of_table(exacts, index, given.shape)

    @classmethod
    def of_table(
        cls, table: Sequence[Fraction], index: NDArray[np.intp] | None, shape: tuple[int, ...] | None = None
    ) -> Parameter:
        return cls(np.array([float(each) for each in table]), table.__getitem__, index, shape)

    def exact(self, element: int) -> Fraction:
        """The exact value of one element."""
        return self._exact(0 if self.index is None else int(self.index[element]))

    def entry(self, place: int) -> Fraction:
        """One of the distinct exact values."""
        return self._exact(place)

    def largest(self) -> Fraction:
        """The largest distinct value."""
        return max(self._exact(place) for place in range(len(self.floats)))

    def take(self, table: NDArray[Any], part: slice) -> NDArray[Any]:
        """The entries of a per-value table for a slice of the elements (one entry if all are alike)."""
        return table if self.index is None else table[self.index[part]]

    def shaped(self, flat: NDArray[Any]) -> Any:
        """The result in the shape the caller asked for; a single value as a Python integer or boolean."""
        return flat.tolist()[0] if self._shape is None else flat.reshape(self._shape)

    def select(self, elements: NDArray[np.intp]) -> Parameter:
        """The parameter of some of the elements, as a flat column."""
        index = None if self.index is None else self.index[elements]
        return Parameter(self.floats, self._exact, index, (len(elements),))


def exact_parameter(value: object, name: str, *, positive: bool = True, largest: int = LARGEST_SCALE) -> Fraction:
    """One number that a sampler takes.

    >>> exact_parameter(0.5, "scale")
    Fraction(1, 2)
    """
    if isinstance(value, int | Fraction | np.integer) and not isinstance(value, bool) and value > 1:
        if value > largest:
            raise InvalidRequest(f"Expected {name} of at most {largest}", got=value, do=f"Pass a smaller {name}")
        return Fraction(int(value) if isinstance(value, np.integer) else value)
    return rational(value, name, positive=positive)


def as_shape(size: object) -> tuple[int, ...] | None:
    """The shape a caller asked for; None for a single value."""
    if size is None:
        return None
    lengths = size if isinstance(size, tuple) else (size,)
    shape = tuple(
        whole(length, "size", most=MOST_NUMBERS, do="Pass a length or a tuple of lengths") for length in lengths
    )
    if math.prod(shape) > MOST_NUMBERS:
        raise InvalidRequest(f"Expected at most {MOST_NUMBERS} numbers at once", do="Draw them in several parts")
    return shape


def _array(value: object, name: str) -> NDArray[Any]:
    """A caller's sequence, element by element, so that exact numbers stay exact."""
    try:
        return np.array(value, dtype=object)
    except ValueError:
        raise InvalidRequest(f"Expected {name} to be a number or a regular array of numbers", do="Flatten it") from None


def _distinct(values: list[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    try:
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    except TypeError:
        raise InvalidRequest("Expected numbers", do="Pass ints, floats or Fractions") from None
    return list(places), np.array([places[value] for value in values], dtype=np.intp)
