"""Private rows and their targets, ready to be learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.matrix import plain_numbers
from expost.data.places import label_codes
from expost.models.descent.curvature import curved
from expost.models.descent.descent import DescentRule
from expost.models.descent.features import FeatureGrid, GridRows
from expost.models.descent.head import Head
from expost.models.descent.learner import LinearLearner
from expost.models.descent.newton import NewtonLearner
from expost.models.descent.schedule import Schedule
from expost.models.descent.watch import Watch

__all__ = ["LinearProblem", "LinearTable", "default_steps", "label_numbers", "target_numbers"]

_SOLVERS: dict[str, type[LinearLearner]] = {"gradient": LinearLearner, "newton": NewtonLearner}
# Of 10 to 100 Newton steps, 30 to 50 were the best or nearly so on most of 13 tables at four epsilons (docs/sgd.md); no rule
# in rows, columns, epsilon and delta did better than this constant by more than the noise of the measurement. A training
# that may stop at a target shares its steps out to many phases, and there 100 did better.
_STEPS, _NEWTON_STEPS = 100, 40


@dataclass(frozen=True)
class LinearProblem:
    """The public side of a linear model: how rows become integers, what stands on top, how it descends.

    >>> from expost.models.descent.head import Logistic
    >>> problem = LinearProblem(FeatureGrid(2), Logistic(), clip=1.0, rule=DescentRule(0.5))
    >>> len(problem.table(np.zeros((3, 2)), np.zeros(3, np.intp)))
    3
    """

    grid: FeatureGrid
    head: Head
    clip: float
    rule: DescentRule
    solver: str = "gradient"

    def __post_init__(self) -> None:
        _check_solver(self.solver)
        if self.solver == "newton":
            curved(self.head, self.grid.columns)

    def check(self, schedule: Schedule) -> None:
        """Refuse noise or a clip that the lattice has no room for; reads no rows, and is asked before any is paid for."""
        empty = self.table(np.zeros((0, self.grid.width)), np.zeros(0, np.intp)).learner(slice(None), None)
        for phase in schedule.phases:
            try:  # with room for being watched, so that this does not decide what is refused
                wider = replace(phase, noise_multiplier=phase.noise_multiplier * Watch().factor(empty.watchable[0]))
                empty.open(wider, float(schedule.batches.expected_size))
            except InvalidRequest:
                raise InvalidRequest(
                    "Expected a noise multiplier that leaves room for rounding",
                    got=float(phase.noise_multiplier),
                    do="Raise epsilon or clip, or take fewer steps",
                ) from None
            # Heavy-ball descent on the penalty alone runs away beyond this (Pol64); the weights would overflow.
            if empty._stride.rate * self.rule.regularization >= 2 * (1 + self.rule.momentum):
                raise InvalidRequest(
                    "Expected a regularization that the steps can follow",
                    got=self.rule.regularization,
                    do="Lower it, or pass a smaller learning_rate",
                )

    def table(self, features: Any, targets: NDArray[Any]) -> LinearTable:
        """The rows on the grid."""
        return LinearTable(self, self.grid.encode(features), targets)


@dataclass(frozen=True)
class LinearTable:
    """Encoded rows with their targets."""

    problem: LinearProblem
    features: GridRows = field(repr=False)
    targets: NDArray[Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.features)

    def learner(self, training: NDArray[np.intp] | slice, validation: NDArray[np.intp] | None) -> LinearLearner:
        """A learner of some rows, tested on others."""
        problem = self.problem
        return _SOLVERS[problem.solver](
            problem.grid,
            problem.head,
            clip=problem.clip,
            rule=problem.rule,
            training=self._part(training),
            validation=None if validation is None else self._part(validation),
        )

    def contents(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """The encoded rows and their targets."""
        yield self.features.integers(), self.targets

    def _part(self, index: NDArray[np.intp] | slice) -> tuple[GridRows, NDArray[Any]]:
        if isinstance(index, slice):
            return self.features, self.targets
        return self.features.subset(index), self.targets[index]


def default_steps(solver: str, *, phases: bool = False) -> int:
    """How many steps a solver takes if nobody says; ``phases`` if it may stop in between.

    >>> default_steps("gradient"), default_steps("newton"), default_steps("newton", phases=True)
    (100, 40, 100)
    """
    _check_solver(solver)
    return _NEWTON_STEPS if solver == "newton" and not phases else _STEPS


def _check_solver(solver: object) -> None:
    if not isinstance(solver, str) or solver not in _SOLVERS:
        raise InvalidRequest("Expected solver to be gradient or newton", got=solver, do="Name one of them")


def label_numbers(labels: Any, classes: Any) -> NDArray[np.intp]:
    """The place of each label among the declared classes; a label that is none of them, whatever it is, is absent.

    >>> label_numbers(["b", "a", "?"], ["a", "b"]).tolist()
    [1, 0, -1]
    """
    known = np.asarray(classes)
    if known.ndim != 1 or len(known) < 2 or len(set(known.tolist())) != len(known) or (known != known).any():
        got = "one class" if known.size == 1 else "some that are equal or missing"
        raise InvalidRequest(
            "Expected at least two different classes", got=got, do="Pass classes=[...], the public ones"
        )
    return label_codes(labels, known)


def target_numbers(targets: Any, low: float, high: float) -> NDArray[np.float64]:
    """Numbers cut to public bounds and centred, so that they lie in [-1, 1]; a missing one is in the middle.

    >>> target_numbers([0.0, 20.0, float("nan")], 0.0, 10.0).tolist()
    [-1.0, 1.0, 0.0]
    """
    if not low < high:
        raise InvalidRequest("Expected target bounds (low, high), low below high", do="Pass public bounds")
    middle, half = (low + high) / 2, (high - low) / 2
    values = np.nan_to_num(plain_numbers(targets), nan=middle, posinf=high, neginf=low)
    centred: NDArray[np.float64] = (np.clip(values, low, high) - middle) / half
    return centred
