"""Bounds of a column found privately: doubling bins whose noisy counts rise above what noise alone would do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
)
from expost.core.rational import probability, rational
from expost.data import Dataset, Expression
from expost.data.axis import LogBins
from expost.data.form import CountForm
from expost.data.tally import Tally
from expost.noise import BitSource, DiscreteLaplacePath, system_bits
from expost.noise.level import check_level
from expost.stats.table_release import AnswerRelease

__all__ = ["ApproximateBounds", "bin_threshold"]


def bin_threshold(success_probability: float, scale: float, bins: int) -> int:
    """The smallest t such that noise alone lifts none of ``bins`` empty bins above t, with this probability.

    The bins' noises are independent and P(noise > t) = a^(t+1) / (1 + a), a = exp(-1 / scale), so the condition is
    (1 - P(noise > t))^bins >= c; for continuous noise this is scale * ln(1 / (2 (1 - c^(1/bins)))) with *all* bins in
    the exponent and the factor 2 (the slide this statistic comes from has neither, and a wrong sign).

    >>> bin_threshold(0.9, 1.0, 8)
    4
    """
    allowed = -math.expm1(math.log(success_probability) / bins)
    tail = math.log(1 / (allowed * (1 + math.exp(-1 / scale))))
    return max(math.ceil(scale * tail * (1 + 1e-12)) - 1, 0)


@dataclass(frozen=True)
class FoundBounds:
    """What was found: the outer ends of the outermost bins that rise above the threshold."""

    low: float
    high: float

    @staticmethod
    def of(noisy: NDArray[Any], threshold: int, axis: LogBins) -> FoundBounds | None:
        """The bounds that noisy counts show, or none."""
        above = np.flatnonzero(noisy > threshold)
        if not above.size:
            return None
        ends = np.array(axis.labels, dtype=float)
        first, last = int(above[0]), int(above[-1])
        # The inner end of the first positive bin is zero, of a later one the end of the bin before it.
        low = ends[first] if first < axis.count else (0.0 if first == axis.count else ends[first - 1])
        high = ends[last] if last >= axis.count else (0.0 if last == axis.count - 1 else ends[last + 1])
        return FoundBounds(float(low), float(high))


class ApproximateBounds:
    """Public-looking bounds for a column whose range is unknown: rough (a factor 2), and paid for.

    ``confidence`` is the probability that no *empty* bin is mistaken for a filled one; values in thin outer bins may
    be cut off. ``smallest`` and ``largest`` say which sizes can be told apart; they must not be read off the data.

    Guarantee: pure DP, known before the run.
    Adjacency: the dataset's.
    Sensitivity: the rows a unit may have, in L1, over all bins together.
    Accuracy: with the asked confidence no bound lies beyond the values' own bins.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: WZLDSG20, Section 4 (approximate bounds; threshold corrected, see ``bin_threshold``).

    >>> ApproximateBounds("income", epsilon=0.1).question
    'approximate bounds of income'
    """

    def __init__(
        self,
        column: str | Expression,
        *,
        epsilon: object,
        confidence: object = 0.95,
        smallest: float = 1.0,
        largest: float = 2.0**40,
        where: Expression | str | None = None,
    ) -> None:
        self._level = rational(epsilon, "epsilon")
        self._confidence = probability(confidence, "confidence")
        low, high = rational(smallest, "smallest"), rational(largest, "largest")
        if low >= high:
            raise InvalidRequest("Expected smallest below largest", got=smallest, do="Pass smallest=1, largest=1e9")
        self._column, self._where = column, where
        self._scale, self._count = float(low), math.ceil(math.log2(high / low)) + 1

    @property
    def question(self) -> str:
        """The question in public words."""
        return f"approximate bounds of {self._column}" + ("" if self._where is None else f" where {self._where}")

    @property
    def worst_case(self) -> Loss:
        """The price."""
        return PureLoss(self._level)

    def check(self, dataset: Dataset) -> None:
        """Refuse what the dataset's public description cannot answer."""
        tally = self._tally(dataset)
        dataset.clamp(dataset.expression(self._column), (0, 1))  # refuses what is not a number
        check_level(self._level, dataset.sensitivity(CountForm(), tally).amount)

    def _tally(self, dataset: Dataset) -> Tally:
        axis = LogBins(dataset.expression(self._column), self._scale, self._count)
        return dataset.tally(axes=(axis,), where=dataset.condition(self._where))

    def measure(self, dataset: Dataset) -> Sealed:
        """The exact counts of the bins, sealed."""
        return dataset.total(CountForm(), self._tally(dataset), secret=system_bits().words(4).tobytes())

    def climb(self, sealed: Sealed, bits: BitSource | None = None) -> Release[tuple[float, float] | None]:
        """The bounds, or a flagged None when no bin stands out."""
        noisy = DiscreteLaplacePath(sealed, Ladder((self._level,)), bits=bits).at(0)
        threshold = bin_threshold(float(self._confidence), float(sealed.sensitivity.amount / self._level), len(noisy))
        axis = LogBins(Expression(), self._scale, self._count)
        found = FoundBounds.of(noisy, threshold, axis)
        receipt = Receipt(
            question=self.question,
            method="doubling bins above a threshold, discrete Laplace",
            promise=PureGuarantee(self._level),
            bill=PureLoss(self._level),
            adjacency=sealed.sensitivity.adjacency,
            unit=sealed.sensitivity.unit,
            outcome=Outcome.NOT_MET if found is None else Outcome.FIXED,
            terms={"bins": len(noisy), "threshold": threshold, "confidence": float(self._confidence)},
            citations=("WZLDSG20, Section 4",),
        )
        return AnswerRelease(None if found is None else (found.low, found.high), receipt)
