"""Bounds that a caller has to declare: a fit that would have to guess them is refused with a line to paste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.data.canonical_cell import Kind

__all__ = ["check_declared", "read_described_bounds", "read_described_classes"]

_LISTED = 4  # unnamed columns up to this many are written one by one


def check_declared(
    *, features: bool, targets: bool, width: int, names: Sequence[str] | None, length: str, described: bool = False
) -> None:
    """Refuse a fit whose bounds nobody declared. Values beyond a guessed bound would be clipped silently.

    Only public facts enter: the number and names of the columns and which arguments were given.

    Parameters
    ----------
    features, targets : bool
        Whether bounds of features and of targets are known.
    width : int
        The number of columns.
    names : sequence of str or None
        The columns' names, where they have any.
    length : str
        The norm that ``feature_bound`` limits, in words.
    described : bool, default False
        Whether the rows come from a ``Dataset``, whose description could supply the bounds.

    Raises
    ------
    InvalidRequest
        A bound is missing. Nothing is spent.

    Examples
    --------
    >>> check_declared(features=False, targets=True, width=2, names=("age", "hours"), length="1-norm")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected public bounds of the features, got neither bounds nor feature_bound.
    Pass bounds={"age": (LOW, HIGH), "hours": (LOW, HIGH)}; or feature_bound=1.0 if every row has 1-norm at most 1.
    """
    if features and targets:
        return
    parts, got, lines, also = [], [], [], ""
    if not features:
        parts.append("features")
        got.append("neither bounds nor feature_bound")
        lines.append(f"bounds={_bounds_template(width, names)}")
        also = f"; or feature_bound=1.0 if every row has {length} at most 1"
    if not targets:
        parts.append("target")
        got.append("no target_bounds")
        lines.append("target_bounds=(LOW, HIGH)")
    if described:
        also += "; or describe the Dataset with bounds={...}"
    raise InvalidRequest(
        f"Expected public bounds of the {' and the '.join(parts)}, got {' and '.join(got)}",
        do=f"Pass {', '.join(lines)}{also}",
    )


def _bounds_template(width: int, names: Sequence[str] | None) -> str:
    """Return bounds to fill in, as Python text."""
    if names is not None:
        return "{" + ", ".join(f'"{name}": (LOW, HIGH)' for name in names) + "}"
    if width <= _LISTED:
        return "[" + ", ".join(["(LOW, HIGH)"] * width) + "]"
    return f"[(LOW, HIGH)] * {width}"


def read_described_bounds(
    dataset: Dataset, names: Sequence[str], target: str, *, needed: bool
) -> tuple[list[Any] | None, Any]:
    """Return the bounds of features and target that a dataset was described with, None where it has none.

    ``needed``: the estimator has no bounds of its own, so a description of some features only is an error.
    """
    found = [dataset.bounds.get(name, _truth_bounds(dataset, name)) for name in names]
    missing = [name for name, pair in zip(names, found, strict=True) if pair is None]
    own = any(name in dataset.bounds for name in names)
    if own and missing and needed:
        template = ", ".join(f'"{name}": (LOW, HIGH)' for name in missing)
        raise InvalidRequest(
            f"Expected bounds for all features or for none, got none for {', '.join(missing)}",
            do=f"Describe the dataset with bounds={{{template}}}, or pass feature_bound=",
        )
    return found if not missing else None, dataset.bounds.get(target)


def read_described_classes(dataset: Dataset, target: Any) -> list[Any] | None:
    """Return the classes that a dataset was described with: categories, or false and true; None if it has none.

    >>> import pyarrow as pa
    >>> people = Dataset(pa.table({"sick": [True], "city": ["Rome"]}), categories={"city": ["Rome", "Oslo"]})
    >>> read_described_classes(people, "city"), read_described_classes(people, "sick")
    (['Rome', 'Oslo'], [False, True])
    """
    if not isinstance(target, str):
        return None
    found = dataset.categories.get(target)
    if found is not None:
        return [each for each in found if each is not None]
    return [False, True] if dataset.schema.kind(target) is Kind.BOOLEAN else None


def _truth_bounds(dataset: Dataset, name: str) -> tuple[float, float] | None:
    """Return the bounds of a column of truths, None for other columns."""
    return (0.0, 1.0) if dataset.schema.kind(name) is Kind.BOOLEAN else None
