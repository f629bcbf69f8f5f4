"""Which two tables count as adjacent, and what one "person" is."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from expost.core.errors import InvalidRequest

__all__ = ["Adjacency", "Unit", "Window"]


class Adjacency(enum.Enum):
    """When two tables are adjacent: one unit added or removed, or one unit replaced.

    Examples
    --------
    >>> Adjacency("add-remove").public_size
    False
    """

    ADD_REMOVE = "add-remove"
    """One unit is present in one table only; the number of units is private."""
    REPLACE_ONE = "replace-one"
    """One unit's records are replaced; the number of units is public."""

    @property
    def public_size(self) -> bool:
        """Whether the number of units is public under this relation."""
        return self is Adjacency.REPLACE_ONE

    @classmethod
    def parse(cls, value: object) -> Adjacency:
        """Return the relation that a caller named.

        Parameters
        ----------
        value : str or Adjacency
            ``"add-remove"`` or ``"replace-one"``.
        """
        try:
            # By value or by member; a ValueError of the enum would not name the choices.
            return cls(value)
        except ValueError:
            names = " or ".join(repr(member.value) for member in cls)
            raise InvalidRequest(f"Expected adjacency to be {names}", got=value, do="Name one of them") from None


class Window(enum.Enum):
    """The length of one time window of a user-time unit."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Unit:
    """What is protected: a row, all rows of an id, or all rows of an id within one time window.

    Parameters
    ----------
    column : str, optional
        The id column. Default: each row is one person.
    time_column : str, optional
        The time column of the windows.
    window : Window, optional
        The length of a window.

    Examples
    --------
    >>> print(Unit.row())
    one row
    >>> print(Unit.of("tailnum"))
    all rows of one tailnum
    """

    column: str | None = None
    time_column: str | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        # Ignoring half of the pair would protect something else than what was declared.
        if (self.time_column is None) != (self.window is None):
            raise InvalidRequest(
                "Expected a time column and a window together", do='Pass Unit.of("id", per="week", time="when")'
            )
        # Rows without an id have no owner whose week could be protected.
        if self.window is not None and self.column is None:
            raise InvalidRequest("Expected an id column together with the time window", do="Name the id column")

    @classmethod
    def row(cls) -> Unit:
        """Return the unit in which each row is one person."""
        return cls()

    @classmethod
    def of(cls, column: str, *, per: str | None = None, time: str | None = None) -> Unit:
        """Return the unit in which all rows with the same id are one person.

        Parameters
        ----------
        column : str
            The id column.
        per : {"day", "week", "month"}, optional
            Protect the rows of one time window only.
        time : str, optional
            The time column of the windows.
        """
        if not isinstance(column, str) or not column:
            raise InvalidRequest("Expected the name of an id column", got=column, do="Pass a column name")
        try:
            return cls(column, time, None if per is None else Window(per))
        except ValueError as error:
            # InvalidRequest is a ValueError too; what __post_init__ refused keeps its own sentence.
            if isinstance(error, InvalidRequest):
                raise
            names = ", ".join(repr(member.value) for member in Window)
            raise InvalidRequest(f"Expected per to be one of {names}", got=per, do="Name one of them") from None

    @property
    def is_row(self) -> bool:
        """Whether the unit is a single row."""
        return self.column is None

    def __str__(self) -> str:
        if self.column is None:
            return "one row"
        within = "" if self.window is None else f" within one {self.window.value}"
        return f"all rows of one {self.column}{within}"
