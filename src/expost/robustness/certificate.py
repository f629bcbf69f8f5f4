"""Predictions that provably do not change within a radius."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.core.rational import probability, rational, whole
from expost.noise import BitSource
from expost.robustness.confidence import score_bounds, vote_bounds
from expost.robustness.perturbation import SAMPLER_ERROR, Floats, NoiseKind, as_floats, noise_kind, noisy_copies
from expost.robustness.radius import (
    analytic_pixeldp_radius,
    laplace_radius,
    pixeldp_l1_radius,
    pixeldp_radius,
    smoothing_radius,
)
from expost.robustness.score import Scores, as_scores, as_votes

__all__ = ["Certificates", "certify", "expected_scores"]

Average = Literal["votes", "scores"]

_MOST_SAMPLES = 10**9  # days on a small model; the radius has long stopped growing


@dataclass(frozen=True)
class Certificates:
    """Predictions of a noisy classifier with the radii within which they provably stay, one for each input.

    ``radius`` is the largest known, ``pixeldp_radius`` the published one, both in ``norm``; 0 means no statement. Each
    input's statement fails with at most the failure probability; with ``simultaneous``, any of them does. ``prediction`` is the position of the class among the
    scores; ``classes`` are the labels that a scikit-learn classifier knows them by, and ``labels`` the predicted ones.

    >>> found = certify(lambda x: np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1), [[2.0], [-2.0]], sigma=0.5)
    >>> found.certified_accuracy([0, 1], [0.1, 9.0]).tolist()
    [1.0, 0.0]
    """

    prediction: NDArray[np.int64]
    radius: NDArray[np.float64]
    pixeldp_radius: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    scores: NDArray[np.float64]
    norm: Literal["l1", "l2"]
    classes: NDArray[Any] | None = None
    simultaneous: bool = False

    @property
    def labels(self) -> NDArray[Any]:
        """The predicted labels; positions where the model has no labels of its own."""
        return self.prediction if self.classes is None else self.classes[self.prediction]

    def certified_accuracy(self, labels: Any, radii: Any, *, pixeldp: bool = False) -> NDArray[np.float64]:
        """The share of inputs that are predicted right and certified at least this far, for each radius."""
        given, truth = self.pixeldp_radius if pixeldp else self.radius, np.asarray(labels)
        if truth.shape != self.prediction.shape:
            raise InvalidRequest("Expected one label for each input", do="Pass the labels of the certified inputs")
        right = (self.labels == truth) & (given > 0)
        share: NDArray[np.float64] = (right & (given >= np.asarray(radii, np.float64)[:, None])).mean(1)
        return share

    def __len__(self) -> int:
        return len(self.prediction)


def certify(
    predict_scores: Any,
    x: Any,
    *,
    sigma: object,
    noise: NoiseKind = "gaussian",
    samples: int = 1000,
    failure_probability: object = 0.001,
    average: Average = "votes",
    simultaneous: bool = False,
    bits: BitSource | None = None,
) -> Certificates:
    """Predict each row of ``x`` under noise and certify how far it may be moved without changing the prediction.

    ``predict_scores`` is a callable from inputs to one score per class, a scikit-learn classifier or a torch module. The
    noisy classifier averages votes for the predicted class, or scores (``average="scores"``, PixelDP's expected scores),
    over ``samples`` noisy copies of the input; noise has standard deviation ``sigma`` in every coordinate.
    Votes go to what a scikit-learn classifier predicts and to the largest output of any other model, logits included;
    expected scores need outputs in [0, 1], and others are refused.
    ``"gaussian"`` certifies l2 radii, ``"laplace"`` l1 radii. All inputs share the same noise draws: each statement is
    right by itself, but their failures are not independent. ``simultaneous=True`` makes all statements true at once,
    except with the failure probability, which is divided by the number of inputs for that (Bonferroni).

    The prediction that is certified is that of the *expected* scores; a finite average agrees with it whenever the
    radius is positive. The model reads float32 where ``x`` has that type or the model is a torch module of it, else
    float64; noise is added before that rounding, exactly, on a lattice of less than sigma/1000 (Theorem 3 of the proof),
    and inputs of 2^41 sigma or more are refused. Copies with a score that is not a number vote for no class. LAGHJ19, Proposition 2 and CRK19, Theorem 1; docs/proofs/certified-radius.md.

    >>> from expost.noise import SeededBits
    >>> step = lambda x: np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1)
    >>> found = certify(step, [[1.0, 0.0], [0.01, 0.0]], sigma=0.5, bits=SeededBits(1))
    >>> found.prediction.tolist(), (found.radius <= [1.0, 0.01]).tolist()
    ([0, 0], [True, True])
    """
    kind, spread = noise_kind(noise), float(rational(sigma, "sigma"))
    failure = float(probability(failure_probability, "failure_probability"))
    samples = whole(samples, "samples", least=1, most=_MOST_SAMPLES, do="Pass 1000")
    if not isinstance(average, str) or average not in ("votes", "scores"):
        raise InvalidRequest("Expected average to be 'votes' or 'scores'", got=average, do="Name one of them")
    if not isinstance(simultaneous, bool | np.bool_):
        raise InvalidRequest("Expected simultaneous to be True or False", got=simultaneous, do="Pass one of them")
    votes, inputs = average == "votes", as_floats(x)
    scores = as_votes(predict_scores) if votes else as_scores(predict_scores)
    means = expected_scores(scores, inputs, kind, spread, samples, bits=bits)
    # The union bound needs no independence, and shared draws have none.
    low, high = _bounds(means, samples, failure / (len(inputs) if simultaneous else 1), votes=votes)
    slack = inputs[0].size * SAMPLER_ERROR
    found = _certified(means, low - slack, high + slack, kind, spread, votes=votes)
    classes = getattr(predict_scores, "classes_", None)
    return replace(found, classes=None if classes is None else np.asarray(classes), simultaneous=bool(simultaneous))


def expected_scores(
    scores: Scores,
    inputs: Floats,
    noise: NoiseKind,
    sigma: float,
    samples: int,
    *,
    bits: BitSource | None = None,
) -> NDArray[np.float64]:
    """Average the scores or votes of each class over noisy copies of each input; a copy without any counts for none."""
    total: NDArray[np.float64] | float = 0.0
    for noisy in noisy_copies(inputs, noise=noise, sigma=sigma, samples=samples, bits=bits):
        found = scores(noisy.reshape(-1, *inputs.shape[1:])).reshape(*noisy.shape[:2], -1)
        found[np.isnan(found[:, :, 0])] = 0.0
        total = total + found.sum(1)
    return np.asarray(total) / samples


def _bounds(
    means: NDArray[np.float64], samples: int, failure: float, *, votes: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # One lower and one upper bound for each class, all at once: then the choice of the top class is free.
    share = failure / (2 * means.shape[1])
    if votes:
        return vote_bounds(np.rint(means * samples), samples, failure_probability=share)
    return score_bounds(means, samples, failure_probability=share)


def _certified(
    means: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    noise: NoiseKind,
    sigma: float,
    *,
    votes: bool,
) -> Certificates:
    top = means.argmax(1)
    rows = np.arange(len(means))
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
        top.astype(np.int64), best, published, lower, upper, means, "l2" if noise == "gaussian" else "l1"
    )
