"""Do counts follow a given law? Are two columns independent? Chi-squared tests on noisy tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Ladder, Loss, Norm, PureLoss, Release, Sealed, Sensitivity
from expost.data import Dataset
from expost.noise import BitSource, DiscreteLaplacePath, SeededBits, discrete_laplace, system_bits
from expost.stats.hypothesis.column import check_values, codes, public_rows
from expost.stats.hypothesis.draw import multinomials
from expost.stats.hypothesis.price import APPROXIMATE, Ask
from expost.stats.hypothesis.table import Table, fit_statistic, independent_law, table_statistic
from expost.stats.hypothesis.verdict import Verdict, released

__all__ = [
    "GoodnessOfFitTest",
    "IndependenceTest",
    "fit_power",
    "fit_test",
    "independence_power",
    "independence_test",
]

_DRAWS = 9_999
_POWER_DRAWS = 1_000
_CITATIONS = ("GLRV16, Algorithms 1 and 3", "KR17, Section 5", "BC91, Section 2", "GRS09, Definition 2")

Floats = NDArray[np.float64]


class _TableTest:
    """A table of counts by public categories, released under noise and compared with a law."""

    def __init__(self, columns: Sequence[str], name: str, ask: Ask, effect: Any) -> None:
        self._columns, self._name, self._ask, self._effect = tuple(columns), name, ask, effect
        self._priced: Fraction | None = ask.epsilon
        self._rows = 0
        self._categories: tuple[tuple[Any, ...], ...] = ()

    @property
    def question(self) -> str:
        return f"{self._name}: {' by '.join(self._columns)}"

    @property
    def worst_case(self) -> Loss:
        if self._priced is None:
            raise InvalidRequest("Expected a dataset to price the power for", do="Call check(dataset) first")
        return PureLoss(self._priced)

    def check(self, dataset: Dataset) -> None:
        self._rows = public_rows(dataset)
        self._categories = tuple(_categories(dataset, column) for column in self._columns)
        self._priced = self._price()

    def measure(self, dataset: Dataset) -> Sealed:
        shape = tuple(len(categories) for categories in self._categories)
        counts = np.zeros(shape, np.int64)
        for batch in dataset.batches(list(self._columns)):
            places = [codes(batch, *pair) for pair in zip(self._columns, self._categories, strict=True)]
            inside = np.all([place >= 0 for place in places], axis=0)
            np.add.at(counts, tuple(place[inside] for place in places), 1)
        return _sealed(counts)

    def noisy(self, sealed: Sealed, bits: BitSource | None) -> Floats:
        """The numbers that are released; all that follows is post-processing."""
        assert self._priced is not None
        return noisy_counts(sealed, self._priced, bits)

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[Verdict]:
        assert self._priced is not None
        return self._release(sealed, self._priced, bits)

    def _price(self) -> Fraction:
        raise NotImplementedError

    def _release(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Release[Verdict]:
        raise NotImplementedError


class GoodnessOfFitTest(_TableTest):
    """Tests whether a column's categories have given probabilities.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: replace-one, the number of rows is public. Rows outside the public categories must not exist under the
        null hypothesis; they count as missing.
    Sensitivity: 2 (L1): one row leaves a cell and enters another.
    Accuracy: P(p-value <= level) <= level exactly, for every number of rows and every epsilon: the reference is drawn
        from the null hypothesis itself, sampling and noise.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 1 (drawn reference); KR17, Section 5 (statistic); BC91, Section 2 (level).

    >>> GoodnessOfFitTest("month", [1 / 12] * 12, epsilon=1).question
    'goodness of fit: month'
    """

    def __init__(
        self,
        column: str,
        chances: Sequence[float],
        *,
        epsilon: object = None,
        power: object = None,
        effect: Sequence[float] | None = None,
        level: object = 0.05,
        max_epsilon: object = None,
    ) -> None:
        ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
        super().__init__([column], "goodness of fit", ask, effect)
        self._chances = chances_of(chances)

    def check(self, dataset: Dataset) -> None:
        if len(dataset.categories.get(self._columns[0], ())) != self._chances.size:
            raise InvalidRequest(
                "Expected one probability for each public category",
                got=self._chances.size,
                do="Declare Dataset(categories=) and give their probabilities in that order",
            )
        super().check(dataset)

    def _price(self) -> Fraction:
        return _price_fit(self._ask, self._rows, self._chances, self._effect)

    def _release(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Release[Verdict]:
        return _release_fit(sealed, self._rows, self._chances, epsilon, bits, self.question, self._ask)


class IndependenceTest(_TableTest):
    """Tests whether two columns of public categories are independent.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: replace-one, the number of rows is public.
    Sensitivity: 2 (L1): one row leaves a cell and enters another.
    Accuracy: the reference is drawn from the independent table fitted to the noisy one, refitted in every draw; its
        level is simulated down to 30 rows and epsilon 0.1.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 3 (drawn reference); KR17, Section 6 (statistic).

    >>> IndependenceTest("carrier", "origin", epsilon=1).question
    'independence: carrier by origin'
    """

    def __init__(
        self,
        first: str,
        second: str,
        *,
        epsilon: object = None,
        power: object = None,
        effect: Any = None,
        level: object = 0.05,
        max_epsilon: object = None,
    ) -> None:
        if first == second:
            raise InvalidRequest("Expected two different columns", got=first, do="Name another one")
        ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
        super().__init__([first, second], "independence", ask, effect)

    def _price(self) -> Fraction:
        return _price_table(self._ask, self._rows, self._effect)

    def _release(self, sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Release[Verdict]:
        shape = tuple(len(categories) for categories in self._categories)
        return _release_table(sealed, shape, self._rows, epsilon, bits, self.question, self._ask)


def fit_test(
    counts: Any,
    chances: Sequence[float],
    *,
    epsilon: object = None,
    power: object = None,
    effect: Sequence[float] | None = None,
    level: object = 0.05,
    max_epsilon: object = None,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The goodness-of-fit test on a list of exact counts, whose total is public.

    ``power=`` with ``effect`` (the true probabilities) prices the test.

    >>> from expost.noise import SeededBits
    >>> fit_test([300, 100, 100], [1 / 3] * 3, epsilon=0.5, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    table, law = counts_of(counts, 1), chances_of(chances)
    if table.size != law.size:
        raise InvalidRequest("Expected one probability for each count", got=law.size, do="Pass equally many")
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    rows = int(table.sum())
    price = _price_fit(ask, rows, law, effect)
    return _release_fit(_sealed(table), rows, law, price, bits, "goodness of fit", ask)


def independence_test(
    table: Any,
    *,
    epsilon: object = None,
    power: object = None,
    effect: Any = None,
    level: object = 0.05,
    max_epsilon: object = None,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The test of independence on a two-way table of exact counts, whose total is public.

    ``power=`` with ``effect`` (the true joint probabilities) prices the test.

    >>> from expost.noise import SeededBits
    >>> independence_test([[200, 50], [50, 200]], epsilon=0.5, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    counts = counts_of(table, 2)
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    rows = int(counts.sum())
    price = _price_table(ask, rows, effect)
    return _release_table(_sealed(counts), counts.shape, rows, price, bits, "independence", ask)


def fit_power(
    rows: int, chances: Sequence[float], effect: Sequence[float], *, epsilon: float, level: float = 0.05
) -> float:
    """The power when the true probabilities are ``effect``; drawn with fixed bits, good to about 0.02.

    >>> fit_power(1000, [0.25] * 4, [0.3, 0.2, 0.3, 0.2], epsilon=0.5) > 0.8
    True
    """
    law, truth = chances_of(chances), chances_of(effect)

    def statistics(cells: Floats, bits: BitSource) -> Floats:
        noisy = _drawn(rows, cells, _POWER_DRAWS, epsilon, bits)
        return fit_statistic(noisy, rows, law, epsilon)

    return _power(statistics, law, truth, level)


def independence_power(rows: int, effect: Any, *, epsilon: float, level: float = 0.05) -> float:
    """The power when the true joint probabilities are ``effect``; drawn with fixed bits, good to about 0.02.

    >>> independence_power(1000, [[0.3, 0.2], [0.2, 0.3]], epsilon=0.5) > 0.9
    True
    """
    truth = chances_of(effect, dimensions=2)
    law = truth.sum(1, keepdims=True) * truth.sum(0, keepdims=True)

    def statistics(cells: Floats, bits: BitSource) -> Floats:
        noisy = _drawn(rows, cells, _POWER_DRAWS, epsilon, bits)
        return table_statistic(Table(noisy, rows, epsilon))

    return _power(statistics, law, truth, level)


def fit_p_values(
    noisy: Floats, rows: int, chances: Floats, *, epsilon: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> Floats:
    """P-values of noisy counts (last axis: cells), one for each repetition, all from one drawn reference."""
    seen = fit_statistic(noisy, rows, chances, epsilon)
    drawn = _drawn(rows, chances, draws, epsilon, bits or system_bits())
    reference = np.sort(fit_statistic(drawn, rows, chances, epsilon))
    larger = draws - np.searchsorted(reference, seen, side="left")
    p: Floats = (1 + larger) / (1 + draws)
    return p


def independence_p_value(
    noisy: Floats, rows: int, *, epsilon: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> float:
    """The p-value of one noisy table."""
    seen = float(table_statistic(Table(noisy[None], rows, epsilon))[0])
    law = independent_law(Table(noisy[None], rows, epsilon))[0]
    drawn = _drawn(rows, law, draws, epsilon, bits or system_bits())
    reference = table_statistic(Table(drawn, rows, epsilon))
    return float((1 + (reference >= seen).sum()) / (1 + draws))


def chances_of(values: Any, *, dimensions: int = 1) -> Floats:
    """Probabilities as a caller typed them; they must be positive and sum to 1."""
    chances = np.asarray(values, np.float64)
    if chances.ndim != dimensions or chances.size < 2 or not (chances > 0).all() or abs(chances.sum() - 1) > 1e-6:
        raise InvalidRequest("Expected positive probabilities that sum to 1", do="Pass one for each category")
    total: Floats = chances / chances.sum()
    return total


def counts_of(values: Any, dimensions: int) -> NDArray[np.int64]:
    """Exact counts as an integer array."""
    counts = np.asarray(values)
    shape_ok = counts.ndim == dimensions and all(length >= 2 for length in counts.shape)
    if not shape_ok or counts.dtype.kind not in "iu" or counts.sum() < 1:
        raise InvalidRequest(f"Expected a table of counts with {dimensions} axis or axes", do="Pass whole numbers")
    return counts.astype(np.int64)


def _categories(dataset: Dataset, column: str) -> tuple[Any, ...]:
    categories = tuple(dataset.categories.get(column, ()))
    if len(categories) < 2:
        raise InvalidRequest("Expected public categories of the column", got=column, do="Declare Dataset(categories=)")
    check_values(dataset, column, categories)
    return categories


def _sealed(counts: NDArray[np.int64]) -> Sealed:
    return Sealed(counts.ravel(), Sensitivity(2, Norm.L1, Adjacency.REPLACE_ONE))


def _drawn(rows: int, law: Floats, draws: int, epsilon: float, bits: BitSource) -> Floats:
    """Noisy tables of so many rows that follow a law."""
    counts = multinomials(rows, law, draws, bits)
    noise = discrete_laplace(2 / Fraction(epsilon), counts.shape, bits=bits)
    noisy: Floats = (counts + noise).reshape((draws, *law.shape))
    return noisy


def _power(statistics: Callable[[Floats, BitSource], Floats], law: Floats, truth: Floats, level: float) -> float:
    # Common random numbers: the power is then nearly a smooth function of epsilon.
    critical = np.quantile(statistics(law, SeededBits(0)), 1 - level)
    return float((statistics(truth, SeededBits(1)) > critical).mean())


def _price_fit(ask: Ask, rows: int, law: Floats, effect: Sequence[float] | None) -> Fraction:
    if ask.power is not None and effect is None:
        raise InvalidRequest("Expected the probabilities at which the power is asked", do="Pass effect=")
    return ask.price(
        lambda e: fit_power(rows, law.tolist(), effect or [], epsilon=e, level=float(ask.level)) - APPROXIMATE
    )


def _price_table(ask: Ask, rows: int, effect: Any) -> Fraction:
    if ask.power is not None and effect is None:
        raise InvalidRequest("Expected the joint probabilities at which the power is asked", do="Pass effect=")
    return ask.price(lambda e: independence_power(rows, effect, epsilon=e, level=float(ask.level)) - APPROXIMATE)


def noisy_counts(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Floats:
    """The counts under discrete Laplace noise."""
    return np.asarray(DiscreteLaplacePath(sealed, Ladder((epsilon,)), bits=bits).at(0), np.float64)


def _release_fit(
    sealed: Sealed, rows: int, law: Floats, epsilon: Fraction, bits: BitSource | None, question: str, ask: Ask
) -> Release[Verdict]:
    source = bits or system_bits()
    noisy = noisy_counts(sealed, epsilon, source)
    p = fit_p_values(noisy[None], rows, law, epsilon=float(epsilon), bits=source)[0]
    statistic = fit_statistic(noisy[None], rows, law, float(epsilon))[0]
    return _finish("goodness of fit", float(statistic), float(p), rows, epsilon, source, question, ask)


def _release_table(
    sealed: Sealed,
    shape: tuple[int, ...],
    rows: int,
    epsilon: Fraction,
    bits: BitSource | None,
    question: str,
    ask: Ask,
) -> Release[Verdict]:
    source = bits or system_bits()
    noisy = noisy_counts(sealed, epsilon, source).reshape(shape)
    p = independence_p_value(noisy, rows, epsilon=float(epsilon), bits=source)
    statistic = table_statistic(Table(noisy[None], rows, float(epsilon)))[0]
    return _finish("independence", float(statistic), p, rows, epsilon, source, question, ask)


def _finish(
    test: str, statistic: float, p: float, rows: int, epsilon: Fraction, bits: BitSource, question: str, ask: Ask
) -> Release[Verdict]:
    return released(
        Verdict(test=test, statistic=statistic, p_value=p),
        question=question,
        method="discrete Laplace counts, drawn reference with noise",
        epsilon=epsilon,
        interval=None,
        power=ask.promised,
        private=bits.private,
        terms={"rows": rows},
        citations=_CITATIONS,
    )
