"""Float draws for reference distributions: post-processing of public numbers, so their rounding protects nobody."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.noise import BitSource, system_bits

__all__ = ["binomial_masses", "binomials", "laplaces", "more_rows", "multinomials", "normals", "uniforms"]

Floats = NDArray[np.float64]

_LOG = 42.0
_MOST_CELLS = 1 << 24  # of the tables of distribution functions


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
    drawn: Floats = np.where(p >= 1, n, 0.0)
    if inside.any():
        one_chance = np.ndim(chance) == 0
        drawn[inside] = _by_table(u[inside], n[inside], float(chance)) if one_chance else _inverted(u, n, p, inside)
    return drawn


def _inverted(u: Floats, n: Floats, p: Floats, inside: NDArray[np.bool_]) -> Floats:
    k = np.ceil(special.bdtrik(u[inside], n[inside], p[inside]))
    drawn: Floats = np.clip(np.nan_to_num(k, nan=0.0), 0.0, n[inside])  # below P(0) it has no solution: it is 0
    return drawn


def _by_table(u: Floats, n: Floats, chance: float) -> Floats:
    """The same for one chance: distribution functions of the different numbers of trials, looked up side by side."""
    different, place = np.unique(n, return_inverse=True)
    most = float(different[-1])
    # Bernstein's inequality: the binomial mass beyond this reach is below exp(-42), less than one step of the uniform.
    reach = math.ceil(math.sqrt(2 * _LOG * most * chance * (1 - chance)) + 2 * _LOG / 3)
    if len(different) * (2 * reach + 1) > _MOST_CELLS or most > _MOST_CELLS:
        return _inverted(u, n, np.full(n.shape, chance), np.ones(n.shape, np.bool_))
    first = np.maximum(np.floor(different * chance) - reach, 0.0)
    counts = first[:, None] + np.arange(2 * reach + 2)
    upto = np.minimum(np.cumsum(binomial_masses(counts, different[:, None], chance), axis=1), 1.0)
    upto[:, -1] = 1.0
    # One search for all tables: the table of each number of trials lies one unit above the one before.
    lifted = (upto + np.arange(len(different))[:, None]).ravel()
    found = np.searchsorted(lifted, u + place, side="left") - place * upto.shape[1]
    drawn: Floats = np.clip(first[place] + found, 0.0, n)
    return drawn


def binomial_masses(counts: Floats, trials: Floats, chance: float) -> Floats:
    """Binomial probabilities of whole numbers; 0 below zero and beyond the number of trials.

    >>> binomial_masses(np.array([-1.0, 0.0, 1.0, 2.0]), np.array([1.0]), 0.25)
    array([0.  , 0.75, 0.25, 0.  ])
    """
    k, n = np.clip(counts, 0, trials).astype(np.int64), np.asarray(trials).astype(np.int64)
    largest = int(n.max())
    unit = 1 << max(largest.bit_length() - 3, 10)  # so that tables for numbers of about the same size are one
    logs = _log_factorials(-(-largest // unit) * unit)
    likely = logs[n] - logs[k] - logs[n - k] + k * math.log(chance) + (n - k) * math.log1p(-chance)
    masses: Floats = np.where((counts >= 0) & (counts <= trials), np.exp(likely), 0.0)
    return masses


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> Floats:
    logs: Floats = special.gammaln(np.arange(1, most + 2, dtype=np.float64))
    return logs


def multinomials(trials: int, chances: Floats, size: int, bits: BitSource | None = None) -> Floats:
    """``size`` rows of multinomial counts, cell after cell by conditional binomials.

    >>> bool((multinomials(7, np.array([0.2, 0.3, 0.5]), 5).sum(axis=1) == 7).all())
    True
    """
    cells = np.asarray(chances, np.float64).ravel()
    left, mass = np.full(size, float(trials)), 1.0
    counts = np.empty((size, cells.size))
    for cell, chance in enumerate(cells[:-1]):
        share = min(chance / mass, 1.0) if mass > 0 else 0.0
        counts[:, cell] = binomials(left, share, bits)
        left = left - counts[:, cell]
        mass -= chance
    counts[:, -1] = left
    return counts


def more_rows(rows: int, chances: Floats, size: int, bits: BitSource | None = None) -> Floats:
    """The same, row by row; faster for a few rows.

    >>> more_rows(2, np.array([0.2, 0.8]), 5).sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """
    cell = np.searchsorted(np.cumsum(chances)[:-1], uniforms((size, rows), bits), side="right")
    places = cell + np.arange(size)[:, None] * len(chances)
    counts: Floats = np.bincount(places.ravel(), minlength=size * len(chances)).astype(np.float64)
    return counts.reshape(size, len(chances))
