"""The engine of PostgreSQL tables and views, streamed as Arrow batches."""

from __future__ import annotations

import copy
import importlib
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest, MissingExtra
from expost.data.bounding import Atoms
from expost.data.canonical_cell import Kind
from expost.data.engines.engine import (
    ROWS_PER_BATCH,
    Engine,
    batch_rows_for,
    fold_results,
    quote_name,
    run_parallel,
)
from expost.data.expression import Expression
from expost.data.pushed_filter import SqlWriter, push_filter
from expost.data.source_identity import SourceIdentity
from expost.data.unit_shard import MEMORY_LIMIT

__all__ = ["PostgresEngine"]

T = TypeVar("T")

try:
    dbapi: Any = importlib.import_module("adbc_driver_postgresql.dbapi")
except ImportError:  # the extra is not installed
    dbapi = None

_PLAIN = {16: pa.bool_(), 21: pa.int16(), 23: pa.int32(), 20: pa.int64(), 700: pa.float32(), 701: pa.float64()}
_NUMERIC, _DATE, _TIMES = 1700, 1082, (1114, 1184)
_LONGEST_TEXT = 1 << 16
# Columns by which the server filters as this package would. It could fail on a numeric, and a float4 meets rounded constants.
_FILTERED = {
    16: Kind.BOOLEAN, 21: Kind.INTEGER, 23: Kind.INTEGER, 20: Kind.INTEGER, 701: Kind.REAL, 25: Kind.TEXT, 1043: Kind.TEXT,
    1082: Kind.TIME, 1114: Kind.TIME, 1184: Kind.TIME,
}  # fmt: skip
_WORTH, _MOST_DISTINCT = 8, 1 << 20  # equal rows, for each distinct one, that pay for grouping on the server
_COUNT = "rows of the server"
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
        self._where: str | None = None
        self._origin: PostgresEngine | None = None
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
        where = "" if self._where is None else f" WHERE {self._where}"
        return f"SELECT {chosen or 'TRUE AS present'} FROM {self._table}{where}"

    def _write_groups(self, columns: Sequence[str]) -> str:
        """Write the query of the distinct rows and of how often each occurs. Texts are equal if their bytes are."""
        names = map(quote_name, columns)
        chosen = [
            _select_column(name, self._kinds[raw])
            + ("" if _is_plain(self._kinds[raw]) else ' COLLATE "C"')
            + f" AS {name}"
            for raw, name in zip(columns, names, strict=True)
        ]
        where = "" if self._where is None else f" WHERE {self._where}"
        keys = ", ".join(map(str, range(1, len(chosen) + 1)))
        count = f"count(*) AS {quote_name(_COUNT)}"
        return f"SELECT {', '.join([*chosen, count])} FROM {self._table}{where}" + (f" GROUP BY {keys}" if keys else "")

    @property
    def schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    def narrow(self, condition: Expression) -> Engine:
        kinds = {name: _FILTERED[kind] for name, kind in self._kinds.items() if kind in _FILTERED}
        found = push_filter(condition, kinds, SqlWriter())
        if found is None:
            return self
        narrow = copy.copy(self)
        narrow._origin = self  # the snapshot ends with the engine that opened it
        narrow._where = found if self._where is None else f"{self._where} AND {found}"
        return narrow

    def reduce(self, function: Callable[[pa.RecordBatch], T], merge: Callable[[T, T], T], columns: Sequence[str]) -> T:
        """Return the merged results, as every engine does. Where many rows are equal, the server counts them.

        The result of a row that occurs often is merged with itself, which gives the same bits as reading the row so often.
        """
        if not self._repeats(columns):
            return super().reduce(function, merge, columns)
        results = run_parallel(_OfCounted(function, merge), self._count_groups(columns))
        return fold_results(merge, results, otherwise=lambda: function(self._empty_batch(columns)))

    def by_unit(
        self,
        key: Callable[[pa.RecordBatch], Atoms],
        function: Callable[[Atoms], T],
        columns: Sequence[str],
        *,
        merge: Callable[[T, T], T],
        secret: bytes,
        memory_limit: int = MEMORY_LIMIT,
    ) -> T:
        terms: dict[str, Any] = {"merge": merge, "secret": secret, "memory_limit": memory_limit}
        if not self._repeats(columns):
            streamed: T = super().by_unit(key, function, columns, **terms)
            return streamed
        made: T = _Repeated(self).by_unit(key, function, columns, **terms)
        return made

    def _repeats(self, columns: Sequence[str]) -> bool:
        """Return whether the server expects many equal rows. Only the way of reading depends on it, and no result."""
        if not columns:
            return True
        with _connect(self._url, self._snapshot) as connection:
            queries = self._write_query(columns), self._write_groups(columns)
            plans = [_fetch_rows(connection, f"EXPLAIN (FORMAT JSON) {query}", copies=False)[0][0] for query in queries]
        rows, distinct = (int(json.loads(str(plan))[0]["Plan"]["Plan Rows"]) for plan in plans)
        return bool(distinct <= _MOST_DISTINCT and rows >= _WORTH * distinct)

    def _count_groups(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the distinct rows, with how often each occurs in a last column."""
        yield from self._stream(self._write_groups(columns), batch_rows_for(len(columns)))

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        yield from self._stream(self._write_query(columns), rows_per_batch)

    def _stream(self, query: str, rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        with _connect(self._url, self._snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(query)
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


@dataclass(frozen=True)
class _OfCounted(Generic[T]):
    """A function of batches as one of distinct rows and their counts: results of equal rows are merged by doubling."""

    function: Callable[[pa.RecordBatch], T]
    merge: Callable[[T, T], T]

    def __call__(self, counted: pa.RecordBatch) -> T:
        rows, counts = _split_counts(counted)
        found: list[T] = []
        for bit in reversed(range(int(counts.max(initial=0)).bit_length())):
            found = [self.merge(each, each) for each in found]
            some = (counts >> bit & 1).astype(bool)
            if some.any():
                result = self.function(rows.filter(pa.array(some)))
                found = [self.merge(found[0], result)] if found else [result]
        return found[0] if found else self.function(rows.slice(0, 0))


class _Repeated(Engine):
    """Reads the rows that the server counted, each as often as it occurs."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    @property
    def schema(self) -> pa.Schema:
        return self._engine.schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        for counted in self._engine._count_groups(columns):
            rows, counts = _split_counts(counted)
            ends = np.cumsum(counts)
            for start in range(0, int(ends[-1]) if len(ends) else 0, rows_per_batch):
                places = np.arange(start, min(start + rows_per_batch, int(ends[-1])))
                yield rows.take(pa.array(np.searchsorted(ends, places, side="right")))


def _split_counts(counted: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Return distinct rows and how often each occurs."""
    *columns, counts = counted.columns
    names = counted.schema.names[:-1]
    if not columns:  # without columns a batch of Arrow has no rows, so it keeps one
        columns, names = [counts], counted.schema.names
    return pa.RecordBatch.from_arrays(columns, names=names), np.asarray(counts.to_numpy(), np.int64)


def _is_plain(kind: int) -> bool:
    """Return whether ``_select_column`` gives a number, a truth value or a time, and not a text."""
    return kind in _PLAIN or kind in (_NUMERIC, _DATE, *_TIMES)


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
                "standard_conforming_strings TO on",
            ):
                cursor.execute(f"SET {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _fetch_rows(connection: Any, query: str, *, copies: bool = True) -> list[tuple[Any, ...]]:
    """Run a query on the catalogue. The driver wraps it into COPY unless told otherwise."""
    with connection.cursor() as cursor:
        if not copies:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
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
