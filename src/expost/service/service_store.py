"""What a service remembers besides the ledger: tokens, requests and their answers, approvals, and the audit log."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from expost.core import InvalidRequest
from expost.service.access_token import Role, TokenRecord
from expost.service.question_limits import QuestionLimits

__all__ = ["LogLine", "RequestRecord", "RequestState", "ServiceStore"]

_SCHEMA_LOCK = 0x45585053  # any number that nobody else locks; "EXPS"
_TABLES = sql.MetaData()
_TOKENS = sql.Table(
    "service_tokens",
    _TABLES,
    sql.Column("token_id", sql.String(40), primary_key=True),
    sql.Column("salt", sql.LargeBinary, nullable=False),
    sql.Column("hash", sql.LargeBinary, nullable=False),
    sql.Column("role", sql.String(20), nullable=False),
    sql.Column("subject", sql.String(200), nullable=False),
    sql.Column("dataset", sql.String(200)),
    sql.Column("created", sql.String(40), nullable=False),
    sql.Column("expires", sql.String(40)),
    sql.Column("revoked", sql.String(40)),
)
_PARENTS = sql.Table(
    "service_token_parents",
    _TABLES,
    sql.Column("token_id", sql.String(40), primary_key=True),
    sql.Column("parent", sql.String(40), nullable=False, index=True),
)
_REQUESTS = sql.Table(
    "service_requests",
    _TABLES,
    sql.Column("request_id", sql.String(64), primary_key=True),
    sql.Column("subject", sql.String(200), nullable=False, index=True),
    sql.Column("dataset", sql.String(200), nullable=False),
    sql.Column("kind", sql.String(20), nullable=False),
    sql.Column("body", sql.Text, nullable=False),
    sql.Column("question", sql.Text, nullable=False),
    sql.Column("state", sql.String(20), nullable=False, index=True),
    sql.Column("worker", sql.String(80)),
    sql.Column("beat", sql.Float),
    sql.Column("created", sql.String(40), nullable=False),
    sql.Column("visible", sql.Float),
    sql.Column("kept", sql.Text),
    sql.Column("status", sql.Integer),
    sql.Column("response", sql.Text),
)
_FROZEN = sql.Table("service_frozen", _TABLES, sql.Column("dataset", sql.String(200), primary_key=True))
_CAPS = sql.Table(
    "service_caps",
    _TABLES,
    sql.Column("dataset", sql.String(200), primary_key=True),
    sql.Column("question_cap", sql.Text),
    sql.Column("approval_above", sql.Text),
)
_LOG = sql.Table(
    "service_log",
    _TABLES,
    sql.Column("line", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("at", sql.String(40), nullable=False),
    sql.Column("actor", sql.String(220), nullable=False),
    sql.Column("action", sql.String(80), nullable=False),
    sql.Column("dataset", sql.String(200)),
    sql.Column("detail", sql.Text, nullable=False),
    sql.Column("hash", sql.String(64), nullable=False),
)
_SESSIONS = sql.Table(
    "service_sessions",
    _TABLES,
    sql.Column("session_hash", sql.String(64), primary_key=True),
    sql.Column("token_id", sql.String(40), nullable=False),
    sql.Column("csrf", sql.String(64), nullable=False),
    sql.Column("expires", sql.String(40), nullable=False),
)


class RequestState:
    """The states of a request, in their order."""

    WAITING = "waiting"
    """For the owner's approval."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Its asker wants it no more; its worker ends it if there is no answer yet."""
    KEPT = "kept"
    """The answer is stored, but the ledger may not have settled it yet."""
    DONE = "done"
    UNFINISHED = (RUNNING, STOPPING, KEPT)
    """Those of a request that a worker answers."""


@dataclass(frozen=True, kw_only=True)
class RequestRecord:
    """One request as the store has it. ``response`` is what was or will be sent, with its HTTP ``status``."""

    request_id: str
    subject: str
    dataset: str
    kind: str
    body: str
    question: str
    state: str
    worker: str | None = None
    beat: float | None = None
    created: str
    visible: float | None = None
    kept: str | None = None
    status: int | None = None
    response: str | None = None


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of the audit log. ``hash`` covers the line and the one before, so that no line can be changed or removed."""

    line: int
    at: str
    actor: str
    action: str
    dataset: str | None
    detail: str
    hash: str


class ServiceStore:
    """The tables of a service in a SQLite file or a PostgreSQL database; safe for many threads and processes.

    Parameters
    ----------
    where : str
        A path, or the address of a PostgreSQL database.
    """

    def __init__(self, where: str) -> None:
        self._lite = "://" not in where
        if self._lite:
            _make_private(Path(where))
            self._engine = sql.create_engine(
                f"sqlite:///{where}", connect_args={"timeout": 60, "check_same_thread": False}
            )
            sql.event.listen(self._engine, "connect", _prepare_sqlite)
            sql.event.listen(self._engine, "begin", _begin_sqlite)
            self._readers = self._engine.execution_options(reads=True)
        elif where.startswith(("postgresql://", "postgres://")):
            address = "postgresql+psycopg://" + where.split("://", 1)[1]
            self._engine = sql.create_engine(address, pool_size=10, max_overflow=20, pool_pre_ping=True)
            self._readers = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        else:
            raise InvalidRequest(
                "Expected the state in a file or in PostgreSQL",
                got=where.split("://", 1)[0] + "://...",
                do="Pass a path, or postgresql://user@host/database",
            )
        with self._writing() as connection:
            if not self._lite:  # PostgreSQL lets two workers create one table at once, and then refuses the second
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
            _TABLES.create_all(connection)

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sql.Connection]:
        """Yield a connection for one SELECT, which waits for no writer."""
        with self._readers.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def is_reachable(self) -> bool:
        """Return whether the store can be read."""
        try:
            with self._reading() as connection:
                connection.execute(sql.select(sql.literal(1)))
        except sql.exc.SQLAlchemyError:
            return False
        return True

    # Tokens

    def add_token(self, record: TokenRecord) -> None:
        """Keep a new token."""
        with self._writing() as connection:
            _insert_token(connection, record)

    def find_token(self, token_id: str) -> TokenRecord | None:
        """Return a token by its id."""
        with self._reading() as connection:
            row = connection.execute(_TOKEN_BY_ID, {"wanted": token_id}).mappings().first()
        return None if row is None else _read_token(row)

    def list_tokens(self) -> list[TokenRecord]:
        """Return all tokens, oldest first."""
        with self._reading() as connection:
            return list(map(_read_token, connection.execute(_ALL_TOKENS.order_by(_TOKENS.c.created)).mappings()))

    def revoke_token(self, token_id: str, now: datetime.datetime) -> bool:
        """Revoke a token and end the page sessions that it opened; return whether it was there and not revoked yet.

        Tokens that it made for its holder end with it: see ``_select_tokens``.
        """
        with self._writing() as connection:
            return _revoke_token(connection, token_id, now)

    def replace_token(self, token_id: str, record: TokenRecord) -> bool:
        """Revoke a token and keep the one that comes instead of it, both or neither; return whether it was not revoked yet."""
        with self._writing() as connection:
            found = _revoke_token(connection, token_id, record.created)
            if found:
                _insert_token(connection, record)
            return found

    # Page sessions

    def open_page_session(self, cookie: str, token_id: str, csrf: str, expires: datetime.datetime) -> None:
        """Keep the hash of a cookie."""
        row = {"session_hash": _digest(cookie), "token_id": token_id, "csrf": csrf, "expires": _write_time(expires)}
        with self._writing() as connection:
            connection.execute(sql.insert(_SESSIONS), row)

    def find_page_session(self, cookie: str, now: datetime.datetime) -> tuple[str, str] | None:
        """Return the token and the CSRF text of a cookie that has not expired."""
        found = sql.select(_SESSIONS).where(_SESSIONS.c.session_hash == _digest(cookie))
        with self._reading() as connection:
            row = connection.execute(found).mappings().first()
        return None if row is None or row["expires"] <= str(_write_time(now)) else (row["token_id"], row["csrf"])

    def close_page_session(self, cookie: str) -> None:
        """Forget a cookie."""
        with self._writing() as connection:
            connection.execute(sql.delete(_SESSIONS).where(_SESSIONS.c.session_hash == _digest(cookie)))

    # Requests

    def add_request(self, record: RequestRecord, *, actor: str, at: datetime.datetime) -> RequestRecord | None:
        """Keep a new request and its line in the audit log. If there is one under its id already, return that."""
        with self._writing() as connection:
            earlier = _select_request(connection, record.request_id)
            if earlier is not None:
                return earlier
            try:
                with connection.begin_nested():
                    connection.execute(sql.insert(_REQUESTS), vars(record))
            except sql.exc.IntegrityError:  # another process was faster
                return _select_request(connection, record.request_id)
            detail = {"request": record.request_id, "question": record.question}
            self._append_line(connection, actor, record.kind, record.dataset, at, detail)
        return None

    def find_request(self, request_id: str) -> RequestRecord | None:
        """Return a request by its id."""
        with self._reading() as connection:
            return _select_request(connection, request_id)

    def list_requests(
        self, *, subject: str | None = None, dataset: str | None = None, state: str | None = None, last: int = 500
    ) -> list[RequestRecord]:
        """Return the newest requests, newest first."""
        wanted = sql.select(_REQUESTS).order_by(_REQUESTS.c.created.desc(), _REQUESTS.c.request_id).limit(last)
        for column, value in (
            (_REQUESTS.c.subject, subject),
            (_REQUESTS.c.dataset, dataset),
            (_REQUESTS.c.state, state),
        ):
            wanted = wanted if value is None else wanted.where(column == value)
        with self._reading() as connection:
            return [RequestRecord(**row) for row in connection.execute(wanted).mappings()]

    def count_requests(self, state: str) -> int:
        """Return how many requests are in a state."""
        wanted = sql.select(sql.func.count()).select_from(_REQUESTS).where(_REQUESTS.c.state == state)
        with self._reading() as connection:
            return int(connection.execute(wanted).scalar_one())

    def change_request(
        self, request_id: str, *, only_if: str | None = None, only_by: str | None = None, **changes: Any
    ) -> bool:
        """Change a request, if it is still in the state ``only_if`` and of the worker ``only_by``; return whether it was."""
        chosen = _REQUESTS.c.request_id == request_id
        chosen = chosen if only_by is None else chosen & (_REQUESTS.c.worker == only_by)
        chosen = chosen if only_if is None else chosen & (_REQUESTS.c.state == only_if)
        with self._writing() as connection:
            return connection.execute(sql.update(_REQUESTS).where(chosen).values(**changes)).rowcount == 1

    def beat(self, worker: str, now: float) -> None:
        """Say that the unfinished requests of a worker are still being answered."""
        mine = (_REQUESTS.c.worker == worker) & _REQUESTS.c.state.in_(RequestState.UNFINISHED)
        with self._writing() as connection:
            connection.execute(sql.update(_REQUESTS).where(mine).values(beat=now))

    def adopt_request(self, record: RequestRecord, worker: str, now: float) -> bool:
        """Take over a request whose worker has stopped; of several workers that try one succeeds."""
        same = (_REQUESTS.c.request_id == record.request_id) & (_REQUESTS.c.state == record.state)
        same = same & (_REQUESTS.c.worker == record.worker) & (_REQUESTS.c.beat == record.beat)
        with self._writing() as connection:
            return connection.execute(sql.update(_REQUESTS).where(same).values(worker=worker, beat=now)).rowcount == 1

    # Frozen datasets

    def freeze(self, dataset: str) -> None:
        """Refuse questions about a dataset from now on."""
        with self._writing() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(sql.insert(_FROZEN), {"dataset": dataset})
            except sql.exc.IntegrityError:  # frozen already, perhaps by another process just now
                return

    def thaw(self, dataset: str) -> None:
        """Allow questions about a dataset again."""
        with self._writing() as connection:
            connection.execute(sql.delete(_FROZEN).where(_FROZEN.c.dataset == dataset))

    def is_frozen(self, dataset: str) -> bool:
        """Return whether questions about a dataset are refused."""
        with self._reading() as connection:
            return connection.execute(sql.select(_FROZEN).where(_FROZEN.c.dataset == dataset)).first() is not None

    # Limits of questions

    def change_limits(self, dataset: str, limits: QuestionLimits) -> None:
        """Keep what the owner decided about the questions to a dataset, in the place of the file of settings."""
        row = {name: None if value is None else str(value) for name, value in vars(limits).items()}
        with self._writing() as connection:
            if not self._lite:  # two owners at once
                connection.exec_driver_sql("LOCK TABLE service_caps IN EXCLUSIVE MODE")
            connection.execute(sql.delete(_CAPS).where(_CAPS.c.dataset == dataset))
            connection.execute(sql.insert(_CAPS), {"dataset": dataset} | row)

    def find_limits(self, dataset: str) -> QuestionLimits | None:
        """Return what the owner decided about the questions to a dataset; None if nothing."""
        with self._reading() as connection:
            row = connection.execute(sql.select(_CAPS).where(_CAPS.c.dataset == dataset)).mappings().first()
        if row is None:
            return None
        names = ("question_cap", "approval_above")
        return QuestionLimits(*(None if row[name] is None else Fraction(row[name]) for name in names))

    # The audit log

    def log(self, actor: str, action: str, *, dataset: str | None, at: datetime.datetime, **detail: Any) -> None:
        """Append a line of public facts to the audit log."""
        with self._writing() as connection:
            self._append_line(connection, actor, action, dataset, at, detail)

    def _append_line(
        self,
        connection: sql.Connection,
        actor: str,
        action: str,
        dataset: str | None,
        at: datetime.datetime,
        detail: Mapping[str, Any],
    ) -> None:
        if not self._lite:  # SQLite has one writer anyway
            connection.exec_driver_sql("LOCK TABLE service_log IN EXCLUSIVE MODE")
        last = connection.execute(_NEWEST_LINE).mappings().first()
        row: dict[str, Any] = {
            "line": 1 if last is None else last["line"] + 1,
            "at": _write_time(at.replace(second=0, microsecond=0)),  # minutes: seconds would time a question
            "actor": actor,
            "action": action,
            "dataset": dataset,
            "detail": json.dumps(detail, sort_keys=True, ensure_ascii=False),
        }
        row["hash"] = _hash_line(row, "" if last is None else last["hash"])
        connection.execute(sql.insert(_LOG), row)

    def read_log(self, *, last: int = 500) -> list[LogLine]:
        """Return the newest lines of the audit log, oldest first."""
        wanted = sql.select(_LOG).order_by(_LOG.c.line.desc()).limit(last)
        with self._reading() as connection:
            return [LogLine(**row) for row in connection.execute(wanted).mappings()][::-1]

    def check_log(self) -> bool:
        """Return whether every line of the audit log is there and unchanged."""
        before, number = "", 0
        with self._reading() as connection:
            for row in connection.execute(sql.select(_LOG).order_by(_LOG.c.line)).mappings():
                number += 1
                if row["line"] != number or row["hash"] != _hash_line(row, before):
                    return False
                before = row["hash"]
        return True


def _select_request(connection: sql.Connection, request_id: str) -> RequestRecord | None:
    row = connection.execute(_REQUEST_BY_ID, {"wanted": request_id}).mappings().first()
    return None if row is None else RequestRecord(**row)


def _select_tokens() -> sql.Select[Any]:
    """Select tokens; one that a token made for itself is revoked as soon as that one is."""
    made_by = _TOKENS.alias()
    revoked = sql.func.coalesce(_TOKENS.c.revoked, made_by.c.revoked).label("revoked")
    own = [each for each in _TOKENS.c if each.name != "revoked"]
    joined = _TOKENS.outerjoin(_PARENTS, _PARENTS.c.token_id == _TOKENS.c.token_id)
    joined = joined.outerjoin(made_by, made_by.c.token_id == _PARENTS.c.parent)
    return sql.select(*own, revoked, _PARENTS.c.parent).select_from(joined)


# Every request runs these; building a statement takes longer than running it.
_ALL_TOKENS = _select_tokens()
_TOKEN_BY_ID = _ALL_TOKENS.where(_TOKENS.c.token_id == sql.bindparam("wanted"))
_REQUEST_BY_ID = sql.select(_REQUESTS).where(_REQUESTS.c.request_id == sql.bindparam("wanted"))
_NEWEST_LINE = sql.select(_LOG.c.line, _LOG.c.hash).order_by(_LOG.c.line.desc()).limit(1)


def _insert_token(connection: sql.Connection, record: TokenRecord) -> None:
    row = vars(record) | {"role": record.role.value}
    times = {name: _write_time(row[name]) for name in ("created", "expires", "revoked")}
    parent = row.pop("parent")
    connection.execute(sql.insert(_TOKENS), row | times)
    if parent is not None:
        connection.execute(sql.insert(_PARENTS), {"token_id": record.token_id, "parent": parent})


def _revoke_token(connection: sql.Connection, token_id: str, now: datetime.datetime) -> bool:
    usable = (_TOKENS.c.token_id == token_id) & (_TOKENS.c.revoked.is_(None))
    connection.execute(sql.delete(_SESSIONS).where(_SESSIONS.c.token_id == token_id))
    return connection.execute(sql.update(_TOKENS).where(usable).values(revoked=_write_time(now))).rowcount == 1


def _read_token(row: Mapping[Any, Any]) -> TokenRecord:
    times = {name: _read_time(row[name]) for name in ("expires", "revoked")}
    created = datetime.datetime.fromisoformat(row["created"])
    return TokenRecord(**{**row, **times, "created": created, "role": Role(row["role"])})


def _write_time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _read_time(text: str | None) -> datetime.datetime | None:
    return None if text is None else datetime.datetime.fromisoformat(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_line(row: Mapping[Any, Any], before: str) -> str:
    facts = [row["line"], row["at"], row["actor"], row["action"], row["dataset"], row["detail"], before]
    return _digest(json.dumps(facts, ensure_ascii=False))


def _make_private(path: Path) -> None:
    """Create the file for its owner alone: it has answers that were paid for by single analysts."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        raise InvalidRequest("Expected a file that can be written", got=str(path), do="Create its folder") from None


def _begin_sqlite(connection: sql.Connection) -> None:
    """Begin a transaction: a writer waits for its turn here and not in the middle, a reader waits for nobody."""
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get("reads") else "BEGIN IMMEDIATE")


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun by the engine's own event
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
