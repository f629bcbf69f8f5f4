"""The released model of a mixed table: how rows are read, and the weights of their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.models.descent.clipped_gradient import grid_scores
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.tabular.table_profile import TableProfile

__all__ = ["CoefficientEstimates", "TableModel", "fit_grid"]

Floats = NDArray[np.float64]
_LONGEST = 4.0  # usual lengths: rows longer than this are shortened to it
_CHUNK = 1 << 13


def fit_grid(profile: TableProfile) -> FeatureGrid:
    """Return the integer grid of rows that a profile has scaled."""
    # The intercept's column is half as long as a usual row: a longer one would fill the clip of a gradient.
    return FeatureGrid(len(profile.middles), _LONGEST * profile.length, intercept_share=0.5 / _LONGEST)


@dataclass(frozen=True, eq=False)
class CoefficientEstimates:
    """Coefficients without shrinkage, in the units of the columns, and two standard deviations of each.

    ``noise`` is that of the privacy noise, ``sampling`` that of other rows of the same kind. Both are NaN where the noise hides
    what a coefficient depends on.
    """

    values: Floats
    noise: Floats
    sampling: Floats


@dataclass(frozen=True, eq=False)
class TableModel:
    """Scores of encoded rows, read exactly as in the training. Everything is public or released.

    ``weights`` are those of the grid's columns (outputs x columns). A regression's scores are in units of the target's
    spread around its middle.
    """

    profile: TableProfile
    weights: Floats
    reach: float = 2.0
    """How far a regression's predictions are from the middle of the target at most, in half its range."""
    limits: tuple[float, float] | None = None
    """How far they are below and above the middle at most, if they were narrowed further. Default: those of the reach."""
    calibration: tuple[float, float] | None = None
    """Slope and shift of the log-odds of two classes, for probabilities."""
    estimates: CoefficientEstimates | None = None

    @cached_property
    def grid(self) -> FeatureGrid:
        return fit_grid(self.profile)

    def compute_scores(self, features: NDArray[Any]) -> Floats:
        """Return the scores of features (rows x outputs)."""
        scores = np.empty((len(features), len(self.weights)))
        for start in range(0, len(features), _CHUNK):
            part = slice(start, start + _CHUNK)
            rows = self.grid.encode_rows(features[part], self.profile.scale).integers()
            scores[part] = grid_scores(rows, self.weights, self.grid).T
        return scores

    @cached_property
    def coefficients(self) -> tuple[Floats, Floats]:
        """Return coefficients and intercepts for features as the encoder makes them, before long rows are shortened."""
        slopes, constants = self.grid.raw_weights(self.weights)
        slopes = slopes * self.profile.factors
        return slopes, constants - slopes @ self.profile.middles

    def straightened(self, shift: float, tilt: float) -> TableModel:
        """Return the model of a number whose scores are ``shift + (1 + tilt) score``."""
        weights = self.weights * (1 + tilt)
        weights[:, -1] += shift * (self.grid.unit / self.grid.constant)
        return replace(self, weights=weights)

    def rescaled(self, profile: TableProfile) -> TableModel:
        """Return the model with the same scores that reads rows by another profile."""
        slopes, constants = self.coefficients
        grid = fit_grid(profile)
        inside = constants + slopes @ profile.middles
        weights = np.column_stack([slopes / profile.factors, inside * (grid.unit / grid.constant)])
        return TableModel(profile, weights)

    def __repr__(self) -> str:
        return f"TableModel({len(self.weights)} x {len(self.profile.middles)} coefficients)"
