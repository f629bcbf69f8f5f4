"""Random expressions of every kind over a table with odd cells, and the DuckDB query that means the same."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from expost.data import Expression, col, when
from expost.data.expression import ColumnName, Literal, Operation
from expost.data.row_function import PERIODS

__all__ = ["CELLS", "MACROS", "draw_expression", "draw_table", "draw_types", "to_duckdb"]

Random = np.random.Generator

MOMENT = datetime.datetime(2013, 2, 28, 23, 59, 59, 500_000)
CELLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, -1, 7, -7, 3, 2**53, -(2**53), None]),
    "j": (pa.int8(), [0, 1, 2, -128, 127, None]),
    "r": (
        pa.float64(),
        [0.0, -0.0, 1.5, -1.5, 2.5, 0.1, float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, 1e16, None],
    ),
    "s": (
        pa.string(),
        [
            "",
            "a",
            "A",
            "ab%",
            "a_b",
            " a ",
            "-1.5",
            "1e3",
            "1e999",
            "12",
            "true",
            "F",
            "\U0001f600a",
            "\u65e5\u672c",
            None,
        ],
    ),
    "w": (
        pa.string(),
        ["2013-02-28", "2013-02-30", "2013-02-28 23:59:59", "0001-01-01", "9999-12-31 23:59:59.999999", "x", "", None],
    ),
    "b": (pa.bool_(), [True, False, None]),
    "t": (
        pa.timestamp("us"),
        [
            MOMENT,
            datetime.datetime(1, 1, 1),
            datetime.datetime(1969, 12, 31, 23, 59, 59),
            datetime.datetime(2000, 2, 29),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
            datetime.datetime(1970, 1, 4),
            None,
        ],
    ),
    "d": (pa.date32(), [datetime.date(2013, 1, 1), datetime.date(1, 1, 1), datetime.date(2012, 12, 31), None]),
}
"""The columns, with their types and cells."""

NUMBERS = [0, 1, -1, 3, 0.5, -1.5, 1e300, 2**53]
TEXTS = ["", "a", "ab%", "-1.5", "\U0001f600a"]
FORMATS = ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y"]


OTHER_TYPES: dict[str, list[pa.DataType]] = {
    "i": [pa.decimal128(30, 2), pa.float32(), pa.decimal256(50, 0)],
    "r": [pa.float32()],
    "s": [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    "t": [pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ms")],
    "d": [pa.date64(), pa.timestamp("s")],
}
"""Other types that columns may be stored with."""


def draw_table(random: Random, rows: int, types: dict[str, pa.DataType] | None = None) -> pa.RecordBatch:
    """A batch of random cells."""
    columns = {
        name: pa.array([cells[place] for place in random.integers(len(cells), size=rows)], kind)
        for name, (kind, cells) in CELLS.items()
    }
    for name, kind in (types or {}).items():
        encoded = pa.types.is_dictionary(kind)
        columns[name] = columns[name].dictionary_encode() if encoded else columns[name].cast(kind, safe=False)
    return pa.record_batch(columns)


def draw_types(random: Random) -> dict[str, pa.DataType]:
    """Other types for some of the columns."""
    return {name: kinds[random.integers(len(kinds))] for name, kinds in OTHER_TYPES.items() if random.random() < 0.7}


def draw_expression(random: Random, kind: str, depth: int = 3, *, comparable: bool = True) -> Any:
    """A random expression of a kind: number, text, time or condition.

    ``comparable`` leaves out what DuckDB lacks.
    """

    def draw(name: str) -> Any:
        return draw_expression(random, name, depth - 1, comparable=comparable)

    def pick(options: list[Any]) -> Any:
        return options[random.integers(len(options))]

    if depth <= 0 or random.random() < 0.1:
        return pick(_LEAVES[kind])
    more: dict[str, list[Callable[[], Any]]] = {
        "number": [lambda: draw("text").cast("text").length(), lambda: draw("number").bin(7, -3, 5)],
        "text": [lambda: draw("number").cast("text")],
        "time": [],
        "condition": [lambda: Operation("width_bucket", (draw("number"), *map(Literal, (-1, 2.5, 4)))) > 2],
    }
    options = _options(draw, pick)[kind] + ([] if comparable else more[kind])
    shared: list[Callable[[], Any]] = [
        lambda: when(draw("condition")).then(draw(kind)).when(draw("condition")).then(draw(kind)).otherwise(draw(kind)),
        lambda: when(draw("condition")).then(draw(kind)),
        lambda: draw(kind).fill(draw(kind)),
    ]
    if kind != "condition":
        shared += [lambda: draw(kind).least(draw(kind), draw(kind)), lambda: draw(kind).greatest(draw(kind))]
    return pick(options)() if random.random() < 0.7 else pick(shared)()


_LEAVES: dict[str, list[Any]] = {
    "number": [col("i"), col("j"), col("r"), *map(Literal, NUMBERS)],
    "text": [col("s"), col("s"), col("w"), *map(Literal, TEXTS)],
    "time": [col("t"), col("t"), col("d"), Literal(MOMENT), Literal(datetime.datetime(2013, 1, 1))],
    "condition": [col("b"), col("b"), Literal(True), Literal(False)],
}


def _options(draw: Callable[[str], Any], pick: Callable[[list[Any]], Any]) -> dict[str, list[Callable[[], Any]]]:
    """Ways to build each kind from others."""
    number, text, time = (lambda: draw("number")), (lambda: draw("text")), (lambda: draw("time"))

    def compare() -> Any:
        kind = pick(["number", "text", "time"])
        return Operation(pick(["=", "<>", "<", "<=", ">", ">="]), (draw(kind), draw(kind)))

    return {
        "number": [
            lambda: Operation(pick(list("+-*/%")), (number(), number())),
            lambda: -number(),
            lambda: pick([number().abs(), number().floor(), number().ceil(), number().cast("integer")]),
            lambda: number().round(pick([0, 1, 3])),
            lambda: text().length(),
            lambda: text().as_number(),
            lambda: pick([time().year(), time().quarter(), time().month(), time().day(), time().weekday()]),
            lambda: pick([time().hour(), time().minute(), time().second(), time().week(), time().dayofyear()]),
        ],
        "text": [
            lambda: pick([text().lower(), text().upper(), text().trim()]),
            lambda: text().substring(pick([1, 2, 9]), pick([None, 0, 1, 3])),
            lambda: text().concat(text(), text()),
            lambda: Operation("||", (text(), text())),
            lambda: pick([col("i"), col("j"), col("b"), col("t")]).cast("text"),
        ],
        "time": [
            lambda: time().date_trunc(pick(list(PERIODS))),
            # Of stored texts: DuckDB also reads years of more or fewer than four digits.
            lambda: pick([col("w"), col("s").fill(col("w"))]).strptime(pick(FORMATS)),
            lambda: pick([col("w").trim(), col("s"), time()]).cast(pick(["time", "date"])),
        ],
        "condition": [
            compare,
            compare,
            lambda: number().is_in([0, 1, pick([None, 1.5])]),
            lambda: text().is_in(["a", pick([None, ""])]),
            lambda: number().between(number(), 3),
            lambda: draw(pick(["number", "text", "time", "condition"])).is_missing(),
            lambda: pick([draw("condition") & draw("condition"), draw("condition") | draw("condition")]),
            lambda: ~draw("condition"),
            lambda: pick([text().starts_with("a"), text().contains("b"), text().like(pick(["a%", "_", "%b_%", ""]))]),
            lambda: text().ilike(pick(["A%", "%\U0001f600_", "TRUE"])),
            lambda: pick([number(), col("s")]).cast("boolean"),
        ],
    }


# DuckDB -------------------------------------------------------------------------------------------------------------

_CALLS = {
    **{name: f"{name}({{0}})" for name in ("lower", "upper", "trim", "length")},
    **{
        name: f"CAST({name}({{0}}) AS DOUBLE)"
        for name in ("year", "quarter", "month", "day", "hour", "minute", "second", "week", "dayofyear")
    },
    "weekday": "CAST(isodow({0}) AS DOUBLE)",
    "length": "CAST(length({0}) AS DOUBLE)",
    "starts_with": "starts_with({0}, {1})",
    "contains": "contains({0}, {1})",
    "NOT": "(NOT {0})",
    "IS NULL": "({0} IS NULL)",
    **{name: f"finite({name}({{0}}))" for name in ("abs", "floor", "ceil")},
    "date_trunc": "CAST(date_trunc({0}, {1}) AS TIMESTAMP)",
    "strptime": "CAST(try_strptime({0}, {1}) AS TIMESTAMP)",
    "time": "TRY_CAST({0} AS TIMESTAMP)",
    "date": "CAST(CAST(TRY_CAST({0} AS TIMESTAMP) AS DATE) AS TIMESTAMP)",
    "text": "CAST({0} AS VARCHAR)",
    "number": "finite(TRY_CAST(trim({0}) AS DOUBLE))",
    "integer": "finite(CASE WHEN abs({0}) < 9223372036854775808 THEN round_even({0}, 0) END)",
    "boolean": "TRY_CAST({0} AS BOOLEAN)",
}
MACROS = "CREATE MACRO finite(x) AS CASE WHEN isfinite(x) THEN x END"
"""What the queries need: NaN and infinities are missing."""


def to_duckdb(expression: Expression, *, raw: bool = False) -> str:
    """The query of an expression; integer columns are read as floats unless their cells are written as texts."""
    if isinstance(expression, ColumnName):
        name = f'"{expression.name}"'
        floats = expression.name in ("i", "j") and not raw
        return f"CAST({name} AS DOUBLE)" if floats else f"CAST({name} AS TIMESTAMP)" if expression.name == "d" else name
    if isinstance(expression, Literal):
        value = expression.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return f"CAST('{value!r}' AS DOUBLE)"
        return repr(expression).replace("T00:00:00'", "'") if value is not None else "NULL"
    assert isinstance(expression, Operation)
    name, arguments = expression.name, [to_duckdb(each, raw=expression.name == "text") for each in expression.arguments]
    if name in ("substring", "round"):
        constants = [str(each.value) for each in expression.arguments[1:] if isinstance(each, Literal)]
        if name == "round":
            return f"finite(round_even({arguments[0]}, {constants[0] if constants else 0}))"
        return f"substring({', '.join([arguments[0], *constants])})"
    if name == "CASE":
        pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
        return f"(CASE {' '.join(f'WHEN {a} THEN {b}' for a, b in pairs)} ELSE {arguments[-1]} END)"
    if name == "IN":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if name in ("coalesce", "least", "greatest", "concat"):
        return f"{name}({', '.join(arguments)})"
    if name in _CALLS:
        return _CALLS[name].format(*arguments)
    infix = "(" + f" {name} ".join(arguments) + ")"
    return f"finite({infix} + 0)" if name in "+-*/%" else infix
