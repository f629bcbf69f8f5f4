"""Covariances from shares and centred products."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import noise_radius
from expost.data.form import MomentForm
from expost.stats.reading import Reading

__all__ = ["CovarianceReader"]

Floats = NDArray[np.float64]

_HOPELESS = 1e3  # an error of this many times the total: every interval is then as wide as it can be


@dataclass(frozen=True)
class CovarianceReader:
    """Reads all entries (0,0), (0,1), ..., (1,1), ... of a covariance matrix off one cell's coordinates.

    With every coordinate's noise within one radius, which fails with at most the level, each mean of shares and of
    products errs by a known multiple of the radius over the noisy total (docs/proofs/shares.md). Rounding to steps
    moves an entry by at most the product of a range and a step, which is added.
    """

    form: MomentForm
    linear = False
    unit = Fraction(1)

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> Reading:
        """Value and interval of each entry of the upper triangle."""
        columns, scaled = len(self.form.clamps), (noisy[:, 0] / self.form.scale).astype(np.float64)
        radius = noise_radius(-np.expm1(np.log1p(-level) / len(scaled)), scale) / self.form.scale
        shares = scaled[: 3 * columns].reshape(columns, 3)
        total = float(shares.sum(axis=1).mean())
        # The mean over columns of three noises each: at most three radii, and then each total is within six of it.
        error = _HOPELESS if total <= 3 * radius else radius / total
        ranges = np.array([float(clamp.high - clamp.low) for clamp in self.form.clamps])
        middles, squares = (shares[:, 0] - shares[:, 2]) / _safe(total), (shares[:, 0] - shares[:, 1] + shares[:, 2])
        values, errors = [], []
        product = iter(scaled[3 * columns :] / _safe(total))
        products = {pair: next(product) for pair in zip(*np.triu_indices(columns, 1), strict=True)}
        for i, j in zip(*np.triu_indices(columns), strict=True):
            second = squares[i] / _safe(total) if i == j else products[i, j]
            # Means of y in [-1, 1]: two noises and the total's, 2 + 3; second moments: three noises or one, and 3.
            first_error, second_error = 5 * error, (6 if i == j else 4) * error
            spread = second_error + (abs(middles[i]) + abs(middles[j])) * first_error + first_error**2
            # No covariance of values in [-1, 1] is larger; cutting off brings the value nearer to every exact one.
            covariance = np.clip(second - middles[i] * middles[j], 0.0 if i == j else -1.0, 1.0)
            values.append(covariance * ranges[i] * ranges[j] / 4)
            rounding = (
                float(self.form.clamps[i].rounding * 2) * ranges[j]
                + float(self.form.clamps[j].rounding * 2) * ranges[i]
            )
            errors.append(np.minimum(spread, 2.0) * ranges[i] * ranges[j] / 4 + rounding)
        value, width = np.array(values), np.array(errors)
        return Reading(value, value - width, value + width)


def _safe(total: float) -> float:
    return total if total > 0 else 1.0
