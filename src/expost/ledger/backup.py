"""Copies a ledger that is in use, and puts such a copy back.

Copying the file itself forgets what is in its log, and a plain copy has the budget again. A backup is consistent,
verified, and cannot be used as a ledger before it is restored; an anchor kept elsewhere shows whether it is the newest.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from urllib.parse import quote

from expost.core import InvalidRequest, LedgerUnsound
from expost.ledger.anchor import check_anchor
from expost.ledger.fork_gate import FORK_GATE
from expost.ledger.head_file import HeadFile
from expost.ledger.ledger_entry import sequence_of
from expost.ledger.ledger_file import BACKUP_ID, LEDGER_ID, create_whole, is_missing
from expost.ledger.opening import open_ledger
from expost.ledger.verification import Report

__all__ = ["back_up_ledger", "restore_ledger"]

_PATIENCE_SECONDS = 30.0


def back_up_ledger(where: str, target: str, *, key: str | bytes | None = None) -> str:
    """Write a consistent, verified copy of a ledger file that may be in use.

    Parameters
    ----------
    where : str
        The ledger file.
    target : str
        The file to write; it must not exist.
    key : str or bytes, optional
        The owner's key, which signs the anchor. Without it ``EXPOST_LEDGER_KEY`` is read.

    Returns
    -------
    str
        The anchor of the newest entry in the copy.

    Raises
    ------
    InvalidRequest
        If there is a file already.
    LedgerUnsound
        If the ledger, or the copy, does not add up.
    """
    source, place = _resolve_path(where), _resolve_path(target)
    _check_free(place, "back up to")
    anchors = []

    def fill(draft: str) -> None:
        with open_ledger(source, key=key, create=False) as ledger:
            before = ledger.anchor()
            _copy_database(source, draft)
        with open_ledger(draft, key=key, create=False) as copy:
            copy.verify(anchor=before)
            anchors.append(copy.anchor())
        _set_kind(draft, BACKUP_ID)

    _create_copy(place, fill)
    return anchors[0]


def restore_ledger(backup: str, target: str, *, anchor: str, key: str | bytes | None = None) -> Report:
    """Put a backup in the place of a ledger that is gone.

    Parameters
    ----------
    backup : str
        A file that ``back_up_ledger`` wrote.
    target : str
        The ledger file to write; it must not exist.
    anchor : str
        The newest anchor that the owner has. A backup that lacks its entry is older, and refused.
    key : str or bytes, optional
        The owner's key, which signed the anchor. Without it ``EXPOST_LEDGER_KEY`` is read.

    Returns
    -------
    Report
        What the restored ledger contains.

    Raises
    ------
    InvalidRequest
        If there is a ledger already, or ``backup`` is not a backup.
    LedgerUnsound
        If entries would be lost, or the backup does not add up.
    """
    source, place = _resolve_path(backup), _resolve_path(target)
    _check_free(place, "restore to")
    if is_missing(source) or _read_kind(source) != BACKUP_ID:
        raise InvalidRequest("Expected a backup of a ledger", got=backup, do="Make one with expost ledger backup")
    head, reports = HeadFile(place), []
    noted = head.read_note()

    def fill(draft: str) -> None:
        _copy_database(source, draft)
        _set_kind(draft, LEDGER_ID)
        with open_ledger(draft, key=key, create=False) as copy:
            newest = copy.history()[-1].sequence
            missing = max(sequence_of(anchor.partition(".")[0]), -1 if noted is None else noted[0]) - newest
            if missing > 0:
                raise LedgerUnsound(
                    f"Cannot restore because the backup lacks at least {missing} of the newest entries, "
                    "and what they charged",
                    do="Find a newer backup",
                )
            copy._read(partial(check_anchor, safe=copy._safe, anchor=anchor, signed=True))
            copy._read(lambda page: head.check_note(page, noted))
            reports.append((copy.verify(), copy.history()[-1]))

    _create_copy(place, fill)
    report, last = reports[0]
    head.replace_note(last)
    return report


def _resolve_path(path: str) -> str:
    return os.path.realpath(path.removeprefix("sqlite:///"))


def _check_free(place: str, purpose: str) -> None:
    """Refuse a place where there is a file, or the log of one."""
    if not is_missing(place) or os.path.exists(place + "-wal"):
        raise InvalidRequest(
            f"Expected a new file to {purpose}", got=place, do="Name another; nothing is replaced by this command"
        )


def _create_copy(place: str, fill: Callable[[str], None]) -> None:
    """Write a whole file, with our own error for what the disk or SQLite refuses."""
    try:
        create_whole(place, fill, patience=_PATIENCE_SECONDS)
    except (OSError, sqlite3.Error):
        raise LedgerUnsound(
            "Cannot copy this ledger because a file cannot be read or written", do="Check both files and their disk"
        ) from None


def _connect(path: str) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None))


def _copy_database(source: str, target: str) -> None:
    """Copy one state of a database, the entries in its log included."""
    with FORK_GATE.pass_through(), _connect(source) as old, _connect(target) as new:
        old.backup(new)


def _read_kind(path: str) -> int:
    try:
        with FORK_GATE.pass_through(), _connect(path) as connection:
            kind: int = connection.execute("PRAGMA application_id").fetchone()[0]
            return kind
    except sqlite3.Error:
        return 0


def _set_kind(path: str, kind: int) -> None:
    """Write the application id into the file itself, not into a log."""
    with FORK_GATE.pass_through(), _connect(path) as connection:
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute(f"PRAGMA application_id = {kind}")
