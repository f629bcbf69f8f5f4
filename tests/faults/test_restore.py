"""Old copies put back: noticed by the note beside the file, by open handles, and by anchors."""

import os
import shutil
import sqlite3

import pytest

from expost.core import LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import open_ledger

HALF = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="m", promise=HALF.promise(), bill=PureLoss(0.25))


@pytest.fixture
def path(tmp_path):
    with open_ledger(tmp_path / "a.ledger") as ledger:
        ledger.open_account("dataset:flights", epsilon(10))
        spend(ledger)
    return tmp_path / "a.ledger"


def spend(ledger):
    return ledger.settle(ledger.hold(["dataset:flights"], HALF, question="count"), RECEIPT)


def test_a_backup_put_back_after_an_answer_left_is_refused(path):
    shutil.copy(path, path.with_suffix(".backup"))
    with open_ledger(path) as ledger:
        spend(ledger)
    shutil.copy(path.with_suffix(".backup"), path)

    with pytest.raises(LedgerUnsound, match="older copy or another ledger"):
        open_ledger(path)


def test_a_backup_from_between_hold_and_settle_is_charged_at_the_worst_case(path):
    with open_ledger(path) as ledger:
        hold = ledger.hold(["dataset:flights"], HALF, question="count")
    shutil.copy(path, path.with_suffix(".backup"))
    with open_ledger(path) as ledger:
        ledger.settle(hold, RECEIPT)
    shutil.copy(path.with_suffix(".backup"), path)

    # The note covers the hold of every answer that left; losing only its settlement can but charge more.
    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:flights") == PureLoss(0.75)


def test_a_ledger_deleted_to_begin_anew_is_refused_until_the_owner_deletes_the_note(path):
    with open_ledger(path) as ledger:
        spend(ledger)
    path.unlink()

    with pytest.raises(LedgerUnsound, match=r"expost ledger repair .*a\.ledger"):
        open_ledger(path)
    os.unlink(f"{path}.head")
    with open_ledger(path) as ledger:
        assert ledger.accounts() == []


def test_without_the_note_an_anchor_from_a_receipt_still_tells(path):
    shutil.copy(path, path.with_suffix(".backup"))
    with open_ledger(path) as ledger:
        entry = spend(ledger)
    shutil.copy(path.with_suffix(".backup"), path)
    os.unlink(f"{path}.head")

    with open_ledger(path) as ledger, pytest.raises(LedgerUnsound, match="anchor"):
        ledger.verify(anchor=entry)


def test_an_empty_note_counts_as_missing(path):
    (path.parent / "a.ledger.head").write_bytes(b"")  # as a crash of an earlier version left it

    with open_ledger(path) as ledger:
        spend(ledger)
    assert (path.parent / "a.ledger.head").stat().st_size > 0


@pytest.mark.parametrize("content", [b"nonsense", b"0" * 20 + b" " + b"0" * 64 + b"\n" + b"x"])
def test_a_damaged_note_is_refused(path, content):
    (path.parent / "a.ledger.head").write_bytes(content)

    with pytest.raises(LedgerUnsound, match="note of its head is damaged"):
        open_ledger(path)


def test_an_unreadable_note_is_refused(path):
    os.unlink(f"{path}.head")
    os.mkdir(f"{path}.head")

    with pytest.raises(LedgerUnsound, match="note of its head cannot be read"):
        open_ledger(path)


def test_an_open_handle_refuses_a_file_that_was_moved_into_place(path):
    shutil.copy(path, path.with_suffix(".backup"))
    ledger = open_ledger(path)
    spend(ledger)
    os.replace(path.with_suffix(".backup"), path)

    # Writing on would go to a file that nobody can find any more.
    with pytest.raises(LedgerUnsound, match="moved or replaced"):
        ledger.hold(["dataset:flights"], HALF, question="count")
    ledger.close()


def test_an_open_handle_refuses_a_file_that_was_deleted(path):
    ledger = open_ledger(path)
    path.unlink()

    with pytest.raises(LedgerUnsound, match="moved or replaced"):
        ledger.remaining("dataset:flights")
    ledger.close()


def test_an_open_handle_refuses_to_go_back_in_place_even_without_the_note(path):
    backup = sqlite3.connect(":memory:")
    source = sqlite3.connect(path)
    source.backup(backup)
    ledger = open_ledger(path)
    spend(ledger)
    os.unlink(f"{path}.head")
    backup.backup(source)
    source.close()
    backup.close()

    with pytest.raises(LedgerUnsound, match="an entry seen before is gone"):
        ledger.hold(["dataset:flights"], HALF, question="count")
    ledger.close()


def test_a_closed_handle_still_remembers_what_it_saw(path):
    shutil.copy(path, path.with_suffix(".backup"))
    ledger = open_ledger(path)
    spend(ledger)
    ledger.close()
    shutil.copy(path.with_suffix(".backup"), path)
    os.unlink(f"{path}.head")

    with pytest.raises(LedgerUnsound, match="an entry seen before is gone"):
        ledger.remaining("dataset:flights")
    ledger.close()


def test_a_clock_that_jumps_changes_nothing(place, monkeypatch):
    times = iter(["2031-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"] * 50)
    monkeypatch.setattr("expost.ledger.ledger_entry.current_minute", lambda: next(times))
    with open_ledger(place.replace("NAME", "")) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
        entries = [spend(ledger) for _ in range(3)]

        assert ledger.spent("dataset:flights") == PureLoss(0.75)
        assert [ledger.receipt(entry).ledger_entry for entry in entries] == entries
        assert len({entry.at[:4] for entry in ledger.history()}) == 3
        ledger.verify()
