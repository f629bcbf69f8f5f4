"""What a climb would cost if the answers were as its asker expects them. Nothing is read, drawn or spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest
from expost.core.rational import finite
from expost.data.sealed_form import CentredForm, CountForm, ShareForm, SquareForm, TreeForm
from expost.data.tally import PowerSums
from expost.stats.gradual_plan import Design, GradualPlan
from expost.stats.relative_climb import RelativeClimb
from expost.stats.table_query import group_labels

__all__ = ["describe_guess", "forecast_bill"]

_FACTS = ("rows", "mean", "std")
_USUAL_SPREAD = 0.25  # of the width of the bounds: a deviation that nobody has named


@dataclass(frozen=True)
class ExpectedCell:
    """What the asker expects of one group: a count or a sum, or the number of rows, their mean and their deviation."""

    number: float | None
    facts: Mapping[str, float]

    @classmethod
    def read(cls, given: object) -> ExpectedCell:
        """Read a number, or a mapping with ``rows``, ``mean`` and ``std``."""
        if not isinstance(given, Mapping):
            do = "Pass the number that you expect, or a mapping with one for each group"
            return cls(finite(given, "expect", do=do), {})
        unknown = [name for name in given if name not in _FACTS]
        if unknown:
            raise InvalidRequest(
                "Expected rows, mean and std, or one guess per group",
                got=unknown[0],
                do='Pass e.g. {"rows": 5000, "mean": 40}',
            )
        return cls(None, {name: finite(value, name) for name, value in given.items()})

    def fact(self, name: str, default: float | None = None) -> float:
        """Return an expected number of this name."""
        found = self.facts.get(name, self.number if name == "rows" else default)
        if found is None or (found < 0 and name != "mean"):
            raise InvalidRequest(
                f"Expected {name} >= 0 in expect",
                got=found,
                do='Pass e.g. expect={"rows": 5000, "mean": 40, "std": 10}',
            )
        return found


def forecast_bill(plan: Any, expect: object) -> Fraction | None:
    """Return the epsilon of a climb whose noise never misleads it, or None if the cap is too low.

    Parameters
    ----------
    plan : Plan
        The plan of the question.
    expect : number or mapping
        The count or sum that is expected; for means and spreads ``{"rows": ..., "mean": ..., "std": ...}``. A mapping by
        group gives each group its own.
    """
    if not isinstance(plan, GradualPlan):
        raise InvalidRequest("Cannot forecast this statistic from a guess", do="Use session.simulate(...)")
    if not plan.climbs or plan.check.answer is not None:
        return plan.due
    design, climb = plan.design, plan.climber()
    cells = _read_cells(expect, design)
    if isinstance(climb, RelativeClimb):
        if any(cell.number is None for cell in cells):
            raise InvalidRequest("Expected a number to expect of a count or a sum", do="Pass e.g. expect=50_000")
        numbers = np.array([float(cell.number or 0) for cell in cells])
        if isinstance(design.form, CountForm) and (numbers < 0).any():
            raise InvalidRequest("Expected a count >= 0 in expect", got=min(numbers), do="Pass e.g. expect=50_000")
        found = climb.forecast(np.abs(numbers) / float(design.reader.unit), Fraction(design.sensitivity.amount))
    else:
        found = climb.forecast(_guess_coordinates(design, cells), Fraction(design.sensitivity.amount), design.cells)
    earlier = plan.check.continued
    return found if found is None or earlier is None else max(found - earlier.paid, Fraction(0))


def describe_guess(plan: Any, expect: object) -> str:
    """Return what one number is taken for, where it could be meant otherwise: the rows of a mean, not the mean.

    Parameters
    ----------
    plan : Plan
        The plan of the question.
    expect : number or mapping
        The guess, as for ``forecast_bill``.
    """
    form = plan.design.form if isinstance(plan, GradualPlan) and plan.climbs else None
    if isinstance(expect, Mapping) or not isinstance(form, ShareForm | CentredForm | SquareForm | TreeForm):
        return ""
    rows = f"supposing {finite(expect, 'expect'):.10g} rows"
    if isinstance(form, TreeForm):
        return f"{rows}, spread evenly between the bounds"
    spread = ", with a deviation of a quarter of their width" if isinstance(form, SquareForm) else ""
    return f'{rows}, of the middle of the bounds{spread}; pass expect={{"rows": ..., "mean": ..., "std": ...}}'


def _read_cells(expect: object, design: Design) -> list[ExpectedCell]:
    """Read one guess per group: the same for all, or one each."""
    labels = group_labels(design.axes) if design.axes else [()]
    if not isinstance(expect, Mapping) or set(expect) & set(_FACTS):
        return [ExpectedCell.read(expect)] * len(labels)
    missing = [label for label in labels if label not in expect]
    if missing:
        raise InvalidRequest(
            "Expected one guess for all groups, or one for each", got=f"none for {missing[0]!r}", do="Add it to expect"
        )
    return [ExpectedCell.read(expect[label]) for label in labels]


def _guess_coordinates(design: Design, cells: list[ExpectedCell]) -> np.ndarray[Any, Any]:
    """Return the integers of rows like these, cell after cell."""
    if isinstance(design.form, TreeForm):
        return _guess_tree(design.form, cells)
    if not isinstance(design.form, ShareForm | CentredForm | SquareForm):
        raise InvalidRequest("Cannot forecast this statistic from a guess", do="Use session.simulate(...)")
    clamp = design.form.clamp
    low, high, step = float(clamp.low), float(clamp.high), float(clamp.step)
    rows = np.array([round(cell.fact("rows")) for cell in cells], dtype=object)
    means = np.clip([cell.fact("mean", (low + high) / 2) for cell in cells], low, high)
    # A mean needs the least noise where values do not spread; a deviation cannot be forecast for values that do not.
    usual = (high - low) * _USUAL_SPREAD if isinstance(design.form, SquareForm) else 0.0
    spreads = np.array([cell.fact("std", usual) for cell in cells]) / step
    steps = (means - low) / step
    squares = np.minimum(steps**2 + spreads**2, steps * clamp.steps)  # no values between the bounds spread more
    first = np.array([count * round(each) for count, each in zip(rows, steps, strict=True)], dtype=object)
    second = np.array([count * round(each) for count, each in zip(rows, squares, strict=True)], dtype=object)
    return np.asarray(design.form.coordinates(PowerSums(rows, first[None], second[None])).T.ravel())


def _guess_tree(form: TreeForm, cells: list[ExpectedCell]) -> np.ndarray[Any, Any]:
    """Return the nodes of rows that are spread evenly over the leaves, cell after cell."""
    named = {name for cell in cells for name in cell.facts if name != "rows"}
    if named:
        raise InvalidRequest(
            "Expected only a number of rows in expect: their values are taken to be spread evenly",
            got=min(named),
            do="Pass e.g. expect=5000, or use session.simulate(...)",
        )
    edges = np.arange(form.leaves + 1) / form.leaves
    leaves = np.array([np.diff(np.rint(cell.fact("rows") * edges).astype(np.int64)) for cell in cells])
    sums = PowerSums(leaves.ravel(), np.zeros((0, leaves.size)), np.zeros((0, leaves.size)))
    return np.asarray(form.coordinates(sums).T.ravel())
