"""Are two columns independent? The chi-squared test on a noisy two-way table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Release, Sealed
from expost.noise import BitSource, SeededBits, system_bits
from expost.stats.hypothesis.planned import chance_of, rows_of, strength_of
from expost.stats.hypothesis.power_bound import bound_on_share, fewest_counted
from expost.stats.hypothesis.price import SIMULATED, Ask, Priced
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.table import Table, independent_law, table_statistic
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

_DRAWS = 9_999
_POWER_DRAWS = 2_000
_PROOF_TABLES, _PROOF_DRAWS = 800, 499
_SLACK = 0.01  # by how much the share of simulated rejections may exceed the power, as each has fewer draws

Floats = NDArray[np.float64]


class IndependenceTest(TableTest):
    """Tests whether two columns of public categories are independent.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; replace-one with a public number of rows, or add-remove with a private one.
    Sensitivity: replace-one: 2 (L1), one row leaves a cell and enters another; add-remove: 1.
    Accuracy: the reference is drawn from the independent table fitted to the noisy one, refitted in every draw; its
        level is simulated down to 30 rows and epsilon 0.1. ``split_test`` has a level that is proved.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 3 (drawn reference); KR17, Section 6 (statistic); docs/proofs/noisy-reference.md
        (proved power).

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
    law = truth.sum(1, keepdims=True) * truth.sum(0, keepdims=True)

    def statistics(cells: Floats, bits: BitSource) -> Floats:
        return table_statistic(Table(drawn_tables(count, cells, _POWER_DRAWS, scale, bits), size.rows, scale))

    # Common random numbers: the power is then nearly a smooth function of epsilon.
    critical = np.quantile(statistics(law, SeededBits(0)), 1 - tail)
    return float((statistics(truth, SeededBits(1)) > critical).mean())


def independence_power_bound(
    rows: int, truth: Floats, *, epsilon: float, level: float, failure_probability: float
) -> float:
    """A lower bound on the power with a public number of rows, wrong with at most this probability.

    Whole tests are simulated, each with fewer draws of its reference than a real one and a stricter rule that makes up
    for it (``fewest_counted``); their share of rejections is bounded below (CP34).
    """
    counted = fewest_counted(level, _DRAWS, inner=_PROOF_DRAWS, slack=_SLACK)
    bits = SeededBits(2)
    tables = drawn_tables(rows, truth, _PROOF_TABLES, 2 / epsilon, bits)
    larger = np.array([_larger(each, rows, 2 / epsilon, _PROOF_DRAWS, bits) for each in tables])
    share = bound_on_share(int((larger <= counted).sum()), _PROOF_TABLES, failure_probability=failure_probability)
    return share - _SLACK


def independence_p_value(
    noisy: Floats, rows: int | None, *, scale: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> float:
    """The p-value of one noisy table."""
    return (1 + _larger(noisy, rows, scale, draws, bits or system_bits())) / (1 + draws)


def _larger(noisy: Floats, rows: int | None, scale: float, draws: int, bits: BitSource) -> int:
    """How many tables drawn from the fitted independent law are at least as far from independence."""
    table = Table(noisy[None], rows, scale)
    seen, size = float(table_statistic(table)[0]), round(float(table.sizes[0]))
    drawn = drawn_tables(size, independent_law(table)[0], draws, scale, bits)
    return int((table_statistic(Table(drawn, rows, scale)) >= seen).sum())


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

    def bound_at(epsilon: float, failure: float) -> float:
        return independence_power_bound(rows, truth, epsilon=epsilon, level=level, failure_probability=failure)

    if size.rows is None:
        return ask.estimated(power_at, f"estimated by simulation, for {rows} rows")
    return ask.proved(power_at, bound_at, basis=SIMULATED)


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
    return finished("independence", statistic, p, size, priced, source, question, ask)
