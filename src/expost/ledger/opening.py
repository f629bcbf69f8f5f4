"""Opens the ledger that a caller names."""

from __future__ import annotations

import importlib
import os
from typing import cast

from expost.core import Guarantee, InvalidRequest, PureGuarantee, explain_arguments
from expost.ledger.ledger import Ledger
from expost.ledger.memory_ledger import MemoryLedger

__all__ = ["open_existing_ledger", "open_ledger", "open_ledger_for"]

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


@explain_arguments
def open_ledger(
    where: str | os.PathLike[str] | Ledger | None = None, *, key: str | bytes | None = None, create: bool = True
) -> Ledger:
    """Open the ledger in a file, on a server, or in memory.

    Parameters
    ----------
    where : str, path, Ledger or None, default None
        A path, ``"sqlite:///path"`` or ``"postgresql://user@host/database"``. None opens a new ledger in memory, and a
        ``Ledger`` is returned as it is.
    key : str or bytes, optional
        Opens the kept secrets; see ``new_key``. Without it the environment variable ``EXPOST_LEDGER_KEY`` is read.
    create : bool, default True
        Whether a ledger that does not exist is created.

    Returns
    -------
    Ledger

    Raises
    ------
    InvalidRequest
        If ``where`` names no supported storage, or nothing exists there and ``create`` is false.
    LedgerUnsound
        If the ledger cannot be read, or does not add up.

    Examples
    --------
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
    place = _check_place(where)
    # A database library is loaded only when a database is used.
    if place.startswith(_POSTGRES):
        module, name = "expost.ledger.postgres_ledger", "PostgresLedger"
    else:
        module, name = "expost.ledger.sqlite_ledger", "SqliteLedger"
    return cast(Ledger, getattr(importlib.import_module(module), name)(place, key=key, create=create))


def open_existing_ledger(where: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """Open a ledger without ever creating a file: return None if there is none.

    >>> open_existing_ledger("no-such.ledger") is None
    True
    """
    if where is None or isinstance(where, Ledger):
        return open_ledger(where)
    place = _check_place(where)
    return open_ledger(where, create=False) if place.startswith(_POSTGRES) or os.path.exists(place) else None


def open_ledger_for(where: str | os.PathLike[str] | None, account: str, *, promise: Guarantee) -> Ledger:
    """Open the ledger that one training is paid from; it must have the account.

    When none is named, return one in memory whose account has just what the training can cost.

    >>> from expost.core import epsilon
    >>> open_ledger_for(None, "dataset:table", promise=epsilon(1)).remaining("dataset:table").epsilon
    Fraction(1, 1)
    """
    if where is None:
        ledger = open_ledger(None)
        ledger.open_account(account, promise)
        return ledger
    if not isinstance(where, str | os.PathLike):
        # A copy of a ledger in memory, as scikit-learn's clone makes one, would be billed instead of the original.
        raise InvalidRequest("Expected ledger to be a path or a URL", do='Pass "flights.ledger"')
    found = open_existing_ledger(where)
    if found is not None:
        if account in found.accounts():
            return found
        found.close()
    pure = isinstance(promise, PureGuarantee)
    budget, options = ("1.0", "--epsilon 1") if pure else ("(1.0, 1e-6)", "--epsilon 1 --delta 1e-6")
    raise InvalidRequest(
        f"Expected the account {account!r} in the ledger",
        do=f"Have the owner open it: expost ledger budget LEDGER {account} {options}, or in Python: "
        f"expost.open_ledger(path).open_account({account!r}, {budget})",
    )


def _check_place(where: object) -> str:
    """Return the address of a server, or the path of a file."""
    text = os.fspath(where) if isinstance(where, str | os.PathLike) else where
    if isinstance(text, str) and text and "\x00" not in text:
        path = text.removeprefix(_SQLITE)
        if text.startswith(_POSTGRES) or ("://" not in path and path not in {"", ":memory:"}):
            return path
    raise InvalidRequest(
        "Expected a ledger in a file or in PostgreSQL",
        got=text.partition("://")[0] + "://..." if isinstance(text, str) and "://" in text else text,
        do='Pass "flights.ledger", "sqlite:///flights.ledger", "postgresql://host/database", or None for memory',
    )
