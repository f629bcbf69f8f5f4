"""Individual fairness as stability in a metric: similar people get similar treatment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import InvalidRequest, explain_arguments, share_parameters
from expost.core.argument import check_unmasked
from expost.core.rational import rational
from expost.robustness.noisy_model import (
    NoiseKind,
    check_noise,
    check_numbers,
    check_sigma,
    floats_for_model,
    laplace_scale,
    scores_of_model,
)

__all__ = ["FairPredictor", "FairnessReport", "individual_fairness", "smoothing_bound", "treatment_bound"]

PersonMetric = Callable[[Any, Any], Any]
"""Returns the matrix of distances between two lists of people; symmetric, and obeying the triangle inequality."""

_MOST_PEOPLE = 4000
_SLACK = 1e-9  # floating-point error of scores and distances
_NOT_A_NUMBER = """
InvalidRequest
    If an argument is not a number, or {} is not positive.
"""


@dataclass(frozen=True, kw_only=True)
class FairnessReport:
    """How differently people are treated, compared with how different they are.

    Parameters
    ----------
    holds : bool
        Whether no pair exceeds its bound.
    violations : int
        The number of pairs that do.
    pairs : int
        The number of pairs.
    excess : float
        The largest amount by which a pair's treatment exceeds its bound; negative when none does.
    worst_pair : (int, int)
        The positions of the two people of that pair.
    needed_leniency : float
        The smallest leniency under which no pair exceeds its bound.

    Examples
    --------
    >>> people = np.linspace(0, 0.9, 10)[:, None]
    >>> report = individual_fairness(
    ...     lambda x: np.hstack([x, 1 - x]), people, metric=lambda a, b: np.abs(a - b.T), leniency=8
    ... )
    >>> report.holds, report.pairs
    (True, 45)
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
    ratio; docs/proofs/certified-radius.md for the constant; DHPRZ12 for the idea).

    Parameters
    ----------
    predict_scores : callable, classifier or torch module
        The model, with scores in [0, 1]; see ``certify``.
    references : array of shape (people, features)
        The reference people.
    metric : callable
        ``metric(a, b)`` returns the matrix of distances between two lists of people.
    leniency : float
        The larger, the more differently close people may be treated.

    Examples
    --------
    >>> people = np.linspace(0, 1, 11)[:, None]
    >>> cliff = lambda x: np.stack([x[:, 0] > 0.5, x[:, 0] <= 0.5], axis=1)
    >>> fair = FairPredictor(cliff, people, metric=lambda a, b: np.abs(a - b.T), leniency=4)
    >>> individual_fairness(fair, people, metric=lambda a, b: np.abs(a - b.T), leniency=4).holds
    True
    """

    @explain_arguments
    def __init__(
        self, predict_scores: Any, references: Any, *, metric: PersonMetric, leniency: float | Fraction
    ) -> None:
        check_unmasked(references)
        self._references = np.asarray(references)
        self._metric, self._leniency = metric, float(rational(leniency, "leniency"))
        self._scores = _score_people(predict_scores, references)

    def __call__(self, people: Any) -> NDArray[np.float64]:
        """Return expected scores, exactly: nothing is sampled."""
        distances = _measure_distances(self._metric, people, self._references)
        weights = special.softmax(-self._leniency / 2 * distances, axis=1)
        averaged: NDArray[np.float64] = weights @ self._scores
        return averaged


@share_parameters(FairPredictor, raises=_NOT_A_NUMBER.format("leniency"))
def treatment_bound(distance: Any, *, leniency: float | Fraction) -> NDArray[np.float64]:
    """Return how differently two people at this distance may be treated: tanh(leniency distance / 4).

    Parameters
    ----------
    distance : float or array
        The distance between them.

    Returns
    -------
    array of float
        A total variation, in [0, 1].

    Examples
    --------
    >>> round(float(treatment_bound(1.0, leniency=1)), 4)
    0.2449
    """
    bound: NDArray[np.float64] = np.tanh(
        float(rational(leniency, "leniency")) * check_numbers(distance, "distance") / 4
    )
    return bound


@share_parameters(raises=_NOT_A_NUMBER.format("sigma"))
def smoothing_bound(distance: Any, *, sigma: float | Fraction, noise: NoiseKind = "gaussian") -> NDArray[np.float64]:
    """Return how far an expected score of a noisy model can differ between two inputs at this distance.

    Gaussian noise and l2 distance d: 2 Phi(d / (2 sigma)) - 1, the total variation of two shifted normals. Laplace noise
    of scale b and l1 distance: tanh(d / (2 b)), from a density ratio of at most e^(d/b).

    Parameters
    ----------
    distance : float or array
        The l2 (Gaussian) or l1 (Laplace) distance.
    sigma : float
        The standard deviation of the noise in every coordinate.
    noise : {"gaussian", "laplace"}, default "gaussian"
        The kind of noise.

    Returns
    -------
    array of float

    Examples
    --------
    >>> round(float(smoothing_bound(0.5, sigma=1.0)), 4)
    0.1974
    """
    d = check_numbers(distance, "distance")
    if check_noise(noise) == "gaussian":
        return np.asarray(2 * special.ndtr(d / (2 * check_sigma(sigma))) - 1)
    return np.asarray(np.tanh(d / (2 * laplace_scale(sigma))))


@explain_arguments
@share_parameters(FairPredictor)
def individual_fairness(
    predict_scores: Any, people: Any, *, metric: PersonMetric, leniency: float | Fraction
) -> FairnessReport:
    """Audit whether a model treats each pair of people as alike as their distance requires.

    Treatment is the distribution over classes that the scores give. Its total variation between two people must not
    exceed ``treatment_bound`` of their distance. Wrap a model that is not fair in ``FairPredictor``.

    Parameters
    ----------
    predict_scores : callable, classifier, torch module or FairPredictor
        The model, with scores in [0, 1]; see ``certify``.
    people : array of shape (people, features)
        From 2 to 4000 people.

    Returns
    -------
    FairnessReport

    Raises
    ------
    InvalidRequest
        If there are too few or too many people, the metric returns no such matrix, or a score is not a number.

    Examples
    --------
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
    scores = predict_scores(given) if fair else _score_people(predict_scores, given)
    first, second = np.triu_indices(len(given), 1)
    distance = _measure_distances(metric, given, given)[first, second]
    shares = scores / np.maximum(scores.sum(1, keepdims=True), 1e-300)
    difference = np.zeros(len(first))
    for column in shares.T:  # few classes, many pairs: one pass per class keeps the memory small
        difference += np.abs(column[first] - column[second]) / 2
    excess = difference - treatment_bound(distance, leniency=leniency)
    worst, different = int(excess.argmax()), difference > _SLACK
    with np.errstate(divide="ignore"):
        needed = 4 * np.arctanh(np.minimum(difference[different], 1.0)) / distance[different]
    return FairnessReport(
        holds=bool((excess <= _SLACK).all()),
        violations=int((excess > _SLACK).sum()),
        pairs=len(first),
        excess=float(excess[worst]),
        worst_pair=(int(first[worst]), int(second[worst])),
        needed_leniency=float(needed.max(initial=0.0)),
    )


def _score_people(predict_scores: Any, people: Any) -> NDArray[np.float64]:
    """Return the scores of these people, computed in the caller's precision."""
    scores = scores_of_model(predict_scores)(floats_for_model(people))
    if np.isnan(scores).any():
        raise InvalidRequest(
            "Expected a score for every person, got one that is not a number", do="Fill in what the model cannot score"
        )
    return scores


def _measure_distances(metric: PersonMetric, first: Any, second: Any) -> NDArray[np.float64]:
    """Return the metric's matrix after checking its shape and sign."""
    distances = np.asarray(metric(np.asarray(first), np.asarray(second)), np.float64)
    if distances.shape != (len(first), len(second)) or not (distances >= 0).all():
        raise InvalidRequest(
            "Expected a metric that returns a matrix of non-negative distances", do="Return shape (first, second)"
        )
    return distances
