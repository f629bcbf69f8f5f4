"""Clipped gradients and curvatures of one-output linear models, together, as exact integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest, Norm, Sealed, Sensitivity
from expost.models.descent.features import FeatureGrid, GridRows
from expost.models.descent.gradient import ClippedGradient, Watcher, chunks
from expost.models.descent.head import CurvedHead, Head

__all__ = ["CurvedGradient", "curved"]

Floats = NDArray[np.float64]

_SLOPE = 0.5  # the curvature's sensitivity over the gradient's: the gradient gets four fifths of the privacy
_WIDEST = 512  # columns: a step releases half their square
_LEAST_LENGTH = 16  # lattice units, per root of the columns, that the longest scaled row must have


def curved(head: Head, columns: int) -> CurvedHead:
    """The head, if Newton steps can be made with it.

    >>> from expost.models.descent.head import Logistic
    >>> curved(Logistic(), 3).name
    'logistic'
    """
    if not isinstance(head, CurvedHead):
        raise InvalidRequest(
            "Expected two classes or a regression for Newton steps", do='Pass solver="gradient" for more classes'
        )
    if columns > _WIDEST:
        raise InvalidRequest(
            f"Expected at most {_WIDEST} columns, the intercept's included, for Newton steps",
            got=columns,
            do='Drop some, or pass solver="gradient"',
        )
    return head


@dataclass(frozen=True)
class CurvedGradient:
    """The sum over a batch of per-row clipped gradients and, behind it, of per-row curvatures, on one integer lattice.

    The curvature of row x with second derivative c is c x x', the outer product of sqrt(c) x with itself. That vector is
    scaled by a public number and rounded to integers u with |u|^2 <= ``curvature_limit``; the sum of u u' is a product
    of integer matrices, of which the upper triangle is kept. One row moves the gradient by at most its own sensitivity
    and the triangle by |u|^2, so both together by the root of the sum of their squares (docs/proofs/sgd-gradient.md).

    >>> from expost.models.descent.head import Logistic
    >>> grid = FeatureGrid(width=2)
    >>> rule = CurvedGradient(grid, Logistic(), clip=0.5, noise_multiplier=1.0)
    >>> rule.size
    9
    >>> rule.measure(grid.encode(np.eye(2)), np.array([0, 1]), np.zeros((1, 3)), slice(None))
    <sealed exact answer>
    """

    grid: FeatureGrid
    head: CurvedHead
    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if math.sqrt(self.curvature_limit) < _LEAST_LENGTH * math.sqrt(self.grid.columns):
            raise InvalidRequest(
                "Expected a noise multiplier that leaves room for rounding", got=self.noise_multiplier, do="Lower it"
            )

    @cached_property
    def gradient(self) -> ClippedGradient:
        """The gradient's part; its lattice leaves room for the noise of both parts."""
        return ClippedGradient(self.grid, self.head, self.clip, self.noise_multiplier * math.hypot(1.0, _SLOPE))

    @cached_property
    def curvature_limit(self) -> int:
        """How far one row can move the curvature's part, in lattice units."""
        return math.floor(_SLOPE * float(self.gradient.sensitivity.amount))

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far adding or removing one row moves the whole vector, rounded up to an integer."""
        squared = int(self.gradient.sensitivity.amount) ** 2 + self.curvature_limit**2
        return Sensitivity(math.isqrt(squared - 1) + 1, Norm.L2, Adjacency.ADD_REMOVE)

    @cached_property
    def row_unit(self) -> float:
        """What a row of the grid is multiplied by, beside the root of its second derivative, before it is rounded."""
        # Rounding to nearest adds at most sqrt(columns) / 2 to a length; one unit is for the floats.
        room = math.sqrt(self.curvature_limit) - math.sqrt(self.grid.columns) / 2 - 1
        return room / math.sqrt(self.grid.longest * self.head.curvature)

    @property
    def unit(self) -> float:
        """Lattice units of a curvature entry of 1."""
        return (self.row_unit * self.grid.unit) ** 2

    @property
    def size(self) -> int:
        """The number of weights and of entries in the upper triangle."""
        columns = self.grid.columns
        return columns + columns * (columns + 1) // 2

    def measure(
        self,
        rows: GridRows,
        targets: NDArray[Any],
        weights: Floats,
        index: NDArray[np.intp] | slice,
        *,
        watcher: Watcher | None = None,
    ) -> Sealed:
        """The sealed sum over the rows named by ``index``: the gradient, then the triangle row by row."""
        columns = self.grid.columns
        slope, bend = np.zeros(columns, np.int64), np.zeros((columns, columns), np.int64)
        for part in chunks(index, len(rows), columns):
            features, inverses = rows.take(part)
            scores = self.gradient.scores(rows, weights, part)
            if watcher is not None:
                watcher(scores, targets[part])
            slope += (self.gradient.residuals(scores, targets[part], inverses)[0] @ features).astype(np.int64)
            scaled = self._integers(features, self.head.curvatures(scores, targets[part])[0])
            bend += (scaled.T @ scaled).astype(np.int64)
        return Sealed(np.concatenate([slope, bend[np.triu_indices(columns)]]), self.sensitivity)

    def split(self, noisy: NDArray[Any]) -> tuple[Floats, Floats]:
        """A released vector as a sum of gradients and a symmetric matrix, in the units of the features."""
        columns = self.grid.columns
        bend = np.zeros((columns, columns))
        bend[np.triu_indices(columns)] = noisy[columns:]
        bend = bend + np.triu(bend, 1).T
        return np.asarray(noisy[:columns] / self.gradient.unit, np.float64), bend / self.unit

    def _integers(self, features: Floats, curvatures: Floats) -> Floats:
        """Rows times the roots of their second derivatives, in lattice units, none longer than the limit's root."""
        found: Floats = np.rint(features * (np.sqrt(curvatures) * self.row_unit)[:, None])
        # Cannot happen by the choice of ``row_unit``; if it did, the row would count for nothing.
        found[np.einsum("ij,ij->i", found, found) > self.curvature_limit] = 0
        return found
