"""Backups of ledgers in use, and what is refused when one is put back."""

import os
import shutil
import stat
import threading

import pytest

from expost.core import InvalidRequest, LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import new_key, open_ledger
from expost.ledger.backup import back_up_ledger, restore_ledger
from expost.ledger.repair import diagnose_ledger, repair_ledger

HALF = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="m", promise=HALF.promise(), bill=PureLoss(0.25))


def spend(ledger, times=1):
    for _ in range(times):
        entry = ledger.settle(ledger.hold(["dataset:flights"], HALF, question="count"), RECEIPT)
    return entry


@pytest.fixture(params=["with a key", "without"])
def key(request, monkeypatch):
    monkeypatch.delenv("EXPOST_LEDGER_KEY", raising=False)
    if request.param == "without":
        return None
    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    return os.environ["EXPOST_LEDGER_KEY"]


@pytest.fixture
def path(tmp_path):
    with open_ledger(tmp_path / "a.ledger") as ledger:
        ledger.open_account("dataset:flights", epsilon(10))
        spend(ledger)
    return tmp_path / "a.ledger"


def lose(path):
    """Everything of a ledger is gone, as with a disk."""
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


def test_a_backup_of_an_open_ledger_has_every_acknowledged_entry_and_is_restored(path, tmp_path, key):
    with open_ledger(path) as ledger:
        entry = spend(ledger, 3)  # in the log only
        anchor = back_up_ledger(str(path), str(tmp_path / "a.backup"))
        assert anchor.startswith(entry) and anchor == ledger.anchor()
    lose(path)

    report = restore_ledger(str(tmp_path / "a.backup"), str(path), anchor=anchor)

    assert report.head == entry
    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:flights") == PureLoss(1)
        assert ledger.verify(anchor=anchor) == report
        spend(ledger)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "a.backup").stat().st_mode) == 0o600


def test_a_backup_while_others_spend_is_one_state_of_the_ledger(path, tmp_path):
    done, spender = threading.Event(), open_ledger(path)

    def spend_on():
        while not done.is_set():
            spend(spender)

    thread = threading.Thread(target=spend_on)
    thread.start()
    try:
        anchors = [back_up_ledger(str(path), str(tmp_path / f"{number}.backup")) for number in range(4)]
    finally:
        done.set()
        thread.join()
    spender.close()

    for number, anchor in enumerate(anchors):
        restored = tmp_path / f"{number}.ledger"
        report = restore_ledger(str(tmp_path / f"{number}.backup"), str(restored), anchor=anchor)
        with open_ledger(path) as ledger:
            assert ledger.verify(anchor=report.head)


@pytest.mark.parametrize("note", ["lost", "kept"])
def test_an_older_backup_is_refused_by_a_newer_anchor_and_by_the_note(path, tmp_path, key, note):
    old = back_up_ledger(str(path), str(tmp_path / "old.backup"))
    with open_ledger(path) as ledger:
        spend(ledger)
        new = ledger.anchor()
    if note == "lost":
        lose(path)
    else:
        path.unlink()

    with pytest.raises(LedgerUnsound, match="lacks at least 2 of the newest entries, and what they charged"):
        restore_ledger(str(tmp_path / "old.backup"), str(path), anchor=new)
    if note == "kept":
        with pytest.raises(LedgerUnsound, match="lacks at least 1 of the newest entries"):
            restore_ledger(str(tmp_path / "old.backup"), str(path), anchor=old)
    assert not path.exists()


def test_an_anchor_of_another_ledger_key_or_hand_is_refused(path, tmp_path, monkeypatch):
    keys = [new_key(), new_key()]
    anchor = back_up_ledger(str(path), str(tmp_path / "a.backup"), key=keys[0])
    with open_ledger(tmp_path / "b.ledger", key=keys[0]) as other:
        other.open_account("dataset:flights", epsilon(10))
        foreign = other.anchor()
    entry, _, code = anchor.partition(".")

    refused = [(foreign, keys[0]), (anchor, keys[1]), (f"{entry}.{code[::-1]}", keys[0]), (entry, keys[0])]
    for wrong, key in refused:
        with pytest.raises((LedgerUnsound, InvalidRequest), match="anchor"):
            restore_ledger(str(tmp_path / "a.backup"), str(tmp_path / "c.ledger"), anchor=wrong, key=key)
    assert not (tmp_path / "c.ledger").exists()


def test_a_backup_is_not_a_second_budget(path, tmp_path):
    back_up_ledger(str(path), str(tmp_path / "a.backup"))

    for create in (True, False):
        with pytest.raises(InvalidRequest, match="because it is a backup"):
            open_ledger(tmp_path / "a.backup", create=create)


def test_nothing_is_replaced(path, tmp_path):
    (tmp_path / "there").write_text("rows")
    anchor = back_up_ledger(str(path), str(tmp_path / "a.backup"))

    for target in (tmp_path / "there", path, tmp_path / "a.backup"):
        with pytest.raises(InvalidRequest, match="Expected a new file to back up to"):
            back_up_ledger(str(path), str(target))
        with pytest.raises(InvalidRequest, match="Expected a new file to restore to"):
            restore_ledger(str(tmp_path / "a.backup"), str(target), anchor=anchor)
    with pytest.raises(InvalidRequest, match="Expected a backup"):
        restore_ledger(str(path), str(tmp_path / "c.ledger"), anchor=anchor)
    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:flights") == PureLoss(0.25)


def test_a_damaged_backup_is_refused(path, tmp_path):
    anchor = back_up_ledger(str(path), str(tmp_path / "a.backup"))
    content = bytearray((tmp_path / "a.backup").read_bytes())
    content[content.index(b"dataset:flights")] ^= 1
    (tmp_path / "a.backup").write_bytes(content)

    with pytest.raises(LedgerUnsound):
        restore_ledger(str(tmp_path / "a.backup"), str(tmp_path / "c.ledger"), anchor=anchor)
    assert sorted(file.name for file in tmp_path.glob("c.ledger*")) == []


# Repairs


def put_back(path, how):
    """Make the note and the file disagree."""
    if how == "an older copy":
        shutil.copy(path, f"{path}.old")
        with open_ledger(path) as ledger:
            spend(ledger)
        shutil.copy(f"{path}.old", path)
    else:
        (path.parent / "a.ledger.head").write_bytes(b"nonsense" * 100)


@pytest.mark.parametrize("how", ["an older copy", "a damaged note"])
def test_a_repair_charges_all_that_is_left_and_a_diagnosis_changes_nothing(path, how, key):
    with open_ledger(path) as ledger:
        ledger.open_part("flights/site=A", of="dataset:flights", budget=epsilon(1))
        ledger.open_account("analyst:ann", epsilon(1))
    put_back(path, how)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.name != "a.ledger.old"}

    found = diagnose_ledger(str(path))

    assert {name: (path.parent / name).read_bytes() for name in before} == before
    assert found.repairable and found.charges["dataset:flights"] == PureLoss(9.75)
    told = "\n".join(found.explain_lines())
    assert "delete" not in told
    assert ("At least 1 entries are missing" if how == "an older copy" else "is not known") in told
    with pytest.raises(LedgerUnsound, match="expost ledger repair"):
        open_ledger(path)
    repair_ledger(str(path))
    with open_ledger(path) as ledger:
        assert ledger.remaining("dataset:flights") == ledger.remaining("flights/site=A") == PureLoss(0)
        assert ledger.spent("analyst:ann") == PureLoss(1)
        ledger.verify()


def test_a_repair_never_lowers_a_charge_so_templates_and_broken_chains_are_refused(path):
    with open_ledger(path) as ledger:
        ledger.open_account("window:*", epsilon(1))
    put_back(path, "an older copy")
    assert not diagnose_ledger(str(path)).repairable
    with pytest.raises(LedgerUnsound, match="would lower what is charged"):
        repair_ledger(str(path))

    path.write_bytes(path.read_bytes()[:4096] + os.urandom(8192))
    assert not diagnose_ledger(str(path)).repairable
    with pytest.raises(LedgerUnsound, match="would lower what is charged"):
        repair_ledger(str(path))


def test_a_repair_of_a_sound_or_a_missing_ledger_changes_nothing(path):
    assert repair_ledger(str(path)).problem is None
    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:flights") == PureLoss(0.25)
    path.unlink()

    assert "is missing" in diagnose_ledger(str(path)).explain_lines()[0]
    with pytest.raises(LedgerUnsound):
        repair_ledger(str(path))
    lose(path)
    with pytest.raises(InvalidRequest, match="that exists"):
        diagnose_ledger(str(path))


def test_a_repair_forgets_releases_that_may_have_been_refined_since(path, monkeypatch):
    key = new_key()
    with open_ledger(path, key=key) as ledger:
        ledger.keep("path:1", b"rung 1")
    put_back(path, "an older copy")

    repair_ledger(str(path), key=key)

    with open_ledger(path, key=key) as ledger:
        assert ledger.kept("path:1") is None
