"""Laplace against Gaussian noise reduction: what the last rung costs when the exact risk says where to stop.

The stop is an oracle's, so that noise is compared with noise and no test blurs it. Brownian noise reduction (WRWR22) is
billed by curves that its loss stays under except with probability delta; a Gaussian whose variance was fixed in advance is
the mark that no adaptive bill can reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from expost.accounting import LinearBoundary, MixtureBoundary
from expost.accounting.concentrated import gaussian_delta
from expost.accounting.tradeoff_curve import smallest_epsilon
from expost.core import Ladder, Norm, Sealed, Sensitivity
from expost.experiments.experiment_data import ExperimentTable, available, data_folder, load
from expost.experiments.experiment_report import Progress, markdown_table, run_trials, write_csv
from expost.experiments.figure_style import BLACK, PURPLE, draw_panels, save_both
from expost.experiments.fitting_methods import TableRisk, exact_risk, shrunk
from expost.noise import BitSource, DiscreteLaplacePath, GaussianPath, RadialLaplacePath, SeededBits
from expost.plots.figure import BLUE, GREEN, ORANGE, RED

__all__ = ["DELTA", "Study", "run"]

Floats = NDArray[np.float64]

DELTA = 1e-6
_TUNED_AT = 0.01  # the clock mu^2 at which the boundaries are tightest; chosen before any run
_STEP = 2.0**-30
_BLOCK = 16
# Of the moments of rows of 1-norm, hence 2-norm, at most 1; the second is attained by x = -z, y = 1/2 (simulation only).
_LAPLACE_L1, _GAUSSIAN_L2 = 4.0, math.sqrt(4.5)

_TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_LOOKS = {
    "Gaussian doubling, no averaging": (ORANGE, "s", "-"),
    "Brownian, linear boundary": (PURPLE, "^", "-"),
    "Brownian, mixture boundary": (RED, "v", "-"),
    "Gaussian, variance known in advance": (BLACK, "", ":"),
    "Laplace (pure)": (BLUE, "o", "-"),
    "radial Laplace (pure, research)": (GREEN, "D", "-"),
}


@dataclass(frozen=True)
class Study:
    """What is run."""

    tolerances: tuple[float, ...] = (0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2)
    rows: int = 100_000
    trials: int = 100
    penalty: float = 0.005

    @classmethod
    def quick(cls) -> Study:
        """Seconds instead of minutes."""
        return cls(tolerances=(0.01, 0.05, 0.2), rows=20_000, trials=2)


class Answer:
    """The exact vector that is released, in the coordinates that suit each noise, and the hypotheses made of it."""

    def __init__(self, table: ExperimentTable, penalty: float) -> None:
        self._table, self._penalty = table, penalty

    @cached_property
    def risk(self) -> TableRisk:
        return exact_risk(self._table, self._penalty)

    @property
    def radius(self) -> float:
        """A ball that holds the minimum: 1 / (2 sqrt(penalty)), or 0.528 / sqrt(penalty) for the logistic loss."""
        return (0.528 if self._table.classification else 0.5) / math.sqrt(self._penalty)

    def sealed(self, norm: Norm) -> Sealed:
        """On the grid, with its sensitivity in that norm."""
        exact, amount = self._vector(norm)
        spare = exact.size if norm is Norm.L1 else math.isqrt(exact.size) + 1  # for rounding, one unit an entry
        return Sealed(np.rint(exact / _STEP).astype(np.int64), Sensitivity(math.ceil(amount / _STEP) + spare, norm))

    def _vector(self, norm: Norm) -> tuple[Floats, float]:
        rows, width = self._table.rows, self._table.width
        if self._table.classification:
            # 2 / (n penalty) in the Euclidean norm (LNRWW17, Lemma A.10), the root of the dimension more in the other.
            amount = 2 / (rows * self._penalty)
            return self.risk.best, amount * math.sqrt(width) if norm is Norm.L1 else amount
        features, target = self._table.features, self._table.target
        upper = np.triu_indices(width)
        moments = np.append((features.T @ features)[upper] * self._weights(norm), features.T @ target)
        return moments, _LAPLACE_L1 if norm is Norm.L1 else _GAUSSIAN_L2

    def _weights(self, norm: Norm) -> Floats:
        row, column = np.triu_indices(self._table.width)
        return np.where(row == column, 1.0, 2.0 if norm is Norm.L1 else math.sqrt(2))

    def hypotheses(self, released: NDArray[Any], norm: Norm) -> Floats:
        """Compute one row of coefficients per released row."""
        values = np.asarray(released, dtype=np.float64) * _STEP
        if self._table.classification:
            return shrunk(values, self.radius)
        width = self._table.width
        row, column = np.triu_indices(width)
        gram = np.zeros((len(values), width, width))
        gram[:, row, column] = gram[:, column, row] = values[:, : len(row)] / self._weights(norm)
        lowest = self._penalty * np.eye(width)
        cross = values[:, len(row) :, None] / self._table.rows
        return shrunk(np.asarray(np.linalg.solve(gram / self._table.rows + lowest, cross)[..., 0]), self.radius)


# One trial --------------------------------------------------------------------------------------------------------


@cache
def _prepared(name: str, folder: Path | None, study: Study) -> Answer:
    return Answer(load(name, folder, rows=study.rows), study.penalty)


def _stops(answer: Answer, path: Any, norm: Norm, tolerances: tuple[float, ...]) -> list[float]:
    """Find for each tolerance the first level whose exact excess risk is within it."""
    found = [math.nan] * len(tolerances)
    for start in range(0, len(path.ladder), _BLOCK):
        stop = min(start + _BLOCK, len(path.ladder))
        excess, _ = answer.risk.excesses(answer.hypotheses(path.block(start, stop), norm))
        for index, tolerance in enumerate(tolerances):
            good = np.flatnonzero(excess <= tolerance)
            if math.isnan(found[index]) and good.size:
                found[index] = float(path.ladder[start + int(good[0])])
        if not math.isnan(min(found)):
            break
    return found


def _trial(name: str, folder: Path | None, study: Study, trial: int) -> list[tuple[str, float, float]]:
    """Run one trial; returns rows of method, tolerance, epsilon."""
    answer, bits = _prepared(name, folder, study), SeededBits(trial)
    # Pure levels and zCDP levels that reach as far: the noise of either falls by 5 % per rung.
    pure, concentrated = Ladder.geometric(0.001, 40, ratio=1.05), Ladder.geometric(5e-7, 40, ratio=1.1025)
    rows: list[tuple[str, float, float]] = []
    laplace = DiscreteLaplacePath(answer.sealed(Norm.L1), pure, bits=bits)
    radial = RadialLaplacePath(answer.sealed(Norm.L2), pure, bits=bits)
    gaussian = GaussianPath(answer.sealed(Norm.L2), concentrated, bits=bits)
    for path, norm, bills in (
        (laplace, Norm.L1, {"Laplace (pure)": float}),
        (radial, Norm.L2, {"radial Laplace (pure, research)": float}),
        (gaussian, Norm.L2, _gaussian_bills()),
        (_Fresh(answer.sealed(Norm.L2), bits), Norm.L2, {"Gaussian doubling, no averaging": _doubling_bill}),
    ):
        for tolerance, level in zip(study.tolerances, _stops(answer, path, norm, study.tolerances), strict=True):
            rows += [(method, tolerance, bill(level)) for method, bill in bills.items()]
    return rows


def _gaussian_bills() -> dict[str, Callable[[float], float]]:
    """Price a Gaussian climb that stopped at rho = mu^2 / 2."""
    linear, mixture = (each(DELTA, tuned_at=_TUNED_AT) for each in (LinearBoundary, MixtureBoundary))
    return {
        "Brownian, linear boundary": lambda rho: linear.epsilon(2 * rho),
        "Brownian, mixture boundary": lambda rho: mixture.epsilon(2 * rho),
        "Gaussian, variance known in advance": _known_in_advance,
    }


def _known_in_advance(rho: float) -> float:
    """Compute the exact epsilon of one Gaussian release (BW18, Theorem 8)."""
    mu = math.sqrt(2 * rho)
    return smallest_epsilon(lambda epsilon: float(gaussian_delta(np.array([epsilon]), mu)[0]), DELTA)


def _doubling_bill(rho: float) -> float:
    """Independent releases at rho, rho / 2, rho / 4 ... add up to 2 rho, and only the last of them is used.

    Where it stops is not known in advance either, so it is billed by the mixture too.
    """
    return MixtureBoundary(DELTA, tuned_at=_TUNED_AT).epsilon(2 * 2 * rho)


class _Fresh:
    """Independent Gaussian releases, each with twice the precision of the one before."""

    def __init__(self, sealed: Sealed, bits: BitSource) -> None:
        self.ladder = Ladder.of(5e-7 * 2.0**step for step in range(27))
        self._sealed, self._bits = sealed, bits

    def block(self, start: int, stop: int) -> NDArray[Any]:
        ladders = [Ladder((self.ladder[rung],)) for rung in range(start, stop)]
        return np.array([GaussianPath(self._sealed, ladder, bits=self._bits).at(0) for ladder in ladders])


# The picture and the words ----------------------------------------------------------------------------------------


def run(
    output: Path,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    trials: int | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[Path]:
    """Write one figure, its numbers and a summary into ``output``; returns the files, the summary first."""
    study = Study.quick() if quick else Study()
    study = study if trials is None else replace(study, trials=trials)
    folder = data_folder(data)
    output.mkdir(parents=True, exist_ok=True)
    shown = available(folder)[-2:]  # the widest ridge table and the classification table
    means = {name: _means(name, folder, study, progress, workers) for name in shown}
    titles = [f"{kind}: {name}" for kind, name in zip(("ridge", "logistic"), means, strict=True)]

    def draw_panel(axes: Any, row: int, column: int) -> None:
        _draw(axes, titles[column], list(means.values())[column])

    title = f"Noise against noise: what the rung that is good enough costs (Gaussian: delta {DELTA:g})"
    figure = draw_panels(1, len(means), draw_panel, title=title, panel=(5.0, 3.8))
    rows = [[name, method, *found[method].values()] for name, found in means.items() for method in _LOOKS]
    table = markdown_table(["table", "method", *map(str, study.tolerances)], rows)
    summary = output / "brownian.md"
    summary.write_text(_WORDS.format(trials=study.trials, delta=DELTA, tuned=_TUNED_AT, table=table), encoding="utf-8")
    points = [
        (name, method, tolerance, epsilon)
        for name, found in means.items()
        for method, row in found.items()
        for tolerance, epsilon in row.items()
    ]
    numbers = write_csv(output / "brownian.csv", ["table", "method", "tolerance", "epsilon"], points)
    return [summary, numbers, *save_both(figure, output / "brownian")]


Means = dict[str, dict[float, float]]


def _means(name: str, folder: Path | None, study: Study, progress: Progress | None, workers: int | None) -> Means:
    jobs = [(name, folder, study, trial) for trial in range(study.trials)]
    values: dict[str, dict[float, list[float]]] = {}
    for rows in run_trials(_trial, jobs, label=f"Brownian, {name}", progress=progress, workers=workers):
        for method, tolerance, epsilon in rows:
            values.setdefault(method, {}).setdefault(tolerance, []).append(epsilon)
    return {method: {at: fmean(each) for at, each in found.items()} for method, found in values.items()}


def _draw(axes: Any, name: str, means: Means) -> None:
    for method, (color, marker, style) in _LOOKS.items():
        points = means[method]
        axes.plot(list(points), list(points.values()), style, color=color, marker=marker, markersize=5, label=method)
    axes.set_xscale("log")
    axes.set_xticks([at for at in _TICKS if min(points) <= at <= max(points)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(title=name, yscale="log", xlabel="excess risk asked for (log)", ylabel="ex-post loss, epsilon (log)")


_WORDS = """# Noise against noise

Each noise is taken away rung by rung (5 % a rung) until the exact excess risk is within the one asked for; the stop is an
oracle's, so that nothing but the noise is compared. Means over {trials} trials of the epsilon of the rung where it stopped.
At loose tolerances a very noisy hypothesis can be good by luck, and the oracle takes it.

![Noise against noise](brownian.png)

* **Laplace** is pure and needs no delta; it is calibrated to the L1 sensitivity.
* **Radial Laplace** is pure too and calibrated to the L2 sensitivity; its noise is made of floats, so it is research only.
* **Brownian** noise reduction stops anywhere at a bill that holds except with probability delta = {delta:g}: a straight line,
  tightest where it was tuned (mu^2 = {tuned:g}, chosen before the run), or a mixture, near the best over two decades.
* **Variance known in advance** is the exact epsilon of one Gaussian release at the rung where the climb stopped: nobody knows
  the rung in advance, so this is a mark and not a method.
* **Doubling** releases afresh at twice the precision and forgets what it had: 2 rho instead of rho, and a rung that may
  overshoot by a factor of two. It is billed by the same mixture.

{table}
"""
