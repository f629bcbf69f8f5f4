"""Finding the ledger a caller names."""

from __future__ import annotations

import importlib
import os
from typing import cast

from expost.core import Guarantee, InvalidRequest, PureGuarantee
from expost.ledger.ledger import Ledger
from expost.ledger.memory import MemoryLedger

__all__ = ["existing_ledger", "ledger_with_account", "open_ledger"]

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def open_ledger(
    where: str | os.PathLike[str] | Ledger | None = None, *, key: str | bytes | None = None, create: bool = True
) -> Ledger:
    """The ledger at a file, a server, or in memory when nothing is named.

    ``where`` is a path, ``"sqlite:///path"`` or ``"postgresql://user@host/database"``. ``key`` opens the kept secrets;
    without it ``EXPOST_LEDGER_KEY`` is read. With ``create=False`` a ledger that is not there is an error.

    >>> open_ledger(None)
    MemoryLedger()
    >>> open_ledger("mysql://host/db")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a ledger in a file or in PostgreSQL, got 'mysql://...'. Pass ...
    """
    if isinstance(where, Ledger):
        return where
    if where is None:
        return MemoryLedger(key=key)
    place = _place(where)
    # A database library is loaded only when a database is used.
    if place.startswith(_POSTGRES):
        return cast(
            Ledger, importlib.import_module("expost.ledger.postgres").PostgresLedger(place, key=key, create=create)
        )
    return cast(Ledger, importlib.import_module("expost.ledger.sqlite").SqliteLedger(place, key=key, create=create))


def existing_ledger(where: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """The same where an account must be there already: None instead of a new file.

    >>> existing_ledger("no-such.ledger") is None
    True
    """
    if where is None or isinstance(where, Ledger):
        return open_ledger(where)
    place = _place(where)
    return open_ledger(where, create=False) if place.startswith(_POSTGRES) or os.path.exists(place) else None


def ledger_with_account(where: str | os.PathLike[str] | None, account: str, *, promise: Guarantee) -> Ledger:
    """The ledger that one training is paid from: the one named, which must have the account.

    When none is named, one in memory whose account has just what the training can cost.

    >>> from expost.core import epsilon
    >>> ledger_with_account(None, "dataset:table", promise=epsilon(1)).remaining("dataset:table").epsilon
    Fraction(1, 1)
    """
    if where is None:
        ledger = open_ledger(None)
        ledger.open_account(account, promise)
        return ledger
    if not isinstance(where, str | os.PathLike):
        # A copy of a ledger in memory, as scikit-learn's clone makes one, would be billed instead of the original.
        raise InvalidRequest("Expected ledger to be a path or a URL", do='Pass "flights.ledger"')
    found = existing_ledger(where)
    if found is not None:
        if account in found.accounts():
            return found
        found.close()
    budget = "expost.epsilon(1.0)" if isinstance(promise, PureGuarantee) else "expost.approx(1.0, 1e-6)"
    raise InvalidRequest(
        f"Expected the account {account!r} in the ledger",
        do=f"Open it once: expost.open_ledger(path).open_account({account!r}, {budget})",
    )


def _place(where: object) -> str:
    """The address of a server, or the path of a file."""
    text = os.fspath(where) if isinstance(where, str | os.PathLike) else where
    if not isinstance(text, str) or not text or "\x00" in text:
        raise _unknown(text)
    path = text.removeprefix(_SQLITE)
    if not text.startswith(_POSTGRES) and ("://" in path or path in {"", ":memory:"}):
        raise _unknown(text)
    return path


def _unknown(where: object) -> InvalidRequest:
    return InvalidRequest(
        "Expected a ledger in a file or in PostgreSQL",
        got=where.partition("://")[0] + "://..." if isinstance(where, str) and "://" in where else where,
        do='Pass "flights.ledger", "sqlite:///flights.ledger", "postgresql://host/database", or None for memory',
    )
