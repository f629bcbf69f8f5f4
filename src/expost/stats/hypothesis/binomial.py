"""Is a proportion what it is said to be? The optimal private test, with an exact p-value and interval."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy import optimize

from expost.core import Adjacency, InvalidRequest, Ladder, Loss, Norm, PureLoss, Release, Sealed, Sensitivity
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, DiscreteLaplacePath, system_bits
from expost.stats.hypothesis.column import check_values, matches, public_rows, truths
from expost.stats.hypothesis.draw import uniforms
from expost.stats.hypothesis.price import Ask
from expost.stats.hypothesis.tulap import noisy_binomial_tail
from expost.stats.hypothesis.verdict import Alternative, Verdict, alternative_of, released, two_sided

__all__ = ["BinomialTest", "binomial_power", "binomial_test"]

_CITATIONS = ("AS18, Theorem 5.2", "AS20, Section 6", "GRS09, Definition 2")


class BinomialTest:
    """Tests the proportion of rows in which a column equals a value.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: 1 row (L1).
    Accuracy: one-sided tests are the most powerful among all epsilon-DP tests of their level; p-values are exactly
        uniform at the null, whatever the number of rows; intervals cover exactly.
    Numerics: exact integer noise; the uniform number added to it, and the p-value, are post-processing in floats.
    Reference: AS18, Theorem 5.2 (optimal test, p-value); AS20, Section 6 (intervals); GRS09, Definition 2 (noise).

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
    ) -> None:
        self._column, self._equals = column, equals
        self._design = _Design(null, alternative, confidence, effect)
        self._ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
        self._priced: Fraction | None = self._ask.epsilon
        self._rows = 0

    @property
    def question(self) -> str:
        where = f"share of rows with {self._column} = {self._equals!r}"
        return f"binomial test: {where}, null {float(self._design.null):.6g}, {self._design.alternative}"

    @property
    def worst_case(self) -> Loss:
        if self._priced is None:
            raise InvalidRequest("Expected a dataset to price the power for", do="Call check(dataset) first")
        return PureLoss(self._priced)

    def check(self, dataset: Dataset) -> None:
        check_values(dataset, self._column, [self._equals])
        self._rows = public_rows(dataset)
        self._priced = self._design.price(self._ask, self._rows)

    def measure(self, dataset: Dataset) -> Sealed:
        return _sealed(sum(matches(batch, self._column, self._equals) for batch in dataset.batches([self._column])))

    def noisy(self, sealed: Sealed, bits: BitSource | None) -> Any:
        """The numbers that are released; all that follows is post-processing."""
        assert self._priced is not None
        return noisy_count(sealed, self._priced, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Verdict]:
        assert self._priced is not None
        return self._design.release(sealed, self._rows, self._priced, bits, self.question, self._ask)


def binomial_test(
    successes: Any,
    null: object,
    *,
    alternative: Alternative = "two-sided",
    epsilon: object = None,
    power: object = None,
    effect: object = None,
    level: object = 0.05,
    max_epsilon: object = None,
    confidence: object = 0.95,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on an array of true/false values, one per person; their number is public.

    With ``power=`` instead of ``epsilon=``, ``effect`` is the proportion at which the test must have that power, and
    the smallest epsilon that gives it is used.

    >>> from expost.noise import SeededBits
    >>> release = binomial_test([True] * 160 + [False] * 40, 0.5, epsilon=0.5, bits=SeededBits(1))
    >>> release.value.rejects(0.01), release.receipt.epsilon
    (True, 0.5)
    """
    design = _Design(null, alternative, confidence, effect)
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    values = truths(successes)
    price = design.price(ask, len(values))
    question = f"binomial test: null {float(design.null):.6g}, {design.alternative}"
    return design.release(_sealed(int(values.sum())), len(values), price, bits, question, ask)


def binomial_power(
    rows: int,
    null: object,
    effect: object,
    *,
    epsilon: float,
    level: float = 0.05,
    alternative: Alternative = "two-sided",
) -> float:
    """The exact power of the test when the true proportion is ``effect``; ``epsilon=inf`` is the non-private test.

    >>> round(binomial_power(100, 0.5, 0.65, epsilon=1.0), 3)
    0.834
    """
    base, truth = float(probability(null, "null")), float(probability(effect, "effect"))
    strength = min(epsilon, 700.0)

    def rejects_above(tail: float) -> float:
        critical = _critical(rows, base, strength, tail)
        return float(noisy_binomial_tail(critical, rows, truth, strength))

    if alternative == "greater":
        return rejects_above(level)
    if alternative == "less":
        return 1 - rejects_above(1 - level)
    return rejects_above(level / 2) + 1 - rejects_above(1 - level / 2)


def binomial_p_values(
    statistic: Any, rows: int, null: float, *, epsilon: float, alternative: Alternative = "two-sided"
) -> Any:
    """P-values of released statistics (noisy count plus uniform), one for each.

    >>> binomial_p_values(np.array([50.0]), 100, 0.5, epsilon=1.0)
    array([1.])
    """
    return two_sided(noisy_binomial_tail(statistic, rows, null, epsilon), alternative)


class _Design:
    """The public side of the test: hypotheses, price, and what follows from the noisy count."""

    def __init__(self, null: object, alternative: object, confidence: object, effect: object) -> None:
        self.null = probability(null, "null")
        self.alternative = alternative_of(alternative)
        self._failure = 1 - probability(confidence, "confidence")
        self._effect = None if effect is None else probability(effect, "effect")

    def price(self, ask: Ask, rows: int) -> Fraction:
        if ask.power is not None and (self._effect is None or self._effect == self.null):
            raise InvalidRequest(
                "Expected the proportion at which the power is asked", do="Pass effect= apart from null"
            )

        def power_at(epsilon: float) -> float:
            return binomial_power(
                rows,
                self.null,
                self._effect,
                epsilon=epsilon,
                level=float(ask.level),
                alternative=self.alternative,
            )

        return ask.price(power_at)

    def release(
        self, sealed: Sealed, rows: int, epsilon: Fraction, bits: BitSource | None, question: str, ask: Ask
    ) -> Release[Verdict]:
        source = bits or system_bits()
        noisy = int(noisy_count(sealed, epsilon, source)[0])
        statistic = noisy + float(uniforms((1,), source)[0]) - 0.5
        strength = float(epsilon)
        p_value = float(
            binomial_p_values(
                np.array([statistic]), rows, float(self.null), epsilon=strength, alternative=self.alternative
            )[0]
        )
        verdict = Verdict(
            test="binomial",
            statistic=statistic,
            p_value=p_value,
            estimate=min(max(noisy / rows, 0.0), 1.0),
            alternative=self.alternative,
        )
        return released(
            verdict,
            question=question,
            method="discrete Laplace count, Tulap reference",
            epsilon=epsilon,
            interval=_interval(statistic, rows, strength, float(self._failure), self.alternative),
            power=ask.promised,
            private=source.private,
            terms={"rows": rows, "null": self.null, "confidence of the interval": 1 - self._failure},
            citations=_CITATIONS,
        )


def noisy_count(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
    """The count under discrete Laplace noise."""
    return DiscreteLaplacePath(sealed, Ladder((epsilon,)), bits=bits).at(0)


def _sealed(count: int) -> Sealed:
    return Sealed(np.array([count]), Sensitivity(1, Norm.L1, Adjacency.REPLACE_ONE))


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
