"""A small neural network trained under noise, and an attack on what its noisy predictions average to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from expost.noise import BitSource
from expost.robustness.perturbation import perturbations

__all__ = ["attack", "input_gradient", "train"]

Images = NDArray[np.float32]


def train(
    images: Images,
    labels: NDArray[Any],
    *,
    sigma: float,
    epochs: int,
    seed: int = 0,
    told: Callable[[], None] | None = None,
) -> MLPClassifier:
    """A network with one hidden layer, shown each image under fresh noise in every epoch; ``sigma`` 0 for none."""
    rng = np.random.default_rng(seed)
    model = MLPClassifier((128,), batch_size=min(256, len(images)), random_state=seed)
    classes = np.unique(labels)
    for _ in range(epochs):
        noise = rng.standard_normal(images.shape, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.partial_fit(images + np.float32(sigma) * noise, labels, classes=classes)
        if told is not None:
            told()
    return model


def input_gradient(model: MLPClassifier, images: Images, classes: NDArray[np.int64]) -> Images:
    """The gradient of each image's log score of a class with respect to the image.

    >>> images = np.random.default_rng(0).random((40, 3), dtype=np.float32)
    >>> model = train(images, (images[:, 0] > 0.5).astype(int), sigma=0, epochs=2)
    >>> input_gradient(model, images[:2], np.array([0, 1])).shape
    (2, 3)
    """
    first, second = (np.asarray(weights, np.float32) for weights in model.coefs_)
    hidden = images @ first + np.asarray(model.intercepts_[0], np.float32)
    scores = np.maximum(hidden, 0) @ second + np.asarray(model.intercepts_[1], np.float32)
    if scores.shape[1] == 1:  # two classes share one output
        chance = 1 / (1 + np.exp(-scores))
        away = classes[:, None] - chance
    else:
        powers = np.exp(scores - scores.max(1, keepdims=True))
        away = np.eye(scores.shape[1], dtype=np.float32)[classes] - powers / powers.sum(1, keepdims=True)
    gradient: Images = ((away @ second.T) * (hidden > 0)) @ first.T
    return gradient


def attack(
    model: MLPClassifier,
    images: Images,
    classes: NDArray[np.int64],
    radii: NDArray[np.float64],
    *,
    sigma: float,
    steps: int = 20,
    copies: int = 32,
    bits: BitSource | None = None,
) -> Images:
    """Images moved by at most their radius (l2) so that the noisy model doubts their class as much as possible.

    Projected steps along the gradient of the log score averaged over noisy copies, as is usual against smoothed models.
    """
    moved = images.copy()
    reach = np.asarray(radii, np.float32)[:, None]
    for _ in range(steps):
        noise = np.zeros((1, images.shape[1]), np.float32)
        if sigma > 0:
            noise = perturbations((copies, images.shape[1]), noise="gaussian", sigma=sigma, bits=bits).astype(
                np.float32
            )
        noisy = (moved[:, None] + noise[None]).reshape(-1, images.shape[1])
        gradient = input_gradient(model, noisy, np.repeat(classes, len(noise)))
        direction = gradient.reshape(len(images), len(noise), -1).mean(1)
        length = np.linalg.norm(direction, axis=1, keepdims=True)
        moved = moved - reach / 4 * direction / np.maximum(length, 1e-12)
        away = moved - images
        shrink = np.minimum(reach / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-12), 1)
        moved = (images + away * shrink).astype(np.float32)
    return moved
