"""Exact geometric noise, one-sided: the discrete exponential."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import exp_minus, is_below
from expost.noise.parameter import Parameter, blocks
from expost.noise.uniform_reals import UniformReals

__all__ = ["geometric"]

_HEAD_BITS = 14  # the float filter inverts scales up to 2^14; the rest of a scale goes into uniform low bits
_HEAD_ERROR = 2.0**-42  # relative to the scale: MINUS_LOG_ERROR, plus 14 * 2^-50 for the scale, product and sum
_SURE = np.uint64((1 << 64) - (1 << 51))  # 1 - 2^-13, as a 64-bit fraction
_MOST_SHARED_BITS = 51  # of one word: leaves the 13 digits of a coin that ``_SURE`` compares
_MOST_LOW_BITS = 62  # of one word and of int64
_WIDE = 1 << 62  # beyond this a value is kept as a Python integer


def geometric(scale: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Non-negative integers with P(g) proportional to exp(-g / scale).

    The distribution is exact: ``floor(-scale ln U)`` of a uniform real U, whose digits are refined until the floor is
    certain (docs/proofs/inversion-filter.md). ``scale`` is a rational, or one per element.

    >>> from expost.noise.bits import SeededBits
    >>> geometric(2, 5, bits=SeededBits(1)).shape
    (5,)
    """
    parameter = Parameter.read(scale, size, "scale")
    return parameter.shaped(draw_geometric(parameter, source_of(bits)))


def draw_geometric(scale: Parameter, bits: BitSource) -> NDArray[Any]:
    """One value per element of ``scale``, flat; int64 unless a value needs more than 62 bits."""
    inversion = _Inversion(scale)
    parts = [inversion.draw(part, bits) for part in blocks(scale.count)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class _Inversion:
    """G = H 2^m + L: H geometric of scale t / 2^m <= 2^14 by inversion, L < 2^m uniform, thinned by exp(-L / t)."""

    def __init__(self, scale: Parameter) -> None:
        self._scale = scale
        fraction, exponent = np.frexp(scale.floats)
        self._shift = np.maximum(exponent - _HEAD_BITS, 0).astype(np.uint64)
        if self._shift.size and self._shift.max() > _MOST_LOW_BITS:
            # One word would not hold the low bits, and noise without them protects nothing between its multiples.
            raise InvalidRequest("Expected noise narrower than 2^76 lattice units", do="Raise epsilon")
        # The digits of a coin that are known at first: what its low bits leave of their word, or a whole word.
        self._known = np.where(self._shift > _MOST_SHARED_BITS, 64, 64 - self._shift.astype(np.int32)).astype(np.int32)
        self._head = np.ldexp(fraction, np.minimum(exponent, _HEAD_BITS))

    def draw(self, part: slice, bits: BitSource) -> NDArray[Any]:
        head = self._draw_head(part, bits)
        if not self._shift.any():
            return head
        shift = np.broadcast_to(self._scale.take(self._shift, part), head.shape)
        low = self._draw_low(part.start, shift, bits)
        if int(head.max()) + 1 << int(shift.max()) > _WIDE:
            return np.asarray((head.astype(object) << shift.astype(object)) + low, dtype=object)
        return np.left_shift(head, shift.astype(np.int64)) + low

    def _draw_head(self, part: slice, bits: BitSource) -> NDArray[np.int64]:
        reals = UniformReals(part.stop - part.start, bits)
        scale = self._scale.take(self._head, part)
        x = reals.minus_log()
        x *= scale
        slack = scale * _HEAD_ERROR
        x -= slack
        head = x.astype(np.int64)  # towards zero: right for x < slack too, the true value is not negative
        x += 2 * slack
        for element in np.flatnonzero(head != x.astype(np.int64)).tolist():
            head[element] = self._exact_head(reals, element, part.start + element)
        return head

    def _exact_head(self, reals: UniformReals, real: int, element: int) -> int:
        """floor(-scale ln U), by exact bounds; U gets more digits until both ends agree."""
        scale = self._scale.exact(element) / (1 << self._shift_of(element))
        while True:
            _, length = reals.digits(real)
            low, high = (scale * bound // (1 << length) for bound in reals.minus_log_bounds((real,), length))
            if low == high:
                return low
            reals.refine(real)

    def _draw_low(self, start: int, shift: NDArray[np.uint64], bits: BitSource) -> NDArray[np.int64]:
        """L < 2^m with P(L) proportional to exp(-L / t): uniform bits, drawn again where a coin rejects them.

        One word holds both: its first m bits are L, the others begin the coin. Where that leaves fewer than 13 digits
        the coin gets a word of its own: its first 13 digits decide whether it is looked at more closely.
        """
        low = np.zeros(len(shift), np.int64)
        pending = np.flatnonzero(shift)
        while pending.size:
            words, shifts = bits.words(pending.size), shift[pending]
            low[pending] = (words >> (np.uint64(64) - shifts)).astype(np.int64)
            coins = words << shifts
            alone = np.flatnonzero(shifts > _MOST_SHARED_BITS)
            if alone.size:
                coins[alone] = bits.words(alone.size)
            # exp(-L / t) > 1 - 2^-13: a coin that begins below that succeeds, whatever L.
            doubtful = np.flatnonzero(coins >= _SURE)
            pending = pending[doubtful]
            pending = pending[self._rejected(coins[doubtful], low[pending], start + pending, bits)]
        return low

    def _rejected(
        self, coins: NDArray[np.uint64], low: NDArray[np.int64], elements: NDArray[np.intp], bits: BitSource
    ) -> NDArray[np.bool_]:
        """Which coins of probability exp(-L / t) fail; those of which only some digits are known may need more."""
        entries = np.zeros_like(elements) if self._scale.index is None else self._scale.index[elements]
        known = self._known[entries]
        y = low / self._scale.floats[entries]
        begin, room = coins * 2.0**-64, 2.0**-50 + np.ldexp(1.0, -known)
        rejected: NDArray[np.bool_] = begin > 1 - y + y * y / 2 + room
        for place in np.flatnonzero(~rejected & (begin >= 1 - y - room)).tolist():
            digits = int(known[place])
            exact = partial(exp_minus, int(low[place]) / self._scale.exact(int(elements[place])))
            rejected[place] = not is_below(int(coins[place]) >> (64 - digits), digits, exact, bits)
        return rejected

    def _shift_of(self, element: int) -> int:
        return int(self._scale.take(self._shift, slice(element, element + 1))[0])
