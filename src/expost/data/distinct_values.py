"""Distinct values with their counts, collected part by part: partial results that merge in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["CountedWords", "DistinctKeys"]

_FEW = 1 << 16  # values that are collected before they are made distinct again


class CountedWords:
    """64-bit words and how often each occurs. SECRET.

    >>> words = CountedWords.of(np.array([7, 3, 7])).merged(CountedWords.of(np.array([3])))
    >>> [part.tolist() for part in words.sorted()]
    [[3, 7], [2, 2]]
    """

    def __init__(self, parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
        self._parts = parts

    @classmethod
    def of(cls, words: NDArray[np.int64]) -> CountedWords:
        """Count the words of one part."""
        found, counts = np.unique(words, return_counts=True)
        return cls([(found, counts)])

    def merged(self, other: CountedWords) -> CountedWords:
        """Return the counts of both."""
        parts = [*self._parts, *other._parts]
        sizes = [len(words) for words, _ in parts]
        # Sorting once the size has doubled costs a logarithm of the number of parts in all, not their number.
        return CountedWords(parts if sum(sizes) <= max(2 * max(sizes), _FEW) else [_count_again(parts)])

    def sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the words in order, and their counts."""
        return self._parts[0] if len(self._parts) == 1 else _count_again(self._parts)

    def __getstate__(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return [self.sorted()]

    def __setstate__(self, state: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
        self._parts = state

    def __repr__(self) -> str:
        return "<counts of private values>"


def _count_again(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Merge parts in which words may repeat."""
    words, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(words, kind="stable")
    words, counts = words[order], counts[order]
    first = np.flatnonzero(np.append(True, words[1:] != words[:-1])) if len(words) else np.zeros(0, np.intp)
    return words[first], np.add.reduceat(counts, first) if len(first) else counts


class DistinctKeys:
    """The distinct cells of a canonical column. SECRET.

    >>> DistinctKeys.of(pa.array(["b", "a", "b"])).merged(DistinctKeys.of(pa.array(["a"]))).sorted().to_pylist()
    ['a', 'b']
    """

    def __init__(self, parts: list[pa.Array]) -> None:
        self._parts = parts

    @classmethod
    def of(cls, column: pa.Array) -> DistinctKeys:
        """Collect the cells of one part."""
        return cls([pc.unique(column)])

    def merged(self, other: DistinctKeys) -> DistinctKeys:
        """Return the cells of both."""
        parts = [*self._parts, *other._parts]
        sizes = list(map(len, parts))
        return DistinctKeys(parts if sum(sizes) <= max(2 * max(sizes), _FEW) else [pc.unique(pa.chunked_array(parts))])

    def sorted(self) -> pa.Array:
        """Return the cells in order."""
        column = pc.unique(pa.chunked_array(self._parts))
        return column.take(pc.sort_indices(column))

    def __getstate__(self) -> dict[str, Any]:
        return {"_parts": [pc.unique(pa.chunked_array(self._parts))]}

    def __repr__(self) -> str:
        return "<keys of private rows>"
