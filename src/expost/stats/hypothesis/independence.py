"""Are two columns independent? The chi-squared test on a noisy two-way table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Release, Sealed
from expost.noise import BitSource, SeededBits, system_bits
from expost.stats.hypothesis.margins import independent_tables, nuisance, possible_sizes
from expost.stats.hypothesis.planned import chance_of, rows_of, strength_of
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.table import Table, table_statistic
from expost.stats.hypothesis.table_test import (
    TableTest,
    chances_of,
    counts_of,
    drawn_tables,
    finished,
    noisy_counts,
    sealed_counts,
)
from expost.stats.hypothesis.verdict import Verdict

__all__ = ["IndependenceTest", "independence_power", "independence_test"]

_DRAWS = 4_999  # for each pair of margins
_POWER_DRAWS = 2_000
_TIE = 1e-9  # relative: tables that differ by the names of their categories have equal statistics but for rounding

_LEVEL = "proved for a net of margins, simulated between"
_CITATIONS = ("GLRV16, Algorithm 3", "BB94, Lemma 1", "BC91, Section 2", "GRS09, Definition 2")

Floats = NDArray[np.float64]


class IndependenceTest(TableTest):
    """Tests whether two columns of public categories are independent.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; replace-one with a public number of rows, or add-remove with a private one.
    Sensitivity: replace-one: 2 (L1), one row leaves a cell and enters another; add-remove: 1.
    Accuracy: the p-value is the largest over a net of the margins that the noisy table leaves possible, plus the
        probability that it excludes the true ones. P(p-value <= level) <= level is proved for margins of the net and
        simulated between them, down to 5 rows, categories expected in a tenth of a row, and epsilon from 0.05 to 50.
        ``split_test`` has a level that is proved for all.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 3 (drawn reference); BB94, Lemma 1 (unknown margins); docs/proofs/noisy-reference.md
        (statistic, level, proved power).

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
        expected_rows: int | None = None,
    ) -> None:
        if first == second:
            raise InvalidRequest("Expected two different columns", got=first, do="Name another one")
        ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
        super().__init__([first, second], "independence", ask, effect, expected_rows)

    def _price(self) -> Priced:
        return _price(self._ask, self._size, self._effect, self.shape)

    def _release(self, sealed: Sealed, priced: Priced, bits: BitSource | None) -> Release[Verdict]:
        return _released(sealed, self.shape, self._size, priced, bits, self.question, self._ask)


def independence_test(
    table: Any,
    *,
    adjacency: str = "replace-one",
    epsilon: object = None,
    power: object = None,
    effect: Any = None,
    level: object = 0.05,
    max_epsilon: object = None,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The test on a two-way table of exact counts; their total is public unless ``adjacency="add-remove"``.

    ``power=`` with ``effect`` (the true joint probabilities) prices the test; with a private total for
    ``expected_rows``.

    >>> from expost.noise import SeededBits
    >>> independence_test([[200, 50], [50, 200]], epsilon=0.5, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    counts = counts_of(table, 2, fewest=fewest_rows(1, adjacency=adjacency))
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    size = TableSize.of(int(counts.sum()), adjacency=adjacency, expected_rows=expected_rows)
    priced = _price(ask, size, effect, counts.shape)
    return _released(sealed_counts(counts, size), counts.shape, size, priced, bits, "independence", ask)


def independence_power(
    rows: int, effect: Any, *, epsilon: float, level: float = 0.05, adjacency: str = "replace-one"
) -> float:
    """The power when the true joint probabilities are ``effect``; drawn with fixed bits, good to about 0.02.

    >>> independence_power(1000, [[0.3, 0.2], [0.2, 0.3]], epsilon=0.5) > 0.9
    True
    """
    truth, count, tail = chances_of(effect, dimensions=2), rows_of(rows), chance_of(level)
    size = TableSize.of(count, adjacency=adjacency)
    scale = size.cell_sensitivity / strength_of(epsilon)
    law, kept = truth.sum(1, keepdims=True) * truth.sum(0, keepdims=True), tail - nuisance(size.rows)
    if kept <= 0:
        return 0.0
    # Common random numbers: the power is then nearly a smooth function of epsilon.
    null = independent_tables(count * law, [count], scale=scale, draws=_POWER_DRAWS, bits=SeededBits(0))
    critical = max(float(np.quantile(table_statistic(Table(tables, size.rows, scale)), 1 - kept)) for tables in null)
    drawn = drawn_tables(count, truth, _POWER_DRAWS, scale, SeededBits(1))
    return float((table_statistic(Table(drawn, size.rows, scale)) > critical).mean())


def independence_p_value(
    noisy: Floats, rows: int | None, *, scale: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> float:
    """Return the p-value of one noisy table: the largest over a net of the margins that are possible.

    For each pair of margins (1 + larger draws) / (1 + draws) is a p-value (BC91, Section 2); the probability that the
    true margins are not among the possible ones is added (BB94, Lemma 1; docs/proofs/noisy-reference.md).
    """
    larger = _larger(noisy, rows, scale, draws, bits or system_bits())
    return min((1 + larger) / (1 + draws) + nuisance(rows), 1.0)


def _larger(noisy: Floats, rows: int | None, scale: float, draws: int, bits: BitSource) -> int:
    """Count the independent tables that are at least as far from independence, for the margins with the most of them."""
    seen = float(table_statistic(Table(noisy[None], rows, scale))[0]) * (1 - _TIE)
    sizes = possible_sizes(noisy, rows, scale)
    null = independent_tables(noisy, sizes, scale=scale, draws=draws, bits=bits)
    return max(int((table_statistic(Table(tables, rows, scale)) >= seen).sum()) for tables in null)


def _price(ask: Ask, size: TableSize, effect: Any, shape: tuple[int, ...]) -> Priced:
    if ask.fixed is not None:
        return ask.fixed
    if effect is None:
        raise InvalidRequest("Expected the joint probabilities at which the power is asked", do="Pass effect=")
    truth, rows, level = chances_of(effect, dimensions=2), size.priced_rows, float(ask.level)
    if truth.shape != shape:
        raise InvalidRequest("Expected an effect of the shape of the table", got=str(truth.shape), do="Pass a matrix")

    def power_at(epsilon: float) -> float:
        return independence_power(rows, truth, epsilon=epsilon, level=level, adjacency=size.adjacency.value)

    return ask.estimated(power_at, f"estimated by simulation, for {rows} rows")


def _released(
    sealed: Sealed,
    shape: tuple[int, ...],
    size: TableSize,
    priced: Priced,
    bits: BitSource | None,
    question: str,
    ask: Ask,
) -> Release[Verdict]:
    source, scale = bits or system_bits(), size.cell_sensitivity / float(priced.epsilon)
    noisy = noisy_counts(sealed, priced.epsilon, source).reshape(shape)
    p = independence_p_value(noisy, size.rows, scale=scale, bits=source)
    statistic = float(table_statistic(Table(noisy[None], size.rows, scale))[0])
    return finished(
        "independence", statistic, p, size, priced, source, question, ask, level=_LEVEL, citations=_CITATIONS
    )
