"""Do several groups have the same mean? One-way analysis of variance on noisy totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expost.core import Adjacency, InvalidRequest, Release
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.noise import BitSource, SeededBits, system_bits
from expost.stats.hypothesis.group_means import NUISANCE, GroupMeansPlan, GroupShares, GroupTotals, NoisyGroups
from expost.stats.hypothesis.hypothesis_input import (
    Number,
    TableSize,
    check_categories,
    check_column_names,
    read_bounds,
    read_column_bounds,
    read_flag,
    read_floats,
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
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice
from expost.stats.hypothesis.private_sample import read_samples
from expost.stats.hypothesis.reference_law import sample_laplaces, sample_normals

__all__ = ["AnovaTest", "anova_power", "anova_test"]

Floats = NDArray[np.float64]

_DRAWS = 9_999  # of the reference distribution; P(p <= level) <= level holds for any number of them (BC91)
_POWER_DRAWS = 2_000
_ASSUMED = "estimated, if values are normal with the deviation given and sizes are as supposed"
_CITATIONS = ("GRS09, Definition 2", "BB94, Lemma 1", "Sat46", "BC91, Section 2", "docs/proofs/noisy-reference.md")


@hypothesis_query
class AnovaTest(HypothesisQuery):
    """Tests whether a bounded column has the same mean in all groups, whose sizes stay private.

    The statistic is the weighted sum of squared distances of the noisy group means from their weighted mean, weights
    being one over each mean's variance from sampling and noise; its reference is drawn with both inside. Groups may
    differ in spread and size.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: replace-one: the width of the bounds for the sums, 2 for the sizes, half the squared width for the
        squares by group (a quarter where sizes are public, or for the one total of ``equal_spread``); add-remove: half
        the width, 1, and a quarter.
    Accuracy: p-values keep their level for normal and for bounded, moderately skewed values (simulated down to ten
        rows per group, and for spreads that differ by a factor of 200). ``split_test`` has a level that is proved.
    Numerics: exact integer sums and noise; p-values are post-processing in floats.
    Reference: GRS09, Definition 2 (noise); BB94, Lemma 1 (unknown spread); Sat46 (degrees of freedom); BC91, Section 2
        (drawn reference); docs/proofs/noisy-reference.md.

    Parameters
    ----------
    value : str
        The numeric column; its bounds must be declared in the dataset.
    by : str
        The column that holds the groups; its categories must be declared in the dataset.
    effect : sequence of float, optional
        The true means of the groups at which the power is needed. Required with ``power``.
    expected_rows : int, optional
        A public guess of the number of rows, for ``power`` under add-remove, if ``expected_sizes`` is not given.
    expected_sizes : sequence of int, optional
        A public guess of the number of rows of each group, for ``power`` where sizes are private. Default: groups are
        supposed to be of equal size. A test of groups that are less even than supposed has less power than asked.
    equal_spread : bool, default False
        Take the spreads of the groups to be equal. This gains some power where groups are small or many. If the spreads
        differ, the level does not hold.

    Examples
    --------
    >>> AnovaTest("delay", by="origin", epsilon=1).question
    'one-way ANOVA: delay by origin'
    """

    value: str
    _: KW_ONLY
    by: str
    epsilon: Number | None = None
    power: Number | None = None
    effect: Sequence[float] | None = None
    deviation: Number | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    expected_rows: int | None = None
    expected_sizes: Sequence[int] | None = None
    equal_spread: bool = False

    def __post_init__(self) -> None:
        check_column_names(self.value, self.by)
        read_flag(self.equal_spread, "equal_spread")
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"one-way ANOVA: {self.value} by {self.by}"

    def _plan_for_dataset(self, dataset: Dataset) -> AnovaPlan:
        size = TableSize.of_dataset(dataset, self.expected_rows)
        bounds = read_column_bounds(dataset, self.value)
        groups = check_categories(dataset, self.by)
        return self._plan_for_size(size, bounds, groups, None, self.question)

    def _plan_for_size(
        self,
        size: TableSize,
        bounds: tuple[float, float],
        groups: tuple[Any, ...],
        public_sizes: tuple[int, ...] | None,
        question: str,
    ) -> AnovaPlan:
        """Price the test for a table of this size."""
        fixed = self._read_price_terms().fixed
        asked = fixed is None and public_sizes is None
        supposed = size.suppose_sizes(len(groups), self.expected_sizes) if asked else None
        return AnovaPlan(
            question=question,
            price=fixed or self._price_power(size, bounds, public_sizes, supposed or public_sizes or ()),
            value=self.value,
            by=self.by,
            groups=groups,
            bounds=bounds,
            size=size,
            public_sizes=public_sizes,
            supposed_sizes=supposed,
            equal_spread=bool(self.equal_spread),
        )

    def _price_power(
        self,
        size: TableSize,
        bounds: tuple[float, float],
        public_sizes: tuple[int, ...] | None,
        sizes: tuple[int, ...],
    ) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        if self.effect is None or self.deviation is None or read_floats(self.effect).shape != (len(sizes),):
            raise InvalidRequest(
                "Expected the mean of each group and a standard deviation together with power",
                do="Pass effect= and deviation=",
            )
        terms, means = self._read_price_terms(), [float(mean) for mean in self.effect]
        deviation = float(rational(self.deviation, "deviation"))

        def power_at(epsilon: float) -> float:
            return anova_power(
                sizes,
                means,
                deviation=deviation,
                bounds=bounds,
                epsilon=epsilon,
                level=float(terms.level),
                public_sizes=public_sizes is not None,
                adjacency=size.adjacency,
                equal_spread=self.equal_spread,
            )

        return terms.price_estimated(power_at, _ASSUMED)


@dataclass(frozen=True, kw_only=True)
class AnovaPlan(GroupMeansPlan):
    """A priced test of several means."""

    def climb(self, sealed: GroupTotals, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        noisy = self.release_groups(sealed, source)
        verdict = HypothesisVerdict(
            test="one-way ANOVA",
            statistic=float(_spread_of_means(noisy.means, _weigh_means(noisy))),
            p_value=float(anova_p_values(noisy, bits=source)),
        )
        return self.release_verdict(
            verdict,
            method="discrete Laplace sums, noise in the reference",
            bits=source,
            level=ASYMPTOTIC,
            terms=self.group_terms,
            adjacency=self.size.adjacency,
            breakdown=self.shares.breakdown,
            citations=_CITATIONS,
        )


@hypothesis_test(AnovaTest)
def anova_test(
    *groups: ArrayLike,
    bounds: tuple[float, float],
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Sequence[float] | None = None,
    deviation: Number | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    expected_rows: int | None = None,
    expected_sizes: Sequence[int] | None = None,
    equal_spread: bool = False,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether several samples have the same mean.

    Parameters
    ----------
    *groups : array-like of float
        The private samples, two or more.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> x, y, z = np.linspace(0, 6, 300), np.linspace(1, 7, 300), np.linspace(4, 10, 300)
    >>> anova_test(x, y, z, bounds=(0, 10), epsilon=1, bits=SeededBits(2)).value.rejects(0.01)
    True
    """
    terms = take_terms(AnovaTest, locals())
    if len(groups) < 2:
        raise InvalidRequest("Expected at least two groups", got=len(groups), do="Pass one array per group")
    samples, limits = read_samples(groups, adjacency=adjacency), read_bounds(bounds)
    query = AnovaTest("value", by="group", **terms)
    sizes = tuple(len(sample) for sample in samples)
    size = TableSize.of_sample(sum(sizes), adjacency=adjacency, expected_rows=expected_rows)
    public_sizes = None if size.rows is None else sizes
    plan = query._plan_for_size(size, limits, tuple(range(len(sizes))), public_sizes, "one-way ANOVA")
    return plan.climb(GroupTotals.of_arrays(samples, limits, size.adjacency), bits)


@hypothesis_power
def anova_power(
    sizes: Sequence[int],
    means: Sequence[float],
    *,
    deviation: Number,
    bounds: tuple[float, float],
    epsilon: Number,
    level: Number = 0.05,
    public_sizes: bool = True,
    adjacency: str | Adjacency = "replace-one",
    equal_spread: bool = False,
) -> float:
    """Estimate the power when the groups have these true means, for normal values.

    Drawn with fixed bits, so that it is the same each time. Good to about 0.02 if above a half.

    Parameters
    ----------
    means : sequence of float
        The true means of the groups.

    Examples
    --------
    >>> anova_power([100] * 3, [4, 5, 6], deviation=2.0, bounds=(0, 10), epsilon=1.0) > 0.9
    True
    """
    low, high = read_bounds(bounds)
    count, tail = np.array(read_group_sizes(sizes), np.float64), float(probability(level, "level"))
    share, relation = scale_deviation(deviation, high - low), Adjacency.parse(adjacency)
    known = read_flag(public_sizes, "public_sizes") and relation.public_size
    shares = GroupShares.for_groups(
        Fraction(read_power_epsilon(epsilon)),
        rows=int(count.sum()) if relation.public_size else None,
        public_sizes=count.astype(int).tolist() if known else None,
        adjacency=relation,
        equal_spread=read_flag(equal_spread, "equal_spread"),
    )
    given = read_floats(means)
    if given.shape != count.shape or not np.isfinite(given).all():
        raise InvalidRequest("Expected the mean of each group", do="Pass one finite number for each size")
    middle = low + (high - low) / 2
    center = np.array([scale_to_width(float(mean) - middle, "means", high - low) for mean in given])
    expected = NoisyGroups.expected(center, count, share, shares)
    if not bool(expected.usable):
        return 0.0
    bits = SeededBits(0)  # common random numbers: the power is then a smooth function of epsilon
    weights = _weigh_means(expected)
    null = _sample_mean_errors(expected, np.sqrt(expected.mean_variances), _POWER_DRAWS, bits)
    critical = np.quantile(np.sort(_spread_of_means(null, weights)), 1 - max(tail - NUISANCE, 0.0))
    drawn = center + _sample_mean_errors(expected, share / np.sqrt(count), _POWER_DRAWS, bits)
    return float((_spread_of_means(drawn, weights) > critical).mean())


def anova_p_values(groups: NoisyGroups, *, draws: int = _DRAWS, bits: BitSource | None = None) -> Floats:
    """Return p-values from released totals, one per repetition: (1 + draws at least as large) / (1 + draws)."""
    weights = _weigh_means(groups)
    seen = _spread_of_means(groups.means, weights)
    null = _sample_mean_errors(groups, np.sqrt(groups.mean_variances), draws, bits)
    larger = (_spread_of_means(null, weights[..., None, :]) >= seen[..., None]).sum(-1)
    p = np.minimum((1 + larger) / (1 + draws) + NUISANCE, 1.0)
    return np.where(groups.usable, p, 1.0)


def _weigh_means(groups: NoisyGroups) -> Floats:
    """Return one over the variance of each mean, from sampling and noise."""
    weights: Floats = 1 / (groups.mean_variances + groups.noise_variances)
    return weights


def _spread_of_means(means: Floats, weights: Floats) -> Floats:
    """Sum the weighted squared distances from the weighted mean, over the last axis."""
    center = (weights * means).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
    spread: Floats = (weights * (means - center) ** 2).sum(-1)
    return spread


def _sample_mean_errors(groups: NoisyGroups, deviations: Floats, draws: int, bits: BitSource | None) -> Floats:
    """Draw errors of the group means: normal ones of these deviations from sampling, Laplace ones from the noise."""
    shape = (*groups.means.shape[:-1], draws, groups.means.shape[-1])
    drawn = deviations[..., None, :] * sample_normals(shape, bits)
    for scale in groups.mean_scales:
        drawn = drawn + scale[..., None, :] * sample_laplaces(shape, bits)
    return drawn
