"""Utility theorems turned around: the epsilon at which each promises the excess risk asked for, in expectation."""

from __future__ import annotations

import math
from dataclasses import replace

from expost.accuracy.paper2017 import PaperProblem, Task

__all__ = ["SGD_DELTA", "sgd_floor", "theory_curves"]

SGD_DELTA = 1e-6


def theory_curves(problem: PaperProblem, tolerances: tuple[float, ...]) -> dict[str, list[float]]:
    """One list of epsilons a theorem, as printed and, where that differs, corrected; infinite where it says nothing.

    >>> problem = PaperProblem(Task.LOGISTIC_OUTPUT, rows=100_000, dimension=38, penalty=0.005)
    >>> {name: round(values[0], 3) for name, values in theory_curves(problem, (0.05,)).items()}
    {'theory, output': 4.299, 'theory, output, corrected': 0.073, 'theory, SGD': 9.033}
    """
    tasks = {"output": problem}
    if problem.task is Task.RIDGE_COVARIANCE:
        tasks = {"covariance": problem, "output": replace(problem, task=Task.RIDGE_OUTPUT)}
    curves: dict[str, list[float]] = {}
    for name, each in tasks.items():
        curves[f"theory, {name}"] = [each.epsilon_by_printed_theory(tolerance) for tolerance in tolerances]
        curves[f"theory, {name}, corrected"] = [each.epsilon_by_theory(tolerance) for tolerance in tolerances]
    curves["theory, SGD"] = [_sgd_epsilon(problem, tolerance) for tolerance in tolerances]
    return curves


def sgd_floor(problem: PaperProblem, *, strongly_convex: bool = False) -> float:
    """The excess risk that a theorem on noisy SGD promises without any privacy: n^2 steps do not get closer.

    2 D L (2 + ln n^2) / n for a ball of diameter D and slopes up to L (SZ13, Theorem 2), or 17 L^2 (1 + ln n^2) / (n^2 lambda)
    from the penalty's curvature (SZ13, Theorem 1: the sum of n losses is n lambda-strongly convex), both with the n^2 steps
    of BST14, Algorithm 1.
    """
    slope = (problem.radius + 1 if problem.task.ridge else 1.0) + problem.penalty * problem.radius
    if strongly_convex:
        return 17 * slope**2 * (1 + 2 * math.log(problem.rows)) / (problem.rows**2 * problem.penalty)
    return 2 * 2 * problem.radius * slope * (2 + 2 * math.log(problem.rows)) / problem.rows


def _sgd_epsilon(problem: PaperProblem, tolerance: float) -> float:
    """The better half of BST14, Theorem 2.4, with its constants.

    Noise multiplies the squared slopes by 1 + 32 p ln(n / delta) ln(1 / delta) / epsilon^2, hence the first floor by its root
    and the second by itself.
    """
    noise = 32 * problem.dimension * math.log(problem.rows / SGD_DELTA) * math.log(1 / SGD_DELTA)
    rooms = (
        (tolerance / sgd_floor(problem)) ** 2 - 1,
        tolerance / sgd_floor(problem, strongly_convex=True) - 1,
    )
    return math.sqrt(noise / max(rooms)) if max(rooms) > 0 else math.inf
