"""MNIST and Adult by private gradient descent: what accuracy each epsilon buys, and where accuracy-first training stops.

    python benchmarks/mnist.py [--data FOLDER] [--fixed 0.03 0.035 0.04 0.05 0.1 0.5 2 4] [--proven 0.05 ... 0.1] [--target 0.95] [--runs 1] [--dealt] [--plot FILE] [--json FILE]

The features are fixed: no constant of theirs is taken from the data. Gradients of an image are sorted by direction into
eight channels, pooled over cells of 4 x 4 pixels, rooted, centred within each cell and scaled to length one, image by
image (a scattering transform of first order, in spirit). A softmax model on top is trained on all rows at once.

Accuracy-first runs are compared with two kinds of runs at a given epsilon: bare ones, which learn from all rows and promise
nothing, and ones that prove the same accuracy by one private test at their end.

MNIST's test file is easier than its training file. ``--dealt`` shuffles the images of both files anew for the n-th run of each
kind, so that rows learned from, held out and scored are alike.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from expost.experiments.experiment_data import data_folder

DELTA = 1e-5
ROWS = 60_000
CHANNELS, CELL = 8, 4
FEW = 5  # runs, below which medians say nothing


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the files (default: EXPOST_DATA)")
    parser.add_argument("--fixed", type=float, nargs="*", default=[0.03, 0.035, 0.04, 0.05, 0.1, 0.5, 2.0, 4.0])
    parser.add_argument("--proven", type=float, nargs="*", default=[0.05, 0.06, 0.07, 0.08, 0.1])
    parser.add_argument("--target", type=float, nargs="*", default=[0.95])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--dealt", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def oriented(images: np.ndarray) -> np.ndarray:
    """Features of some images, each from its own pixels alone."""
    padded = np.pad(images.astype(np.float32) / 255, ((0, 0), (1, 1), (1, 1)))
    down, right = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1], padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    angle = np.arctan2(down, right) * (CHANNELS / (2 * np.pi)) % CHANNELS
    lower = np.floor(angle).astype(np.intp)
    share, size = angle - lower, np.hypot(down, right)
    channels = np.zeros((len(images), CHANNELS, 28, 28), np.float32)
    place = np.ogrid[: len(images), :28, :28]
    channels[place[0], lower % CHANNELS, place[1], place[2]] += size * (1 - share)
    channels[place[0], (lower + 1) % CHANNELS, place[1], place[2]] += size * share
    centres = (np.arange(28 // CELL) + 0.5) * CELL - 0.5
    window = np.maximum(0, 1 - np.abs(np.arange(28)[None] - centres[:, None]) / CELL).astype(np.float32)
    pooled = np.sqrt(np.einsum("ncij,pi,qj->ncpq", channels, window, window, optimize=True))
    flat = (pooled - pooled.mean(axis=1, keepdims=True)).reshape(len(images), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)


def features(images: np.ndarray) -> np.ndarray:
    return np.concatenate([oriented(images[start : start + 5000]) for start in range(0, len(images), 5000)])


class Mnist:
    """The table, and the ways to train on it; every run says what it paid and how the model does on the test rows."""

    def __init__(self, path: Path, *, dealt: bool = False) -> None:
        self.terms = {"classes": range(10), "rows": ROWS, "delta": DELTA, "batches": "full", "feature_bound": 1.0}
        begin = time.perf_counter()
        with np.load(path) as data:
            self._x = np.concatenate([features(data[f"x_{part}"]) for part in ("train", "test")])
            self._y = np.concatenate([data[f"y_{part}"] for part in ("train", "test")]).astype(int)
        print(f"MNIST features: {self._x.shape[1]} an image, {time.perf_counter() - begin:.0f} s")
        self._dealt = dealt
        # Public rows, where a run stops by them: half of the test rows, dealt once; the other half is scored.
        half = np.random.default_rng(0).permutation(len(self._y) - ROWS)
        self.public, self.rest = half[: len(half) // 2], half[len(half) // 2 :]

    def deal(self, number: int) -> None:
        """Which images this run learns from and which are scored."""
        order = order_of(len(self._y), number if self._dealt else None)
        self.x, self.x_test = self._x[order[:ROWS]], self._x[order[ROWS:]]
        self.y, self.y_test = self._y[order[:ROWS]], self._y[order[ROWS:]]

    def fixed(self, epsilon: float) -> Run:
        """Epsilon given: all rows are learned from and nothing is promised."""
        return self.run(f"fixed {epsilon:g}", {"epsilon": epsilon, "steps": few(epsilon)})

    def proven(self, epsilon: float, target: float) -> Run:
        """Epsilon given and one private test at the end, of the same promise as an accuracy-first run's."""
        terms = {"score": ("accuracy", target), "max_epsilon": epsilon, "phases": 1, "steps": few(epsilon)}
        return self.run(f"fixed {epsilon:g}, tested", terms)

    def aimed(self, target: float) -> Run:
        """Accuracy first: private tests on rows held out say when to stop."""
        return self.run(f"to {target:g}", {"score": ("accuracy", target)})

    def public_aimed(self, target: float) -> Run:
        """Accuracy first: public rows say when to stop."""
        public = self.x_test[self.public], self.y_test[self.public]
        return self.run(f"to {target:g}, public", {"score": ("accuracy", target), "steps": 110}, self.rest, public)

    def run(self, name: str, terms: dict, scored: Any = slice(None), public: Any = None) -> Run:
        from expost import TargetNotMet
        from expost.models.descent.sgd_estimator import SGDClassifier

        begin = time.perf_counter()
        try:
            release = SGDClassifier(**self.terms, **terms).fit(self.x, self.y, public_validation=public).release_
        except TargetNotMet as missed:
            release = missed.release
        took = time.perf_counter() - begin
        right = release.value.compute_scores(self.x_test).argmax(1) == self.y_test
        score, on_public = float(right[scored].mean()), float(right[self.public].mean())
        on_training = float((release.value.compute_scores(self.x).argmax(1) == self.y).mean())
        run = Run(release.receipt.epsilon, score, on_public, on_training, release.receipt.outcome.met, took)
        print(f"MNIST {name:20} epsilon {run.epsilon:6.4f}   test accuracy {score:.4f}   {took:5.1f} s   "
              f"{release.receipt.outcome.value}", flush=True)  # fmt: skip
        return run


@dataclass(frozen=True)
class Run:
    """What one training paid, how it does on the test rows, and whether it reached what was asked."""

    epsilon: float
    accuracy: float
    on_public: float
    on_training: float
    """Of the rows that it learned from or held out; a run at a given epsilon has learned from them all."""
    met: bool
    seconds: float


def order_of(count: int, number: int | None) -> np.ndarray:
    """The order of all images, of which the first are learned from: as in the files, or shuffled by the run's number."""
    return np.arange(count) if number is None else np.random.default_rng(number).permutation(count)


def few(epsilon: float) -> int:
    """Steps of a run at a given epsilon: fewer where there is more noise."""
    return 40 if epsilon < 0.2 else 100


def mnist(options: argparse.Namespace) -> dict[str, Any]:
    table = Mnist(tables.needed_file(data_folder(options.data), "mnist.npz"), dealt=options.dealt)

    def runs(train: Callable[..., Run], *terms: float) -> list[Run]:
        found = []
        for number in range(options.runs):
            table.deal(number)
            found.append(train(*terms))
        return found

    found: dict[str, Any] = {"fixed": [run for epsilon in options.fixed for run in runs(table.fixed, epsilon)]}
    for target in options.target:
        parts = {
            "proven": [run for epsilon in options.proven for run in runs(table.proven, epsilon, target)],
            "aimed": runs(table.aimed, target),
            "public": runs(table.public_aimed, target),
        }
        found[f"{target:g}"] = parts
        if options.runs >= FEW:
            compare(target, found["fixed"], **parts)
    return found


def compare(target: float, fixed: list[Run], proven: list[Run], aimed: list[Run], public: list[Run]) -> None:
    """Where accuracy-first runs stop, over the smallest epsilon that would have done in half of the runs or more.

    Done means: has the accuracy on the test rows; has it there as often as accuracy-first runs have; has it on the rows it learned
    from, which flatters it; proves it by a private test; has it on the public rows.
    """
    bare, sure = (least(fixed, lambda run: run.accuracy >= target, share) for share in (0.5, reached(aimed, target)))
    alike = least(fixed, lambda run: run.on_training >= target)
    tested = least(proven, lambda run: run.met)
    shown = least(fixed, lambda run: run.on_public >= target)
    stop = statistics.median(run.epsilon for run in aimed)
    print(f"MNIST to {target:g} by private tests: median epsilon {stop:.3f}, {stop / tested:.2f}x the least fixed one that"
          f" passes such a test, {stop / alike:.2f}x the least that has it on the rows it learned from,"
          f" {stop / bare:.2f}x the least that has it on the test rows, {stop / sure:.2f}x the least that has it there as often"
          f" ({reached(aimed, target):.0%})")  # fmt: skip
    stop = statistics.median(run.epsilon for run in public)
    print(f"MNIST to {target:g} by public rows:   median epsilon {stop:.3f}, {stop / shown:.2f}x the least fixed one that"
          f" has it on them")  # fmt: skip


def reached(runs: list[Run], target: float) -> float:
    """The share of runs that have the target on the test rows."""
    return float(np.mean([run.accuracy >= target for run in runs]))


def least(runs: list[Run], good: Callable[[Run], bool], share: float = 0.5) -> float:
    """The smallest epsilon at which this share of the runs, or more, were good."""
    levels = sorted({round(run.epsilon, 3) for run in runs})
    shares = {level: np.mean([good(run) for run in runs if round(run.epsilon, 3) == level]) for level in levels}
    return next((level for level in levels if shares[level] >= share), math.nan)


def adult_table(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in [-1, 1], labels, and which rows are for training; bounds and categories are those of the census form."""
    import polars as pl

    table = pl.read_parquet(path)
    columns = []
    for name, (low, high) in {"age": (17, 90), "education_num": (1, 16), "hours_per_week": (1, 99)}.items():
        columns.append(2 * (table[name].to_numpy().astype(float) - low)[:, None] / (high - low) - 1)
    for name, high in {"capital_gain": 99_999, "capital_loss": 4_356}.items():
        columns.append(np.log1p(table[name].to_numpy().astype(float))[:, None] / np.log1p(high))
    columns.append(((table["age"].to_numpy().astype(float) - 17) / 73)[:, None] ** 2)
    for name in [
        "workclass",
        "education",
        "marital_status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native_country",
    ]:
        values = table[name].to_numpy()
        columns.append((values[:, None] == np.array(sorted(set(values)))[None]).astype(float))
    labels = (table["income"].str.strip_suffix(".") == ">50K").to_numpy().astype(int)
    return np.hstack(columns), labels, (table["split"] == "train").to_numpy()


def adult(options: argparse.Namespace) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression

    from expost.models.descent.sgd_estimator import SGDClassifier

    x, y, train = adult_table(tables.needed_file(data_folder(options.data), "adult.parquet"))
    plain = LogisticRegression(C=10, max_iter=2000).fit(x[train], y[train]).score(x[~train], y[~train])
    print(f"Adult plain logistic           test accuracy {plain:.4f}")
    found: dict[str, Any] = {"plain": float(plain), "private": []}
    for epsilon in (0.1, 0.3, 1.0):
        scores = [
            SGDClassifier(epsilon=epsilon, classes=[0, 1], rows=32_000, feature_bound=3.5, delta=DELTA)
            .fit(x[train], y[train])
            .score(x[~train], y[~train])
            for _ in range(max(options.runs, 3))
        ]
        found["private"].append({"epsilon": epsilon, "accuracy": float(np.mean(scores))})
        print(
            f"Adult fixed    epsilon {epsilon:6.3f}   test accuracy {np.mean(scores):.4f}   ({min(scores):.4f} to {max(scores):.4f})"
        )
    return found


def plot(found: dict[str, Any], targets: list[float], path: Path) -> None:
    from expost.plots.curve_plot import draw_training

    runs = {"epsilon given": found["fixed"]}
    for target in targets:
        runs[f"accuracy {target:g} asked for"] = found[f"{target:g}"]["aimed"]
        runs[f"accuracy {target:g}, public rows"] = found[f"{target:g}"]["public"]
    points = {name: [(run.epsilon, run.accuracy) for run in part] for name, part in runs.items() if part}
    title = f"MNIST, private softmax on fixed features, delta {DELTA:g}"
    draw_training(points, target=targets[0] if targets else None, title=title, path=path)


def main() -> None:
    options = parse()
    results = {"mnist": mnist(options), "adult": adult(options)}
    if options.plot:
        plot(results["mnist"], options.target, options.plot)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, default=asdict))


if __name__ == "__main__":
    main()
