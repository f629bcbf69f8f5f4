"""Turn one column of a table into features between -1 and 1, by public declarations only.

Each kind of column reads a cell into one number (``read_cells``) and writes that number as features (``write_features``).
Both depend on the cell and on the declaration, never on another row. No cell is refused: a cell that does not fit its
declaration is missing, clipped to a bound, or the level "other". The squared Euclidean length of the features of a cell is
at most ``squared_length``, exactly, for the float32 numbers that are written.
"""

from __future__ import annotations

import datetime
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_column, canonical_value, constant_kind, float_cells
from expost.data.evaluation import Times, read_column
from expost.data.expression import as_utc, col, is_exact
from expost.data.table_schema import check_categories
from expost.data.value_place import find_places, to_moment
from expost.models.estimator import is_interval

__all__ = ["CategoryColumn", "ColumnEncoding", "DateColumn", "FlagColumn", "NumberColumn", "is_moment", "read_moment"]

Cells = NDArray[Any]
Features = NDArray[np.float32]

_MOST_LEVELS = 1 << 16
_MICROSECONDS_PER_HOUR = 3_600_000_000
_MONTHS, _DAYS, _HOURS = 12, 7, 24


@dataclass(frozen=True)
class ColumnEncoding(ABC):
    """How one column becomes features. The subclasses are the kinds of columns.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> isinstance(FlagColumn("member"), ColumnEncoding)
    True
    """

    name: str
    _kinds: ClassVar[dict[str, type[ColumnEncoding]]] = {}
    _kind: ClassVar[str]

    def __init_subclass__(cls, kind: str, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls._kind = kind
        ColumnEncoding._kinds[kind] = cls

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidRequest("Expected the name of a column", got=self.name, do="Name columns by texts")

    @property
    @abstractmethod
    def names_out(self) -> tuple[str, ...]:
        """Names of the features."""

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.names_out)

    @property
    def squared_length(self) -> float:
        """The largest squared Euclidean length of the features of one cell."""
        return 1.0

    @property
    def absolute_length(self) -> float:
        """The largest sum of magnitudes of the features of one cell."""
        return 1.0

    @property
    @abstractmethod
    def type_name(self) -> str:
        """The type that a source without types is read as: integer, real, boolean, text or time."""

    @abstractmethod
    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        """Raise if a column of this kind cannot be encoded. The types of columns are public.

        Parameters
        ----------
        kind : Kind
            Kind of the table's column.
        computed : bool, default False
            True if the column is computed by an expression, so that its numbers are floats.
        """

    @abstractmethod
    def read_cells(self, column: pa.Array) -> Cells:
        """Read each cell of a canonical column into one number, from which its features follow.

        Parameters
        ----------
        column : pyarrow.Array
            A canonical column of a kind that ``check_kind`` accepts.
        """

    @abstractmethod
    def write_features(self, cells: Cells, out: Features) -> None:
        """Write the features of cells into a table of zeros.

        Parameters
        ----------
        cells : array
            What ``read_cells`` returned.
        out : array of float32, shape (rows, width)
            Zeros; the features are written into it.
        """

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Features:
        """Return the features of a column, one line per cell.

        Parameters
        ----------
        column : pyarrow.Array or ChunkedArray
            A column of any type whose kind fits. A column of nulls without a type is missing throughout.

        Examples
        --------
        >>> NumberColumn("age", 0, 100).encode(pa.array([0, 75, None, 500])).tolist()
        [[-1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [1.0, 0.0]]
        """
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if not pa.types.is_null(whole.type):
            self.check_kind(Kind.of(whole.type))
        cells = self.read_cells(self.fit_type(canonical_column(whole)))
        out = np.zeros((len(cells), self.width), np.float32)
        self.write_features(cells, out)
        return out

    def fit_type(self, column: pa.Array) -> pa.Array:
        """Return a canonical column; one of nulls without a type gets the type that is declared here.

        Parameters
        ----------
        column : pyarrow.Array
            A canonical column.
        """
        return column.cast(_NULLS[self.type_name]) if pa.types.is_null(column.type) else column

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as values that JSON can hold."""
        return {"kind": self._kind, "name": self.name, **self._json_fields()}

    @abstractmethod
    def _json_fields(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self: ...

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ColumnEncoding:
        """Return the column of a document that ``to_json`` made.

        Parameters
        ----------
        document : mapping
            The declaration. Raises ``ValueError``, ``KeyError`` or ``TypeError`` if it is damaged.

        Examples
        --------
        >>> ColumnEncoding.from_json(FlagColumn("member").to_json())
        FlagColumn(name='member')
        """
        return cls._kinds[document["kind"]]._from_fields(document)


@dataclass(frozen=True)
class NumberColumn(ColumnEncoding, kind="number"):
    """Numbers with public bounds, scaled so that the bounds become -1 and 1.

    Numbers beyond a bound, infinite ones included, are moved to it. A missing number becomes 0, the middle of the bounds,
    and 1 in a second feature.

    Parameters
    ----------
    name : str
        Name of the column.
    low : float
        Public lower bound, in the column's units.
    high : float
        Public upper bound, in the column's units.
    missing : bool, default True
        Whether a second feature marks missing numbers.

    Examples
    --------
    >>> NumberColumn("age", 0, 100).names_out
    ('age', 'age=missing')
    >>> NumberColumn("age", 100, 0)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected bounds of 'age' with low below high, got 100, 0. ...
    """

    low: float
    high: float
    missing: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: tuple[Any, Any] = (self.low, self.high)
        ends = [float(end) if isinstance(end, Decimal) else end for end in given]
        if not is_interval(ends):
            raise InvalidRequest(
                f"Expected bounds of {self.name!r} with low below high",
                got=f"{self.low}, {self.high}",
                do="Pass public numbers (low, high) that hold whatever the data",
            )
        if not isinstance(self.missing, bool):
            raise InvalidRequest("Expected missing to be True or False", got=self.missing, do="Pass one of them")
        _set_fields(self, low=float(ends[0]) + 0.0, high=float(ends[1]) + 0.0)

    @property
    def names_out(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}=missing") if self.missing else (self.name,)

    @property
    def type_name(self) -> str:
        return "real"

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if not kind.is_number:
            raise _wrong_kind(self.name, "numbers (bounds are declared)", kind)

    def read_cells(self, column: pa.Array) -> Cells:
        # the scaled number, NaN if missing
        numbers = float_cells(column)
        with np.errstate(all="ignore"):  # a warning would reveal that a row has a huge number
            scaled = np.clip(numbers, self.low, self.high)
            scaled -= self.low
            scaled *= 2.0 / (self.high - self.low)
            scaled -= 1.0
            # Again after rounding, so that no number leaves [-1, 1].
            np.clip(scaled, -1.0, 1.0, out=scaled)
            return scaled.astype(np.float32)

    def write_features(self, cells: Cells, out: Features) -> None:
        missing = np.isnan(cells)
        out[:, 0] = np.where(missing, np.float32(0), cells)
        if self.missing:
            out[:, 1] = missing

    def _json_fields(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "missing": self.missing}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], fields["low"], fields["high"], missing=fields["missing"])


@dataclass(frozen=True)
class CategoryColumn(ColumnEncoding, kind="category"):
    """Values of a public list, one feature each, and a last feature for every other value and for missing cells.

    Parameters
    ----------
    name : str
        Name of the column.
    levels : sequence of texts, numbers, booleans or dates
        The public values, of one kind. 1, 1.0 and True are the same level.

    Examples
    --------
    >>> color = CategoryColumn("color", ["red", "blue"])
    >>> color.names_out
    ("color='red'", "color='blue'", 'color=other')
    >>> color.encode(pa.array(["blue", "green", None])).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """

    levels: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_fields(self, levels=_read_levels(self.name, self.levels))

    @cached_property
    def names_out(self) -> tuple[str, ...]:
        return (*(f"{self.name}={_show_level(level)}" for level in self.levels), f"{self.name}=other")

    @property
    def width(self) -> int:
        return len(self.levels) + 1

    @cached_property
    def type_name(self) -> str:
        kinds = {constant_kind(level) for level in self.levels}
        return (Kind.BOOLEAN if kinds == {Kind.BOOLEAN} else self._family).value

    @property
    def _family(self) -> Kind:
        found = constant_kind(self.levels[0])
        assert found is not None
        return found.family

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if kind.family is not self._family:
            raise _wrong_kind(self.name, f"values like its levels ({_PLURAL[self._family]})", kind)
        # A large whole number as a level needs a stored column of integers.
        check_categories(_computed(self.name) if computed else col(self.name), self.levels, kind)

    def read_cells(self, column: pa.Array) -> Cells:
        # the place among the levels, or their number for any other cell
        places = find_places(column, self.levels).astype(np.int32, copy=True)
        places[places < 0] = len(self.levels)
        return places

    def write_features(self, cells: Cells, out: Features) -> None:
        out[np.arange(len(cells)), cells] = 1

    def _json_fields(self) -> dict[str, Any]:
        return {"levels": [_level_to_json(level) for level in self.levels]}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], tuple(_level_from_json(level) for level in fields["levels"]))


@dataclass(frozen=True)
class FlagColumn(ColumnEncoding, kind="flag"):
    """Booleans: 1 for true, -1 for false, 0 for missing. In a column of numbers 1 is true and 0 is false.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> FlagColumn("member").encode(pa.array([True, False, None])).tolist()
    [[1.0], [-1.0], [0.0]]
    """

    @property
    def names_out(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def type_name(self) -> str:
        return "boolean"

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if not kind.is_number:
            raise _wrong_kind(self.name, "booleans", kind)

    def read_cells(self, column: pa.Array) -> Cells:
        numbers = float_cells(column)
        signs: NDArray[np.int8] = (numbers == 1).astype(np.int8) - (numbers == 0).astype(np.int8)
        return signs

    def write_features(self, cells: Cells, out: Features) -> None:
        out[:, 0] = cells

    def _json_fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"])


@dataclass(frozen=True)
class DateColumn(ColumnEncoding, kind="date"):
    """Dates or moments with a public window: position in the window, month, weekday, hour, and whether it is missing.

    The position goes from -1 at ``start`` to 1 at ``end``, and moments outside are moved to the nearest end. Month and
    hour are a sine and a cosine each: what depends on them mostly changes smoothly around the circle, and two features
    carry less noise than twelve or twenty-four. Weekdays are one feature each, because Saturday is not like Friday. All are
    in UTC, as everywhere in ``expost.data``.

    Parameters
    ----------
    name : str
        Name of the column.
    start : date, datetime or ISO text
        Public start of the window.
    end : date, datetime or ISO text
        Public end of the window.
    hours : bool, default False
        Whether there are features for the hour of the day.

    Examples
    --------
    >>> DateColumn("day", "2024-01-01", "2024-12-31").width
    11
    >>> DateColumn("when", "2024-01-01", "2024-12-31", hours=True).squared_length
    4.0
    """

    start: datetime.datetime
    end: datetime.datetime
    hours: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        ends = [read_moment(end) for end in (self.start, self.end)]
        if ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
            raise InvalidRequest(
                f"Expected a window of {self.name!r} with its start before its end",
                got=f"{self.start}, {self.end}",
                do="Pass two dates, such as (date(2020, 1, 1), date(2024, 12, 31))",
            )
        if not isinstance(self.hours, bool):
            raise InvalidRequest("Expected hours to be True or False", got=self.hours, do="Pass one of them")
        _set_fields(self, start=ends[0], end=ends[1])

    @cached_property
    def names_out(self) -> tuple[str, ...]:
        hour = ("hour sine", "hour cosine") if self.hours else ()
        days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
        parts = ("month sine", "month cosine", *days, *hour, "missing")
        return (self.name, *(f"{self.name}={part}" for part in parts))

    @property
    def squared_length(self) -> float:
        return 4.0 if self.hours else 3.0  # position, month, weekday and hour have length 1 each; missing has 1 in all

    @property
    def absolute_length(self) -> float:
        circle = 1.41422  # sine and cosine add up to the root of two at most
        return 2 + circle * (1 + self.hours)

    @property
    def type_name(self) -> str:
        return "time"

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if kind is not Kind.TIME:
            raise _wrong_kind(self.name, "dates or times (a window is declared)", kind)

    def read_cells(self, column: pa.Array) -> Cells:
        # the moment in microseconds, NaT if missing
        values = read_column(column)
        assert isinstance(values, Times)
        return values.moments

    def write_features(self, cells: Cells, out: Features) -> None:
        known = ~np.isnat(cells)
        moments = np.where(known, cells, np.datetime64(0, "us"))
        start, end = (int(to_moment(each).astype(np.int64)) for each in (self.start, self.end))
        passed = np.clip(moments.astype(np.int64), start, end) - start
        out[:, 0] = np.where(known, np.clip(passed * (2.0 / (end - start)) - 1.0, -1.0, 1.0), 0.0)
        month = moments.astype("datetime64[M]").astype(np.int64) % _MONTHS
        out[:, 1:3] = _circle(_MONTHS)[month] * known[:, None]
        day = (moments.astype("datetime64[D]").astype(np.int64) + 3) % _DAYS  # 1970 began on a Thursday
        out[np.arange(len(cells)), 3 + day] = known
        if self.hours:
            hour = moments.astype(np.int64) // _MICROSECONDS_PER_HOUR % _HOURS
            out[:, 10:12] = _circle(_HOURS)[hour] * known[:, None]
        out[:, -1] = ~known

    def _json_fields(self) -> dict[str, Any]:
        return {"start": self.start.isoformat(), "end": self.end.isoformat(), "hours": self.hours}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], fields["start"], fields["end"], hours=fields["hours"])


_NULLS: dict[str, pa.DataType] = {
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.large_string(),
    "time": pa.timestamp("us"),
}
_PLURAL = {
    Kind.REAL: "numbers",
    Kind.INTEGER: "numbers",
    Kind.BOOLEAN: "booleans",
    Kind.TEXT: "texts",
    Kind.TIME: "times",
    Kind.OTHER: "a type that cannot be a feature",
}


def _wrong_kind(name: str, wanted: str, kind: Kind) -> InvalidRequest:
    """Return the error for a column whose type does not fit its declaration."""
    hints = {
        Kind.TEXT: f"Declare its levels: columns={{{json.dumps(name, ensure_ascii=False)}: [...]}}, or leave it out",
        Kind.TIME: "Declare a window of two dates, or leave it out",
        Kind.OTHER: "Leave it out",
    }
    do = hints.get(kind, "Declare bounds (low, high), a list of numbers as levels, or leave it out")
    return InvalidRequest(f"Expected {wanted} in {name!r}", got=f"a column of {_PLURAL[kind]}", do=do)


def _computed(name: str) -> Any:
    """Return an expression that is not a stored column, for ``check_categories``."""
    return -col(name)


def _set_fields(column: ColumnEncoding, **fields: Any) -> None:
    """Replace fields of a frozen column by their normal form, while it is made."""
    for name, value in fields.items():
        object.__setattr__(column, name, value)


def _circle(places: int) -> Features:
    """Return the sine and cosine of evenly spread angles, cut to 20 bits so that no squared length exceeds 1."""
    angles = 2 * np.pi * np.arange(places) / places
    return (np.trunc(np.stack([np.sin(angles), np.cos(angles)], axis=1) * 2.0**20) / 2.0**20).astype(np.float32)


# Public values that callers type ---------------------------------------------------------------------------------------


def is_moment(value: object) -> bool:
    """Return whether a value is a date or a moment. A text is not, even if it spells one."""
    return isinstance(value, datetime.date | np.datetime64)


def read_moment(value: Any) -> datetime.datetime | None:
    """Convert a date, a moment or an ISO text to a moment in UTC, or None if it is missing or not a moment.

    >>> read_moment("2024-02-29"), read_moment(np.datetime64("NaT"))
    (datetime.datetime(2024, 2, 29, 0, 0), None)
    """
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
    value = canonical_value(value) if isinstance(value, np.datetime64) else value
    if not isinstance(value, datetime.date) or value != value:  # pandas' missing moment differs from itself
        return None
    moment = as_utc(value)
    if isinstance(moment, datetime.datetime):
        return datetime.datetime(*moment.timetuple()[:6], moment.microsecond)
    return datetime.datetime(moment.year, moment.month, moment.day)


def _read_levels(name: str, given: Any) -> tuple[Any, ...]:
    """Return public levels in canonical form; raise if they are not a list of different values of one kind."""
    do = f"Pass columns={{{json.dumps(name, ensure_ascii=False)}: [...]}} with the public values"
    if isinstance(given, str | bytes | Mapping | set | frozenset) or not isinstance(given, Iterable):
        raise InvalidRequest(f"Expected a list of levels for {name!r}", got=given, do=do)
    if isinstance(given, np.ndarray) and given.dtype.kind == "M":
        given = given.astype("datetime64[us]")  # finer units would become integers
    levels = tuple(map(_read_level, given))
    if not levels:
        raise InvalidRequest(f"Expected at least one level for {name!r}", do=do)
    if len(levels) > _MOST_LEVELS:
        raise InvalidRequest(f"Expected at most {_MOST_LEVELS} levels for {name!r}", got=len(levels), do="Merge some")
    for typed, level in zip(given, levels, strict=True):
        if level is None:
            raise InvalidRequest(
                f"Expected levels of {name!r} that are texts, finite numbers, booleans or dates",
                got=typed,
                do='Leave it out of the list: missing and unknown values are the level "other" already',
            )
    kinds = {kind.family for level in levels if (kind := constant_kind(level)) is not None}
    if len(kinds) > 1:
        raise InvalidRequest(
            f"Expected levels of {name!r} of one kind", do="Pass texts, numbers or dates, not a mixture"
        )
    seen: set[Any] = set()
    for typed, level in zip(given, levels, strict=True):
        # Columns of floats hold a decimal as the nearest float, so two such levels would be one.
        compared = float(level) if isinstance(level, Decimal) else level
        if compared in seen:
            raise InvalidRequest(f"Expected each level of {name!r} once", got=typed, do="Drop the repeated level")
        seen.add(compared)
    return levels


def _read_level(value: Any) -> Any:
    """Return a level in canonical form, or None if it is missing or cannot be one."""
    if is_moment(value):
        return read_moment(value)
    value = canonical_value(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if is_exact(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is not a text
        return None
    return str(value)


def _show_level(level: Any) -> str:
    """Return a level as it appears in the name of a feature."""
    if isinstance(level, datetime.datetime):
        return level.isoformat()
    return repr(level) if isinstance(level, str) else str(level)


def _level_to_json(level: Any) -> Any:
    """Return a level as JSON holds it; moments and decimals are marked."""
    if isinstance(level, datetime.datetime):
        return {"moment": level.isoformat()}
    return {"decimal": str(level)} if isinstance(level, Decimal) else level


def _level_from_json(level: Any) -> Any:
    """Return the level of what ``_level_to_json`` returned."""
    if not isinstance(level, dict):
        return level
    if "moment" in level:
        return datetime.datetime.fromisoformat(level["moment"])
    return Decimal(level["decimal"]) if isinstance(level["decimal"], str) else None
