"""Explains what is wrong with a ledger file, and repairs it without ever lowering what is charged."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from expost.core import InvalidRequest, LedgerUnsound, Loss
from expost.ledger.head_file import HeadFile
from expost.ledger.ledger import Ledger
from expost.ledger.ledger_file import is_missing
from expost.ledger.opening import open_ledger
from expost.ledger.source_binding import SALT

__all__ = ["Diagnosis", "diagnose_ledger", "repair_ledger"]

_RESTORE = "Restore it: expost ledger restore BACKUP LEDGER --anchor ANCHOR"
_QUESTION = "repair: entries of this ledger are missing, so all that was left counts as spent"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is wrong with a ledger file, and what a repair would do.

    ``problem`` is None for a sound ledger. ``entries`` is the number of entries in the file and ``noted`` the number of
    the newest entry in the note next to it, None where they cannot be read. ``charges`` has what a repair would charge,
    per account. ``repairable`` is whether ``repair_ledger`` can do it.
    """

    problem: str | None
    entries: int | None
    noted: int | None
    charges: dict[str, Loss]
    repairable: bool

    def explain_lines(self) -> list[str]:
        """Return the diagnosis in sentences."""
        if self.problem is None:
            return [f"The ledger is sound: {self.entries} entries. There is nothing to repair."]
        lines = [self.problem]
        if self.entries is not None:
            lines.append(f"The file has {self.entries} entries; they add up.")
        if self.entries is not None and self.noted is not None and self.noted >= self.entries:
            lines.append(f"At least {self.noted + 1 - self.entries} entries are missing, and what they charged.")
        elif self.entries is not None:
            lines.append("How many entries are missing, and what they charged, is not known.")
        lines.append("Look for the right file or a newer backup first. " + _RESTORE + ".")
        if self.repairable:
            lines.append("A repair charges all that is left, because the missing entries may have spent it:")
            lines += [f"  {name}: {loss}" for name, loss in self.charges.items()] or ["  nothing is left"]
            lines.append("It forgets stored releases, which may be older than what was shown, and writes a new note.")
        else:
            lines.append("It cannot be repaired without lowering what is charged.")
        return lines


def diagnose_ledger(path: str, *, key: str | bytes | None = None) -> Diagnosis:
    """Return what is wrong with a ledger file. Changes nothing.

    Parameters
    ----------
    path : str
        The ledger file.
    key : str or bytes, optional
        The owner's key.

    Returns
    -------
    Diagnosis
    """
    place = os.path.realpath(path.removeprefix("sqlite:///"))
    if is_missing(place):
        if not os.path.lexists(HeadFile(place).path):
            raise InvalidRequest("Expected a ledger file that exists", got=path, do="Check its path")
        problem = "The file of this ledger is missing, but not the note next to it."
        return Diagnosis(problem=problem, entries=None, noted=_read_number(place), charges={}, repairable=False)
    try:
        with open_ledger(place, key=key, create=False) as ledger:
            entries = ledger.verify().entries
        return Diagnosis(problem=None, entries=entries, noted=_read_number(place), charges={}, repairable=False)
    except LedgerUnsound as error:
        problem = str(error)
    try:
        with _open_without_note(place, key=key) as ledger:
            return Diagnosis(
                problem=problem,
                entries=ledger.verify().entries,
                noted=_read_number(place),
                charges=dict(_left_in_accounts(ledger)),
                # Accounts that a template opened in a missing entry are not known, so they cannot be charged.
                repairable=not ledger.templates(),
            )
    except LedgerUnsound:
        return Diagnosis(problem=problem, entries=None, noted=_read_number(place), charges={}, repairable=False)


def repair_ledger(path: str, *, key: str | bytes | None = None) -> Diagnosis:
    """Charge all that is left in a ledger that lost entries, and write a new note. For the owner only.

    Parameters
    ----------
    path : str
        The ledger file.
    key : str or bytes, optional
        The owner's key.

    Returns
    -------
    Diagnosis
        What was found, and charged.

    Raises
    ------
    LedgerUnsound
        If the file cannot be repaired without lowering what is charged.
    """
    found = diagnose_ledger(path, key=key)
    if found.problem is None:
        return found
    if not found.repairable:
        raise LedgerUnsound(
            "Cannot repair this ledger because that would lower what is charged", do="Restore it from a backup"
        )
    place = os.path.realpath(path.removeprefix("sqlite:///"))
    with _open_without_note(place, key=key) as ledger:
        for name in ledger.accounts():
            left = ledger.remaining(name)
            if any(left.amounts().values()):
                ledger.write_off(ledger.hold([name], left, question=_QUESTION).id)
        # A stored release may have been refined in a missing entry; refining it again would draw a second answer.
        for name in ledger._read(lambda page: [row.name for row in page.all_secrets()]):
            if name != SALT:  # without it the tables of the accounts would not be recognised
                ledger.forget(name)
        HeadFile(place).replace_note(ledger.history()[-1])
    return found


def _left_in_accounts(ledger: Ledger) -> Iterable[tuple[str, Loss]]:
    for name in ledger.accounts():
        left = ledger.remaining(name)
        if any(left.amounts().values()):
            yield name, left


def _open_without_note(path: str, *, key: str | bytes | None) -> Ledger:
    # A database library is loaded only when a database is used.
    module: Any = importlib.import_module("expost.ledger.sqlite_ledger")
    ledger: Ledger = module.SqliteLedger(path, key=key, create=False, trust_note=False)
    return ledger


def _read_number(path: str) -> int | None:
    """Return the number in the note, or None if there is none or it is damaged."""
    try:
        noted = HeadFile(path).read_note()
    except LedgerUnsound:
        return None
    return None if noted is None else noted[0]
