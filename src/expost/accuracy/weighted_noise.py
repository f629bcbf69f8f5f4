"""How far a weighted sum of independent discrete Laplace noises strays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["continuous_radius", "equal_sum_factors", "laplace_sum_radius", "lower_radius"]

Floats = NDArray[np.float64]

_APART = 1.04  # the least ratio of two scales whose partial fractions are computed
_SMALLEST = 1e-4  # of the largest scale: smaller ones are raised to it
_FLOAT_ERROR = 1e-12  # of the sum of sizes of all fractions, added to the tail
_STEPS, _CLOSE = 7, 1e-6  # of Newton's method: the most steps, and the relative step that ends it
_HALVINGS = 40  # the upper end of the bracket is returned, so what remains of it only widens intervals
_MULTIPLIERS = np.linspace(0.01, 0.99, 99)  # of Chernoff's bound
_SERIES_FROM, _FREQUENCIES = 5, 256  # noises from which on a Fourier series is summed, and its most terms
_REPEATED = 1e-6  # of the level: what the series may leave out, and what its repetitions may add


def laplace_sum_radius(weights: Floats, scale: float, level: float) -> Floats:
    """Return the radius that a weighted sum of discrete Laplace noises exceeds in size with at most ``level``.

    A sum of independent Laplace noises of distinct scales a_i has P(|S| > y) = sum_i c_i exp(-y / a_i) with
    c_i = prod over j != i of a_i^2 / (a_i^2 - a_j^2), the partial fractions of its characteristic function. Scales that are
    too close are moved apart upwards, which only widens the sum. The law of many noises is summed as a Fourier series. Discrete
    noise is coupled to continuous noise within one lattice unit (docs/proofs/shares.md), so the sizes of the weights are
    added. Chernoff's bound is used where it is smaller.

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


def equal_sum_factors(count: int, level: float) -> tuple[float, float]:
    """Return two radii of the sum of ``count`` Laplace noises of scale one: the exact one, and Chernoff's.

    The size of the sum is a mixture of Erlang laws: of order k - i with probability C(k-1+i, i) / 2^(k-1+i)
    (docs/proofs/windows.md). Discrete noise of scale s is within s times the first, plus one for each noise, and within s
    times the second: E exp(h X) of discrete noise is at most that of continuous noise.

    Parameters
    ----------
    count : int
        The number of noises.
    level : float
        The probability with which the sum may exceed each radius.

    Examples
    --------
    >>> exact, bound = equal_sum_factors(1, 0.05)
    >>> round(exact, 3), round(bound, 3)
    (2.996, 5.847)
    """
    orders = np.arange(count)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 2 * count)))])
    logs = (
        factorials[count - 1 + orders] - factorials[count - 1] - factorials[orders] - (count - 1 + orders) * np.log(2)
    )
    above = np.logaddexp.accumulate(logs)[::-1]  # of each order j: the probability that the mixture's order is above j
    chernoff = float(_chernoff_radius(np.ones((count, 1)), level)[0])
    low, high = 0.0, chernoff
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tail = np.exp(orders * np.log(middle) - middle - factorials[:count] + above).sum()
        low, high = (low, middle) if tail * (1 + _FLOAT_ERROR) <= level else (middle, high)
    return high, chernoff


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
    # What float errors can hide is added to the tail, which leaves the root of the rest of the level.
    wanted = np.maximum(level - _FLOAT_ERROR * np.abs(fractions).sum(axis=0), 0.0)

    def tail(radius: Floats) -> tuple[Floats, Floats]:
        parts = fractions * np.exp(-radius / scales)
        return parts.sum(axis=0), (parts / scales).sum(axis=0)

    radius = lower_radius(_chernoff_radius(sizes / widest, level), tail, wanted)
    if len(sizes) >= _SERIES_FROM:
        radius = np.minimum(radius, _series_radius(sizes / widest, level))
    return np.where(largest > 0, radius * widest, 0.0)


def _series_radius(sizes: Floats, level: float) -> Floats:
    """Return the radius of sums whose largest weight is one, by the Fourier series of their law (docs/proofs/shares.md).

    Repeated with a period, the density has the Fourier coefficients of its characteristic function, which are positive. What
    the repetitions and the terms left out can add is taken off the level; where that is too much, Chernoff's radius stays.
    """
    chernoff = _chernoff_radius(sizes, level)
    period = chernoff + _chernoff_radius(sizes, level * _REPEATED)
    terms = np.arange(1, _FREQUENCIES + 1)[:, None]
    frequencies = 2 * np.pi * terms / period
    factors = np.zeros_like(frequencies)
    for size in sizes:
        factors -= np.log1p((size * frequencies) ** 2)
    used = min(int((factors > math.log(level * _REPEATED)).sum(axis=0).max()) + 1, _FREQUENCIES)
    factors, frequencies, terms = np.exp(factors[:used]), frequencies[:used], terms[:used]
    # Terms that are left out fall at least with the square of the frequency once the largest weight times it is one.
    short = np.where(frequencies[-1] >= 1, factors[-1], 1.0) + _REPEATED * level + _FLOAT_ERROR
    weights = (2 / np.pi) * factors / terms

    def tail(radius: Floats) -> tuple[Floats, Floats]:
        angles = frequencies * radius
        inside = 2 * radius / period + (weights * np.sin(angles)).sum(axis=0)
        density = 2 / period * (1 + 2 * (factors * np.cos(angles)).sum(axis=0))
        return 1 - inside, density

    return lower_radius(chernoff, tail, np.maximum(level - short, 0.0))


def lower_radius(radius: Floats, tail: Callable[[Floats], tuple[Floats, Floats]], level: Floats | float) -> Floats:
    """Lower safe radii to the least ones by Newton's method on the logarithm of the tail.

    Sums of Laplace noises have log-concave laws, so the logarithm of the tail is concave and lies below its tangents: a
    step from above the root stays above it. A step that would not, because of float errors, is not taken.

    Parameters
    ----------
    radius : ndarray
        Radii that are large enough.
    tail : callable
        Returns the probability to exceed each radius, and minus its derivative.
    level : ndarray or float
        The probability to exceed each radius that is allowed.
    """
    exceeded, slope = tail(radius)
    for _ in range(_STEPS):
        # Where the tail is lost in float errors, no step is taken.
        sound = (exceeded > 0) & (slope > 0) & (exceeded < level)
        ratio = np.where(sound, exceeded, 1.0) / np.where(sound, level, 1.0)
        moved = radius + np.where(sound, np.log(ratio) * exceeded / np.where(sound, slope, 1.0), 0.0) * (1 - 1e-9)
        after = tail(moved)
        better = sound & (after[0] <= level)
        settled = bool((moved >= radius * (1 - _CLOSE)).all())
        radius, exceeded = np.where(better, moved, radius), np.where(better, after[0], exceeded)
        slope = np.where(better, after[1], slope)
        if settled:
            break
    return radius


def _chernoff_radius(sizes: Floats, level: float) -> Floats:
    """Return Chernoff's radius of sums whose largest weight is one: E exp(h X) = 1 / (1 - h^2)."""
    log_moment = -np.log1p(-((_MULTIPLIERS[:, None, None] * sizes) ** 2)).sum(axis=1)
    radii: Floats = ((log_moment + np.log(2 / level)) / _MULTIPLIERS[:, None]).min(axis=0) * (1 + 1e-9)
    return radii
