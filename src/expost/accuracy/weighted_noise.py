"""How far a weighted sum of independent discrete Laplace noises strays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["continuous_radius", "laplace_sum_radius"]

Floats = NDArray[np.float64]

_APART = 1.04  # the least ratio of two scales whose partial fractions are computed
_SMALLEST = 1e-4  # of the largest scale: smaller ones are raised to it
_FLOAT_ERROR = 1e-12  # of the sum of sizes of all fractions, added to the tail
_HALVINGS = 40  # the upper end of the bracket is returned, so what remains of it only widens intervals
_MULTIPLIERS = np.linspace(0.01, 0.99, 99)  # of Chernoff's bound


def laplace_sum_radius(weights: Floats, scale: float, level: float) -> Floats:
    """Return the radius that a weighted sum of discrete Laplace noises exceeds in size with at most ``level``.

    A sum of independent Laplace noises of distinct scales a_i has P(|S| > y) = sum_i c_i exp(-y / a_i) with
    c_i = prod over j != i of a_i^2 / (a_i^2 - a_j^2), the partial fractions of its characteristic function. Scales that are
    too close are moved apart upwards, which only widens the sum. Discrete noise is coupled to continuous noise within one
    lattice unit (docs/proofs/shares.md), so the sizes of the weights are added. Chernoff's bound is used where it is smaller.

    Parameters
    ----------
    weights : ndarray
        One row per noise, one column per sum.
    scale : float
        The scale of every noise, in lattice units.
    level : float
        The failure probability of each sum.

    Returns
    -------
    ndarray
        One radius per sum.

    Examples
    --------
    >>> laplace_sum_radius(np.array([[1.0], [0.5]]), 10.0, 0.05).round(1).tolist()
    [34.2]
    """
    sizes = np.abs(weights)
    return np.asarray(scale * continuous_radius(sizes, level) + sizes.sum(axis=0))


def continuous_radius(sizes: Floats, level: float) -> Floats:
    """Return the radius of each weighted sum of continuous Laplace noises of scale one.

    Parameters
    ----------
    sizes : ndarray
        The sizes of the weights, one row per noise, one column per sum.
    level : float
        The failure probability of each sum.
    """
    largest = sizes.max(axis=0)
    widest = np.where(largest > 0, largest, 1.0)
    scales = np.sort(np.maximum(sizes / widest, _SMALLEST), axis=0)
    for place in range(1, len(scales)):
        scales[place] = np.maximum(scales[place], _APART * scales[place - 1])
    squares = scales**2
    differences = squares[:, None] - squares[None, :]
    np.einsum("iic->ic", differences)[:] = squares  # so that the factor of a scale with itself is one
    fractions = (squares[:, None] / differences).prod(axis=1)
    low = np.zeros_like(widest)
    high = _chernoff_radius(sizes / widest, level)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        parts = fractions * np.exp(-middle / scales)
        enough = parts.sum(axis=0) + _FLOAT_ERROR * np.abs(fractions).sum(axis=0) <= level
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(largest > 0, high * widest, 0.0)


def _chernoff_radius(sizes: Floats, level: float) -> Floats:
    """Return Chernoff's radius of sums whose largest weight is one: E exp(h X) = 1 / (1 - h^2)."""
    log_moment = -np.log1p(-((_MULTIPLIERS[:, None, None] * sizes) ** 2)).sum(axis=1)
    radii: Floats = ((log_moment + np.log(2 / level)) / _MULTIPLIERS[:, None]).min(axis=0) * (1 + 1e-9)
    return radii
