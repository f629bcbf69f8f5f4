"""Do values of one group tend to be larger than those of another? The Mann-Whitney test, which needs no bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import Adjacency, InvalidRequest, Release
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.hypothesis_input import (
    Alternative,
    Number,
    check_column_names,
    check_numeric_column,
    read_alternative,
    read_finite,
    read_flag,
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
from expost.stats.hypothesis.private_sample import read_samples
from expost.stats.hypothesis.rank_rows import RankedRows, RankPlan, TableProtection, check_places, read_places
from expost.stats.hypothesis.reference_law import (
    critical_score,
    noisy_normal_power,
    noisy_normal_quantile,
    noisy_normal_tail,
    noisy_score_tail,
)

__all__ = ["MannWhitneyTest", "mann_whitney_power", "mann_whitney_test"]

Floats = NDArray[np.float64]

_MOST_EXACT = 10_000  # pairs up to which the law of the score is summed exactly
_RAISED = 0.36  # over the smaller size: ranks have a lower peak than the normal law, so more mass at one deviation
_ASSUMED = "estimated, if values are normal and the groups have the sizes supposed"
_CITATIONS = ("MW47", "CKSBG19", "GRS09, Definition 2", "docs/proofs/rank-tests.md")


@hypothesis_query
class MannWhitneyTest(HypothesisQuery):
    """Tests whether a numeric column has the same law in two groups, against larger values in one of them.

    The score is the number of pairs in which the row of the first group is larger, minus the pairs in which it is
    smaller. It needs no bounds, and outliers do not matter. Ties are broken at random. Rows with a missing value are left
    out; where the sizes are public, rows of random rank take their place, as they do where groups have fewer rows than
    supposed.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. Where the sizes are neither public nor guessed, 15 % of it are spent on them.
    Adjacency: as the dataset's. If the unit is an id, one row of each id is used, chosen at random.
    Sensitivity: with m and n rows compared: 2 max(m, n) under add-remove, and where no row can change its group;
        2 (m + n - 1) under replace-one with private groups.
    Accuracy: P(p-value <= level) <= level if both groups have the same law, whatever it is, ties, missing values and
        wrong guesses of the sizes included: proved for up to 10,000 pairs; beyond, by a normal tail that is raised
        above the exact one. Groups of equal middle but different spread do not have the same law.
    Numerics: exact integer score and noise; the p-value is post-processing in floats.
    Reference: MW47 (law of the score); CKSBG19 (noise on the score); GRS09, Definition 2; docs/proofs/rank-tests.md.

    Parameters
    ----------
    value : str
        The numeric column.
    by : str
        The column that holds the groups.
    groups : pair of bool, int, float or str
        The two values of ``by`` that are compared.
    alternative : {"two-sided", "greater", "less"}, default "two-sided"
        The alternative hypothesis about the values of the first group.
    effect : float, optional
        The difference of means, in standard deviations of normal values, at which the power is needed. Required with
        ``power``.
    expected_sizes : pair of int, optional
        A public guess of the numbers of rows of both groups. This many rows are compared: further ones are left out at
        random. Required with ``power``.

    Examples
    --------
    >>> MannWhitneyTest("delay", by="origin", groups=("EWR", "JFK"), epsilon=1).question
    "Mann-Whitney: delay by origin, 'EWR' against 'JFK', two-sided"
    """

    value: str
    _: KW_ONLY
    by: str
    groups: Sequence[Any]
    alternative: Alternative = "two-sided"
    epsilon: Number | None = None
    power: Number | None = None
    effect: Number | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    confidence: Number = 0.95
    expected_sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.groups, tuple | list) or len(self.groups) != 2 or self.groups[0] == self.groups[1]:
            raise InvalidRequest("Expected two different groups", do="Pass groups=(first, second)")
        check_column_names(self.value, self.by)
        read_alternative(self.alternative)
        probability(self.confidence, "confidence")
        self._read_price_terms()

    @property
    def question(self) -> str:
        first, second = self.groups
        return f"Mann-Whitney: {self.value} by {self.by}, {first!r} against {second!r}, {self.alternative}"

    def _plan_for_dataset(self, dataset: Dataset) -> MannWhitneyPlan:
        check_numeric_column(dataset, self.value)
        places = read_places(dataset, self.by, self.groups, self.expected_sizes)
        return self._plan_for_places(TableProtection.of_dataset(dataset), places, self.question, fixed=False)

    def _plan_for_places(
        self, protection: TableProtection, places: tuple[int, ...] | None, question: str, *, fixed: bool
    ) -> MannWhitneyPlan:
        """Price the test for this many rows in each group."""
        return MannWhitneyPlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(protection, places, fixed),
            protection=protection,
            places=places,
            fixed=fixed,
            value=self.value,
            by=self.by,
            groups=tuple(self.groups),
            alternative=self.alternative,
            failure=1 - probability(self.confidence, "confidence"),
        )

    def _price_power(self, protection: TableProtection, places: tuple[int, ...] | None, fixed: bool) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, effect = self._read_price_terms(), self.effect
        if effect is None or places is None:
            raise InvalidRequest(
                "Expected a difference in deviations, and the sizes of private groups, together with power",
                do="Pass effect= and expected_sizes=",
            )

        away = abs(read_finite(effect, "effect")) * (-1 if self.alternative == "less" else 1)

        def power_at(epsilon: float) -> float:
            return mann_whitney_power(
                places,
                away,
                epsilon=epsilon,
                level=float(terms.level),
                alternative=self.alternative,
                public_sizes=fixed,
                adjacency=protection.adjacency,
            )

        return terms.price_estimated(power_at, _ASSUMED)


@dataclass(frozen=True, kw_only=True)
class MannWhitneyPlan(RankPlan):
    """A priced Mann-Whitney test."""

    value: str
    by: str
    groups: tuple[Any, ...]
    alternative: Alternative
    failure: Fraction

    def measure(self, dataset: Dataset) -> RankedRows:
        """Read the values by group."""
        return RankedRows.of_dataset(dataset, [self.value], self.by, self.groups)

    def score(self, sealed: RankedRows, places: tuple[int, ...], bits: BitSource) -> int:
        return int(sum_ranks(sealed.rank_groups(places, bits), 2)[0])

    def sensitivity(self, places: tuple[int, ...]) -> int:
        return score_sensitivity(places, one_place=self.one_place)

    def climb(self, sealed: RankedRows, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        places, score = self.release_score(sealed, source)
        scale, pairs = self.sensitivity(places) / float(self.score_epsilon), math.prod(places)
        share = (1 + score / pairs) / 2
        verdict = HypothesisVerdict(
            test="Mann-Whitney",
            statistic=float(score),
            p_value=float(rank_sum_p_values(score, places, scale=scale, alternative=self.alternative)),
            estimate=min(max(share, 0.0), 1.0),
            alternative=self.alternative,
        )
        return self.release_verdict(
            verdict,
            method="discrete Laplace on the rank sum, noise in the reference",
            interval=self._interval_around(share, places, scale / (2 * pairs)) if self.fixed else None,
            bits=source,
            level=PROVED if pairs <= _MOST_EXACT else ASYMPTOTIC,
            terms={**self.rank_terms, "confidence of the interval": 1 - self.failure},
            adjacency=self.protection.adjacency,
            unit=self.protection.unit,
            breakdown=self.breakdown,
            citations=_CITATIONS,
        )

    def _interval_around(self, share: float, places: tuple[int, ...], scale: float) -> tuple[float, float]:
        """Compute the interval; the variance of the share is at most 1 / (4 min(m, n)), see the proof."""
        tail = float(self.failure) / (2 if self.alternative == "two-sided" else 1)
        reach = noisy_normal_quantile(tail, 0.5 / math.sqrt(min(places)), [scale])
        low = 0.0 if self.alternative == "less" else min(max(share - reach, 0.0), 1.0)
        high = 1.0 if self.alternative == "greater" else max(min(share + reach, 1.0), 0.0)
        return low, high


@hypothesis_test(MannWhitneyTest)
def mann_whitney_test(
    first: Any,
    second: Any,
    *,
    alternative: Alternative = "two-sided",
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Number | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    confidence: Number = 0.95,
    expected_sizes: Sequence[int] | None = None,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether two samples have the same law, against larger values in one of them.

    The estimate is the probability that a value of the first sample is larger than one of the second, ties counting a
    half. Under replace-one the sizes are public, and an interval is given.

    Parameters
    ----------
    first, second : array-like of float
        The private samples.
    expected_sizes : pair of int, optional
        A public guess of the numbers of rows, for add-remove: this many rows are compared. Required there with
        ``power``.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> x, y = np.linspace(0, 6, 300), np.linspace(2, 8, 300)
    >>> release = mann_whitney_test(x, y, epsilon=0.5, bits=SeededBits(2))
    >>> release.value.rejects(0.01), 0.1 < release.value.estimate < 0.4
    (True, True)
    """
    terms = take_terms(MannWhitneyTest, locals())
    query = MannWhitneyTest("value", by="group", groups=("first", "second"), **terms)
    samples = read_samples([first, second], adjacency=adjacency)
    protection = TableProtection(Adjacency.parse(adjacency))
    places = read_sample_places(samples, protection, expected_sizes)
    plan = query._plan_for_places(
        protection, places, f"Mann-Whitney, {alternative}", fixed=protection.adjacency.public_size
    )
    return plan.climb(RankedRows.of_samples(samples), bits)


@hypothesis_power
def mann_whitney_power(
    sizes: Sequence[int],
    effect: Number,
    *,
    epsilon: Number,
    level: Number = 0.05,
    alternative: Alternative = "two-sided",
    public_sizes: bool = True,
    adjacency: str | Adjacency = "replace-one",
) -> float:
    """Compute the power for normal values of one deviation, good to about 0.02.

    Parameters
    ----------
    effect : float
        The true difference of means in standard deviations, first minus second.
    public_sizes : bool, default True
        Whether the sizes are public; if not, they are supposed to be given by ``expected_sizes``.

    Examples
    --------
    >>> round(mann_whitney_power((500, 500), 0.5, epsilon=0.1), 2)
    0.98
    """
    places = check_places(read_group_sizes(sizes, groups=2))
    direction, away = read_alternative(alternative), float(np.clip(read_finite(effect, "effect"), -100, 100))
    one_place = read_flag(public_sizes, "public_sizes") or not Adjacency.parse(adjacency).public_size
    scale = score_sensitivity(places, one_place=one_place) / read_power_epsilon(epsilon)
    tail = float(probability(level, "level")) / (2 if direction == "two-sided" else 1)
    critical = critical_score(lambda z: rank_sum_tail(z, places, scale), tail) - 1
    # For normal values: P(x > y), and P(x > y, x > y') from the bivariate normal law of correlation 1/2.
    share = float(special.ndtr(away / math.sqrt(2)))
    both = share - 2 * float(special.owens_t(away / math.sqrt(2), math.sqrt(1 / 3)))
    first, second = places
    variance = first * second * (share * (1 - share) + (first + second - 2) * (both - share**2))
    shift = first * second * (2 * share - 1)
    return noisy_normal_power(critical, shift, 2 * math.sqrt(max(variance, 0.25)), [scale], direction)


def read_sample_places(
    samples: Sequence[Floats], protection: TableProtection, expected_sizes: object
) -> tuple[int, ...] | None:
    """Return how many rows of each array are ranked: all where sizes are public, else as many as guessed."""
    if protection.adjacency.public_size:
        return check_places([len(sample) for sample in samples])
    if expected_sizes is None:
        return None
    return check_places(read_group_sizes(expected_sizes, groups=len(samples)))


def sum_ranks(ranked: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return for each group the pairs in which its row is larger minus those in which it is smaller, over other groups.

    >>> sum_ranks(np.array([0, 0, 1, 0]), 2).tolist()
    [-1, 1]
    """
    # Twice the distance of each rank from the middle one: pairs within a group cancel. Exact: sums are below 2^53.
    away = 2 * np.arange(len(ranked), dtype=np.float64) - (len(ranked) - 1)
    return np.rint(np.bincount(ranked, weights=away, minlength=groups)).astype(np.int64)


def score_sensitivity(places: Sequence[int], *, one_place: bool) -> int:
    """Return how far one unit moves the score (docs/proofs/rank-tests.md)."""
    return 2 * max(places) if one_place else 2 * (sum(places) - 1)


def rank_sum_p_values(scores: Any, places: Sequence[int], *, scale: float, alternative: Alternative) -> Floats:
    """Return p-values of released scores, one for each; the law is symmetric."""
    seen = np.asarray(scores, np.float64)
    if alternative == "two-sided":
        return np.minimum(2 * rank_sum_tail(np.abs(seen), places, scale), 1.0)
    return rank_sum_tail(seen if alternative == "greater" else -seen, places, scale)


def rank_sum_tail(at: Any, places: Sequence[int], scale: float) -> Floats:
    """Return P(score + noise >= at) for discrete Laplace noise of this scale; ``at`` are whole numbers."""
    first, second = sorted(places)
    if first * second <= _MOST_EXACT:
        return noisy_score_tail(at, rank_sum_masses(first, second), scale)
    deviation = math.sqrt(first * second * (first + second + 1) / 3)
    normal = noisy_normal_tail(np.asarray(at, np.float64) - 1, deviation, [scale])
    return np.minimum((1 + _RAISED / first) * normal, 1.0)


@lru_cache(maxsize=16)
def rank_sum_masses(first: int, second: int) -> Floats:
    """Return the probabilities of the scores -m n, ... in steps of 2, for a uniform order of m + n rows (MW47).

    The largest of a + b rows is one of the a with probability a / (a + b), and then beats all b.

    >>> (6 * rank_sum_masses(2, 2)).round(9).tolist()
    [1.0, 1.0, 2.0, 1.0, 1.0]
    """
    rows = [np.ones(1) for _ in range(second + 1)]  # laws for a rows of the first group and 0, 1, ... of the second
    for a in range(1, first + 1):
        rows[0] = np.ones(1)
        for b in range(1, second + 1):
            law = np.zeros(a * b + 1)
            law[b:] = a / (a + b) * rows[b]
            law[: a * (b - 1) + 1] += b / (a + b) * rows[b - 1]
            rows[b] = law
    return rows[second]
