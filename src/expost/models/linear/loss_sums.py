"""Sums over rows of losses and their derivatives, exact on public grids: the same bits in any order, for any engine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data.unit_ball import GRID_BITS, WeightedChunk
from expost.models.linear.row_loss import RowLoss

__all__ = ["LossSums", "RowSums"]

Floats = NDArray[np.float64]

_PIECE = 32  # bits of a piece of the coefficients: times a row, of length 2^20 at most, it stays below 2^53
_DIGIT = GRID_BITS + 1  # bits of a piece of a slope: a rounding leaves half a unit, so the next piece has one bit more
_PIECES = 3  # of each slope: 62 bits, far below the rounding of floats
_VALUE_BITS = 40  # of a row's usual loss; with the longest one, 2^13 of them add up in 64 bits
_LARGEST_VALUE, _LOW_BITS = 2.0**49, 30


@dataclass(frozen=True, eq=False)
class LossSums:
    """Sums over rows as integers: losses in units of ``value_unit``, pieces of slopes, and curvatures. SECRET."""

    values: int
    pieces: NDArray[Any]
    bends: NDArray[Any]
    value_unit: float
    slope_unit: float
    sharpest: float

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            self.values + other.values,
            self.pieces + other.pieces,
            self.bends + other.bends,
            self.value_unit,
            self.slope_unit,
            self.sharpest,
        )

    @property
    def value(self) -> float:
        """Return the sum of losses."""
        return self.values * (self.value_unit * 2.0**-_LOW_BITS)

    @property
    def slopes(self) -> Floats:
        """Return the sum of slopes times rows, in grid units of rows."""
        whole = sum(int(1 << _DIGIT * (_PIECES - 1 - place)) * piece for place, piece in enumerate(self.pieces))
        last = self.slope_unit / (1 << _DIGIT * (_PIECES - 1))
        return np.array([float(each) * last for each in whole])

    @property
    def curvatures(self) -> Floats:
        """Return the sum of second derivatives times outer products of rows, in squared grid units."""
        return self.bends.astype(np.float64) * self.sharpest


@dataclass(frozen=True)
class RowSums:
    """Sums losses and derivatives at some coefficients over gridded rows of at most 2^20 in the norm of their ball.

    Scores are sums of products of integers below 2^53, and so are sums of slopes times rows, whose pieces are integers
    of at most 2^20. Everything between is computed number by number. So no result depends on which rows come together.
    Rounding moves a slope by at most 2^-62 of the steepest one.
    """

    loss: RowLoss
    theta: Floats
    target_scale: float
    curved: bool

    def __call__(self, chunks: Iterable[WeightedChunk]) -> LossSums:
        width = len(self.theta)
        values, pieces = 0, np.zeros((_PIECES, width), object)
        bends = np.zeros((width, width) if self.curved else (0, 0), object)
        loss, value_unit, slope_unit = self.loss, self._value_unit, self._slope_unit
        for features, gridded, weights in chunks:
            score, target = self._score_rows(features), gridded * self.target_scale
            value, slope = loss.value_at(score, target), loss.slope_at(score, target)
            if weights is not None:
                value, slope = value * weights, slope * weights
            values += _sum_values(value / value_unit)
            pieces += (_cut_numbers(slope / slope_unit) @ features).astype(np.int64)
            if self.curved:
                share = loss.curvature_at(score, target) / loss.sharpest
                share = share if weights is None else share * weights
                bent = np.rint(features * np.sqrt(share)[:, None])
                bends += (bent.T @ bent).astype(np.int64)
        return LossSums(values, pieces, bends, value_unit, slope_unit, loss.sharpest)

    @cached_property
    def _slope_unit(self) -> float:
        """Return a power of two such that no slope is larger than 2^20 of it."""
        return 2.0 ** (math.ceil(math.log2(self.loss.steepest)) - GRID_BITS)

    @cached_property
    def _value_unit(self) -> float:
        """Return a power of two such that no usual loss is larger than 2^40 of it: scores are no longer than theta."""
        spread = float(np.abs(self.theta).sum())
        return 2.0 ** (math.ceil(math.log2(self.loss.at_zero + self.loss.steepest * spread + 1)) - _VALUE_BITS)

    @cached_property
    def _theta_pieces(self) -> tuple[Floats, float, float]:
        """Return two vectors of integers, the unit of the first, and how much smaller that of the second is."""
        length = float(np.linalg.norm(self.theta)) + 2.0**-500
        unit = 2.0 ** (math.ceil(math.log2(length)) + 1 - _PIECE)
        high = np.rint(self.theta / unit)
        finer = 2.0 ** -(_PIECE - 1 - math.ceil(math.log2(len(self.theta)) / 2))
        low = np.rint((self.theta / unit - high) / finer)
        return np.stack([high, low], axis=1), unit, finer

    def _score_rows(self, features: Floats) -> Floats:
        pieces, unit, finer = self._theta_pieces
        high, low = (features @ pieces).T
        scores: Floats = (high + low * finer) * (unit * 2.0**-GRID_BITS)
        return scores


def _sum_values(numbers: Floats) -> int:
    """Sum numbers in units of 2^-30, each rounded to one."""
    np.minimum(numbers, _LARGEST_VALUE, out=numbers)
    high = np.rint(numbers)
    low = np.rint((numbers - high) * 2.0**_LOW_BITS)
    return (int(high.astype(np.int64).sum()) << _LOW_BITS) + int(low.astype(np.int64).sum())


def _cut_numbers(numbers: Floats) -> Floats:
    """Return three integers for each number of at most 2^20: rounded, and what rounding leaves, twice."""
    pieces = np.empty((_PIECES, len(numbers)))
    for piece in pieces:
        np.rint(numbers, out=piece)
        numbers = (numbers - piece) * 2.0**_DIGIT
    return pieces
