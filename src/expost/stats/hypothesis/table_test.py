"""A table of counts by public categories, released under noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.mask import check_unmasked
from expost.data import Dataset
from expost.noise import BitSource, discrete_laplace
from expost.stats.hypothesis.column import check_values, codes, named
from expost.stats.hypothesis.draw import multinomials
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest, under_noise
from expost.stats.hypothesis.size import TableSize
from expost.stats.hypothesis.verdict import Verdict, released

__all__ = [
    "CITATIONS",
    "TableTest",
    "chances_of",
    "counts_of",
    "drawn_tables",
    "finished",
    "noisy_counts",
    "sealed_counts",
]

CITATIONS = ("GLRV16, Algorithm 1", "KR17, Section 5", "BC91, Section 2", "GRS09, Definition 2")

Floats = NDArray[np.float64]

_MOST = 1 << 53  # rows: so many are counted by floats too


class TableTest(PricedTest, ABC):
    """A request whose release is a table of noisy counts; what follows is post-processing."""

    def __init__(self, columns: Sequence[str], name: str, ask: Ask, effect: Any, expected_rows: object) -> None:
        super().__init__(ask)
        self._columns, self._name, self._effect = named(*columns), name, effect
        self._expected_rows = expected_rows
        self._size = TableSize(None, None)
        self._categories: tuple[tuple[Any, ...], ...] = ()

    @property
    def question(self) -> str:
        return f"{self._name}: {' by '.join(self._columns)}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of categories of each column."""
        return tuple(len(categories) for categories in self._categories)

    def check(self, dataset: Dataset) -> None:
        self._size = TableSize.of_dataset(dataset, self._expected_rows)
        self._categories = tuple(_categories(dataset, column) for column in self._columns)
        self._priced = self._price()

    def measure(self, dataset: Dataset) -> Sealed:
        counts = np.zeros(self.shape, np.int64)
        for batch in dataset.batches(list(self._columns)):
            places = [codes(batch, *pair) for pair in zip(self._columns, self._categories, strict=True)]
            inside = np.all([place >= 0 for place in places], axis=0)
            np.add.at(counts, tuple(place[inside] for place in places), 1)
        return sealed_counts(counts, self._size)

    def noisy(self, sealed: Sealed, bits: BitSource | None) -> Floats:
        """The numbers that are released; all that follows is post-processing."""
        return noisy_counts(sealed, self._priced.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Verdict]:
        return self._release(sealed, self._priced, bits)

    @abstractmethod
    def _price(self) -> Priced: ...

    @abstractmethod
    def _release(self, sealed: Sealed, priced: Priced, bits: BitSource | None) -> Release[Verdict]: ...


def chances_of(values: Any, *, dimensions: int = 1) -> Floats:
    """Probabilities as a caller typed them; they must be positive and sum to 1."""
    check_unmasked(values)
    try:
        chances = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        chances = np.empty(0)
    if chances.ndim != dimensions or chances.size < 2 or not (chances > 0).all() or abs(chances.sum() - 1) > 1e-6:
        raise InvalidRequest("Expected positive probabilities that sum to 1", do="Pass one for each category")
    total: Floats = chances / chances.sum()
    return total


def counts_of(values: Any, dimensions: int, *, fewest: int = 1) -> NDArray[np.int64]:
    """Exact counts of at least ``fewest`` rows as an integer array."""
    check_unmasked(values)
    try:
        counts = np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # lists of different lengths, say
        counts = np.empty(0)
    shape_ok = counts.ndim == dimensions and all(length >= 2 for length in counts.shape)
    if (
        not shape_ok
        or counts.dtype.kind not in "iu"
        or counts.min() < 0
        or not fewest <= counts.sum(dtype=float) <= _MOST
    ):
        raise InvalidRequest(f"Expected a table of counts with {dimensions} axis or axes", do="Pass whole numbers")
    return counts.astype(np.int64)


def sealed_counts(counts: NDArray[np.int64], size: TableSize) -> Sealed:
    """Counts with their sensitivity."""
    return Sealed(counts.ravel(), Sensitivity(size.cell_sensitivity, Norm.L1, size.adjacency))


def noisy_counts(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Floats:
    """The counts under discrete Laplace noise."""
    return np.asarray(under_noise(sealed, epsilon, bits), np.float64)


def drawn_tables(rows: int, law: Floats, draws: int, scale: float, bits: BitSource) -> Floats:
    """Noisy tables of so many rows that follow a law."""
    counts = multinomials(rows, law, draws, bits)
    noise = discrete_laplace(Fraction(scale), counts.shape, bits=bits)
    noisy: Floats = (counts + noise).reshape((draws, *law.shape))
    return noisy


def finished(
    test: str,
    statistic: float,
    p: float,
    size: TableSize,
    priced: Priced,
    bits: BitSource,
    question: str,
    ask: Ask,
    *,
    level: str,
    citations: tuple[str, ...] = CITATIONS,
) -> Release[Verdict]:
    """The release of a test on a table."""
    return released(
        Verdict(test=test, statistic=statistic, p_value=p),
        question=question,
        method="discrete Laplace counts, drawn reference with noise",
        priced=priced,
        interval=None,
        ask=ask,
        private=bits.private,
        level=level,
        terms=size.terms,
        adjacency=size.adjacency,
        citations=citations,
    )


def _categories(dataset: Dataset, column: str) -> tuple[Any, ...]:
    categories = tuple(dataset.categories.get(column, ()))
    if len(categories) < 2:
        raise InvalidRequest("Expected public categories of the column", got=column, do="Declare Dataset(categories=)")
    check_values(dataset, column, categories)
    return categories
