"""Second moments of two bounded columns under noise, and what they say about correlation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import Adjacency, Norm, Sealed, Sensitivity
from expost.noise import BitSource
from expost.stats.hypothesis.column import GRID, bounded
from expost.stats.hypothesis.priced_test import under_noise
from expost.stats.hypothesis.reference import noisy_normal_quantile
from expost.stats.hypothesis.shares import NUISANCE

__all__ = ["MomentShares", "NoisyMoments", "PairMoments"]

Floats = NDArray[np.float64]

_STEPS = 1 << 10  # lattice points over the width of a column's bounds
_COARSE = GRID // _STEPS
_LOG = math.log(1 / NUISANCE)  # P(Laplace noise of scale b > b log) = NUISANCE / 2, once for each column
_SENSITIVITIES = {"products": _STEPS**2 // 2, "sums": _STEPS, "squares": _STEPS**2 // 4}


@dataclass(frozen=True)
class MomentShares:
    """How epsilon is split: half for the sum of products, an eighth for each sum and each sum of squares.

    Squares say how widely the columns spread. Where their noise alone would exceed the widest spread the bounds allow,
    they say nothing, and their share goes to the products.

    >>> MomentShares.of(Fraction(1), rows=1000).products
    Fraction(1, 2)
    """

    products: Fraction
    sums: Fraction
    squares: Fraction | None

    @classmethod
    def of(cls, epsilon: Fraction, *, rows: int) -> MomentShares:
        """The split for a table of this size."""
        eighth = epsilon / 8
        silent = rows * float(eighth) <= _LOG
        return cls(epsilon * Fraction(3, 4) if silent else epsilon / 2, eighth, None if silent else eighth)

    def breakdown(self) -> dict[str, Fraction]:
        """The parts by name, as they stand on a receipt."""
        parts = {"products": self.products, "sums": 2 * self.sums}
        return parts if self.squares is None else parts | {"squares": 2 * self.squares}


class PairMoments:
    """Exact sums of products, values and squares of two columns, sealed.

    Values are clipped to public bounds, centred and rounded to 1/1024 of their width. Replacing one row moves the sum of
    products by at most half of the product of the widths, a sum by its width, a sum of squares by a quarter of the
    squared width.
    """

    def __init__(
        self, parts: Iterable[tuple[Any, Any]], bounds: tuple[tuple[float, float], tuple[float, float]]
    ) -> None:
        totals = np.zeros(5, np.int64)
        for first, second in parts:
            x, y = (
                np.rint(bounded(v, b) / _COARSE).astype(np.int64) for v, b in zip((first, second), bounds, strict=True)
            )
            totals += np.array([(x * y).sum(), x.sum(), y.sum(), (x * x).sum(), (y * y).sum()])
        kinds = ("products", "sums", "sums", "squares", "squares")
        self._sealed = [_sealed(total, kind) for total, kind in zip(totals.tolist(), kinds, strict=True)]

    def release(self, shares: MomentShares, *, rows: int, bits: BitSource | None) -> NoisyMoments:
        """The totals under discrete Laplace noise."""
        epsilons = (shares.products, shares.sums, shares.sums, shares.squares, shares.squares)
        units = (_STEPS**2, _STEPS, _STEPS, _STEPS**2, _STEPS**2)
        found = [
            None if epsilon is None else _noisy(sealed, epsilon, bits) / unit
            for sealed, epsilon, unit in zip(self._sealed, epsilons, units, strict=True)
        ]
        return NoisyMoments.of(*found, rows=rows, shares=shares)


@dataclass(frozen=True)
class NoisyMoments:
    """Released totals in units of the widths of the bounds, one element a repetition, with the scales of their noise."""

    products: Floats
    sums: tuple[Floats, Floats]
    squares: tuple[Floats, Floats] | None
    rows: int
    product_scale: float
    sum_scale: float
    square_scale: float

    @classmethod
    def of(cls, xy: Any, x: Any, y: Any, xx: Any, yy: Any, *, rows: int, shares: MomentShares) -> NoisyMoments:
        """Released numbers and the split they were released under."""
        return cls(
            np.asarray(xy, np.float64),
            (np.asarray(x, np.float64), np.asarray(y, np.float64)),
            None if xx is None else (np.asarray(xx, np.float64), np.asarray(yy, np.float64)),
            rows,
            0.5 / float(shares.products),
            1 / float(shares.sums),
            0.0 if shares.squares is None else 0.25 / float(shares.squares),
        )

    @property
    def covariation(self) -> Floats:
        """The sum of products about the noisy means."""
        found: Floats = self.products - self.sums[0] * self.sums[1] / self.rows
        return found

    @property
    def scales(self) -> list[Floats]:
        """The scales of the Laplace parts of the covariation.

        With noises e of the products, f and g of the sums, it is the exact one plus e - f (noisy mean of y)
        - g (mean of x); the unknown mean of x is taken at an upper bound.
        """
        mean_x, mean_y = (np.abs(total) / self.rows for total in self.sums)
        most = np.minimum(mean_x + self.sum_scale * _LOG / self.rows, 0.5)
        return [np.full(mean_x.shape, self.product_scale), mean_y * self.sum_scale, most * self.sum_scale]

    @property
    def deviation(self) -> Floats:
        """The standard deviation of the covariation of independent columns, their spreads at upper bounds."""
        first, second = (self._spread_bound(column) for column in (0, 1))
        freedom = self.rows - 2.0
        student = float(special.stdtrit(freedom, 1 - 1e-4) / special.ndtri(1 - 1e-4))
        found: Floats = math.sqrt(self.rows) * first * second * student
        return found

    def _spread_bound(self, column: int) -> Floats:
        if self.squares is None:
            return np.full(self.products.shape, 0.5)
        # For any c the squares about the mean are at most those about c; here c is the noisy mean, see the proof.
        total, centre = self.sums[column], np.clip(self.sums[column] / self.rows, -0.5, 0.5)
        within = np.maximum(self.squares[column] - 2 * centre * total + centre**2 * self.rows, 0.0)
        noise = np.hypot(self.square_scale, 2 * centre * self.sum_scale)
        return np.sqrt(np.minimum((within + _LOG * noise) / (self.rows - 1), 0.25))

    def variation(self, column: int) -> float:
        """The noisy sum of squares about the mean of a column; for one repetition."""
        assert self.squares is not None
        return float(self.squares[column] - self.sums[column] ** 2 / self.rows)

    def sample_correlation(self, failure: float) -> tuple[float, float]:
        """Where the correlation of the clipped sample lies, given the noise; for one repetition.

        A third of the failure probability each for the covariation and the two variations.
        """
        if self.squares is None:
            return -1.0, 1.0
        reach = noisy_normal_quantile(failure / 6, 0.0, [float(scale) for scale in self.scales])
        least, most = zip(*(self._variation_range(column, failure / 3) for column in (0, 1)), strict=True)
        narrow, wide = math.sqrt(math.prod(least)), math.sqrt(math.prod(most))
        ends = [float(self.covariation) - reach, float(self.covariation) + reach]
        low, high = _ratio(ends[0], wide if ends[0] > 0 else narrow), _ratio(ends[1], narrow if ends[1] > 0 else wide)
        return low, high

    def _variation_range(self, column: int, failure: float) -> tuple[float, float]:
        log = math.log(2 / failure)  # half for the squares, half for the sum
        total = abs(float(self.sums[column]))
        moved = self.sum_scale * log
        reach = self.square_scale * log + (2 * total * moved + moved**2) / self.rows
        found = self.variation(column)
        return max(found - reach, 0.0), min(max(found + reach, 1e-9), self.rows / 4)


def _ratio(numerator: float, denominator: float) -> float:
    if numerator == 0:
        return 0.0
    if denominator <= 0:
        return math.copysign(1.0, numerator)
    return min(max(numerator / denominator, -1.0), 1.0)


def _sealed(total: int, kind: str) -> Sealed:
    return Sealed(np.array([total], dtype=object), Sensitivity(_SENSITIVITIES[kind], Norm.L1, Adjacency.REPLACE_ONE))


def _noisy(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> float:
    return float(under_noise(sealed, epsilon, bits)[0])
