"""Averages over trials, and the tables that show them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev

from expost.experiments.published import Point

__all__ = ["Average", "averages", "markdown_table", "write_csv"]


@dataclass(frozen=True)
class Average:
    """One method at one tolerance over all trials."""

    table: str
    method: str
    tolerance: float
    trials: int
    epsilon: float
    epsilon_error: float
    """The standard error of the mean."""
    generation: float
    testing: float
    excess_risk: float
    authors_excess_risk: float
    norm: float
    missed: int
    """Runs that ended without saying that the target was met; they are part of the averages."""
    wrong: int
    """Runs that said so although the excess risk was above the tolerance."""


def averages(points: Iterable[Point]) -> list[Average]:
    """Averages by table, method and tolerance.

    >>> point = Point("t", "m", 0.1, 0, 1.0, 2.0, 0.2, 0.0, 1.0, True)
    >>> (average,) = averages([point])
    >>> average.epsilon, average.wrong
    (3.0, 1)
    """

    def key(point: Point) -> tuple[str, str, float]:
        return point.table, point.method, point.tolerance

    return [_average(list(group)) for _, group in groupby(sorted(points, key=key), key=key)]


def _average(points: Sequence[Point]) -> Average:
    first, bills = points[0], [point.epsilon for point in points]
    return Average(
        first.table,
        first.method,
        first.tolerance,
        len(points),
        epsilon=fmean(bills),
        epsilon_error=stdev(bills) / math.sqrt(len(bills)) if len(bills) > 1 else 0.0,
        generation=fmean(point.generation for point in points),
        testing=fmean(point.testing for point in points),
        excess_risk=fmean(point.excess_risk for point in points),
        authors_excess_risk=fmean(point.authors_excess_risk for point in points),
        norm=fmean(point.norm for point in points),
        missed=sum(not point.met for point in points),
        wrong=sum(point.met and point.excess_risk > point.tolerance for point in points),
    )


def write_csv(path: Path, rows: Sequence[Average]) -> Path:
    """The averages as a table for machines; epsilon is not rounded."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Average)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return path


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for people.

    >>> print(markdown_table(["method", "epsilon"], [["ours", 0.12345]]))
    | method | epsilon |
    | --- | --- |
    | ours | 0.123 |
    """
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if math.isfinite(value) else "none"
    return str(value)
