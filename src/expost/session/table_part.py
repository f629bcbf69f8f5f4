"""Which disjoint part of a table a session is about, and the accounts that pay for it."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data import Dataset, Expression, col
from expost.data.canonical_cell import Kind
from expost.data.unit_identity import Period
from expost.ledger.ledger_account import LONGEST_NAME, check_name

__all__ = ["TablePart", "column_part", "time_windows"]

_MOST_WINDOWS = 10_000
_READABLE = 20  # characters of a long name that stay readable


@dataclass(frozen=True)
class TablePart:
    """Rows that a public rule separates from all others: one category of a column, or several windows of time.

    ``touching`` is how many of the parts a change of one unit can reach (docs/proofs/parallel-parts.md). ``older`` has
    the names that earlier versions gave to the parts, where they differ.
    """

    by: str
    parts: tuple[str, ...]
    condition: Expression
    touching: int
    text: str
    older: tuple[str, ...] = ()

    def accounts(self, whole: str, opened: Collection[str] = ()) -> tuple[str, ...]:
        """Return the account of each part of the whole's account; one that is open under its older name keeps it.

        A second account for the same rows would be counted separately, although the charges add up.
        """
        names = [_account_name(whole, part) for part in self.parts]
        before = [_account_name(whole, part) for part in self.older or self.parts]
        return tuple(old if old in opened else new for new, old in zip(names, before, strict=True))


def column_part(dataset: Dataset, column: str, value: Any) -> TablePart:
    """Return the rows whose column has one of its public values.

    >>> import pyarrow as pa
    >>> people = Dataset(pa.table({"site": ["A", "B"]}), categories={"site": ["A", "B"]})
    >>> column_part(people, "site", "A").accounts("dataset:people")
    ('dataset:people/site=A',)
    """
    if not dataset.unit.is_row:
        # One unit may have rows in every part, so what is spent on them adds up.
        raise InvalidRequest(
            "Parts by a column need one row per unit",
            got=str(dataset.unit),
            do="Ask with where=, which charges the whole; parts by time need a unit with a time window",
        )
    if not dataset.stores(column) or dataset.schema.kind(column) in (Kind.TIME, Kind.OTHER):
        # A derived column may mean something else tomorrow, under the same name.
        raise InvalidRequest(
            "Expected a stored column of text, numbers or truths",
            got=column,
            do=suggest_name(column, dataset.schema) or "Name a column of the source",
        )
    values = [each for each in dataset.axis(column).values if each is not None and each == value]
    if not values:
        close = suggest_name(value, [str(each) for each in dataset.axis(column).values])
        do = close or "Declare it with categories="
        raise InvalidRequest(f"Expected a public category of {column}", got=value, do=do)
    found = next((each for each in values if type(each) is type(value)), values[0])
    text = _label_text(found)
    part = f"{escape_name(column)}={escape_name(text)}"
    older = _escape_stars(f"{column}={text}")
    if not older.isprintable():
        older = part  # no account was ever opened under such a name
    return TablePart(
        f"column {column}", (part,), col(column) == found, _parts_touched(dataset), f"{column}={text}", (older,)
    )


def time_windows(dataset: Dataset, first: str, last: str | None = None) -> TablePart:
    """Return the rows of the window that holds a day, or of all windows from one day's to another's.

    >>> import pyarrow as pa
    >>> from expost.core import Unit
    >>> table = pa.table({"id": [1], "when": pa.array([0], pa.timestamp("us"))})
    >>> visits = Dataset(table, unit=Unit.of("id", per="week", time="when"))
    >>> time_windows(visits, "2013-01-09", "2013-01-14").accounts("dataset:visits")
    ('dataset:visits/week=2013-01-07', 'dataset:visits/week=2013-01-14')
    """
    period = start = Period.of(dataset.unit, first)
    end = start if last is None else Period.of(dataset.unit, last)
    if end.start < start.start:
        raise InvalidRequest("Expected the first day before the last", got=f"{first} .. {last}", do="Exchange them")
    length = dataset.unit.window.value if dataset.unit.window is not None else ""
    parts = [f"{length}={start.label}"]
    while period.start < end.start:
        if len(parts) == _MOST_WINDOWS:
            raise InvalidRequest(
                f"Expected at most {_MOST_WINDOWS} windows at once", got=f"{first} .. {last}", do="Ask about the whole"
            )
        period = Period.of(dataset.unit, period.end.isoformat())
        parts.append(f"{length}={period.label}")
    condition = Period(start.column, start.start, end.end).condition
    last_day = (end.end - datetime.timedelta(days=1)).isoformat()
    text = parts[0] if len(parts) == 1 else f"{length}s from {start.label} to {last_day}"
    return TablePart(f"{length} of {start.column}", tuple(parts), condition, _parts_touched(dataset), text)


def _parts_touched(dataset: Dataset) -> int:
    """Return how many parts one change reaches: a unit that is replaced leaves one part and may enter another."""
    return 2 if dataset.adjacency.public_size else 1


def _label_text(value: Any) -> str:
    """Return one text for all values that engines consider equal: they compare numbers as 64-bit floats."""
    if isinstance(value, str):
        return value
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def _account_name(whole: str, part: str) -> str:
    """Return the account of a part; a very long name is cut to its beginning and a digest."""
    if len(name := f"{whole}/{part}") <= LONGEST_NAME:
        return check_name(name)
    digest = hashlib.sha256(part.encode()).hexdigest()[:32]
    return check_name(f"{whole}/{part[:_READABLE]}~{digest}")


def escape_name(word: str) -> str:
    """Escape a word so that it neither ends a part's name nor begins a part of the part.

    >>> escape_name("A/B = 50%")
    'A%2FB %3D 50%25'
    """
    plain = _escape_stars(word).replace("/", "%2F").replace("=", "%3D")
    escaped = (
        letter if letter.isprintable() else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
        for letter in plain
    )
    return "".join(escaped)


def _escape_stars(label: str) -> str:
    """Escape stars, which would make an account's name a template."""
    return label.replace("%", "%25").replace("*", "%2A")
