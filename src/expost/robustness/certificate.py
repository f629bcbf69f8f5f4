"""Predictions that provably do not change within a radius: confidence bounds on scores, radii, certificates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import InvalidRequest, explain_arguments, share_parameters
from expost.core.rational import probability, rational, whole
from expost.noise import BitSource
from expost.robustness.noisy_model import (
    SAMPLER_ERROR,
    Floats,
    NoiseKind,
    ScoreFunction,
    check_inputs,
    check_noise,
    check_numbers,
    check_sigma,
    laplace_scale,
    noisy_copies,
    scores_of_model,
    votes_of_model,
)

__all__ = [
    "Average",
    "Certificates",
    "analytic_pixeldp_radius",
    "certify",
    "expected_scores",
    "laplace_radius",
    "pixeldp_l1_radius",
    "pixeldp_radius",
    "score_bounds",
    "smoothing_radius",
    "vote_bounds",
]

Average = Literal["votes", "scores"]
Doubles = NDArray[np.float64]

_MOST_SAMPLES = 10**9  # days on a small model; the radius has long stopped growing
_CLOSE = 1e-4  # relative, far above the error of the inverse incomplete beta function
_EPSILONS = np.linspace(0.005, 0.995, 199)  # the classical calibration of Gaussian noise needs epsilon < 1
_WIDE_EPSILONS = np.concatenate([np.linspace(0.0, 3.0, 121), np.geomspace(3.1, 40.0, 60)])


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Predictions of a noisy classifier with the radii within which they provably stay, one per input.

    Each input's statement fails with at most the failure probability; with ``simultaneous``, any of them does.

    Parameters
    ----------
    prediction : array of int
        The position of the predicted class among the scores.
    radius : array of float
        The largest known radius, in ``norm``. 0 means that nothing could be certified.
    pixeldp_radius : array of float
        The published radius of PixelDP, in ``norm``.
    lower : array of float
        A lower bound on the expected score of the predicted class.
    upper : array of float
        An upper bound on the expected scores of all other classes.
    scores : array of float
        The average scores or votes, one row per input.
    norm : {"l1", "l2"}
        The norm of the radii.
    classes : array, optional
        The labels of a scikit-learn classifier.
    simultaneous : bool, default False
        Whether all statements hold at once.

    Examples
    --------
    >>> found = certify(lambda x: np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1), [[2.0], [-2.0]], sigma=0.5)
    >>> found.certified_accuracy([0, 1], [0.1, 9.0]).tolist()
    [1.0, 0.0]
    """

    prediction: NDArray[np.int64]
    radius: Doubles
    pixeldp_radius: Doubles
    lower: Doubles
    upper: Doubles
    scores: Doubles
    norm: Literal["l1", "l2"]
    classes: NDArray[Any] | None = None
    simultaneous: bool = False

    @property
    def labels(self) -> NDArray[Any]:
        """The predicted labels; positions where the model has no labels of its own."""
        return self.prediction if self.classes is None else self.classes[self.prediction]

    def certified_accuracy(self, labels: Any, radii: Any, *, pixeldp: bool = False) -> Doubles:
        """Return the share of inputs that are predicted right and certified at least this far, per radius.

        Parameters
        ----------
        labels : array
            The true labels of the inputs.
        radii : array of float
            The radii to evaluate at.
        pixeldp : bool, default False
            Whether to use the published radii of PixelDP.
        """
        given, truth = self.pixeldp_radius if pixeldp else self.radius, np.asarray(labels)
        if truth.shape != self.prediction.shape:
            raise InvalidRequest("Expected one label for each input", do="Pass the labels of the certified inputs")
        right = (self.labels == truth) & (given > 0)
        share: Doubles = (right & (given >= np.asarray(radii, np.float64)[:, None])).mean(1)
        return share

    def __len__(self) -> int:
        return len(self.prediction)


@explain_arguments
def certify(
    predict_scores: Any,
    x: Any,
    *,
    sigma: float | Fraction,
    noise: NoiseKind = "gaussian",
    samples: int = 1000,
    failure_probability: float | Fraction = 0.001,
    average: Average = "votes",
    simultaneous: bool = False,
    bits: BitSource | None = None,
) -> Certificates:
    """Predict each row of ``x`` under noise and certify how far it may be moved without changing the prediction.

    The noisy classifier averages votes for the predicted class, or scores, over noisy copies of the input. The
    prediction that is certified is that of the *expected* scores; a finite average agrees with it whenever the radius
    is positive. All inputs share the same noise draws: each statement is right by itself, but their failures are not
    independent.

    The model reads float32 where ``x`` has that type or the model is a torch module of it, else float64. Noise is added
    before that rounding, exactly, on a lattice of less than sigma/1000 (Theorem 3 of the proof), and inputs of
    2^41 sigma or more are refused. Copies with a score that is not a number vote for no class. LAGHJ19, Proposition 2
    and CRK19, Theorem 1; docs/proofs/certified-radius.md.

    Parameters
    ----------
    predict_scores : callable, classifier or torch module
        A callable from inputs to one score per class, a scikit-learn classifier or a torch module. A scikit-learn
        classifier votes for what it predicts, any other model for its largest output, logits included.
    x : array of shape (inputs, features...)
        The inputs.
    sigma : float
        The standard deviation of the noise in every coordinate.
    noise : {"gaussian", "laplace"}, default "gaussian"
        ``"gaussian"`` certifies l2 radii, ``"laplace"`` l1 radii.
    samples : int, default 1000
        The number of noisy copies per input.
    failure_probability : float, default 0.001
        How often a statement may be wrong, in (0, 1).
    average : {"votes", "scores"}, default "votes"
        ``"scores"`` averages the scores themselves (PixelDP), which must lie in [0, 1].
    simultaneous : bool, default False
        Make all statements true at once, except with the failure probability, which is then divided by the number of
        inputs (Bonferroni).
    bits : BitSource, optional
        The source of randomness. Default: cryptographic.

    Returns
    -------
    Certificates

    Raises
    ------
    InvalidRequest
        If an argument is out of its range, or the scores are not in [0, 1] where they must be.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> step = lambda x: np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1)
    >>> found = certify(step, [[1.0, 0.0], [0.01, 0.0]], sigma=0.5, bits=SeededBits(1))
    >>> found.prediction.tolist(), (found.radius <= [1.0, 0.01]).tolist()
    ([0, 0], [True, True])
    """
    kind, spread = check_noise(noise), float(rational(sigma, "sigma"))
    failure = float(probability(failure_probability, "failure_probability"))
    samples = whole(samples, "samples", least=1, most=_MOST_SAMPLES, do="Pass 1000")
    if not isinstance(average, str) or average not in ("votes", "scores"):
        raise InvalidRequest("Expected average to be 'votes' or 'scores'", got=average, do="Name one of them")
    if not isinstance(simultaneous, bool | np.bool_):
        raise InvalidRequest("Expected simultaneous to be True or False", got=simultaneous, do="Pass one of them")
    votes, inputs = average == "votes", check_inputs(x)
    scores = votes_of_model(predict_scores) if votes else scores_of_model(predict_scores)
    means = expected_scores(scores, inputs, kind, spread, samples, bits=bits)
    # One lower and one upper bound for each class, all at once: then the choice of the top class is free. The union
    # bound over inputs needs no independence, and shared draws have none.
    share = failure / (len(inputs) if simultaneous else 1) / (2 * means.shape[1])
    if votes:
        low, high = vote_bounds(np.rint(means * samples), samples, failure_probability=share)
    else:
        low, high = score_bounds(means, samples, failure_probability=share)
    slack = inputs[0].size * SAMPLER_ERROR
    found = _certify_bounds(means, low - slack, high + slack, kind, spread, votes=votes)
    classes = getattr(predict_scores, "classes_", None)
    return replace(found, classes=None if classes is None else np.asarray(classes), simultaneous=bool(simultaneous))


def expected_scores(
    scores: ScoreFunction,
    inputs: Floats,
    noise: NoiseKind,
    sigma: float,
    samples: int,
    *,
    bits: BitSource | None = None,
) -> Doubles:
    """Average the scores or votes of each class over noisy copies of each input; a copy without any counts for none."""
    total: Doubles | float = 0.0
    for noisy in noisy_copies(inputs, noise=noise, sigma=sigma, samples=samples, bits=bits):
        found = scores(noisy.reshape(-1, *inputs.shape[1:])).reshape(*noisy.shape[:2], -1)
        found[np.isnan(found[:, :, 0])] = 0.0
        total = total + found.sum(1)
    return np.asarray(total) / samples


def _certify_bounds(
    means: Doubles, low: Doubles, high: Doubles, noise: NoiseKind, sigma: float, *, votes: bool
) -> Certificates:
    """Turn bounds on expected scores into radii."""
    top, rows = means.argmax(1), np.arange(len(means))
    lower = np.maximum(low[rows, top], 0.0)
    high[rows, top] = -1.0
    upper = np.minimum(high.max(1), 1.0)
    if votes:
        upper = np.minimum(upper, 1 - lower)  # votes of all classes sum to at most one
    if noise == "gaussian":
        best = np.maximum(
            smoothing_radius(lower, upper, sigma=sigma), analytic_pixeldp_radius(lower, upper, sigma=sigma)
        )
        published = pixeldp_radius(lower, upper, sigma=sigma)
    else:
        best, published = (f(lower, upper, sigma=sigma) for f in (laplace_radius, pixeldp_l1_radius))
    return Certificates(
        prediction=top.astype(np.int64),
        radius=best,
        pixeldp_radius=published,
        lower=lower,
        upper=upper,
        scores=means,
        norm="l2" if noise == "gaussian" else "l1",
    )


# Confidence bounds on expected scores


def vote_bounds(votes: Any, samples: int, *, failure_probability: float) -> tuple[Doubles, Doubles]:
    """Return lower and upper bounds on the chance of a vote; each fails with at most this probability (CP34).

    >>> low, high = vote_bounds(np.array([100]), 100, failure_probability=0.001)
    >>> round(float(low[0]), 4), float(high[0])
    (0.9333, 1.0)
    """
    k = np.asarray(votes, np.float64)
    # The upper bound is the mirror of the lower one: 1 - failure_probability would round away what is left.
    return _least_chance(k, samples, failure_probability), 1 - _least_chance(samples - k, samples, failure_probability)


def _least_chance(votes: Doubles, samples: int, failure_probability: float) -> Doubles:
    """Return the chance at which this many votes or more have the failure probability, rounded down; else 0."""
    found = special.betaincinv(np.maximum(votes, 1), samples - votes + 1, failure_probability * (1 - _CLOSE))
    return np.where((votes > 0) & np.isfinite(found), found, 0.0)


def score_bounds(means: Any, samples: int, *, failure_probability: float) -> tuple[Doubles, Doubles]:
    """Return lower and upper bounds on the expectation of scores in [0, 1] from their mean.

    Chernoff's bound in its relative-entropy form, P(kl(mean, p) > ln(1/f)/n, mean > p) <= f, which holds for every law
    on [0, 1] since exp is convex (Hoe63, Theorem 1); never wider than Hoeffding's.

    >>> low, high = score_bounds(np.array([0.9]), 1000, failure_probability=0.001)
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.8611, 0.9316)
    """
    mean = np.clip(np.asarray(means, np.float64), 0.0, 1.0)
    limit = -np.log(failure_probability) / samples if failure_probability > 0 else np.inf
    return _entropy_root(mean, limit, np.zeros_like(mean)), _entropy_root(mean, limit, np.ones_like(mean))


def _entropy_root(mean: Doubles, limit: float, end: Doubles) -> Doubles:
    """Return the point between the mean and an end where the relative entropy reaches the limit, rounded outwards."""
    near, far = mean.copy(), end.copy()
    for _ in range(60):
        middle = (near + far) / 2
        entropy = special.rel_entr(mean, middle) + special.rel_entr(1 - mean, 1 - middle)
        inside = entropy <= limit
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return far


# Radii

_describes_radius = share_parameters(
    {
        "lower": "float or array\nA lower bound on the expected score of the predicted class.",
        "upper": "float or array\nAn upper bound on the expected scores of all other classes.",
        "sigma": "float\nThe standard deviation of the noise in every coordinate.",
    },
    raises="""
    InvalidRequest
        If an argument is not a number, or sigma is not positive.
    """,
)


@_describes_radius
def smoothing_radius(lower: Any, upper: Any, *, sigma: float) -> Doubles:
    """Return the largest l2 radius within which the top score provably stays on top under Gaussian noise.

    sigma/2 (Phi^-1(lower) - Phi^-1(upper)): CRK19, Theorem 1 for votes; for any scores in [0, 1] because
    Phi^-1(E f(x + noise)) is 1/sigma-Lipschitz (docs/proofs/certified-radius.md). No better bound exists from these two
    numbers.

    Returns
    -------
    array of float
        l2 radii; 0 where the bounds are not apart.

    Examples
    --------
    >>> round(float(smoothing_radius(0.9, 0.1, sigma=0.5)), 4)
    0.6408
    """
    low, high = _clip_bounds(lower, upper)
    radius = check_sigma(sigma) / 2 * (special.ndtri(low) - special.ndtri(high))
    return _radius_where_apart(radius, low, high)


@_describes_radius
def pixeldp_radius(lower: Any, upper: Any, *, sigma: float) -> Doubles:
    """Return the l2 radius of PixelDP as published.

    Noise of sigma = sqrt(2 ln(1.25/delta)) L / epsilon, epsilon < 1, makes scores (epsilon, delta)-stable within L;
    the prediction is safe when lower > e^(2 epsilon) upper + (1 + e^epsilon) delta (LAGHJ19, Proposition 2). The best
    epsilon and delta are used.

    Returns
    -------
    array of float
        l2 radii; 0 where the bounds are not apart.

    Examples
    --------
    >>> round(float(pixeldp_radius(0.9, 0.1, sigma=0.5)), 4)
    0.1951
    """
    low, high = (each[..., None] for each in _clip_bounds(lower, upper))
    delta = (low - np.exp(2 * _EPSILONS) * high) / (1 + np.exp(_EPSILONS)) * (1 - 1e-9)
    safe = np.clip(delta, 1e-300, 0.5)
    radii = np.where(delta > 0, check_sigma(sigma) * _EPSILONS / np.sqrt(2 * np.log(1.25 / safe)), 0.0)
    best: Doubles = radii.max(-1)
    return best


@_describes_radius
def analytic_pixeldp_radius(lower: Any, upper: Any, *, sigma: float) -> Doubles:
    """Return the l2 radius of PixelDP with the exact (epsilon, delta) curve of Gaussian noise.

    delta(epsilon) = Phi(r/2 - epsilon/r) - e^epsilon Phi(-r/2 - epsilon/r) with r = L/sigma (BW18, Theorem 8), for every
    epsilon >= 0; L by bisection, rounded down.

    Returns
    -------
    array of float
        l2 radii; 0 where the bounds are not apart.

    Examples
    --------
    >>> round(float(analytic_pixeldp_radius(0.9, 0.1, sigma=0.5)), 4)
    0.5244
    """
    low, high = _clip_bounds(lower, upper)
    inside, outside = np.zeros(low.shape), np.full(low.shape, 40.0)
    for _ in range(50):
        middle = (inside + outside) / 2
        safe = _is_stable(low, high, middle)
        inside, outside = np.where(safe, middle, inside), np.where(safe, outside, middle)
    return _radius_where_apart(inside * check_sigma(sigma), low, high)


@_describes_radius
def pixeldp_l1_radius(lower: Any, upper: Any, *, sigma: float) -> Doubles:
    """Return the l1 radius of PixelDP under Laplace noise: b/2 ln(lower/upper), b the scale (LAGHJ19, Proposition 2).

    Returns
    -------
    array of float
        l1 radii; 0 where the bounds are not apart.

    Examples
    --------
    >>> round(float(pixeldp_l1_radius(0.9, 0.1, sigma=0.5)), 4)
    0.3884
    """
    low, high = _clip_bounds(lower, upper)
    return _radius_where_apart(laplace_scale(sigma) / 2 * np.log(low / high), low, high)


@_describes_radius
def laplace_radius(lower: Any, upper: Any, *, sigma: float) -> Doubles:
    """Return the largest l1 radius that pure stability under Laplace noise gives.

    Moving by L changes every expected score s in [0, 1] to one between max(e^-t s, 1 - e^t (1 - s)) and
    min(e^t s, 1 - e^-t (1 - s)), t = L/b. The best of the four comparisons of them; for upper = 1 - lower it is
    TLG20's -b ln(2 (1 - lower)) (docs/proofs/certified-radius.md).

    Returns
    -------
    array of float
        l1 radii; 0 where the bounds are not apart.

    Examples
    --------
    >>> round(float(laplace_radius(0.9, 0.1, sigma=0.5)), 4)
    0.569
    """
    low, high = _clip_bounds(lower, upper)
    exponents = [
        np.log(low / high) / 2,
        -np.log1p(high - low),
        np.log1p(low - high),
        np.log((1 - high) / (1 - low)) / 2,
    ]
    return _radius_where_apart(laplace_scale(sigma) * np.max(exponents, axis=0), low, high)


def _is_stable(low: Doubles, high: Doubles, ratio: Doubles) -> NDArray[np.bool_]:
    """Return whether some epsilon proves the prediction stable when the input moves by ``ratio`` standard deviations."""
    r = np.maximum(ratio, 1e-12)[..., None]
    delta = special.ndtr(r / 2 - _WIDE_EPSILONS / r) - np.exp(
        _WIDE_EPSILONS + special.log_ndtr(-r / 2 - _WIDE_EPSILONS / r)
    )
    grown = np.exp(2 * _WIDE_EPSILONS) * high[..., None] + (1 + np.exp(_WIDE_EPSILONS)) * np.maximum(delta, 0.0)
    return np.asarray((low[..., None] > grown * (1 + 1e-12)).any(-1))


def _clip_bounds(lower: Any, upper: Any) -> tuple[Doubles, Doubles]:
    """Clip bounds to the open interval (0, 1), so that logarithms and quantiles are finite."""
    low = np.clip(check_numbers(lower, "lower"), 0.0, 1 - 1e-15)
    high = np.clip(check_numbers(upper, "upper"), 1e-15, 1.0)
    return np.maximum(low, 1e-15), np.minimum(high, 1 - 1e-15)


def _radius_where_apart(radius: Any, low: Doubles, high: Doubles) -> Doubles:
    """Return the radius where the bounds are apart, else 0."""
    return np.where(low > high, np.maximum(radius, 0.0), 0.0)
