"""How many rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.climb import climb
from expost.accuracy.interval import epsilon_for_radius, noise_radius
from expost.core import (
    BudgetExceeded,
    Ladder,
    Loss,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    Step,
)
from expost.data import Dataset
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.ask import Ask

__all__ = ["Count"]

_SPAN = 10_000  # the first rung of a climb is this much below the cap
_CITATIONS = ("GRS09, Definition 2", "LNRWW17, Theorem 2.7")


class Count:
    """The number of rows, with exact discrete Laplace noise.

    Guarantee: pure ex-post DP; the bill is the rung at which the climb stopped, known only after the run, at most
        ``max_epsilon``. An absolute accuracy or an epsilon is priced before the run.
    Adjacency: the dataset's.
    Sensitivity: 1 row for one row (L1).
    Accuracy: the interval covers the exact count with the asked confidence, at the rung where the climb stopped.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: GRS09, Definition 2 (mechanism); LNRWW17, Theorem 2.7 (gradual release costs its last rung).

    >>> Count(within=10, max_epsilon=1).question
    'count of rows'
    """

    def __init__(
        self,
        *,
        within: object = None,
        epsilon: object = None,
        confidence: object = 0.95,
        max_epsilon: object = None,
    ) -> None:
        self._ask = Ask.of(within=within, epsilon=epsilon, confidence=confidence, max_epsilon=max_epsilon)
        self._priced: Fraction | None = None

    @property
    def question(self) -> str:
        return "count of rows"

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._ladder(Sensitivity(1)).cap if self._priced is None else self._priced)

    def check(self, dataset: Dataset) -> None:
        self._priced = self._ladder(dataset.row_sensitivity()).cap

    def measure(self, dataset: Dataset) -> Sealed:
        return dataset.total_rows()

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[int]:
        ladder = self._ladder(sealed.sensitivity)
        path = DiscreteLaplacePath(sealed, ladder, bits=bits)
        failure = self._ask.failure_probability / len(ladder)  # union over the rungs that may be visited
        radii = np.array([noise_radius(failure, sealed.sensitivity.amount / level) for level in ladder])
        rung = climb(path, lambda values, start: self._accepts(values, radii[start : start + len(values)]))
        last = len(ladder) - 1 if rung is None else rung
        return self._release(path.block(0, last + 1)[:, 0], radii, ladder, met=rung is not None)

    def _ladder(self, sensitivity: Sensitivity) -> Ladder:
        ask = self._ask
        if ask.epsilon is not None:
            return Ladder((ask.epsilon,))
        assert ask.target is not None
        if ask.relative:
            assert ask.cap is not None
            return Ladder.geometric(ask.cap / _SPAN, ask.cap)
        radius = math.floor(ask.target.tolerance)
        level = epsilon_for_radius(radius, ask.failure_probability, sensitivity.amount)
        if ask.cap is not None and level > ask.cap:
            raise BudgetExceeded(
                f"Expected a target that costs at most {float(ask.cap):.4g}",
                got=f"epsilon {float(level):.4g}",
                do="Raise max_epsilon, or ask for less accuracy",
            )
        return Ladder((level,))

    def _accepts(self, values: NDArray[np.int64], radii: NDArray[np.int64]) -> NDArray[np.bool_]:
        if not self._ask.relative:
            return np.ones(len(values), dtype=bool)
        assert self._ask.target is not None
        share = float(self._ask.target.tolerance)
        # Certified when |value - exact| <= share * exact for every exact answer in the interval.
        accepted: NDArray[np.bool_] = radii <= share * (values[:, 0] - radii)
        return accepted

    def _release(
        self, values: NDArray[np.int64], radii: NDArray[np.int64], ladder: Ladder, *, met: bool
    ) -> Release[int]:
        last = len(values) - 1
        value, radius = int(values[last]), int(radii[last])
        steps = tuple(
            Step(level, float(v), max(float(v - r), 0.0), max(float(v + r), 0.0))
            for level, v, r in zip(ladder, values, radii, strict=False)
        )
        receipt = Receipt(
            question=self.question,
            method="discrete Laplace, gradual release" if len(ladder) > 1 else "discrete Laplace",
            promise=PureGuarantee(ladder.cap),
            bill=PureLoss(ladder[last]),
            outcome=self._outcome(met),
            target=self._ask.target,
            achieved=radius / value if self._ask.relative and value > 0 else float(radius),
            rung=last if len(ladder) > 1 else None,
            rungs=len(ladder) if len(ladder) > 1 else None,
            citations=_CITATIONS,
        )
        return Release(max(value, 0), receipt, (max(value - radius, 0), max(value + radius, 0)), steps)

    def _outcome(self, met: bool) -> Outcome:
        if self._ask.epsilon is not None:
            return Outcome.FIXED
        return Outcome.CERTIFIED if met else Outcome.NOT_MET
