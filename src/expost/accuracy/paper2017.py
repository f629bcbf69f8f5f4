"""The numbers of the 2017 paper: utility theorems solved for epsilon, and the cost of its private test.

LNRWW17 is ``Accuracy first``. Every formula exists corrected and as printed; ``docs/errata-2017.md`` lists the differences.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

__all__ = ["PaperProblem", "Task", "TestPlan"]


class Task(enum.Enum):
    """Which of the paper's three mechanisms makes the hypotheses."""

    RIDGE_COVARIANCE = "ridge, covariance"
    RIDGE_OUTPUT = "ridge, output"
    LOGISTIC_OUTPUT = "logistic, output"

    @property
    def ridge(self) -> bool:
        """Whether the loss is half the squared error."""
        return self is not Task.LOGISTIC_OUTPUT


@dataclass(frozen=True)
class TestPlan:
    """An above-threshold test of excess risks: its epsilon, and the noisy excess risk from which on it accepts."""

    __test__ = False  # pytest would collect it by its name

    epsilon: float
    threshold: float


@dataclass(frozen=True)
class PaperProblem:
    """The quantities of the paper's Appendix B for rows of 1-norm at most 1 and targets at most 1.

    >>> problem = PaperProblem(Task.RIDGE_COVARIANCE, rows=100_000, dimension=77, penalty=0.005)
    >>> round(problem.authors_test(0.05, 0.1, 1000).epsilon, 2), round(problem.theorem_test(0.05, 0.1, 1000).epsilon, 2)
    (2.22, 7.27)
    """

    task: Task
    rows: int
    dimension: int
    penalty: float

    @property
    def radius(self) -> float:
        """The ball that hypotheses are projected on (LNRWW17, Lemma A.4 and Claim A.11)."""
        return math.sqrt((1.0 if self.task.ridge else 2 * math.log(2)) / self.penalty)

    @property
    def query_sensitivity(self) -> float:
        """How far one row moves an excess risk: (M + 1)^2 / n (Claim A.5), or 2 M / n (Claim A.12, corrected)."""
        return (self.radius + 1) ** 2 / self.rows if self.task.ridge else 2 * self.radius / self.rows

    @property
    def authors_query_sensitivity(self) -> float:
        """The query sensitivity in the authors' figures: for the logistic loss 2 ln(1 + e^M) / n, just above 2 M / n.

        Their program computes half of it, for either loss, and so prints half of the test's epsilon. The scripts that
        draw their figures double it again (docs/errata-2017.md).
        """
        return self.query_sensitivity if self.task.ridge else 2 * math.log1p(math.exp(self.radius)) / self.rows

    @property
    def output_sensitivity(self) -> float:
        """How far one row moves the minimum in the 1-norm.

        2 sqrt(p) G / (n lambda) with G the largest gradient of a row (Lemma A.10; for ridge G = M + 1, which is far below
        the printed Lemma A.8).
        """
        steepest = self.radius + 1 if self.task.ridge else 1.0
        return 2 * math.sqrt(self.dimension) * steepest / (self.rows * self.penalty)

    @property
    def printed_output_sensitivity(self) -> float:
        """Lemma A.8 for ridge, Lemma A.10 for logistic regression."""
        if self.task is Task.RIDGE_OUTPUT:
            return (self.radius + 1) * math.sqrt(self.dimension / (self.rows * self.penalty))
        return self.output_sensitivity

    def epsilon_by_theory(self, tolerance: float) -> float:
        """Return the epsilon at which the *expected* excess risk is the tolerance, by the corrected theorems."""
        p, n, lam, radius = self.dimension, self.rows, self.penalty, self.radius
        if self.task is Task.RIDGE_COVARIANCE:
            # Theorem 3.1 with the factor 2 of its proof removed.
            return 2 * math.sqrt(2) * (2 * math.sqrt(p) * radius + p * radius**2) / (n * tolerance)
        # Output noise of scale r costs r^2 (c + lambda p) by smoothness: c = 1 (squared) or 1/4 (logistic).
        smooth = (1.0 if self.task.ridge else 0.25) + lam * p
        return self.output_sensitivity * math.sqrt(smooth / tolerance)

    def epsilon_by_printed_theory(self, tolerance: float) -> float:
        """Return that epsilon by the theorems as printed (3.1, A.9, 3.3), as the authors' code inverts them."""
        p, n, lam, radius = self.dimension, self.rows, self.penalty, self.radius
        if self.task is Task.RIDGE_COVARIANCE:
            return 4 * math.sqrt(2) * (2 * math.sqrt(p) * radius + p * radius**2) / (n * tolerance)
        if self.task is Task.RIDGE_OUTPUT:
            return math.sqrt((1 / n + lam) * (radius + 1) ** 2 * p**2 / (n * lam * tolerance))
        return 2 * math.sqrt(2) * p / (n * lam * tolerance)

    def theorem_test(self, tolerance: float, failure_probability: float, rungs: int) -> TestPlan:
        """Return the test of Theorems 3.2 and 3.4: accept at half the tolerance, epsilon 16 Delta ln(2T / gamma) / alpha."""
        epsilon = 16 * self.query_sensitivity * math.log(2 * rungs / failure_probability) / tolerance
        return TestPlan(epsilon, tolerance / 2)

    def authors_test(
        self, tolerance: float, failure_probability: float, rungs: int, *, printed: bool = True
    ) -> TestPlan:
        """Return the test with the optimized threshold of the authors' code, and the epsilon of their figures.

        That epsilon is twice what their code prints. With ``printed`` false the constant that makes the failure probability 1.09 times too large is corrected.
        """
        constant = 1.5**0.75 if printed else 2 * 1.5**-0.75
        width = tolerance / (4 * math.log(constant * math.sqrt(rungs) / failure_probability))
        threshold = 0.25 * tolerance + 0.75 * width * math.log(1.5) - 0.5 * width * math.log(rungs)
        sensitivity = self.authors_query_sensitivity if printed else self.query_sensitivity
        return TestPlan(2 * sensitivity / width, threshold)

    def levels(self, tolerance: float, rungs: int, *, printed: bool = False) -> list[float]:
        """Return the geometric ladder of Appendix B, from 1 / n to four times the theory's epsilon.

        As printed the ladder stops one step short of its end.
        """
        theory = self.epsilon_by_printed_theory(tolerance) if printed else self.epsilon_by_theory(tolerance)
        low, high = 1 / self.rows, 4 * theory
        steps = rungs if printed else rungs - 1
        return [low * (high / low) ** (step / steps) for step in range(rungs)]

    def doublings(self, tolerance: float, *, printed: bool = False) -> int:
        """Return how often 1 / n is doubled until it exceeds four times the theory's epsilon."""
        theory = self.epsilon_by_printed_theory(tolerance) if printed else self.epsilon_by_theory(tolerance)
        return max(1, math.ceil(math.log2(4 * theory * self.rows)))
