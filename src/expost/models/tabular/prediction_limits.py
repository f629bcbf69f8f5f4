"""Limits of a regression's predictions, found in a noisy count of them: narrow ones make a score cheaper to test."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["PREDICTION_BINS", "count_predictions", "narrow_limits"]

Floats = NDArray[np.float64]
# Distances from the middle, in spreads of the target, at which bins begin; the last one has no end.
_EDGES = np.array([0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 1.9, 2.4, 3.0, 3.7])
PREDICTION_BINS = 2 * len(_EDGES)
_CENTERS = np.append((_EDGES[1:] + _EDGES[:-1]) / 2, 1.1 * _EDGES[-1])
_DOUBT = 1.0  # deviations of the noise by which a loss is taken to be larger than it was measured


def count_predictions(distances: Floats, spread: float) -> Floats:
    """Return, for each row, a one in the bin of its prediction's distance from the middle; none for near ones.

    >>> count_predictions(np.array([-9.0, 0.0, 0.3]), 1.0).argmax(axis=1).tolist()
    [23, 0, 0]
    """
    numbers = np.searchsorted(_EDGES * spread, np.abs(distances), side="right")
    places = np.where(distances < 0, len(_EDGES), 0) + numbers  # 1 + bin, and a place without a bin for near ones
    out = np.zeros((len(distances), 1 + PREDICTION_BINS))
    np.put_along_axis(out, np.where(numbers, places, 0)[:, None], 1.0, axis=1)
    return out[:, 1:]


def narrow_limits(
    limits: tuple[float, float],
    counts: tuple[Floats, float],
    surplus: float,
    spread: float,
    find_height: Callable[[tuple[float, float]], float],
    *,
    squared: bool,
) -> tuple[tuple[float, float], float]:
    """Return limits at which a test of the model is likely to be cheapest, and about how much of the surplus they cost.

    A model whose predictions are right on average loses the square of what is cut off, or that itself if errors are not
    ``squared``.

    Parameters
    ----------
    limits : (float, float)
        The distances from the middle that predictions have at most, below and above.
    counts : (ndarray, float)
        The noisy number of predictions in each bin, and the deviation of its noise.
    surplus : float
        About the model's deciding sum.
    spread : float
        The released spread of the target.
    find_height : callable
        How far a row can move the deciding sum, for some limits.
    squared : bool
        Whether errors count squared.
    """
    found, noise = counts
    above, below = np.split(found, 2)
    lows = _find_losses(-limits[0], below, noise, spread, squared=squared)
    highs = _find_losses(limits[1], above, noise, spread, squared=squared)
    best, lost, most = limits, 0.0, max(surplus, 0.0) / find_height(limits)
    for low, low_loss, low_noise in lows:
        for high, high_loss, high_noise in highs:
            loss = low_loss + high_loss
            worth = (surplus - loss - _DOUBT * math.hypot(low_noise, high_noise)) / find_height((-low, high))
            if worth > most:
                best, lost, most = (-low, high), loss, worth
    return best, lost


def _find_losses(
    limit: float, counts: Floats, noise: float, spread: float, *, squared: bool
) -> list[tuple[float, float, float]]:
    """Return possible limits on a side, the loss of surplus of each, and its deviation."""
    edges, centers = _EDGES * spread, np.minimum(_CENTERS * spread, limit)
    possible, last = [(limit, 0.0, 0.0)], int(np.searchsorted(edges, limit))  # no prediction is further than the limit
    for first in range(last):
        cut = np.maximum(centers[first:last] - edges[first], 0.0) ** (2 if squared else 1)
        loss = max(float(counts[first:last] @ cut), 0.0)
        possible.append((float(edges[first]), loss, noise * float(np.linalg.norm(cut))))
    return possible
