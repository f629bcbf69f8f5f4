"""Released totals of groups, and what they say about means and spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.stats.hypothesis.shares import NUISANCE, SPREAD_LOG, Shares

__all__ = ["UNSEEN", "NoisyGroups"]

Floats = NDArray[np.float64]

UNSEEN = -math.log(NUISANCE)
"""Values expected in this many rows of a group are in none of them with probability at most ``NUISANCE``."""


@dataclass(frozen=True)
class NoisyGroups:
    """Released totals in units of the width of the bounds, with the scales of their noise.

    The last axis of ``sums`` and ``sizes`` runs over groups; any axes before it over repetitions. ``squares`` has the
    same axes, or lacks the last one if groups share their spread.
    """

    sums: Floats
    sizes: Floats
    squares: Floats | None
    sum_scale: float
    size_scale: float
    square_scale: float

    @classmethod
    def of(cls, sums: Any, sizes: Any, squares: Any, shares: Shares) -> NoisyGroups:
        """Released numbers and the split they were released under."""
        return cls(
            np.asarray(sums, np.float64),
            np.asarray(sizes, np.float64),
            None if squares is None else np.asarray(squares, np.float64),
            shares.sum_scale,
            shares.size_scale,
            shares.square_scale,
        )

    @classmethod
    def expected(cls, means: Floats, sizes: Floats, deviation: float, shares: Shares) -> NoisyGroups:
        """Totals as they will about be for values of this mean in each group; squares a little above their mean.

        Of groups apart more so: each is taken for at least as wide as all together, which adds half of the mean distance
        of its squares from theirs, by noise and by sampling.
        """
        squares = None
        if shares.squares is not None:
            squares = sizes * (means**2 + deviation**2)
            apart = shares.square_scale / 2 + 0.5 * deviation**2 * np.sqrt(sizes)
            squares = (squares.sum(-1) if shares.equal_spread else squares + apart) + shares.square_scale
        return cls.of(means * sizes, sizes, squares, shares)

    @property
    def numbers(self) -> Floats:
        """All that was released, in one row."""
        squares = [] if self.squares is None else [np.ravel(self.squares)]
        return np.concatenate([self.sums, self.sizes, *squares])

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Whether every group is clearly larger than the noise of its size."""
        return np.asarray((self.sizes > 3 * self.size_scale).all(-1) & (self.sizes >= 2).all(-1))

    @property
    def safe_sizes(self) -> Floats:
        """Sizes to divide by, at least 2."""
        return np.maximum(self.sizes, 2.0)

    @property
    def means(self) -> Floats:
        """The noisy group means."""
        return self.sums / self.safe_sizes

    @property
    def mean_scales(self) -> list[Floats]:
        """The scales of the Laplace parts of each group mean: from the sum, and from the size.

        Noise e in the size of a group of mean m moves the sum about that mean by m e.
        """
        parts = [self.sum_scale / self.safe_sizes]
        if self.size_scale > 0:
            total = self.safe_sizes.sum(-1)
            centre = (np.abs(self.sums.sum(-1)) + 2 * (self.sum_scale + self.size_scale / 2)) / total
            parts.append(np.minimum(centre, 0.5)[..., None] * self.size_scale / self.safe_sizes)
        return parts

    @property
    def mean_variances(self) -> Floats:
        """What sampling adds to the variance of each group mean.

        Of groups that differ in spread the weighted sum is bounded from above, with the weights that the spread of the
        means has in it: each variance w (1 - w / W), w being one over the variance of a mean and W their sum.
        """
        if self.squares is None:
            return self._widest
        if self._shares_spread:
            return np.minimum(self._shared_variance[..., None] * self._sampled, self._widest)
        known = np.where(self._silent, self._widest, self._per_square * self._within)
        noise = np.where(self._silent, 0.0, self._per_square * self._within_noise)
        likely = np.minimum(known + noise, self._widest)
        precise = 1 / (likely + self.noise_variances)
        weights = precise * (1 - precise / precise.sum(-1, keepdims=True))
        bound = (weights * known).sum(-1) + SPREAD_LOG * np.sqrt(((weights * noise) ** 2).sum(-1))
        # Satterthwaite (Sat46): the freedom of a weighted sum of estimated variances.
        total = (weights * likely).sum(-1)
        uncertain = np.where(self._silent, 0.0, (weights * likely) ** 2 / self._freedom).sum(-1)
        student = _student_factor(total**2 / np.maximum(uncertain, 1e-300)) ** 2
        bounds: Floats = np.minimum(likely * (bound * student / total)[..., None], self._widest)
        return bounds

    @property
    def noise_variances(self) -> Floats:
        """What the noise adds to the variance of each group mean."""
        return np.asarray(sum(2 * scale**2 for scale in self.mean_scales))

    @property
    def _shares_spread(self) -> bool:
        return self.squares is not None and self.squares.ndim < self.sums.ndim

    @property
    def _sampled(self) -> Floats:
        """The variance of each mean if that of a value is 1; the size is taken larger by its noise."""
        sampled: Floats = (self.safe_sizes + self.size_scale) / self.safe_sizes**2
        return sampled

    @property
    def _widest(self) -> Floats:
        """The largest variance of each mean: that of a value is at most 1/4, as of all between the bounds (Popoviciu)."""
        widest: Floats = self._sampled / 4
        return widest

    @property
    def _freedom(self) -> Floats:
        return np.maximum(self.safe_sizes - self.size_scale, 2.0) - 1

    @property
    def _per_square(self) -> Floats:
        """What a unit of squares within a group of n rows says of its mean's variance: n / (n - 1) over the size squared."""
        return (1 + 1 / self._freedom) / self.safe_sizes**2

    @property
    def _silent(self) -> NDArray[np.bool_]:
        """Whether the noise of a group's squares alone is wider than the bounds allow its values to be."""
        return np.asarray(self.square_scale * SPREAD_LOG >= self.safe_sizes / 4)

    @property
    def _centring(self) -> tuple[Floats, Floats]:
        """What squares about the noisy mean are less than those about 0, and the variance of its noise, halved.

        For any number c the squares within a group are at most Q - 2 c S + c^2 n. With c the noisy mean and released
        numbers for Q, S and n, what noise adds is linear in it: e - 2 c f + c^2 g.
        """
        centre = np.clip(self.means, -0.5, 0.5)
        noise = (2 * centre * self.sum_scale) ** 2 + (centre**2 * self.size_scale) ** 2
        return 2 * centre * self.sums - centre**2 * self.sizes, noise

    @property
    def _within(self) -> Floats:
        """The squares within each group; none is taken for narrower than all together, or than rows unseen could make it.

        A few rows may all be alike by chance where others are not: their own squares would then say too little. Values
        of chance q are in none of n rows with probability (1 - q)^n, so those of a chance of ``UNSEEN`` / n may be, and
        they may lie at the farther bound.
        """
        assert self.squares is not None
        farthest = 0.5 + np.abs(np.clip(self.means, -0.5, 0.5))
        own = np.maximum(self.squares - self._centring[0], UNSEEN * farthest**2)
        common = own.sum(-1, keepdims=True) / self._freedom.sum(-1, keepdims=True)
        return np.asarray(np.maximum(own, self._freedom * common))

    @property
    def _within_noise(self) -> Floats:
        """A quantile of a sum of Laplace noises is at most that of one whose squared scale is the sum of theirs."""
        return np.sqrt(self.square_scale**2 + self._centring[1])

    @property
    def _shared_variance(self) -> Floats:
        """An upper bound on the variance of a value, the same in all groups."""
        assert self.squares is not None
        less, noise = (part.sum(-1) for part in self._centring)
        bound = np.maximum(self.squares - less, 0.0) + SPREAD_LOG * np.sqrt(self.square_scale**2 + noise)
        freedom = np.maximum(self.safe_sizes.sum(-1) - self.sums.shape[-1], 1.0)
        return np.asarray(bound / freedom * _student_factor(freedom) ** 2)


def _student_factor(freedom: Floats) -> Floats:
    """How much wider Student's t is than the normal, at a tail of 1e-4; larger tails are covered too."""
    factor: Floats = special.stdtrit(freedom, 1 - 1e-4) / special.ndtri(1 - 1e-4)
    return factor
