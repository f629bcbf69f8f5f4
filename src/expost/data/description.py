"""Description files: a dataset described once by its owner, in TOML."""

from __future__ import annotations

import datetime
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from expost.core import Adjacency, InvalidRequest, Unit
from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind
from expost.data.dataset import Dataset
from expost.data.text_format import is_text_file

__all__ = ["TEXT_TERMS", "Description", "draft_description"]

_TIME = datetime.date | str
TEXT_TERMS = ("missing", "separator", "decimal", "encoding", "widths", "lines_are_rows")
"""What a description says of a text file."""
_TOP = {"source", "name", "adjacency", "rows", "unit", "types", "bounds", "categories", "derive", *TEXT_TERMS}
_LIMITS = ("max_rows_per_unit", "max_groups_per_unit", "max_rows_per_group")
_UNIT = {"column", "per", "time", *_LIMITS}
_DRAFT = """\
# Public facts about this table. Fill in what you need; do not compute anything here from the data.
source = {source}
name = {name}
adjacency = "add-remove"        # or "replace-one": the number of units is then public

[unit]                          # one row is one person unless you name a column
# column = "ID"
# max_rows_per_unit = 10        # rows kept of each person
# max_groups_per_unit = 3       # groups kept of each person
# max_rows_per_group = 2        # rows kept of each person in each group
# per = "week"                  # protect a person within a day, week or month of the time column
# time = "TIME"

{types}[bounds]                        # public limits; values outside are moved to the nearest limit
{bounds}
[categories]                    # public lists; rows with other values are left out of groups
{lists}
[derive]                        # columns computed from a row, such as: month = "month(when)"
"""


@dataclass(frozen=True, kw_only=True)
class Description:
    r"""The public description of a table: source, unit of protection, bounds and categories.

    Fields are the arguments of ``Dataset``; ``unit`` is always a ``Unit``.

    >>> text = 'source = "flights.parquet"\n[bounds]\narr_delay = [-60, 300]\n'
    >>> Description.parse(text).bounds
    {'arr_delay': (-60, 300)}
    """

    source: str
    name: str | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    rows: int | None = None
    unit: Unit = Unit()
    max_rows_per_unit: int | None = None
    max_groups_per_unit: int | None = None
    max_rows_per_group: int | None = None
    types: Mapping[str, str] | None = None
    missing: Sequence[str] | None = None
    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    widths: Mapping[str, int] | None = None
    lines_are_rows: bool = False
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    categories: Mapping[str, list[Any]] = field(default_factory=dict)
    derive: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Description:
        """Read a TOML file. A relative source is resolved against the folder of the file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InvalidRequest("Expected a readable description file", got=str(path), do="Check the path") from None
        described = cls.parse(text)
        if "://" in described.source or Path(described.source).is_absolute():
            return described
        return replace(described, source=str(path.parent / described.source))

    @classmethod
    def parse(cls, text: str) -> Description:
        """Parse a TOML text."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidRequest(
                "Expected a description in TOML", got=str(error), do="Start from: expost describe init FILE"
            ) from None
        unit = _read_unit(data)
        for table, known, where in ((data, _TOP, "description"), (unit, _UNIT, "unit")):
            unknown = next((name for name in table if name not in known), None)
            if unknown is not None:
                raise InvalidRequest(
                    f"Expected one of {', '.join(sorted(known))} in the {where}",
                    got=unknown,
                    do=suggest_name(unknown, known) or "Correct the name",
                )
        if not all(isinstance(kind, str) for kind in data.get("types", {}).values()):
            raise InvalidRequest("Expected types as texts", do='Write "age" = "integer" under [types]')
        if not isinstance(data.get("source"), str):
            raise InvalidRequest('Expected source = "FILE" in the description', do="Name the data file")
        bounds, categories, column = data.get("bounds", {}), data.get("categories", {}), unit.get("column")
        for name, pair in bounds.items():
            ends = pair if isinstance(pair, list) else []
            if len(ends) != 2 or not any(all(isinstance(end, kind) for end in ends) for kind in (int | float, _TIME)):
                raise InvalidRequest(f"Expected bounds of {name!r} as [low, high]", do="Write two numbers or two dates")
        for name, values in categories.items():
            if not isinstance(values, list) or not values:
                raise InvalidRequest(f"Expected categories of {name!r} as a list", do="List the public values")
        formulas = data.get("derive", {})
        if not isinstance(formulas, dict) or not all(isinstance(each, str) for each in formulas.values()):
            raise InvalidRequest("Expected formulas as texts", do='Write month = "month(when)" under [derive]')
        return cls(
            source=data["source"],
            name=data.get("name"),
            adjacency=Adjacency.parse(data.get("adjacency", "add-remove")),
            rows=data.get("rows"),
            unit=Unit.row() if column is None else Unit.of(column, per=unit.get("per"), time=unit.get("time")),
            types=data.get("types"),
            bounds={name: tuple(pair) for name, pair in bounds.items()},
            categories=categories,
            derive=formulas,
            **{name: unit[name] for name in _LIMITS if name in unit},
            **{name: data[name] for name in TEXT_TERMS if name in data},
        )

    def open(self) -> Dataset:
        """Open the described dataset."""
        return Dataset(**vars(self))


def _read_unit(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the unit; ``unit = "ID"`` names a column, as in ``Dataset``."""
    unit = data.get("unit", {})
    if isinstance(unit, str):
        unit = {} if unit == "row" else {"column": unit}
    misplaced = next((name for name in _UNIT if name in data and name not in _TOP), None)
    if misplaced is not None or not isinstance(unit, dict):
        raise InvalidRequest(
            "Expected what is said of the unit in its own table",
            got=misplaced or "unit",
            do='Write [unit], and below it column = "ID" and max_rows_per_unit = 10',
        )
    return unit


def draft_description(source: str, columns: Iterable[tuple[str, str]]) -> str:
    """Draft a description to fill in, from column names and types only; no value of the data is used.

    >>> Description.parse(draft_description("people.csv", [("age", "integer"), ("city", "text")])).types
    {'age': 'integer', 'city': 'text'}
    """
    quoted = [(json.dumps(name, ensure_ascii=False), kind) for name, kind in columns]
    numeric = (Kind.INTEGER.value, Kind.REAL.value)
    bounds = [f"{f'# {name} = [LOW, HIGH]':<32}# {kind}" for name, kind in quoted if kind in numeric]
    lists = [f'# {name} = ["A", "B"]'.ljust(32) + f"# {kind}" for name, kind in quoted if kind not in numeric]
    types: list[str] = []
    if is_text_file(source):  # other files store their types
        typed = [f'{name} = "{kind}"' for name, kind in quoted if kind != Kind.OTHER.value]
        types = [
            "[types]                         # of a CSV file, guessed: check them; columns left out hold texts",
            *typed,
            "",
        ]
    return _DRAFT.format(
        source=json.dumps(source, ensure_ascii=False),
        name=json.dumps(Path(source).stem, ensure_ascii=False),
        types="".join(line + "\n" for line in types),
        bounds="".join(line + "\n" for line in bounds),
        lists="".join(line + "\n" for line in lists),
    )
