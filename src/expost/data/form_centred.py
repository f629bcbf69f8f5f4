"""A centred sum and a count that cost together what the sum alone would cost when rows are replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.clamp import Clamp
from expost.data.sums import PowerSums

__all__ = ["CentredForm"]


@dataclass(frozen=True)
class CentredForm:
    """Each row's way from the middle of its bounds, 2 t - steps, and ``steps`` for being there at all.

    Replacing a value by another moves the first by at most 2 steps and the second not at all. Replacing a value by a
    missing one, or by a row that fails the filter, moves them by at most steps each. So under replace-one the number of
    rows costs nothing beside the sum (docs/proofs/shares.md).

    >>> CentredForm(Clamp.of((0, 120), whole=True)).row_spread
    240
    """

    clamp: Clamp
    size = 2
    degree = 1

    @property
    def row_size(self) -> int:
        return 2 * self.clamp.steps

    @property
    def row_spread(self) -> int:
        return 2 * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> NDArray[Any]:
        total = self.clamp.steps * sums.rows.astype(object)
        return np.stack([2 * sums.first[0].astype(object) - total, total])
