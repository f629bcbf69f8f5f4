"""The note next to a ledger file that detects an older copy."""

from __future__ import annotations

import os
import re

from expost.core import LedgerUnsound
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_file import open_private, put_in_place
from expost.ledger.ledger_page import LedgerPage

__all__ = ["HeadFile"]

_NOTE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")
_NOTE_LENGTH = 20 + 1 + 64 + 1


class HeadFile:
    """A file next to the ledger with the number and hash of an entry that was durable when the next one was written.

    It is written inside the transaction of the *next* entry, while the database lets nobody else write: so it never
    runs ahead of the ledger, not even in a crash, and it never goes back. An answer leaves after two entries (hold,
    settle), hence every answer that left has its hold covered by the note.
    """

    def __init__(self, ledger_path: str) -> None:
        self._ledger_path, self.path = ledger_path, ledger_path + ".head"

    def read_note(self) -> tuple[int, str] | None:
        """Return the number and hash in the note, or None without a note.

        Read it before a transaction takes its snapshot: a note read later may be of an entry that came in between.
        """
        content, before = b"", None
        try:
            while content != before:  # the same content twice: what is read during a write may be half of each
                before = content
                with open(self.path, "rb") as file:
                    content = file.read(_NOTE_LENGTH + 1)
        except FileNotFoundError:
            return None
        except PermissionError:  # whoever may not read the note may not write the ledger
            raise LedgerUnsound(
                "Cannot use this ledger because it is read-only", do="Make the file and its folder writable"
            ) from None
        except OSError:
            raise self.refuse("the note of its head cannot be read") from None
        if not content:  # earlier versions created the file first, and a crash could leave it empty
            return None
        match = _NOTE.fullmatch(content)
        if match is None:
            raise self.refuse("the note of its head is damaged")
        return int(match[1]), match[2].decode()

    def check_note(self, page: LedgerPage, noted: tuple[int, str] | None) -> None:
        """Compare what was noted with the ledger."""
        if noted is not None:
            entry = page.find_entry(noted[0])
            if entry is None or entry.hash != noted[1]:
                raise self.refuse("the newest known entry is missing: this is an older copy or another ledger")

    def write_note(self, committed: LedgerEntry) -> None:
        """Note a durable entry, in one write of one line of fixed length, so that it is never half written."""
        try:
            written = self._write_line(_spell_note(committed))
        except OSError:
            written = 0
        if written != _NOTE_LENGTH:
            raise self.refuse("the note of its head cannot be written")

    def _write_line(self, line: bytes) -> int:
        """Write the note in place, or as a whole file if there is none; return how much was written."""
        # Only the one process in a writing transaction gets here, so the name of the draft is free.
        exists, draft = os.path.lexists(self.path), self.path + ".new"
        place = self.path if exists else draft
        flags = os.O_WRONLY if exists else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = open_private(place, flags, like=self._ledger_path)
        try:
            written = os.pwrite(descriptor, line, 0)
        finally:
            os.close(descriptor)
        if not exists and written == _NOTE_LENGTH:
            put_in_place(draft, self.path)
        return written

    def replace_note(self, committed: LedgerEntry) -> None:
        """Write a new note in place of any other. For an owner who restores or repairs the ledger."""
        draft = self.path + ".new"
        descriptor = open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, like=self._ledger_path)
        try:
            os.write(descriptor, _spell_note(committed))
        finally:
            os.close(descriptor)
        put_in_place(draft, self.path)

    def refuse(self, reason: str) -> LedgerUnsound:
        """Return the error for a note that does not fit."""
        return LedgerUnsound(
            f"Cannot trust this ledger because {reason}",
            do=f'Find the right file or a backup of it. "expost ledger repair {self._ledger_path}" shows what is missing',
        )


def _spell_note(committed: LedgerEntry) -> bytes:
    return b"%020d %s\n" % (committed.sequence, committed.hash.encode())
