"""Newton steps against gradient steps at equal epsilon, by the number of steps: made-up tables of three families, and real ones.

    python benchmarks/newton_steps.py [--rows 20000] [--columns 20] [--seeds 3] [--data FOLDER] [--table Adult]
        [--json FILE]

Each cell is the part of the way from the best constant guess (1) to the non-private model (0) that is left, on rows held
out: of the mean logistic loss for classes, of the root mean squared error for numbers. Real tables are left out where the
folder has none.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

import expost
from benchmarks import tables
from expost.experiments.experiment_data import data_folder

RUNS = (("gradient", 100), ("newton", 10), ("newton", 20), ("newton", 40), ("newton", 100))
EPSILONS = (0.1, 0.3, 1.0, 4.0)
FAMILIES = ("lengths", "equal", "tangled")
UNIT = {"feature_bound": 1.0}  # rows are scaled so that 97 % of them are that short


@dataclass
class Task:
    """A table cut in two, with the public numbers that a model of it needs."""

    name: str
    features: Any
    target: Any
    terms: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = np.random.default_rng(0).permutation(len(self.target))
        cut = len(order) * 4 // 5
        self.train, self.test = order[:cut], order[cut : cut + 20_000]
        self.classes = self.target.dtype.kind in "biu"
        plain = LogisticRegression(C=1e3, max_iter=500) if self.classes else LinearRegression()
        fitted = plain.fit(self.features[self.train], self.target[self.train])
        scores = fitted.decision_function if self.classes else fitted.predict
        self.best = self._lost(scores(self.features[self.test]))
        mean = self.target[self.train].mean()
        self.guess = self._lost(np.full(len(self.test), math.log(mean / (1 - mean)) if self.classes else mean))

    def _lost(self, scores: Any) -> float:
        target = self.target[self.test]
        if self.classes:
            return float(np.mean(np.logaddexp(0, scores) - target * scores))
        return float(np.sqrt(np.mean((scores - target) ** 2)))

    def left(self, seed: int, **terms: Any) -> float:
        """What a private model leaves of the way."""
        terms |= self.terms | {"rows": len(self.train), "simulation_seed": seed}
        rows, test = self.features[self.train], self.features[self.test]
        if self.classes:
            model = expost.SGDClassifier(classes=[0, 1], **terms).fit(rows, self.target[self.train])
            scores = model.decision_function(test)
        else:
            scores = expost.SGDRegressor(**terms).fit(rows, self.target[self.train]).predict(test)
        return (self._lost(scores) - self.best) / (self.guess - self.best)


def made_up(rows: int, columns: int, family: str) -> Iterator[Task]:
    """Labels drawn from a logistic model, and its scores with some noise, cut to [-1, 1]."""
    rng = np.random.default_rng(FAMILIES.index(family))
    features, weights = rng.normal(size=(rows * 5 // 4, columns)), rng.normal(size=columns)
    if family == "lengths":
        lengths = np.geomspace(1.0, 0.1, columns)
        features, weights = features * lengths, weights / lengths
    if family == "tangled":  # correlated columns
        features = (features + 2 * rng.normal(size=(len(features), 1))) @ rng.normal(size=(columns, columns))
    features /= np.quantile(np.linalg.norm(features, axis=1), 0.97)
    scores = features @ weights
    scores *= 2.5 / scores.std()
    labels = (rng.random(len(scores)) < 1 / (1 + np.exp(-scores))).astype(int)
    numbers = np.clip(scores / 6 + 0.05 * rng.normal(size=len(scores)), -1, 1)
    yield Task(f"made up, {family}, classes", features, labels, UNIT)
    yield Task(f"made up, {family}, numbers", features, numbers, UNIT | {"target_bounds": 1.0})


def real(folder: Path | None) -> Iterator[Task]:
    """The tables of the other benchmarks, as far as they are there."""
    if folder is None:
        return
    if (folder / "adult.parquet").exists():
        features, labels, _ = tables.adult(folder)
        yield Task("Adult", features[:, :-1], labels, {"feature_bound": 3.0})
    if (folder / "kddcup99_10pct.parquet").exists():
        features, signs = tables.kdd(folder, 60_000)
        features = features / np.maximum(np.abs(features).max(axis=0), 1e-12)
        yield Task("KDD 99", features, (signs > 0).astype(int), {"feature_bound": 3.5})
    if (folder / "nycflights13.parquet").exists():
        features, delays = tables.sampled(*tables.flight_delays(folder), 100_000)
        bounds = list(tables.FLIGHT_BOUNDS.values())
        yield Task("flight delays", features, delays, {"bounds": bounds, "target_bounds": (-60, 180)})
    if (folder / "blogfeedback.parquet").exists():
        features, comments = tables.sampled(*tables.blog(folder), 25_000)
        features = features / np.maximum(np.abs(features).max(axis=0), 1e-12)
        yield Task("blog comments", features, comments, {"feature_bound": 4.0, "target_bounds": (0, 1)})


def main() -> None:
    """Print one line a table and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", help="folder of the real tables")
    parser.add_argument("--table", default="", help="a part of the names of the tables to run")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    print("| table | epsilon |", " | ".join(f"{solver}, {steps} steps" for solver, steps in RUNS), "|")
    tasks = [task for family in FAMILIES for task in made_up(given.rows, given.columns, family)]
    folder = data_folder(given.data)
    for task in (task for task in (*tasks, *real(folder)) if given.table in task.name):
        for epsilon in EPSILONS:
            left = []
            for solver, steps in RUNS:
                runs = [task.left(1 + k, epsilon=epsilon, solver=solver, steps=steps) for k in range(given.seeds)]
                left.append(float(np.mean(runs)))
                results.append({"table": task.name, "epsilon": epsilon, "solver": solver, "steps": steps, "left": runs})
            print(f"| {task.name} | {epsilon:g} |", " | ".join(f"{part:.3f}" for part in left), "|", flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
