"""Float draws for reference distributions: post-processing of public numbers, so their rounding protects nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.noise import BitSource, system_bits

__all__ = ["binomials", "laplaces", "multinomials", "normals", "uniforms"]

Floats = NDArray[np.float64]


def uniforms(shape: tuple[int, ...], bits: BitSource | None = None) -> Floats:
    """Uniform numbers strictly between 0 and 1, on a grid of 2^-53.

    >>> bool((uniforms((3,)) > 0).all())
    True
    """
    words = (bits or system_bits()).words(int(np.prod(shape)))
    drawn: Floats = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return drawn.reshape(shape)


def normals(shape: tuple[int, ...], bits: BitSource | None = None) -> Floats:
    """Standard normal numbers, by inversion.

    >>> normals((2, 3)).shape
    (2, 3)
    """
    drawn: Floats = special.ndtri(uniforms(shape, bits))
    return drawn


def laplaces(shape: tuple[int, ...], bits: BitSource | None = None) -> Floats:
    """Laplace numbers of scale 1, by inversion.

    >>> laplaces((4,)).shape
    (4,)
    """
    centred = uniforms(shape, bits) - 0.5
    drawn: Floats = -np.sign(centred) * np.log1p(-2 * np.abs(centred))
    return drawn


def binomials(trials: Any, chance: Any, bits: BitSource | None = None) -> Floats:
    """Binomial numbers, one for each element of the broadcast arguments, by inversion of the distribution function.

    >>> binomials(np.full(4, 10), 1.0)
    array([10., 10., 10., 10.])
    """
    n, p = np.broadcast_arrays(np.asarray(trials, np.float64), np.clip(chance, 0.0, 1.0))
    u = uniforms(n.shape, bits)
    inside = (n > 0) & (p > 0) & (p < 1)
    safe_n, safe_p = np.where(inside, n, 1.0), np.where(inside, p, 0.5)
    k = np.ceil(special.bdtrik(u, safe_n, safe_p))
    k = np.clip(np.nan_to_num(k, nan=0.0), 0.0, safe_n)  # below P(0) the inverse has no solution: the answer is 0
    drawn: Floats = np.where(inside, k, np.where(p >= 1, n, 0.0))
    return drawn


def multinomials(trials: int, chances: Floats, size: int, bits: BitSource | None = None) -> Floats:
    """``size`` rows of multinomial counts, cell after cell by conditional binomials.

    >>> bool((multinomials(7, np.array([0.2, 0.3, 0.5]), 5).sum(axis=1) == 7).all())
    True
    """
    cells = np.asarray(chances, np.float64).ravel()
    left, mass = np.full(size, float(trials)), 1.0
    counts = np.empty((size, cells.size))
    for cell, chance in enumerate(cells[:-1]):
        counts[:, cell] = binomials(left, chance / mass if mass > 0 else 0.0, bits)
        left = left - counts[:, cell]
        mass -= chance
    counts[:, -1] = left
    return counts
