"""A dataset described once by its owner, in TOML, and used everywhere."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expost.core import Adjacency, InvalidRequest, Unit
from expost.data.dataset import Dataset
from expost.data.schema import Kind

__all__ = ["Description", "template"]

_TOP = {"source", "name", "adjacency", "rows", "unit", "types", "lines_are_rows", "bounds", "categories"}
_UNIT = {"column", "per", "time", "max_rows", "max_groups"}


@dataclass(frozen=True, kw_only=True)
class Description:
    r"""What the owner says in public about a table: source, unit of protection, bounds, categories.

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
    types: Mapping[str, str] | None = None
    lines_are_rows: bool = False
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Description:
        """The description in a TOML file; a relative source is looked up beside the file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InvalidRequest("Expected a readable description file", got=str(path), do="Check the path") from None
        described = cls.parse(text)
        beside = path.parent / described.source
        if "://" in described.source or Path(described.source).is_absolute():
            return described
        return cls(**{**vars(described), "source": str(beside)})

    @classmethod
    def parse(cls, text: str) -> Description:
        """The description in TOML text."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            raise InvalidRequest("Expected a description in TOML", do="Start from: expost describe init FILE") from None
        _known(data, _TOP, "description")
        unit = data.get("unit", {})
        _known(unit, _UNIT, "unit")
        if not all(isinstance(kind, str) for kind in data.get("types", {}).values()):
            raise InvalidRequest("Expected types as words", do='Write "age" = "integer" under [types]')
        if not isinstance(data.get("source"), str):
            raise InvalidRequest('Expected source = "FILE" in the description', do="Name the data file")
        column = unit.get("column")
        return cls(
            source=data["source"],
            name=data.get("name"),
            adjacency=Adjacency.parse(data.get("adjacency", "add-remove")),
            rows=data.get("rows"),
            unit=Unit.row() if column is None else Unit.of(column, per=unit.get("per"), time=unit.get("time")),
            max_rows_per_unit=unit.get("max_rows"),
            max_groups_per_unit=unit.get("max_groups"),
            types=data.get("types"),
            lines_are_rows=data.get("lines_are_rows", False),
            bounds={name: _interval(name, pair) for name, pair in data.get("bounds", {}).items()},
            categories={name: _values(name, values) for name, values in data.get("categories", {}).items()},
        )

    def open(self) -> Dataset:
        """The described dataset."""
        return Dataset(**vars(self))


def template(source: str, columns: Iterable[tuple[str, str]]) -> str:
    """A description to fill in, from column names and types only; no value of the data is looked at.

    >>> print(template("people.csv", [("age", "integer"), ("city", "text")]))
    # What anyone may know about this table. Fill in what you need; nothing here may be read off the data.
    source = "people.csv"
    name = "people"
    adjacency = "add-remove"        # or "replace-one": the number of units is then public
    <BLANKLINE>
    [unit]                          # one row is one person unless a column says who
    # column = "ID"
    # max_rows = 10                 # rows kept of each person
    # max_groups = 3                # groups kept of each person
    # per = "week"                  # protect a person within a day, week or month of the time column
    # time = "TIME"
    <BLANKLINE>
    [types]                         # of a CSV file, guessed: check them; what is not named is guessed
    "age" = "integer"
    "city" = "text"
    <BLANKLINE>
    [bounds]                        # public limits; values outside are moved to the nearest limit
    # "age" = [LOW, HIGH]           # integer
    <BLANKLINE>
    [categories]                    # public lists; other values count as none of them
    # "city" = ["A", "B"]           # text
    <BLANKLINE>
    """
    columns = list(columns)
    bounds = [_hint(name, "[LOW, HIGH]", kind) for name, kind in columns if _numeric(kind)]
    lists = [_hint(name, '["A", "B"]', kind) for name, kind in columns if not _numeric(kind)]
    lines = [
        "# What anyone may know about this table. Fill in what you need; nothing here may be read off the data.",
        f"source = {_quoted(source)}",
        f"name = {_quoted(Path(source).stem)}",
        'adjacency = "add-remove"        # or "replace-one": the number of units is then public',
        "",
        "[unit]                          # one row is one person unless a column says who",
        '# column = "ID"',
        "# max_rows = 10                 # rows kept of each person",
        "# max_groups = 3                # groups kept of each person",
        '# per = "week"                  # protect a person within a day, week or month of the time column',
        '# time = "TIME"',
        "",
        *_types(source, columns),
        "[bounds]                        # public limits; values outside are moved to the nearest limit",
        *bounds,
        "",
        "[categories]                    # public lists; other values count as none of them",
        *lists,
    ]
    return "\n".join(lines) + "\n"


def _types(source: str, columns: list[tuple[str, str]]) -> list[str]:
    """The types of a CSV file's columns, which it does not store itself."""
    if not source.lower().endswith((".csv", ".tsv")):
        return []
    lines = [f"{_quoted(name)} = {_quoted(kind)}" for name, kind in columns if kind != Kind.OTHER.value]
    return [
        "[types]                         # of a CSV file, guessed: check them; what is not named is guessed",
        *lines,
        "",
    ]


def _hint(name: str, value: str, kind: str) -> str:
    return f"{f'# {_quoted(name)} = {value}':<32}# {kind}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _numeric(kind: str) -> bool:
    return kind in (Kind.INTEGER.value, Kind.REAL.value)


def _known(data: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in data:
        if name not in known:
            raise InvalidRequest(
                f"Expected one of {', '.join(sorted(known))} in the {where}", got=name, do="Correct the name"
            )


def _interval(name: str, pair: Any) -> tuple[float, float]:
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int | float) for end in pair)):
        raise InvalidRequest(f"Expected bounds of {name!r} as [low, high]", do="Write two numbers")
    return pair[0], pair[1]


def _values(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise InvalidRequest(f"Expected categories of {name!r} as a list", do="List the public values")
    return values
