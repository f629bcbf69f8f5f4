"""Do two groups have the same mean?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Release
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.noise import BitSource, system_bits
from expost.stats.hypothesis.column import check_values, named
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
from expost.stats.hypothesis.reference import noisy_normal_quantile, noisy_normal_tail
from expost.stats.hypothesis.shares import NUISANCE, Shares
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.verdict import ASYMPTOTIC, Alternative, Verdict, alternative_of, released, two_sided

__all__ = ["MeanDifferenceTest", "mean_difference_power", "mean_difference_test"]

_ASSUMED = "estimated, if values are normal with the deviation given and sizes are as supposed"
_CITATIONS = ("GRS09, Definition 2", "BB94, Lemma 1", "Sat46", "docs/proofs/noisy-reference.md")


class MeanDifferenceTest(PricedTest):
    """Tests whether a bounded column has the same mean in two groups, whose sizes stay private.

    Groups may differ in spread and size (Welch's test). ``equal_spread=True`` takes their spreads for equal, which buys a
    little power, most where sizes are private under replace-one; where they are not, the level breaks.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run. It is split between sums, squares and group sizes.
    Adjacency: as the dataset's; the number of rows is public under replace-one, private under add-remove.
    Sensitivity: replace-one: the width of the bounds for the sums, 2 for the sizes, half the squared width for the
        squares by group (a quarter where sizes are public, or for the one total of ``equal_spread``); add-remove: half
        the width, 1, and a quarter.
    Accuracy: p-values keep their level for normal and for bounded, moderately skewed values (simulated down to ten
        rows a group, for spreads that differ by a factor of 300, and for 0/1 values as rare as one in 200). For a group
        of 100 rare 0/1 values against a large narrow one of the same mean a level of 0.05 can be 0.062. The probability
        of a wrong bound on the spread is added to them. ``split_test`` has a proved level for groups of equal laws.
    Numerics: exact integer sums and noise; p-values and intervals are post-processing in floats.
    Reference: GRS09, Definition 2 (noise); BB94, Lemma 1 (unknown spread); Sat46 (its freedom);
        docs/proofs/noisy-reference.md.

    >>> MeanDifferenceTest("delay", by="origin", groups=("EWR", "JFK"), epsilon=1).question
    "difference of means: delay by origin, 'EWR' against 'JFK', two-sided"
    """

    def __init__(
        self,
        value: str,
        *,
        by: str,
        groups: Sequence[Any],
        alternative: Alternative = "two-sided",
        epsilon: object = None,
        power: object = None,
        effect: object = None,
        deviation: object = None,
        level: object = 0.05,
        max_epsilon: object = None,
        confidence: object = 0.95,
        expected_rows: int | None = None,
        equal_spread: bool = False,
    ) -> None:
        if not isinstance(groups, tuple | list) or len(groups) != 2 or groups[0] == groups[1]:
            raise InvalidRequest("Expected two different groups", do="Pass groups=(first, second)")
        (self._value, self._by), self._groups = named(value, by), tuple(groups)
        self._design = _Design(alternative, confidence, effect, deviation, equal_spread)
        super().__init__(Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon))
        self._expected_rows = expected_rows
        self._size = TableSize(None, None)
        self._bounds = (0.0, 1.0)

    @property
    def question(self) -> str:
        first, second = self._groups
        how = self._design.alternative
        return f"difference of means: {self._value} by {self._by}, {first!r} against {second!r}, {how}"

    def check(self, dataset: Dataset) -> None:
        self._size = TableSize.of_dataset(dataset, self._expected_rows)
        self._bounds = column_bounds(dataset, self._value)
        check_values(dataset, self._by, self._groups)
        self._priced = self._design.price(
            self._ask, lambda: even_sizes(self._size, 2), self._bounds, public_sizes=False, size=self._size
        )

    def measure(self, dataset: Dataset) -> GroupTotals:
        return GroupTotals.of_dataset(dataset, self._value, self._by, self._groups, self._bounds)

    def noisy(self, sealed: GroupTotals, bits: BitSource | None) -> NDArray[np.float64]:
        """The numbers that are released; all that follows is post-processing."""
        return sealed.release(self._shares, public_sizes=None, bits=bits).numbers

    def climb(self, sealed: GroupTotals, bits: BitSource | None) -> Release[Verdict]:
        return self._design.release(
            sealed, self._shares, None, self._bounds, bits, question=self.question, ask=self._ask, priced=self._priced
        )

    @property
    def _shares(self) -> Shares:
        return self._design.shares(self._priced.epsilon, self._size, None)


def mean_difference_test(
    first: Any,
    second: Any,
    *,
    bounds: tuple[float, float],
    alternative: Alternative = "two-sided",
    adjacency: str = "replace-one",
    epsilon: object = None,
    power: object = None,
    effect: object = None,
    deviation: object = None,
    level: object = 0.05,
    max_epsilon: object = None,
    confidence: object = 0.95,
    expected_rows: int | None = None,
    equal_spread: bool = False,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The same test on two samples; their sizes are public unless ``adjacency="add-remove"``.

    ``power=`` with ``effect`` (a difference) and ``deviation`` (a guess of the standard deviation) prices the test; with
    private sizes for two halves of ``expected_rows``. ``equal_spread=True`` is for groups known to spread alike.

    >>> from expost.noise import SeededBits
    >>> x, y = np.linspace(0, 6, 300), np.linspace(4, 10, 300)
    >>> release = mean_difference_test(x, y, bounds=(0, 10), epsilon=0.5, bits=SeededBits(2))
    >>> release.value.rejects(0.01), -5 < release.value.estimate < -3
    (True, True)
    """
    design = _Design(alternative, confidence, effect, deviation, equal_spread)
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    samples = samples_of([first, second], fewest=fewest_rows(2, adjacency=adjacency))
    limits = group_bounds(bounds)
    sizes = (len(samples[0]), len(samples[1]))
    size = TableSize.of(sum(sizes), adjacency=adjacency, expected_rows=expected_rows)
    public = size.rows is not None
    priced = design.price(ask, lambda: sizes if public else even_sizes(size, 2), limits, public_sizes=public, size=size)
    return design.release(
        GroupTotals.of_arrays(samples, limits, size.adjacency),
        design.shares(priced.epsilon, size, sizes if public else None),
        sizes if public else None,
        limits,
        bits,
        question=f"difference of means, {design.alternative}",
        ask=ask,
        priced=priced,
    )


def mean_difference_power(
    sizes: Sequence[int],
    effect: float,
    *,
    deviation: float,
    bounds: tuple[float, float],
    epsilon: float,
    level: float = 0.05,
    alternative: Alternative = "two-sided",
    public_sizes: bool = True,
    adjacency: str = "replace-one",
    equal_spread: bool = False,
) -> float:
    """The power at a difference of means, for normal values of this standard deviation; good to about 0.02 if above a half.

    >>> round(mean_difference_power((200, 200), 1.0, deviation=2.0, bounds=(0, 10), epsilon=1.0), 2)
    0.96
    """
    low, high = group_bounds(bounds)
    counts, away, direction = (
        sizes_of(sizes, groups=2),
        share_of(effect, "effect", high - low),
        alternative_of(alternative),
    )
    share, relation = deviation_of(deviation, high - low), Adjacency.parse(adjacency)
    known = flag_of(public_sizes, "public_sizes") and relation.public_size
    shares = Shares.of(
        Fraction(strength_of(epsilon)),
        rows=sum(counts) if relation.public_size else None,
        public_sizes=counts if known else None,
        adjacency=relation,
        equal_spread=flag_of(equal_spread, "equal_spread"),
    )
    noisy = NoisyGroups.expected(np.zeros(2), np.array(counts, np.float64), share, shares)
    spread, scales = _difference_law(noisy)
    tail = (chance_of(level) - NUISANCE) / (2 if direction == "two-sided" else 1)
    if tail <= 0 or not bool(noisy.usable):
        return 0.0
    critical = noisy_normal_quantile(tail, float(spread), [float(scale) for scale in scales])
    shift = {"two-sided": abs(away), "greater": away, "less": -away}[direction]
    # What the mean really does: sampling without the safety of the bounds.
    true_spread = share * math.sqrt(sum(1 / size for size in counts))
    power = noisy_normal_tail(critical - shift, true_spread, scales)
    if direction == "two-sided":
        power = power + noisy_normal_tail(critical + shift, true_spread, scales)
    return float(np.clip(power, 0.0, 1.0))


def mean_difference_p_values(groups: NoisyGroups, alternative: Alternative = "two-sided") -> NDArray[np.float64]:
    """P-values from released totals, one for each repetition."""
    spread, scales = _difference_law(groups)
    difference = groups.means[..., 0] - groups.means[..., 1]
    tail = two_sided(noisy_normal_tail(difference, spread, scales), alternative)
    # A group that may be empty says nothing.
    p: NDArray[np.float64] = np.where(groups.usable, np.minimum(tail + NUISANCE, 1.0), 1.0)
    return p


def _difference_law(groups: NoisyGroups) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Standard deviation and Laplace scales of the difference of two noisy means when the true ones are equal."""
    spread = np.sqrt(groups.mean_variances.sum(-1))
    scales = [part[..., group] for part in groups.mean_scales for group in (0, 1)]
    return spread, scales


class _Design:
    """The public side of the test."""

    def __init__(
        self, alternative: object, confidence: object, effect: object, deviation: object, equal_spread: object
    ) -> None:
        self.alternative = alternative_of(alternative)
        self._failure = 1 - probability(confidence, "confidence")
        self._effect = None if effect is None else float(rational(effect, "effect"))
        self._deviation = None if deviation is None else float(rational(deviation, "deviation"))
        self._equal_spread = flag_of(equal_spread, "equal_spread")

    def shares(self, epsilon: Fraction, size: TableSize, public_sizes: Sequence[int] | None) -> Shares:
        return Shares.of(
            epsilon,
            rows=size.rows,
            public_sizes=public_sizes,
            adjacency=size.adjacency,
            equal_spread=self._equal_spread,
        )

    def price(
        self,
        ask: Ask,
        sizes_of: Callable[[], Sequence[int]],
        bounds: tuple[float, float],
        *,
        public_sizes: bool,
        size: TableSize,
    ) -> Priced:
        if ask.fixed is not None:
            return ask.fixed
        if self._effect is None or self._deviation is None:
            raise InvalidRequest(
                "Expected a difference and a standard deviation beside power", do="Pass effect= and deviation="
            )
        effect, deviation, sizes = self._effect, self._deviation, sizes_of()
        sign = -1 if self.alternative == "less" else 1

        def power_at(epsilon: float) -> float:
            return mean_difference_power(
                sizes,
                sign * effect,
                deviation=deviation,
                bounds=bounds,
                epsilon=epsilon,
                level=float(ask.level),
                alternative=self.alternative,
                public_sizes=public_sizes,
                adjacency=size.adjacency.value,
                equal_spread=self._equal_spread,
            )

        return ask.estimated(power_at, _ASSUMED)

    def release(
        self,
        totals: GroupTotals,
        shares: Shares,
        public_sizes: tuple[int, int] | None,
        bounds: tuple[float, float],
        bits: BitSource | None,
        *,
        question: str,
        ask: Ask,
        priced: Priced,
    ) -> Release[Verdict]:
        source = bits or system_bits()
        noisy = totals.release(shares, public_sizes=public_sizes, bits=source)
        width = bounds[1] - bounds[0]
        difference = float(noisy.means[0] - noisy.means[1]) * width
        verdict = Verdict(
            test="difference of means",
            statistic=difference,
            p_value=float(mean_difference_p_values(noisy, self.alternative)),
            estimate=difference,
            alternative=self.alternative,
        )
        terms = group_terms(bounds, public_sizes, shares)
        return released(
            verdict,
            question=question,
            method="discrete Laplace sums, noise in the reference",
            priced=priced,
            interval=self._interval(noisy, difference, width),
            ask=ask,
            private=source.private,
            level=ASYMPTOTIC,
            terms={**terms, "confidence of the interval": 1 - self._failure},
            adjacency=shares.adjacency,
            breakdown=shares.breakdown(),
            citations=_CITATIONS,
        )

    def _interval(self, noisy: NoisyGroups, difference: float, width: float) -> tuple[float, float]:
        tail = (float(self._failure) - NUISANCE) / (1 if self.alternative != "two-sided" else 2)
        if not bool(noisy.usable) or tail <= 0:
            return -width, width
        spread, scales = _difference_law(noisy)
        reach = noisy_normal_quantile(tail, float(spread), [float(scale) for scale in scales]) * width
        low = -width if self.alternative == "less" else max(difference - reach, -width)
        high = width if self.alternative == "greater" else min(difference + reach, width)
        return min(low, width), max(high, -width)
