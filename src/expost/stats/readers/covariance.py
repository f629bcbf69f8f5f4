"""Covariances from shares and centred products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
from expost.data.form import MomentForm
from expost.stats.readers.contract import CLEAR, ClimbedReader
from expost.stats.reading import Reading

__all__ = ["CovarianceReader"]

Floats = NDArray[np.float64]

_HOPELESS = 1e3  # an error of this many times the total: every interval is then as wide as it can be


@dataclass(frozen=True)
class CovarianceReader(ClimbedReader):
    """Reads all entries (0,0), (0,1), ..., (1,1), ... of a covariance matrix off each cell's coordinates.

    With every coordinate's noise within one radius, which fails with at most the level, each mean of shares and of
    products errs by a known multiple of the radius over the noisy total (docs/proofs/shares.md). Rounding to steps
    moves an entry by at most the product of a range and a step, which is added.
    """

    form: MomentForm

    def informed(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        """Whether the noisy number of rows is clear of the noise."""
        return np.asarray(noisy[: 3 * len(self.form.clamps)].sum(axis=0) > CLEAR * len(self.form.clamps) * scale)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each entry of the upper triangle, cell after cell."""
        columns = len(self.form.clamps)
        radius = noise_radius(-np.expm1(np.log1p(-level) / len(noisy)), scale) / self.form.share_scale
        shares = (noisy[: 3 * columns] / self.form.share_scale).astype(np.float64).reshape(columns, 3, -1)
        products = (noisy[3 * columns :] / self.form.scale).astype(np.float64)
        total = shares.sum(axis=1).mean(axis=0)
        # The mean over columns of three noises each: at most three radii, and then each total is within six of it.
        safe = np.where(total > 0, total, 1.0)
        error = np.where(total <= 3 * radius, _HOPELESS, radius / safe)
        i, j = np.triu_indices(columns)
        second = np.empty((len(i), noisy.shape[1]))
        second[i == j] = shares[:, 0] - shares[:, 1] + shares[:, 2]
        second[i != j] = products
        # Means and second moments of values in [-1, 1]: moving them into their range brings them nearer to every exact
        # one. A total that is not positive says nothing of them.
        least = np.where(i == j, 0.0, -1.0)[:, None]
        second = np.clip(np.where(total > 0, second / safe, 0.0), least, 1.0)
        middles = np.clip(np.where(total > 0, (shares[:, 0] - shares[:, 2]) / safe, 0.0), -1.0, 1.0)
        # Means of y in [-1, 1]: two noises and the total's, 2 + 3; second moments: three noises, or one of a third of
        # the weight, and the total's, 3 + 3.
        first_error, second_error = 5 * error, 6 * error
        spread = second_error + (np.abs(middles[i]) + np.abs(middles[j])) * first_error + first_error**2
        # No covariance of values in [-1, 1] is larger; cutting off brings the value nearer to every exact one.
        covariance = np.clip(second - middles[i] * middles[j], least, 1.0)
        area, rounding = self._units(i, j)
        value, width = covariance * area, np.minimum(spread, 2.0) * area + rounding
        return Reading(*(each.T.ravel() for each in (value, value - width, value + width)))

    def _units(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """What an entry is multiplied by to come back from y in [-1, 1], and what rounding may have moved it."""
        ranges = np.array([float(clamp.high - clamp.low) for clamp in self.form.clamps])
        rounding = np.array([float(clamp.rounding * 2) for clamp in self.form.clamps])
        return (ranges[i] * ranges[j] / 4)[:, None], (rounding[i] * ranges[j] + rounding[j] * ranges[i])[:, None]
