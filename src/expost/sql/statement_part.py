"""The statistics of a statement as queries: those that one release can answer are asked together."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from expost.core import Query, Release
from expost.data import Dataset, Expression
from expost.sql.logical_plan import Aggregate, Shown
from expost.stats import (
    ApproximateBounds,
    Correlation,
    Count,
    CountDistinct,
    Covariance,
    Mean,
    MostCommon,
    Quantile,
    Ratio,
    StandardDeviation,
    Sum,
    Variance,
)
from expost.stats.gradual_plan import GradualQuery
from expost.stats.joint_statistics import JOINT_STATISTICS, JointStatistics
from expost.stats.table_release import GroupRelease, MatrixRelease

__all__ = ["AskedError", "StatementPart", "divide_into_parts"]

_ALONE = {"sum": Sum, "mean": Mean, "variance": Variance, "std": StandardDeviation}
_COUNTED = frozenset({"rows", "count", "units"})
_LINEAR = frozenset({"rows", "count", "sum"})
_SAMPLES = frozenset({"sample variance", "sample std"})


@dataclass(frozen=True)
class AskedError:
    """The error allowed for one aggregate: an amount, relative or not. None for a fixed epsilon."""

    amount: Fraction
    relative: bool

    @property
    def within(self) -> float | str:
        """Return the error as statistics take it."""
        return f"{float(100 * self.amount):.12g}%" if self.relative else float(self.amount)


@dataclass(frozen=True)
class StatementPart:
    """Aggregates that are read off one release, by their places in the logical plan.

    ``names`` are their names in a joint release, where there are several.
    """

    kind: str
    columns: tuple[Expression, ...]
    bounds: tuple[Any, ...]
    where: Expression | None
    places: tuple[int, ...]
    names: tuple[str, ...]
    errors: tuple[AskedError | None, ...]
    share: Fraction | None = None

    @property
    def scaled(self) -> bool:
        """Return whether errors count in units of their own."""
        first = next(iter(self.errors), None)
        return self.kind == "joint" and first is not None and not first.relative

    def query(self, *, confidence: Fraction, by: Any, epsilon: Fraction | None, cap: Fraction | None = None) -> Query:
        """Return the query."""
        smallest = [each for each in self.errors if each is not None]
        terms: dict[str, Any] = {"confidence": confidence, "by": by, "where": self.where, "epsilon": epsilon}
        if smallest:
            least = min(smallest, key=lambda each: each.amount)
            terms |= {"within": 1.0 if self.scaled else least.within, "max_epsilon": cap}
        if self.kind == "joint":
            scales = [each.amount for each in smallest] if self.scaled else None
            return JointStatistics(self.columns[0], self.names, bounds=self.bounds[0], scales=scales, **terms)
        if self.kind in _COUNTED:
            return (CountDistinct if self.kind == "units" else Count)(noise="laplace", **terms)
        if self.kind == "sum":
            return Sum(self.columns[0], bounds=self.bounds[0], noise="laplace", **terms)
        if self.kind in _ALONE:
            alone: Query = _ALONE[self.kind](self.columns[0], bounds=self.bounds[0], **terms)
            return alone
        if self.kind in ("covariance", "correlation"):
            if self.kind == "covariance":
                return Covariance(list(self.columns), bounds=list(self.bounds), **terms)
            return Correlation(*self.columns, bounds=list(self.bounds), **terms)
        if self.kind == "ratio":
            return Ratio(*self.columns, bounds=list(self.bounds), **terms)
        if self.kind == "quantile":
            return Quantile(self.columns[0], float(self.share or 0), bounds=self.bounds[0], **terms)
        if self.kind == "mode":
            return MostCommon(self.columns[0], **terms)
        assert epsilon is not None
        return ApproximateBounds(self.columns[0], epsilon=epsilon, confidence=confidence, where=self.where)

    def cache_key(self, dataset: Dataset, by: Any) -> str | None:
        """Return the name of the release that the part makes or continues, None if it keeps none."""
        # Which vector is released does not depend on the error allowed.
        query = replace(self, errors=()).query(confidence=Fraction(1, 2), by=by, epsilon=Fraction(1))
        return query.design(dataset).cache_key(dataset) if isinstance(query, GradualQuery) else None

    def read(
        self, release: Release[Any], labels: Sequence[tuple[Any, ...]]
    ) -> dict[tuple[Any, ...], tuple[dict[int, Shown], bool]]:
        """Return for each group its numbers, by the places of the aggregates, and whether the target was met."""
        if not isinstance(release, GroupRelease):
            return dict.fromkeys(labels, (self._read_single(release), release.receipt.outcome.met))
        rows = {row.label if isinstance(row.label, tuple) else (row.label,): row for row in release.value.rows}
        found = {}
        for label in labels:
            numbers, reached = dict[int, Shown](), True
            for place, name in zip(self.places, self.names, strict=True):
                row = rows[(*label, *self._entry(name))]
                numbers[place] = _show(name, row.value, row.low, row.high)
                reached &= row.met
            found[label] = numbers, reached
        return found

    def _entry(self, name: str) -> tuple[str, ...]:
        """Return what tells a statistic apart from the others of the same group in a release."""
        if self.kind == "joint":
            return (name,)
        return tuple(map(str, self.columns)) if self.kind == "covariance" else ()

    def _read_single(self, release: Release[Any]) -> dict[int, Shown]:
        """Return the number of a release without groups, or both bounds."""
        if isinstance(release, MatrixRelease):
            assert release.interval is not None
            value, least, most = (float(matrix[0, 1]) for matrix in (release.value, *release.interval))
            return {self.places[0]: Shown(value, least, most)}
        if self.kind == "bounds":
            ends = [_clip(end, self.bounds[0]) for end in release.value or (None, None)]
            return {
                place: Shown(ends[name == "upper bound"]) for place, name in zip(self.places, self.names, strict=True)
            }
        low, high = (None, None) if release.interval is None else release.interval
        return {self.places[0]: _show(self.names[0], release.value, low, high)}


def _clip(value: Any, limits: tuple[float, float] | None) -> Any:
    """Return a bound of the rows inside public limits: rough ones are powers of two, and may be wider."""
    return value if value is None or limits is None else min(max(value, limits[0]), limits[1])


def _show(name: str, value: Any, low: Any, high: Any) -> Shown:
    """Return a number with its ends; counts are whole."""
    if low is None or high is None:
        return Shown(value)
    if name == "ratio" and math.isinf(high):  # the denominator is lost in the noise, as one that may be 0
        return Shown(None)
    if name not in _COUNTED:
        return Shown(float(value), float(low), float(high))
    return Shown(round(value), float(low), float(high))


def divide_into_parts(
    aggregates: Sequence[Aggregate], errors: Mapping[int, AskedError], where: Expression | None
) -> tuple[StatementPart, ...]:
    """Return the parts of a statement: statistics of the same rows and the same column are released together."""
    jointly: dict[tuple[Any, ...], list[int]] = {}
    counts: dict[tuple[Any, ...], list[int]] = {}
    others: dict[tuple[Any, ...], list[int]] = {}
    for place, each in enumerate(aggregates):
        error = errors.get(place)
        measure = None if error is None else error.relative
        if each.kind == "rows":
            counts.setdefault((repr(each.where), measure), []).append(place)
        elif each.kind in JOINT_STATISTICS:
            jointly.setdefault((repr(each.columns), repr(each.where), measure), []).append(place)
        elif each.kind in ("lower bound", "upper bound"):
            others.setdefault(("bounds", repr(each.columns), repr(each.where)), []).append(place)
        else:
            others.setdefault(each.key, []).append(place)
    groups: list[list[int]] = []
    for key, places in jointly.items():
        # All rows are counted along with the first column whose release is about them.
        only_counted = {aggregates[place].kind for place in places} == {"count"}
        counted = [] if only_counted else counts.pop((key[1], key[2]), [])
        together = [*counted, *places]
        linear = key[2] is False and {aggregates[place].kind for place in together} <= _LINEAR
        groups += [[place] for place in together] if linear else [together]
    groups += [*counts.values(), *others.values()]
    return tuple(_make_part(aggregates, group, errors, where) for group in sorted(groups))


def _make_part(
    aggregates: Sequence[Aggregate], places: Sequence[int], errors: Mapping[int, AskedError], where: Expression | None
) -> StatementPart:
    """Return the part of some aggregates."""
    first = next((aggregates[place] for place in places if aggregates[place].columns), aggregates[places[0]])
    names = tuple(aggregates[place].kind for place in places)
    kind = first.kind
    conditions = [each for each in (where, first.where) if each is not None]
    if kind in ("lower bound", "upper bound"):
        kind = "bounds"
    elif kind == "count" and set(names) == {"count"}:
        kind = "rows"
        conditions.append(~first.columns[0].is_missing())
    elif len(places) > 1 or kind in _SAMPLES:
        kind = "joint"
    bounds = first.bounds or (None,) * len(first.columns)
    condition = reduce(operator.and_, conditions) if conditions else None
    asked = tuple(errors.get(place) for place in places)
    return StatementPart(kind, first.columns, bounds, condition, tuple(places), names, asked, first.share)
