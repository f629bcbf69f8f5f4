import pytest

from expost.core import LedgerUnsound, epsilon
from expost.ledger import open_ledger
from expost.ledger.entry import Entry, Kind
from expost.ledger.head import HeadFile
from expost.ledger.memory import MemoryLedger
from expost.ledger.sqlpage import SqlPage


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
    mine._read(lambda page: note.check(page, note.read()))  # no note yet
    note.note(mine.history()[-1])

    mine._read(lambda page: note.check(page, note.read()))
    with pytest.raises(LedgerUnsound, match="another ledger"):
        other._read(lambda page: note.check(page, note.read()))


def test_a_note_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "a.ledger.head").mkdir()

    with pytest.raises(LedgerUnsound, match="write the note"):
        HeadFile(str(tmp_path / "a.ledger")).note(Entry.after(None, Kind.BEGIN, {}))


def test_a_reader_is_not_alarmed_by_entries_that_come_after_its_snapshot(tmp_path, monkeypatch):
    with open_ledger(tmp_path / "a.ledger") as reader, open_ledger(tmp_path / "a.ledger") as writer:
        writer.open_account("dataset:a", epsilon(1))
        last, pending = SqlPage.last, ["dataset:b", "dataset:c", "dataset:d"]

        def meanwhile(page):
            """The first look of a transaction is its snapshot; right after it somebody else writes."""
            found = last(page)
            names, pending[:] = list(pending), []
            for name in names:
                writer.open_account(name, epsilon(1))
            return found

        monkeypatch.setattr(SqlPage, "last", meanwhile)

        assert reader.accounts() == ["dataset:a"]
        assert reader.accounts() == ["dataset:a", "dataset:b", "dataset:c", "dataset:d"]
