"""Is there any relation between two columns? Permutation tests on parts, whose rejections are counted under noise.

The level is proved for every law of the values and every number of rows.

Whether a part rejects is counted, and one row may change that for its own part only. So no rounding here may depend on
other rows or on an order of summation: scores are whole numbers of any size, and equal ones are equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.argument import check_unmasked
from expost.data import Dataset
from expost.data.canonical_cell import float_cells
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.binomial import binomial_p_values, binomial_power
from expost.stats.hypothesis.hypothesis_input import (
    Number,
    TableSize,
    check_categories,
    check_column_names,
    check_numeric_column,
)
from expost.stats.hypothesis.hypothesis_plan import (
    PROVED,
    HypothesisPlan,
    HypothesisQuery,
    HypothesisVerdict,
    add_laplace_noise,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
)
from expost.stats.hypothesis.hypothesis_price import PriceTerms
from expost.stats.hypothesis.private_sample import encode_categories, encode_labels, read_labels
from expost.stats.hypothesis.reference_law import sample_uniforms

__all__ = ["SplitTest", "split_power", "split_test"]

Column = NDArray[Any]
Orders = NDArray[np.intp]
Integers = NDArray[np.int64]
Relation = Literal["means", "independence", "correlation"]
Statistic = Callable[[Column, Column, Orders], list[int]]
"""``statistic(x, y, orderings of x)`` -> one value per ordering; larger means more dependent."""

INNER_LEVEL = 0.25
"""The level of the test on one part: at most 10 of 40 orderings may be as extreme."""

_ORDERINGS = 39  # in addition to the one seen
_PARTS_TIMES_EPSILON, _FEWEST_PARTS, _LEAST_ROWS = 15, 5, 4
_MOST_PARTS = 1 << 17  # each runs a test
_WORD = 62  # binary digits of a whole number that leave space for a sign and one more digit in 64 bits
_CITATIONS = ("KSGB23", "AS18, Theorem 5.2", "GRS09, Definition 2", "docs/proofs/split-test.md")


@hypothesis_query
class SplitTest(HypothesisQuery):
    """Tests whether two columns are independent: values of groups, two categories, or two numbers.

    The rows are assigned at random to parts, each part runs a permutation test at level 1/4, and the number of parts
    that reject is released under noise.

    Guarantee: pure DP with the epsilon given, known before the run.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: 1 (L1): a row is in one part, and the other parts do not depend on it.
    Accuracy: P(p-value <= level) <= level for every number of rows, every epsilon and all laws of the columns: proved.
        Needs no bounds. Its power is below that of the tests made for one question.
    Numerics: exact integer scores, counts and noise; the uniform number and the p-value are post-processing in floats.
    Reference: KSGB23 (tests on parts); AS18, Theorem 5.2 (p-value); docs/proofs/split-test.md.

    Parameters
    ----------
    relation : {"means", "independence", "correlation"}
        The relation tested: values by group (the second column's categories are the groups), two categories, or ranks
        of two numbers.
    first, second : str
        The columns. Categories must be declared in the dataset.
    epsilon : float
        The privacy cost.
    parts : int, optional
        The number of parts. Default: about 15 / epsilon, with at least four rows each.

    Examples
    --------
    >>> SplitTest("means", "delay", "origin", epsilon=1).question
    'split test of means: delay with origin'
    """

    relation: Relation
    first: str
    second: str
    _: KW_ONLY
    epsilon: Number
    parts: int | None = None

    def __post_init__(self) -> None:
        check_column_names(self.first, self.second)
        if self.first == self.second:
            raise InvalidRequest("Expected two different columns", got=self.first, do="Name another one")
        _read_relation(self.relation)
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"split test of {self.relation}: {self.first} with {self.second}"

    def _read_price_terms(self) -> PriceTerms:
        return PriceTerms.read(epsilon=self.epsilon)

    def _plan_for_dataset(self, dataset: Dataset) -> SplitPlan:
        size = TableSize.of_dataset(dataset)
        categories: list[tuple[Any, ...] | None] = []
        for column, is_category in zip((self.first, self.second), _category_columns(self.relation), strict=True):
            if not is_category:
                check_numeric_column(dataset, column)
            categories.append(check_categories(dataset, column) if is_category else None)
        return self._plan_for_size(size, tuple(categories), self.question)

    def _plan_for_size(
        self, size: TableSize, categories: tuple[tuple[Any, ...] | None, ...], question: str
    ) -> SplitPlan:
        """Choose the number of parts for a table of this size."""
        price = self._read_price_terms().fixed
        assert price is not None
        return SplitPlan(
            question=question,
            price=price,
            relation=self.relation,
            columns=(self.first, self.second),
            categories=categories,
            size=size,
            parts=parts_for(size, float(price.epsilon), self.parts),
        )


@dataclass(frozen=True, kw_only=True)
class SplitPlan(HypothesisPlan):
    """A priced split test."""

    relation: Relation
    columns: tuple[str, str]
    categories: tuple[tuple[Any, ...] | None, ...]
    size: TableSize
    parts: int

    def measure(self, dataset: Dataset) -> Sealed:
        """Count the parts that reject."""
        columns: tuple[list[Any], list[Any]] = ([], [])
        for batch in dataset.batches(list(self.columns)):
            for found, column, categories in zip(columns, self.columns, self.categories, strict=True):
                number = categories is None
                found.append(
                    float_cells(batch.column(column)) if number else encode_categories(batch, column, categories or ())
                )
        first, second = (
            np.concatenate([np.empty(0, np.float64 if categories is None else np.int64), *found])
            for found, categories in zip(columns, self.categories, strict=True)
        )
        return measure_rejections(self.relation, first, second, self.parts, self.size, None)

    def release_numbers(self, sealed: Sealed, bits: BitSource | None) -> Any:
        return add_laplace_noise(sealed, self.price.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source, epsilon = bits or system_bits(), float(self.price.epsilon)
        # The uniform number makes the binomial p-value exact (AS18, Theorem 5.2).
        statistic = int(self.release_numbers(sealed, source)[0]) + float(sample_uniforms((1,), source)[0]) - 0.5
        p = binomial_p_values(np.array([statistic]), self.parts, INNER_LEVEL, epsilon=epsilon, alternative="greater")
        return self.release_verdict(
            HypothesisVerdict(test=f"split test of {self.relation}", statistic=statistic, p_value=float(p[0])),
            method="permutation tests on parts, discrete Laplace count of rejections",
            bits=source,
            level=PROVED,
            terms={**self.size.terms, "parts": self.parts, "level of a part": INNER_LEVEL},
            adjacency=self.size.adjacency,
            citations=_CITATIONS,
        )


@hypothesis_test(SplitTest)
def split_test(
    relation: Relation,
    first: Any,
    second: Any,
    *,
    epsilon: Number,
    parts: int | None = None,
    adjacency: str | Adjacency = "replace-one",
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether two arrays of equal length are independent, with a proved level.

    Parameters
    ----------
    first, second : array-like
        The private samples. Numbers must be an array of a numeric type; categories may be any values, None included.

    Raises
    ------
    InvalidRequest
        If an argument is out of range.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> group = np.arange(900) % 3
    >>> values = np.sin(np.arange(900.0)) + group
    >>> split_test("means", values, group, epsilon=1, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    kind, source = _read_relation(relation), bits or system_bits()
    x, y = (
        read_labels(values) if is_category else _read_numeric_array(values)
        for values, is_category in zip((first, second), _category_columns(kind), strict=True)
    )
    # Where the number of rows is private, an empty sample is accepted: refusing it would reveal that it is empty.
    fewest = 2 if Adjacency.parse(adjacency).public_size else 0
    if x.ndim != 1 or x.shape != y.shape or x.size < fewest:
        raise InvalidRequest("Expected two lists of equal length", do="Pass one-dimensional arrays")
    size = TableSize.of_sample(len(x), adjacency=adjacency)
    query = SplitTest(kind, "first", "second", epsilon=epsilon, parts=parts)
    plan = query._plan_for_size(size, (None, None), f"split test of {kind}")
    return plan.climb(measure_rejections(kind, x, y, plan.parts, size, source), source)


@hypothesis_power
def split_power(parts: int, chance: Number, *, epsilon: Number, level: Number = 0.05) -> float:
    """Compute the exact power when each part rejects with probability ``chance``.

    Parameters
    ----------
    parts : int
        The number of parts.
    chance : float
        The probability that a part rejects; 1/4 or less without an effect.

    Examples
    --------
    >>> round(split_power(15, 0.7, epsilon=1.0), 2)
    0.92
    """
    return binomial_power(parts, INNER_LEVEL, chance, epsilon=epsilon, level=level, alternative="greater")


def _read_relation(value: object) -> Relation:
    """Read the name of a relation."""
    match value if isinstance(value, str) else None:  # arrays compare by element
        case "means" | "independence" | "correlation" as found:
            return found
    raise InvalidRequest(
        "Expected relation to be 'means', 'independence' or 'correlation'", got=value, do="Name one of them"
    )


def _category_columns(relation: Relation) -> tuple[bool, bool]:
    """Return whether the first and the second column hold categories."""
    return relation == "independence", relation != "correlation"


def _read_numeric_array(values: Any) -> NDArray[np.float64]:
    """Convert an array of numbers to floats; any other array is refused by its type, whatever its cells are."""
    check_unmasked(values)
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # such as lists of different lengths; the message may repeat a cell
        given = np.empty((0, 0))
    if given.dtype.kind not in "biuf":
        raise InvalidRequest(
            "Expected an array of numbers, without texts and None", do="Convert it; write NaN for missing values"
        )
    return given.astype(np.float64)


def parts_for(size: TableSize, epsilon: float, asked: int | None) -> int:
    """Return the number of parts: about 15 / epsilon, which detects the smallest effects, with at least four rows each."""
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
    """Count the parts whose permutation test rejects and seal the count; a part depends on its own rows only."""
    source, statistic = bits or system_bits(), statistic_for(relation)
    draws = sample_uniforms((len(first),), source)
    # With a private number of rows each row is assigned by itself: one more or less leaves the parts of all others
    # unchanged. With a public one the parts are of equal size.
    alone = size.rows is None
    assigned = np.floor(draws * parts).astype(np.int64) if alone else np.argsort(np.argsort(draws)) % parts
    order = np.argsort(assigned, kind="stable")
    ends = np.cumsum(np.bincount(assigned, minlength=parts))
    rejected = sum(part_rejects(first[rows], second[rows], statistic, source) for rows in np.split(order, ends[:-1]))
    return Sealed(np.array([rejected]), Sensitivity(1, Norm.L1, size.adjacency))


def part_rejects(first: Column, second: Column, statistic: Statistic, bits: BitSource | None) -> bool:
    """Return whether the order seen is among the most extreme quarter of 40 orderings; ties count as more extreme.

    If the second column is independent of the first, all orderings are equally likely, so this happens with probability
    at most ``INNER_LEVEL``. A part of fewer than two rows does not reject.
    """
    if len(first) < 2:
        return False
    drawn = np.argsort(sample_uniforms((_ORDERINGS, len(first)), bits), axis=1)
    seen, *others = statistic(first, second, np.vstack([np.arange(len(first)), drawn]))
    return 1 + sum(other >= seen for other in others) <= INNER_LEVEL * (1 + _ORDERINGS)


def statistic_for(relation: Relation) -> Statistic:
    """Return the statistic of a relation.

    >>> x = np.array([1.0, 2.0, 3.0])
    >>> statistic_for("correlation")(x, x, np.array([[0, 1, 2], [1, 0, 2]]))
    [8, 4]
    """
    return {"means": _score_groups, "independence": _score_table, "correlation": _score_ranks}[relation]


def _score_groups(values: Column, labels: Column, orders: Orders) -> list[int]:
    """Return the sum of squares between groups, times a number that all orderings share."""
    codes, whole, rows = encode_labels(labels), _scale_to_whole(values), len(values)
    grouped = np.flatnonzero(codes >= 0)
    if not grouped.size:
        return [0] * len(orders)
    sizes = np.bincount(codes[grouped])
    by_group = grouped[np.argsort(codes[grouped], kind="stable")]
    sums = np.add.reduceat(whole[orders[:, by_group]], np.cumsum(sizes) - sizes, axis=1)
    away = sums.astype(object) * rows - sizes.astype(object) * int(whole.sum())
    scores: list[int] = (away**2 @ _invert_sizes(sizes)).tolist()
    return scores


def _score_table(first: Column, second: Column, orders: Orders) -> list[int]:
    """Return the sum of squared counts over their expectation, which grows with the chi-squared statistic."""
    x, y = encode_labels(first), encode_labels(second)
    by_row, by_column = (_invert_sizes(np.bincount(each[each >= 0])) for each in (x, y))
    width, table = max(len(by_column), 1), max(len(by_row) * len(by_column), 1)
    # One table per ordering, one after another.
    cells = x[orders] * width + y + table * np.arange(len(orders))[:, None]
    cell, counts = np.unique(cells[(x[orders] >= 0) & (y >= 0)], return_counts=True)
    terms = counts.astype(object) ** 2 * by_row[cell % table // width] * by_column[cell % width]
    starts = np.searchsorted(cell, table * np.arange(len(orders) + 1))
    return [sum(terms[start:stop]) for start, stop in itertools.pairwise(starts)]


def _score_ranks(first: Column, second: Column, orders: Orders) -> list[int]:
    """Return four times the absolute covariation of ranks (Spearman's), which needs no bounds."""
    x, y, rows = _center_ranks(first), _center_ranks(second), len(first)
    block = max(1, (1 << _WORD) // rows**2)  # ranks are at most the number of rows: this many products fit 64 bits
    sums = np.add.reduceat(x[orders] * y, np.arange(0, rows, block), axis=1)
    scores: list[int] = np.abs(sums.astype(object).sum(axis=1)).tolist()
    return scores


def _scale_to_whole(values: Column) -> Integers:
    """Scale values to whole numbers by a common power of two, such that the sum of any of them fits 64 bits."""
    finite = np.nan_to_num(values, nan=0.0, posinf=np.finfo(float).max, neginf=np.finfo(float).min)
    digits = min(52, _WORD - len(values).bit_length())
    exponent = int(np.frexp(np.abs(finite).max())[1])
    whole: Integers = np.rint(np.ldexp(finite, digits - exponent)).astype(np.int64)
    return whole


def _invert_sizes(sizes: Integers) -> NDArray[Any]:
    """Return one over each size, times their least common multiple."""
    whole = sizes.astype(object)
    shares: NDArray[Any] = math.lcm(*whole.tolist()) // whole
    return shares


def _center_ranks(values: Column) -> Integers:
    """Return twice the distance of each rank from the middle one; rows of equal value share theirs."""
    ordered = np.sort(values)
    found = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - len(values)
    return found.astype(np.int64)
