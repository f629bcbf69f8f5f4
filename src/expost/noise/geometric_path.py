"""One-sided geometric noise that shrinks rung by rung: thresholds that sharpen."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Sensitivity
from expost.noise.bits import BitSource, source_of
from expost.noise.geometric import draw_geometric
from expost.noise.jump_noise import JumpNoise
from expost.noise.path import check_block, check_rung, ladder_of, narrowed, refuse_copies

__all__ = ["GeometricPath"]


class GeometricPath:
    """Non-negative integer noise, P(g) proportional to exp(-g epsilon_r / sensitivity) at rung r, each from the next.

    It carries no answer: a test adds it to its threshold and keeps it secret.

    Guarantee: one-sided, known only after the run: moving the noise of every rung up to r by d <= sensitivity, all in
        the same direction d > 0, changes the probability of those rungs by a factor of at most exp(epsilon_r).
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: of the value that the threshold is compared with, in lattice units.
    Accuracy: noise > t with probability a^(t+1) per coordinate, a = exp(-epsilon_r / sensitivity); never below 0.
    Numerics: exact; integers, rational epsilons, no float decides an outcome.
    Reference: docs/proofs/geometric-path.md.

    >>> from expost.noise.bits import SeededBits
    >>> path = GeometricPath(Sensitivity(1), Ladder.of([0.1, 1]), bits=SeededBits(1))
    >>> bool((path.block(0, 2) >= 0).all())
    True
    """

    def __init__(
        self,
        sensitivity: Sensitivity,
        ladder: Ladder | Iterable[float | Fraction],
        *,
        size: int = 1,
        bits: BitSource | None = None,
    ) -> None:
        if not isinstance(sensitivity, Sensitivity):
            raise InvalidRequest("Expected a Sensitivity", got=sensitivity, do="Pass Sensitivity(amount)")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidRequest("Expected at least one coordinate", got=size, do="Pass size >= 1")
        source = source_of(bits)
        self.ladder = ladder_of(ladder)
        self.size, self.private = size, source.private
        amount = Fraction(sensitivity.amount)
        noise = JumpNoise.draw(self.ladder, amount, size, order=1, sampler=draw_geometric, bits=source)
        self._noise = noise.widened() if noise.reach().max() >= 2.0**62 else noise

    def at(self, rung: int) -> NDArray[Any]:
        """The noise of one rung, one value a coordinate."""
        return narrowed(self._noise.at(check_rung(self.ladder, rung)))

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """The noise of rungs ``start`` to ``stop - 1``, one row a rung."""
        return narrowed(self._noise.block(*check_block(self.ladder, start, stop)))

    def __repr__(self) -> str:
        return f"<geometric path of {self.size} coordinates over {len(self.ladder)} rungs>"

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse_copies
