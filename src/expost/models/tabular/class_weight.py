"""Weights of classes: public ones, or balanced ones from counts that were released."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.table_profile import ChangedBlocks, RowBlocks, sum_blocks
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import BitSource

__all__ = ["BALANCED", "BALANCED_SHARE", "ClassWeights", "read_class_weight", "weigh_rows"]

BALANCED = "balanced"
"""Weights in inverse proportion to the classes' shares, which are released with noise."""
BALANCED_SHARE = 0.1
"""What the counts of classes may spend, as a share of the first rung."""
_LEAST = 0.01  # the smallest weight, where the largest is 1
_LARGEST_RATIO = 1e4


@dataclass(frozen=True)
class ClassWeights:
    """How much a row of each class counts. ``public`` has one factor per class, the largest 1; None for balanced ones.

    A row's weight is multiplied by the factor of its class, at most 1, so the weights of one unit's rows still add up to at
    most 1 and every sensitivity stays that of unweighted rows (docs/proofs/tabular-models.md, Lemma 3). A row whose label is
    not a class has the factor 1.
    """

    classes: int
    public: tuple[float, ...] | None

    @property
    def least(self) -> float:
        """Return a public number that no factor is below."""
        return _LEAST if self.public is None else min(self.public)

    def find_factors(
        self, blocks: RowBlocks, *, rows_per_unit: int, noise: Fraction | None, bits: BitSource
    ) -> tuple[float, ...]:
        """Return the factors; balanced ones need one Gaussian event of this noise multiplier."""
        if self.public is not None:
            return self.public
        assert noise is not None
        lattice = self.counting(rows_per_unit)
        total = sum_blocks(blocks, partial(_count_classes, lattice))
        released = lattice.release(total, noise, bits)
        # A count that the noise hides may be as large as the noise.
        counts = np.maximum(released, max(lattice.deviation(noise), 1.0))
        factors: list[float] = np.maximum(counts.min() / counts, _LEAST).tolist()
        return tuple(factors)

    def counting(self, rows_per_unit: int) -> LatticeSum:
        """Return the sum that counts the classes: a row's vector has a one for its class."""
        return LatticeSum(self.classes, 1.0, rows_per_unit)


def read_class_weight(given: Any, labels: Sequence[Any]) -> ClassWeights | None:
    """Return the weights that a caller asks for; None for None.

    >>> read_class_weight({"yes": 3, "no": 1}, ["no", "yes"]).public
    (0.3333333333333333, 1.0)
    """
    if given is None:
        return None
    if isinstance(given, str) and given == BALANCED:
        return ClassWeights(len(labels), None)
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            'Expected class_weight to be a mapping or "balanced"', got=given, do='Pass {"yes": 3, "no": 1}'
        )
    missing = [label for label in labels if label not in given]
    unknown = [label for label in given if label not in labels]
    if missing or unknown:
        raise InvalidRequest(
            "Expected class_weight to have one weight for each class", got=given, do=f"Name exactly {list(labels)}"
        )
    weights = [given[label] for label in labels]
    numbers = all(isinstance(each, Real) and not isinstance(each, bool) for each in weights)
    if not numbers or not all(math.isfinite(float(each)) and each > 0 for each in weights):
        raise InvalidRequest("Expected positive class weights", got=given, do="Leave a class out of classes instead")
    largest = float(max(weights))
    factors = tuple(float(each) / largest for each in weights)
    if min(factors) < 1 / _LARGEST_RATIO:
        raise InvalidRequest(
            f"Expected class weights that differ by a factor of at most {_LARGEST_RATIO:.0f}",
            got=given,
            do="Bring them nearer to each other",
        )
    return ClassWeights(len(labels), factors)


def weigh_rows(blocks: RowBlocks, factors: Sequence[float]) -> RowBlocks:
    """Return the rows with their weights times the factor of their class."""
    return ChangedBlocks(blocks, partial(_weigh_chunk, np.array([*factors, 1.0])))  # place -1 is that of other labels


def _weigh_chunk(factors: NDArray[np.float64], rows: RowChunk) -> RowChunk:
    # Rounding to nearest is monotone and the factor is at most 1, so no product is above the weight.
    weights = np.asarray(rows.weights, np.float64) * factors[np.asarray(rows.targets, np.intp)]
    return RowChunk(rows.features, rows.targets, weights.astype(np.float32))


def _count_classes(lattice: LatticeSum, chunks: Iterable[RowChunk]) -> NDArray[np.int64]:
    total = lattice.start()
    for rows in chunks:
        lattice.add(total, np.asarray(rows.targets)[:, None] == np.arange(lattice.size), rows.weights)
    return total
