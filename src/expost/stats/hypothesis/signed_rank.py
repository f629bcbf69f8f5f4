"""Are paired differences symmetric about zero? Wilcoxon's signed-rank test, which needs no bounds."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
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
    read_power_epsilon,
    read_row_count,
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
from expost.stats.hypothesis.private_sample import read_private_pair
from expost.stats.hypothesis.rank_rows import MOST_PLACES, RankedRows, RankPlan, TableProtection, subtract_numbers
from expost.stats.hypothesis.reference_law import (
    critical_score,
    noisy_normal_power,
    noisy_normal_tail,
    noisy_score_tail,
)

__all__ = ["SignedRankTest", "signed_rank_power", "signed_rank_test"]

Floats = NDArray[np.float64]

_MOST_EXACT = 300  # pairs up to which the law of the score is summed exactly
_RAISED = 0.6  # over the number of rows: ranks have a lower peak than the normal law, so more mass at one deviation
_ASSUMED = "estimated, if differences are normal and their number is as supposed"
_CITATIONS = ("Wil45", "CKSBG19", "GRS09, Definition 2", "docs/proofs/rank-tests.md")


@hypothesis_query
class SignedRankTest(HypothesisQuery):
    """Tests whether the differences of two numeric columns are symmetric about zero, against a shift.

    Rows are ranked by the size of their difference; the score is the sum of the ranks of positive differences minus those
    of negative ones. It needs no bounds, and outliers do not matter. The sign of a zero is drawn, ties are broken at
    random. Where the number of rows is public, a row with a missing number gets a random rank and sign.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. Where the number of rows is neither public nor guessed, 15 % of it are spent on it.
    Adjacency: as the dataset's. If the unit is an id, one row of each id is used, chosen at random.
    Sensitivity: 2 n, n the number of rows that are ranked, under add-remove and replace-one.
    Accuracy: P(p-value <= level) <= level if the differences are independent and symmetric about zero, ties, zeros,
        missing numbers and a wrong guess of the number of rows included: proved for up to 300 rows; beyond, by a normal
        tail that is raised above the exact one.
    Numerics: exact integer score and noise; the p-value is post-processing in floats.
    Reference: Wil45 (law of the score); CKSBG19 (noise on the score); GRS09, Definition 2; docs/proofs/rank-tests.md.

    Parameters
    ----------
    first, second : str
        The numeric columns; differences are first minus second.
    effect : float, optional
        The mean difference, in standard deviations of normal differences, at which the power is needed. Required with
        ``power``.
    expected_rows : int, optional
        A public guess of the number of rows where it is private. This many rows are ranked: further ones are left out at
        random. Required there with ``power``.

    Examples
    --------
    >>> SignedRankTest("arr_delay", "dep_delay", epsilon=1).question
    'signed ranks: arr_delay minus dep_delay, two-sided'
    """

    first: str
    second: str
    _: KW_ONLY
    alternative: Alternative = "two-sided"
    epsilon: Number | None = None
    power: Number | None = None
    effect: Number | None = None
    level: Number = 0.05
    max_epsilon: Number | None = None
    expected_rows: int | None = None

    def __post_init__(self) -> None:
        check_column_names(self.first, self.second)
        read_alternative(self.alternative)
        self._read_price_terms()

    @property
    def question(self) -> str:
        return f"signed ranks: {self.first} minus {self.second}, {self.alternative}"

    def _plan_for_dataset(self, dataset: Dataset) -> SignedRankPlan:
        for column in (self.first, self.second):
            check_numeric_column(dataset, column)
        known = dataset.rows if dataset.adjacency.public_size and dataset.unit.is_row else None
        return self._plan_for_rows(TableProtection.of_dataset(dataset), known, self.question)

    def _plan_for_rows(self, protection: TableProtection, rows: int | None, question: str) -> SignedRankPlan:
        """Price the test for this many rows; None: their number is private."""
        given = self.expected_rows if rows is None else rows
        places = None if given is None else (read_row_count(given, "the number of rows", most=MOST_PLACES),)
        return SignedRankPlan(
            question=question,
            price=self._read_price_terms().fixed or self._price_power(places),
            protection=protection,
            places=places,
            columns=(self.first, self.second),
            alternative=self.alternative,
        )

    def _price_power(self, places: tuple[int, ...] | None) -> HypothesisPrice:
        """Find the smallest epsilon with the power asked for."""
        terms, effect = self._read_price_terms(), self.effect
        if effect is None or places is None:
            raise InvalidRequest(
                "Expected a difference in deviations, and a private number of rows, together with power",
                do="Pass effect= and expected_rows=",
            )

        away = abs(read_finite(effect, "effect")) * (-1 if self.alternative == "less" else 1)

        def power_at(epsilon: float) -> float:
            return signed_rank_power(
                places[0],
                away,
                epsilon=epsilon,
                level=float(terms.level),
                alternative=self.alternative,
            )

        return terms.price_estimated(power_at, _ASSUMED)


@dataclass(frozen=True, kw_only=True)
class SignedRankPlan(RankPlan):
    """A priced signed-rank test."""

    columns: tuple[str, str]
    alternative: Alternative

    @property
    def rank_terms(self) -> dict[str, object]:
        return {"rows": "private" if self.places is None else self.places[0]}

    def measure(self, dataset: Dataset) -> RankedRows:
        """Read the differences."""
        return RankedRows.of_dataset(dataset, self.columns, None, ())

    def score(self, sealed: RankedRows, places: tuple[int, ...], bits: BitSource) -> int:
        signs = 2 * sealed.rank_signs(places[0], bits) - 1
        return int(signs @ np.arange(1, len(signs) + 1))

    def sensitivity(self, places: tuple[int, ...]) -> int:
        return 2 * places[0]

    def climb(self, sealed: RankedRows, bits: BitSource | None) -> Release[HypothesisVerdict]:
        source = bits or system_bits()
        (rows,), score = self.release_score(sealed, source)
        scale = 2 * rows / float(self.score_epsilon)
        verdict = HypothesisVerdict(
            test="signed ranks",
            statistic=float(score),
            p_value=float(signed_rank_p_values(score, rows, scale=scale, alternative=self.alternative)),
            alternative=self.alternative,
        )
        return self.release_verdict(
            verdict,
            method="discrete Laplace on signed ranks, noise in the reference",
            bits=source,
            level=PROVED if rows <= _MOST_EXACT else ASYMPTOTIC,
            terms=self.rank_terms,
            adjacency=self.protection.adjacency,
            unit=self.protection.unit,
            breakdown=self.breakdown,
            citations=_CITATIONS,
        )


@hypothesis_test(SignedRankTest)
def signed_rank_test(
    x: Any,
    y: Any,
    *,
    alternative: Alternative = "two-sided",
    adjacency: str | Adjacency = "replace-one",
    epsilon: Number | None = None,
    power: Number | None = None,
    effect: Number | None = None,
    level: Number = 0.05,
    max_epsilon: Number | None = None,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[HypothesisVerdict]:
    """Test whether the differences x - y of pairs are symmetric about zero, against a shift.

    Parameters
    ----------
    x, y : array-like of float
        The private samples, one pair per person.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> before = np.sin(np.arange(400.0))
    >>> after = before + 0.3 + np.cos(np.arange(400.0))
    >>> signed_rank_test(after, before, epsilon=0.5, bits=SeededBits(2)).value.rejects(0.01)
    True
    """
    terms = take_terms(SignedRankTest, locals())
    query, protection = SignedRankTest("x", "y", **terms), TableProtection(Adjacency.parse(adjacency))
    first, second = read_private_pair(x, y)
    known = len(first) if protection.adjacency.public_size else None
    plan = query._plan_for_rows(protection, known, f"signed ranks, {alternative}")
    return plan.climb(RankedRows.of_samples([subtract_numbers(first, second)]), bits)


@hypothesis_power
def signed_rank_power(
    rows: int, effect: Number, *, epsilon: Number, level: Number = 0.05, alternative: Alternative = "two-sided"
) -> float:
    """Compute the power for normal differences, good to about 0.02.

    Parameters
    ----------
    effect : float
        The mean difference in standard deviations of the differences.

    Examples
    --------
    >>> round(signed_rank_power(500, 0.25, epsilon=0.3), 2)
    0.99
    """
    count, direction = read_row_count(rows, most=MOST_PLACES), read_alternative(alternative)
    away = float(np.clip(read_finite(effect, "effect"), -100, 100))
    scale = 2 * count / read_power_epsilon(epsilon)
    tail = float(probability(level, "level")) / (2 if direction == "two-sided" else 1)
    critical = critical_score(lambda z: signed_rank_tail(z, count, scale), tail) - 1
    # The positive sums x_i + x_j with i <= j are counted: chances of one, of a pair, and of two that share a row.
    one, pair = float(special.ndtr(away)), float(special.ndtr(math.sqrt(2) * away))
    shared = pair - 2 * float(special.owens_t(math.sqrt(2) * away, math.sqrt(1 / 3))) - pair**2
    own = (pair + one**2) / 2 - one * pair
    pairs = count * (count - 1)
    variance = count * one * (1 - one) + pairs * (pair * (1 - pair) / 2 + 2 * own + (count - 2) * shared)
    shift = count * (2 * one - 1) + pairs / 2 * (2 * pair - 1)
    return noisy_normal_power(critical, shift, 2 * math.sqrt(max(variance, 0.25)), [scale], direction)


def signed_rank_p_values(scores: Any, rows: int, *, scale: float, alternative: Alternative) -> Floats:
    """Return p-values of released scores, one for each; the law is symmetric."""
    seen = np.asarray(scores, np.float64)
    if alternative == "two-sided":
        return np.minimum(2 * signed_rank_tail(np.abs(seen), rows, scale), 1.0)
    return signed_rank_tail(seen if alternative == "greater" else -seen, rows, scale)


def signed_rank_tail(at: Any, rows: int, scale: float) -> Floats:
    """Return P(score + noise >= at) for discrete Laplace noise of this scale; ``at`` are whole numbers."""
    if rows <= _MOST_EXACT:
        return noisy_score_tail(at, signed_rank_masses(rows), scale)
    deviation = math.sqrt(rows * (rows + 1) * (2 * rows + 1) / 6)
    normal = noisy_normal_tail(np.asarray(at, np.float64) - 1, deviation, [scale])
    return np.minimum((1 + _RAISED / rows) * normal, 1.0)


@lru_cache(maxsize=16)
def signed_rank_masses(rows: int) -> Floats:
    """Return the probabilities of the scores -n (n + 1) / 2, ... in steps of 2, for fair signs (Wil45).

    >>> (8 * signed_rank_masses(3)).tolist()
    [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]
    """
    masses = np.ones(1)
    for rank in range(1, rows + 1):
        gap = np.zeros(rank)
        masses = (np.concatenate([masses, gap]) + np.concatenate([gap, masses])) / 2
    return masses
