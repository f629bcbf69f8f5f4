"""Do several groups have the same law? The Kruskal-Wallis test with absolute values, which needs no bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from expost.core import Adjacency, InvalidRequest, Release
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, SeededBits, sample_laplace, system_bits
from expost.stats.hypothesis.hypothesis_input import (
    Number,
    check_categories,
    check_column_names,
    check_numeric_column,
    read_flag,
    read_floats,
    read_group_sizes,
    read_power_epsilon,
)
from expost.stats.hypothesis.hypothesis_plan import (
    ASYMPTOTIC,
    PROVED,
    HypothesisQuery,
    HypothesisVerdict,
    hypothesis_power,
    hypothesis_query,
    hypothesis_test,
    take_terms,
)
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice
from expost.stats.hypothesis.mann_whitney import read_sample_places, sum_ranks
from expost.stats.hypothesis.private_sample import read_samples
from expost.stats.hypothesis.rank_rows import RankedRows, RankPlan, TableProtection, check_places, read_places
from expost.stats.hypothesis.reference_law import sample_laplaces, sample_normals

__all__ = ["KruskalWallisTest", "kruskal_wallis_power", "kruskal_wallis_test"]

Floats = NDArray[np.float64]

_DRAWN = 1 << 22  # ranks drawn for one reference
_FEWEST_DRAWS, _MOST_DRAWS = 999, 9_999
_MOST_EXACT = _DRAWN // _FEWEST_DRAWS  # rows up to which the reference is drawn from uniform orders
_POWER_DRAWS = 4_000
_ASSUMED = "estimated, if values are normal and the groups have the sizes supposed"
_CITATIONS = ("KW52", "CKSBG19", "GRS09, Definition 2", "BC91, Section 2", "docs/proofs/rank-tests.md")


@hypothesis_query
class KruskalWallisTest(HypothesisQuery):
    """Tests whether a numeric column has the same law in all groups, against larger values in some of them.

    For each group, the pairs with rows of other groups in which its row is larger are counted, minus those in which it
    is smaller. The score is the sum of the absolute values; its reference is drawn with the noise inside. It needs no
    bounds, and outliers do not matter. Ties are broken at random. Rows with a missing value are left out; where the sizes
    are public, rows of random rank take their place, as they do where groups have fewer rows than supposed.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. Where the sizes are neither public nor guessed, 15 % of it are spent on them.
    Adjacency: as the dataset's. If the unit is an id, one row of each id is used, chosen at random.
    Sensitivity: with n rows compared: 4 (n - smallest group) under add-remove, and where no row can change its group;
        under replace-one with private groups the larger of 4 n and 8 (n - both smallest groups).
    Accuracy: P(p-value <= level) <= level if all groups have the same law, whatever it is, ties, missing values and
        wrong guesses of the sizes included: proved for up to 4,198 rows; beyond, rank sums are drawn from their normal
        limit. Groups of equal middle but different spread do not have the same law.
    Numerics: exact integer score and noise; the p-value is post-processing.
    Reference: KW52 (ranks of several groups); CKSBG19 (absolute values); GRS09, Definition 2 (noise); BC91, Section 2
        (drawn reference); docs/proofs/rank-tests.md.

    Parameters
    ----------
    value : str
        The numeric column.
    by : str
        The column that holds the groups; its categories must be declared in the dataset.
    effect : sequence of float, optional
        The means of the groups, in standard deviations of normal values, at which the power is needed. Required with
        ``power``.
    expected_sizes : sequence of int, optional
        A public guess of the number of rows of each group. This many rows are compared: further ones are left out at
        random. Required with ``power``.

    Examples
    --------
    >>> KruskalWallisTest("delay", by="origin", epsilon=1).question
    'Kruskal-Wallis: delay by origin'
    """

    value: str
    _: KW_ONLY
    by: str
    epsilon: Number | None = None
    power: Number | None = None
    effect: Sequence[float] | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    expected_sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_column_names(self.value, self.by)
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"Kruskal-Wallis: {self.value} by {self.by}"

    def _plan_for_dataset(self, dataset: Dataset) -> KruskalWallisPlan:
        check_numeric_column(dataset, self.value)
        groups = check_categories(dataset, self.by)
        places = read_places(dataset, self.by, groups, self.expected_sizes)
        return self._plan_for_places(TableProtection.of_dataset(dataset), groups, places, self.question, fixed=False)

    def _plan_for_places(
        self,
        protection: TableProtection,
        groups: tuple[Any, ...],
        places: tuple[int, ...] | None,
        question: str,
        *,
        fixed: bool,
    ) -> KruskalWallisPlan:
        """Price the test for this many rows in each group."""
        return KruskalWallisPlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(protection, places, fixed),
            protection=protection,
            places=places,
            fixed=fixed,
            value=self.value,
            by=self.by,
            groups=groups,
        )

    def _price_power(self, protection: TableProtection, places: tuple[int, ...] | None, fixed: bool) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, effect = self._read_price_terms(), self.effect
        if effect is None or places is None:
            raise InvalidRequest(
                "Expected the mean of each group in deviations, and the sizes of private groups, together with power",
                do="Pass effect= and expected_sizes=",
            )

        def power_at(epsilon: float) -> float:
            return kruskal_wallis_power(
                places,
                effect,
                epsilon=epsilon,
                level=float(terms.level),
                public_sizes=fixed,
                adjacency=protection.adjacency,
            )

        return terms.price_estimated(power_at, _ASSUMED)


@dataclass(frozen=True, kw_only=True)
class KruskalWallisPlan(RankPlan):
    """A priced Kruskal-Wallis test."""

    value: str
    by: str
    groups: tuple[Any, ...]

    def measure(self, dataset: Dataset) -> RankedRows:
        """Read the values by group."""
        return RankedRows.of_dataset(dataset, [self.value], self.by, self.groups)

    def score(self, sealed: RankedRows, places: tuple[int, ...], bits: BitSource) -> int:
        return int(np.abs(sum_ranks(sealed.rank_groups(places, bits), len(places))).sum())

    def sensitivity(self, places: tuple[int, ...]) -> int:
        return spread_sensitivity(places, one_place=self.one_place)

    def climb(self, sealed: RankedRows, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        places, score = self.release_score(sealed, source)
        scale = self.sensitivity(places) / self.score_epsilon
        verdict = HypothesisVerdict(
            test="Kruskal-Wallis",
            statistic=float(score),
            p_value=float(rank_spread_p_values(np.array([score]), places, scale=scale, bits=source)[0]),
        )
        return self.release_verdict(
            verdict,
            method="discrete Laplace on absolute rank sums, noise in the reference",
            bits=source,
            level=PROVED if sum(places) <= _MOST_EXACT else ASYMPTOTIC,
            terms=self.rank_terms,
            adjacency=self.protection.adjacency,
            unit=self.protection.unit,
            breakdown=self.breakdown,
            citations=_CITATIONS,
        )


@hypothesis_test(KruskalWallisTest)
def kruskal_wallis_test(
    *groups: ArrayLike,
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Sequence[float] | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    expected_sizes: Sequence[int] | None = None,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether several samples have the same law, against larger values in some of them.

    Parameters
    ----------
    *groups : array-like of float
        The private samples, two or more. Under replace-one their sizes are public.
    expected_sizes : sequence of int, optional
        A public guess of the numbers of rows, for add-remove: this many rows are compared. Required there with
        ``power``.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> x, y, z = np.linspace(0, 6, 300), np.linspace(1, 7, 300), np.linspace(2, 8, 300)
    >>> kruskal_wallis_test(x, y, z, epsilon=1, bits=SeededBits(2)).value.rejects(0.01)
    True
    """
    terms = take_terms(KruskalWallisTest, locals())
    if len(groups) < 2:
        raise InvalidRequest("Expected at least two groups", got=len(groups), do="Pass one array per group")
    samples, protection = read_samples(groups, adjacency=adjacency), TableProtection(Adjacency.parse(adjacency))
    query = KruskalWallisTest("value", by="group", **terms)
    places = read_sample_places(samples, protection, expected_sizes)
    known = protection.adjacency.public_size
    plan = query._plan_for_places(protection, tuple(range(len(groups))), places, "Kruskal-Wallis", fixed=known)
    return plan.climb(RankedRows.of_samples(samples), bits)


@hypothesis_power
def kruskal_wallis_power(
    sizes: Sequence[int],
    means: Sequence[float],
    *,
    epsilon: Number,
    level: Number = 0.05,
    public_sizes: bool = True,
    adjacency: str | Adjacency = "replace-one",
) -> float:
    """Estimate the power when the groups have these true means, for normal values of deviation 1.

    Drawn with fixed bits, so that it is the same each time. Good to about 0.02 if above a half.

    Parameters
    ----------
    means : sequence of float
        The true means of the groups in standard deviations.
    public_sizes : bool, default True
        Whether the sizes are public; if not, they are supposed to be given by ``expected_sizes``.

    Examples
    --------
    >>> kruskal_wallis_power([300] * 3, [0, 0.25, 0.5], epsilon=0.3) > 0.9
    True
    """
    places, given = check_places(read_group_sizes(sizes)), read_floats(means)
    if given.shape != (len(places),) or not np.isfinite(given).all():
        raise InvalidRequest("Expected the mean of each group", do="Pass one finite number for each size")
    one_place = read_flag(public_sizes, "public_sizes") or not Adjacency.parse(adjacency).public_size
    scale = spread_sensitivity(places, one_place=one_place) / read_power_epsilon(epsilon)
    bits, count = SeededBits(0), np.array(places, np.float64)  # common random numbers: smooth in epsilon
    null, drawn = (draw_rank_sums(places, _POWER_DRAWS, bits, exact=False) for _ in range(2))
    noise = scale * sample_laplaces((2, _POWER_DRAWS), bits)
    tail = float(probability(level, "level"))
    critical = np.quantile(np.abs(null).sum(-1) + noise[0], 1 - tail)
    # The rank sums of normal values about their means; the spread is taken to be that of equal laws.
    with np.errstate(over="ignore"):
        above = 2 * special.ndtr((given[:, None] - given) / math.sqrt(2)) - 1
    shift = count * (above @ count)
    return float((np.abs(drawn + shift).sum(-1) + noise[1] > critical).mean())


def spread_sensitivity(places: Sequence[int], *, one_place: bool) -> int:
    """Return how far one unit moves the sum of absolute rank sums (docs/proofs/rank-tests.md).

    >>> spread_sensitivity((3, 4, 5), one_place=True), spread_sensitivity((3, 4, 5), one_place=False)
    (36, 48)
    """
    rows, (least, second, *_) = sum(places), sorted(places)
    return 4 * (rows - least) if one_place else max(4 * rows, 8 * (rows - least - second))


def rank_spread_p_values(
    scores: Any, places: Sequence[int], *, scale: Fraction, draws: int | None = None, bits: BitSource | None = None
) -> Floats:
    """Return p-values of released scores, one for each: (1 + draws at least as large) / (1 + draws)."""
    source, rows = bits or system_bits(), sum(places)
    count = draws or int(np.clip(_DRAWN // rows, _FEWEST_DRAWS, _MOST_DRAWS))
    sums = draw_rank_sums(places, count, source, exact=rows <= _MOST_EXACT)
    null = np.sort(np.abs(sums).sum(-1) + np.asarray(sample_laplace(scale, count, bits=source), np.float64))
    larger = count - np.searchsorted(null, np.asarray(scores, np.float64), side="left")
    return np.asarray((1 + larger) / (1 + count), np.float64)


def draw_rank_sums(places: Sequence[int], draws: int, bits: BitSource, *, exact: bool) -> Floats:
    """Draw the signed rank sums of groups of equal law: from uniform orders, or from their normal limit.

    The sums have mean 0 and the covariance (n + 1) / 3 (n diag(m) - m m'), with m the sizes and n their sum (KW52).
    """
    count, rows = np.array(places, np.float64), sum(places)
    if exact:
        orders = np.argsort(bits.words(draws * rows).reshape(draws, rows), axis=1)
        starts = np.cumsum([0, *places[:-1]])
        return np.asarray(np.add.reduceat(2.0 * orders - (rows - 1), starts, axis=1))
    parts = np.sqrt(count) * sample_normals((draws, len(places)), bits)
    centered: Floats = parts - count * parts.sum(-1, keepdims=True) / rows
    return math.sqrt(rows * (rows + 1) / 3) * centered
