"""Do counts follow a given law? The chi-squared test of goodness of fit on noisy counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Release, Sealed
from expost.data import Dataset
from expost.noise import BitSource, SeededBits, discrete_laplace, system_bits
from expost.stats.hypothesis.draw import more_rows, multinomials
from expost.stats.hypothesis.noise_reach import NUISANCE_SIZE, size_range
from expost.stats.hypothesis.planned import chance_of, rows_of, strength_of
from expost.stats.hypothesis.power_bound import bound_on_share, chance_kept, critical_value
from expost.stats.hypothesis.price import SIMULATED, Ask, Priced
from expost.stats.hypothesis.size import TableSize, fewest_rows
from expost.stats.hypothesis.table import fit_statistic, noise_variance, shape_statistic
from expost.stats.hypothesis.table_test import (
    TableTest,
    chances_of,
    counts_of,
    drawn_tables,
    finished,
    noisy_counts,
    sealed_counts,
)
from expost.stats.hypothesis.verdict import PROVED, Verdict

__all__ = ["GoodnessOfFitTest", "fit_power", "fit_test"]

_DRAWS = 9_999
_DRAWS_A_SIZE = 1_999  # of the reference for each number of rows that is possible
_POWER_DRAWS, _PROOF_DRAWS, _PROOF_NULL_DRAWS = 2_000, 20_000, 100_000
_STRIDE = 0.1  # numbers of rows that differ by this many standard deviations of a cell share a reference
_FEW_ROWS = 128  # that are faster added row by row than drawn at once
_ENTRIES = 1 << 21  # counts that are worked on at once

Floats = NDArray[np.float64]


class GoodnessOfFitTest(TableTest):
    """Tests whether a column's categories have given probabilities.

    Guarantee: pure DP with the epsilon given, or the smallest that reaches ``power`` at ``effect``; known before the
        run.
    Adjacency: as the dataset's; replace-one with a public number of rows, or add-remove with a private one. Rows
        outside the public categories must not exist under the null hypothesis; they count as missing.
    Sensitivity: replace-one: 2 (L1), one row leaves a cell and enters another; add-remove: 1.
    Accuracy: P(p-value <= level) <= level, for every number of rows and every epsilon: the reference is drawn from the
        null hypothesis itself, sampling and noise; a private number of rows is maximised over a confidence set.
    Numerics: exact counts and noise; the reference is post-processing.
    Reference: GLRV16, Algorithm 1 (drawn reference); KR17, Section 5 (statistic); BC91, Section 2 (level);
        docs/proofs/noisy-reference.md (private number of rows, proved power).

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
        expected_rows: int | None = None,
    ) -> None:
        ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
        super().__init__([column], "goodness of fit", ask, effect, expected_rows)
        self._chances = chances_of(chances)

    def check(self, dataset: Dataset) -> None:
        if len(dataset.categories.get(self._columns[0], ())) != self._chances.size:
            raise InvalidRequest(
                "Expected one probability for each public category",
                got=self._chances.size,
                do="Declare Dataset(categories=) and give their probabilities in that order",
            )
        super().check(dataset)

    def _price(self) -> Priced:
        return _price(self._ask, self._size, self._chances, self._effect)

    def _release(self, sealed: Sealed, priced: Priced, bits: BitSource | None) -> Release[Verdict]:
        return _released(sealed, self._size, self._chances, priced, bits, self.question, self._ask)


def fit_test(
    counts: Any,
    chances: Sequence[float],
    *,
    adjacency: str = "replace-one",
    epsilon: object = None,
    power: object = None,
    effect: Sequence[float] | None = None,
    level: object = 0.05,
    max_epsilon: object = None,
    expected_rows: int | None = None,
    bits: BitSource | None = None,
) -> Release[Verdict]:
    """The goodness-of-fit test on a list of exact counts; their total is public unless ``adjacency="add-remove"``.

    ``power=`` with ``effect`` (the true probabilities) prices the test; with a private total for ``expected_rows``.

    >>> from expost.noise import SeededBits
    >>> fit_test([300, 100, 100], [1 / 3] * 3, epsilon=0.5, bits=SeededBits(1)).value.rejects(0.01)
    True
    """
    table, law = counts_of(counts, 1, fewest=fewest_rows(1, adjacency=adjacency)), chances_of(chances)
    if table.size != law.size:
        raise InvalidRequest("Expected one probability for each count", got=law.size, do="Pass equally many")
    ask = Ask(epsilon=epsilon, power=power, level=level, max_epsilon=max_epsilon)
    size = TableSize.of(int(table.sum()), adjacency=adjacency, expected_rows=expected_rows)
    priced = _price(ask, size, law, effect)
    return _released(sealed_counts(table, size), size, law, priced, bits, "goodness of fit", ask)


def fit_power(
    rows: int,
    chances: Sequence[float],
    effect: Sequence[float],
    *,
    epsilon: float,
    level: float = 0.05,
    adjacency: str = "replace-one",
) -> float:
    """The power when the true probabilities are ``effect``; drawn with fixed bits, good to about 0.02.

    >>> fit_power(1000, [0.25] * 4, [0.3, 0.2, 0.3, 0.2], epsilon=0.5) > 0.8
    True
    """
    law, truth, count, tail = chances_of(chances), chances_of(effect), rows_of(rows), chance_of(level)
    if law.shape != truth.shape:
        raise InvalidRequest("Expected an effect with one probability for each category", do="Pass as many as chances")
    size = TableSize.of(count, adjacency=adjacency)
    scale = size.cell_sensitivity / strength_of(epsilon)
    tail = tail if size.rows is not None else max(tail - NUISANCE_SIZE, 0.0)
    # Common random numbers: the power is then nearly a smooth function of epsilon.
    critical = np.quantile(_statistics(count, law, law, scale, _POWER_DRAWS, SeededBits(0)), 1 - tail)
    return float((_statistics(count, law, truth, scale, _POWER_DRAWS, SeededBits(1)) > critical).mean())


def fit_power_bound(
    rows: int, law: Floats, truth: Floats, *, epsilon: float, level: float, failure_probability: float
) -> float:
    """A lower bound on the power with a public number of rows, wrong with at most this probability.

    A value that the null law exceeds with at most probability q (order statistics), the share of tables of the
    alternative that exceed it (CP34), and the chance that the drawn reference of such a table has few enough larger
    draws (docs/proofs/noisy-reference.md).
    """
    tail, sure = chance_kept(level, _DRAWS)
    half = failure_probability / 2
    null = _statistics(rows, law, law, 2 / epsilon, _PROOF_NULL_DRAWS, SeededBits(2))
    critical = critical_value(null, tail, failure_probability=half)
    seen = _statistics(rows, law, truth, 2 / epsilon, _PROOF_DRAWS, SeededBits(3))
    return sure * bound_on_share(int((seen > critical).sum()), _PROOF_DRAWS, failure_probability=half)


def fit_p_values(
    noisy: Floats, rows: int, chances: Floats, *, scale: float, draws: int = _DRAWS, bits: BitSource | None = None
) -> Floats:
    """P-values of noisy counts (last axis: cells), one for each repetition, all from one drawn reference."""
    seen = fit_statistic(noisy, rows, chances, scale)
    reference = np.sort(_statistics(rows, chances, chances, scale, draws, bits or system_bits()))
    larger = draws - np.searchsorted(reference, seen, side="left")
    p: Floats = (1 + larger) / (1 + draws)
    return p


def private_fit_p_value(
    noisy: Floats, chances: Floats, *, scale: float, draws: int = _DRAWS_A_SIZE, bits: BitSource | None = None
) -> float:
    """The p-value of noisy counts whose true total is not known: the largest over all totals that are possible.

    Totals are taken in blocks: a table with up to ``step`` more rows than the first total of a block has a statistic
    larger by at most ``step`` times what one row adds, since the statistic is a norm (docs/proofs/noisy-reference.md).
    """
    source = bits or system_bits()
    low, high = size_range(float(noisy.sum()), noisy.size, scale)
    step = max(1, math.floor(_STRIDE * math.sqrt(low * chances.min() + noise_variance(scale))))
    noise = discrete_laplace(Fraction(scale), (draws, noisy.size), bits=source).astype(np.float64)
    counts = multinomials(low, chances, draws, source)
    firsts, largest = np.arange(low, high + 1, step), 0.0
    few = step <= _FEW_ROWS
    at_once = max(1, _ENTRIES // (draws * noisy.size * (step if few else 1)))
    for start in range(0, len(firsts), at_once):
        block = firsts[start : start + at_once]
        added = (more_rows if few else multinomials)(step, chances, len(block) * draws, source)
        added = added.reshape(len(block), draws, noisy.size)
        tables = counts + np.cumsum(added, axis=0) - added
        counts = tables[-1] + added[-1]
        more = (step - 1) * shape_statistic(np.eye(noisy.size)[None], block, chances, scale).max(1)
        reference = shape_statistic(tables + noise, block, chances, scale) + more[:, None]
        seen = shape_statistic(np.broadcast_to(noisy, (len(block), noisy.size)), block, chances, scale)
        larger = (reference >= seen[:, None]).sum(1).max()
        largest = max(largest, float((1 + larger) / (1 + draws)))
    return min(largest + NUISANCE_SIZE, 1.0)


def _statistics(rows: int, law: Floats, cells: Floats, scale: float, draws: int, bits: BitSource) -> Floats:
    """The statistic against a law, of noisy tables whose cells have these probabilities."""
    return fit_statistic(drawn_tables(rows, cells, draws, scale, bits), rows, law, scale)


def _price(ask: Ask, size: TableSize, law: Floats, effect: Sequence[float] | None) -> Priced:
    if ask.fixed is not None:
        return ask.fixed
    if effect is None:
        raise InvalidRequest("Expected the probabilities at which the power is asked", do="Pass effect=")
    truth, rows, level = chances_of(effect), size.priced_rows, float(ask.level)
    if truth.size != law.size:
        raise InvalidRequest("Expected an effect of one probability a category", got=truth.size, do="Pass as many")

    def power_at(epsilon: float) -> float:
        return fit_power(
            rows, law.tolist(), truth.tolist(), epsilon=epsilon, level=level, adjacency=size.adjacency.value
        )

    def bound_at(epsilon: float, failure: float) -> float:
        return fit_power_bound(rows, law, truth, epsilon=epsilon, level=level, failure_probability=failure)

    if size.rows is None:
        return ask.estimated(power_at, f"estimated by simulation, for {rows} rows")
    return ask.proved(power_at, bound_at, basis=SIMULATED)


def _released(
    sealed: Sealed, size: TableSize, law: Floats, priced: Priced, bits: BitSource | None, question: str, ask: Ask
) -> Release[Verdict]:
    source, scale = bits or system_bits(), size.cell_sensitivity / float(priced.epsilon)
    noisy = noisy_counts(sealed, priced.epsilon, source)
    if size.rows is None:
        p = private_fit_p_value(noisy, law, scale=scale, bits=source)
        statistic = float(shape_statistic(noisy, max(int(noisy.sum()), 1), law, scale)) ** 2
    else:
        p = float(fit_p_values(noisy[None], size.rows, law, scale=scale, bits=source)[0])
        statistic = float(fit_statistic(noisy[None], size.rows, law, scale)[0])
    return finished("goodness of fit", statistic, p, size, priced, source, question, ask, level=PROVED)
