"""What everybody with a token may know about a table: its public description."""

from __future__ import annotations

from typing import Any

from expost.data import Dataset
from expost.session.wire_format import encode_value

__all__ = ["public_facts"]


def public_facts(dataset: Dataset) -> dict[str, Any]:
    """Return names, types, bounds and categories of the columns, and who is protected.

    >>> import pyarrow as pa
    >>> public_facts(Dataset(pa.table({"age": [41]}), name="people", bounds={"age": (0, 120)}))["columns"]
    [{'name': 'age', 'type': 'integer', 'bounds': [0, 120], 'categories': None, 'time_range': None}]
    """
    columns = [
        {
            "name": name,
            "type": kind.value,
            "bounds": list(dataset.bounds[name]) if name in dataset.bounds else None,
            "categories": encode_value(list(dataset.categories[name])) if name in dataset.categories else None,
            "time_range": _moments(dataset.time_ranges.get(name)),
        }
        for name, kind in dataset.schema.kinds.items()
    ]
    return {
        "name": dataset.name,
        "unit": {
            "text": str(dataset.unit),
            "column": dataset.unit.column,
            "time_column": dataset.unit.time_column,
            "per": None if dataset.unit.window is None else dataset.unit.window.value,
        },
        "adjacency": dataset.adjacency.value,
        "rows": dataset.rows,
        "max_rows_per_unit": dataset.max_rows_per_unit,
        "max_groups_per_unit": dataset.max_groups_per_unit,
        "columns": columns,
    }


def _moments(ends: tuple[Any, Any] | None) -> list[str] | None:
    return None if ends is None else [end.isoformat() for end in ends]
