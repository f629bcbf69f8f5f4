"""Disks that are full, read-only, locked or damaged: a clear error, and no charge that is not in the record."""

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile

import pytest
from sqlalchemy import event

from expost.core import InvalidRequest, LedgerBusy, LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import open_ledger

HALF = PureLoss(0.5)


def fresh(path):
    ledger = open_ledger(path)
    ledger.open_account("dataset:flights", epsilon(1000))
    return ledger


def spend_until_refused(ledger):
    """How many spends were acknowledged before the disk gave up, and with what error."""
    receipt = Receipt(question="count", method="m" * 500, promise=HALF.promise(), bill=HALF)
    acknowledged = 0
    try:
        for _ in range(500):
            hold = ledger.hold(["dataset:flights"], HALF, question="count")
            ledger.settle(hold, receipt)
            acknowledged += 1
    except LedgerUnsound as error:
        return acknowledged, str(error)
    return acknowledged, None


def test_a_full_disk_refuses_the_next_entry_and_keeps_all_acknowledged_ones(tmp_path):
    ledger = fresh(tmp_path / "a.ledger")
    ledger.close()
    engine = ledger._connect_pool()
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 40"))

    acknowledged, error = spend_until_refused(ledger)

    assert 0 < acknowledged < 500
    assert error == "Cannot use this ledger because the disk has no space left for the next entry. Free some space."
    ledger.close()
    with open_ledger(tmp_path / "a.ledger") as again:
        settled = again.verify().holds - len(again.open_holds())
        assert settled == acknowledged
        assert len(again.open_holds()) <= 1


def test_a_disk_that_fails_in_the_middle_of_a_write_keeps_all_acknowledged_entries(tmp_path):
    ledger = fresh(tmp_path / "a.ledger")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))  # SIGXFSZ is ignored by Python: EFBIG
        acknowledged, error = spend_until_refused(ledger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert 0 < acknowledged < 500
    assert (
        error
        == "Cannot use this ledger because the disk did not take the next entry. Check the disk and its free space."
    )
    ledger.close()
    with open_ledger(tmp_path / "a.ledger") as again:
        assert again.verify().holds - len(again.open_holds()) == acknowledged


READ_ONLY = """
import os, sys
from expost.core import ExpostError, PureLoss, epsilon
from expost.ledger import open_ledger

folder, mode = sys.argv[1:]
path = os.path.join(folder, "a.ledger")
with open_ledger(path) as ledger:
    ledger.open_account("dataset:flights", epsilon(1))
os.chmod(path, 0o444)
if mode == "folder":
    os.chmod(folder, 0o555)
else:
    os.chmod(folder, 0o777)
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)  # root may write everywhere
try:
    open_ledger(path).hold(["dataset:flights"], PureLoss(0.5), question="count")
except ExpostError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("mode", ["file", "folder"])
def test_read_only_media_refuse_the_hold(mode):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, folder, mode], capture_output=True, text=True)

        assert done.stdout.startswith("LedgerUnsound Cannot use this ledger because it is read-only"), (
            done.stdout + done.stderr
        )


def test_a_ledger_that_another_process_keeps_locked_is_given_up_with_nothing_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("expost.ledger.sql_ledger.PATIENCE_SECONDS", 0.3)
    with fresh(tmp_path / "a.ledger") as ledger:
        other = sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerBusy, match="others kept it locked"):
            ledger.hold(["dataset:flights"], HALF, question="count")
        other.execute("ROLLBACK")
        other.close()

        assert ledger.spent("dataset:flights") == PureLoss(0)


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n" * 1000)
    other = sqlite3.connect(tmp_path / "app.db")
    other.execute("CREATE TABLE users (name TEXT)")
    other.commit()
    other.close()

    with pytest.raises(LedgerUnsound, match="the file is not a ledger"):
        open_ledger(tmp_path / "rows.csv")
    with pytest.raises(InvalidRequest, match="not another database"):
        open_ledger(tmp_path / "app.db")
    with pytest.raises(InvalidRequest, match="existing folder"):
        open_ledger(tmp_path / "no" / "such" / "folder.ledger")
    with pytest.raises(InvalidRequest, match="existing folder"):
        open_ledger(tmp_path)

    assert (tmp_path / "rows.csv").read_text().startswith("a,b\n1,2\n")


def test_a_torn_file_is_refused(tmp_path):
    path = tmp_path / "a.ledger"
    with fresh(path) as ledger:
        ledger.hold(["dataset:flights"], HALF, question="count")
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 4] = os.urandom(4096 * 3)
    path.write_bytes(content)

    with pytest.raises(LedgerUnsound):
        open_ledger(path)


def test_the_settings_that_survive_a_power_cut_are_on(tmp_path):
    with fresh(tmp_path / "a.ledger") as ledger, ledger._connect_pool().connect() as connection:
        read = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("journal_mode", "synchronous")
        }

    assert read == {"journal_mode": "wal", "synchronous": 2}


def test_a_disk_on_which_the_settings_do_not_take_is_refused(tmp_path, monkeypatch):
    class Stubborn(sqlite3.Connection):
        def execute(self, statement, *arguments):
            return super().execute("PRAGMA synchronous = 1" if statement == "PRAGMA synchronous = 2" else statement)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Stubborn, **k))

    with pytest.raises(LedgerUnsound, match="supports synchronous = 2"):
        open_ledger(tmp_path / "a.ledger")


SPENDS_AFTER_FORK = """
import os, sys
from expost.core import ExpostError, PureLoss, epsilon
from expost.ledger import open_ledger

ledger = open_ledger(None)
ledger.open_account("dataset:flights", epsilon(1))
if os.fork() == 0:
    try:
        ledger.hold(["dataset:flights"], PureLoss(1), question="count")
    except ExpostError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_fork_cannot_spend_a_ledger_in_memory_twice():
    done = subprocess.run([sys.executable, "-c", SPENDS_AFTER_FORK], capture_output=True, text=True)

    assert "belongs to another process (it was forked)" in done.stdout, done.stderr
    assert done.stderr == ""
