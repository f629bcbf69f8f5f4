"""The engine of PostgreSQL tables and views, streamed as Arrow batches."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from expost.core import InvalidRequest, MissingExtra
from expost.data.engines.engine import ROWS_PER_BATCH, Engine, quote_name
from expost.data.source_identity import SourceIdentity

__all__ = ["PostgresEngine"]

try:
    dbapi: Any = importlib.import_module("adbc_driver_postgresql.dbapi")
except ImportError:  # the extra is not installed
    dbapi = None

_PLAIN = {16: pa.bool_(), 21: pa.int16(), 23: pa.int32(), 20: pa.int64(), 700: pa.float32(), 701: pa.float64()}
_NUMERIC, _DATE, _TIMES = 1700, 1082, (1114, 1184)
_LONGEST_TEXT = 1 << 16
_COLUMNS = """
    SELECT attname, (CASE WHEN typtype = 'd' THEN typbasetype ELSE atttypid END)::int8
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
    WHERE attrelid = to_regclass({table}) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_READS = """
    WITH RECURSIVE reads(id) AS (
        SELECT to_regclass({table})::oid
        UNION
        SELECT found.id FROM reads, LATERAL (
            SELECT inhrelid FROM pg_inherits WHERE inhparent = reads.id
            UNION ALL
            SELECT refobjid FROM pg_rewrite JOIN pg_depend ON pg_depend.objid = pg_rewrite.oid
            WHERE ev_class = reads.id AND classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass
        ) AS found(id)
    )
    SELECT (SELECT system_identifier FROM pg_control_system())::text, current_database()::text, nspname::text,
           relname::text, relkind::text
    FROM reads JOIN pg_class ON pg_class.oid = reads.id JOIN pg_namespace ON pg_namespace.oid = relnamespace
    ORDER BY pg_class.oid <> to_regclass({table}), nspname, relname
"""


class PostgresEngine(Engine):
    """Streams one table or view. All passes see it as it was when the engine was opened.

    One transaction (REPEATABLE READ, read only) is kept open and its snapshot exported. Every pass joins it on its own
    connection, so passes may overlap and child processes may read too. No row can make a query fail: the server replaces
    values that Arrow cannot hold by NULL (see ``_select_column``).

    Use ``Dataset("postgresql://user@host/database?table=public.flights")``, which picks the engine.
    """

    def __init__(self, url: str, table: str) -> None:
        if dbapi is None:
            raise MissingExtra("postgres", package="adbc-driver-postgresql")
        self._url, self._table = url, ".".join(map(quote_name, table.split(".")))
        holder = None
        try:
            holder = _connect(url)
            columns = _COLUMNS.format(table="'" + self._table.replace("'", "''") + "'")
            self._kinds = {str(name): int(kind) for name, kind in _fetch_rows(holder, columns)}
            settings = "SELECT pg_export_snapshot(), current_setting('server_encoding')"
            self._snapshot, encoding = _fetch_rows(holder, settings)[0]
            usable = bool(self._kinds) and encoding != "SQL_ASCII"
            self._schema = self._read_schema() if usable else None
        except dbapi.Error:
            self._schema = None  # the driver's own message may contain a password
        if holder is not None:
            self._close = weakref.finalize(self, holder.close)
        if self._schema is None:
            self.close()
            raise InvalidRequest(
                "Expected a PostgreSQL table that can be read, in a database with a character encoding",
                do="Check address, table name (spelled exactly) and rights with psql",
            )

    def close(self) -> None:
        """Release the snapshot. This happens automatically when the engine is garbage collected."""
        if hasattr(self, "_close"):
            self._close()

    def _read_schema(self) -> pa.Schema:
        """Read the types from an empty result; no row is read."""
        with _connect(self._url, self._snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(self._write_query(list(self._kinds)) + " LIMIT 0")
            return _cast_times(cursor.fetch_arrow_table(), self._kinds).schema

    def _write_query(self, columns: Sequence[str]) -> str:
        names = {name: quote_name(name) for name in columns}
        chosen = ", ".join(f"{_select_column(name, self._kinds[raw])} AS {name}" for raw, name in names.items())
        return f"SELECT {chosen or 'TRUE AS present'} FROM {self._table}"

    @property
    def schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        with _connect(self._url, self._snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(self._write_query(columns))
            with cursor.fetch_record_batch() as reader:
                for batch in reader:
                    typed = _cast_times(batch, self._kinds)
                    for start in range(0, typed.num_rows, rows_per_batch):
                        yield typed.slice(start, rows_per_batch)

    def identity(self) -> SourceIdentity:
        """Return the table and all that it reads: partitions, and the tables of a view.

        The server is known by the number that it was given when it was made, whatever the address says.
        """
        try:
            with _connect(self._url, self._snapshot) as connection:
                literal = "'" + self._table.replace("'", "''") + "'"
                tables = _fetch_rows(connection, _READS.format(table=literal))
            kind = tables[0][-1]
        except (dbapi.Error, IndexError):  # a server may not allow it
            parts = urlsplit(self._url)
            place = f"postgresql:{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}/{self._table}"
            return replace(super().identity(), places=(place,))
        found = (
            super().identity() if kind not in ("r", "p", "m") else SourceIdentity.of_batches(self.schema, self._head)
        )
        places = (f"postgresql:{server}/{database}/{schema}.{table}" for server, database, schema, table, _ in tables)
        return replace(found, places=tuple(places))

    def _head(self, rows: int) -> list[pa.RecordBatch]:
        """Read the first rows of a table; a view might read all of its tables for them."""
        with _connect(self._url, self._snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(f"{self._write_query(self.schema.names)} LIMIT {rows}")
            batches: list[pa.RecordBatch] = _cast_times(cursor.fetch_arrow_table(), self._kinds).to_batches()
            return batches


def _connect(url: str, snapshot: str | None = None) -> Any:
    """Connect and start a read-only transaction, at a snapshot if one is given."""
    connection = dbapi.connect(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot is not None:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            for setting in (
                "client_encoding TO 'UTF8'",
                "TimeZone TO 'UTC'",
                "idle_in_transaction_session_timeout TO 0",
            ):
                cursor.execute(f"SET {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _fetch_rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    """Run a query on the catalogue."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [tuple(row) for row in cursor.fetchall()]


def _select_column(name: str, kind: int) -> str:
    """Write the SQL of a column in a type that Arrow can hold; values that do not fit become NULL.

    Integers, floats and booleans stay as they are. Other numbers become 64-bit floats, dates and times must lie in the
    years 1 to 9999, and everything else becomes text of at most 64 KiB.
    """
    if kind in _PLAIN:
        return name
    if kind == _NUMERIC:  # casting 1e-400 or 1e400 would be an error; NaN is above every number
        return (
            f"CASE WHEN abs({name}) BETWEEN 1e-300 AND 1e300 THEN {name}::float8 WHEN abs({name}) < 1e-300 THEN 0 END"
        )
    if kind == _DATE:
        return f"CASE WHEN {name} BETWEEN '0001-01-01' AND '9999-12-31' THEN {name} - DATE '1970-01-01' END"
    if kind in _TIMES:
        inside = f"{name} >= '0001-01-01' AND {name} < '10000-01-01'"
        return f"CASE WHEN {inside} THEN (extract(epoch FROM {name}) * 1000000)::int8 END"
    return f"CASE WHEN octet_length({name}::text) <= {_LONGEST_TEXT} THEN {name}::text END"


def _cast_times(part: Any, kinds: dict[str, int]) -> Any:
    """Convert days and microseconds of a batch or table to dates and times."""
    columns = []
    for name, column in zip(part.schema.names, part.columns, strict=True):
        kind = kinds.get(name, 0)
        if kind == _DATE:
            column = column.cast(pa.int32()).cast(pa.date32())
        elif kind in _TIMES:
            column = column.cast(pa.timestamp("us", tz="UTC" if kind == _TIMES[1] else None))
        columns.append(column)
    return type(part).from_arrays(columns, names=part.schema.names)
