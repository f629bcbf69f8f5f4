"""Losses of a linear score, with the bounds on slope and curvature that privacy needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost.core import InvalidRequest

__all__ = ["HuberHinge", "LogisticLoss", "RowLoss", "TruncatedSquare"]

Floats = NDArray[np.float64]


class RowLoss(Protocol):
    """A convex, non-negative loss of a row's score and target, with the name used in receipts.

    For every score and every target ``steepest`` bounds the magnitude of the slope, ``sharpest`` the curvature (the
    Lipschitz constant of the slope) and ``at_zero`` the loss of the score 0. A loss is ``one_sided`` if the target alone
    determines the sign of the slope. The methods return losses, and first and second derivatives in the score (where
    they exist), elementwise.
    """

    @property
    def name(self) -> str: ...
    @property
    def steepest(self) -> float: ...
    @property
    def sharpest(self) -> float: ...
    @property
    def at_zero(self) -> float: ...
    @property
    def one_sided(self) -> bool: ...
    def value_at(self, score: Floats, target: Floats) -> Floats: ...
    def slope_at(self, score: Floats, target: Floats) -> Floats: ...
    def curvature_at(self, score: Floats, target: Floats) -> Floats: ...


@dataclass(frozen=True)
class LogisticLoss:
    """log(1 + exp(-target * score)) for targets of -1 and 1."""

    name = "logistic loss"
    steepest = 1.0
    sharpest = 0.25
    at_zero = math.log(2)
    one_sided = True

    def value_at(self, score: Floats, target: Floats) -> Floats:
        return np.logaddexp(0.0, -target * score)

    def slope_at(self, score: Floats, target: Floats) -> Floats:
        slope: Floats = -target * expit(-target * score)
        return slope

    def curvature_at(self, score: Floats, target: Floats) -> Floats:
        positive = expit(score)
        curvature: Floats = positive * (1 - positive)
        return curvature


@dataclass(frozen=True)
class HuberHinge:
    """The hinge max(0, 1 - m), m = target * score, with its corner rounded over [1 - width, 1 + width].

    CMS11, section 3.4.2 (recalled): (1 + width - m)^2 / (4 width) on the rounded part.
    """

    width: float = 0.5
    name = "Huber hinge loss"
    steepest = 1.0
    one_sided = True

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise InvalidRequest("Expected a positive width of the rounded corner", got=self.width, do="Pass 0.5")

    @property
    def sharpest(self) -> float:
        return 1 / (2 * self.width)

    @property
    def at_zero(self) -> float:
        return 1.0 if self.width <= 1 else (1 + self.width) ** 2 / (4 * self.width)

    def _margin_shortfall(self, score: Floats, target: Floats) -> Floats:
        """Return how far a margin falls short of 1 + width, as a share of the rounded part, from 0 to 1."""
        return np.clip((1 + self.width - target * score) / (2 * self.width), 0.0, 1.0)

    def value_at(self, score: Floats, target: Floats) -> Floats:
        straight = np.maximum(1 - self.width - target * score, 0.0)
        value: Floats = self.width * self._margin_shortfall(score, target) ** 2 + straight
        return value

    def slope_at(self, score: Floats, target: Floats) -> Floats:
        slope: Floats = -target * self._margin_shortfall(score, target)
        return slope

    def curvature_at(self, score: Floats, target: Floats) -> Floats:
        return np.where(np.abs(1 - target * score) <= self.width, self.sharpest, 0.0)


@dataclass(frozen=True)
class TruncatedSquare:
    """Half the squared residual, continued as a straight line where the residual exceeds ``reach`` (Huber 1964)."""

    reach: float = 1.0
    name = "half the squared error"
    sharpest = 1.0
    at_zero = 0.5  # targets lie between -1 and 1
    one_sided = False

    @property
    def steepest(self) -> float:
        return self.reach

    def value_at(self, score: Floats, target: Floats) -> Floats:
        residual = np.abs(score - target)
        near = np.minimum(residual, self.reach)
        value: Floats = near**2 / 2 + self.reach * (residual - near)
        return value

    def slope_at(self, score: Floats, target: Floats) -> Floats:
        return np.clip(score - target, -self.reach, self.reach)

    def curvature_at(self, score: Floats, target: Floats) -> Floats:
        return (np.abs(score - target) <= self.reach).astype(np.float64)
