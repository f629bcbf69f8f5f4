"""A note beside a ledger file of how far it had grown, to notice an older copy put in its place."""

from __future__ import annotations

import os
import re

from expost.core import LedgerUnsound
from expost.ledger.entry import Entry
from expost.ledger.page import Page

__all__ = ["HeadFile"]

_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")
_LENGTH = 20 + 1 + 64 + 1


class HeadFile:
    """The number and hash of an entry that was durable when the next one was written.

    It is written inside the transaction of the *next* entry, while the database lets nobody else write: so it never
    runs ahead of the file, not even in a crash, and it never goes back. An answer leaves after two entries (hold,
    settle), hence every answer that left has its hold covered by the note.
    """

    def __init__(self, ledger_path: str) -> None:
        self.path = ledger_path + ".head"

    def read(self) -> tuple[int, str] | None:
        """The number and hash in the note; a missing note says nothing.

        Read it before a transaction takes its snapshot: a note read later may be of an entry that came in between.
        """
        try:
            content = self._steady()
        except FileNotFoundError:
            return None
        except OSError:
            raise self._unsound("Expected the note of the ledger's head to be readable") from None
        match = _LINE.fullmatch(content)
        if match is None:
            raise self._unsound("Expected the note of the ledger's head to be whole")
        return int(match[1]), match[2].decode()

    def _steady(self) -> bytes:
        """The same content twice: what is read while somebody writes may be half of each."""
        before = None
        while True:
            with open(self.path, "rb") as file:
                content = file.read(_LENGTH + 1)
            if content == before:
                return content
            before = content

    def check(self, page: Page, noted: tuple[int, str] | None) -> None:
        """Compare what was noted with the ledger."""
        if noted is None:
            return
        entry = page.entry(noted[0])
        if entry is None or entry.hash != noted[1]:
            raise self._unsound("Expected the newest known entry; an older copy or another ledger was put in place")

    def note(self, committed: Entry) -> None:
        """Note a durable entry; one write of one fixed-length line, so there is no half of it."""
        line = b"%020d %s\n" % (committed.sequence, committed.hash.encode())
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                written = os.pwrite(descriptor, line, 0)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        if written != _LENGTH:
            raise self._unsound("Expected to write the note of the ledger's head")

    def _unsound(self, expected: str) -> LedgerUnsound:
        return LedgerUnsound(expected, do=f"Find the right ledger file, or let its owner delete {self.path}")
