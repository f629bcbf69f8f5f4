"""The columns by which rows are told apart into groups."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from expost.data import Dataset, Expression
from expost.data.axis import Axis, Categories

__all__ = ["By", "Key", "axes_of", "by_text", "columns_of", "group_labels", "read_by"]

Key = str | Expression | Categories
By = Key | Sequence[Key] | None


def read_by(by: By) -> tuple[Key, ...]:
    """The columns as a tuple.

    >>> read_by("city"), read_by(None)
    (('city',), ())
    """
    if by is None:
        return ()
    return (by,) if isinstance(by, str | Expression | Categories) else tuple(by)


def axes_of(by: Sequence[Key], dataset: Dataset) -> tuple[Axis, ...]:
    """The groups' axes: declared categories, or a list that was found."""
    return tuple(key if isinstance(key, Categories) else dataset.axis(key) for key in by)


def by_text(by: Sequence[Key]) -> str:
    """The columns in public words.

    >>> by_text(["city", "job"])
    ' by city, job'
    """
    named = (repr(key.expression).strip('"') if isinstance(key, Categories) else str(key) for key in by)
    return " by " + ", ".join(named) if by else ""


def columns_of(axes: Sequence[Axis]) -> tuple[str, ...]:
    """The names of the groups' columns."""
    return tuple(repr(axis.expression).strip('"') for axis in axes)


def group_labels(axes: Sequence[Axis]) -> list[Any]:
    """The label of each group; a tuple where there are several columns, and one empty label where there is none."""
    combined = list(itertools.product(*(axis.labels for axis in axes)))
    return [label[0] for label in combined] if len(axes) == 1 else combined
