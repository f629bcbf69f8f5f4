"""One ledger under two names is two logs, hence two budgets: every second name is refused."""

import os
import shutil
import subprocess
import sys

import pytest

from expost.core import LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import open_ledger

PART = PureLoss(0.9)
RECEIPT = Receipt(question="count", method="m", promise=PART.promise(), bill=PART)


def spend(ledger):
    return ledger.settle(ledger.hold(["dataset:flights"], PART, question="count"), RECEIPT)


@pytest.fixture
def path(tmp_path):
    with open_ledger(tmp_path / "a.ledger") as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
    return tmp_path / "a.ledger"


@pytest.mark.parametrize("folder", ["the same", "another"])
def test_a_hard_link_is_refused_by_either_name_and_by_open_handles(path, tmp_path, folder):
    other = tmp_path / "b.ledger" if folder == "the same" else tmp_path / "there" / "a.ledger"
    other.parent.mkdir(exist_ok=True)
    with open_ledger(path) as before:
        os.link(path, other)

        for name in (path, other):
            with pytest.raises(LedgerUnsound, match=r"its file has 2 names \(hard links\)"):
                open_ledger(name)
        with pytest.raises(LedgerUnsound, match="Keep the name that has its -wal"):
            spend(before)

        other.unlink()
        spend(before)
    with open_ledger(path) as again:
        assert again.spent("dataset:flights") == PART


def test_a_file_that_got_another_name_and_lost_the_first_is_refused_by_open_handles(path):
    with open_ledger(path) as before:
        os.rename(path, path.with_name("b.ledger"))

        with pytest.raises(LedgerUnsound, match="moved or replaced"):
            spend(before)


def test_a_symbolic_link_is_the_same_ledger_with_the_same_note(path, tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "there" / "link.ledger"
    link.symlink_to(path)
    with open_ledger(path) as here, open_ledger(link) as there:
        spend(there)

        assert here.spent("dataset:flights") == PART
    assert os.listdir(link.parent) == ["link.ledger"]
    shutil.copy(path, tmp_path / "copy")
    with open_ledger(path) as ledger:
        ledger.change_budget("dataset:flights", epsilon(2))
        spend(ledger)
    shutil.copy(tmp_path / "copy", path)
    with pytest.raises(LedgerUnsound, match="older copy"):
        open_ledger(link)


@pytest.mark.parametrize("ends", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids=" ".join)
def test_an_open_handle_whose_log_was_deleted_acknowledges_nothing_more(path, ends):
    with open_ledger(path) as before:
        before.open_account("analyst:ann", epsilon(1))
        for end in ends:
            os.unlink(f"{path}{end}")

        with pytest.raises(LedgerUnsound, match="log of fresh entries was deleted"):
            spend(before)


OPENS_A_MOUNT = """
import os, sys
from expost.core import ExpostError
from expost.ledger import open_ledger
try:
    open_ledger(sys.argv[1])
    print("opened")
except ExpostError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("mounted", ["file", "folder"])
def test_a_single_file_mount_is_refused_and_a_mounted_folder_is_not(path, tmp_path, mounted):
    there = tmp_path / "there"
    there.mkdir()
    (there / "a.ledger").touch()
    source, target = (path, there / "a.ledger") if mounted == "file" else (path.parent, there)
    command = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, str(source), str(target), "true"], capture_output=True).returncode
    ):
        pytest.skip("this process may not mount")

    done = subprocess.run(
        [*command, str(source), str(target), sys.executable, "-c", OPENS_A_MOUNT, str(there / "a.ledger")],
        capture_output=True,
        text=True,
    )

    if mounted == "file":
        assert done.stdout.startswith("LedgerUnsound Cannot use this ledger because its file is mounted by itself")
    else:
        assert done.stdout == "opened\n", done.stderr
