import os
import pickle
import sqlite3
import threading
from fractions import Fraction

import pytest

from expost.core import InvalidRequest, LedgerBusy, LedgerUnsound, PureLoss, epsilon
from expost.ledger import open_ledger
from expost.ledger.ledger_entry import EntryKind, LedgerEntry
from expost.ledger.memory_ledger import MemoryLedger
from expost.ledger.sql_table import SqlPage
from expost.ledger.sqlite_ledger import HeadFile, SqliteLedger


@pytest.fixture
def ledger(tmp_path):
    with SqliteLedger(str(tmp_path / "a.ledger")) as ledger:
        ledger.open_account("dataset:a", epsilon(1))
        yield ledger


def test_the_file_says_that_it_is_a_ledger(ledger):
    with sqlite3.connect(ledger.path) as raw:
        assert raw.execute("PRAGMA application_id").fetchone()[0].to_bytes(4, "big") == b"EXPT"
    raw.close()


def test_totals_are_stored_exactly_and_in_parts_rounded_up(ledger):
    ledger.hold(["dataset:a"], PureLoss(Fraction(1, 3)), question="q")
    raw = sqlite3.connect(ledger.path)
    spent, used = raw.execute("SELECT spent, used FROM ledger_accounts").fetchone()
    raw.close()

    assert spent == '{"definition":"pure","epsilon":"1/3"}'
    assert used == 333333333333333334


def test_a_total_that_slipped_past_the_rules_is_stopped_by_the_database(ledger):
    def overspend(page):
        account = page.find_account("dataset:a")
        page.put_account(account.add_charge(PureLoss(2)).with_total([], entry=account.entry))

    with pytest.raises(LedgerUnsound, match="within their budgets"):
        ledger._write(overspend)
    assert ledger.spent("dataset:a") == PureLoss(0)


def test_threads_wait_for_their_turn_and_a_lasting_jam_is_an_error(ledger, monkeypatch):
    entered, leave = threading.Event(), threading.Event()

    def dawdle(page):
        entered.set()
        leave.wait(10)

    slow = threading.Thread(target=lambda: ledger._write(dawdle))
    slow.start()
    entered.wait(10)
    monkeypatch.setattr("expost.ledger.sql_ledger.PATIENCE_SECONDS", 0.1)
    with pytest.raises(LedgerBusy, match="kept it locked"):
        ledger.remaining("dataset:a")
    leave.set()
    slow.join()

    assert ledger.remaining("dataset:a") == PureLoss(1)


def test_the_log_is_checked_after_the_commit_while_the_connection_is_open(ledger, monkeypatch):
    open_then = []
    monkeypatch.setattr(ledger, "_check_kept", lambda: open_then.append(ledger._leases))

    ledger.hold(["dataset:a"], PureLoss(0.5), question="q")

    assert open_then == [1]


def test_a_handle_that_another_thread_closes_again_and_again_is_not_alarmed(ledger):
    done = threading.Event()

    def close():
        while not done.is_set():
            ledger.close()

    closer = threading.Thread(target=close)
    closer.start()
    try:
        for _ in range(30):
            ledger.hold(["dataset:a"], PureLoss(Fraction(1, 100)), question="q")
    finally:
        done.set()
        closer.join()

    assert ledger.spent("dataset:a") == PureLoss(Fraction(3, 10))


def test_an_unknown_failure_of_the_driver_is_our_error_without_its_words(ledger):
    def fail(page):
        raise sqlite3.InternalError("secret rows")

    with pytest.raises(LedgerUnsound, match="the database failed") as caught:
        ledger._write(fail)
    assert "secret" not in str(caught.value)


def test_a_ledger_that_vanished_is_not_begun_anew(ledger):
    reference = pickle.dumps(ledger)
    ledger.close()
    os.unlink(ledger.path)

    with pytest.raises(LedgerUnsound, match="file cannot be opened"):
        ledger.remaining("dataset:a")
    with pytest.raises(InvalidRequest, match="that exists"):
        pickle.loads(reference)
    assert not os.path.exists(ledger.path)


def test_a_damaged_page_that_holds_no_text_is_unsound(ledger):
    ledger.close()
    raw = sqlite3.connect(ledger.path)
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    with open(ledger.path, "r+b") as file:
        content = file.read()
        file.seek(content.index(b"CREATE TABLE ledger_entries") + 8)
        file.write(b"\xc1")  # SQLite repeats the schema in its message, and the driver cannot read that

    with pytest.raises(LedgerUnsound):
        SqliteLedger(ledger.path, create=False)


def test_a_note_is_one_line_that_grows_in_place(tmp_path):
    note = HeadFile(str(tmp_path / "a.ledger"))
    first = LedgerEntry.follow(None, EntryKind.BEGIN, {})
    second = LedgerEntry.follow(first, EntryKind.OPEN, {})
    note.write_note(first)
    note.write_note(second)

    assert (tmp_path / "a.ledger.head").read_text() == f"{1:020d} {second.hash}\n"


def test_a_note_fits_the_ledger_it_was_made_for_and_no_other(tmp_path):
    mine, other = MemoryLedger(), MemoryLedger()
    note = HeadFile(str(tmp_path / "a.ledger"))
    mine._read(lambda page: note.check_note(page, note.read_note()))  # no note yet
    note.write_note(mine.history()[-1])

    mine._read(lambda page: note.check_note(page, note.read_note()))
    with pytest.raises(LedgerUnsound, match="another ledger"):
        other._read(lambda page: note.check_note(page, note.read_note()))


def test_a_note_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "a.ledger.head").mkdir()

    with pytest.raises(LedgerUnsound, match="note of its head cannot be written"):
        HeadFile(str(tmp_path / "a.ledger")).write_note(LedgerEntry.follow(None, EntryKind.BEGIN, {}))


def test_a_reader_is_not_alarmed_by_entries_that_come_after_its_snapshot(tmp_path, monkeypatch):
    with open_ledger(tmp_path / "a.ledger") as reader, open_ledger(tmp_path / "a.ledger") as writer:
        writer.open_account("dataset:a", epsilon(1))
        last, pending = SqlPage.last_entry, ["dataset:b", "dataset:c", "dataset:d"]

        def meanwhile(page):
            """The first look of a transaction is its snapshot; right after it somebody else writes."""
            found = last(page)
            names, pending[:] = list(pending), []
            for name in names:
                writer.open_account(name, epsilon(1))
            return found

        monkeypatch.setattr(SqlPage, "last_entry", meanwhile)

        assert reader.accounts() == ["dataset:a"]
        assert reader.accounts() == ["dataset:a", "dataset:b", "dataset:c", "dataset:d"]
