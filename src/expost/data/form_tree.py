"""Counts at every level of a tree over ordered leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.sums import PowerSums

__all__ = ["BRANCHES", "TreeForm"]

BRANCHES = 8
"""Children of a node: of the small powers of two the one with the least noise in a prefix of 512 leaves."""


@dataclass(frozen=True)
class TreeForm:
    """The counts of all nodes below the root of a tree with ``BRANCHES ** levels`` leaves, level after level.

    A row is in one node of each level, so it adds ``levels`` to the L1 norm. Any run of leaves from the first on is a
    sum of at most ``levels * (BRANCHES - 1)`` nodes (HRMS10, Section 4).

    >>> TreeForm(3).leaves, TreeForm(3).size
    (512, 584)
    """

    levels: int
    degree = 0

    @property
    def leaves(self) -> int:
        """The number of leaves of one group."""
        return int(BRANCHES**self.levels)

    @property
    def size(self) -> int:
        return sum(BRANCHES**level for level in range(1, self.levels + 1))

    @property
    def row_size(self) -> int:
        return self.levels

    @property
    def row_spread(self) -> int:
        return 2 * self.levels

    def coordinates(self, sums: PowerSums) -> NDArray[Any]:
        """One row a node, one column a group; the sums' cells are groups times leaves."""
        leaves = sums.rows.reshape(-1, self.leaves)
        nodes = [leaves.reshape(len(leaves), BRANCHES**level, -1).sum(axis=2) for level in range(1, self.levels + 1)]
        return np.concatenate(nodes, axis=1).T

    def prefixes(self, nodes: NDArray[Any]) -> NDArray[np.float64]:
        """The counts of the leaves before each edge, from (noisy) nodes: one row an edge, one column a group."""
        place = np.arange(self.leaves + 1)
        total = np.zeros((self.leaves + 1, nodes.shape[1]))
        start = 0
        for level in range(1, self.levels + 1):
            count, width = BRANCHES**level, BRANCHES ** (self.levels - level)
            ends = np.concatenate([np.zeros((1, nodes.shape[1])), np.cumsum(nodes[start : start + count], axis=0)])
            within = place // width  # nodes of this level that lie wholly before the edge
            counted = (place // (width * BRANCHES)) * BRANCHES if level > 1 else 0  # by the level above
            total += ends[within] - ends[counted]
            start += count
        return total
