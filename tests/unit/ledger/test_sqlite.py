import os
import pickle
import sqlite3
import threading
from fractions import Fraction

import pytest

from expost.core import InvalidRequest, LedgerUnsound, PureLoss, epsilon
from expost.ledger.sqlite import SqliteLedger


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
        account = page.account("dataset:a")
        page.put_account(account.charged(PureLoss(2)).totalled([], entry=account.entry))

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
    monkeypatch.setattr(ledger._connected().pool, "_timeout", 0.1)
    with pytest.raises(LedgerUnsound, match="kept it locked"):
        ledger.remaining("dataset:a")
    leave.set()
    slow.join()

    assert ledger.remaining("dataset:a") == PureLoss(1)


def test_an_unknown_failure_of_the_driver_is_our_error_without_its_words(ledger):
    def fail(page):
        raise sqlite3.InternalError("secret rows")

    with pytest.raises(LedgerUnsound, match="Expected a ledger that works") as caught:
        ledger._write(fail)
    assert "secret" not in str(caught.value)


def test_a_ledger_that_vanished_is_not_begun_anew(ledger):
    reference = pickle.dumps(ledger)
    ledger.close()
    os.unlink(ledger.path)

    with pytest.raises(LedgerUnsound, match="file that can be opened"):
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
