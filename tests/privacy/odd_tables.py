"""Random tables with odd cells, as every kind of source, in pairs that differ in one unit."""

from __future__ import annotations

import csv
import datetime
import gzip
import itertools
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["SOURCES", "TYPES", "OddTable", "Pair", "draw_pair"]

EPOCH = datetime.datetime(1970, 1, 1)
DAY = datetime.datetime(2024, 3, 1, 12)


def _nan(payload: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0000 | payload))[0])


class Instant(int):
    """Microseconds since 1970, for years that Python does not know."""


REALS = [0.0, -0.0, 1.0, 1.5, -1.5, math.nan, _nan(1), -_nan(7), math.inf, -math.inf, 5e-324, -5e-324, 1e308, -1e308]
REALS += [2.0**53, 2.0**53 + 2, 2.0**63, 2.0**70, 0.1 + 0.2, 0.3, 7.0, None]
WHOLES = [0, 1, 2, -1, 7, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), None]
TEXTS = ["", "a", "b", "A", "\u00e9", "e\u0301", "a\x00", " a", "0", "-0", "1e3", "nan", "\U0001f600", "x" * 3000, None]
BROKEN = [b"\xff", b"a\xc3", b"\xed\xa0\x80"]
TIMES = [
    DAY,
    DAY + datetime.timedelta(days=40),
    datetime.datetime(1, 1, 1),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1969, 12, 31, 23, 59, 59),
    Instant(-62_198_755_200_000_000),  # the year 0
    Instant(253_402_300_800_000_000),  # the year 10000
    Instant(2**63 - 1),
    Instant(-(2**63)),
    None,
]
DECIMALS = [
    Decimal("0.00"),
    Decimal("1.00"),
    Decimal("-1.50"),
    Decimal("7.00"),
    Decimal("99999999999999999999.99"),
    None,
]
MIXED: list[Any] = [2**63, 2**64, 2**70, -(2**70), Decimal("1.5"), Decimal("NaN"), b"x", True, 1j, [1], "text"]
MIXED += [datetime.date(2020, 1, 1), np.float32(1.5), np.int8(3), object, 10**400]
"""Cells that only a source without types can hold, in any of its columns."""


@dataclass(frozen=True)
class OddType:
    """An Arrow type, the type that ``types=`` declares for it, and cells of it."""

    arrow: pa.DataType
    declared: str
    cells: Sequence[Any]

    def array(self, cells: Sequence[Any]) -> pa.Array:
        """Build the column; texts may hold bytes that are not UTF-8."""
        kind = self.arrow
        if self.declared == "text":
            raw = [each.encode() if isinstance(each, str) else each for each in cells]
            if kind == pa.large_string():
                return pa.array(raw, pa.large_binary()).view(pa.large_string())
            if kind == pa.string_view():
                return pa.array(raw, pa.binary_view()).view(pa.string_view())
            plain = pa.array(raw, pa.binary()).view(pa.string())
            return plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain
        if self.declared == "time":
            return pa.array([_ticks(each, kind) for each in cells], _stored(kind)).view(kind)
        return pa.array(cells, kind)


_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind == pa.date32() else pa.int64()


def _ticks(cell: Any, kind: pa.DataType) -> int | None:
    """A time as the integer that Arrow stores, in any year."""
    if cell is None:
        return None
    micros = int(cell) if isinstance(cell, Instant) else (cell - EPOCH) // datetime.timedelta(microseconds=1)
    if kind == pa.date32():
        return int(micros // 86_400_000_000)
    if kind == pa.date64():
        return int(micros // 86_400_000_000 * 86_400_000)
    return int(micros * _TICKS[kind.unit] // 10**6)


def _held_times(kind: pa.DataType) -> list[Any]:
    """The times that a type can hold."""
    bits = 31 if kind == pa.date32() else 63
    return [cell for cell in TIMES if cell is None or -(2**bits) <= (_ticks(cell, kind) or 0) < 2**bits]


def _fits(kind: pa.DataType, cells: Sequence[Any]) -> list[Any]:
    """The cells that an Arrow type can hold."""

    def held(cell: Any) -> bool:
        try:
            pa.array([cell], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
            return False
        return True

    return [cell for cell in cells if held(cell)]


TYPES: dict[str, OddType] = {
    "float64": OddType(pa.float64(), "real", REALS),
    "float32": OddType(pa.float32(), "real", REALS),
    "int64": OddType(pa.int64(), "integer", WHOLES),
    "int8": OddType(pa.int8(), "integer", _fits(pa.int8(), WHOLES)),
    "uint64": OddType(pa.uint64(), "integer", [*_fits(pa.uint64(), WHOLES), 2**63, 2**64 - 1]),
    "decimal": OddType(pa.decimal128(25, 2), "real", DECIMALS),
    "wide decimal": OddType(pa.decimal256(40, 2), "real", DECIMALS),
    "bool": OddType(pa.bool_(), "boolean", [True, False, None]),
    "text": OddType(pa.string(), "text", [*TEXTS, *BROKEN]),
    "large text": OddType(pa.large_string(), "text", [*TEXTS, *BROKEN]),
    "text view": OddType(pa.string_view(), "text", [*TEXTS, *BROKEN]),
    "dictionary": OddType(pa.dictionary(pa.int32(), pa.string()), "text", [*TEXTS, *BROKEN]),
    **{
        name: OddType(kind, "time", _held_times(kind))
        for name, kind in {
            "time": pa.timestamp("us"),
            "time with zone": pa.timestamp("us", "America/New_York"),
            "seconds": pa.timestamp("s", "Asia/Kolkata"),
            "nanoseconds": pa.timestamp("ns"),
            "date": pa.date32(),
            "long date": pa.date64(),
        }.items()
    },
}
NUMBERS = ["float64", "float32", "int64", "int8", "uint64", "decimal", "wide decimal", "bool"]
KEYS = ["float64", "int64", "uint64", "decimal", "bool", "text", "large text", "text view", "dictionary"]
IDS = [*KEYS, "time", "date"]

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class OddTable:
    """Rows with the types of their columns."""

    types: dict[str, str]
    rows: Rows

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        columns = {name: [row[name] for row in self.rows] for name in self.types}
        return pa.table({name: TYPES[self.types[name]].array(cells) for name, cells in columns.items()})

    def declared(self) -> dict[str, str]:
        """The types as ``types=`` takes them."""
        return {name: TYPES[kind].declared for name, kind in self.types.items()}


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables: the second lacks one unit, or has another in its place."""

    first: OddTable
    second: OddTable
    unit: str
    adjacency: str


def draw_pair(
    random: np.random.Generator,
    *,
    unit: str = "row",
    adjacency: str = "add-remove",
    typed: bool = True,
    count: int = 14,
    fixed: dict[str, str] | None = None,
) -> Pair:
    """Draw two neighbours.

    The columns are ``id``, ``key``, ``x``, ``n``, ``when`` and ``label``; their types are drawn too unless ``fixed``
    names them. With an id as the unit its rows are the odd ones, spread over the table.
    """
    kinds = {
        "id": str(random.choice(IDS)),
        "key": str(random.choice(KEYS)),
        "x": str(random.choice(NUMBERS)),
        "n": str(random.choice(["int64", "int8", "float64"])),
        "when": str(random.choice(["time", "time with zone", "seconds", "nanoseconds", "date", "long date"])),
        "label": str(random.choice(["int64", "float64", "text", "bool"])),
    } | (fixed or {})
    ids = _distinct_ids(kinds["id"])
    mine, *others = [ids[place] for place in random.permutation(len(ids))]

    def row(identity: Sequence[Any], odd: bool) -> dict[str, Any]:
        cells = {name: _cell(random, TYPES[kind].cells, odd) for name, kind in kinds.items()}
        if not typed and odd and random.random() < 0.7:
            cells[str(random.choice(list(kinds)))] = MIXED[random.integers(len(MIXED))]
        return cells if unit == "row" else cells | {"id": identity[random.integers(len(identity))]}

    rest = [row(others[random.integers(len(others))], bool(random.random() < 0.4)) for _ in range(count)]
    most = 1 if unit == "row" else 6
    extra = [row(mine, True) for _ in range(int(random.integers(1, most + 1)))]
    places = sorted((int(place) for place in random.integers(0, len(rest) + 1, len(extra))), reverse=True)
    first, second = list(rest), list(rest)
    for place, each in zip(places, extra, strict=True):
        first.insert(place, each)
    if adjacency == "replace-one":
        for place in places:
            second.insert(place, row(mine, True))
    return Pair(OddTable(kinds, first), OddTable(kinds, second), unit, adjacency)


def _cell(random: np.random.Generator, cells: Sequence[Any], odd: bool) -> Any:
    """Mostly one of the first cells, so that groups and ids repeat; an odd row has any of them."""
    return cells[random.integers(len(cells) if odd else min(4, len(cells)))]


def _distinct_ids(kind: str) -> list[list[Any]]:
    """Ids of a type: each a list of spellings of one id."""
    special: dict[str, list[list[Any]]] = {
        "float64": [[0.0, -0.0], [1.0], [1.5], [math.inf], [2.0**53], [2.0**53 + 2], [5e-324]],
        "decimal": [[each] for each in DECIMALS if each is not None],
    }
    return special.get(kind) or [
        [cell] for cell in TYPES[kind].cells if cell is not None and not isinstance(cell, bytes)
    ]


# Sources --------------------------------------------------------------------------------------------------------------

Build = Callable[[OddTable, Path, np.random.Generator], tuple[Any, dict[str, Any]]]
"""Make a source of a table in a folder; returns what ``Dataset`` takes, and further arguments of it."""


def _chunks(table: pa.Table, random: np.random.Generator) -> pa.Table:
    """The same rows in chunks of other sizes."""
    cuts = sorted({0, len(table), *(int(each) for each in random.integers(0, len(table) + 1, 2))})
    slices = [table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)]
    return pa.concat_tables(slices) if slices else table


def _arrow(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    return _chunks(table.arrow(), random), {}


def _parquet(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    path = folder / "table.parquet"
    pq.write_table(table.arrow(), path, row_group_size=int(random.integers(1, 9)))
    return str(path), {}


def _ipc(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    path = folder / "table.arrow"
    arrow = _chunks(table.arrow().unify_dictionaries(), random)
    with pa.ipc.new_file(str(path), arrow.schema) as file:
        file.write_table(arrow)
    return str(path), {}


def _polars(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    import polars

    return polars.from_arrow(_common(table).arrow()), {}


def _relation(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    return duckdb.from_arrow(_common(table).arrow()), {}


def _query(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    path, _ = _parquet(_common(table), folder, random)
    return f"select * from '{path}' ", {}


def _csv(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    # Both tables of a pair have the layout that the same numbers draw.
    usual = random.random() < 0.6
    layout: dict[str, Any] = {} if usual else {"encoding": "utf-16", "separator": ";", "decimal": ",", "missing": ["a"]}
    terms = {"encoding": layout.get("encoding", "utf-8"), "errors": "surrogateescape" if usual else "surrogatepass"}
    path = folder / ("table.csv" if usual else "table.csv.gz")
    with (open if usual else gzip.open)(path, "wt", newline="", **terms) as file:
        writer = csv.writer(file, delimiter=layout.get("separator", ","))
        writer.writerow(table.types)
        for row in table.rows:
            writer.writerow([_written(row[name]) for name in table.types])
    return str(path), {"types": table.declared()} | layout


def _written(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Instant):
        return f"{'-' if cell < 0 else ''}10000-01-01 00:00:00"
    return cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else str(cell)


def _pandas(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    import pandas

    frame = pandas.DataFrame({name: [row[name] for row in table.rows] for name in table.types})
    return frame, {"types": table.declared()}


def _lists(table: OddTable, folder: Path, random: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    return {name: [row[name] for row in table.rows] for name in table.types}, {"types": table.declared()}


def _common(table: OddTable) -> OddTable:
    """The table without what some libraries cannot hold: texts that are not UTF-8, decimals of 256 bits, the ends of time."""
    rows = [{k: None if _is_extreme(v) else v for k, v in row.items()} for row in table.rows]
    return OddTable({k: "decimal" if v == "wide decimal" else v for k, v in table.types.items()}, rows)


def _is_extreme(cell: Any) -> bool:
    return isinstance(cell, bytes) or (isinstance(cell, Instant) and abs(cell) > 2**62)


SOURCES: dict[str, Build] = {
    "arrow": _arrow,
    "parquet": _parquet,
    "ipc": _ipc,
    "polars": _polars,
    "duckdb relation": _relation,
    "duckdb query": _query,
    "csv": _csv,
    "pandas": _pandas,
    "lists": _lists,
}
UNTYPED = ("csv", "pandas", "lists")
"""Sources whose cells have no type of their own: they may hold anything in any column."""
