"""Are two columns of numbers monotonically related? Kendall's rank correlation, which needs no bounds."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from expost.core import Adjacency, InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.rational import probability
from expost.data import Dataset
from expost.data.canonical_cell import float_cells
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.hypothesis_input import (
    Alternative,
    Number,
    check_column_names,
    check_numeric_column,
    check_row_count,
    read_alternative,
    read_correlation,
    read_power_epsilon,
    read_public_rows,
    read_row_count,
)
from expost.stats.hypothesis.hypothesis_plan import (
    ASYMPTOTIC,
    PROVED,
    HypothesisPlan,
    HypothesisQuery,
    HypothesisVerdict,
    add_laplace_noise,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice
from expost.stats.hypothesis.private_sample import read_private_pair
from expost.stats.hypothesis.reference_law import (
    noisy_normal_power,
    noisy_normal_quantile,
    noisy_normal_tail,
    noisy_score_tail,
)

__all__ = ["CorrelationTest", "correlation_power", "correlation_test"]

Floats = NDArray[np.float64]

_FEWEST, _MOST = 3, 1 << 25  # with more rows the four roundings of SciPy's ratio could reach half a pair
_MOST_EXACT = 100  # up to here the law of the score is summed exactly, beyond it is approximated by a normal law
_CITATIONS = ("Ken38, Sections 4 and 5", "GRS09, Definition 2", "docs/proofs/noisy-reference.md")


@hypothesis_query
class CorrelationTest(HypothesisQuery):
    """Tests whether two numeric columns are independent, against a monotone relation.

    The score is the number of pairs of rows that both columns order alike, minus the pairs they order oppositely; ties
    are broken at random, so they count 0 on average. Divided by the number of pairs it is Kendall's tau.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: 2 (rows - 1): a row is in rows - 1 pairs, each counted from -1 to 1; the random number that breaks the
        ties of a row is drawn for that row.
    Accuracy: under independence the law of the score is free of the columns' distributions, ties included: up to 100
        rows P(p-value <= level) <= level, proved; beyond, by a normal tail with continuity correction.
    Numerics: exact integer score and noise; the p-value is post-processing in floats.
    Reference: Ken38, Sections 4 and 5 (law of the score); GRS09, Definition 2 (noise); docs/proofs/noisy-reference.md.

    Parameters
    ----------
    first, second : str
        The numeric columns.
    effect : float, optional
        The linear correlation of normal pairs at which the power is needed. Required with ``power``.

    Examples
    --------
    >>> CorrelationTest("distance", "arr_delay", epsilon=1).question
    'rank correlation: distance with arr_delay, two-sided'
    """

    first: str
    second: str
    _: KW_ONLY
    alternative: Alternative = "two-sided"
    epsilon: Number | None = None
    power: Number | None = None
    effect: float | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    confidence: Number = 0.95

    def __post_init__(self) -> None:
        check_column_names(self.first, self.second)
        read_alternative(self.alternative)
        probability(self.confidence, "confidence")
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"rank correlation: {self.first} with {self.second}, {self.alternative}"

    def _plan_for_dataset(self, dataset: Dataset) -> CorrelationPlan:
        for column in (self.first, self.second):
            check_numeric_column(dataset, column)
        return self._plan_for_rows(read_public_rows(dataset), self.question)

    def _plan_for_rows(self, rows: int, question: str) -> CorrelationPlan:
        """Price the test for a table of this many rows."""
        check_row_count(rows, fewest=_FEWEST, most=_MOST)
        return CorrelationPlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(rows),
            columns=(self.first, self.second),
            rows=rows,
            alternative=self.alternative,
            failure=1 - probability(self.confidence, "confidence"),
        )

    def _price_power(self, rows: int) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, effect = self._read_price_terms(), self.effect
        if effect is None:
            raise InvalidRequest("Expected the correlation at which the power is needed", do="Pass effect=")

        def power_at(epsilon: float) -> float:
            return correlation_power(
                rows, effect, epsilon=epsilon, level=float(terms.level), alternative=self.alternative
            )

        return terms.price_estimated(power_at, "estimated, if the pairs are normal")


@dataclass(frozen=True, kw_only=True)
class CorrelationPlan(HypothesisPlan):
    """A priced test of rank correlation."""

    columns: tuple[str, str]
    rows: int
    alternative: Alternative
    failure: Fraction

    def measure(self, dataset: Dataset) -> Sealed:
        """Compute Kendall's score."""
        batches = [
            [float_cells(batch.column(column)) for column in self.columns]
            for batch in dataset.batches(list(set(self.columns)))
        ]
        x, y = (np.concatenate([np.empty(0), *(batch[place] for batch in batches)]) for place in (0, 1))
        return measure_score(x, y, rows=self.rows)

    def release_numbers(self, sealed: Sealed, bits: BitSource | None) -> Any:
        return add_laplace_noise(sealed, self.price.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source, epsilon = bits or system_bits(), float(self.price.epsilon)
        score, pairs = int(self.release_numbers(sealed, source)[0]), self.rows * (self.rows - 1) / 2
        tau = score / pairs
        verdict = HypothesisVerdict(
            test="rank correlation",
            statistic=float(score),
            p_value=float(correlation_p_values(score, self.rows, epsilon=epsilon, alternative=self.alternative)),
            estimate=min(max(tau, -1.0), 1.0),
            alternative=self.alternative,
        )
        # The variance of the estimate of tau is at most 2 (1 - tau^2) / rows (Ken38).
        tail = float(self.failure) / (2 if self.alternative == "two-sided" else 1)
        reach = noisy_normal_quantile(tail, math.sqrt(2 / self.rows), [4 / (self.rows * epsilon)])
        low = -1.0 if self.alternative == "less" else min(max(tau - reach, -1.0), 1.0)
        high = 1.0 if self.alternative == "greater" else max(min(tau + reach, 1.0), -1.0)
        return self.release_verdict(
            verdict,
            method="discrete Laplace on Kendall's score, noise in the reference",
            interval=(low, high),
            bits=source,
            level=PROVED if self.rows <= _MOST_EXACT else ASYMPTOTIC,
            terms={"rows": self.rows, "confidence of the interval": 1 - self.failure},
            citations=_CITATIONS,
        )


@hypothesis_test(CorrelationTest)
def correlation_test(
    x: Any,
    y: Any,
    *,
    alternative: Alternative = "two-sided",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: float | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    confidence: Number = 0.95,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether two arrays of equal length, which is public, are monotonically related.

    Estimate and interval are of Kendall's tau.

    Parameters
    ----------
    x, y : array-like of float
        The private samples, one pair per person.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> x = np.linspace(0, 1, 500)
    >>> release = correlation_test(x, x + np.sin(50 * x), epsilon=0.5, bits=SeededBits(1))
    >>> release.value.rejects(0.01), 0 < release.value.estimate < 1
    (True, True)
    """
    terms = take_terms(CorrelationTest, locals())
    first, second = read_private_pair(x, y)
    query = CorrelationTest("x", "y", **terms)
    plan, source = query._plan_for_rows(len(first), f"rank correlation, {alternative}"), bits or system_bits()
    return plan.climb(measure_score(first, second, rows=plan.rows, bits=source), source)


@hypothesis_power
def correlation_power(
    rows: int, effect: float, *, epsilon: Number, level: Number = 0.05, alternative: Alternative = "two-sided"
) -> float:
    """Compute the power for normal pairs of linear correlation ``effect``, good to about 0.02; 0 for fewer rows than the test takes.

    Parameters
    ----------
    effect : float
        The linear correlation, between -1 and 1.

    Examples
    --------
    >>> round(correlation_power(500, 0.2, epsilon=0.5), 2)
    0.93
    """
    slope, count, direction = read_correlation(effect), read_row_count(rows), read_alternative(alternative)
    if count < _FEWEST:
        return 0.0
    pairs = count * (count - 1) / 2
    # Tau of normal pairs is 2 asin(effect) / pi, and its variance known (Ken38 with Esscher's formula).
    angle, half = 2 * math.asin(slope) / math.pi, 2 * math.asin(slope / 2) / math.pi
    variance = 2 / (count * (count - 1)) * (1 - angle**2 + 2 * (count - 2) * (1 / 9 - half**2))
    scale = 2 * (count - 1) / read_power_epsilon(epsilon)
    tail = float(probability(level, "level")) / (2 if direction == "two-sided" else 1)
    critical = noisy_normal_quantile(tail, score_deviation(count), [scale]) + 1
    return noisy_normal_power(critical, angle * pairs, math.sqrt(variance) * pairs, [scale], direction)


def correlation_p_values(scores: Any, rows: int, *, epsilon: float, alternative: Alternative = "two-sided") -> Floats:
    """Return p-values of released scores, one for each; the law is symmetric."""
    scale, seen = 2 * (rows - 1) / epsilon, np.asarray(scores, np.float64)
    if alternative == "two-sided":
        return np.minimum(2 * score_tail(np.abs(seen), rows, scale), 1.0)
    return score_tail(seen if alternative == "greater" else -seen, rows, scale)


def measure_score(x: Floats, y: Floats, *, rows: int, bits: BitSource | None = None) -> Sealed:
    """Compute Kendall's score and seal it; NaN counts as the smallest number."""
    pairs = np.zeros((2, rows))  # a table that is longer or shorter than declared must not widen the sensitivity
    for place, column in enumerate((x, y)):
        kept = column[:rows]
        pairs[place, : len(kept)] = np.nan_to_num(kept, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    source = bits or system_bits()
    exact = np.array([count_score(*(_rank_rows(column, source) for column in pairs))])
    return Sealed(exact, Sensitivity(2 * (rows - 1), Norm.L1, Adjacency.REPLACE_ONE))


def count_score(first: NDArray[np.intp], second: NDArray[np.intp]) -> int:
    """Count pairs ordered alike minus pairs ordered oppositely, in n log n steps.

    The score is a whole number below 2^49, so that SciPy's ratio, divided and multiplied twice with a relative error of
    2^-53 each time, gives it back exactly.
    """
    total = len(first) * (len(first) - 1) // 2
    untied = [total - sum(count * (count - 1) // 2 for count in np.bincount(r).tolist()) for r in (first, second)]
    if 0 in untied:
        return 0
    # Tau-b divides the score by the root of the numbers of pairs untied in each column.
    tau = float(stats.kendalltau(first, second, method="asymptotic").statistic)
    return round(tau * math.sqrt(untied[0]) * math.sqrt(untied[1]))


def _rank_rows(values: Floats, bits: BitSource) -> NDArray[np.intp]:
    """Rank the rows; equal values by a random number drawn for the row."""
    order = np.argsort(values, kind="stable")
    if (values[order[1:]] == values[order[:-1]]).any():
        order = np.lexsort((bits.words(len(values)), values))
    ranks = np.empty(len(values), np.intp)
    ranks[order] = np.arange(len(values))
    return ranks


def score_tail(at: Any, rows: int, scale: float) -> Floats:
    """Return P(score + noise >= at) for discrete Laplace noise of this scale; ``at`` are whole numbers.

    Exact for up to 100 rows. Beyond, a normal tail: the law is symmetric, its kurtosis below the normal one, and its
    points are two apart, so a step of one to the left compensates for them (the continuity correction).

    >>> round(float(score_tail(3, 3, 1e-3)), 4), round(float(score_tail(3, 3, 4.0)), 4)
    (0.1667, 0.2972)
    """
    z = np.asarray(at, np.float64)
    if rows > _MOST_EXACT:
        return noisy_normal_tail(z - 1, score_deviation(rows), [scale])
    return noisy_score_tail(z, score_masses(rows), scale)


@lru_cache(maxsize=16)
def score_masses(rows: int) -> Floats:
    """Return the probabilities of the scores -n (n - 1) / 2, ... in steps of 2, for a uniform permutation.

    A row that comes k-th is passed by any number from 0 to k - 1 of those before it, all equally likely: the score is a
    sum of independent uniform numbers (Ken38, Section 4).

    >>> (6 * score_masses(3)).round(9).tolist()
    [1.0, 2.0, 2.0, 1.0]
    """
    masses = np.ones(1)
    for row in range(2, rows + 1):
        masses = np.convolve(masses, np.full(row, 1 / row))
    return masses


def score_deviation(rows: int) -> float:
    """Return the standard deviation of the score under independence (Ken38, Section 5).

    >>> round(score_deviation(10) ** 2, 6)
    125.0
    """
    return math.sqrt(rows * (rows - 1) * (2 * rows + 5) / 18)
