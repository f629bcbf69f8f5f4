"""What accuracy costs: expost against the 2017 method on the same rows, in one run.

All with regularization 0.005, failure probability 0.1, rows of 1-norm at most 1, replace-one. The paper's column follows the authors'
code (and, for the logistic loss, their halved sensitivity). Oracles know the exact excess risk for free: "ours" is the smallest
epsilon at which the same tilt, scaled, meets the target; "paper's path" the first rung of the paper's path that does. Where zero
coefficients meet the target already, epsilon 0 does, and no ratio is asked for.
Parts run side by side, one process each (--jobs); 20 seeds take about ten minutes on two cores.
Noise comes from seeds, so nothing printed here is private.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from rich.console import Console
from rich.progress import Progress
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import LogisticRegression as PlainLogistic
from threadpoolctl import threadpool_limits

from benchmarks import tables
from expost.accuracy.paper2017 import Task
from expost.core import Ladder
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall
from expost.experiments.experiment_data import data_folder
from expost.models import LogisticRegression, Ridge
from expost.models.linear.classifier_fit import TiltedClassifier, grid_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.paper_fit import Hypotheses, NoiseReduction, PaperFit
from expost.models.linear.ridge_moments import CertifiedRidge
from expost.models.linear.ridge_objective import TiltedRidge
from expost.models.linear.row_loss import LogisticLoss, TruncatedSquare
from expost.models.linear.tilted_risk import TiltedRisk
from expost.noise import SeededBits

PENALTY, FAILURE = 0.005, 0.1
TOLERANCES = (0.005, 0.01, 0.05)
GOALS = {"KDD 99": (0.14, 0.10, 0.045), "nycflights13": (0.25, 0.18, 0.08), "BlogFeedback": (0.30, 0.22, 0.09)}
HEAD = "| table | tolerance | theory, as printed | paper | free certificate | expost | goal | paper / expost | oracle, ours | expost / oracle | oracle, paper's path | worst excess |"


class Case:
    """One table with its exact optimum, to judge by."""

    def __init__(self, name: str, table: tables.Table, task: Task) -> None:
        self.name, (self.features, self.target), self.task = name, table, task
        self.rows, self.width = self.features.shape
        self.labels = None if task.ridge else grid_labels((-1.0, 1.0))
        self.source = read_rows(self.features, self.target)
        self.paper = PaperFit(self.problem(0.01, 1e6), task, self.labels)
        self.risk = self.paper.exact_risk(self.paper.measure(self.source))

    def problem(self, tolerance: float, cap: float = 1.0) -> Problem:
        aim = Aim.of(excess_risk=tolerance, failure_probability=FAILURE, max_epsilon=cap)
        return Problem(UnitBall(self.width), self.rows, PENALTY, aim)

    def excess(self, thetas: np.ndarray) -> np.ndarray:
        return self.risk._measure_risks(np.atleast_2d(thetas)) - self.risk._lowest

    def ours(self, tolerance: float, seeds: int) -> tuple[list[float], list[float], list[float]]:
        """Bills, excess risks and oracle levels of the default method."""
        problem = self.problem(tolerance)
        request = TiltedRidge(problem) if self.task.ridge else TiltedClassifier(problem, LogisticLoss(), self.labels)
        rows = request.measure(self.source)
        bills, excesses, oracles = [], [], []
        for seed in range(seeds):
            release = request.climb(rows, SeededBits(seed))
            assert release.receipt.outcome.met
            bills.append(release.receipt.epsilon)
            excesses.append(float(self.excess(release.value.coefficients)[0]))
            oracles.append(self.oracle(tolerance, request._epsilon, rows, seed))
        return bills, excesses, oracles

    def oracle(self, tolerance: float, epsilon: Fraction, rows: object, seed: int) -> float:
        """The epsilon at which this seed's tilt, scaled, meets the target: the risk falls with the square of its length."""
        risk = TiltedRisk(
            TruncatedSquare() if self.task.ridge else LogisticLoss(), UnitBall(self.width), self.rows, PENALTY
        )
        scale = 2.0**-GRID_BITS if self.task.ridge else 1.0
        theta = risk.release(rows, epsilon, target_scale=scale, bits=SeededBits(seed))
        tilt, output = risk.prices.split(epsilon)
        needed = float(tilt) * math.sqrt(float(self.excess(theta)[0]) / tolerance)
        return (needed + float(risk.prices.jacobian)) / (1 - float(output / epsilon))

    def certificate(self, tolerance: float, seeds: int) -> float | None:
        if not self.task.ridge:
            return None
        request = CertifiedRidge(self.problem(tolerance))
        sealed = request.measure(self.source)
        return float(np.mean([request.climb(sealed, SeededBits(seed)).receipt.epsilon for seed in range(seeds)]))

    def authors(self, tolerance: float, seeds: int) -> tuple[float, float | None]:
        """The mean bill in the authors' convention, and the mean oracle on their path if every run has one."""
        fit = PaperFit(self.problem(tolerance, 1e6), self.task, self.labels)
        request = NoiseReduction(fit, authors=True)
        rows, ladder = request.measure(self.source), request._ladder
        bills, oracles = [], []
        for seed in range(seeds):
            bills.append(request.climb(rows, SeededBits(seed)).receipt.terms["epsilon as the authors count"])
            path = fit.draw_hypotheses(rows, ladder, risk=self.risk, authors=True, bits=SeededBits(seed))
            oracles.append(self._first_good_rung(path, ladder, tolerance))
        return float(np.mean(bills)), None if None in oracles else float(np.mean(oracles))

    def _first_good_rung(self, path: Hypotheses, ladder: Ladder, tolerance: float) -> float | None:
        for start in range(0, len(ladder), 32):
            good = np.flatnonzero(self.excess(path.block(start, min(start + 32, len(ladder)))) <= tolerance)
            if good.size:
                return float(ladder[start + int(good[0])])
        return None

    def numbers(self, tolerance: float, goal: float, seeds: int, paper_seeds: int) -> dict[str, Any]:
        """One row of the table."""
        bills, excesses, oracles = self.ours(tolerance, seeds)
        paper, their_oracle = self.authors(tolerance, paper_seeds)
        fit = PaperFit(self.problem(tolerance, 1e6), self.task, self.labels)
        return {
            "table": self.name,
            "tolerance": tolerance,
            "theory, as printed": fit.numbers.epsilon_by_printed_theory(tolerance),
            "paper": paper,
            "free certificate": self.certificate(tolerance, seeds),
            "expost": float(np.mean(bills)),
            "goal": goal,
            "oracle, ours": float(np.mean(oracles)),
            "oracle, paper's path": their_oracle,
            "zero meets the target": self.at_zero <= tolerance,
            "excess risk of zero": self.at_zero,
            "worst excess": max(excesses),
            "seeds": seeds,
            "seeds of the paper's method": paper_seeds,
        }

    @property
    def at_zero(self) -> float:
        """The excess risk of zero coefficients."""
        return float(self.excess(np.zeros(self.width))[0])


def short(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def line(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    mine, oracle = row["expost"], row["oracle, ours"]
    free, path = (short(row[name]) for name in ("free certificate", "oracle, paper's path"))
    verdict = "" if mine <= row["goal"] else " MISSED"
    zero = " (0 meets)" if row["zero meets the target"] else ""
    return (
        f"| {row['table']} | {row['tolerance']} | {row['theory, as printed']:.3g} | {row['paper']:.3g} | {free} | **{mine:.3g}** "
        f"| {row['goal']}{verdict} | {row['paper'] / mine:.0f}x | {oracle:.3g}{zero} | {mine / oracle:.2f} "
        f"| {path} | {row['worst excess']:.4f} |"
    )


@lru_cache(maxsize=1)
def case_of(key: str, folder: Path | None) -> Case:
    make = {
        "kdd": lambda: Case("KDD 99", tables.kdd(folder), Task.LOGISTIC_OUTPUT),
        "flights": lambda: Case("nycflights13", tables.flights(folder), Task.RIDGE_COVARIANCE),
        "blog": lambda: Case("BlogFeedback", tables.blog(folder), Task.RIDGE_COVARIANCE),
    }
    return make[key]()


def part(key: str, folder: Path | None, tolerance: float, seeds: int, paper_seeds: int) -> dict[str, Any]:
    """One row of the table, or one of the models that people would ship."""
    with threadpool_limits(1, user_api="blas"):
        if key in SHIPPED:
            return SHIPPED[key](folder, seeds)
        case = case_of(key, folder)
        goal = dict(zip(TOLERANCES, GOALS[case.name], strict=True))[tolerance]
        return case.numbers(tolerance, goal, seeds, paper_seeds)


def smallest(levels: list[float], good: Callable[[float], list[bool]]) -> float | None:
    """The smallest level at which at least nine in ten runs are good, if there is one."""
    return next((level for level in levels if np.mean(good(level)) >= 0.9), None)


LEVELS = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0]


def shipped_flights(folder: Path | None, seeds: int) -> dict[str, Any]:
    """Which epsilon buys nearly the R^2 of least squares?"""
    features, target = tables.flight_delays(folder)
    plain = LinearRegression().fit(features, target).score(features, target)

    def good(epsilon: float) -> list[bool]:
        scores = [
            Ridge(
                epsilon=epsilon,
                regularization=3e-4,
                bounds=list(tables.FLIGHT_BOUNDS.values()),
                feature_bound=4.0,
                target_bounds=180.0,
                fit_intercept=True,
                simulation_seed=seed,
            )
            .fit(features, target)
            .score(features, target)
            for seed in range(seeds)
        ]
        return [score >= plain - 0.02 for score in scores]

    needed = smallest(LEVELS, affordable(good))
    said = f"R^2 of arrival delays ({len(target)} rows, 5 columns): least squares {plain:.3f}; within 0.02 of it from epsilon {needed} on"
    return {"model": "arrival delays", "said": said, "without privacy": plain, "epsilon": needed, "seeds": seeds}


def shipped_adult(folder: Path | None, seeds: int) -> dict[str, Any]:
    """Which epsilon buys nearly the accuracy of a model without privacy?"""
    features, label, train = tables.adult(folder)
    reference = (
        PlainLogistic(C=1e3, max_iter=2000).fit(features[train], label[train]).score(features[~train], label[~train])
    )

    def good(epsilon: float) -> list[bool]:
        scores = [
            LogisticRegression(
                epsilon=epsilon, regularization=1e-3, feature_bound=9.0, classes=(0, 1), simulation_seed=seed
            )
            .fit(features[train], label[train])
            .score(features[~train], label[~train])
            for seed in range(seeds)
        ]
        return [score >= reference - 0.01 for score in scores]

    needed = smallest(LEVELS, affordable(good))
    said = f"test accuracy on Adult ({int(train.sum())} rows): {reference:.4f} without privacy; within 1 point of it from epsilon {needed} on"
    return {"model": "Adult", "said": said, "without privacy": reference, "epsilon": needed, "seeds": seeds}


SHIPPED = {"ship flights": shipped_flights, "ship adult": shipped_adult}


def affordable(good: Callable[[float], list[bool]]) -> Callable[[float], list[bool]]:
    """Levels too low for the regularization are refused by the library; they are not good."""

    def judged(level: float) -> list[bool]:
        try:
            return good(level)
        except ValueError:
            return [False]

    return judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of the tables")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--paper-seeds", type=int, help="runs of the 2017 method, which is slow (default: --seeds)")
    parser.add_argument("--only", choices=["kdd", "flights", "blog", "shipped"], help="one part")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = data_folder(options.data)
    parts = [(key, tolerance) for key in ("kdd", "flights", "blog") for tolerance in TOLERANCES]
    parts += [(key, 0.0) for key in SHIPPED]
    parts = [each for each in parts if options.only in (None, each[0], *(["shipped"] if each[0] in SHIPPED else []))]
    with ProcessPoolExecutor(options.jobs) as pool, Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("what accuracy costs", total=len(parts))
        seeds = options.seeds, options.paper_seeds or options.seeds
        running = [pool.submit(part, key, folder, tolerance, *seeds) for key, tolerance in parts]
        for each in running:
            each.add_done_callback(lambda _: bar.advance(task))
        found = [each.result() for each in running]
    rows = [each for each in found if "table" in each]
    models = [each for each in found if "model" in each]
    if rows:
        print(HEAD, "|" + " --- |" * (HEAD.count(" | ") + 1), *map(line, rows), sep="\n")
    print("", *(each.pop("said") for each in models), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "models": models}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
