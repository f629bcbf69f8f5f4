import pytest

from expost.core import LedgerUnsound
from expost.ledger.entry import Entry, Kind
from expost.ledger.head import HeadFile
from expost.ledger.memory import MemoryLedger


def test_a_note_is_one_line_that_grows_in_place(tmp_path):
    note = HeadFile(str(tmp_path / "a.ledger"))
    first = Entry.after(None, Kind.BEGIN, {})
    second = Entry.after(first, Kind.OPEN, {})
    note.note(first)
    note.note(second)

    assert (tmp_path / "a.ledger.head").read_text() == f"{1:020d} {second.hash}\n"


def test_a_note_fits_the_ledger_it_was_made_for_and_no_other(tmp_path):
    mine, other = MemoryLedger(), MemoryLedger()
    note = HeadFile(str(tmp_path / "a.ledger"))
    mine._read(note.check)  # no note yet
    note.note(mine.history()[-1])

    mine._read(note.check)
    with pytest.raises(LedgerUnsound, match="another ledger"):
        other._read(note.check)


def test_a_note_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "a.ledger.head").mkdir()

    with pytest.raises(LedgerUnsound, match="write the note"):
        HeadFile(str(tmp_path / "a.ledger")).note(Entry.after(None, Kind.BEGIN, {}))
