"""How a text file is read: separators, encoding, missing values, and the formats of times. All of it is public."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from expost.core import InvalidRequest
from expost.core.argument import suggest_name

__all__ = [
    "COMPRESSIONS",
    "MISSING",
    "TextFormat",
    "cast_sql",
    "is_text_file",
    "parse_times",
    "plain_name",
    "quote_text",
    "split_type",
]

MISSING = ("NA", "NaN", "null")
"""Texts that are missing values of a text file, unless ``missing=`` lists others. Empty cells always are."""

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""File name endings of compressed text files, and how Arrow names the compression."""

ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252")
"""Encodings in which a character never reaches into the next one, so that a broken cell cannot hide a line end."""

_ENCODING_NAMES = {name: name for name in ENCODINGS} | {
    **dict.fromkeys(("utf8", "utf-8-sig", "ascii"), "utf-8"),
    **dict.fromkeys(("utf16", "unicode", "ucs-2"), "utf-16"),
    **dict.fromkeys(("latin1", "iso-8859-1", "iso8859-1", "iso-8859-15"), "latin-1"),
    **dict.fromkeys(("windows-1252", "ansi", "cp-1252"), "cp1252"),
}
"""How encodings are called elsewhere."""

_SQL = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR", "time": "TIMESTAMP"}
_ELSEWHERE = {
    **dict.fromkeys(("int", "bigint", "long", "uint"), "integer"),
    **dict.fromkeys(("float", "double", "number", "numeric", "decimal"), "real"),
    **dict.fromkeys(("str", "string", "varchar", "category", "object", "utf"), "text"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "time"),
    "bool": "boolean",
}
"""What other libraries call a type, without its number of bits."""

_WHOLE = r"[+-]?[0-9]+(\.0*)?"
_DIRECTIVES = re.compile(r"([^%]|%%|%-?[YymdHIpMSfjbBaAz])*")


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """The layout of a text file. Arguments are those of ``Dataset``.

    ``kept`` are public categories by column, which are never missing values there: NA is also a continent.

    >>> TextFormat(separator=";").check()
    >>> TextFormat(encoding="shift-jis").check()
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected an encoding among utf-8, utf-16, utf-16-le, utf-16-be, latin-1, cp1252, got 'shift-jis'...
    """

    missing: Sequence[str] | None = None
    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    widths: Mapping[str, int] | None = None
    lines_are_rows: bool = False
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise for settings that do not describe a text file."""
        if not isinstance(self.lines_are_rows, bool):
            raise InvalidRequest(
                "Expected lines_are_rows to be true or false", got=self.lines_are_rows, do="Pass one of them"
            )
        texts = () if self.missing is None else self.missing
        if not isinstance(texts, list | tuple | set | frozenset) or not all(isinstance(each, str) for each in texts):
            raise InvalidRequest("Expected missing to be a list of texts", got=texts, do='Pass missing=["NA", "-9"]')
        sign = "," if self.separator is None else self.separator
        if not (isinstance(sign, str) and len(sign) == 1 and sign.isascii() and sign not in '"\r\n\0'):
            raise InvalidRequest("Expected one ASCII character as the separator", got=sign, do='Pass separator=";"')
        if self.decimal not in (".", ","):
            raise InvalidRequest('Expected decimal to be "." or ","', got=self.decimal, do='Pass decimal=","')
        if self.encoding not in ENCODINGS:
            meant = _ENCODING_NAMES.get(str(self.encoding).casefold().replace("_", "-"))
            raise InvalidRequest(
                f"Expected an encoding among {', '.join(ENCODINGS)}",
                got=self.encoding,
                do=f"Did you mean {meant!r}?" if meant else "Pass one of them, or convert the file to UTF-8",
            )
        if self.widths is None:
            return
        sound = isinstance(self.widths, Mapping) and bool(self.widths) and self.separator is None
        if not sound or not all(
            isinstance(name, str) and isinstance(width, int) and not isinstance(width, bool) and width > 0
            for name, width in self.widths.items()
        ):
            raise InvalidRequest(
                "Expected the widths of a fixed-width file by column, without a separator",
                do='Pass widths={"age": 3, "city": 20}, in the order of the file',
            )

    @property
    def changed(self) -> list[str]:
        """The settings that are not the default."""
        own = [each for each in fields(self) if each.name != "kept"]
        return [each.name for each in own if getattr(self, each.name) != each.default]

    @property
    def mark(self) -> str:
        """A text that differs if two formats read some file differently, empty for the default format."""
        overlap = {name: found for name in self.kept if (found := self.missing_texts(name)) != self.missing_texts("")}
        shown = {name: getattr(self, name) for name in self.changed} | ({"kept": overlap} if overlap else {})
        return f" {shown}" if shown else ""

    @property
    def lines_end_records(self) -> bool:
        """True if every line is a record, whatever its quotes."""
        return self.lines_are_rows or self.widths is not None

    def missing_texts(self, column: str) -> list[str]:
        """Return the texts that are missing values in a column."""
        listed = MISSING if self.missing is None else self.missing
        return sorted(set(listed) - {each for each in self.kept.get(column, ()) if isinstance(each, str)})


def is_text_file(path: str | Path) -> bool:
    """Return whether the ending of a file's name is that of a CSV file, compressed or not."""
    return plain_name(path).suffix.lower() in (".csv", ".tsv")


def plain_name(path: str | Path) -> Path:
    """Return the path of a file without the ending of its compression.

    >>> plain_name("people.csv.gz").name
    'people.csv'
    """
    found = Path(path)
    return found.with_suffix("") if found.suffix.lower() in COMPRESSIONS else found


def split_type(kind: object, column: str = "type") -> tuple[str, str | None]:
    """Split a declared type into its kind and the format of its times; raise for a type that does not exist.

    >>> split_type("time:%d/%m/%Y"), split_type("integer")
    (('time', '%d/%m/%Y'), ('integer', None))
    """
    name, sign, pattern = str(kind).partition(":")
    if not isinstance(kind, str) or name not in _SQL or (sign and name != "time"):
        raise InvalidRequest(
            f'Expected types among {", ".join(_SQL)}, or a time with its format such as "time:%d/%m/%Y"',
            got=f"{column} = {getattr(kind, '__name__', kind)}",
            do=_suggest_type(kind),
        )
    if sign and not (_DIRECTIVES.fullmatch(pattern) and re.search("%-?[Yy]", pattern)):
        raise InvalidRequest(
            "Expected a format with a year, of the directives %Y %y %m %d %j %b %B %a %A %H %I %p %M %S %f %z",
            got=f"{column} = {kind}",
            do='Pass e.g. "time:%d/%m/%Y %H:%M"',
        )
    return name, pattern if sign else None


def _suggest_type(kind: object) -> str:
    """Return a question that names the type that was probably meant."""
    word = str(getattr(kind, "__name__", kind)).casefold()
    if "%" in word:
        return f'Did you mean "time:{str(kind).partition(":")[2] or kind}"?'
    meant = _ELSEWHERE.get(word.rstrip("0123456789"))
    return f"Did you mean {meant!r}?" if meant else suggest_name(word, _SQL) or "Name one of them"


def cast_sql(text: str, kind: str, decimal: str = ".") -> str:
    """Write the SQL that casts a text to a declared type, NULL if it does not fit."""
    name, pattern = split_type(kind)
    if name == "text":
        return text
    if pattern is not None:  # with %z DuckDB gives times of a zone: their moments in UTC are those of the epoch
        return f"make_timestamp(epoch_us(try_strptime(trim({text}), {quote_text(pattern)})))"
    trimmed = f"trim({text})"
    if decimal == "," and name in ("integer", "real"):
        # A point would group thousands, and the cell would be read as another number.
        trimmed = f"CASE WHEN NOT contains({text}, '.') THEN replace({trimmed}, ',', '.') END"
    cast = f"TRY_CAST({trimmed} AS {_SQL[name]})"
    # DuckDB would round 1.5 to an integer and so merge two ids.
    return f"CASE WHEN regexp_full_match({trimmed}, '{_WHOLE}') THEN {cast} END" if name == "integer" else cast


def parse_times(texts: pa.Array, pattern: str) -> pa.Array:
    """Parse texts by a format of times. A text that does not fit is missing.

    >>> parse_times(pa.array(["31/12/2023", "31/02/2023", None]), "%d/%m/%Y").to_pylist()
    [datetime.datetime(2023, 12, 31, 0, 0), None, None]
    """
    duckdb = importlib.import_module("duckdb")  # most tables have no such format and need not wait for it
    with duckdb.connect(config={"threads": "1", "temp_directory": ""}) as connection:
        connection.register("cells", pa.table({"cell": texts}))
        found = connection.sql(f"SELECT {cast_sql('cell', 'time:' + pattern)} AS cell FROM cells").to_arrow_table()
    return pa.concat_arrays(found.column(0).chunks) if len(texts) else pa.array([], pa.timestamp("us"))


def quote_text(text: str) -> str:
    """Return a text as an SQL constant."""
    return "'" + text.replace("'", "''") + "'"
