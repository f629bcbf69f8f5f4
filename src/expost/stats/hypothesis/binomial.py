"""Is a proportion equal to a given value? The optimal private test, with an exact p-value and interval."""

from __future__ import annotations

import math
import operator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import optimize

from expost.core import Adjacency, InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.hypothesis_input import (
    Alternative,
    Number,
    TableSize,
    check_column_names,
    check_values,
    read_alternative,
    read_power_epsilon,
    read_row_count,
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
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice, PriceTerms
from expost.stats.hypothesis.private_proportion import (
    private_interval,
    private_p_value,
    private_power,
    private_power_bound,
)
from expost.stats.hypothesis.private_sample import encode_categories, read_private_truths
from expost.stats.hypothesis.reference_law import sample_uniforms

__all__ = ["BinomialTest", "binomial_power", "binomial_test"]

Floats = NDArray[np.float64]

_CITATIONS = ("AS18, Theorem 5.2", "AS20, Section 6", "GRS09, Definition 2")
_PRIVATE_SIZE_CITATIONS = ("BB94, Lemma 1", "GRS09, Definition 2", "docs/proofs/noisy-reference.md")
_MOST_PRIVATE_ROWS = 1 << 26  # the logarithms of factorials up to here are tabulated
_LOG = 42.0  # the binomial mass left out of the sums is below exp(-42) on either side
_LEFT_OUT = 2 * math.exp(-_LOG)  # added to p-values
# Relative error of a mass, for each place of the window: five roundings of 2^-53 in a ratio and its sum, twice.
_RATIO_ERROR = 2.0**-50


@hypothesis_query
class BinomialTest(HypothesisQuery):
    """Tests the proportion of rows in which a column equals a value.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: 1 row (L1): of the count, or of the counts of the rows that match and of all others.
    Accuracy: replace-one: one-sided tests are the most powerful among all epsilon-DP tests of their level; p-values are
        exactly uniform at the null, whatever the number of rows; intervals cover exactly. Add-remove: the level is at
        most nominal for every number of rows; the number is maximised over a confidence set.
    Numerics: exact integer noise; the uniform number added to it, and the p-value, are post-processing in floats.
    Reference: AS18, Theorem 5.2 (optimal test, p-value); AS20, Section 6 (intervals); GRS09, Definition 2 (noise);
        BB94, Lemma 1 and docs/proofs/noisy-reference.md (private number of rows).

    Parameters
    ----------
    column : str
        The column whose value is tested.
    equals : bool, int, float or str
        The value that counts as a success.
    null : float
        The proportion under the null hypothesis, between 0 and 1.
    effect : float, optional
        The proportion at which the power is needed. Required with ``power``.

    Examples
    --------
    >>> BinomialTest("late", equals=True, null=0.2, epsilon=0.5).question
    'binomial test: share of rows with late = True, null 0.2, two-sided'
    """

    column: str
    _: KW_ONLY
    equals: Any
    null: Number
    alternative: Alternative = "two-sided"
    epsilon: Number | None = None
    power: Number | None = None
    effect: Number | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    confidence: Number = 0.95
    expected_rows: int | None = None

    def __post_init__(self) -> None:
        check_column_names(self.column)
        self._read_terms()

    @property
    def question(self) -> str:
        null = float(probability(self.null, "null"))
        return f"binomial test: share of rows with {self.column} = {self.equals!r}, null {null:.6g}, {self.alternative}"

    def _plan_for_dataset(self, dataset: Dataset) -> BinomialPlan:
        check_values(dataset, self.column, [self.equals])
        return self._plan_for_size(TableSize.of_dataset(dataset, self.expected_rows), self.question)

    def _read_terms(self) -> tuple[PriceTerms, Fraction, Fraction, Fraction | None]:
        """Read (terms of the price, null, failure probability of the interval, effect)."""
        read_alternative(self.alternative)
        return (
            self._read_price_terms(),
            probability(self.null, "null"),
            1 - probability(self.confidence, "confidence"),
            None if self.effect is None else probability(self.effect, "effect"),
        )

    def _plan_for_size(self, size: TableSize, question: str) -> BinomialPlan:
        """Price the test for a table of this size."""
        terms, null, failure, _ = self._read_terms()
        return BinomialPlan(
            question=question,
            price=terms.fixed or self._price_power(size),
            column=self.column,
            equals=self.equals,
            null=null,
            failure=failure,
            alternative=self.alternative,
            size=size,
        )

    def _price_power(self, size: TableSize) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, null, _, effect = self._read_terms()
        if effect is None or effect == null:
            raise InvalidRequest(
                "Expected the proportion at which the power is needed", do="Pass effect= different from null"
            )
        rows, level, base, truth = size.priced_rows, float(terms.level), float(null), float(effect)
        direction = self.alternative

        def power_at(epsilon: float) -> float:
            return binomial_power(rows, null, effect, epsilon=epsilon, level=level, alternative=direction)

        def approximate_at(epsilon: float) -> float:
            return private_power(rows, base, truth, epsilon=epsilon, level=level, alternative=direction)

        def bound_at(epsilon: float, failure: float) -> float:
            return private_power_bound(rows, base, truth, epsilon=epsilon, level=level, alternative=direction)

        if size.rows is not None:
            return terms.price_exact(power_at, "exact")
        return terms.price_proved(approximate_at, bound_at, basis=f"proved, for {rows} rows")


@dataclass(frozen=True, kw_only=True)
class BinomialPlan(HypothesisPlan):
    """A priced test of a proportion."""

    column: str
    equals: Any
    null: Fraction
    failure: Fraction
    alternative: Alternative
    size: TableSize

    def measure(self, dataset: Dataset) -> Sealed:
        """Count the rows that match, and all others."""
        counts = dataset.reduce(partial(_count_matches, self.column, self.equals), operator.add, [self.column])
        return self.seal_counts(*counts.tolist())

    def seal_counts(self, count: int, rows: int) -> Sealed:
        """Seal the count; with a private number of rows, also the count of all other rows."""
        exact = [count] if self.size.rows is not None else [count, rows - count]
        return Sealed(np.array(exact), Sensitivity(1, Norm.L1, self.size.adjacency))

    def release_numbers(self, sealed: Sealed, bits: BitSource | None) -> Any:
        return add_laplace_noise(sealed, self.price.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        noisy, public = self.release_numbers(sealed, source), self.size.rows is not None
        verdict, interval = self._judge_count(noisy, source) if public else self._judge_pair(noisy)
        return self.release_verdict(
            verdict,
            method="discrete Laplace counts" + (", Tulap reference" if public else ", size maximised"),
            interval=interval,
            bits=source,
            level=PROVED,
            terms={**self.size.terms, "null": self.null, "confidence of the interval": 1 - self.failure},
            adjacency=self.size.adjacency,
            citations=_CITATIONS if public else _PRIVATE_SIZE_CITATIONS,
        )

    def _judge_count(self, noisy: Any, bits: BitSource) -> tuple[HypothesisVerdict, tuple[float, float]]:
        """Compute verdict and interval from the noisy count, with a public number of rows."""
        rows, count, epsilon = self.size.rows or 0, int(noisy[0]), float(self.price.epsilon)
        statistic = count + float(sample_uniforms((1,), bits)[0]) - 0.5
        p = binomial_p_values(
            np.array([statistic]), rows, float(self.null), epsilon=epsilon, alternative=self.alternative
        )
        verdict = HypothesisVerdict(
            test="binomial",
            statistic=statistic,
            p_value=float(p[0]),
            estimate=min(max(count / rows, 0.0), 1.0),
            alternative=self.alternative,
        )
        # The interval holds the proportions that the test does not reject; the tail rises with the proportion.
        tail = float(self.failure) / (2 if self.alternative == "two-sided" else 1)
        low = 0.0 if self.alternative == "less" else _solve_proportion(statistic, rows, epsilon, tail)
        high = 1.0 if self.alternative == "greater" else _solve_proportion(statistic, rows, epsilon, 1 - tail)
        return verdict, (low, high)

    def _judge_pair(self, noisy: Any) -> tuple[HypothesisVerdict, tuple[float, float]]:
        """Compute verdict and interval from the noisy counts of successes and of all other rows."""
        successes, others, null = float(noisy[0]), float(noisy[1]), float(self.null)
        scale, total = 1 / float(self.price.epsilon), float(noisy.sum())
        verdict = HypothesisVerdict(
            test="binomial",
            statistic=(1 - null) * successes - null * others,
            p_value=private_p_value(successes, others, null, scale=scale, alternative=self.alternative),
            estimate=min(max(successes / total, 0.0), 1.0) if total >= 1 else None,
            alternative=self.alternative,
        )
        interval = private_interval(
            successes, others, scale=scale, failure=float(self.failure), alternative=self.alternative
        )
        return verdict, interval


@hypothesis_test(BinomialTest)
def binomial_test(
    successes: Any,
    null: Number,
    *,
    alternative: Alternative = "two-sided",
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Number | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    confidence: Number = 0.95,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test a proportion on an array of true/false values, one per person. The interval is for the proportion.

    Parameters
    ----------
    successes : array-like of bool
        The private sample.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> release = binomial_test([True] * 160 + [False] * 40, 0.5, epsilon=0.5, bits=SeededBits(1))
    >>> release.value.rejects(0.01), release.receipt.epsilon
    (True, 0.5)
    """
    query = BinomialTest("sample", equals=True, **take_terms(BinomialTest, locals()))
    values = read_private_truths(successes, adjacency=adjacency)
    size = TableSize.of_sample(len(values), adjacency=adjacency, expected_rows=expected_rows)
    question = f"binomial test: null {float(probability(null, 'null')):.6g}, {alternative}"
    plan = query._plan_for_size(size, question)
    return plan.climb(plan.seal_counts(int(values.sum()), len(values)), bits)


@hypothesis_power
def binomial_power(
    rows: int,
    null: Number,
    effect: Number,
    *,
    epsilon: Number,
    level: Number = 0.05,
    alternative: Alternative = "two-sided",
    adjacency: str | Adjacency = "replace-one",
) -> float:
    """Compute the exact power of the test when the true proportion is ``effect``.

    With a private number of rows it is a lower bound.

    Parameters
    ----------
    null : float
        The proportion under the null hypothesis, between 0 and 1.
    effect : float
        The true proportion, between 0 and 1.
    epsilon : float
        The privacy cost; infinity is the test without privacy.

    Examples
    --------
    >>> round(binomial_power(100, 0.5, 0.65, epsilon=1.0), 3)
    0.834
    """
    base, truth = float(probability(null, "null")), float(probability(effect, "effect"))
    count, tail, direction = read_row_count(rows), float(probability(level, "level")), read_alternative(alternative)
    if TableSize.of_sample(count, adjacency=adjacency).rows is None:
        read_row_count(rows, most=_MOST_PRIVATE_ROWS)
        weak = read_power_epsilon(epsilon, endless=64.0)
        return private_power_bound(count, base, truth, epsilon=weak, level=tail, alternative=direction)
    strength = read_power_epsilon(epsilon, endless=700.0)

    def power_above(tail: float) -> float:
        critical = _solve_critical(count, base, strength, tail)
        return float(noisy_binomial_tail(critical, count, truth, strength))

    if direction == "greater":
        return power_above(tail)
    if direction == "less":
        return 1 - power_above(1 - tail)
    return power_above(tail / 2) + 1 - power_above(1 - tail / 2)


def binomial_p_values(
    statistic: Any, rows: int, null: float, *, epsilon: float, alternative: Alternative = "two-sided"
) -> Any:
    """Return p-values of released statistics (noisy count plus uniform), one for each.

    They are rounded up, so that a test by them keeps any level: what the window leaves out is added, and each tail is
    summed by itself, since one minus the other tail would be dominated by rounding where it is small.
    """
    counts, masses = _binomial_window(rows, null)
    away = counts - np.asarray(statistic, np.float64)[..., None]
    upper, lower = (
        np.minimum((tulap_cdf(signed, epsilon) @ masses) * (1 + len(counts) * _RATIO_ERROR) + _LEFT_OUT, 1.0)
        for signed in (away, -away)
    )
    if alternative == "two-sided":
        return np.minimum(2 * np.minimum(upper, lower), 1.0)
    return upper if alternative == "greater" else lower


def tulap_cdf(at: Any, epsilon: float) -> Floats:
    """Return P(N <= at) for N = discrete Laplace of scale 1/epsilon, plus a uniform number in (-1/2, 1/2).

    Truncated-uniform-Laplace noise: AS18, Definition 4.1 with q = 0.

    >>> round(float(tulap_cdf(0.0, 1.0)), 6)
    0.5
    """
    x = np.asarray(at, np.float64)
    left = -np.abs(x)
    nearest, b = np.round(left), np.exp(-epsilon)
    below = np.exp(epsilon * nearest) / (1 + b) * (b + (left - nearest + 0.5) * (1 - b))
    cdf: Floats = np.where(x <= 0, below, 1 - below)
    return cdf


def noisy_binomial_tail(at: Any, rows: int, chance: float, epsilon: float) -> Floats:
    """Return P(X + N >= at) for X binomial and N Tulap noise; one value per element of ``at``."""
    counts, masses = _binomial_window(rows, chance)
    tail: Floats = tulap_cdf(counts - np.asarray(at, np.float64)[..., None], epsilon) @ masses
    return np.clip(tail, 0.0, 1.0)


@lru_cache(maxsize=256)
def _binomial_window(rows: int, chance: float) -> tuple[Floats, Floats]:
    """Return the counts around the mean and their probabilities; the mass beyond is below exp(-42) on either side."""
    # Bernstein's inequality: beyond this reach the binomial mass is below exp(-42) < 1e-18 on either side.
    reach = math.sqrt(2 * _LOG * rows * chance * (1 - chance)) + 2 * _LOG / 3
    low = max(0, math.floor(rows * chance - reach))
    high = min(rows, math.ceil(rows * chance + reach))
    counts = np.arange(low, high + 1, dtype=np.float64)
    # Ratios of neighbours, summed: logarithms of factorials would lose a digit for every digit of the number of rows.
    ratios = np.log((rows - counts[:-1]) / (counts[:-1] + 1) * (chance / (1 - chance)))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    masses = np.exp(logs - logs.max())
    return counts, masses / masses.sum()


def _solve_critical(rows: int, null: float, epsilon: float, tail: float) -> float:
    """Find the statistic that the null exceeds with probability ``tail``, by bisection."""
    spread = 80 / epsilon + 10 * np.sqrt(rows) + 10
    low, high = -spread, rows + spread
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(noisy_binomial_tail(middle, rows, null, epsilon)) > tail else (low, middle)
    return float(high)


def _solve_proportion(statistic: float, rows: int, epsilon: float, tail: float) -> float:
    """Find the proportion at which the statistic has this upper tail."""

    def excess(chance: float) -> float:
        return float(noisy_binomial_tail(statistic, rows, chance, epsilon)) - tail

    low, high = 1e-12, 1 - 1e-12
    if excess(low) > 0:
        return 0.0
    if excess(high) < 0:
        return 1.0
    return float(optimize.brentq(excess, low, high, xtol=1e-10))


def _count_matches(column: str, equals: Any, batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Count the rows of a batch that match, and all of them."""
    return np.array([(encode_categories(batch, column, (equals,)) == 0).sum(), batch.num_rows], np.int64)
