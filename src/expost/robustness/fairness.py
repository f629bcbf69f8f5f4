"""Similar people, similar treatment: individual fairness as stability in a metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import InvalidRequest
from expost.core.mask import check_unmasked
from expost.core.rational import rational
from expost.robustness.perturbation import NoiseKind, deviation_of, laplace_scale, model_floats, noise_kind, numbers_of
from expost.robustness.score import as_scores

__all__ = ["FairPredictor", "FairnessReport", "individual_fairness", "smoothing_bound", "treatment_bound"]

Metric = Callable[[Any, Any], Any]
"""Distances between two lists of people as a matrix; symmetric, and obeying the triangle inequality."""

_MOST_PEOPLE = 4000
_SLACK = 1e-9  # floating-point error of scores and distances


@dataclass(frozen=True)
class FairnessReport:
    """How differently people are treated, against how different they are.

    ``excess`` is the largest amount by which a pair's treatment exceeds its bound (negative when none does),
    ``worst_pair`` the two people behind it, ``needed_leniency`` the smallest leniency under which no pair violates it.

    >>> FairnessReport(True, 0, 45, -0.01, (3, 4), 2.5).holds
    True
    """

    holds: bool
    violations: int
    pairs: int
    excess: float
    worst_pair: tuple[int, int]
    needed_leniency: float


class FairPredictor:
    """Makes any model individually fair: a score is an average over reference people, close ones counting most.

    A person x is treated like reference z with probability proportional to exp(-leniency metric(x, z) / 2). This is
    the exponential mechanism over references, so the treatments of x and x' differ in total variation by at most
    tanh(leniency metric(x, x') / 4), for every metric that obeys the triangle inequality (MT07, Theorem 6 for the
    ratio; docs/proofs/certified-radius.md for the constant; DHPRZ12 for the idea). The larger ``leniency``, the more
    different close people may be treated.

    >>> people = np.linspace(0, 1, 11)[:, None]
    >>> cliff = lambda x: np.stack([x[:, 0] > 0.5, x[:, 0] <= 0.5], axis=1)
    >>> fair = FairPredictor(cliff, people, metric=lambda a, b: np.abs(a - b.T), leniency=4)
    >>> individual_fairness(fair, people, metric=lambda a, b: np.abs(a - b.T), leniency=4).holds
    True
    """

    def __init__(self, predict_scores: Any, references: Any, *, metric: Metric, leniency: object) -> None:
        check_unmasked(references)
        self._references = np.asarray(references)
        self._metric, self._leniency = metric, float(rational(leniency, "leniency"))
        self._scores = _scores_of(predict_scores, references)

    def __call__(self, people: Any) -> NDArray[np.float64]:
        """Expected scores; exact, no sampling."""
        distances = distances_of(self._metric, people, self._references)
        weights = special.softmax(-self._leniency / 2 * distances, axis=1)
        averaged: NDArray[np.float64] = weights @ self._scores
        return averaged


def treatment_bound(distance: Any, *, leniency: object) -> NDArray[np.float64]:
    """How differently two people at this distance may be treated: tanh(leniency distance / 4), in total variation.

    >>> round(float(treatment_bound(1.0, leniency=1)), 4)
    0.2449
    """
    bound: NDArray[np.float64] = np.tanh(float(rational(leniency, "leniency")) * numbers_of(distance, "distance") / 4)
    return bound


def smoothing_bound(distance: Any, *, sigma: object, noise: NoiseKind = "gaussian") -> NDArray[np.float64]:
    """How far an expected score of a noisy model can differ between two inputs at this distance.

    Gaussian noise and l2 distance d: 2 Phi(d / (2 sigma)) - 1, the total variation of two shifted normals. Laplace noise
    of scale b and l1 distance: tanh(d / (2 b)), from a density ratio of at most e^(d/b).

    >>> round(float(smoothing_bound(0.5, sigma=1.0)), 4)
    0.1974
    """
    d = numbers_of(distance, "distance")
    if noise_kind(noise) == "gaussian":
        return np.asarray(2 * special.ndtr(d / (2 * deviation_of(sigma))) - 1)
    return np.asarray(np.tanh(d / (2 * laplace_scale(sigma))))


def individual_fairness(predict_scores: Any, people: Any, *, metric: Metric, leniency: object) -> FairnessReport:
    """Audit a model: does it treat each pair of these people as alike as their distance asks?

    Treatment is the distribution over classes that the scores give; its total variation between two people must not
    exceed ``treatment_bound`` of their distance. ``metric(a, b)`` gives the matrix of distances between two lists of
    people. A model that is not fair may be wrapped in ``FairPredictor``.

    >>> people = np.linspace(0, 1, 11)[:, None]
    >>> cliff = lambda x: np.stack([x[:, 0] > 0.55, x[:, 0] <= 0.55], axis=1)
    >>> report = individual_fairness(cliff, people, metric=lambda a, b: np.abs(a - b.T), leniency=4)
    >>> report.holds, report.worst_pair
    (False, (5, 6))
    """
    check_unmasked(people)
    given = np.asarray(people)
    if given.ndim < 2 or not 2 <= len(given) <= _MOST_PEOPLE:
        raise InvalidRequest(
            f"Expected between 2 and {_MOST_PEOPLE} people, one row each", do="Take a sample of the people"
        )
    # A fair predictor is exact in its own inputs; models take floats.
    fair = isinstance(predict_scores, FairPredictor)
    scores = predict_scores(given) if fair else _scores_of(predict_scores, given)
    first, second = np.triu_indices(len(given), 1)
    distance = distances_of(metric, given, given)[first, second]
    shares = scores / np.maximum(scores.sum(1, keepdims=True), 1e-300)
    difference = _total_variation(shares, first, second)
    excess = difference - treatment_bound(distance, leniency=leniency)
    worst = int(excess.argmax())
    return FairnessReport(
        holds=bool((excess <= _SLACK).all()),
        violations=int((excess > _SLACK).sum()),
        pairs=len(first),
        excess=float(excess[worst]),
        worst_pair=(int(first[worst]), int(second[worst])),
        needed_leniency=_needed(difference, distance),
    )


def _scores_of(predict_scores: Any, people: Any) -> NDArray[np.float64]:
    """The scores of these people as the model itself would tell them apart: in the caller's precision."""
    scores = as_scores(predict_scores)(model_floats(people))
    if np.isnan(scores).any():
        raise InvalidRequest(
            "Expected a score for every person, got one that is not a number", do="Fill in what the model cannot score"
        )
    return scores


def distances_of(metric: Metric, first: Any, second: Any) -> NDArray[np.float64]:
    """The metric's matrix, checked for what can be checked."""
    distances = np.asarray(metric(np.asarray(first), np.asarray(second)), np.float64)
    if distances.shape != (len(first), len(second)) or not (distances >= 0).all():
        raise InvalidRequest(
            "Expected a metric that gives a matrix of non-negative distances", do="Return shape (first, second)"
        )
    return distances


def _total_variation(
    shares: NDArray[np.float64], first: NDArray[np.intp], second: NDArray[np.intp]
) -> NDArray[np.float64]:
    total = np.zeros(len(first))
    for column in shares.T:  # few classes, many pairs: one pass a class keeps the memory small
        total += np.abs(column[first] - column[second])
    return total / 2


def _needed(difference: NDArray[np.float64], distance: NDArray[np.float64]) -> float:
    different = difference > _SLACK
    if not different.any():
        return 0.0
    with np.errstate(divide="ignore"):
        needed = 4 * np.arctanh(np.minimum(difference[different], 1.0)) / distance[different]
    return float(needed.max())
