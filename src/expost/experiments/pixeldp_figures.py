"""The figures of certified prediction."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from expost.experiments.experiment_data import data_folder
from expost.experiments.experiment_report import Progress, markdown_table, write_csv
from expost.experiments.figure_style import draw_panels, save_both
from expost.noise import BitSource, SeededBits
from expost.plots.figure import BLUE, GREY, ORANGE
from expost.robustness import Certificates, certify
from expost.robustness.certificate import expected_scores
from expost.robustness.noisy_model import sample_perturbations, votes_of_model

__all__ = ["attack", "input_gradient", "run", "train"]

Images = NDArray[np.float32]
Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]


def train(
    images: Images,
    labels: NDArray[Any],
    *,
    sigma: float,
    epochs: int,
    seed: int = 0,
    told: Callable[[], None] | None = None,
) -> MLPClassifier:
    """Train a network with one hidden layer on each image under fresh noise in every epoch; ``sigma`` 0 for none."""
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
    """Compute the gradient of each image's log score of a class with respect to the image."""
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
    radii: Floats,
    *,
    sigma: float,
    steps: int = 20,
    copies: int = 32,
    bits: BitSource | None = None,
) -> Images:
    """Move images by at most their radius (l2) so that the noisy model doubts their class as much as possible.

    Projected steps along the gradient of the log score averaged over noisy copies, as is usual against smoothed models.
    """
    moved = images.copy()
    reach = np.asarray(radii, np.float32)[:, None]
    for _ in range(steps):
        noise = np.zeros((1, images.shape[1]), np.float32)
        if sigma > 0:
            shape = copies, images.shape[1]
            noise = sample_perturbations(shape, noise="gaussian", sigma=sigma, bits=bits).astype(np.float32)
        noisy = (moved[:, None] + noise[None]).reshape(-1, images.shape[1])
        gradient = input_gradient(model, noisy, np.repeat(classes, len(noise)))
        direction = gradient.reshape(len(images), len(noise), -1).mean(1)
        length = np.linalg.norm(direction, axis=1, keepdims=True)
        moved = moved - reach / 4 * direction / np.maximum(length, 1e-12)
        away = moved - images
        shrink = np.minimum(reach / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-12), 1)
        moved = (images + away * shrink).astype(np.float32)
    return moved


_FAILURE = 0.001
_MULTIPLES = (0.5, 0.999, 1.5, 2.0, 3.0, 4.0, 6.0)  # of the certified radius, at which the attack is tried
_LOOKS = {0.25: (BLUE, "o"), 0.5: (ORANGE, "s")}


@dataclass(frozen=True)
class Size:
    """How much is trained, certified and attacked."""

    training: int = 60_000
    epochs: int = 6
    images: int = 500
    samples: int = 1000
    attacked: int = 100
    checks: int = 2000


@dataclass(frozen=True)
class Digits:
    """Images with pixels in [0, 1], one row each, and their labels."""

    name: str
    training: Images
    training_labels: NDArray[np.int64]
    images: Images
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class CertifiedRun:
    """One noisy model: its certificates, and how often an attack flips a certified prediction at each distance."""

    sigma: float
    found: Certificates
    flipped: Floats
    attacked: int


def run(
    output: Path, *, data: str | Path | None = None, quick: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Write the figure, the numbers and a summary into ``output``; returns the files, the summary first.

    MNIST from ``mnist.npz`` in the data folder; without it scikit-learn's own small digits.
    """
    output.mkdir(parents=True, exist_ok=True)
    size = Size(training=3000, epochs=8, images=60, samples=300, attacked=20, checks=500) if quick else Size()
    digits = _digits(data_folder(data), size)
    done, total = itertools.count(1), size.epochs * (len(_LOOKS) + 1) + 2 * len(_LOOKS) + 1

    def finish_step(label: str) -> None:
        if progress is not None:
            progress(next(done), total, f"pixeldp, {label}")

    models = [_certified(digits, sigma, size, finish_step) for sigma in _LOOKS]
    radii = np.linspace(0, max(float(model.found.radius.max()) for model in models) * 1.02, 200)
    plain = _plain_under_attack(digits, size, radii, finish_step)
    figure = _draw(models, digits, radii, plain)
    summary = output / "pixeldp.md"
    summary.write_text(_summary(models, digits, size, plain), encoding="utf-8")
    columns = ["sigma", "radius", "certified accuracy", "certified accuracy, PixelDP as published"]
    numbers = write_csv(output / "pixeldp.csv", columns, _numbers(models, digits, radii))
    return [summary, *save_both(figure, output / "pixeldp"), numbers]


def _digits(folder: Path | None, size: Size) -> Digits:
    if folder is not None and (folder / "mnist.npz").exists():
        with np.load(folder / "mnist.npz") as file:
            pixels = [file[name] for name in ("x_train", "x_test")]
            images = [each.reshape(len(each), -1).astype(np.float32) / 255 for each in pixels]
            labels = [file[name].astype(np.int64) for name in ("y_train", "y_test")]
        name = "MNIST"
    else:
        pixels, classes = load_digits(return_X_y=True)
        images = [each.astype(np.float32) / 16 for each in (pixels[:1200], pixels[1200:])]
        labels = [each.astype(np.int64) for each in (classes[:1200], classes[1200:])]
        name = "small digits"
    # Evenly spread over the test set, so that no part of it is favoured.
    chosen = np.linspace(0, len(labels[1]) - 1, min(size.images, len(labels[1]))).astype(int)
    kept = slice(0, size.training)
    return Digits(name, images[0][kept], labels[0][kept], images[1][chosen], labels[1][chosen])


def _certified(digits: Digits, sigma: float, size: Size, finish_step: Callable[[str], None]) -> CertifiedRun:
    told = partial(finish_step, f"training at sigma {sigma:g}")
    model = train(digits.training, digits.training_labels, sigma=sigma, epochs=size.epochs, told=told)
    bits = SeededBits(round(100 * sigma))
    found = certify(model, digits.images, sigma=sigma, samples=size.samples, failure_probability=_FAILURE, bits=bits)
    finish_step(f"certified at sigma {sigma:g}")
    certain = np.flatnonzero(found.radius > 0)[: size.attacked]
    images, predictions, radii = digits.images[certain], found.prediction[certain], found.radius[certain]
    flipped = []
    for multiple in _MULTIPLES:
        moved = attack(model, images, predictions, multiple * radii, sigma=sigma, bits=bits)
        votes = expected_scores(votes_of_model(model), moved, "gaussian", sigma, size.checks, bits=bits)
        flipped.append(float((votes.argmax(1) != predictions).mean()))
    finish_step(f"attacked at sigma {sigma:g}")
    return CertifiedRun(sigma, found, np.array(flipped), len(certain))


def _plain_under_attack(digits: Digits, size: Size, radii: Floats, finish_step: Callable[[str], None]) -> Curve:
    """Measure the accuracy of a model trained and run without noise, under the same attack at a few distances."""
    told = partial(finish_step, "training without noise")
    model = train(digits.training, digits.training_labels, sigma=0.0, epochs=size.epochs, told=told)
    at = np.linspace(0, float(radii[-1]), 9)
    right = []
    for radius in at:
        moved = attack(model, digits.images, digits.labels, np.full(len(digits.labels), radius), sigma=0.0)
        right.append(float((model.predict(moved) == digits.labels).mean()))
    finish_step("attacked without noise")
    return at, np.array(right)


def _draw(models: Sequence[CertifiedRun], digits: Digits, radii: Floats, plain: Curve) -> Any:
    def panel(axes: Any, row: int, column: int) -> None:
        if column == 0:
            _accuracy_panel(axes, models, digits, radii, plain)
        else:
            _attack_panel(axes, models)

    return draw_panels(1, 2, panel, title=f"CertifiedRun predictions, {digits.name}", panel=(4.9, 3.7))


def _accuracy_panel(axes: Any, models: Sequence[CertifiedRun], digits: Digits, radii: Floats, plain: Curve) -> None:
    for model in models:
        color, _ = _LOOKS[model.sigma]
        for pixeldp, style, name in ((False, "-", "tight bound"), (True, "--", "PixelDP as published")):
            curve = model.found.certified_accuracy(digits.labels, radii, pixeldp=pixeldp)
            axes.plot(radii, curve, style, color=color, linewidth=1.8, label=f"noise {model.sigma:g}, {name}")
    axes.plot(*plain, ":", color=GREY, marker="x", label="no noise, under attack (not certified)")
    axes.set_title("Right and certified at least this far", fontsize=10.5, loc="left")
    distance = "l2 distance from the image (pixels in [0, 1])"
    axes.set(xlabel=distance, ylabel="share of test images", ylim=(0, 1.02))


def _attack_panel(axes: Any, models: Sequence[CertifiedRun]) -> None:
    for model in models:
        color, marker = _LOOKS[model.sigma]
        label = f"noise {model.sigma:g}, flipped"
        axes.plot(_MULTIPLES, model.flipped, color=color, marker=marker, markersize=5, label=label)
    axes.axvline(1.0, color=GREY, linewidth=1.2, linestyle="--", label="certified radius")
    axes.set_title("Predictions that an attack flips", fontsize=10.5, loc="left")
    distance = "distance allowed, in certified radii"
    axes.set(xlabel=distance, ylabel="share of certified images", ylim=(-0.03, 1.02))


def _numbers(models: Sequence[CertifiedRun], digits: Digits, radii: Floats) -> Iterator[list[object]]:
    """Yield the rows of the table for machines."""
    for model in models:
        tight = model.found.certified_accuracy(digits.labels, radii)
        published = model.found.certified_accuracy(digits.labels, radii, pixeldp=True)
        for row in zip(radii, tight, published, strict=True):
            yield [model.sigma, *(f"{value:.5f}" for value in row)]


def _summary(models: Sequence[CertifiedRun], digits: Digits, size: Size, plain: Curve) -> str:
    rows = []
    for model in models:
        found, curve = model.found, model.found.certified_accuracy
        inside = [flip for flip, multiple in zip(model.flipped, _MULTIPLES, strict=True) if multiple < 1]
        numbers = (
            (found.prediction == digits.labels).mean(),
            *curve(digits.labels, [0.25, 0.5, 1.0]),
            curve(digits.labels, [0.25], pixeldp=True)[0],
            np.median(found.radius),
        )
        flipped = f"{max(inside) * model.attacked:.0f} of {model.attacked}"
        rows.append([model.sigma, *map(float, numbers), flipped])
    shares = ["certified at 0.25", "at 0.5", "at 1", "PixelDP at 0.25"]
    columns = ["noise", "accuracy", *shares, "median radius", "flipped"]
    return f"""# Predictions that no small change of the image can move

{digits.name}: {len(digits.training):,} training images, {len(digits.labels)} test images, a network with 128 hidden units trained under the
same noise; {size.samples:,} noisy copies an image, each certificate fails with probability at most {_FAILURE:g}. Distances are l2, pixels
lie in [0, 1]. "flipped": certified predictions that a projected-gradient attack on the noisy model changed inside the
certified radius.

![Shares of images that are right and certified, and flipped](pixeldp.png)

{markdown_table(columns, rows)}

The same network without noise is right on {plain[1][0]:.1%} of the images, and on {plain[1][-1]:.1%} when they may be moved by
{plain[0][-1]:.2f}. The tight bound is the Gaussian one of randomised smoothing; PixelDP's comes from the (epsilon, delta)
calibration of the paper. The noise stabilises predictions; it protects nobody's data.
"""
