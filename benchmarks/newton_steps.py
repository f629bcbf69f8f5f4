"""Newton steps against gradient steps at equal epsilon, on made-up rows whose columns differ much in length.

python benchmarks/newton_steps.py --rows 20000 --columns 20
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import expost

RUNS = (("gradient", 10), ("gradient", 100), ("newton", 10), ("newton", 30))
EPSILONS = (0.3, 1.0, 4.0)


def made_up(rows: int, columns: int, seed: int) -> tuple[Any, Any, Any]:
    """Rows, labels drawn from a logistic model, and its scores cut to [-1, 1]."""
    rng = np.random.default_rng(seed)
    lengths = np.geomspace(1.0, 0.1, columns)
    features = rng.normal(size=(rows, columns)) * lengths
    scores = features @ (rng.normal(size=columns) / lengths * 2 / math.sqrt(columns))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores))).astype(int)
    return features, labels, np.clip(scores / 6, -1, 1)


def trained(data: tuple[Any, Any, Any], seed: int, **terms: Any) -> tuple[float, float]:
    """The mean logistic loss of a classifier and the rmse of a regression."""
    features, labels, numbers = data
    terms |= {"rows": len(features), "feature_bound": 3.0, "simulation_seed": seed}
    scores = expost.SGDClassifier(classes=[0, 1], **terms).fit(features, labels).decision_function(features)
    errors = expost.SGDRegressor(**terms).fit(features, numbers).predict(features) - numbers
    return float(np.mean(np.logaddexp(0, scores) - labels * scores)), float(np.sqrt(np.mean(errors**2)))


def main() -> None:
    """Print one line an epsilon: loss / rmse for each solver and number of steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="of the rows and of the noise")
    given = parser.parse_args()
    tables = [made_up(given.rows, given.columns, seed) for seed in range(100, 100 + given.seeds)]
    print("| epsilon |", " | ".join(f"{solver}, {steps} steps" for solver, steps in RUNS), "|")
    for epsilon in EPSILONS:
        cells = []
        for solver, steps in RUNS:
            runs = [trained(data, 1 + k, epsilon=epsilon, solver=solver, steps=steps) for k, data in enumerate(tables)]
            loss, rmse = np.mean(runs, axis=0)
            cells.append(f"{loss:.3f} / {rmse:.3f}")
        print(f"| {epsilon:g} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
