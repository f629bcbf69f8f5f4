"""MNIST by a small convolutional network: what accuracy each epsilon buys, and where accuracy-first training stops.

    python benchmarks/mnist_network.py [--data FOLDER] [--fixed 0.33 0.36] [--proven 0.45] [--target 0.95] [--runs 1] [--dealt] [--tutorial] [--json FILE]

Needs the extra ``torch``. All runs have the same noise a step and differ in when they stop: after so many steps as a given
epsilon pays for, without any promise or with one private test for the target at the end, once private tests on rows held out
say that the target is reached, or once public rows say so (half of the test rows, dealt once; the other half is scored). The
start of the weights is random, and the same for the n-th run of each kind.

MNIST's test file is easier than its training file. ``--dealt`` shuffles the images of both files anew for the n-th run of each
kind, so that rows learned from, held out and scored are alike, and what a fixed run has is measured on rows it never saw.

``--tutorial`` trains the network of Opacus's MNIST example (two convolutions, two linear layers) to the target at delta 1e-6 and
a cap of 2 with default settings, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch import nn

from benchmarks import tables
from benchmarks.mnist import DELTA, ROWS, Run, least, order_of, reached
from expost import TargetNotMet
from expost.experiments.experiment_data import data_folder
from expost.models.descent.training_schedule import Phase, Poisson, Schedule
from expost.torch import train

BATCH, NOISE = 2048, 4.0
STEPS, CAP = 600, 1.2  # of a run that is never told to stop
HELD_OUT = 0.08  # of the rows: what accuracy-first runs hold out here
GREY, SPREAD = 0.13, 0.31  # of a pixel: constants that everyone knows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the files (default: EXPOST_DATA)")
    parser.add_argument("--fixed", type=float, nargs="*", default=[0.33, 0.36])
    parser.add_argument("--proven", type=float, nargs="*", default=[])
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--dealt", action="store_true")
    parser.add_argument("--tutorial", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def tutorial_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def steps_for(epsilon: float, rows: int = ROWS) -> int:
    """As many steps as this epsilon pays for."""
    low, high = 1, STEPS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if price(middle, rows) <= epsilon else (low, middle - 1)
    return low


def price(steps: int, rows: int) -> float:
    plan = Schedule(Poisson(Fraction(BATCH, rows), rows), (Phase(steps, Fraction(NOISE)),))
    return float(plan.prices(Fraction(DELTA)).cap.epsilon)


class Digits:
    """The images, and the ways to train on them."""

    def __init__(self, path: Path, *, dealt: bool = False) -> None:
        with np.load(path) as data:
            parts = [(pixels(data[f"x_{part}"]), labels(data[f"y_{part}"])) for part in ("train", "test")]
        self._all = tuple(torch.cat(pair) for pair in zip(*parts, strict=True))
        self._dealt = dealt
        half = torch.tensor(np.random.default_rng(0).permutation(len(self._all[1]) - ROWS))
        self.public, self.rest = half[: len(half) // 2], half[len(half) // 2 :]
        self.deal(0)

    def deal(self, seed: int) -> None:
        """Which images are learned from and which are scored: as in the files, or shuffled."""
        order = torch.tensor(order_of(len(self._all[1]), seed if self._dealt else None))
        self.train, self.test = ((self._all[0][part], self._all[1][part]) for part in (order[:ROWS], order[ROWS:]))

    def fixed(self, epsilon: float, seed: int) -> Run:
        return self.run(f"fixed {epsilon:g}", seed, steps=steps_for(epsilon))

    def proven(self, epsilon: float, target: float, seed: int) -> Run:
        """Epsilon given and one private test at the end, of the same promise as an accuracy-first run's, on as many rows."""
        steps = steps_for(epsilon, ROWS - round(ROWS * HELD_OUT))
        terms: dict[str, Any] = {"score": ("accuracy", target), "phases": 1, "steps": steps, "max_epsilon": epsilon}
        return self.run(f"fixed {epsilon:g}, tested", seed, validation_share=HELD_OUT, **terms)

    def aimed(self, target: float, seed: int) -> Run:
        return self.run(f"to {target:g}", seed, score=("accuracy", target), steps=STEPS, max_epsilon=CAP)

    def public_aimed(self, target: float, seed: int) -> Run:
        self.deal(seed)
        inputs, classes = self.test
        shown = (inputs[self.public], classes[self.public])
        terms: dict[str, Any] = {"score": ("accuracy", target), "steps": STEPS, "max_epsilon": CAP}
        return self.run(f"to {target:g}, public", seed, self.rest, public_validation=shown, **terms)

    def usual(self, target: float, seed: int) -> Run:
        """The tutorial's network, with nothing set but what must be."""
        self.deal(seed)
        torch.manual_seed(seed)
        model = tutorial_network()
        terms: dict[str, Any] = {"score": ("accuracy", target), "max_epsilon": 2.0, "delta": 1e-6}
        return self.finish(
            f"tutorial, to {target:g}", slice(None), lambda: train(model, self.train, rows=ROWS, **terms)
        )

    def run(self, name: str, seed: int, scored: Any = slice(None), **terms: Any) -> Run:
        self.deal(seed)
        torch.manual_seed(seed)
        common: dict[str, Any] = {"rows": ROWS, "delta": DELTA, "batch_size": BATCH, "noise_multiplier": NOISE}
        model = network()
        return self.finish(
            name, scored, lambda: train(model, self.train, learning_rate=4.0, clip=0.1, **common, **terms)
        )

    def finish(self, name: str, scored: Any, fit: Callable[[], Any]) -> Run:
        begin = time.perf_counter()
        try:
            release = fit()
        except TargetNotMet as missed:
            release = missed.release
        took, right = time.perf_counter() - begin, right_ones(release.value, self.test)
        run = Run(
            release.receipt.epsilon,
            float(right[scored].mean()),
            float(right[self.public].mean()),
            float(right_ones(release.value, self.train).mean()),
            release.receipt.outcome.met,
            took,
        )
        print(f"{name:18} epsilon {run.epsilon:6.4f}   test accuracy {run.accuracy:.4f}   {took:4.0f} s   "
              f"{release.receipt.outcome.value}", flush=True)  # fmt: skip
        return run


def right_ones(model: nn.Module, rows: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """One for each row that the model gets right."""
    inputs, classes = rows
    with torch.no_grad():
        return (torch.cat([model(part).argmax(1) for part in inputs.split(1000)]) == classes).double()


def pixels(images: np.ndarray) -> torch.Tensor:
    return (torch.tensor(images / 255, dtype=torch.float32)[:, None] - GREY) / SPREAD


def labels(classes: np.ndarray) -> torch.Tensor:
    return torch.tensor(classes.astype(np.int64))


def compare(target: float, found: dict[str, list[Run]]) -> None:
    """Where accuracy-first runs stop, over the smallest epsilon at which half of the fixed ones, or more, have it too."""
    often = reached(found["aimed"], target)
    measures: list[tuple[str, str, Callable[[Run], float], float]] = [
        ("aimed", "the test rows", lambda run: run.accuracy, 0.5),
        ("aimed", f"the test rows as often ({often:.0%})", lambda run: run.accuracy, often),
        ("aimed", "the rows it learned from", lambda run: run.on_training, 0.5),
        ("public", "the public rows", lambda run: run.on_public, 0.5),
    ]
    for kind in ("aimed", "public"):
        stops, on_line = [run.epsilon for run in found[kind]], half_way(found["fixed"], target)
        mean, middle = statistics.geometric_mean(stops), statistics.median(stops)
        print(f"to {target:g}, {kind}: epsilon {mean:.3f} in the geometric mean, {middle:.3f} in the median, {mean / on_line:.2f}x and"
              f" {middle / on_line:.2f}x the {on_line:.3f} at which half of the fixed runs have it, on a line through all")  # fmt: skip
    if found["proven"]:
        stop, tested = (
            statistics.median(run.epsilon for run in found["aimed"]),
            least(found["proven"], lambda run: run.met),
        )
        print(
            f"to {target:g}, aimed: median epsilon {stop:.3f}, {stop / tested:.2f}x the least fixed one that passes one private test for it"
        )
    for kind, rows, accuracy, share in measures:
        stop = statistics.median(run.epsilon for run in found[kind])
        fixed = least(found["fixed"], lambda run, accuracy=accuracy: accuracy(run) >= target, share)
        print(
            f"to {target:g}, {kind}: median epsilon {stop:.3f}, {stop / fixed:.2f}x the least fixed one that has it on {rows}"
        )


def half_way(runs: list[Run], target: float) -> float:
    """The epsilon at which a run has the target as often as not: on a line through all, by the logarithm of epsilon."""
    if len({run.epsilon for run in runs}) < 2:
        return math.nan
    slope, height = np.polyfit(np.log([run.epsilon for run in runs]), [run.accuracy for run in runs], 1)
    return float(np.exp((target - height) / slope))


def main() -> None:
    options = parse()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    file = tables.needed_file(data_folder(options.data), "mnist.npz")
    digits, seeds = Digits(file, dealt=options.dealt), range(options.runs)
    if options.tutorial:
        runs = [digits.usual(options.target, seed) for seed in seeds]
        print(f"to {options.target:g}, default settings: {sum(run.met for run in runs)} of {len(runs)} met,"
              f" median epsilon {statistics.median(run.epsilon for run in runs):.3f}")  # fmt: skip
        return
    found = {
        "fixed": [digits.fixed(epsilon, seed) for epsilon in options.fixed for seed in seeds],
        "proven": [digits.proven(epsilon, options.target, seed) for epsilon in options.proven for seed in seeds],
        "aimed": [digits.aimed(options.target, seed) for seed in seeds],
        "public": [digits.public_aimed(options.target, seed) for seed in seeds],
    }
    compare(options.target, found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, default=asdict))


if __name__ == "__main__":
    main()
