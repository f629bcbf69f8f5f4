"""Turn a column of dates or moments into features: place in a window, month, weekday and hour."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind
from expost.data.cell_values import Times, read_column
from expost.data.value_place import to_moment
from expost.models.tabular.column_encoding import Cells, ColumnEncoding, Features, set_fields, wrong_kind
from expost.models.tabular.declared_level import read_moment

__all__ = ["DateColumn"]

_MICROSECONDS_PER_HOUR = 3_600_000_000
_MONTHS, _DAYS, _HOURS = 12, 7, 24
_DAYS_PER_CYCLE = 146_097  # of 400 years, after which the calendar repeats


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
        set_fields(self, start=ends[0], end=ends[1])

    @cached_property
    def names_out(self) -> tuple[str, ...]:
        hour = ("hour sine", "hour cosine") if self.hours else ()
        days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
        parts = ("month sine", "month cosine", *days, *hour, "missing")
        return (self.name, *(f"{self.name}={part}" for part in parts))

    @property
    def weekdays(self) -> range:
        """Return the places of the features of weekdays."""
        return range(3, 3 + _DAYS)

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
            raise wrong_kind(self.name, "dates or times (a window is declared)", kind)

    def read_cells(self, column: pa.Array) -> Cells:
        # the moment in microseconds, NaT if missing
        values = read_column(column)
        assert isinstance(values, Times)
        return values.moments

    def write_features(self, cells: Cells, out: Features) -> None:
        missing = np.isnat(cells)
        moments = np.where(missing, np.int64(0), cells.astype(np.int64))
        known = (~missing).astype(np.float32)
        start, end = (int(to_moment(each).astype(np.int64)) for each in (self.start, self.end))
        passed = np.clip(moments, start, end) - start
        out[:, 0] = np.clip(passed * (2.0 / (end - start)) - 1.0, -1.0, 1.0) * known
        hours = moments // _MICROSECONDS_PER_HOUR
        days = hours // _HOURS
        out[:, 1:3] = _circle(_MONTHS)[_months_of_days()[days % _DAYS_PER_CYCLE]] * known[:, None]
        out[np.arange(len(cells)), self.weekdays.start + (days + 3) % _DAYS] = known  # 1970 began on a Thursday
        if self.hours:
            out[:, 10:12] = _circle(_HOURS)[hours % _HOURS] * known[:, None]
        out[:, -1] = missing

    @property
    def declared(self) -> Any:
        return (self.start, self.end)

    def _json_fields(self) -> dict[str, Any]:
        return {"start": self.start.isoformat(), "end": self.end.isoformat(), "hours": self.hours}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], fields["start"], fields["end"], hours=fields["hours"])


@lru_cache(maxsize=1)
def _months_of_days() -> NDArray[np.int8]:
    """Return the month, from 0, of each day of the 400 years from 1970. Looking it up is ten times as fast as NumPy's calendar."""
    days = np.arange(_DAYS_PER_CYCLE).astype("datetime64[D]")
    return (days.astype("datetime64[M]").astype(np.int64) % _MONTHS).astype(np.int8)


@lru_cache(maxsize=2)
def _circle(places: int) -> Features:
    """Return the sine and cosine of evenly spread angles, cut to 20 bits so that no squared length exceeds 1."""
    angles = 2 * np.pi * np.arange(places) / places
    return (np.trunc(np.stack([np.sin(angles), np.cos(angles)], axis=1) * 2.0**20) / 2.0**20).astype(np.float32)
