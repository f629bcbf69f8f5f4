"""Do two groups have the same mean? Welch's test on noisy totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Release
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.group_means import NUISANCE, GroupMeansPlan, GroupShares, GroupTotals, NoisyGroups
from expost.stats.hypothesis.hypothesis_input import (
    Alternative,
    Number,
    TableSize,
    check_column_names,
    check_values,
    read_alternative,
    read_bounds,
    read_column_bounds,
    read_flag,
    read_group_sizes,
    read_power_epsilon,
    scale_deviation,
    scale_to_width,
)
from expost.stats.hypothesis.hypothesis_plan import (
    ASYMPTOTIC,
    HypothesisQuery,
    HypothesisVerdict,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
    tail_to_p_value,
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice, PriceTerms
from expost.stats.hypothesis.private_sample import read_samples
from expost.stats.hypothesis.reference_law import noisy_normal_power, noisy_normal_quantile, noisy_normal_tail

__all__ = ["MeanDifferenceTest", "mean_difference_power", "mean_difference_test"]

Floats = NDArray[np.float64]

_ASSUMED = "estimated, if values are normal with the deviation given and sizes are as supposed"
_CITATIONS = ("GRS09, Definition 2", "BB94, Lemma 1", "Sat46", "docs/proofs/noisy-reference.md")


@hypothesis_query
class MeanDifferenceTest(HypothesisQuery):
    """Tests whether a bounded column has the same mean in two groups, whose sizes stay private.

    Groups may differ in spread and size (Welch's test).

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. It is split between sums, squares and group sizes.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: replace-one: the width of the bounds for the sums, 2 for the sizes, half the squared width for the
        squares by group (a quarter where sizes are public, or for the one total of ``equal_spread``); add-remove: half
        the width, 1, and a quarter.
    Accuracy: p-values keep their level for normal and for bounded, moderately skewed values (simulated down to ten
        rows per group, for spreads that differ by a factor of 300, and for 0/1 values as rare as one in 200). For a
        group of 100 rare 0/1 values against a large narrow one of the same mean a level of 0.05 can be 0.062. The
        probability of a wrong bound on the spread is added to them. ``split_test`` has a proved level for groups of
        equal laws.
    Numerics: exact integer sums and noise; p-values and intervals are post-processing in floats.
    Reference: GRS09, Definition 2 (noise); BB94, Lemma 1 (unknown spread); Sat46 (degrees of freedom);
        docs/proofs/noisy-reference.md.

    Parameters
    ----------
    value : str
        The numeric column; its bounds must be declared in the dataset.
    by : str
        The column that holds the groups.
    groups : pair of bool, int, float or str
        The two values of ``by`` that are compared.
    alternative : {"two-sided", "greater", "less"}, default "two-sided"
        The alternative hypothesis about the first mean minus the second.
    effect : float, optional
        The size of the difference of means at which the power is needed. Required with ``power``.
    expected_rows : int, optional
        A public guess of the number of rows, for ``power`` under add-remove, if ``expected_sizes`` is not given.
    expected_sizes : pair of int, optional
        A public guess of the number of rows of each group, for ``power`` where sizes are private. Default: groups are
        supposed to be of equal size. A test of groups that are less even than supposed has less power than asked.
    equal_spread : bool, default False
        Take the spreads of the groups to be equal. This gains a little power, most where sizes are private under
        replace-one. If the spreads differ, the level does not hold.

    Examples
    --------
    >>> MeanDifferenceTest("delay", by="origin", groups=("EWR", "JFK"), epsilon=1).question
    "difference of means: delay by origin, 'EWR' against 'JFK', two-sided"
    """

    value: str
    _: KW_ONLY
    by: str
    groups: Sequence[Any]
    alternative: Alternative = "two-sided"
    epsilon: Number | None = None
    power: Number | None = None
    effect: Number | None = None
    deviation: Number | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    confidence: Number = 0.95
    expected_rows: int | None = None
    expected_sizes: Sequence[int] | None = None
    equal_spread: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.groups, tuple | list) or len(self.groups) != 2 or self.groups[0] == self.groups[1]:
            raise InvalidRequest("Expected two different groups", do="Pass groups=(first, second)")
        check_column_names(self.value, self.by)
        read_alternative(self.alternative)
        read_flag(self.equal_spread, "equal_spread")
        probability(self.confidence, "confidence")
        self._read_terms()

    @property
    def question(self) -> str:
        first, second = self.groups
        return f"difference of means: {self.value} by {self.by}, {first!r} against {second!r}, {self.alternative}"

    def _plan_for_dataset(self, dataset: Dataset) -> MeanDifferencePlan:
        size = TableSize.of_dataset(dataset, self.expected_rows)
        bounds = read_column_bounds(dataset, self.value)
        check_values(dataset, self.by, self.groups)
        return self._plan_for_size(size, bounds, None, self.question)

    def _read_terms(self) -> tuple[PriceTerms, float | None, float | None]:
        """Read (terms of the price, effect, deviation)."""
        return (
            self._read_price_terms(),
            None if self.effect is None else float(rational(self.effect, "effect")),
            None if self.deviation is None else float(rational(self.deviation, "deviation")),
        )

    def _plan_for_size(
        self, size: TableSize, bounds: tuple[float, float], public_sizes: tuple[int, ...] | None, question: str
    ) -> MeanDifferencePlan:
        """Price the test for a table of this size."""
        terms, _, _ = self._read_terms()
        asked = terms.fixed is None and public_sizes is None
        supposed = size.suppose_sizes(2, self.expected_sizes) if asked else None
        return MeanDifferencePlan(
            question=question,
            price=terms.fixed or self._price_power(size, bounds, public_sizes, supposed),
            value=self.value,
            by=self.by,
            groups=tuple(self.groups),
            bounds=bounds,
            size=size,
            public_sizes=public_sizes,
            supposed_sizes=supposed,
            equal_spread=bool(self.equal_spread),
            alternative=self.alternative,
            failure=1 - probability(self.confidence, "confidence"),
        )

    def _price_power(
        self,
        size: TableSize,
        bounds: tuple[float, float],
        public_sizes: tuple[int, ...] | None,
        supposed: tuple[int, ...] | None,
    ) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, effect, deviation = self._read_terms()
        if effect is None or deviation is None:
            raise InvalidRequest(
                "Expected a difference and a standard deviation together with power", do="Pass effect= and deviation="
            )
        sizes = public_sizes or supposed or ()
        signed = -effect if self.alternative == "less" else effect

        def power_at(epsilon: float) -> float:
            return mean_difference_power(
                sizes,
                signed,
                deviation=deviation,
                bounds=bounds,
                epsilon=epsilon,
                level=float(terms.level),
                alternative=self.alternative,
                public_sizes=public_sizes is not None,
                adjacency=size.adjacency,
                equal_spread=self.equal_spread,
            )

        return terms.price_estimated(power_at, _ASSUMED)


@dataclass(frozen=True, kw_only=True)
class MeanDifferencePlan(GroupMeansPlan):
    """A priced test of the difference of two means."""

    alternative: Alternative
    failure: Fraction

    def climb(self, sealed: GroupTotals, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        noisy = self.release_groups(sealed, source)
        difference = float(noisy.means[0] - noisy.means[1]) * (self.bounds[1] - self.bounds[0])
        verdict = HypothesisVerdict(
            test="difference of means",
            statistic=difference,
            p_value=float(mean_difference_p_values(noisy, self.alternative)),
            estimate=difference,
            alternative=self.alternative,
        )
        return self.release_verdict(
            verdict,
            method="discrete Laplace sums, noise in the reference",
            interval=self._interval_around(difference, noisy),
            bits=source,
            level=ASYMPTOTIC,
            terms={**self.group_terms, "confidence of the interval": 1 - self.failure},
            adjacency=self.size.adjacency,
            breakdown=self.shares.breakdown,
            citations=_CITATIONS,
        )

    def _interval_around(self, difference: float, noisy: NoisyGroups) -> tuple[float, float]:
        """Compute the confidence interval, cut to what the bounds allow."""
        width = self.bounds[1] - self.bounds[0]
        tail = (float(self.failure) - NUISANCE) / (1 if self.alternative != "two-sided" else 2)
        if not bool(noisy.usable) or tail <= 0:
            return -width, width
        spread, scales = _difference_law(noisy)
        reach = noisy_normal_quantile(tail, float(spread), [float(scale) for scale in scales]) * width
        low = -width if self.alternative == "less" else max(difference - reach, -width)
        high = width if self.alternative == "greater" else min(difference + reach, width)
        return min(low, width), max(high, -width)


@hypothesis_test(MeanDifferenceTest)
def mean_difference_test(
    first: Any,
    second: Any,
    *,
    bounds: tuple[float, float],
    alternative: Alternative = "two-sided",
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Number | None = None,
    deviation: Number | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    confidence: Number = 0.95,
    expected_rows: int | None = None,
    expected_sizes: Sequence[int] | None = None,
    equal_spread: bool = False,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether two samples have the same mean. The interval is for the difference.

    Parameters
    ----------
    first, second : array-like of float
        The private samples.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> x, y = np.linspace(0, 6, 300), np.linspace(4, 10, 300)
    >>> release = mean_difference_test(x, y, bounds=(0, 10), epsilon=0.5, bits=SeededBits(2))
    >>> release.value.rejects(0.01), -5 < release.value.estimate < -3
    (True, True)
    """
    terms = take_terms(MeanDifferenceTest, locals())
    query = MeanDifferenceTest("value", by="group", groups=("first", "second"), **terms)
    samples = read_samples([first, second], adjacency=adjacency)
    limits, sizes = read_bounds(bounds), (len(samples[0]), len(samples[1]))
    size = TableSize.of_sample(sum(sizes), adjacency=adjacency, expected_rows=expected_rows)
    public_sizes = None if size.rows is None else sizes
    plan = query._plan_for_size(size, limits, public_sizes, f"difference of means, {alternative}")
    return plan.climb(GroupTotals.of_arrays(samples, limits, size.adjacency), bits)


@hypothesis_power
def mean_difference_power(
    sizes: Sequence[int],
    effect: Number,
    *,
    deviation: Number,
    bounds: tuple[float, float],
    epsilon: Number,
    level: Number = 0.05,
    alternative: Alternative = "two-sided",
    public_sizes: bool = True,
    adjacency: str | Adjacency = "replace-one",
    equal_spread: bool = False,
) -> float:
    """Compute the power at a difference of means, for normal values; good to about 0.02 if above a half.

    Parameters
    ----------
    effect : float
        The true difference of means.

    Examples
    --------
    >>> round(mean_difference_power((200, 200), 1.0, deviation=2.0, bounds=(0, 10), epsilon=1.0), 2)
    0.96
    """
    low, high = read_bounds(bounds)
    counts, direction = read_group_sizes(sizes, groups=2), read_alternative(alternative)
    away, share = scale_to_width(effect, "effect", high - low), scale_deviation(deviation, high - low)
    relation = Adjacency.parse(adjacency)
    known = read_flag(public_sizes, "public_sizes") and relation.public_size
    shares = GroupShares.for_groups(
        Fraction(read_power_epsilon(epsilon)),
        rows=sum(counts) if relation.public_size else None,
        public_sizes=counts if known else None,
        adjacency=relation,
        equal_spread=read_flag(equal_spread, "equal_spread"),
    )
    noisy = NoisyGroups.expected(np.zeros(2), np.array(counts, np.float64), share, shares)
    spread, scales = _difference_law(noisy)
    tail = (float(probability(level, "level")) - NUISANCE) / (2 if direction == "two-sided" else 1)
    if tail <= 0 or not bool(noisy.usable):
        return 0.0
    critical = noisy_normal_quantile(tail, float(spread), [float(scale) for scale in scales])
    # The true law of the mean: sampling without the safety margin of the bounds.
    true_spread = share * math.sqrt(sum(1 / size for size in counts))
    return noisy_normal_power(critical, away, true_spread, scales, direction)


def mean_difference_p_values(groups: NoisyGroups, alternative: Alternative = "two-sided") -> Floats:
    """Return p-values from released totals, one per repetition."""
    spread, scales = _difference_law(groups)
    difference = groups.means[..., 0] - groups.means[..., 1]
    tail = tail_to_p_value(noisy_normal_tail(difference, spread, scales), alternative)
    # A group that may be empty gives no evidence.
    p: Floats = np.where(groups.usable, np.minimum(tail + NUISANCE, 1.0), 1.0)
    return p


def _difference_law(groups: NoisyGroups) -> tuple[Floats, list[Floats]]:
    """Return standard deviation and Laplace scales of the difference of two noisy means when the true ones are equal."""
    spread = np.sqrt(groups.mean_variances.sum(-1))
    return spread, [part[..., group] for part in groups.mean_scales for group in (0, 1)]
