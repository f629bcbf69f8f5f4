"""Do two bounded numbers rise together along a line? Pearson's correlation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import InvalidRequest, Release
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.column import checked_rows, measured, named, pair_of, public_rows
from expost.stats.hypothesis.groups import column_bounds, group_bounds
from expost.stats.hypothesis.moments import MomentShares, NoisyMoments, PairMoments
from expost.stats.hypothesis.planned import chance_of, correlation_of, deviation_of, rows_of, strength_of, two_of
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest
from expost.stats.hypothesis.reference import noisy_normal_quantile, noisy_normal_tail
from expost.stats.hypothesis.shares import NUISANCE
from expost.stats.hypothesis.verdict import ASYMPTOTIC, Alternative, Verdict, alternative_of, released, two_sided

__all__ = ["LinearCorrelationTest", "linear_correlation_power", "linear_correlation_test"]

_FEWEST, _MOST = 4, 1 << 40
_CITATIONS = ("Fis21", "GRS09, Definition 2", "BB94, Lemma 1", "docs/proofs/noisy-reference.md")

Bounds = tuple[tuple[float, float], tuple[float, float]]


class LinearCorrelationTest(PricedTest):
    """Tests whether two bounded columns are independent, against a linear relation: Pearson's correlation.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. It is split between the sums of products, of values and of squares.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: half the product of the widths of the bounds for the products, the width for a sum, a quarter of its
        square for a sum of squares.
    Accuracy: p-values keep their level under independence for normal, uniform and skewed values and for 0/1 values of
        one in ten (simulated down to ten rows); the probability of a wrong bound on the spreads is added to them. Where
        both columns are so rare that fewer than about ten rows are expected in both, an epsilon of 20 or more shows that
        sums of products are not normal (P(p <= 0.05) up to 0.09): take ``split_test``, whose level is proved, or
        ``independence_test``. The interval supposes normal pairs.
    Numerics: exact integer sums and noise; p-values and intervals are post-processing in floats.
    Reference: GRS09, Definition 2 (noise); BB94, Lemma 1 (unknown spreads); Fis21 (interval);
        docs/proofs/noisy-reference.md.

    >>> LinearCorrelationTest("distance", "arr_delay", epsilon=1).question
    'linear correlation: distance with arr_delay, two-sided'
    """

    def __init__(
        self,
        first: str,
        second: str,
        *,
        alternative: Alternative = "two-sided",
        epsilon: object = None,
        power: object = None,
        effect: float | None = None,
        deviations: tuple[float, float] | None = None,
        level: object = 0.05,
        max_epsilon: object = None,
        confidence: object = 0.95,
    ) -> None:
        if first == second:
            raise InvalidRequest("Expected two different columns", got=first, do="Name another one")
        self._columns = named(first, second)
        self._design = _Design(alternative, confidence, effect, deviations)
        super().__init__(Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon))
        self._rows, self._bounds = 0, ((0.0, 1.0), (0.0, 1.0))

    @property
    def question(self) -> str:
        return f"linear correlation: {self._columns[0]} with {self._columns[1]}, {self._design.alternative}"

    def check(self, dataset: Dataset) -> None:
        self._bounds = (column_bounds(dataset, self._columns[0]), column_bounds(dataset, self._columns[1]))
        self._rows = checked_rows(public_rows(dataset), fewest=_FEWEST, most=_MOST)
        self._priced = self._design.price(self._ask, self._rows, self._bounds)

    def measure(self, dataset: Dataset) -> PairMoments:
        batches = dataset.batches(list(self._columns))
        return PairMoments(
            ((measured(b, self._columns[0]), measured(b, self._columns[1])) for b in batches), self._bounds
        )

    def noisy(self, sealed: PairMoments, bits: BitSource | None) -> NDArray[np.float64]:
        """The numbers that are released; all that follows is post-processing."""
        shares = MomentShares.of(self._priced.epsilon, rows=self._rows)
        found = sealed.release(shares, rows=self._rows, bits=bits)
        return np.array([found.products, *found.sums, *(found.squares or ())], np.float64)

    def climb(self, sealed: PairMoments, bits: BitSource | None) -> Release[Verdict]:
        return self._design.release(sealed, self._rows, self._bounds, self._priced, bits, self.question, self._ask)


def linear_correlation_test(
    x: Any,
    y: Any,
    *,
    bounds: Bounds,
    alternative: Alternative = "two-sided",
    epsilon: object = None,
    power: object = None,
    effect: float | None = None,
    deviations: tuple[float, float] | None = None,
    level: object = 0.05,
    max_epsilon: object = None,
    confidence: object = 0.95,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on two arrays of equal length, which is public; ``bounds`` are those of x and of y.

    ``power=`` with ``effect`` (the correlation of normal pairs) and ``deviations`` (of x and of y) prices the test. The
    estimate and the interval are of the correlation of the clipped values.

    >>> from expost.noise import SeededBits
    >>> x = np.linspace(0, 1, 500)
    >>> release = linear_correlation_test(x, 1 - x**2, bounds=((0, 1), (0, 1)), epsilon=1, bits=SeededBits(1))
    >>> release.value.rejects(0.01), -1 <= release.value.estimate < -0.5
    (True, True)
    """
    first, second = pair_of(x, y)
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidRequest("Expected bounds of x and of y", do="Pass bounds=((0, 1), (0, 10))")
    limits = (group_bounds(bounds[0]), group_bounds(bounds[1]))
    rows, design = (
        checked_rows(len(first), fewest=_FEWEST, most=_MOST),
        _Design(alternative, confidence, effect, deviations),
    )
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    priced = design.price(ask, rows, limits)
    sealed = PairMoments([(first, second)], limits)
    return design.release(sealed, rows, limits, priced, bits, f"linear correlation, {design.alternative}", ask)


def linear_correlation_power(
    rows: int,
    effect: float,
    *,
    deviations: tuple[float, float],
    bounds: Bounds,
    epsilon: float,
    level: float = 0.05,
    alternative: Alternative = "two-sided",
) -> float:
    """The power for normal pairs of this correlation in the middle of their bounds; good to about 0.03.

    >>> power = linear_correlation_power(1000, 0.3, deviations=(1, 1), bounds=((-3, 3), (-3, 3)), epsilon=2.0)
    >>> power > 0.95
    True
    """
    slope, count, direction = correlation_of(effect), rows_of(rows, fewest=_FEWEST), alternative_of(alternative)
    limits = [group_bounds(each) for each in two_of(bounds, "bounds")]
    spreads = zip(two_of(deviations, "deviations"), limits, strict=True)
    first, second = (deviation_of(spread, high - low) for spread, (low, high) in spreads)
    shares = MomentShares.of(Fraction(strength_of(epsilon)), rows=count)
    scale = 0.0 if shares.squares is None else 0.25 / float(shares.squares)
    squares = [None if shares.squares is None else count * d**2 for d in (first, second)]
    expected = NoisyMoments.of(0.0, 0.0, 0.0, *squares, rows=count, shares=shares)
    tail = (chance_of(level) - NUISANCE) / (2 if direction == "two-sided" else 1)
    if tail <= 0 or scale > count:
        return 0.0
    scales = [float(each) for each in expected.scales]
    critical = noisy_normal_quantile(tail, float(expected.deviation), scales)
    shift = {"two-sided": abs(slope), "greater": slope, "less": -slope}[direction] * count * first * second
    deviation = math.sqrt(count * (1 + slope**2)) * first * second
    power = noisy_normal_tail(critical - shift, deviation, list(scales))
    if direction == "two-sided":
        power = power + noisy_normal_tail(critical + shift, deviation, list(scales))
    return float(np.clip(power, 0.0, 1.0))


def linear_correlation_p_values(moments: NoisyMoments, alternative: Alternative = "two-sided") -> NDArray[np.float64]:
    """P-values from released totals, one for each repetition."""
    upper = noisy_normal_tail(moments.covariation, moments.deviation, list(moments.scales))
    return np.asarray(np.minimum(two_sided(upper, alternative) + NUISANCE, 1.0))


class _Design:
    """The public side of the test."""

    def __init__(self, alternative: object, confidence: object, effect: float | None, deviations: Any) -> None:
        self.alternative = alternative_of(alternative)
        self._failure = 1 - probability(confidence, "confidence")
        self._effect, self._deviations = effect, deviations

    def price(self, ask: Ask, rows: int, bounds: Bounds) -> Priced:
        if ask.fixed is not None:
            return ask.fixed
        if self._effect is None or not isinstance(self._deviations, tuple | list) or len(self._deviations) != 2:
            raise InvalidRequest(
                "Expected a correlation and two standard deviations beside power", do="Pass effect= and deviations="
            )
        effect, spreads = self._effect, [float(rational(each, "deviations")) for each in self._deviations]

        def power_at(epsilon: float) -> float:
            return linear_correlation_power(
                rows,
                effect,
                deviations=(spreads[0], spreads[1]),
                bounds=bounds,
                epsilon=epsilon,
                level=float(ask.level),
                alternative=self.alternative,
            )

        return ask.estimated(power_at, "estimated, if the pairs are normal with the deviations given")

    def release(
        self,
        sealed: PairMoments,
        rows: int,
        bounds: Bounds,
        priced: Priced,
        bits: BitSource | None,
        question: str,
        ask: Ask,
    ) -> Release[Verdict]:
        source, shares = bits or system_bits(), MomentShares.of(priced.epsilon, rows=rows)
        moments = sealed.release(shares, rows=rows, bits=source)
        verdict = Verdict(
            test="linear correlation",
            statistic=float(moments.covariation) / (rows - 1) * math.prod(high - low for low, high in bounds),
            p_value=float(linear_correlation_p_values(moments, self.alternative)),
            estimate=_estimate(moments),
            alternative=self.alternative,
        )
        return released(
            verdict,
            question=question,
            method="discrete Laplace moments, noise in the reference",
            priced=priced,
            interval=self._interval(moments),
            ask=ask,
            private=source.private,
            level=ASYMPTOTIC,
            terms={
                "rows": rows,
                "bounds": [list(each) for each in bounds],
                "confidence of the interval": 1 - self._failure,
            },
            breakdown=shares.breakdown(),
            citations=_CITATIONS,
        )

    def _interval(self, moments: NoisyMoments) -> tuple[float, float]:
        """Half of the failure probability for the noise, half for sampling: Fisher's transformation of normal pairs."""
        failure = float(self._failure) / 2
        low, high = moments.sample_correlation(failure)
        sides = 2 if self.alternative == "two-sided" else 1
        reach = -float(special.ndtri(failure / sides)) / math.sqrt(moments.rows - 3)
        low, high = math.tanh(_atanh(low) - reach), math.tanh(_atanh(high) + reach)
        return (-1.0 if self.alternative == "less" else low), (1.0 if self.alternative == "greater" else high)


def _atanh(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= 1 else math.atanh(value)


def _estimate(moments: NoisyMoments) -> float | None:
    """The noisy correlation, if the noisy spreads are there and positive."""
    if moments.squares is None:
        return None
    spreads = [moments.variation(column) for column in (0, 1)]
    if min(spreads) <= 0:
        return None
    return min(max(float(moments.covariation) / math.sqrt(math.prod(spreads)), -1.0), 1.0)
