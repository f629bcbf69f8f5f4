"""One private test for many questions, with a level that is proved: tests on parts, whose rejections are counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.mask import check_unmasked
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.binomial import binomial_p_values, binomial_power
from expost.stats.hypothesis.column import check_values, codes, measured, named
from expost.stats.hypothesis.draw import uniforms
from expost.stats.hypothesis.labels import labels_of
from expost.stats.hypothesis.permutation import INNER_LEVEL, Relation, part_rejects, statistic_of
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest, under_noise
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.verdict import PROVED, Verdict, released

__all__ = ["SplitTest", "split_power", "split_test"]

_PARTS_TIMES_EPSILON, _FEWEST_PARTS, _LEAST_ROWS = 15, 5, 4
_MOST_PARTS = 1 << 17  # each runs a test of its own
_CITATIONS = ("KSGB23", "AS18, Theorem 5.2", "GRS09, Definition 2", "docs/proofs/split-test.md")

Floats = NDArray[np.float64]
Column = NDArray[Any]


class SplitTest(PricedTest):
    """Tests whether two columns are independent: values of groups, two categories, or two numbers.

    The rows are dealt at random into parts, each part runs a permutation test at level 1/4, and the number of parts that
    reject is released under noise. ``relation`` is ``"means"`` (the second column's categories are the groups),
    ``"independence"`` (two categories) or ``"correlation"`` (ranks of two numbers).

    Guarantee: pure DP with the epsilon given, known before the run.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: 1 (L1): a row is in one part, and the other parts do not see it.
    Accuracy: P(p-value <= level) <= level for every number of rows, every epsilon and all laws of the columns: proved.
        Needs no bounds. Its power is below that of the tests made for one question.
    Numerics: exact integer scores, counts and noise; the uniform number and the p-value are floats that protect nobody.
    Reference: KSGB23 (tests on parts); AS18, Theorem 5.2 (p-value); docs/proofs/split-test.md.

    >>> SplitTest("means", "delay", "origin", epsilon=1).question
    'split test of means: delay with origin'
    """

    def __init__(
        self,
        relation: Relation,
        first: str,
        second: str,
        *,
        epsilon: object,
        parts: int | None = None,
    ) -> None:
        if first == second:
            raise InvalidRequest("Expected two different columns", got=first, do="Name another one")
        self._relation, self._columns, self._parts = relation_of(relation), named(first, second), parts
        super().__init__(Ask(epsilon=epsilon))
        self._size, self._dealt = TableSize(None, None), 0

    @property
    def question(self) -> str:
        return f"split test of {self._relation}: {self._columns[0]} with {self._columns[1]}"

    def check(self, dataset: Dataset) -> None:
        self._size = TableSize.of_dataset(dataset)
        for place, column in enumerate(self._columns):
            if self._is_category(place):
                check_values(dataset, column, _categories(dataset, column))
            elif not dataset.schema.kind(column).is_number:
                raise InvalidRequest("Expected a numeric column", got=column, do="Name a column of numbers")
        self._dealt = parts_for(self._size, float(self._priced.epsilon), self._parts)

    def measure(self, dataset: Dataset) -> Sealed:
        columns: tuple[list[Any], list[Any]] = ([], [])
        for batch in dataset.batches(list(self._columns)):
            for place, column in enumerate(self._columns):
                found = codes(batch, column, _categories(dataset, column)) if self._is_category(place) else None
                columns[place].append(measured(batch, column) if found is None else found)
        kinds = (np.int64 if self._is_category(place) else np.float64 for place in (0, 1))
        first, second = (
            np.concatenate([np.empty(0, kind), *parts]) for kind, parts in zip(kinds, columns, strict=True)
        )
        return measure_rejections(self._relation, first, second, self._dealt, self._size, None)

    def noisy(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """The numbers that are released; all that follows is post-processing."""
        return under_noise(sealed, self._priced.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Verdict]:
        return _release(sealed, self._dealt, self._size, self._priced, bits, self.question, self._ask, self._relation)

    def _is_category(self, place: int) -> bool:
        return self._relation == "independence" or (self._relation == "means" and place == 1)


def split_test(
    relation: Relation,
    first: Any,
    second: Any,
    *,
    epsilon: object,
    parts: int | None = None,
    adjacency: str = "replace-one",
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on two arrays of equal length; categories may be any values, None among them.

    >>> from expost.noise import SeededBits
    >>> group = np.arange(900) % 3
    >>> values = np.sin(np.arange(900.0)) + group
    >>> split_test("means", values, group, epsilon=1, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    kind, source = relation_of(relation), bits or system_bits()
    x, y = (
        labels_of(first) if kind == "independence" else _numbers_of(first),
        _numbers_of(second) if kind == "correlation" else labels_of(second),
    )
    if x.ndim != 1 or x.shape != y.shape or x.size < fewest_rows(2, adjacency=adjacency):
        raise InvalidRequest("Expected two lists of equal length", do="Pass one-dimensional arrays")
    ask, size = Ask(epsilon=epsilon), TableSize.of(len(x), adjacency=adjacency)
    priced = ask.fixed
    assert priced is not None
    dealt = parts_for(size, float(priced.epsilon), parts)
    sealed = measure_rejections(kind, x, y, dealt, size, source)
    return _release(sealed, dealt, size, priced, source, f"split test of {kind}", ask, kind)


def split_power(parts: int, chance: float, *, epsilon: float, level: float = 0.05) -> float:
    """The exact power when each part rejects with probability ``chance`` (1/4 without an effect).

    >>> round(split_power(15, 0.7, epsilon=1.0), 2)
    0.92
    """
    return binomial_power(parts, INNER_LEVEL, chance, epsilon=epsilon, level=level, alternative="greater")


def relation_of(value: object) -> Relation:
    """The relation a caller named."""
    match value if isinstance(value, str) else None:  # arrays compare by element
        case "means" | "independence" | "correlation" as found:
            return found
    raise InvalidRequest(
        "Expected relation to be 'means', 'independence' or 'correlation'", got=value, do="Name one of them"
    )


def parts_for(size: TableSize, epsilon: float, asked: int | None) -> int:
    """The number of parts: about 15 / epsilon, which needs the smallest effects, with at least four rows each.

    >>> parts_for(TableSize(1000, None), 0.3, None)
    50
    """
    if asked is not None:
        if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= _MOST_PARTS:
            raise InvalidRequest(
                f"Expected parts to be a whole number from 1 to {_MOST_PARTS}", got=asked, do="Pass 20"
            )
        return asked
    best = min(max(_FEWEST_PARTS, math.ceil(_PARTS_TIMES_EPSILON / epsilon - 1e-9)), _MOST_PARTS)
    return best if size.rows is None else max(1, min(best, size.rows // _LEAST_ROWS))


def measure_rejections(
    relation: Relation, first: Column, second: Column, parts: int, size: TableSize, bits: BitSource | None
) -> Sealed:
    """The number of parts whose permutation test rejects, sealed; a part sees its own rows and no other."""
    source, statistic = bits or system_bits(), statistic_of(relation)
    draws = uniforms((len(first),), source)
    # Of a private number each row goes by itself: one more or less leaves the parts of all others alone.
    alone = size.rows is None
    dealt = np.floor(draws * parts).astype(np.int64) if alone else np.argsort(np.argsort(draws)) % parts
    order = np.argsort(dealt, kind="stable")
    ends = np.cumsum(np.bincount(dealt, minlength=parts))
    rejected = sum(part_rejects(first[rows], second[rows], statistic, source) for rows in np.split(order, ends[:-1]))
    return Sealed(np.array([rejected]), Sensitivity(1, Norm.L1, size.adjacency))


def _release(
    sealed: Sealed,
    parts: int,
    size: TableSize,
    priced: Priced,
    bits: BitSource | None,
    question: str,
    ask: Ask,
    relation: Relation,
) -> Release[Verdict]:
    source = bits or system_bits()
    statistic = int(under_noise(sealed, priced.epsilon, source)[0]) + float(uniforms((1,), source)[0]) - 0.5
    p = binomial_p_values(
        np.array([statistic]), parts, INNER_LEVEL, epsilon=float(priced.epsilon), alternative="greater"
    )
    return released(
        Verdict(test=f"split test of {relation}", statistic=statistic, p_value=float(p[0])),
        question=question,
        method="permutation tests on parts, discrete Laplace count of rejections",
        priced=priced,
        interval=None,
        ask=ask,
        private=source.private,
        level=PROVED,
        terms={**size.terms, "parts": parts, "level of a part": INNER_LEVEL},
        adjacency=size.adjacency,
        citations=_CITATIONS,
    )


def _array_of(values: Any) -> NDArray[Any]:
    check_unmasked(values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # lists of different lengths, say; the words may repeat a cell
        return np.empty((0, 0))


def _numbers_of(values: Any) -> Floats:
    """Numbers as floats; an array that may hold anything else is refused for its type, whatever its cells are."""
    given = _array_of(values)
    if given.dtype.kind not in "biuf":
        raise InvalidRequest(
            "Expected an array of numbers, without texts and None", do="Convert it; write NaN for what is missing"
        )
    return given.astype(np.float64)


def _categories(dataset: Dataset, column: str) -> tuple[Any, ...]:
    categories = tuple(dataset.categories.get(column, ()))
    if len(categories) < 2:
        raise InvalidRequest("Expected public categories of the column", got=column, do="Declare Dataset(categories=)")
    return categories
