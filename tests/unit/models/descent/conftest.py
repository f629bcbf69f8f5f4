"""A small problem that every part of a training can be tried on."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import Measure, Target
from expost.models.descent.batches import Full
from expost.models.descent.descent import DescentRule
from expost.models.descent.features import FeatureGrid
from expost.models.descent.head import Logistic
from expost.models.descent.request import TrainingRequest
from expost.models.descent.schedule import Phase, Schedule
from expost.models.descent.table import LinearProblem
from expost.models.descent.validation import ScoreRule

DELTA = Fraction(1, 10**6)


class Small:
    """Two features, two classes, 4,000 rows that a line separates but for some noise."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.features = rng.normal(size=(4000, 2))
        self.labels = (self.features @ [1.0, -1.0] + 0.3 * rng.normal(size=4000) > 0).astype(np.intp)
        self.problem = LinearProblem(FeatureGrid(2, bound=3.0), Logistic(), clip=1.0, rule=DescentRule())

    def fixed(self, steps: int = 10, noise: int = 20, **changes: Any) -> TrainingRequest:
        return self._request(Schedule(Full(4000), (Phase(steps, Fraction(noise)),)), changes)

    def aimed(
        self, accuracy: float = 0.85, phases: int = 4, *, failure: Fraction = Fraction(1, 10), **changes: Any
    ) -> TrainingRequest:
        noise = (Fraction(400), Fraction(100), Fraction(50), Fraction(20))[:phases]
        target = Target(Measure.ACCURACY, Fraction(str(accuracy)), failure)
        schedule = Schedule(Full(3200), tuple(Phase(10, each) for each in noise))
        terms = {"target": target, "rule": ScoreRule.of(target), "validation_share": Fraction(1, 5)}
        return self._request(schedule, terms | changes)

    def surely_late(self, accuracy: float = 0.8) -> TrainingRequest:
        """A target that is reached, but hardly ever in the first phase (not once in 1,000 runs): for real randomness."""
        return self.aimed(accuracy, failure=Fraction(1, 10**6))

    def _request(self, schedule: Schedule, changes: dict[str, Any]) -> TrainingRequest:
        return TrainingRequest(
            question="train a small model",
            schedule=schedule,
            prices=schedule.prices(DELTA),
            table=lambda data: self.problem.table(*data),
            **changes,
        )

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.labels


@pytest.fixture
def small() -> Small:
    return Small()
