"""Releases that leave as tables."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from expost.core import MissingExtra, Release
from expost.core.picture import draw

__all__ = ["AnswerRelease", "MatrixRelease", "TableRelease"]

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class TableRelease(Release[T]):
    """A release that is also a table, in three libraries' words; all of its columns are public."""

    def to_arrow(self) -> pa.Table:
        """The release as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The table as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table as a polars frame."""
        try:
            polars = importlib.import_module("polars")
        except ModuleNotFoundError:
            raise MissingExtra("polars", package="polars") from None
        return polars.from_arrow(self.to_arrow())

    def _paid(self) -> float:
        return float(self.receipt.bill.amounts().get("epsilon", Fraction(0)))


@dataclass(frozen=True, repr=False)
class AnswerRelease(TableRelease[T]):
    """The release of one answer: a table of one row."""

    def __repr__(self) -> str:
        return Release.__repr__(self).replace("AnswerRelease(", "Release(", 1)

    def to_arrow(self) -> pa.Table:
        """One row: question, value, low, high, epsilon (what was paid), met."""
        low, high = (None, None) if self.interval is None else self.interval
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        row = {"question": self.receipt.question, "value": value, "low": low, "high": high}
        return pa.Table.from_pylist([row | {"epsilon": self._paid(), "met": self.receipt.outcome.met}])

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the climb (rung, interval, target), or where there was none the value with its error bar."""
        return draw("climb" if self.climb else "groups", self, path=path, **options)


@dataclass(frozen=True, repr=False)
class MatrixRelease(TableRelease[Any]):
    """The release of a matrix over named columns; ``interval`` holds the matrices of lower and upper ends."""

    columns: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """One row an entry: first, second, value, low, high."""
        size = range(len(self.columns))
        low, high = (np.full_like(self.value, np.nan),) * 2 if self.interval is None else self.interval
        table: dict[str, Any] = {
            "first": [self.columns[i] for i in size for _ in size],
            "second": [self.columns[j] for _ in size for j in size],
        }
        return pa.table(table | {name: m.ravel() for name, m in (("value", self.value), ("low", low), ("high", high))})

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the entries with their error bars; to a PNG or SVG file if ``path`` is given."""
        return draw("groups", self, path=path, **options)
