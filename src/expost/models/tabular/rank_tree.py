"""How well scores rank two classes: noisy counts of a binary tree over scores, with a bound for the area under the curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from expost.core import InvalidRequest, Norm, Sealed, Sensitivity, Target
from expost.models.tabular.score_sum import MeasuredScore
from expost.models.tabular.table_profile import TableProfile
from expost.noise import BitSource
from expost.noise.gaussian_stream import LARGEST_VARIANCE, GaussianStream, stream_variance

__all__ = ["AucSum", "RankCounts", "RankTree", "center_of"]

Floats = NDArray[np.float64]
_DEPTH = 9  # 512 leaves: few pairs of rows share one
_LENGTH = 2.0**20  # lattice units of a row of weight 1
_SLACK = 2.0**-10  # lattice units, far above the float errors of a row's products
_NODES = 2 ** (_DEPTH + 1) - 1  # of one class
_LEVELS = np.arange(_DEPTH + 1)
_FIRST = 2**_LEVELS - 1  # place of a level's first node
# Level l counts about 2^-l of all pairs in squares, so its precision falls with the root of that: the variance of the area
# is then bounded however deep the tree is.
_SHARES = 2.0 ** (-_LEVELS / 2) / np.sum(2.0 ** (-_LEVELS / 2))
_AMOUNTS = np.floor(_LENGTH * np.sqrt(_SHARES))  # lattice units of a row of weight 1 on each level
_SECOND_ORDER = 1000.0  # each of the two small events has this part of the failure probability, at each of 32 rungs
_MOST_EXTREME = 1e-4
_LEAST_SHARE = 1e-3
_AREAS = [level / 50 for level in range(51)]  # levels at which an area may be certified


def center_of(profile: TableProfile) -> float:
    """Return the log-odds of the second class, around which leaves are placed; all of it is released.

    >>> round(center_of(TableProfile(1.0, np.zeros(1), np.ones(1), 1.0, shares=(0.75, 0.25))), 3)
    -1.099
    """
    if len(profile.shares) != 2:  # of several classes each is counted against the others
        return -math.log(max(len(profile.shares) - 1, 1))
    whole = max(sum(profile.shares), 1e-9)
    return float(logit(min(max(profile.shares[1] / whole, _MOST_EXTREME), 1 - _MOST_EXTREME)))


@dataclass(frozen=True)
class RankTree:
    """Counts of rows per class and per node of a binary tree over scores.

    Leaves divide the probabilities of scores, moved by ``center``, into 512 equal parts. A row adds its weight to one node
    on each level, so its vector has ten entries of fixed sizes and a Euclidean length of at most its weight.

    Guarantee: none by itself; ``release`` is one Gaussian event of the given noise multiplier.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: L2: 2^20 + rows_per_unit * (sqrt(10) / 2 + 2^-10), rounded up, and one more.
    Accuracy: ``RankCounts``.
    Numerics: exact; integers below 2^53 in float64, then int64.
    Reference: docs/proofs/area-under-curve.md, Lemma 1.
    """

    rows_per_unit: int = 1
    center: float = 0.0

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return how far one unit can move the counts."""
        rounding = math.sqrt(_DEPTH + 1) / 2 + _SLACK
        return Sensitivity(math.ceil(_LENGTH + self.rows_per_unit * rounding) + 1, Norm.L2)

    def check_noise(self, noise_multiplier: Fraction) -> None:
        """Raise ``InvalidRequest`` unless noise of this multiplier can be drawn."""
        if stream_variance(noise_multiplier, self.sensitivity) > LARGEST_VARIANCE:
            raise InvalidRequest("Expected noise of a variance that can be drawn", do="Lower the noise multiplier")

    def start(self) -> NDArray[np.int64]:
        """Return the counts of no rows."""
        return np.zeros(2 * _NODES, np.int64)

    def add(self, total: NDArray[np.int64], scored: NDArray[Any], weights: NDArray[Any]) -> None:
        """Count rows, given as (score, class index); a class other than 0 and 1 is not counted."""
        known = (scored[:, 1] == 0) | (scored[:, 1] == 1)
        shares = np.clip(np.nan_to_num(np.asarray(weights, np.float64)[known]), 0.0, 1.0)
        places = np.nan_to_num(expit(scored[known, 0] - self.center), nan=0.5) * 2.0**_DEPTH
        leaves = np.clip(places.astype(np.int64), 0, 2**_DEPTH - 1)
        first = scored[known, 1].astype(np.int64) * _NODES
        for level in _LEVELS.tolist():
            nodes = first + _FIRST[level] + (leaves >> (_DEPTH - level))
            amounts = np.rint(shares * _AMOUNTS[level])
            total += np.bincount(nodes, weights=amounts, minlength=len(total)).astype(np.int64)

    def release(self, total: NDArray[np.int64], noise_multiplier: Fraction, bits: BitSource) -> Floats:
        """Return the counts with noise, in lattice units."""
        stream = GaussianStream(noise_multiplier, self.sensitivity, size=len(total), releases=1, bits=bits)
        return np.asarray(stream.release(Sealed(total, self.sensitivity)), np.float64)

    def read(self, released: Floats, noise_multiplier: Fraction) -> RankCounts:
        """Return released counts in rows, level by level."""
        levels = tuple(
            released.reshape(2, _NODES)[:, _FIRST[level] : _FIRST[level] + 2**level] / _AMOUNTS[level]
            for level in _LEVELS.tolist()
        )
        return RankCounts(levels, float(noise_multiplier * self.sensitivity.amount) / _AMOUNTS, self.center)


@dataclass(frozen=True, eq=False)
class RankCounts:
    """Released counts of both classes (2 x nodes) on each level, and the deviation of a level's noise."""

    levels: tuple[Floats, ...]
    deviations: Floats
    center: float

    @property
    def totals(self) -> tuple[float, float]:
        """Return the numbers of rows of the first and of the second class, at least 1."""
        first, second = self.levels[0][:, 0].tolist()
        return max(first, 1.0), max(second, 1.0)

    def _pairs(self, depth: int = _DEPTH) -> tuple[Floats, Floats]:
        """Return, over inner nodes, rows of class 0 on the left and rows of class 1 on the right, down to a depth."""
        levels = self.levels[1 : depth + 1]
        return np.concatenate([each[0, 0::2] for each in levels]), np.concatenate([each[1, 1::2] for each in levels])

    @property
    def area(self) -> tuple[float, float]:
        """Return the area under the curve, where pairs in one leaf count a half, and its deviation."""
        left, right = self._pairs()
        first, second = self.totals
        pairs = first * second
        value = float(left @ right + 0.5 * (self.levels[-1][0] @ self.levels[-1][1])) / pairs
        value = min(max(value, 0.0), 1.0)
        return value, min(math.sqrt(self._variance(value, _DEPTH)) / pairs, 0.5)

    def _variance(self, area: float, depth: int) -> float:
        """Return the variance of strictly ordered pairs minus ``area`` times all pairs, to first order, at these counts."""
        left, right = self._pairs(depth)
        first, second = self.levels[0][:, 0].tolist()
        inner = float(_inner_squares(self.deviations, depth) @ (left**2 + right**2))
        root = (area * float(self.deviations[0])) ** 2 * (first**2 + second**2)
        return float(inner + root)

    def bound_area(self, area: float, failure: float, *, depth: int, least_weight: float) -> tuple[float, float]:
        """Return how many pairs are surely above ``area`` times all pairs, and the deviation of its linear noise.

        Pairs in one node of the deepest level that is used count as lost. Everything but the linear noise is subtracted;
        that is right except with probability 2 ``failure`` (docs/proofs/area-under-curve.md, Theorem 1).
        """
        left, right = self._pairs(depth)
        first, second = self.levels[0][:, 0].tolist()
        surplus = float(left @ right) - area * first * second
        product, noise = _bound_products(self.deviations, area, failure, depth)
        # The root of the variance at the exact counts is at most that at the released ones and that at the noise together.
        deviation = math.sqrt(self._variance(area, depth)) + noise
        size = abs(first) + abs(second) + 12 * float(self.deviations[0])
        rounding = len(_LEVELS) * size / float(_AMOUNTS.min())
        if least_weight < 1:  # each row's amount is rounded to half a lattice unit
            rounding += 2.1 / (2 * least_weight * float(_AMOUNTS.min())) * (1 + area) * (size / 2) ** 2
        return surplus - product - rounding, deviation

    def smooth(self, level: int) -> Floats:
        """Return counts (2 x nodes) of one level that agree with all levels: weighted least squares over the tree."""
        variances = self.deviations**2
        ups, spread = [self.levels[-1]], [float(variances[-1])]
        for depth in range(_DEPTH - 1, -1, -1):
            children = ups[-1][:, 0::2] + ups[-1][:, 1::2]
            own, below = 1 / float(variances[depth]), 1 / (2 * spread[-1])
            ups.append((self.levels[depth] * own + children * below) / (own + below))
            spread.append(1 / (own + below))
        found = ups[-1]
        for depth in range(1, level + 1):
            here = ups[_DEPTH - depth]
            missing = found - here[:, 0::2] - here[:, 1::2]
            found = here + np.repeat(missing / 2, 2, axis=1)
        return found

    def scores_of(self, level: int) -> Floats:
        """Return the score in the middle of each node of a level."""
        middles = (np.arange(2**level) + 0.5) / 2**level
        return np.asarray(logit(middles), np.float64) + self.center


def _inner_squares(deviations: Floats, depth: int) -> Floats:
    """Return the noise variance of the children of each inner node, down to a depth."""
    return np.repeat(deviations[1 : depth + 1] ** 2, 2 ** _LEVELS[:depth])


def _bound_products(deviations: Floats, area: float, failure: float, depth: int) -> tuple[float, float]:
    """Return bounds of the products of noise, and of the root of the variance at the noise; each fails this rarely.

    The first is a sum of products of independent Gaussians, sub-gamma by BLM13, Theorem 2.3; the second a weighted sum of
    their squares (LM00, Lemma 1).
    """
    squares = np.append(_inner_squares(deviations, depth), area * deviations[0] ** 2)
    small = -math.log(failure)
    product = math.sqrt(2 * small * float(squares @ squares)) + float(squares.max()) * small
    spread = np.concatenate([squares, squares]) ** 2
    noise = float(spread.sum()) + 2 * math.sqrt(float(spread @ spread) * small) + 2 * float(spread.max()) * small
    return product, math.sqrt(noise)


@dataclass(frozen=True)
class AucSum:
    """The test of an area under the curve, in place of a ``ScoreSum``.

    Guarantee: none by itself; a release of the counts is one Gaussian event.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: that of ``RankTree``.
    Accuracy: ``MeasuredScore.passes``; a model that misses the target passes with the given probability at most.
    Numerics: scores are a row's own, bit for bit; counts are exact integers.
    Reference: docs/proofs/area-under-curve.md, Theorem 1.
    """

    target: Target
    lattice: RankTree
    least_weight: float = 1.0

    @property
    def errors_allowed(self) -> float:
        """Return how far the target is from a perfect score."""
        return 1 - float(self.target.tolerance)

    def surplus_of_one(self, profile: TableProfile) -> float:
        """Return how much surplus per row one unit of the measure is."""
        return 1.0

    def find_margin(self, profile: TableProfile, failure: float) -> float:
        """Return 0: what is not linear noise is subtracted when counts are read."""
        return 0.0

    def read(self, released: Floats, noise: Fraction, profile: TableProfile) -> MeasuredScore:
        """Return the score of released counts; the surplus is in rows times area."""
        counts = self.lattice.read(released, noise)
        failure = float(self.target.failure_probability) / _SECOND_ORDER
        depth = self._choose_depth(counts.deviations, profile)

        def bound(area: float) -> tuple[float, float]:
            return counts.bound_area(area, failure, depth=depth, least_weight=self.least_weight)

        surplus, deviation = bound(float(self.target.tolerance))
        # The largest area that holds whatever rung is the last one: at most 32 may be, each with a 64th. All smaller ones
        # must hold too, so only the first level above the true area can go wrong.
        reach = -float(ndtri(float(self.target.failure_probability) / 64))
        sure = list(takewhile(lambda area: bound(area)[0] >= reach * bound(area)[1], _AREAS))
        # Scale and precision follow from earlier releases, so that measurements may be combined.
        scale = profile.rows / self._count_pairs(profile)
        return MeasuredScore(
            surplus * scale, deviation * scale, {"auc": counts.area}, float(1 / noise**2), max(sure, default=0.0)
        )

    def _choose_depth(self, deviations: Floats, profile: TableProfile) -> int:
        """Return how deep the test looks: deep nodes have few ties and much noise. Only earlier releases decide it."""
        level, failure = float(self.target.tolerance), float(self.target.failure_probability) / _SECOND_ORDER
        pairs = self._count_pairs(profile)
        lost = [
            sum(_bound_products(deviations, level, failure, depth)) / pairs + 2.0**-depth
            for depth in range(1, _DEPTH + 1)
        ]
        return 1 + int(np.argmin(lost))

    def _count_pairs(self, profile: TableProfile) -> float:
        """Return about how many pairs of rows of both classes there are."""
        shares = profile.shares if len(profile.shares) == 2 else (0.5, 0.5)
        return profile.rows**2 * max(shares[0], _LEAST_SHARE) * max(shares[1], _LEAST_SHARE)
