"""Do two numbers go together? Kendall's rank correlation, which needs no bounds and no guess of any spread."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from expost.core import Adjacency, InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.column import checked_rows, measured, named, pair_of, public_rows
from expost.stats.hypothesis.planned import chance_of, correlation_of, rows_of, strength_of
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest, under_noise
from expost.stats.hypothesis.reference import noisy_normal_quantile, noisy_normal_tail
from expost.stats.hypothesis.score_law import MOST_EXACT, null_deviation, score_tail
from expost.stats.hypothesis.verdict import ASYMPTOTIC, PROVED, Alternative, Verdict, alternative_of, released

__all__ = ["CorrelationTest", "correlation_power", "correlation_test"]

_FEWEST, _MOST = 3, 1 << 25  # of more rows the four roundings of SciPy's ratio could reach half a pair
_CITATIONS = ("Ken38, Sections 4 and 5", "GRS09, Definition 2", "docs/proofs/noisy-reference.md")


class CorrelationTest(PricedTest):
    """Tests whether two numeric columns are independent, against a monotone relation.

    The score is the number of pairs of rows that both columns order alike, minus the pairs they order oppositely; ties
    are broken at random, so they count 0 on average. Divided by the number of pairs it is Kendall's tau.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: 2 (rows - 1): a row is in rows - 1 pairs, each counted from -1 to 1; what breaks the ties of a row is
        drawn for that row.
    Accuracy: under independence the law of the score is free of the columns' distributions, ties included: up to 100
        rows P(p-value <= level) <= level, proved; of more, by a normal tail with continuity correction.
    Numerics: exact integer score and noise; the p-value is post-processing in floats.
    Reference: Ken38, Sections 4 and 5 (law of the score); GRS09, Definition 2 (noise); docs/proofs/noisy-reference.md.

    >>> CorrelationTest("distance", "arr_delay", epsilon=1).question
    'rank correlation: distance with arr_delay, two-sided'
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
        level: object = 0.05,
        max_epsilon: object = None,
        confidence: object = 0.95,
    ) -> None:
        self._columns = named(first, second)
        self._alternative = alternative_of(alternative)
        self._failure = 1 - probability(confidence, "confidence")
        self._effect = effect
        super().__init__(Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon))
        self._rows = 0

    @property
    def question(self) -> str:
        return f"rank correlation: {self._columns[0]} with {self._columns[1]}, {self._alternative}"

    def check(self, dataset: Dataset) -> None:
        for column in self._columns:
            if not dataset.schema.kind(column).is_number:
                raise InvalidRequest("Expected a numeric column", got=column, do="Name a column of numbers")
        self._rows = checked_rows(public_rows(dataset), fewest=_FEWEST, most=_MOST)
        self._priced = _price(self._ask, self._rows, self._effect, self._alternative)

    def measure(self, dataset: Dataset) -> Sealed:
        parts = [[measured(batch, c) for c in self._columns] for batch in dataset.batches(list(set(self._columns)))]
        x, y = (np.concatenate([np.empty(0), *(part[place] for part in parts)]) for place in (0, 1))
        return measure_score(x, y, rows=self._rows)

    def noisy(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """The numbers that are released; all that follows is post-processing."""
        return under_noise(sealed, self._priced.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Verdict]:
        return _release(
            sealed, self._rows, self._priced, self._alternative, self._failure, bits, self.question, self._ask
        )


def correlation_test(
    x: Any,
    y: Any,
    *,
    alternative: Alternative = "two-sided",
    epsilon: object = None,
    power: object = None,
    effect: float | None = None,
    level: object = 0.05,
    max_epsilon: object = None,
    confidence: object = 0.95,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on two arrays of equal length, which is public; the estimate and the interval are of tau.

    ``power=`` with ``effect`` (a linear correlation of normal pairs) prices the test.

    >>> from expost.noise import SeededBits
    >>> x = np.linspace(0, 1, 500)
    >>> release = correlation_test(x, x + np.sin(50 * x), epsilon=0.5, bits=SeededBits(1))
    >>> release.value.rejects(0.01), 0 < release.value.estimate < 1
    (True, True)
    """
    first, second = pair_of(x, y)
    rows, direction = checked_rows(len(first), fewest=_FEWEST, most=_MOST), alternative_of(alternative)
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    priced = _price(ask, rows, effect, direction)
    failure = 1 - probability(confidence, "confidence")
    source = bits or system_bits()
    sealed = measure_score(first, second, rows=rows, bits=source)
    return _release(sealed, rows, priced, direction, failure, source, f"rank correlation, {direction}", ask)


def correlation_power(
    rows: int, effect: float, *, epsilon: float, level: float = 0.05, alternative: Alternative = "two-sided"
) -> float:
    """The power for normal pairs of linear correlation ``effect``; good to about 0.02.

    Tau is then 2 asin(effect) / pi, and its variance known (Ken38 with Esscher's formula for normal pairs).

    >>> round(correlation_power(500, 0.2, epsilon=0.5), 2)
    0.93
    """
    slope, count, direction = correlation_of(effect), rows_of(rows, fewest=3), alternative_of(alternative)
    pairs = count * (count - 1) / 2
    angle, half = 2 * math.asin(slope) / math.pi, 2 * math.asin(slope / 2) / math.pi
    variance = 2 / (count * (count - 1)) * (1 - angle**2 + 2 * (count - 2) * (1 / 9 - half**2))
    scale = 2 * (count - 1) / strength_of(epsilon)
    tail = chance_of(level) / (2 if direction == "two-sided" else 1)
    critical = noisy_normal_quantile(tail, null_deviation(count), [scale]) + 1
    shift = {"two-sided": abs(angle), "greater": angle, "less": -angle}[direction] * pairs
    deviation = math.sqrt(variance) * pairs
    power = noisy_normal_tail(critical - shift, deviation, [scale])
    if direction == "two-sided":
        power = power + noisy_normal_tail(critical + shift, deviation, [scale])
    return float(np.clip(power, 0.0, 1.0))


def correlation_p_values(
    scores: Any, rows: int, *, epsilon: float, alternative: Alternative = "two-sided"
) -> NDArray[np.float64]:
    """P-values of released scores, one for each; the law is symmetric."""
    scale, seen = 2 * (rows - 1) / epsilon, np.asarray(scores, np.float64)
    if alternative == "two-sided":
        return np.minimum(2 * score_tail(np.abs(seen), rows, scale), 1.0)
    return score_tail(seen if alternative == "greater" else -seen, rows, scale)


def measure_score(
    x: NDArray[np.float64], y: NDArray[np.float64], *, rows: int, bits: BitSource | None = None
) -> Sealed:
    """Kendall's score, sealed; NaN counts as the smallest number.

    Counted in n log n steps; the score is a whole number below 2^49, so that SciPy's ratio, divided and multiplied twice
    with a relative error of 2^-53 each time, gives it back exactly.
    """
    pairs = np.zeros((2, rows))  # a table that is longer or shorter than declared must not widen the sensitivity
    for place, column in enumerate((x, y)):
        kept = column[:rows]
        pairs[place, : len(kept)] = np.nan_to_num(kept, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    source = bits or system_bits()
    exact = np.array([_score(*(_places(column, source) for column in pairs))])
    return Sealed(exact, Sensitivity(2 * (rows - 1), Norm.L1, Adjacency.REPLACE_ONE))


def _score(first: NDArray[np.intp], second: NDArray[np.intp]) -> int:
    total = len(first) * (len(first) - 1) // 2
    untied = [total - sum(count * (count - 1) // 2 for count in np.bincount(r).tolist()) for r in (first, second)]
    if 0 in untied:
        return 0
    # Tau-b divides the score by the root of the numbers of pairs untied in each column.
    tau = float(stats.kendalltau(first, second, method="asymptotic").statistic)
    return round(tau * math.sqrt(untied[0]) * math.sqrt(untied[1]))


def _places(values: NDArray[np.float64], bits: BitSource) -> NDArray[np.intp]:
    """The place of each row when they are sorted; equal values by a random number drawn for the row."""
    order = np.argsort(values, kind="stable")
    if (values[order[1:]] == values[order[:-1]]).any():
        order = np.lexsort((bits.words(len(values)), values))
    places = np.empty(len(values), np.intp)
    places[order] = np.arange(len(values))
    return places


def _price(ask: Ask, rows: int, effect: float | None, alternative: Alternative) -> Priced:
    if ask.fixed is not None:
        return ask.fixed
    if effect is None:
        raise InvalidRequest("Expected the correlation at which the power is asked", do="Pass effect=")

    def power_at(epsilon: float) -> float:
        return correlation_power(rows, effect, epsilon=epsilon, level=float(ask.level), alternative=alternative)

    return ask.estimated(power_at, "estimated, if the pairs are normal")


def _release(
    sealed: Sealed,
    rows: int,
    priced: Priced,
    alternative: Alternative,
    failure: Fraction,
    bits: BitSource | None,
    question: str,
    ask: Ask,
) -> Release[Verdict]:
    source, epsilon = bits or system_bits(), priced.epsilon
    score = int(under_noise(sealed, epsilon, source)[0])
    pairs = rows * (rows - 1) / 2
    tau = min(max(score / pairs, -1.0), 1.0)
    verdict = Verdict(
        test="rank correlation",
        statistic=float(score),
        p_value=float(correlation_p_values(score, rows, epsilon=float(epsilon), alternative=alternative)),
        estimate=tau,
        alternative=alternative,
    )
    return released(
        verdict,
        question=question,
        method="discrete Laplace on Kendall's score, noise in the reference",
        priced=priced,
        interval=_interval(score / pairs, rows, float(epsilon), float(failure), alternative),
        ask=ask,
        private=source.private,
        level=PROVED if rows <= MOST_EXACT else ASYMPTOTIC,
        terms={"rows": rows, "confidence of the interval": 1 - failure},
        citations=_CITATIONS,
    )


def _interval(tau: float, rows: int, epsilon: float, failure: float, alternative: Alternative) -> tuple[float, float]:
    """An interval for tau from the largest variance its estimate can have, 2 (1 - tau^2) / rows (Ken38)."""
    tail = failure if alternative != "two-sided" else failure / 2
    reach = noisy_normal_quantile(tail, math.sqrt(2 / rows), [4 / (rows * epsilon)])
    low = -1.0 if alternative == "less" else min(max(tau - reach, -1.0), 1.0)
    high = 1.0 if alternative == "greater" else max(min(tau + reach, 1.0), -1.0)
    return low, high
