"""Quantiles from a tree of noisy counts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data import Clamp
from expost.data.form_tree import BRANCHES, TreeForm
from expost.stats.readers.combination import combination_radius
from expost.stats.readers.contract import CLEAR, ClimbedReader
from expost.stats.reading import Reading

__all__ = ["QuantileReader"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QuantileReader(ClimbedReader):
    """Reads quantiles off noisy nodes: the edges between which the exact quantile must lie.

    Every count of leaves before an edge is a sum of few nodes; all of them err by at most their radius at once, except
    with the level. An edge whose count is surely below the rank is surely at or below the quantile, and so on.
    """

    form: TreeForm
    clamp: Clamp
    probabilities: tuple[Fraction, ...]

    def informed(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Whether the noisy number of rows is clear of the noise."""
        return np.asarray(noisy[:BRANCHES].sum(axis=0) > CLEAR * scale)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Values and intervals, group by group, the probabilities of each one after the other."""
        before = self.form.prefixes(noisy.astype(np.float64))
        each = level / (self.form.leaves + 1)
        most = self.form.levels * (BRANCHES - 1)
        radii = combination_radius(np.ones(most), scale, each), combination_radius(np.ones(BRANCHES), scale, each)
        edges = float(self.clamp.low) + np.linspace(0, 1, self.form.leaves + 1) * float(
            self.clamp.high - self.clamp.low
        )
        found = [self._one(before, radii, edges, float(share)) for share in self.probabilities]
        return Reading(*(np.stack(each, axis=1).ravel() for each in zip(*found, strict=True)))

    def _one(
        self, before: Floats, radii: tuple[float, float], edges: Floats, share: float
    ) -> tuple[Floats, Floats, Floats]:
        excess, radius = before - share * before[-1], radii[0] + share * radii[1]
        low = np.where(excess < -radius, np.arange(len(edges))[:, None], 0).max(axis=0)
        high = np.where(excess > radius, np.arange(len(edges))[:, None], len(edges) - 1).min(axis=0)
        middle = np.clip(np.abs(np.maximum.accumulate(excess, axis=0)).argmin(axis=0), low, high)
        return edges[middle], edges[low], edges[high]
