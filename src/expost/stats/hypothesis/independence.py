"""Are two categorical columns independent? The chi-squared test on a noisy two-way table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Release, Sealed
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, SeededBits, sample_laplace, system_bits
from expost.stats.hypothesis.count_table import (
    CountTablePlan,
    NoisyTable,
    independence_statistic,
    project_on_simplex,
    sample_noisy_tables,
)
from expost.stats.hypothesis.hypothesis_input import (
    Number,
    TableSize,
    check_categories,
    check_column_names,
    read_counts,
    read_power_epsilon,
    read_probabilities,
    read_row_count,
)
from expost.stats.hypothesis.hypothesis_plan import (
    HypothesisQuery,
    HypothesisVerdict,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice
from expost.stats.hypothesis.reference_law import NUISANCE_SIZE, bound_table_size, sample_multinomials, sample_uniforms

__all__ = ["IndependenceTest", "independence_power", "independence_test"]

Floats = NDArray[np.float64]

NUISANCE_MARGINS = 0.001
"""The probability spent on bounding the unknown margins; it is added to the p-value (BB94, Lemma 1)."""

_DRAWS = 4_999  # for each pair of margins
_POWER_DRAWS = 2_000
_TIE = 1e-9  # relative: tables that differ by the names of their categories have equal statistics up to rounding
_STEPS = (0.0, 1 / 16, 1 / 4, 1.0)  # from the least even margins that are possible to the most even ones
_UNIFORMS = 1 << 20  # up to here rows are drawn one by one, beyond by conditional binomials
_HALVINGS = 40
_WEAKEST, _STRONGEST, _STRENGTHS = 1e-9, 30.0, 128  # range of the parameter of Chernoff's bound
_LEVEL = "proved for a net of margins, simulated between"
_CITATIONS = ("GLRV16, Algorithm 3", "BB94, Lemma 1", "BC91, Section 2", "GRS09, Definition 2")


@hypothesis_query
class IndependenceTest(HypothesisQuery):
    """Tests whether two columns of public categories are independent.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; replace-one with a public number of rows, or add-remove with a private one.
    Sensitivity: replace-one: 2 (L1), one row leaves a cell and enters another; add-remove: 1.
    Accuracy: the p-value is the largest over a net of the margins that the noisy table leaves possible, plus the
        probability that it excludes the true ones. P(p-value <= level) <= level is proved for margins of the net and
        simulated between them, down to 5 rows, categories expected in a tenth of a row, and epsilon from 0.05 to 50.
        ``split_test`` has a level that is proved for all.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 3 (drawn reference); BB94, Lemma 1 (unknown margins); docs/proofs/noisy-reference.md
        (statistic, level, proved power).

    Parameters
    ----------
    first, second : str
        The columns; their categories must be declared in the dataset.
    effect : array-like of float, optional
        The true joint probabilities at which the power is needed, one row per category of ``first``. Required with
        ``power``.

    Examples
    --------
    >>> IndependenceTest("carrier", "origin", epsilon=1).question
    'independence: carrier by origin'
    """

    first: str
    second: str
    _: KW_ONLY
    epsilon: Number | None = None
    power: Number | None = None
    effect: Any = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    expected_rows: int | None = None

    def __post_init__(self) -> None:
        check_column_names(self.first, self.second)
        if self.first == self.second:
            raise InvalidRequest("Expected two different columns", got=self.first, do="Name another one")
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"independence: {self.first} by {self.second}"

    def _plan_for_dataset(self, dataset: Dataset) -> IndependencePlan:
        size = TableSize.of_dataset(dataset, self.expected_rows)
        categories = tuple(check_categories(dataset, column) for column in (self.first, self.second))
        return self._plan_for_size(size, categories, self.question)

    def _plan_for_size(
        self, size: TableSize, categories: tuple[tuple[Any, ...], ...], question: str
    ) -> IndependencePlan:
        """Price the test for a table of this size."""
        shape = tuple(len(each) for each in categories)
        return IndependencePlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(size, shape),
            columns=(self.first, self.second),
            categories=categories,
            size=size,
        )

    def _price_power(self, size: TableSize, shape: tuple[int, ...]) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        if self.effect is None:
            raise InvalidRequest("Expected the joint probabilities at which the power is needed", do="Pass effect=")
        terms, truth, rows = self._read_price_terms(), read_probabilities(self.effect, dimensions=2), size.priced_rows
        if truth.shape != shape:
            raise InvalidRequest(
                "Expected an effect of the shape of the table", got=str(truth.shape), do="Pass a matrix"
            )

        def power_at(epsilon: float) -> float:
            return independence_power(rows, truth, epsilon=epsilon, level=float(terms.level), adjacency=size.adjacency)

        return terms.price_estimated(power_at, f"estimated by simulation, for {rows} rows")


@dataclass(frozen=True, kw_only=True)
class IndependencePlan(CountTablePlan):
    """A priced test of independence."""

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source, rows = bits or system_bits(), self.size.rows
        shape = tuple(len(each) for each in self.categories)
        noisy = self.release_numbers(sealed, source).reshape(shape)
        p = independence_p_value(noisy, rows, scale=self.scale, bits=source)
        statistic = float(independence_statistic(NoisyTable(noisy[None], rows, self.scale))[0])
        return self.release_table_verdict(
            "independence", statistic=statistic, p_value=p, bits=source, level=_LEVEL, citations=_CITATIONS
        )


@hypothesis_test(IndependenceTest)
def independence_test(
    table: Any,
    *,
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Any = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test independence on a two-way table of exact counts.

    Parameters
    ----------
    table : array-like of int
        The private counts, one row per category of the first column.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> independence_test([[200, 50], [50, 200]], epsilon=0.5, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    terms = take_terms(IndependenceTest, locals())
    counts = read_counts(table, dimensions=2, adjacency=adjacency)
    query = IndependenceTest("rows", "columns", **terms)
    size = TableSize.of_sample(int(counts.sum()), adjacency=adjacency, expected_rows=expected_rows)
    categories = tuple(tuple(range(length)) for length in counts.shape)
    plan = query._plan_for_size(size, categories, "independence")
    return plan.climb(plan.seal_counts(counts), bits)


@hypothesis_power
def independence_power(
    rows: int, effect: Any, *, epsilon: Number, level: Number = 0.05, adjacency: str | Adjacency = "replace-one"
) -> float:
    """Estimate the power when the true joint probabilities are ``effect``.

    Drawn with fixed bits, so that it is the same each time. Good to about 0.02.

    Parameters
    ----------
    effect : array-like of float
        The true joint probabilities, one row per category of the first column.

    Examples
    --------
    >>> independence_power(1000, [[0.3, 0.2], [0.2, 0.3]], epsilon=0.5) > 0.9
    True
    """
    truth, count = read_probabilities(effect, dimensions=2), read_row_count(rows)
    size, tail = TableSize.of_sample(count, adjacency=adjacency), float(probability(level, "level"))
    scale = size.cell_sensitivity / read_power_epsilon(epsilon)
    law, kept = truth.sum(1, keepdims=True) * truth.sum(0, keepdims=True), tail - _nuisance_for(size.rows)
    if kept <= 0:
        return 0.0
    # Common random numbers: the power is then nearly a smooth function of epsilon.
    null = sample_independent_tables(count * law, [count], scale=scale, draws=_POWER_DRAWS, bits=SeededBits(0))
    critical = max(
        float(np.quantile(independence_statistic(NoisyTable(tables, size.rows, scale)), 1 - kept)) for tables in null
    )
    drawn = sample_noisy_tables(count, truth, _POWER_DRAWS, scale, SeededBits(1))
    return float((independence_statistic(NoisyTable(drawn, size.rows, scale)) > critical).mean())


def independence_p_value(
    noisy: Floats, rows: int | None, *, scale: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> float:
    """Return the p-value of one noisy table: the largest over a net of the margins that are possible.

    For each pair of margins (1 + larger draws) / (1 + draws) is a p-value (BC91, Section 2); the probability that the
    true margins are not among the possible ones is added (BB94, Lemma 1; docs/proofs/noisy-reference.md).
    """
    seen = float(independence_statistic(NoisyTable(noisy[None], rows, scale))[0]) * (1 - _TIE)
    sizes = list_possible_sizes(noisy, rows, scale)
    null = sample_independent_tables(noisy, sizes, scale=scale, draws=draws, bits=bits or system_bits())
    larger = max(int((independence_statistic(NoisyTable(tables, rows, scale)) >= seen).sum()) for tables in null)
    return min((1 + larger) / (1 + draws) + _nuisance_for(rows), 1.0)


def _nuisance_for(rows: int | None) -> float:
    """Return the probability that the true margins (and the true number of rows, if private) are not in the set."""
    return NUISANCE_MARGINS if rows is not None else NUISANCE_MARGINS + NUISANCE_SIZE


def sample_independent_tables(
    noisy: Floats, sizes: Sequence[int], *, scale: float, draws: int, bits: BitSource
) -> Iterator[Floats]:
    """Draw noisy tables of independent columns, ``draws`` for each number of rows and each pair of margins of the net.

    All of them share their random numbers, so that the largest count over the net is not raised by chance alone.
    """
    seed = int(bits.words(1)[0])
    noise = sample_laplace(Fraction(scale), (draws, *noisy.shape), bits=bits).astype(np.float64)
    by_row = max(sizes) * draws <= _UNIFORMS
    points = sample_uniforms((2, draws, max(sizes)), bits) if by_row else None
    for size in sizes:
        axes = [build_margin_net(noisy.sum(1 - axis), size, scale, noisy.shape) for axis in (0, 1)]
        if points is None:
            for first in axes[0]:
                for second in axes[1]:
                    yield (
                        sample_multinomials(size, np.outer(first, second), draws, SeededBits(seed)).reshape(noise.shape)
                        + noise
                    )
            continue
        codes = [
            [np.searchsorted(np.cumsum(law)[:-1], points[axis, :, :size], "right") for law in axes[axis]]
            for axis in (0, 1)
        ]
        offsets = noisy.size * np.arange(draws)[:, None]
        for x in codes[0]:
            for y in codes[1]:
                cells = (x * noisy.shape[1] + y + offsets).ravel()
                yield np.bincount(cells, minlength=noise.size).reshape(noise.shape) + noise


def build_margin_net(totals: Floats, rows: int, scale: float, shape: tuple[int, ...]) -> list[Floats]:
    """Return laws of one column that its noisy totals leave possible: least even to most even, and the nearest one.

    >>> [law.round(2).tolist() for law in build_margin_net(np.array([900.0, 100.0]), 1000, 1.0, (2, 2))]
    [[0.94, 0.06], [0.93, 0.07], [0.92, 0.08], [0.85, 0.15], [0.9, 0.1]]
    """
    low, high = bound_shares(totals, rows, scale, shape)
    even, uneven = _make_most_even(low, high), _make_least_even(low, high)
    best = np.clip(project_on_simplex(totals[None] / rows)[0], low, high)
    return [*(uneven + step * (even - uneven) for step in _STEPS), best / best.sum()]


def bound_shares(totals: Floats, rows: int, scale: float, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Bound the probability of each category; all bounds of both columns hold except with ``NUISANCE_MARGINS``.

    A probability is excluded if a total this small or this large is too unlikely by Chernoff's bound, for the binomial
    number of rows and the noise together. The excess of the totals over the number of rows is noise, and an even share
    of it is subtracted from each. The bound is monotone in the probability, so its end is found by bisection.
    """
    kinds, cells = len(totals), math.prod(shape) // len(totals)
    limit = math.log(NUISANCE_MARGINS / 2 / sum(shape))
    seen = totals - (totals.sum() - rows) / kinds
    t = min(0.999 / scale, _STRONGEST) * np.geomspace(_WEAKEST, 1, _STRENGTHS)
    noise = cells * (_log_moment((1 - 1 / kinds) * t, scale) + (kinds - 1) * _log_moment(t / kinds, scale))

    def find_largest(observed: Floats, most: int) -> Floats:
        """Return the largest probability under which so few rows are not too unlikely, rounded up."""
        low, high = np.zeros(kinds), np.ones(kinds)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            logs = most * np.log1p(middle[:, None] * np.expm1(-t)) + t * observed[:, None] + noise
            unlikely = logs.min(1) <= limit
            low, high = np.where(unlikely, low, middle), np.where(unlikely, middle, high)
        return high

    # A category has few rows exactly if the others together have many.
    high, low = find_largest(seen, rows), 1 - find_largest(rows - seen, rows)
    # An empty set of laws occurs only if a bound failed, which the nuisance probability covers; any law will do then.
    return low / max(1.0, float(low.sum())), np.minimum(high / min(1.0, float(high.sum())), 1.0)


def _log_moment(t: Floats, scale: float) -> Floats:
    """Return the logarithm of the moment generating function of discrete Laplace noise."""
    logs: Floats = -np.log1p(-((np.sinh(t / 2) / math.sinh(1 / scale / 2)) ** 2))
    return logs


def list_possible_sizes(noisy: Floats, rows: int | None, scale: float) -> list[int]:
    """Return the numbers of rows to try: the public one, or the ends and the middle of what the noisy total allows."""
    if rows is not None:
        return [rows]
    low, high = bound_table_size(float(noisy.sum()), noisy.size, scale)
    return sorted({max(size, 1) for size in (low, (low + high) // 2, high)})


def _make_least_even(low: Floats, high: Floats) -> Floats:
    """Give every category its least share and the rest to as few as possible."""
    order = np.argsort(-high, kind="stable")
    free = (high - low)[order]
    given = np.clip(1 - low.sum() - (np.cumsum(free) - free), 0, free)
    law = low.copy()
    law[order] += given
    total: Floats = law / law.sum()
    return total


def _make_most_even(low: Floats, high: Floats) -> Floats:
    """Clip one common share to the range of each category; it is found by bisection."""
    least, most = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if np.clip(middle, low, high).sum() < 1 else (least, middle)
    law = np.clip(most, low, high)
    total: Floats = law / law.sum()
    return total
