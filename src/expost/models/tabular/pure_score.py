"""Scores of a model under Laplace noise, and the summary of a table: its units and its target."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder, Measure, Target
from expost.models.tabular.laplace_sum import LaplaceSum
from expost.models.tabular.score_sum import ScoreSum
from expost.models.tabular.table_profile import RowBlocks, TableProfile, sum_blocks
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["PureScoreSum", "TableSummary", "find_pure_reach", "laplace_reach"]

Floats = NDArray[np.float64]
_USUAL_REACH = 6.0  # deviations of a model's predictions; fewer would cut those of skewed targets
_LEAST_SPREAD = 2.0**-10  # of a target, in half its range
_FEWEST = 17  # noise scales: a table of more than four times the counted units then has probability below exp(-51)
_SIDE, _TESTED_SIDE = 0.1, 0.03  # of a vector, for the other measures: under Laplace noise lengths add up


def laplace_reach(failure_probability: float) -> float:
    """Return how many scales Laplace noise is exceeded by on one side, with this probability at most.

    >>> round(laplace_reach(0.05), 2)
    2.3
    """
    return math.log(1 / (2 * min(failure_probability, 0.5)))


def find_pure_reach(target: Target | None, profile: TableProfile) -> float:
    """Return how far a regression's predictions may be from the middle: far beyond those of a model of the target's R^2."""
    if target is None or target.measure is not Measure.R2:
        return 2.0
    return min(2.0, _USUAL_REACH * math.sqrt(float(target.tolerance)) * profile.target_spread)


@dataclass(frozen=True)
class PureScoreSum(ScoreSum):
    """``ScoreSum`` for a release under Laplace noise; ``read`` and ``deviation`` take a level epsilon as the noise.

    Guarantee: none by itself; a release of the sum is pure epsilon-DP.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: that of ``LaplaceSum`` for vectors of 1-norm 1 + 2 side.
    Accuracy: ``passes``; a model that misses the target passes with the given probability at most.
    Numerics: scores are a row's own, bit for bit; sums are exact integers.
    Reference: docs/proofs/pure-tabular-models.md, Theorem 3.
    """

    side: float = _SIDE

    def __post_init__(self) -> None:
        if self.target is not None:
            object.__setattr__(self, "side", _TESTED_SIDE)

    @cached_property
    def lattice(self) -> LaplaceSum:  # type: ignore[override]
        """Return the sum's lattice."""
        return LaplaceSum(3, 1 + 2 * self.side, self.rows_per_unit, floor_first=True)

    def find_margin(self, profile: TableProfile, failure: float) -> float:
        """Return what the deciding sum may be too large by for other reasons than its noise, except with this probability.

        Discrete Laplace noise is within a lattice unit of real one. For R^2 distances are measured from a noisy middle c:
        they add up to n (c - mean)^2 more than those from the mean.
        """
        margin = self.height / self.lattice.unit
        if self.target is not None and self.target.measure is Measure.R2:
            # Count and sum of targets have Laplace noise of known scales; four tails share the failure probability.
            # A lattice unit is at most a thousandth of a scale, which covers the distance from real noise.
            reach = (laplace_reach(failure / 4) + 1e-3) / math.sqrt(2)
            counted = reach * profile.rows_error / profile.rows
            told = reach * profile.target_error
            mean = min(1.0, abs(profile.target_middle) + told + counted)
            off = told + mean * counted
            margin += (1 - self._level) * profile.most_rows(reach) * off**2
        return margin

    def passing_surplus(self, epsilon: Fraction, failure: float, margin: float) -> float:
        """Return the noisy sum from which on a test passes: a model that misses does so with ``failure`` at most."""
        return laplace_reach(failure) * self.lattice.scale(epsilon) * self.height + margin


@dataclass(frozen=True)
class TableSummary:
    """Number of units and the target's first moments, or its classes, released gradually.

    The vector of a row is (1, target, target^2), or (1, one of the classes).

    Guarantee: none by itself; a prefix of the path costs its last level.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: L1: 3 for a numeric target in [-1, 1], 2 for classes, plus rounding (``LaplaceSum``).
    Accuracy: none promised.
    Numerics: exact integers.
    Reference: docs/proofs/pure-tabular-models.md, Theorem 2; LNRWW17, Theorem 2.7.
    """

    width: int
    squared_length: float
    classes: int | None
    rows_per_unit: int = 1
    public_rows: int | None = None

    @cached_property
    def lattice(self) -> LaplaceSum:
        """Return the sum's lattice."""
        size = 3 if self.classes is None else 1 + self.classes
        return LaplaceSum(size, 3.0 if self.classes is None else 2.0, self.rows_per_unit)

    def open_path(self, blocks: RowBlocks, ladder: Ladder, bits: BitSource | None) -> DiscreteLaplacePath:
        """Return the summary of all rows under noise that shrinks from level to level."""
        return self.lattice.open_path(sum_blocks(blocks, self._sum_chunks), ladder, bits)

    def _sum_chunks(self, chunks: Iterable[RowChunk]) -> NDArray[np.int64]:
        total = self.lattice.start()
        for rows in chunks:
            targets = np.asarray(rows.targets)
            if self.classes is None:
                numbers = np.asarray(targets, np.float64)
                told = np.column_stack([numbers, numbers**2])
            else:
                told = np.asarray(targets[:, None] == np.arange(self.classes), np.float64)
            self.lattice.add(total, np.column_stack([np.ones(len(targets)), told]), rows.weights)
        return total

    def read(self, released: NDArray[np.int64], epsilon: Fraction) -> tuple[TableProfile, int]:
        """Return the profile of features that are used as they are, and a number of units for the solver.

        A table has more than four times that number of units with probability exp(-51) at most, whatever was declared.
        """
        sums = np.asarray(released, np.float64) / self.lattice.unit
        scale, deviation = self.lattice.scale(epsilon), self.lattice.deviation(epsilon)
        units = math.ceil(max(float(sums[0]), _FEWEST * scale, 1.0))
        count = max(float(sums[0]), 1.0) if self.public_rows is None else float(self.public_rows)
        middle, spread, shares = 0.0, 1.0, ()
        if self.classes is None:
            middle = float(np.clip(sums[1] / count, -1.0, 1.0))
            # A spread that the noise hides is taken for its level.
            variance = max(float(sums[2]) / count - middle**2, deviation / count, _LEAST_SPREAD**2)
            spread = math.sqrt(min(variance, 1.0))
        else:
            shares = tuple(np.clip(sums[1:] / count, 0.0, 1.0).tolist())
        profile = TableProfile(
            rows=count,
            middles=np.zeros(self.width),
            factors=np.ones(self.width),
            length=math.sqrt(self.squared_length) / 4 * (1 + 2.0**-20),  # no row is shortened (``fit_grid``)
            target_middle=middle,
            target_spread=spread,
            target_error=deviation / count,
            shares=shares,
            rows_error=0.0 if self.public_rows is not None else deviation,
        )
        return profile, units
