"""A small problem that every part of a training can be tried on."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import Measure, Target
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearProblem
from expost.models.descent.score_head import Logistic
from expost.models.descent.stopping_test import ScoreRule
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Full, Phase, Schedule

DELTA = Fraction(1, 10**6)


class Small:
    """Two features, two classes, 4,000 rows that a line separates but for some noise."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.features = rng.normal(size=(4000, 2))
        self.labels = (self.features @ [1.0, -1.0] + 0.3 * rng.normal(size=4000) > 0).astype(np.intp)
        self.problem = LinearProblem(FeatureGrid(2, bound=3.0), Logistic(), clip=1.0, rule=DescentRule())

    def fixed(self, steps: int = 10, noise: int = 20, **changes: Any) -> TrainingPlan:
        return self._plan(Schedule(Full(4000), (Phase(steps, Fraction(noise)),)), changes)

    def aimed(
        self, accuracy: float = 0.85, phases: int = 4, *, failure: Fraction = Fraction(1, 10), **changes: Any
    ) -> TrainingPlan:
        noise = (Fraction(400), Fraction(100), Fraction(50), Fraction(20))[:phases]
        target = Target(Measure.ACCURACY, Fraction(str(accuracy)), failure)
        schedule = Schedule(Full(3200), tuple(Phase(10, each) for each in noise))
        terms = {"target": target, "rule": ScoreRule.of(target), "validation_share": Fraction(1, 5)}
        return self._plan(schedule, terms | changes)

    def surely_late(self, accuracy: float = 0.8) -> TrainingPlan:
        """A target that is reached, but hardly ever in the first phase (not once in 1,000 runs): for real randomness."""
        return self.aimed(accuracy, failure=Fraction(1, 10**6))

    def _plan(self, schedule: Schedule, changes: dict[str, Any]) -> TrainingPlan:
        return TrainingPlan(
            question="train a small model",
            schedule=schedule,
            prices=schedule.prices(DELTA),
            table=lambda data: self.problem.table(*data),
            **changes,
        )

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.labels


@dataclass(frozen=True)
class Planned:
    """A query whose plan is known."""

    known: TrainingPlan

    def plan(self, dataset: Any, context: Any) -> TrainingPlan:
        return self.known


@pytest.fixture
def small() -> Small:
    return Small()
