"""The minima of one table's risk under many tilts at once: a second solver, for tables of a few rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.core import EngineFailed
from expost.data.matrix import GRID_BITS, UnitRows
from expost.models.linear.losses import Loss

__all__ = ["ManyMinima"]

Floats = NDArray[np.float64]

_STEPS, _HALVINGS = 100, 40
_CLOSE = 1e-10  # of the gradient
_AT_ONCE = 1 << 17  # tilts solved together


@dataclass(frozen=True)
class ManyMinima:
    """Minimises mean loss + penalty / 2 |theta|^2 + tilt . theta for each row of a table of tilts.

    ``slopes(theta)`` is the change of variables the other way: the tilt whose minimum is theta. The density of the
    minimum at theta is that of the tilt there, times the determinant of ``curvatures(theta)``.

    >>> from expost.data.matrix import UnitBall, grid_numbers, read_rows
    >>> from expost.models.linear.losses import TruncatedSquare
    >>> rows = UnitRows(read_rows(np.array([[1.0]]), np.array([0.5])), UnitBall(1), grid_numbers(1.0))
    >>> ManyMinima(rows, TruncatedSquare(4.0), 1.0, 2.0**-GRID_BITS)(np.array([[0.0], [-1.0]])).round(3).tolist()
    [[0.25], [0.75]]
    """

    rows: UnitRows
    loss: Loss
    penalty: float
    target_scale: float = 1.0

    def __call__(self, tilts: Floats) -> Floats:
        """The minimum of each tilt, one a row."""
        parts = np.split(tilts, np.arange(_AT_ONCE, len(tilts), _AT_ONCE))
        return np.concatenate([self._solved(part) for part in parts])

    def slopes(self, theta: Floats) -> Floats:
        """Minus the gradient of the risk without a tilt, at each row of theta."""
        features, target, weight = self._table
        slope = self.loss.slope(theta @ features.T, target) * weight
        return np.asarray(-(slope @ features) - self.penalty * theta)

    def _solved(self, tilts: Floats) -> Floats:
        theta = np.zeros_like(tilts)
        for _ in range(_STEPS):
            gradient = tilts - self.slopes(theta)
            left = np.flatnonzero(np.abs(gradient).max(axis=1) > _CLOSE * (1 + np.abs(tilts).max(axis=1)))
            if not len(left):
                return theta
            theta[left] = self._stepped(theta[left], gradient[left], tilts[left])
        raise EngineFailed("Expected the solver to converge", do="Ask for a larger regularization")

    def _stepped(self, theta: Floats, gradient: Floats, tilts: Floats) -> Floats:
        """Newton steps, each halved until the length of its gradient falls."""
        features, target, weight = self._table
        bent = self.loss.curvature(theta @ features.T, target) * weight
        curvature = np.einsum("kr,ri,rj->kij", bent, features, features) + self.penalty * np.eye(theta.shape[1])
        direction = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        size, length = np.ones((len(theta), 1)), np.linalg.norm(gradient, axis=1)
        for _ in range(_HALVINGS):
            ahead = theta - size * direction
            worse = np.linalg.norm(tilts - self.slopes(ahead), axis=1) >= length
            if not worse.any():
                break
            size[worse] /= 2
        return np.asarray(theta - size * direction)

    @property
    def _table(self) -> tuple[Floats, Floats, Floats]:
        """Features in the unit ball, targets in the loss's units, and the weight of each row."""
        chunks = list(self.rows.chunks())
        features = np.concatenate([features for features, _ in chunks]) * 2.0**-GRID_BITS
        target = np.concatenate([target for _, target in chunks]) * self.target_scale
        seen, counts = np.unique(np.c_[features, target], axis=0, return_counts=True)
        return seen[:, :-1], seen[:, -1], counts / self.rows.rows
