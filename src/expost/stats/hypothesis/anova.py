"""Do several groups have the same mean? One-way analysis of variance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Release
from expost.core.rational import rational
from expost.data import Dataset
from expost.noise import BitSource, SeededBits, system_bits
from expost.stats.hypothesis.column import check_values, floats_of, named
from expost.stats.hypothesis.draw import laplaces, normals
from expost.stats.hypothesis.groups import (
    GroupTotals,
    column_bounds,
    even_sizes,
    group_bounds,
    group_terms,
    samples_of,
)
from expost.stats.hypothesis.noisy_groups import NoisyGroups
from expost.stats.hypothesis.planned import chance_of, deviation_of, flag_of, share_of, sizes_of, strength_of
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest
from expost.stats.hypothesis.shares import NUISANCE, Shares
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.verdict import ASYMPTOTIC, Verdict, released

__all__ = ["AnovaTest", "anova_power", "anova_test"]

_DRAWS = 9_999  # of the reference distribution; P(p <= level) <= level holds for any number of them (BC91)
_POWER_DRAWS = 2_000
_ASSUMED = "estimated, if values are normal with the deviation given and sizes are as supposed"
_CITATIONS = ("GRS09, Definition 2", "BB94, Lemma 1", "Sat46", "BC91, Section 2", "docs/proofs/noisy-reference.md")


class AnovaTest(PricedTest):
    """Tests whether a bounded column has the same mean in all groups, whose sizes stay private.

    The statistic is the weighted sum of squared distances of the noisy group means from their weighted mean, weights
    being one over each mean's variance from sampling and noise; its reference is drawn with both inside. Groups may
    differ in spread and size; ``equal_spread=True`` takes their spreads for equal, which buys some power where groups
    are small or many; where they are not, the level breaks.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: replace-one: the width of the bounds for the sums, 2 for the sizes, half the squared width for the
        squares by group (a quarter where sizes are public, or for the one total of ``equal_spread``); add-remove: half
        the width, 1, and a quarter.
    Accuracy: p-values keep their level for normal and for bounded, moderately skewed values (simulated down to ten
        rows a group, and for spreads that differ by a factor of 200). ``split_test`` has a level that is proved.
    Numerics: exact integer sums and noise; p-values are post-processing in floats.
    Reference: GRS09, Definition 2 (noise); BB94, Lemma 1 (unknown spread); Sat46 (its freedom); BC91, Section 2 (drawn
        reference); docs/proofs/noisy-reference.md.

    >>> AnovaTest("delay", by="origin", epsilon=1).question
    'one-way ANOVA: delay by origin'
    """

    def __init__(
        self,
        value: str,
        *,
        by: str,
        epsilon: object = None,
        power: object = None,
        effect: Sequence[float] | None = None,
        deviation: object = None,
        level: object = 0.05,
        max_epsilon: object = None,
        expected_rows: int | None = None,
        equal_spread: bool = False,
    ) -> None:
        self._value, self._by = named(value, by)
        self._effect, self._deviation = effect, deviation
        self._equal_spread = flag_of(equal_spread, "equal_spread")
        super().__init__(Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon))
        self._expected_rows = expected_rows
        self._size = TableSize(None, None)
        self._bounds = (0.0, 1.0)
        self._groups: tuple[Any, ...] = ()

    @property
    def question(self) -> str:
        return f"one-way ANOVA: {self._value} by {self._by}"

    def check(self, dataset: Dataset) -> None:
        self._size = TableSize.of_dataset(dataset, self._expected_rows)
        self._bounds = column_bounds(dataset, self._value)
        self._groups = tuple(dataset.categories.get(self._by, ()))
        if len(self._groups) < 2:
            raise InvalidRequest(
                "Expected public categories of the grouping column", got=self._by, do="Declare Dataset(categories=)"
            )
        check_values(dataset, self._by, self._groups)
        self._priced = _price(
            self._ask,
            len(self._groups),
            lambda: even_sizes(self._size, len(self._groups)),
            self._effect,
            self._deviation,
            self._bounds,
            public_sizes=False,
            size=self._size,
            equal_spread=self._equal_spread,
        )

    def measure(self, dataset: Dataset) -> GroupTotals:
        return GroupTotals.of_dataset(dataset, self._value, self._by, self._groups, self._bounds)

    def noisy(self, sealed: GroupTotals, bits: BitSource | None) -> NDArray[np.float64]:
        """The numbers that are released; all that follows is post-processing."""
        return sealed.release(self._shares, public_sizes=None, bits=bits).numbers

    def climb(self, sealed: GroupTotals, bits: BitSource | None) -> Release[Verdict]:
        return _release(sealed, self._shares, self._priced, None, self._bounds, bits, self.question, self._ask)

    @property
    def _shares(self) -> Shares:
        return _shares(self._priced, self._size, None, self._equal_spread)


def anova_test(
    *groups: Any,
    bounds: tuple[float, float],
    adjacency: str = "replace-one",
    epsilon: object = None,
    power: object = None,
    effect: Sequence[float] | None = None,
    deviation: object = None,
    level: object = 0.05,
    max_epsilon: object = None,
    expected_rows: int | None = None,
    equal_spread: bool = False,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on samples; their sizes are public unless ``adjacency="add-remove"``.

    ``power=`` with ``effect`` (the true means of the groups) and ``deviation`` (within groups) prices the test; with
    private sizes for equal parts of ``expected_rows``. ``equal_spread=True`` is for groups known to spread alike.

    >>> from expost.noise import SeededBits
    >>> x, y, z = np.linspace(0, 6, 300), np.linspace(1, 7, 300), np.linspace(4, 10, 300)
    >>> anova_test(x, y, z, bounds=(0, 10), epsilon=1, bits=SeededBits(2)).value.rejects(0.01)
    True
    """
    if len(groups) < 2:
        raise InvalidRequest("Expected at least two groups", got=len(groups), do="Pass one array per group")
    samples = samples_of(groups, fewest=fewest_rows(2, adjacency=adjacency))
    limits, equal = group_bounds(bounds), flag_of(equal_spread, "equal_spread")
    sizes = [len(sample) for sample in samples]
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    size = TableSize.of(sum(sizes), adjacency=adjacency, expected_rows=expected_rows)
    public = size.rows is not None
    priced = _price(
        ask,
        len(sizes),
        lambda: sizes if public else even_sizes(size, len(sizes)),
        effect,
        deviation,
        limits,
        public_sizes=public,
        size=size,
        equal_spread=equal,
    )
    known = sizes if public else None
    totals = GroupTotals.of_arrays(samples, limits, size.adjacency)
    shares = _shares(priced, size, known, equal)
    return _release(totals, shares, priced, known, limits, bits, "one-way ANOVA", ask)


def anova_p_values(groups: NoisyGroups, *, draws: int = _DRAWS, bits: BitSource | None = None) -> NDArray[np.float64]:
    """P-values from released totals, one for each repetition: (1 + draws at least as large) / (1 + draws)."""
    weights = _weights(groups)
    seen = _spread_of_means(groups.means, weights)
    reference = _spread_of_means(_drawn_means(groups, draws, bits), weights[..., None, :])
    larger = (reference >= seen[..., None]).sum(-1)
    p = np.minimum((1 + larger) / (1 + draws) + NUISANCE, 1.0)
    return np.where(groups.usable, p, 1.0)


def anova_power(
    sizes: Sequence[int],
    means: Sequence[float],
    *,
    deviation: float,
    bounds: tuple[float, float],
    epsilon: float,
    level: float = 0.05,
    public_sizes: bool = True,
    adjacency: str = "replace-one",
    equal_spread: bool = False,
) -> float:
    """The power when the groups have these true means, for normal values; good to about 0.02 if above a half.

    Drawn with fixed bits, so that it is the same each time.

    >>> anova_power([100] * 3, [4, 5, 6], deviation=2.0, bounds=(0, 10), epsilon=1.0) > 0.9
    True
    """
    low, high = group_bounds(bounds)
    count, tail = np.array(sizes_of(sizes), np.float64), chance_of(level)
    share, relation = deviation_of(deviation, high - low), Adjacency.parse(adjacency)
    known = flag_of(public_sizes, "public_sizes") and relation.public_size
    shares = Shares.of(
        Fraction(strength_of(epsilon)),
        rows=int(count.sum()) if relation.public_size else None,
        public_sizes=count.astype(int).tolist() if known else None,
        adjacency=relation,
        equal_spread=flag_of(equal_spread, "equal_spread"),
    )
    given = floats_of(means)
    if given.shape != count.shape or not np.isfinite(given).all():
        raise InvalidRequest("Expected the mean of each group", do="Pass one finite number for each size")
    middle = low + (high - low) / 2
    centre = np.array([share_of(float(mean) - middle, "means", high - low) for mean in given])
    expected = NoisyGroups.expected(centre, count, share, shares)
    if not bool(expected.usable):
        return 0.0
    bits = SeededBits(0)  # common random numbers: the power is then a smooth function of epsilon
    weights = _weights(expected)
    null = np.sort(_spread_of_means(_drawn_means(expected, _POWER_DRAWS, bits), weights))
    critical = np.quantile(null, 1 - max(tail - NUISANCE, 0.0))
    true_spread = share / np.sqrt(count)
    drawn = centre + _noise_of_means(expected, true_spread, _POWER_DRAWS, bits)
    return float((_spread_of_means(drawn, weights) > critical).mean())


def _weights(groups: NoisyGroups) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = 1 / (groups.mean_variances + groups.noise_variances)
    return weights


def _spread_of_means(means: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted sum of squared distances from the weighted mean, over the last axis."""
    centre = (weights * means).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
    spread: NDArray[np.float64] = (weights * (means - centre) ** 2).sum(-1)
    return spread


def _drawn_means(groups: NoisyGroups, draws: int, bits: BitSource | None) -> NDArray[np.float64]:
    """Group means as they scatter when the true ones are equal."""
    return _noise_of_means(groups, np.sqrt(groups.mean_variances), draws, bits)


def _noise_of_means(
    groups: NoisyGroups, deviations: NDArray[np.float64], draws: int, bits: BitSource | None
) -> NDArray[np.float64]:
    shape = (*groups.means.shape[:-1], draws, groups.means.shape[-1])
    drawn = deviations[..., None, :] * normals(shape, bits)
    for scale in groups.mean_scales:
        drawn = drawn + scale[..., None, :] * laplaces(shape, bits)
    return drawn


def _shares(priced: Priced, size: TableSize, public_sizes: Sequence[int] | None, equal_spread: bool) -> Shares:
    return Shares.of(
        priced.epsilon,
        rows=size.rows,
        public_sizes=public_sizes,
        adjacency=size.adjacency,
        equal_spread=equal_spread,
    )


def _price(
    ask: Ask,
    groups: int,
    sizes_of: Callable[[], Sequence[int]],
    effect: Sequence[float] | None,
    deviation: object,
    bounds: tuple[float, float],
    *,
    public_sizes: bool,
    size: TableSize,
    equal_spread: bool,
) -> Priced:
    if ask.fixed is not None:
        return ask.fixed
    if effect is None or deviation is None or floats_of(effect).shape != (groups,):
        raise InvalidRequest(
            "Expected the mean of each group and a standard deviation beside power", do="Pass effect= and deviation="
        )
    means, spread, sizes = [float(mean) for mean in effect], float(rational(deviation, "deviation")), sizes_of()

    def power_at(epsilon: float) -> float:
        return anova_power(
            sizes,
            means,
            deviation=spread,
            bounds=bounds,
            epsilon=epsilon,
            level=float(ask.level),
            public_sizes=public_sizes,
            adjacency=size.adjacency.value,
            equal_spread=equal_spread,
        )

    return ask.estimated(power_at, _ASSUMED)


def _release(
    totals: GroupTotals,
    shares: Shares,
    priced: Priced,
    public_sizes: Sequence[int] | None,
    bounds: tuple[float, float],
    bits: BitSource | None,
    question: str,
    ask: Ask,
) -> Release[Verdict]:
    source = bits or system_bits()
    noisy = totals.release(shares, public_sizes=public_sizes, bits=source)
    verdict = Verdict(
        test="one-way ANOVA",
        statistic=float(_spread_of_means(noisy.means, _weights(noisy))),
        p_value=float(anova_p_values(noisy, bits=source)),
    )
    return released(
        verdict,
        question=question,
        method="discrete Laplace sums, noise in the reference",
        priced=priced,
        interval=None,
        ask=ask,
        private=source.private,
        level=ASYMPTOTIC,
        terms=group_terms(bounds, public_sizes, shares),
        adjacency=shares.adjacency,
        breakdown=shares.breakdown(),
        citations=_CITATIONS,
    )
