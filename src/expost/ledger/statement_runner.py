"""Statements of one transaction, given to the driver itself.

SQLAlchemy makes the connections, pools them and commits. A transaction of a ledger has a dozen short statements, and
building each of them again would take longer than the database needs to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

__all__ = ["CHECK", "StatementRunner"]

CHECK = "expost_check"
"""The name of the execution option with a function that is called before each statement."""

_BATCH = 2_000  # rows that are fetched at once; a driver of a server would fetch all of them otherwise

Row = tuple[Any, ...]


class StatementRunner:
    """Runs statements on the connection of a transaction. They have a question mark for each value.

    An engine's execution option ``CHECK`` is called before each statement; it raises in a process that must not use the
    connection.

    Parameters
    ----------
    connection : Connection
        The connection, in a transaction.

    Examples
    --------
    >>> from sqlalchemy import create_engine
    >>> with create_engine("sqlite://").connect() as connection:
    ...     StatementRunner(connection).find_row("SELECT ? + 1", 41)
    (42,)
    """

    def __init__(self, connection: Connection) -> None:
        self._raw: Any = connection.connection.dbapi_connection
        self._is_server = connection.dialect.name == "postgresql"
        self._check: Callable[[], object] | None = connection.get_execution_options().get(CHECK)

    def run(self, statement: str, *values: Any) -> Any:
        """Run a statement and return its cursor."""
        if self._check is not None:
            self._check()
        return self._raw.execute(_spell_for_server(statement) if self._is_server else statement, values)

    def run_script(self, script: str) -> list[list[Row]]:
        """Run several statements without values on a server in one message, and return the rows of each query."""
        if self._check is not None:
            self._check()
        cursor = self._raw.execute(script, None, prepare=False)
        found = []
        while True:
            if cursor.description is not None:
                found.append(cursor.fetchall())
            if not cursor.nextset():
                return found

    def find_row(self, statement: str, *values: Any) -> Row | None:
        """Return the first row, or None."""
        row: Row | None = self.run(statement, *values).fetchone()
        return row

    def all_rows(self, statement: str, *values: Any) -> list[Row]:
        """Return all rows."""
        rows: list[Row] = self.run(statement, *values).fetchall()
        return rows

    def rows_after(self, statement: str, first: int, key: Callable[[Row], int]) -> Iterator[Row]:
        """Yield rows of a statement in batches.

        It has two values: the number after which it begins, and how many rows it may return. ``key`` is the number of a row.
        """
        while True:
            rows: Sequence[Row] = self.all_rows(statement, first, _BATCH)
            yield from rows
            if len(rows) < _BATCH:
                return
            first = key(rows[-1])


@lru_cache(maxsize=256)
def _spell_for_server(statement: str) -> str:
    return statement.replace("?", "%s")
