import sqlite3
import threading

import pytest

from expost.core import BudgetExceeded, LedgerBusy, PureLoss, epsilon
from expost.ledger import open_ledger


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "a.ledger") as ledger:
        ledger.open_account("dataset:a", epsilon(1))
        yield ledger


def busy():
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def test_a_transaction_that_met_others_runs_again_from_its_start(ledger):
    attempts = []

    def shaky(page):
        attempts.append(page.last_entry().sequence)
        page.put_account(page.find_account("dataset:a").add_charge(PureLoss(1)).with_total([], entry=1))
        if len(attempts) < 4:
            raise busy()
        raise BudgetExceeded("Expected less")

    with pytest.raises(BudgetExceeded):
        ledger._write(shaky)

    assert attempts == [1, 1, 1, 1]
    assert ledger.spent("dataset:a") == PureLoss(0)


def test_patience_ends(ledger, monkeypatch):
    monkeypatch.setattr("expost.ledger.sql_ledger.PATIENCE_SECONDS", 0.05)

    def never(page):
        raise busy()

    with pytest.raises(LedgerBusy, match="kept it locked"):
        ledger._write(never)


def test_a_reader_that_started_before_a_writer_is_not_mistaken_for_a_restored_copy(ledger, tmp_path):
    reading, written = threading.Event(), threading.Event()
    results = []

    def read(page):
        page.all_accounts()  # takes its snapshot
        reading.set()
        written.wait(10)
        return page.last_entry().sequence

    other = open_ledger(tmp_path / "a.ledger")
    thread = threading.Thread(target=lambda: results.append(other._read(read)))
    thread.start()
    reading.wait(10)
    ledger.hold(["dataset:a"], PureLoss(0.5), question="q")
    written.set()
    thread.join()

    assert results == [1]
    assert other.spent("dataset:a") == PureLoss(0.5)
    other.close()
