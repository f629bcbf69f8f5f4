"""Where the minimum of a regularised risk lies, and how far one row can move it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from expost.data.matrix import GRID_BITS
from expost.models.linear.losses import Loss, TruncatedSquare
from expost.models.linear.newton import solver_distance
from expost.models.linear.problem import Problem

__all__ = ["Minimum"]


@dataclass(frozen=True)
class Minimum:
    """Public bounds on the minimum of a problem's risk with this loss; nothing here looks at rows."""

    problem: Problem
    loss: Loss

    @property
    def is_square(self) -> bool:
        """Whether the loss is the square of ridge regression, whose steepness is bounded in a ball only."""
        return isinstance(self.loss, TruncatedSquare)

    @property
    def radius(self) -> float:
        """A ball that contains the minimum: 1 / (2 sqrt(penalty)) for ridge, else by comparison with zero."""
        if self.is_square:
            return 0.5 / math.sqrt(self.problem.penalty)
        return math.sqrt(2 * self.loss.at_zero / self.problem.penalty)

    @property
    def steepest(self) -> float:
        """The largest gradient of one row within the ball."""
        return self.radius + 1 if self.is_square else self.loss.steepest

    @property
    def solved(self) -> Loss:
        """The loss as the solver reads it: no residual in the ball comes near where the square is cut off."""
        return TruncatedSquare(2 * self.steepest) if self.is_square else self.loss

    @property
    def target_scale(self) -> float:
        """What a target on the grid is worth; labels are whole."""
        return 2.0**-GRID_BITS if self.is_square else 1.0

    @cached_property
    def left(self) -> float:
        """How far a computed minimum can be from the exact one."""
        problem = self.problem
        return solver_distance(
            self.solved, problem.ball, rows=problem.rows, penalty=problem.penalty, radius=self.radius, tilt=0.0
        )

    @property
    def distance(self) -> float:
        """How far one row moves the computed minimum, in the Euclidean norm."""
        # CMS11, Corollary 8: the exact one by at most 2 steepest / (rows penalty).
        return 2 * self.steepest / (self.problem.rows * self.problem.penalty) + 2 * self.left
