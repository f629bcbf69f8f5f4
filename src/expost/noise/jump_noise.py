"""Noise over a whole ladder, kept as the noise of the top rung and the jumps below it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Ladder
from expost.noise.bits import BitSource
from expost.noise.jumps import JumpLine, draw_jumps
from expost.noise.level import check_level, check_scale
from expost.noise.parameter import Parameter

__all__ = ["JumpNoise", "check_rates"]

Sampler = Callable[[Parameter, BitSource], NDArray[Any]]

_LINE = 1 << 16


class JumpNoise:
    """The noise of every coordinate at every rung; memory grows with the jumps, not with the rungs.

    A jump belongs to its rung and to all more private ones: the noise at rung r is the top rung's plus the jumps of
    rungs r and above. Jumps are stored from the top rung down.
    """

    def __init__(
        self, top: NDArray[Any], rungs: NDArray[np.intp], coordinates: NDArray[np.intp], sizes: NDArray[Any]
    ) -> None:
        self.top, self.rungs, self.coordinates, self.sizes = top, rungs, coordinates, sizes

    @classmethod
    def draw(
        cls, ladder: Ladder, sensitivity: Fraction, count: int, *, order: int, sampler: Sampler, bits: BitSource
    ) -> JumpNoise:
        """Noise of scale sensitivity / epsilon at each rung, with the jumps that ``JumpLine`` describes."""
        check_rates(ladder, sensitivity)
        levels, amount = np.array([rung.numerator / rung.denominator for rung in ladder]), float(sensitivity)
        top = len(ladder) - 1
        lines = [
            JumpLine(levels / amount, lambda rung: ladder[rung] / sensitivity, order=order, coordinates=size)
            for size in _shares(count)
        ]
        steps, coordinates = _side_by_side([draw_jumps(line, bits) for line in lines])
        rungs = top - 1 - steps

        def sample(at: NDArray[np.intp]) -> NDArray[Any]:
            scale = Parameter(amount / levels, lambda rung: sensitivity / ladder[rung], at, at.shape)
            return sampler(scale, bits)

        return cls(sample(np.full(count, top)), rungs, coordinates, sample(rungs))

    def at(self, rung: int) -> NDArray[Any]:
        """The noise of one rung."""
        noise = self.top.astype(np.result_type(self.top, self.sizes))
        below = self._jumps_from(rung)
        np.add.at(noise, self.coordinates[:below], self.sizes[:below])
        return noise

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """The noise of rungs ``start`` to ``stop - 1``, one row a rung."""
        last = self.at(stop - 1)
        rows = np.zeros((stop - start, len(last)), last.dtype)
        rows[-1] = last
        jumped = slice(self._jumps_from(stop - 1), self._jumps_from(start))
        rows[self.rungs[jumped] - start, self.coordinates[jumped]] = self.sizes[jumped]
        upward = rows[::-1]
        np.cumsum(upward, axis=0, out=upward)
        return rows

    def _jumps_from(self, rung: int) -> int:
        """How many jumps belong to this rung or to less private ones."""
        return int(np.searchsorted(-self.rungs, -rung, side="right"))

    def reach(self) -> NDArray[np.float64]:
        """A bound on the magnitude of each coordinate's noise, at any rung."""
        reach: NDArray[np.float64] = np.abs(self.top).astype(float)
        np.add.at(reach, self.coordinates, np.abs(self.sizes).astype(float))
        return reach

    def widened(self) -> JumpNoise:
        """The same noise in Python integers, which cannot overflow."""
        return JumpNoise(self.top.astype(object), self.rungs, self.coordinates, self.sizes.astype(object))

    def under(self, top: NDArray[Any], rung: int) -> JumpNoise:
        """The same noise under a new, less private top rung; ``rung`` is the index of the old one."""
        sizes = self.top - top
        moved = np.flatnonzero(sizes)
        return JumpNoise(
            top,
            np.concatenate([np.full(len(moved), rung), self.rungs]),
            np.concatenate([moved, self.coordinates]),
            np.concatenate([sizes[moved], self.sizes]),
        )


def _shares(count: int) -> list[int]:
    """Coordinates per line: a long line would leave more points to exact arithmetic."""
    return [min(_LINE, count - start) for start in range(0, count, _LINE)]


def _side_by_side(parts: list[tuple[NDArray[Any], NDArray[Any]]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The jumps of all lines, from the top rung down."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    steps = np.concatenate([steps for steps, _ in parts])
    coordinates = np.concatenate([_LINE * place + each for place, (_, each) in enumerate(parts)])
    order = np.argsort(steps, kind="stable")
    return steps[order], coordinates[order]


def check_rates(ladder: Ladder, sensitivity: Fraction) -> None:
    """Refuse rungs whose noise is none at all, or wider than exact sampling supports."""
    check_level(ladder.cap, sensitivity)
    check_scale(ladder[0], sensitivity)
