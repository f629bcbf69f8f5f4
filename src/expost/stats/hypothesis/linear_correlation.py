"""Are two bounded columns linearly related? Pearson's correlation on noisy moments."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import special

from expost.core import Adjacency, InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.data.canonical_cell import float_cells
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.group_means import NUISANCE
from expost.stats.hypothesis.hypothesis_input import (
    Alternative,
    Number,
    check_column_names,
    check_row_count,
    read_alternative,
    read_bounds,
    read_column_bounds,
    read_correlation,
    read_pair,
    read_power_epsilon,
    read_public_rows,
    read_row_count,
    scale_deviation,
)
from expost.stats.hypothesis.hypothesis_plan import (
    ASYMPTOTIC,
    HypothesisPlan,
    HypothesisQuery,
    HypothesisVerdict,
    add_laplace_noise,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
    tail_to_p_value,
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice
from expost.stats.hypothesis.private_sample import GRID, read_private_pair, round_to_grid
from expost.stats.hypothesis.reference_law import (
    noisy_normal_power,
    noisy_normal_quantile,
    noisy_normal_tail,
    student_factor,
)

__all__ = ["LinearCorrelationTest", "linear_correlation_power", "linear_correlation_test"]

Floats = NDArray[np.float64]
PairBounds = tuple[tuple[float, float], tuple[float, float]]

_FEWEST, _MOST = 4, 1 << 40
_STEPS = 1 << 10  # lattice points over the width of a column's bounds
_COARSE = GRID // _STEPS
_LOG = math.log(1 / NUISANCE)  # P(Laplace noise of scale b > b log) = NUISANCE / 2, once for each column
_CITATIONS = ("Fis21", "GRS09, Definition 2", "BB94, Lemma 1", "docs/proofs/noisy-reference.md")


@hypothesis_query
class LinearCorrelationTest(HypothesisQuery):
    """Tests whether two bounded columns are independent, against a linear relation: Pearson's correlation.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. It is split between the sums of products, of values and of squares.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: half the product of the widths of the bounds for the products, the width for a sum, a quarter of its
        square for a sum of squares.
    Accuracy: p-values keep their level under independence for normal, uniform and skewed values and for 0/1 values of
        one in ten (simulated down to ten rows); the probability of a wrong bound on the spreads is added to them. Where
        both columns are so rare that fewer than about ten rows are expected in both, sums of products are not normal,
        which shows at an epsilon of 20 or more (P(p <= 0.05) up to 0.09): use ``split_test``, whose level is proved, or
        ``independence_test``. The interval supposes normal pairs. The null hypothesis is independence, not a correlation
        of zero: dependent columns without correlation that are large in the same rows are rejected too often (P(p <=
        0.05) up to 0.6, docs/hypothesis-tests.md). The receipt states this.
    Numerics: exact integer sums and noise; p-values and intervals are post-processing in floats.
    Reference: GRS09, Definition 2 (noise); BB94, Lemma 1 (unknown spreads); Fis21 (interval);
        docs/proofs/noisy-reference.md.

    Parameters
    ----------
    first, second : str
        The numeric columns; their bounds must be declared in the dataset.
    effect : float, optional
        The correlation of normal pairs at which the power is needed. Required with ``power``.
    deviations : pair of float, optional
        Guesses of the standard deviations of both columns. Required with ``power``.

    Examples
    --------
    >>> LinearCorrelationTest("distance", "arr_delay", epsilon=1).question
    'linear correlation: distance with arr_delay, two-sided'
    """

    first: str
    second: str
    _: KW_ONLY
    alternative: Alternative = "two-sided"
    epsilon: Number | None = None
    power: Number | None = None
    effect: float | None = None
    deviations: tuple[Number, Number] | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    confidence: Number = 0.95

    def __post_init__(self) -> None:
        check_column_names(self.first, self.second)
        if self.first == self.second:
            raise InvalidRequest("Expected two different columns", got=self.first, do="Name another one")
        read_alternative(self.alternative)
        probability(self.confidence, "confidence")
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"linear correlation: {self.first} with {self.second}, {self.alternative}"

    def _plan_for_dataset(self, dataset: Dataset) -> LinearCorrelationPlan:
        bounds = (read_column_bounds(dataset, self.first), read_column_bounds(dataset, self.second))
        return self._plan_for_rows(read_public_rows(dataset), bounds, self.question)

    def _plan_for_rows(self, rows: int, bounds: PairBounds, question: str) -> LinearCorrelationPlan:
        """Price the test for a table of this many rows."""
        check_row_count(rows, fewest=_FEWEST, most=_MOST)
        return LinearCorrelationPlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(rows, bounds),
            columns=(self.first, self.second),
            rows=rows,
            bounds=bounds,
            alternative=self.alternative,
            failure=1 - probability(self.confidence, "confidence"),
        )

    def _price_power(self, rows: int, bounds: PairBounds) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, effect, deviations = self._read_price_terms(), self.effect, self.deviations
        if effect is None or not isinstance(deviations, tuple | list) or len(deviations) != 2:
            raise InvalidRequest(
                "Expected a correlation and two standard deviations together with power",
                do="Pass effect= and deviations=",
            )
        first, second = (float(rational(each, "deviations")) for each in deviations)

        def power_at(epsilon: float) -> float:
            return linear_correlation_power(
                rows,
                effect,
                deviations=(first, second),
                bounds=bounds,
                epsilon=epsilon,
                level=float(terms.level),
                alternative=self.alternative,
            )

        return terms.price_estimated(power_at, "estimated, if the pairs are normal with the deviations given")


@dataclass(frozen=True, kw_only=True)
class LinearCorrelationPlan(HypothesisPlan):
    """A priced test of linear correlation."""

    columns: tuple[str, str]
    rows: int
    bounds: PairBounds
    alternative: Alternative
    failure: Fraction

    @property
    def shares(self) -> MomentShares:
        """Return the split of epsilon."""
        return MomentShares.for_rows(self.price.epsilon, rows=self.rows)

    def measure(self, dataset: Dataset) -> PairMoments:
        """Total the products, values and squares of both columns."""
        first, second = self.columns
        total = partial(_total_pairs, first, second, self.bounds)
        return PairMoments.of_totals(dataset.reduce(total, operator.add, [first, second]))

    def release_numbers(self, sealed: PairMoments, bits: BitSource | None) -> Floats:
        found = sealed.release_moments(self.shares, rows=self.rows, bits=bits)
        return np.array([found.products, *found.sums, *(found.squares or ())], np.float64)

    def climb(self, sealed: PairMoments, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        moments = sealed.release_moments(self.shares, rows=self.rows, bits=source)
        verdict = HypothesisVerdict(
            test="linear correlation",
            statistic=float(moments.covariation) / (self.rows - 1) * math.prod(high - low for low, high in self.bounds),
            p_value=float(linear_correlation_p_values(moments, self.alternative)),
            estimate=moments.estimate_correlation(),
            alternative=self.alternative,
        )
        return self.release_verdict(
            verdict,
            method="discrete Laplace moments, noise in the reference",
            interval=self._interval_around(moments),
            bits=source,
            level=ASYMPTOTIC,
            terms={
                "rows": self.rows,
                "null hypothesis": "independent columns; a correlation of zero alone does not keep the level",
                "bounds": [list(each) for each in self.bounds],
                "confidence of the interval": 1 - self.failure,
            },
            breakdown=self.shares.breakdown,
            citations=_CITATIONS,
        )

    def _interval_around(self, moments: ReleasedMoments) -> tuple[float, float]:
        """Compute the interval: half of the failure probability is for the noise, half for sampling."""
        failure = float(self.failure) / 2
        sides = 2 if self.alternative == "two-sided" else 1
        # Fisher's transformation (Fis21): atanh of the correlation of normal pairs is nearly normal.
        reach = -float(special.ndtri(failure / sides)) / math.sqrt(self.rows - 3)
        low, high = (
            math.copysign(math.inf, end) if abs(end) >= 1 else math.atanh(end)
            for end in moments.bound_sample_correlation(failure)
        )
        low, high = math.tanh(low - reach), math.tanh(high + reach)
        return (-1.0 if self.alternative == "less" else low), (1.0 if self.alternative == "greater" else high)


@hypothesis_test(LinearCorrelationTest)
def linear_correlation_test(
    x: Any,
    y: Any,
    *,
    bounds: PairBounds,
    alternative: Alternative = "two-sided",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: float | None = None,
    deviations: tuple[Number, Number] | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    confidence: Number = 0.95,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether two arrays of equal length, which is public, are linearly related.

    The interval is for the correlation of the clipped values.

    Parameters
    ----------
    x, y : array-like of float
        The private samples, one pair per person.
    bounds : pair of pairs of float
        The public bounds of x and of y, to which values are clipped.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> x = np.linspace(0, 1, 500)
    >>> release = linear_correlation_test(x, 1 - x**2, bounds=((0, 1), (0, 1)), epsilon=1, bits=SeededBits(1))
    >>> release.value.rejects(0.01), -1 <= release.value.estimate < -0.5
    (True, True)
    """
    terms = take_terms(LinearCorrelationTest, locals())
    first, second = read_private_pair(x, y)
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidRequest("Expected bounds of x and of y", do="Pass bounds=((0, 1), (0, 10))")
    limits = (read_bounds(bounds[0]), read_bounds(bounds[1]))
    query = LinearCorrelationTest("x", "y", **terms)
    plan = query._plan_for_rows(len(first), limits, f"linear correlation, {alternative}")
    return plan.climb(PairMoments([(first, second)], limits), bits)


@hypothesis_power
def linear_correlation_power(
    rows: int,
    effect: float,
    *,
    deviations: tuple[Number, Number],
    bounds: PairBounds,
    epsilon: Number,
    level: Number = 0.05,
    alternative: Alternative = "two-sided",
) -> float:
    """Compute the power for normal pairs of this correlation in the middle of their bounds, good to about 0.03.

    It is 0 for fewer rows than the test takes.

    Parameters
    ----------
    effect : float
        The correlation, between -1 and 1.
    deviations : pair of float
        The standard deviations of both columns.
    bounds : pair of pairs of float
        The public bounds of both columns.

    Examples
    --------
    >>> power = linear_correlation_power(1000, 0.3, deviations=(1, 1), bounds=((-3, 3), (-3, 3)), epsilon=2.0)
    >>> power > 0.95
    True
    """
    slope, count = read_correlation(effect), read_row_count(rows)
    direction = read_alternative(alternative)
    limits = [read_bounds(each) for each in read_pair(bounds, "bounds")]
    spreads = zip(read_pair(deviations, "deviations"), limits, strict=True)
    first, second = (scale_deviation(spread, high - low) for spread, (low, high) in spreads)
    shares = MomentShares.for_rows(Fraction(read_power_epsilon(epsilon)), rows=count)
    if count < _FEWEST:
        return 0.0
    squares = [None if shares.squares is None else count * d**2 for d in (first, second)]
    expected = ReleasedMoments.under_shares(0.0, 0.0, 0.0, *squares, rows=count, shares=shares)
    tail = (float(probability(level, "level")) - NUISANCE) / (2 if direction == "two-sided" else 1)
    if tail <= 0 or expected.square_scale > count:
        return 0.0
    scales = [float(each) for each in expected.scales]
    critical = noisy_normal_quantile(tail, float(expected.deviation), scales)
    deviation = math.sqrt(count * (1 + slope**2)) * first * second
    return noisy_normal_power(critical, slope * count * first * second, deviation, scales, direction)


def linear_correlation_p_values(moments: ReleasedMoments, alternative: Alternative = "two-sided") -> Floats:
    """Return p-values from released totals, one per repetition."""
    upper = noisy_normal_tail(moments.covariation, moments.deviation, list(moments.scales))
    return np.asarray(np.minimum(tail_to_p_value(upper, alternative) + NUISANCE, 1.0))


@dataclass(frozen=True)
class MomentShares:
    """The split of epsilon: half for the sum of products, an eighth for each sum and each sum of squares.

    Squares measure the spread of the columns. Where their noise alone would exceed the widest spread the bounds allow,
    they are useless, and their share goes to the products.

    Examples
    --------
    >>> MomentShares.for_rows(Fraction(1), rows=1000).products
    Fraction(1, 2)
    """

    products: Fraction
    sums: Fraction
    squares: Fraction | None

    @classmethod
    def for_rows(cls, epsilon: Fraction, *, rows: int) -> MomentShares:
        """Choose the split for a table of this size."""
        eighth = epsilon / 8
        useless = rows * float(eighth) <= _LOG
        return cls(epsilon * Fraction(3, 4) if useless else epsilon / 2, eighth, None if useless else eighth)

    @property
    def breakdown(self) -> dict[str, Fraction]:
        """Return the parts by name, as printed on a receipt."""
        parts = {"products": self.products, "sums": 2 * self.sums}
        return parts if self.squares is None else parts | {"squares": 2 * self.squares}


class PairMoments:
    """Exact sums of products, values and squares of two columns, sealed.

    Values are clipped to public bounds, centered and rounded to 1/1024 of their width. Replacing one row moves the sum
    of products by at most half of the product of the widths, a sum by its width, a sum of squares by a quarter of the
    squared width.
    """

    def __init__(self, parts: Iterable[tuple[Any, Any]], bounds: PairBounds) -> None:
        totals = np.zeros(5, np.int64)
        for x, y in parts:
            totals += _sum_pairs(x, y, bounds)
        self._seal_totals(totals)

    @classmethod
    def of_totals(cls, totals: NDArray[np.int64]) -> PairMoments:
        """Seal totals that were summed where rows lie."""
        moments = cls.__new__(cls)
        moments._seal_totals(totals)
        return moments

    def _seal_totals(self, totals: NDArray[np.int64]) -> None:
        product, square = _STEPS**2 // 2, _STEPS**2 // 4
        amounts = (product, _STEPS, _STEPS, square, square)
        self._sealed = [
            Sealed(np.array([total], dtype=object), Sensitivity(amount, Norm.L1, Adjacency.REPLACE_ONE))
            for total, amount in zip(totals.tolist(), amounts, strict=True)
        ]

    def release_moments(self, shares: MomentShares, *, rows: int, bits: BitSource | None) -> ReleasedMoments:
        """Release the totals under discrete Laplace noise."""
        epsilons = (shares.products, shares.sums, shares.sums, shares.squares, shares.squares)
        units = (_STEPS**2, _STEPS, _STEPS, _STEPS**2, _STEPS**2)
        found = [
            None if epsilon is None else float(add_laplace_noise(sealed, epsilon, bits)[0]) / unit
            for sealed, epsilon, unit in zip(self._sealed, epsilons, units, strict=True)
        ]
        return ReleasedMoments.under_shares(*found, rows=rows, shares=shares)


def _sum_pairs(x: Any, y: Any, bounds: PairBounds) -> NDArray[np.int64]:
    """Sum products, values and squares of two columns, in steps of their grids."""
    x, y = (
        np.rint(round_to_grid(values, limits) / _COARSE).astype(np.int64)
        for values, limits in zip((x, y), bounds, strict=True)
    )
    return np.array([(x * y).sum(), x.sum(), y.sum(), (x * x).sum(), (y * y).sum()])


def _total_pairs(first: str, second: str, bounds: PairBounds, batch: pa.RecordBatch) -> NDArray[np.int64]:
    return _sum_pairs(float_cells(batch.column(first)), float_cells(batch.column(second)), bounds)


@dataclass(frozen=True)
class ReleasedMoments:
    """Released totals in widths of the bounds, one element per repetition, with the scales of their noise."""

    products: Floats
    sums: tuple[Floats, Floats]
    squares: tuple[Floats, Floats] | None
    rows: int
    product_scale: float
    sum_scale: float
    square_scale: float

    @classmethod
    def under_shares(
        cls, xy: Any, x: Any, y: Any, xx: Any, yy: Any, *, rows: int, shares: MomentShares
    ) -> ReleasedMoments:
        """Combine released numbers with the noise scales of the split they were released under."""
        return cls(
            np.asarray(xy, np.float64),
            (np.asarray(x, np.float64), np.asarray(y, np.float64)),
            None if xx is None else (np.asarray(xx, np.float64), np.asarray(yy, np.float64)),
            rows,
            0.5 / float(shares.products),
            1 / float(shares.sums),
            0.0 if shares.squares is None else 0.25 / float(shares.squares),
        )

    @property
    def covariation(self) -> Floats:
        """Return the sum of products about the noisy means."""
        found: Floats = self.products - self.sums[0] * self.sums[1] / self.rows
        return found

    @property
    def scales(self) -> list[Floats]:
        """Return the scales of the Laplace parts of the covariation.

        With noises e of the products, f and g of the sums, it is the exact one plus e - f (noisy mean of y)
        - g (mean of x); the unknown mean of x is replaced by an upper bound.
        """
        mean_x, mean_y = (np.abs(total) / self.rows for total in self.sums)
        most = np.minimum(mean_x + self.sum_scale * _LOG / self.rows, 0.5)
        return [np.full(mean_x.shape, self.product_scale), mean_y * self.sum_scale, most * self.sum_scale]

    @property
    def deviation(self) -> Floats:
        """Return the standard deviation of the covariation of independent columns, their spreads at upper bounds."""
        first, second = (self._bound_spread(column) for column in (0, 1))
        found: Floats = math.sqrt(self.rows) * first * second * float(student_factor(self.rows - 2.0))
        return found

    def _bound_spread(self, column: int) -> Floats:
        """Bound the standard deviation of a column from above."""
        if self.squares is None:
            return np.full(self.products.shape, 0.5)
        # For any c the squares about the mean are at most those about c; here c is the noisy mean, see the proof.
        total, center = self.sums[column], np.clip(self.sums[column] / self.rows, -0.5, 0.5)
        within = np.maximum(self.squares[column] - 2 * center * total + center**2 * self.rows, 0.0)
        noise = np.hypot(self.square_scale, 2 * center * self.sum_scale)
        return np.sqrt(np.minimum((within + _LOG * noise) / (self.rows - 1), 0.25))

    def _variation_of(self, column: int) -> float:
        """Return the noisy sum of squares about the mean of a column; for one repetition."""
        assert self.squares is not None
        return float(self.squares[column] - self.sums[column] ** 2 / self.rows)

    def estimate_correlation(self) -> float | None:
        """Return the noisy correlation, or None if a noisy spread is missing or not positive; for one repetition."""
        if self.squares is None:
            return None
        spreads = [self._variation_of(column) for column in (0, 1)]
        if min(spreads) <= 0:
            return None
        return min(max(float(self.covariation) / math.sqrt(math.prod(spreads)), -1.0), 1.0)

    def bound_sample_correlation(self, failure: float) -> tuple[float, float]:
        """Return the range of the correlation of the clipped sample, given the noise; for one repetition.

        A third of the failure probability each is for the covariation and the two variations.
        """
        if self.squares is None:
            return -1.0, 1.0
        reach = noisy_normal_quantile(failure / 6, 0.0, [float(scale) for scale in self.scales])
        least, most = zip(*(self._bound_variation(column, failure / 3) for column in (0, 1)), strict=True)
        narrow, wide = math.sqrt(math.prod(least)), math.sqrt(math.prod(most))
        low, high = float(self.covariation) - reach, float(self.covariation) + reach
        return _clip_ratio(low, wide if low > 0 else narrow), _clip_ratio(high, narrow if high > 0 else wide)

    def _bound_variation(self, column: int, failure: float) -> tuple[float, float]:
        """Return the range of the sum of squares about the mean of a column."""
        log = math.log(2 / failure)  # half for the squares, half for the sum
        total = abs(float(self.sums[column]))
        moved = self.sum_scale * log
        reach = self.square_scale * log + (2 * total * moved + moved**2) / self.rows
        found = self._variation_of(column)
        return max(found - reach, 0.0), min(max(found + reach, 1e-9), self.rows / 4)


def _clip_ratio(numerator: float, denominator: float) -> float:
    """Divide, clip to [-1, 1] and never fail: anything over zero is at a bound."""
    if numerator == 0:
        return 0.0
    if denominator <= 0:
        return math.copysign(1.0, numerator)
    return min(max(numerator / denominator, -1.0), 1.0)
