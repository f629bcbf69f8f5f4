"""The margin of a model's promise before the training: how good a model must be for its test to accept it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from expost.core import InvalidRequest, Measure, Target
from expost.models.tabular.held_out_rows import HELD_OUT, SAMPLED, SURE, find_sampling_deviation, find_sampling_margin
from expost.models.tabular.score_sum import ScoreSum
from expost.models.tabular.table_profile import TableProfile

__all__ = ["PromiseMargin", "check_margin", "find_promise_margin"]

_SHOWN = tuple(Fraction(number) for number in ("0.01", "0.03", "0.1", "0.3", "1", "3", "10"))
_MOST_SHOWN = 3  # of these, next to the cap
_USUAL_SPREAD = 1 / 3  # of a target, in half its range: values then lie within three deviations
_MIDDLES = np.linspace(0.0, 0.95, 20)  # of a target, in half its range
_SLACK = 1.02  # covers what lies between two of them


class _TestedPlan(Protocol):
    """What a margin needs of a training: the sums of its test, and how large one must be to pass."""

    @property
    def target_bounds(self) -> tuple[float, float]: ...

    @property
    def most_epsilon(self) -> Fraction: ...

    def score_sum(self, profile: TableProfile) -> Any: ...

    def find_needed_sum(self, epsilon: Fraction | None, sums: ScoreSum) -> float: ...


@dataclass(frozen=True)
class PromiseMargin:
    """How good a model must be for a private test to accept it, from public facts alone.

    It is that of the first test of a run (docs/proofs/tabular-models.md, "The margin before a run"). For R2 the error of the
    target's mean is left out, so that the margin of the run is a little larger.

    Parameters
    ----------
    target : Target
        The score that was asked for.
    rows : int
        The number of rows, or of persons.
    most_epsilon : Fraction
        The cap.
    accepted : dict
        For some epsilons, the cap last: the score of a model that is accepted more often than not. None where even a model
        without errors is not, or where the training tests nothing yet.
    reachable : bool
        Whether a model without errors would be accepted more often than not at the cap, for some values of the target.
    spread : float, optional
        The standard deviation of a numeric target that was assumed, in its units.

    Examples
    --------
    >>> from expost import Classifier
    >>> print(Classifier(score=("accuracy", 0.84), max_epsilon=0.3).price(rows=20_000))
    With 20,000 rows, accuracy 0.84 is accepted
      at epsilon 0.01 hardly ever
      at epsilon 0.03 when the model's own is at least 0.8507
      at epsilon 0.1 when the model's own is at least 0.8432
      at epsilon 0.3, the cap, when the model's own is at least 0.8411
    """

    target: Target
    rows: int
    most_epsilon: Fraction
    accepted: dict[Fraction, float | None] = field(kw_only=True)
    reachable: bool = field(kw_only=True)
    spread: float | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        asked = _name_score(self.target)
        if not self.reachable:
            return f"With {self.rows:,} rows, {asked} {_OUT_OF_REACH}"
        bound = "at most" if self.target.measure.is_loss else "at least"
        assumed = "" if self.spread is None else f" (for a target with a standard deviation of {self.spread:.4g})"
        lines = [f"With {self.rows:,} rows, {asked} is accepted{assumed}"]
        for epsilon, score in self.accepted.items():
            at = f"{float(epsilon):.4g}{', the cap,' if epsilon == self.most_epsilon else ''}"
            when = "hardly ever" if score is None else f"when the model's own is {bound} {score:.4g}"
            lines.append(f"  at epsilon {at} {when}")
        return "\n".join(lines)


_OUT_OF_REACH = (
    "is out of reach: at the cap the margin of the test is larger than all errors that the target allows, so that it would "
    "not accept a model without errors"
)


def find_promise_margin(plan: Any, rows: int | None = None, spread: float | None = None) -> PromiseMargin | None:
    """Return the margin of a training's promise, None if its test has none that is known before; reads no rows.

    ``rows`` is the number of rows, by default the declared one, and ``spread`` the standard deviation of a numeric target.
    """
    found = _find_training(plan, rows)
    if found is None:
        return None
    training, target, rows = found
    half = (training.target_bounds[1] - training.target_bounds[0]) / 2
    told = half * _USUAL_SPREAD if spread is None else spread
    profile = _make_profile(rows, 0.0, min(told / half, 1.0))
    cap = training.most_epsilon
    shown = (*[epsilon for epsilon in _SHOWN if epsilon < cap][-_MOST_SHOWN:], cap)
    return PromiseMargin(
        target,
        rows,
        cap,
        accepted={epsilon: _find_accepted(training, epsilon, profile) for epsilon in shown},
        reachable=_is_reachable(training, target, rows),
        spread=told if target.measure is Measure.R2 else None,
    )


def check_margin(plan: Any) -> None:
    """Raise ``InvalidRequest`` if declared rows show that the test would not accept a model without errors."""
    found = _find_training(plan, None)
    if found is None:
        return
    training, target, rows = found
    if not _is_reachable(training, target, rows):
        raise InvalidRequest(
            f"Expected a target that a test can show: {_name_score(target)} {_OUT_OF_REACH}",
            got=f"{rows} rows, max_epsilon {float(training.most_epsilon):.4g}",
            do="Raise max_epsilon, ask for less, allow a larger failure_probability, or correct rows",
        )


def _find_training(plan: Any, rows: int | None) -> tuple[_TestedPlan, Target, int] | None:
    """Return the training behind the stages before it, its target and the number of rows, if all of them are known."""
    while hasattr(plan, "whole"):
        plan = plan.whole
    rows = getattr(plan, "public_rows", None) if rows is None else rows
    return (plan, plan.target, rows) if rows is not None and getattr(plan, "tested_sum", False) else None


def _name_score(target: Target) -> str:
    return f"{target.measure.value} {float(target.tolerance):.6g}"


def _find_accepted(plan: _TestedPlan, epsilon: Fraction, profile: TableProfile) -> float | None:
    """Return the score of a model whose exact sum equals what its test needs, on rows held out with a likely one."""
    sums = plan.score_sum(profile)
    profile, hidden = _find_tested(plan, sums, profile)
    likely = SURE * find_sampling_deviation(sums, profile) if hidden else 0.0
    needed = plan.find_needed_sum(epsilon, sums) + hidden + likely
    if needed >= sums.best_surplus(profile):
        return None
    [(score, _)] = sums.read_look((needed, 0.0), profile).values()
    return float(score)


def _is_reachable(plan: _TestedPlan, target: Target, rows: int) -> bool:
    """Return whether a model without errors has the sum that the largest test needs, for some values of the target.

    For R^2 that depends on where the target lies. Its spread is at most sqrt(1 - middle^2) in half its range, and the most
    that a row can add to the sum falls with the spread, relative to the square of it.
    """
    moved = target.measure is Measure.R2
    for middle in _MIDDLES if moved else _MIDDLES[:1]:
        profile = _make_profile(rows, float(middle), math.sqrt(1 - float(middle) ** 2))
        sums = replace(plan.score_sum(profile), limits=(0.0, 0.0))  # no test is cheaper, however a run narrows limits
        profile, hidden = _find_tested(plan, sums, profile)
        if plan.find_needed_sum(None, sums) + hidden < sums.best_surplus(profile) * (_SLACK if moved else 1.0):
            return True
    return False


def _find_tested(plan: _TestedPlan, sums: ScoreSum, profile: TableProfile) -> tuple[TableProfile, float]:
    """Return the profile of the rows that a test reads, and what sampling may hide in it."""
    if not getattr(plan, "of_population", False):
        return profile, 0.0
    assert sums.target is not None
    trained = replace(profile, rows=profile.rows * (1 - HELD_OUT))
    failure = float(sums.target.failure_probability) * SAMPLED
    return replace(profile, rows=profile.rows * HELD_OUT), find_sampling_margin(sums, trained, failure)


def _make_profile(rows: int, middle: float, spread: float) -> TableProfile:
    return TableProfile(float(rows), np.zeros(1), np.ones(1), 1.0, target_middle=middle, target_spread=spread)
