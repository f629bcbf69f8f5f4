"""Probabilities recalibrated from released counts: two numbers, fitted after the noise was added."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from expost.models.descent.score_head import row_sums
from expost.models.tabular.rank_tree import RankCounts

__all__ = ["apply_calibration", "describe_reliability", "fit_calibration", "log_odds"]

Floats = NDArray[np.float64]
_LEVEL, _GROUPS = 5, 3  # levels of the tree that the fit and the receipt read: 32 nodes and 8
_STEPS = 30
_SLOPES, _LARGEST_SHIFT = (0.1, 10.0), 10.0
_PRIOR_ROWS = 10.0  # as if this many rows had said that the probabilities are right
_LEAST = 1e-300
_SHOWN = 6.0  # deviations that a group's count must have


def fit_calibration(counts: RankCounts) -> tuple[float, float]:
    """Return slope and shift of the log-odds that fit the released counts best, near (1, 0) where they tell little.

    It is Platt's fit, on nodes instead of rows. All of it is post-processing.
    """
    found = counts.smooth(_LEVEL)
    scores, rows, hits = counts.scores_of(_LEVEL), np.maximum(found.sum(axis=0), 0.0), np.maximum(found[1], 0.0)
    hits = np.minimum(hits, rows)
    center = counts.center
    features = np.column_stack([scores - center, np.ones(len(scores))])
    point = np.array([1.0, 0.0])  # of (score - center), on top of the center itself
    prior = _PRIOR_ROWS + float(counts.deviations[0])
    for _ in range(_STEPS):
        chances = expit(features @ point + center)
        slope = features.T @ (rows * chances - hits) + prior * (point - [1.0, 0.0])
        bend = (features * (rows * chances * (1 - chances))[:, None]).T @ features + prior * np.eye(2)
        step = np.linalg.solve(bend, slope)
        point = point - step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-12))
        point[0] = min(max(point[0], _SLOPES[0]), _SLOPES[1])
    shift = center - point[0] * center + point[1]
    return float(point[0]), float(min(max(shift, -_LARGEST_SHIFT), _LARGEST_SHIFT))


def apply_calibration(scores: Floats, calibration: tuple[float, float] | None) -> Floats:
    """Return scores (outputs x rows) whose chances are recalibrated; unchanged without a calibration.

    The score of the second of two classes is its log-odds. Of several classes the log-odds of each against the others are
    mapped alike, which changes no order, and the chances are then divided by their sum.

    >>> apply_calibration(np.array([[2.0]]), (0.5, 1.0)).tolist()
    [[2.0]]
    """
    if calibration is None:
        return scores
    slope, shift = calibration
    return (
        scores * slope + shift
        if scores.ndim == 1 or len(scores) == 1
        else np.asarray(log_expit(log_odds(scores) * slope + shift))
    )


def log_odds(scores: Floats) -> Floats:
    """Return the log-odds of each class (classes x rows) against the others. Those of a row depend on its scores only.

    >>> log_odds(np.log([[0.5], [0.25], [0.25]])).round(3).T.tolist()
    [[0.0, -1.099, -1.099]]
    """
    parts = np.exp(scores - np.maximum.reduce(scores, axis=0))
    others = [row_sums(np.delete(parts, each, axis=0)) for each in range(len(parts))]
    return np.asarray(np.log(np.maximum(parts, _LEAST)) - np.log(np.maximum(np.stack(others), _LEAST)))


def describe_reliability(counts: RankCounts, calibration: tuple[float, float] | None) -> str:
    """Return, for groups of rows by probability, what was predicted and what share had the second class."""
    fine, groups = counts.smooth(_LEVEL), counts.smooth(_GROUPS)
    chances = expit(apply_calibration(counts.scores_of(_LEVEL), calibration))
    inside = np.maximum(fine.sum(axis=0), 0.0).reshape(2**_GROUPS, -1)
    predicted = (inside * chances.reshape(inside.shape)).sum(axis=1) / np.maximum(inside.sum(axis=1), 1e-9)
    totals = groups.sum(axis=0)
    noise = float(counts.deviations[_GROUPS])
    parts = [
        f"{said:.3f}: {min(max(hits / total, 0.0), 1.0):.3f} ± {2 * noise / total:.2g}"
        for said, hits, total in zip(predicted, groups[1], totals, strict=True)
        if total > _SHOWN * noise
    ]
    return "; ".join(parts) or "hidden by the noise"
