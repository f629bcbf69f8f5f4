"""Do counts follow given probabilities? The chi-squared test of goodness of fit on noisy counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Release, Sealed
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, SeededBits, sample_laplace, system_bits
from expost.stats.hypothesis.count_table import CountTablePlan, fit_statistic, sample_noisy_tables, shape_statistic
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
    PROVED,
    HypothesisQuery,
    HypothesisVerdict,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import (
    SIMULATED,
    HypothesisPrice,
    bound_critical_value,
    bound_kept_tail,
    bound_share,
)
from expost.stats.hypothesis.reference_law import (
    NUISANCE_SIZE,
    bound_table_size,
    noise_variance,
    sample_multinomials,
    sample_row_counts,
)

__all__ = ["GoodnessOfFitTest", "fit_power", "fit_test"]

Floats = NDArray[np.float64]

_DRAWS = 9_999
_DRAWS_PER_SIZE = 1_999  # of the reference for each number of rows that is possible
_POWER_DRAWS, _PROOF_DRAWS, _PROOF_NULL_DRAWS = 2_000, 20_000, 100_000
_STRIDE = 0.1  # numbers of rows that differ by this many standard deviations of a cell share a reference
_FEW_ROWS = 128  # up to here it is faster to add row by row than to draw all rows at once
_ENTRIES = 1 << 21  # counts per block of work
_CITATIONS = ("GLRV16, Algorithm 1", "KR17, Section 5", "BC91, Section 2", "GRS09, Definition 2")


@hypothesis_query
class GoodnessOfFitTest(HypothesisQuery):
    """Tests whether a column's categories have given probabilities.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; replace-one with a public number of rows, or add-remove with a private one. Rows
        outside the public categories must not exist under the null hypothesis; they count as missing.
    Sensitivity: replace-one: 2 (L1), one row leaves a cell and enters another; add-remove: 1.
    Accuracy: P(p-value <= level) <= level, for every number of rows and every epsilon: the reference is drawn from the
        null hypothesis itself, sampling and noise; a private number of rows is maximised over a confidence set.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 1 (drawn reference); KR17, Section 5 (statistic); BC91, Section 2 (level);
        docs/proofs/noisy-reference.md (private number of rows, proved power).

    Parameters
    ----------
    column : str
        The column; its categories must be declared in the dataset.
    chances : sequence of float
        The probability of each category under the null hypothesis, in the order of the categories.
    effect : sequence of float, optional
        The true probabilities at which the power is needed. Required with ``power``.

    Examples
    --------
    >>> GoodnessOfFitTest("month", [1 / 12] * 12, epsilon=1).question
    'goodness of fit: month'
    """

    column: str
    chances: Sequence[float]
    _: KW_ONLY
    epsilon: Number | None = None
    power: Number | None = None
    effect: Sequence[float] | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    expected_rows: int | None = None

    def __post_init__(self) -> None:
        self._read_price_terms()
        check_column_names(self.column)
        read_probabilities(self.chances)

    @property
    def question(self) -> str:
        return f"goodness of fit: {self.column}"

    def _plan_for_dataset(self, dataset: Dataset) -> GoodnessOfFitPlan:
        if len(dataset.categories.get(self.column, ())) != len(self.chances):
            raise InvalidRequest(
                "Expected one probability for each public category",
                got=len(self.chances),
                do="Declare Dataset(categories=) and give their probabilities in that order",
            )
        size = TableSize.of_dataset(dataset, self.expected_rows)
        return self._plan_for_size(size, check_categories(dataset, self.column), self.question)

    def _plan_for_size(self, size: TableSize, categories: tuple[Any, ...], question: str) -> GoodnessOfFitPlan:
        """Price the test for a table of this size."""
        return GoodnessOfFitPlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(size),
            columns=(self.column,),
            categories=(categories,),
            size=size,
            law=read_probabilities(self.chances),
        )

    def _price_power(self, size: TableSize) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        if self.effect is None:
            raise InvalidRequest("Expected the probabilities at which the power is needed", do="Pass effect=")
        terms, law, truth = self._read_price_terms(), read_probabilities(self.chances), read_probabilities(self.effect)
        rows, level = size.priced_rows, float(terms.level)
        if truth.size != law.size:
            raise InvalidRequest(
                f"effect has {truth.size} entries but there are {law.size} categories",
                do="Pass one probability per category",
            )

        def power_at(epsilon: float) -> float:
            return fit_power(rows, law.tolist(), truth.tolist(), epsilon=epsilon, level=level, adjacency=size.adjacency)

        def bound_at(epsilon: float, failure: float) -> float:
            return bound_fit_power(rows, law, truth, epsilon=epsilon, level=level, failure_probability=failure)

        if size.rows is None:
            return terms.price_estimated(power_at, f"estimated by simulation, for {rows} rows")
        return terms.price_proved(power_at, bound_at, basis=SIMULATED)


@dataclass(frozen=True, kw_only=True)
class GoodnessOfFitPlan(CountTablePlan):
    """A priced test of given probabilities."""

    law: Floats

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source, scale, rows = bits or system_bits(), self.scale, self.size.rows
        noisy = self.release_numbers(sealed, source)
        if rows is None:
            p = private_fit_p_value(noisy, self.law, scale=scale, bits=source)
            statistic = float(shape_statistic(noisy, max(int(noisy.sum()), 1), self.law, scale)) ** 2
        else:
            p = float(fit_p_values(noisy[None], rows, self.law, scale=scale, bits=source)[0])
            statistic = float(fit_statistic(noisy[None], rows, self.law, scale)[0])
        return self.release_table_verdict(
            "goodness of fit", statistic=statistic, p_value=p, bits=source, level=PROVED, citations=_CITATIONS
        )


@hypothesis_test(GoodnessOfFitTest)
def fit_test(
    counts: Any,
    chances: Sequence[float],
    *,
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Sequence[float] | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether exact counts follow given probabilities.

    Parameters
    ----------
    counts : array-like of int
        The private counts, one per category.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> fit_test([300, 100, 100], [1 / 3] * 3, epsilon=0.5, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    terms = take_terms(GoodnessOfFitTest, locals())
    table, law = read_counts(counts, dimensions=1, adjacency=adjacency), read_probabilities(chances)
    if table.size != law.size:
        raise InvalidRequest("Expected one probability for each count", got=law.size, do="Pass equally many")
    query = GoodnessOfFitTest("counts", **terms)
    size = TableSize.of_sample(int(table.sum()), adjacency=adjacency, expected_rows=expected_rows)
    plan = query._plan_for_size(size, tuple(range(law.size)), "goodness of fit")
    return plan.climb(plan.seal_counts(table), bits)


@hypothesis_power
def fit_power(
    rows: int,
    chances: Sequence[float],
    effect: Sequence[float],
    *,
    epsilon: Number,
    level: Number = 0.05,
    adjacency: str | Adjacency = "replace-one",
) -> float:
    """Estimate the power when the true probabilities are ``effect``.

    Drawn with fixed bits, so that it is the same each time. Good to about 0.02.

    Parameters
    ----------
    chances : sequence of float
        The probabilities under the null hypothesis.
    effect : sequence of float
        The true probabilities.

    Examples
    --------
    >>> fit_power(1000, [0.25] * 4, [0.3, 0.2, 0.3, 0.2], epsilon=0.5) > 0.8
    True
    """
    law, truth, count = read_probabilities(chances), read_probabilities(effect), read_row_count(rows)
    tail = float(probability(level, "level"))
    if law.shape != truth.shape:
        raise InvalidRequest("Expected an effect with one probability for each category", do="Pass as many as chances")
    size = TableSize.of_sample(count, adjacency=adjacency)
    scale = size.cell_sensitivity / read_power_epsilon(epsilon)
    tail = tail if size.rows is not None else max(tail - NUISANCE_SIZE, 0.0)
    # Common random numbers: the power is then nearly a smooth function of epsilon.
    critical = np.quantile(_sample_statistics(count, law, law, scale, _POWER_DRAWS, SeededBits(0)), 1 - tail)
    return float((_sample_statistics(count, law, truth, scale, _POWER_DRAWS, SeededBits(1)) > critical).mean())


def bound_fit_power(
    rows: int, law: Floats, truth: Floats, *, epsilon: float, level: float, failure_probability: float
) -> float:
    """Return a lower bound on the power with a public number of rows, wrong with at most this probability.

    It combines a value that the null law exceeds with at most probability q (order statistics), the share of tables of
    the alternative that exceed it (CP34), and the chance that the drawn reference of such a table has few enough larger
    draws (docs/proofs/noisy-reference.md).
    """
    tail, sure = bound_kept_tail(level, _DRAWS)
    half = failure_probability / 2
    null = _sample_statistics(rows, law, law, 2 / epsilon, _PROOF_NULL_DRAWS, SeededBits(2))
    critical = bound_critical_value(null, tail, failure_probability=half)
    seen = _sample_statistics(rows, law, truth, 2 / epsilon, _PROOF_DRAWS, SeededBits(3))
    return sure * bound_share(int((seen > critical).sum()), _PROOF_DRAWS, failure_probability=half)


def fit_p_values(
    noisy: Floats, rows: int, chances: Floats, *, scale: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> Floats:
    """Return p-values of noisy counts (last axis: cells), one per repetition, all from one drawn reference."""
    seen = fit_statistic(noisy, rows, chances, scale)
    reference = np.sort(_sample_statistics(rows, chances, chances, scale, draws, bits or system_bits()))
    larger = draws - np.searchsorted(reference, seen, side="left")
    p: Floats = (1 + larger) / (1 + draws)
    return p


def private_fit_p_value(
    noisy: Floats, chances: Floats, *, scale: float, draws: int = _DRAWS_PER_SIZE, bits: BitSource | None = None
) -> float:
    """Return the p-value of noisy counts of private total: the largest over all totals that are possible.

    Totals are bounded in blocks: a table with up to ``step`` more rows than the first total of a block has a statistic
    larger by at most ``step`` times what one row adds, since the statistic is a norm (docs/proofs/noisy-reference.md).
    """
    source = bits or system_bits()
    low, high = bound_table_size(float(noisy.sum()), noisy.size, scale)
    step = max(1, math.floor(_STRIDE * math.sqrt(low * chances.min() + noise_variance(scale))))
    noise = sample_laplace(Fraction(scale), (draws, noisy.size), bits=source).astype(np.float64)
    counts = sample_multinomials(low, chances, draws, source)
    firsts, largest = np.arange(low, high + 1, step), 0.0
    few = step <= _FEW_ROWS
    at_once = max(1, _ENTRIES // (draws * noisy.size * (step if few else 1)))
    for start in range(0, len(firsts), at_once):
        block = firsts[start : start + at_once]
        added = (sample_row_counts if few else sample_multinomials)(step, chances, len(block) * draws, source)
        added = added.reshape(len(block), draws, noisy.size)
        tables = counts + np.cumsum(added, axis=0) - added
        counts = tables[-1] + added[-1]
        more = (step - 1) * shape_statistic(np.eye(noisy.size)[None], block, chances, scale).max(1)
        reference = shape_statistic(tables + noise, block, chances, scale) + more[:, None]
        seen = shape_statistic(np.broadcast_to(noisy, (len(block), noisy.size)), block, chances, scale)
        larger = (reference >= seen[:, None]).sum(1).max()
        largest = max(largest, float((1 + larger) / (1 + draws)))
    return min(largest + NUISANCE_SIZE, 1.0)


def _sample_statistics(rows: int, law: Floats, cells: Floats, scale: float, draws: int, bits: BitSource) -> Floats:
    """Draw noisy tables whose cells have these probabilities and compute their statistics against a law."""
    return fit_statistic(sample_noisy_tables(rows, cells, draws, scale, bits), rows, law, scale)
