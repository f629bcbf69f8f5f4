"""Margins that a noisy table leaves possible, and tables drawn from all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.noise import BitSource, SeededBits, discrete_laplace
from expost.stats.hypothesis.draw import multinomials, uniforms
from expost.stats.hypothesis.noise_reach import NUISANCE_SIZE, size_range
from expost.stats.hypothesis.table import on_simplex

__all__ = ["NUISANCE_MARGINS", "independent_tables", "margin_net", "nuisance", "possible_sizes", "share_range"]

Floats = NDArray[np.float64]

NUISANCE_MARGINS = 0.001
"""The probability spent on bounding the unknown margins; it is added to the p-value (BB94, Lemma 1)."""

_STEPS = (0.0, 1 / 16, 1 / 4, 1.0)  # from the least even margins that are possible to the most even ones
_UNIFORMS = 1 << 20  # up to here rows are drawn one by one, beyond by conditional binomials
_HALVINGS = 40
_WEAKEST, _STRONGEST, _STRENGTHS = 1e-9, 30.0, 128  # at which Chernoff's bound is taken


def nuisance(rows: int | None) -> float:
    """Return the probability that the true margins (and the true number of rows, if private) are not in the set."""
    return NUISANCE_MARGINS if rows is not None else NUISANCE_MARGINS + NUISANCE_SIZE


def independent_tables(
    noisy: Floats, sizes: Sequence[int], *, scale: float, draws: int, bits: BitSource
) -> Iterator[Floats]:
    """Draw noisy tables of independent columns, ``draws`` for each number of rows and each pair of margins of the net.

    All of them share their random numbers, so that the largest count over the net is not raised by chance alone.
    """
    seed = int(bits.words(1)[0])
    noise = discrete_laplace(Fraction(scale), (draws, *noisy.shape), bits=bits).astype(np.float64)
    by_row = max(sizes) * draws <= _UNIFORMS
    points = uniforms((2, draws, max(sizes)), bits) if by_row else None
    for size in sizes:
        axes = [margin_net(noisy.sum(1 - axis), size, scale, noisy.shape) for axis in (0, 1)]
        if points is None:
            for first in axes[0]:
                for second in axes[1]:
                    yield (
                        multinomials(size, np.outer(first, second), draws, SeededBits(seed)).reshape(noise.shape)
                        + noise
                    )
            continue
        codes = [
            [np.searchsorted(np.cumsum(law)[:-1], points[axis, :, :size], "right") for law in axes[axis]]
            for axis in (0, 1)
        ]
        offsets = noisy.size * np.arange(draws)[:, None]
        for x in codes[0]:
            for y in codes[1]:
                cells = (x * noisy.shape[1] + y + offsets).ravel()
                yield np.bincount(cells, minlength=noise.size).reshape(noise.shape) + noise


def margin_net(totals: Floats, rows: int, scale: float, shape: tuple[int, ...]) -> list[Floats]:
    """Return laws of one column that its noisy totals leave possible: from the least even to the most even, and the best.

    >>> [law.round(2).tolist() for law in margin_net(np.array([900.0, 100.0]), 1000, 1.0, (2, 2))]
    [[0.94, 0.06], [0.93, 0.07], [0.92, 0.08], [0.85, 0.15], [0.9, 0.1]]
    """
    low, high = share_range(totals, rows, scale, shape)
    even, uneven = _most_even(low, high), _least_even(low, high)
    best = np.clip(on_simplex(totals[None] / rows)[0], low, high)
    return [*(uneven + step * (even - uneven) for step in _STEPS), best / best.sum()]


def share_range(totals: Floats, rows: int, scale: float, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Bound the probability of each category; all bounds of both columns hold but with ``NUISANCE_MARGINS``.

    A probability is left out if Chernoff's bound, for the binomial number of rows and the noise together, says that a
    total this small or this large is too unlikely. What the totals exceed the number of rows by is noise, and an even
    share of it is taken off each. The bound rises or falls with the probability, so its end is found by halving.
    """
    kinds, cells = len(totals), math.prod(shape) // len(totals)
    limit = math.log(NUISANCE_MARGINS / 2 / sum(shape))
    seen = totals - (totals.sum() - rows) / kinds
    t = min(0.999 / scale, _STRONGEST) * np.geomspace(_WEAKEST, 1, _STRENGTHS)
    noise = cells * (_log_moment((1 - 1 / kinds) * t, scale) + (kinds - 1) * _log_moment(t / kinds, scale))

    def largest(observed: Floats, most: int) -> Floats:
        """Return the largest probability under which so few rows are not too unlikely, rounded up."""
        low, high = np.zeros(kinds), np.ones(kinds)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            logs = most * np.log1p(middle[:, None] * np.expm1(-t)) + t * observed[:, None] + noise
            unlikely = logs.min(1) <= limit
            low, high = np.where(unlikely, low, middle), np.where(unlikely, middle, high)
        return high

    # Few rows of a category are many of the others.
    high, low = largest(seen, rows), 1 - largest(rows - seen, rows)
    # A set that holds no law at all is one of the rare wrong ones; any law may stand for it.
    return low / max(1.0, float(low.sum())), np.minimum(high / min(1.0, float(high.sum())), 1.0)


def _log_moment(t: Floats, scale: float) -> Floats:
    """Return the logarithm of the moment generating function of discrete Laplace noise."""
    logs: Floats = -np.log1p(-((np.sinh(t / 2) / math.sinh(1 / scale / 2)) ** 2))
    return logs


def possible_sizes(noisy: Floats, rows: int | None, scale: float) -> list[int]:
    """Return the numbers of rows to try: the public one, or the ends and the middle of what the noisy total allows."""
    if rows is not None:
        return [rows]
    low, high = size_range(float(noisy.sum()), noisy.size, scale)
    return sorted({max(size, 1) for size in (low, (low + high) // 2, high)})


def _least_even(low: Floats, high: Floats) -> Floats:
    """Give every category its least share and the rest to as few as possible."""
    order = np.argsort(-high, kind="stable")
    free = (high - low)[order]
    given = np.clip(1 - low.sum() - (np.cumsum(free) - free), 0, free)
    law = low.copy()
    law[order] += given
    total: Floats = law / law.sum()
    return total


def _most_even(low: Floats, high: Floats) -> Floats:
    """Cut one common share to the range of each category; it is found by halving."""
    least, most = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if np.clip(middle, low, high).sum() < 1 else (least, middle)
    law = np.clip(most, low, high)
    total: Floats = law / law.sum()
    return total
