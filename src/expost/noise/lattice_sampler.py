"""Exact samplers of integer noise: geometric, discrete Laplace and discrete Gaussian."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import Real, UniformReals, bound_exp_minus, bound_logistic_minus, bound_ratio, is_below
from expost.noise.parameter import LARGEST_SCALE, Parameter, iterate_blocks, share_noise_parameters

__all__ = [
    "draw_gaussian",
    "draw_geometric",
    "draw_laplace",
    "sample_gaussian",
    "sample_geometric",
    "sample_laplace",
]

_HEAD_BITS = 14  # the float filter inverts scales up to 2^14; the rest of a scale goes into uniform low bits
_HEAD_ERROR = 2.0**-42  # relative to the scale: MINUS_LOG_ERROR, plus 14 * 2^-50 for the scale, product and sum
_SURE = np.uint64((1 << 64) - (1 << 51))  # 1 - 2^-13, as a 64-bit fraction
_MOST_SHARED_BITS = 51  # of one 64-bit integer: leaves the 13 digits of a coin that ``_SURE`` compares
_MOST_LOW_BITS = 62  # of one 64-bit integer and of int64
_WIDE = 1 << 62  # beyond this a value is kept as a Python integer
_SIGN_ERROR = 2.0**-31  # 32 bits determine U to 2^-32; the float probability and the sums err by less than 2^-48
_EXPONENT_ERROR = 2.0**-44  # of the float exponent h, times h + 4: docs/proofs/inversion-filter.md
_TRIES = 1.4  # proposals per Gaussian value; most scales need 1.32


@share_noise_parameters
def sample_geometric(scale: object, size: int | tuple[int, ...] | None = None, *, bits: BitSource | None = None) -> Any:
    """Draw non-negative integers with P(g) proportional to exp(-g / scale).

    The distribution is exact: ``floor(-scale ln U)`` of a uniform real U, whose digits are refined until the integer
    is certain (docs/proofs/inversion-filter.md).

    Returns
    -------
    int or numpy.ndarray
        int64; Python integers where a value needs more than 62 bits.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sample_geometric(2, 5, bits=SeededBits(1)).shape
    (5,)
    """
    parameter = Parameter.read(scale, size, "scale")
    return parameter.reshape(draw_geometric(parameter, resolve_bits(bits)))


def draw_geometric(scale: Parameter, bits: BitSource) -> NDArray[Any]:
    """Draw one value per element of ``scale``, flat; int64 unless a value needs more than 62 bits.

    A value is H 2^m + L. H is geometric of scale t / 2^m <= 2^14, by inversion. L < 2^m is uniform, thinned by
    exp(-L / t): drawn again where a coin rejects it.
    """
    fraction, exponent = np.frexp(scale.floats)
    shifts = np.maximum(exponent - _HEAD_BITS, 0).astype(np.uint64)
    if shifts.size and shifts.max() > _MOST_LOW_BITS:
        # 64 bits would not hold the low bits, and noise without them protects nothing between its multiples.
        raise InvalidRequest("Expected noise narrower than 2^76 lattice units", do="Raise epsilon")
    head_scales = np.ldexp(fraction, np.minimum(exponent, _HEAD_BITS))
    parts: list[NDArray[Any]] = []
    for part in iterate_blocks(scale.count):
        reals = UniformReals(bits.words(part.stop - part.start), bits)
        head_scale = scale.take(head_scales, part)
        x = reals.minus_log()
        x *= head_scale
        slack = head_scale * _HEAD_ERROR
        x -= slack
        head = x.astype(np.int64)  # toward zero: right for x < slack too, the true value is not negative
        x += 2 * slack
        shift = np.broadcast_to(scale.take(shifts, part), head.shape)
        # Where both ends of the error give one integer it is certain; the others are inverted exactly.
        for element in np.flatnonzero(head != x.astype(np.int64)).tolist():
            exact_scale = scale.exact(part.start + element) / (1 << int(shift[element]))
            head[element] = _invert_exactly(reals, element, exact_scale)
        if not shifts.any():
            parts.append(head)
            continue
        low = np.zeros(len(shift), np.int64)
        pending = np.flatnonzero(shift)
        while pending.size:
            # 64 bits hold both: the first m are L, the others begin the coin. Where that leaves fewer than 13 digits
            # the coin gets 64 bits of its own: its first 13 digits decide whether it needs an exact comparison.
            words, kept = bits.words(pending.size), shift[pending]
            low[pending] = (words >> (np.uint64(64) - kept)).astype(np.int64)
            coins = words << kept
            alone = np.flatnonzero(kept > _MOST_SHARED_BITS)
            if alone.size:
                coins[alone] = bits.words(alone.size)
            # exp(-L / t) > 1 - 2^-13: a coin that begins below that succeeds, whatever L.
            doubtful = np.flatnonzero(coins >= _SURE)
            pending = pending[doubtful]
            known = np.where(kept > _MOST_SHARED_BITS, 64, 64 - kept.astype(np.int32)).astype(np.int32)[doubtful]
            pending = pending[_find_rejected(coins[doubtful], known, low[pending], scale, part.start + pending, bits)]
        if int(head.max()) + 1 << int(shift.max()) > _WIDE:
            parts.append(np.asarray((head.astype(object) << shift.astype(object)) + low, dtype=object))
        else:
            parts.append(np.left_shift(head, shift.astype(np.int64)) + low)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _invert_exactly(reals: UniformReals, index: int, scale: Fraction) -> int:
    """Compute the integer part of -scale ln U by exact bounds; U gets more digits until both bounds agree."""
    while True:
        _, length = reals.digits(index)
        low, high = (scale * bound // (1 << length) for bound in reals.minus_log_bounds((index,), length))
        if low == high:
            return low
        reals.refine(index)


def _find_rejected(
    coins: NDArray[np.uint64],
    known: NDArray[np.int32],
    low: NDArray[np.int64],
    scale: Parameter,
    elements: NDArray[np.intp],
    bits: BitSource,
) -> NDArray[np.bool_]:
    """Decide which coins of probability exp(-L / t) fail; of each ``known`` digits are drawn, more where they matter."""
    entries = np.zeros_like(elements) if scale.index is None else scale.index[elements]
    y = low / scale.floats[entries]
    begin, error = coins * 2.0**-64, 2.0**-50 + np.ldexp(1.0, -known)
    # 1 - y <= exp(-y) <= 1 - y + y^2 / 2
    rejected: NDArray[np.bool_] = begin > 1 - y + y * y / 2 + error
    for place in np.flatnonzero(~rejected & (begin >= 1 - y - error)).tolist():
        digits = int(known[place])
        exact = partial(bound_exp_minus, int(low[place]) / scale.exact(int(elements[place])))
        rejected[place] = not is_below(int(coins[place]) >> (64 - digits), digits, exact, bits)
    return rejected


@share_noise_parameters
def sample_laplace(scale: object, size: int | tuple[int, ...] | None = None, *, bits: BitSource | None = None) -> Any:
    """Draw discrete Laplace noise: integers with P(k) proportional to exp(-|k| / scale), exactly.

    Returns
    -------
    int or numpy.ndarray
        int64; Python integers where a value needs more than 62 bits.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sample_laplace(0.5, 6, bits=SeededBits(3)).dtype
    dtype('int64')
    >>> isinstance(sample_laplace(10), int)
    True
    """
    parameter = Parameter.read(scale, size, "scale")
    return parameter.reshape(draw_laplace(parameter, resolve_bits(bits)))


def draw_laplace(scale: Parameter, bits: BitSource) -> NDArray[Any]:
    """Draw one value per element of ``scale``, flat.

    The value is negative with probability 1 / (1 + exp(1 / scale)), and then -1 - G for a geometric G, else G.
    Nothing is rejected, and zero has one sign.
    """
    magnitudes = draw_geometric(scale, bits)
    flips = np.empty(scale.count, np.int64)
    # P(negative) = exp(-1/t) / (1 + exp(-1/t)): -1 - G and G together have the law exp(-|k| / t).
    tail = np.exp(-1 / scale.floats)
    for part in iterate_blocks(scale.count):
        words = bits.words(part.stop - part.start, np.uint32)
        excess = words * 2.0**-32
        excess -= scale.take(tail / (1 + tail), part)
        negative = -(excess < 0).astype(np.int64)
        for place in np.flatnonzero(np.abs(excess) < _SIGN_ERROR).tolist():
            probability = partial(bound_logistic_minus, 1 / scale.exact(part.start + place))
            negative[place] = -int(is_below(int(words[place]), 32, probability, bits))
        flips[part] = negative
    return magnitudes ^ flips  # k ^ -1 == -1 - k


@share_noise_parameters
def sample_gaussian(
    variance: object, size: int | tuple[int, ...] | None = None, *, bits: BitSource | None = None
) -> Any:
    """Draw discrete Gaussian noise: integers with P(k) proportional to exp(-k^2 / (2 variance)), exactly.

    Proposals are discrete Laplace, accepted by an exact coin (CKS20, Algorithm 3).

    Parameters
    ----------
    variance : number, or sequence or array of numbers
        The exact parameter sigma^2 > 0 in squared lattice units (the variance of the noise is at most that, CKS20,
        Corollary 9). One for all, or one per element.

    Returns
    -------
    int or numpy.ndarray
        int64; Python integers where a value needs more than 62 bits.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> sample_gaussian(100, (2, 3), bits=SeededBits(1)).shape
    (2, 3)
    """
    parameter = Parameter.read(variance, size, "variance", largest=LARGEST_SCALE**2)
    return parameter.reshape(draw_gaussian(parameter, resolve_bits(bits)))


def draw_gaussian(variance: Parameter, bits: BitSource) -> NDArray[Any]:
    """Draw one value per element of ``variance``, flat."""
    rejection = _Rejection(variance)
    draw = rejection.draw_alike if variance.index is None else rejection.draw_each
    parts = [draw(np.arange(part.start, part.stop), bits) for part in iterate_blocks(variance.count)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class _Rejection:
    """Discrete Laplace proposals y of scale t = floor(sigma) + 1, kept with probability exp(-h(y)).

    h(y) = (|y| - sigma^2 / t)^2 / (2 sigma^2).
    """

    def __init__(self, variance: Parameter) -> None:
        self._variance = variance
        # CKS20, Algorithm 3: with t = floor(sigma) + 1 a proposal is kept with a probability bounded away from 0.
        scales = [math.isqrt(math.floor(variance.entry(place))) + 1 for place in range(len(variance.floats))]
        floats = np.array(scales, dtype=float)
        self._proposal = Parameter(floats, lambda entry: Fraction(scales[entry]), variance.index, (variance.count,))
        self._centers = variance.floats / floats

    def draw_alike(self, elements: NDArray[np.intp], bits: BitSource) -> NDArray[Any]:
        """Draw values of one variance: the first proposals that are accepted, whichever element they were made for."""
        kept: list[NDArray[Any]] = []
        missing = len(elements)
        while missing > 0:
            tries = np.zeros(int(missing * _TRIES) + 8, np.intp)
            proposed = draw_laplace(self._proposal.select(tries), bits)
            kept.append(proposed[self._flip_accepted(proposed, tries, bits)])
            missing -= len(kept[-1])
        return np.concatenate(kept)[: len(elements)]

    def draw_each(self, elements: NDArray[np.intp], bits: BitSource) -> NDArray[Any]:
        """Draw values of one variance per element: each is proposed again until it is accepted."""
        values: NDArray[Any] = np.empty(len(elements), np.int64)
        pending = np.arange(len(elements))
        while pending.size:
            proposed = draw_laplace(self._proposal.select(elements[pending]), bits)
            if proposed.dtype == object:
                values = values.astype(object)
            values[pending] = proposed
            pending = pending[~self._flip_accepted(proposed, elements[pending], bits)]
        return values

    def _flip_accepted(self, proposed: NDArray[Any], elements: NDArray[np.intp], bits: BitSource) -> NDArray[np.bool_]:
        """Flip the coin of each proposal."""
        variance = self._variance.select(elements)
        every = slice(0, len(elements))
        h = np.abs(proposed).astype(float)
        h -= variance.take(self._centers, every)
        h *= h
        h /= 2 * variance.take(variance.floats, every)

        def exact(place: int) -> Real:
            sigma2, scale = variance.exact(place), self._proposal.exact(int(elements[place]))
            return partial(bound_ratio, (abs(int(proposed[place])) - sigma2 / scale) ** 2 / (2 * sigma2))

        return UniformReals(bits.words(len(elements)), bits).exceed(h, (h + 4) * _EXPONENT_ERROR, exact)
