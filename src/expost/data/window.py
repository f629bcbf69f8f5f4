"""One time window of a user-time unit."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from expost.core import InvalidRequest, Unit, Window
from expost.data.expression import Expression, col

__all__ = ["Period"]


@dataclass(frozen=True)
class Period:
    """The days from ``start`` up to, not including, ``end``.

    >>> Period.of(Unit.of("id", per="week", time="when"), "2013-01-09").label
    '2013-01-07'
    """

    column: str
    start: datetime.date
    end: datetime.date

    @classmethod
    def of(cls, unit: Unit, day: str) -> Period:
        """The window of a unit that holds a day, given as ``YYYY-MM-DD``."""
        if unit.window is None or unit.time_column is None:
            raise InvalidRequest(
                "Expected a unit with a time window", do='Pass unit=Unit.of("id", per="week", time="when")'
            )
        try:
            start, end = _span(datetime.date.fromisoformat(day), unit.window)
        except (TypeError, ValueError, OverflowError):  # the last window of the calendar has no end
            raise InvalidRequest("Expected a day", got=day, do='Pass a day such as "2013-01-07"') from None
        return cls(unit.time_column, start, end)

    @property
    def label(self) -> str:
        """The first day."""
        return self.start.isoformat()

    @property
    def condition(self) -> Expression:
        """The filter that keeps the window's rows."""
        return (col(self.column) >= self.start) & (col(self.column) < self.end)


def _span(date: datetime.date, window: Window) -> tuple[datetime.date, datetime.date]:
    if window is Window.DAY:
        return date, date + datetime.timedelta(days=1)
    if window is Window.WEEK:
        monday = date - datetime.timedelta(days=date.weekday())
        return monday, monday + datetime.timedelta(days=7)
    first = date.replace(day=1)
    return first, (first + datetime.timedelta(days=32)).replace(day=1)
