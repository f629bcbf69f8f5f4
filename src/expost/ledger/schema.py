"""The tables as they stand after all migrations."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, Table, Text

__all__ = ["ACCOUNTS", "ENTRIES", "HOLDS", "MIGRATIONS", "SECRETS"]

_METADATA = MetaData()

MIGRATIONS = Table(
    "ledger_migrations",
    _METADATA,
    Column("number", BigInteger, primary_key=True),
    Column("name", Text, nullable=False),
    Column("at", Text, nullable=False),
)
ENTRIES = Table(
    "ledger_entries",
    _METADATA,
    Column("sequence", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
ACCOUNTS = Table(
    "ledger_accounts",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("budget", Text, nullable=False),
    Column("spent", Text, nullable=False),
    Column("used", BigInteger, nullable=False),
    Column("entry", BigInteger, nullable=False),
    Column("own", Text, nullable=False),
    Column("part_of", Text),
    Column("part_by", Text),
    Column("touching", BigInteger),
)
HOLDS = Table(
    "ledger_holds",
    _METADATA,
    Column("entry", BigInteger, primary_key=True),
    Column("request_id", Text),
    Column("ticket", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("closed_by", BigInteger),
)
SECRETS = Table(
    "ledger_secrets",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("box", LargeBinary, nullable=False),
    Column("entry", BigInteger, nullable=False),
)
