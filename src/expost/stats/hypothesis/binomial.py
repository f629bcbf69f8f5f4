"""Is a proportion what it is said to be? The optimal private test, with an exact p-value and interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from expost.core import InvalidRequest, Norm, Release, Sealed, Sensitivity
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.column import check_values, matches, named, truths
from expost.stats.hypothesis.draw import uniforms
from expost.stats.hypothesis.planned import chance_of, rows_of, strength_of
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest, under_noise
from expost.stats.hypothesis.proportion import private_interval, private_p_value, private_power, private_power_bound
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.tulap import noisy_binomial_p_values, noisy_binomial_tail
from expost.stats.hypothesis.verdict import PROVED, Alternative, Verdict, alternative_of, released

__all__ = ["BinomialTest", "binomial_power", "binomial_test"]

_CITATIONS = ("AS18, Theorem 5.2", "AS20, Section 6", "GRS09, Definition 2")
_MOST_PRIVATE_ROWS = 1 << 26  # whose logarithms of factorials are kept
_PRIVATE_SIZE_CITATIONS = ("BB94, Lemma 1", "GRS09, Definition 2", "docs/proofs/noisy-reference.md")


class BinomialTest(PricedTest):
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

    >>> BinomialTest("late", equals=True, null=0.2, epsilon=0.5).question
    'binomial test: share of rows with late = True, null 0.2, two-sided'
    """

    def __init__(
        self,
        column: str,
        *,
        equals: Any,
        null: object,
        alternative: Alternative = "two-sided",
        epsilon: object = None,
        power: object = None,
        effect: object = None,
        level: object = 0.05,
        max_epsilon: object = None,
        confidence: object = 0.95,
        expected_rows: int | None = None,
    ) -> None:
        (self._column,), self._equals = named(column), equals
        self._design = _Design(null, alternative, confidence, effect)
        super().__init__(Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon))
        self._expected_rows = expected_rows
        self._size = TableSize(None, None)

    @property
    def question(self) -> str:
        where = f"share of rows with {self._column} = {self._equals!r}"
        return f"binomial test: {where}, null {float(self._design.null):.6g}, {self._design.alternative}"

    def check(self, dataset: Dataset) -> None:
        check_values(dataset, self._column, [self._equals])
        self._size = TableSize.of_dataset(dataset, self._expected_rows)
        self._priced = self._design.price(self._ask, self._size)

    def measure(self, dataset: Dataset) -> Sealed:
        count, rows = 0, 0
        for batch in dataset.batches([self._column]):
            count, rows = count + matches(batch, self._column, self._equals), rows + batch.num_rows
        return _sealed(count, rows, self._size)

    def noisy(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """The numbers that are released; all that follows is post-processing."""
        return under_noise(sealed, self._priced.epsilon, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Verdict]:
        return self._design.release(sealed, self._size, self._priced, bits, self.question, self._ask)


def binomial_test(
    successes: Any,
    null: object,
    *,
    alternative: Alternative = "two-sided",
    adjacency: str = "replace-one",
    epsilon: object = None,
    power: object = None,
    effect: object = None,
    level: object = 0.05,
    max_epsilon: object = None,
    confidence: object = 0.95,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on an array of true/false values, one per person; public number unless ``adjacency="add-remove"``.

    With ``power=`` instead of ``epsilon=``, ``effect`` is the proportion at which the test must have that power, and
    the smallest epsilon that gives it is used; with a private number of rows for ``expected_rows`` of them.

    >>> from expost.noise import SeededBits
    >>> release = binomial_test([True] * 160 + [False] * 40, 0.5, epsilon=0.5, bits=SeededBits(1))
    >>> release.value.rejects(0.01), release.receipt.epsilon
    (True, 0.5)
    """
    design = _Design(null, alternative, confidence, effect)
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    values = truths(successes, fewest=fewest_rows(1, adjacency=adjacency))
    size = TableSize.of(len(values), adjacency=adjacency, expected_rows=expected_rows)
    priced = design.price(ask, size)
    question = f"binomial test: null {float(design.null):.6g}, {design.alternative}"
    return design.release(_sealed(int(values.sum()), len(values), size), size, priced, bits, question, ask)


def binomial_power(
    rows: int,
    null: object,
    effect: object,
    *,
    epsilon: float,
    level: float = 0.05,
    alternative: Alternative = "two-sided",
    adjacency: str = "replace-one",
) -> float:
    """The exact power of the test when the true proportion is ``effect``; ``epsilon=inf`` is the non-private test.

    With a private number of rows (``adjacency="add-remove"``) it is a lower bound on the power.

    >>> round(binomial_power(100, 0.5, 0.65, epsilon=1.0), 3)
    0.834
    """
    base, truth = chance_of(null, "null"), chance_of(effect, "effect")
    count, tail, direction = rows_of(rows), chance_of(level), alternative_of(alternative)
    if TableSize.of(count, adjacency=adjacency).rows is None:
        rows_of(rows, most=_MOST_PRIVATE_ROWS)
        weak = strength_of(epsilon, endless=64.0)
        return private_power_bound(count, base, truth, epsilon=weak, level=tail, alternative=direction)
    strength = strength_of(epsilon, endless=700.0)

    def rejects_above(tail: float) -> float:
        critical = _critical(count, base, strength, tail)
        return float(noisy_binomial_tail(critical, count, truth, strength))

    if direction == "greater":
        return rejects_above(tail)
    if direction == "less":
        return 1 - rejects_above(1 - tail)
    return rejects_above(tail / 2) + 1 - rejects_above(1 - tail / 2)


def binomial_p_values(
    statistic: Any, rows: int, null: float, *, epsilon: float, alternative: Alternative = "two-sided"
) -> Any:
    """P-values of released statistics (noisy count plus uniform), one for each.

    >>> binomial_p_values(np.array([50.0]), 100, 0.5, epsilon=1.0)
    array([1.])
    """
    upper, lower = noisy_binomial_p_values(statistic, rows, null, epsilon)
    if alternative == "two-sided":
        return np.minimum(2 * np.minimum(upper, lower), 1.0)
    return upper if alternative == "greater" else lower


class _Design:
    """The public side of the test: hypotheses, price, and what follows from the noisy count."""

    def __init__(self, null: object, alternative: object, confidence: object, effect: object) -> None:
        self.null = probability(null, "null")
        self.alternative = alternative_of(alternative)
        self._failure = 1 - probability(confidence, "confidence")
        self._effect = None if effect is None else probability(effect, "effect")

    def price(self, ask: Ask, size: TableSize) -> Priced:
        if ask.fixed is not None:
            return ask.fixed
        if self._effect is None or self._effect == self.null:
            raise InvalidRequest(
                "Expected the proportion at which the power is asked", do="Pass effect= apart from null"
            )
        rows, level, null, effect = size.priced_rows, float(ask.level), float(self.null), float(self._effect)

        def power_at(epsilon: float) -> float:
            return binomial_power(
                rows, self.null, self._effect, epsilon=epsilon, level=level, alternative=self.alternative
            )

        def about(epsilon: float) -> float:
            return private_power(rows, null, effect, epsilon=epsilon, level=level, alternative=self.alternative)

        def bound_at(epsilon: float, failure: float) -> float:
            return private_power_bound(rows, null, effect, epsilon=epsilon, level=level, alternative=self.alternative)

        if size.rows is not None:
            return ask.exact(power_at, "exact")
        return ask.proved(about, bound_at, basis=f"proved, for {rows} rows")

    def release(
        self, sealed: Sealed, size: TableSize, priced: Priced, bits: BitSource | None, question: str, ask: Ask
    ) -> Release[Verdict]:
        source = bits or system_bits()
        noisy = under_noise(sealed, priced.epsilon, source)
        read = self._read_pair(noisy, priced) if size.rows is None else self._read(noisy, size.rows, priced, source)
        return released(
            read[0],
            question=question,
            method="discrete Laplace counts" + (", size maximised" if size.rows is None else ", Tulap reference"),
            priced=priced,
            interval=read[1],
            ask=ask,
            private=source.private,
            level=PROVED,
            terms={**size.terms, "null": self.null, "confidence of the interval": 1 - self._failure},
            adjacency=size.adjacency,
            citations=_PRIVATE_SIZE_CITATIONS if size.rows is None else _CITATIONS,
        )

    def _read(self, noisy: Any, rows: int, priced: Priced, bits: BitSource) -> tuple[Verdict, tuple[float, float]]:
        """Verdict and interval from the noisy count, with a public number of rows."""
        count, strength, null = int(noisy[0]), float(priced.epsilon), float(self.null)
        statistic = count + float(uniforms((1,), bits)[0]) - 0.5
        p = binomial_p_values(np.array([statistic]), rows, null, epsilon=strength, alternative=self.alternative)
        verdict = Verdict(
            test="binomial",
            statistic=statistic,
            p_value=float(p[0]),
            estimate=min(max(count / rows, 0.0), 1.0),
            alternative=self.alternative,
        )
        return verdict, _interval(statistic, rows, strength, float(self._failure), self.alternative)

    def _read_pair(self, noisy: Any, priced: Priced) -> tuple[Verdict, tuple[float, float]]:
        """The same from the noisy counts of successes and of all other rows."""
        successes, others, null = float(noisy[0]), float(noisy[1]), float(self.null)
        scale, total = 1 / float(priced.epsilon), float(noisy.sum())
        verdict = Verdict(
            test="binomial",
            statistic=(1 - null) * successes - null * others,
            p_value=private_p_value(successes, others, null, scale=scale, alternative=self.alternative),
            estimate=min(max(successes / total, 0.0), 1.0) if total >= 1 else None,
            alternative=self.alternative,
        )
        interval = private_interval(
            successes, others, scale=scale, failure=float(self._failure), alternative=self.alternative
        )
        return verdict, interval


def _sealed(count: int, rows: int, size: TableSize) -> Sealed:
    exact = [count] if size.rows is not None else [count, rows - count]
    return Sealed(np.array(exact), Sensitivity(1, Norm.L1, size.adjacency))


def _critical(rows: int, null: float, epsilon: float, tail: float) -> float:
    """The statistic that the null exceeds with probability ``tail``."""
    spread = 80 / epsilon + 10 * np.sqrt(rows) + 10
    low, high = -spread, rows + spread
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(noisy_binomial_tail(middle, rows, null, epsilon)) > tail else (low, middle)
    return float(high)


def _interval(
    statistic: float, rows: int, epsilon: float, failure: float, alternative: Alternative
) -> tuple[float, float]:
    """The proportions the test does not reject; the tail at the statistic rises with the proportion."""
    if alternative == "greater":
        return _proportion_at(statistic, rows, epsilon, failure), 1.0
    if alternative == "less":
        return 0.0, _proportion_at(statistic, rows, epsilon, 1 - failure)
    return (
        _proportion_at(statistic, rows, epsilon, failure / 2),
        _proportion_at(statistic, rows, epsilon, 1 - failure / 2),
    )


def _proportion_at(statistic: float, rows: int, epsilon: float, tail: float) -> float:
    def excess(chance: float) -> float:
        return float(noisy_binomial_tail(statistic, rows, chance, epsilon)) - tail

    low, high = 1e-12, 1 - 1e-12
    if excess(low) > 0:
        return 0.0
    if excess(high) < 0:
        return 1.0
    return float(optimize.brentq(excess, low, high, xtol=1e-10))
