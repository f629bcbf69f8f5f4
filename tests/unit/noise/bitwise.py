"""Reference samplers for tests: integer comparisons only, bit by bit.

The binary digits of a geometric variable are independent: digit i is 1 with probability 1 / (1 + exp(2^i / scale))
(docs/proofs/bitwise-geometric.md). Each digit compares 16 random bits with the first 16 bits of that probability and
draws more on a tie. Slower than ``sample_geometric`` and free of floats: the oracle of the fast samplers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import Real, bound_exp_minus, bound_logistic_minus, is_below
from expost.noise.parameter import Parameter, iterate_blocks

__all__ = ["bitwise_geometric", "bitwise_laplace", "floor_of"]

_DIGIT = 16  # random bits compared at first
_REACH = 45  # scales covered by the digits; beyond lies exp(-45) < 2^-64, drawn apart
_WIDEST = 62  # digits that fit an int64


def floor_of(real: Real, length: int) -> int:
    """Compute floor(x 2^length), certain; for numbers that are not a whole multiple of any 2^-n.

    >>> floor_of(lambda length: bound_exp_minus(Fraction(1), length), 10)
    376
    """
    extra = 16
    while True:
        low, high = (bound >> extra for bound in real(length + extra))
        if low == high:
            return low
        extra += 64


def bitwise_geometric(scale: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Draw non-negative integers with P(g) proportional to exp(-g / scale), by integer arithmetic.

    >>> from expost.noise.bits import SeededBits
    >>> bitwise_geometric(2, 4, bits=SeededBits(1)).dtype
    dtype('int64')
    """
    parameter = Parameter.read(scale, size, "scale")
    return parameter.reshape(_each_scale(parameter, resolve_bits(bits), signed=False))


def bitwise_laplace(scale: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Draw integers with P(k) proportional to exp(-|k| / scale), by integer arithmetic.

    >>> from expost.noise.bits import SeededBits
    >>> bitwise_laplace(2, 4, bits=SeededBits(1)).dtype
    dtype('int64')
    """
    parameter = Parameter.read(scale, size, "scale")
    return parameter.reshape(_each_scale(parameter, resolve_bits(bits), signed=True))


def _each_scale(scale: Parameter, bits: BitSource, *, signed: bool) -> NDArray[Any]:
    index = np.zeros(scale.count, np.intp) if scale.index is None else scale.index
    values: NDArray[Any] = np.empty(scale.count, np.int64)
    for entry in range(len(scale.floats)):
        places = np.flatnonzero(index == entry)
        drawn = _Digits(scale.entry(entry)).draw(len(places), bits, signed=signed)
        if drawn.dtype == object:
            values = values.astype(object)
        values[places] = drawn
    return values


class _Digits:
    """The digits of a geometric variable of one scale; the sign of a discrete Laplace is one more lowest digit.

    1 / (1 + exp(1 / scale)) is the probability of digit 0 and of a negative sign alike.
    """

    def __init__(self, scale: Fraction) -> None:
        self._scale = scale
        self._count = max(1, (_REACH * scale.numerator // scale.denominator).bit_length())
        self._coins = [partial(bound_logistic_minus, (1 << place) / scale) for place in range(self._count)]
        self._coins.insert(0, self._coins[0])
        padding = -len(self._coins) % 8
        floors = [floor_of(coin, _DIGIT) for coin in self._coins]
        self._floors = np.array(floors + [0] * padding, dtype=np.uint16)
        self._above = partial(bound_exp_minus, (1 << self._count) / scale)

    def draw(self, count: int, bits: BitSource, *, signed: bool) -> NDArray[Any]:
        parts = [self._draw_block(part.stop - part.start, bits, signed) for part in iterate_blocks(count)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _draw_block(self, count: int, bits: BitSource, signed: bool) -> NDArray[Any]:
        digits = self._draw_digits(count, bits)
        signs = -digits[:, 0].astype(np.int64)
        packed = np.zeros((count, 16), np.uint8)
        packed[:, : -(-self._count // 8)] = np.packbits(digits[:, 1 : self._count + 1], axis=1, bitorder="little")
        values = packed.view("<u8")[:, 0].astype(np.int64) if self._count <= _WIDEST else _wide(packed)
        values = self._add_overshoot(values, bits)
        return values ^ signs if signed else values

    def _draw_digits(self, count: int, bits: BitSource) -> NDArray[np.bool_]:
        words = bits.words(count * len(self._floors), np.uint16).reshape(count, -1)
        digits = words < self._floors
        for row, column in np.argwhere(words == self._floors).tolist():
            if column < len(self._coins):
                digits[row, column] = is_below(int(words[row, column]), _DIGIT, self._coins[column], bits)
        return digits

    def _add_overshoot(self, values: NDArray[Any], bits: BitSource) -> NDArray[Any]:
        """Add 2^count once per coin of probability exp(-2^count / scale): the digits above, of any number."""
        words = bits.words(len(values))
        for place in np.flatnonzero(words < np.uint64(4)).tolist():  # the probability is below 3 * 2^-64
            prefix, laps = int(words[place]), 0
            while is_below(prefix, 64, self._above, bits):
                prefix, laps = bits.integer(64), laps + 1
            if laps:
                values = values.astype(object)
                values[place] += laps << self._count
        return values


def _wide(packed: NDArray[np.uint8]) -> NDArray[Any]:
    return np.array([int.from_bytes(row.tobytes(), "little") for row in packed], dtype=object)
