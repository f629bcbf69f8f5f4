"""Exact risks of many hypotheses at once: what a simulation may look at and a release may not."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost.experiments.tables import Table

__all__ = ["ExactRisk", "LogisticRisk", "RidgeRisk", "exact_risk"]

Floats = NDArray[np.float64]

_NEWTON_STEPS = 50
_CHUNK = 16  # hypotheses at a time: their scores on all distinct rows stay in the cache of the processor


class ExactRisk(Protocol):
    """Excess risks of rows of coefficients, in the paper's objective and in the one its authors' code measures."""

    best: Floats

    def excesses(self, thetas: Floats) -> tuple[Floats, Floats]: ...

    def floor(self, thetas: Floats) -> Floats: ...


class RidgeRisk:
    """Half the mean squared error plus penalty / 2 |theta|^2, from second moments.

    The authors' code solves this problem but reports a quarter of the mean squared error plus the same penalty.

    >>> from expost.experiments.tables import load
    >>> risk = RidgeRisk(load("made-up regression", None, rows=500), 0.005)
    >>> risk.excesses(risk.best[None])
    (array([0.]), array([0.]))
    """

    def __init__(self, table: Table, penalty: float) -> None:
        rows, width = table.rows, table.width
        self.gram = table.features.T @ table.features / rows
        self.cross = table.features.T @ table.target / rows
        self._square = float(table.target @ table.target) / rows
        self._penalty = penalty
        self.best: Floats = np.asarray(np.linalg.solve(self.gram + penalty * np.eye(width), self.cross), np.float64)
        self._lowest = self._risk(self.best[None], 0.5)[0]
        self._authors_lowest = self._risk(self.best[None], 0.25)[0]

    def _risk(self, thetas: Floats, share: float) -> Floats:
        squared = np.einsum("ki,ki->k", thetas @ self.gram, thetas) - 2 * thetas @ self.cross + self._square
        risks: Floats = share * squared + self._penalty / 2 * (thetas**2).sum(axis=1)
        return risks

    def excesses(self, thetas: Floats) -> tuple[Floats, Floats]:
        """How far each is above the minimum; the authors' measure is lowest elsewhere and can be negative."""
        return self._risk(thetas, 0.5) - self._lowest, self._risk(thetas, 0.25) - self._authors_lowest

    def floor(self, thetas: Floats) -> Floats:
        """Nothing: moments are cheap enough to look at every hypothesis."""
        return np.full(len(thetas), -np.inf)


class LogisticRisk:
    """Mean logistic loss plus penalty / 2 |theta|^2, over distinct rows weighted by how often they occur."""

    def __init__(self, table: Table, penalty: float) -> None:
        signed = np.ascontiguousarray(table.features * table.target[:, None])
        # Rows as bytes: sorting those is some ten times faster than sorting rows of floats.
        distinct, counts = np.unique(
            signed.view(np.dtype((np.void, signed.itemsize * table.width))), return_counts=True
        )
        self._rows: Floats = distinct.view(np.float64).reshape(len(distinct), table.width)
        self._weights = counts / table.rows
        self._penalty = penalty
        self.best = self._minimise(np.zeros(table.width))
        self._lowest = self._risk(self.best[None])[0]

    def _minimise(self, theta: Floats) -> Floats:
        """Newton's method; the loss is self-concordant enough for full steps from zero with rows of norm 1."""
        for _ in range(_NEWTON_STEPS):
            slope = self._weights * expit(-(self._rows @ theta))
            gradient = self._penalty * theta - self._rows.T @ slope
            if np.linalg.norm(gradient) < 1e-13:
                break
            curvature = slope * expit(self._rows @ theta)
            hessian = (self._rows.T * curvature) @ self._rows + self._penalty * np.eye(len(theta))
            theta = theta - np.linalg.solve(hessian, gradient)
        return theta

    def _risk(self, thetas: Floats) -> Floats:
        losses = np.concatenate(
            [
                self._weights @ _softplus(-(self._rows @ thetas[start : start + _CHUNK].T))
                for start in range(0, len(thetas), _CHUNK)
            ]
        )
        risks: Floats = losses + self._penalty / 2 * (thetas**2).sum(axis=1)
        return risks

    def excesses(self, thetas: Floats) -> tuple[Floats, Floats]:
        """How far each is above the minimum; the authors' code measures this loss as the paper writes it."""
        excess = self._risk(thetas) - self._lowest
        return excess, excess

    def floor(self, thetas: Floats) -> Floats:
        """A lower bound on the excess risk that needs no rows: penalty / 2 |theta - best|^2 (strong convexity)."""
        bound: Floats = self._penalty / 2 * ((thetas - self.best) ** 2).sum(axis=1)
        return bound


def exact_risk(table: Table, penalty: float) -> ExactRisk:
    """The risk that suits the table."""
    return LogisticRisk(table, penalty) if table.classification else RidgeRisk(table, penalty)


def _softplus(values: Floats) -> Floats:
    """ln(1 + e^v) without overflow."""
    smooth: Floats = np.log(1 + np.exp(-np.abs(values))) + np.maximum(values, 0)
    return smooth


def shrunk(thetas: Floats, radius: float) -> Floats:
    """Hypotheses longer than the radius, shortened to it (LNRWW17, Algorithm 5 with its inequality the right way)."""
    length = np.linalg.norm(thetas, axis=1, keepdims=True)
    return np.where(length > radius, thetas * (radius / np.maximum(length, math.ulp(1.0))), thetas)
