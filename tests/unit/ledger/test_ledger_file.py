import os

import pytest

from expost.core import LedgerUnsound
from expost.ledger.ledger_file import LedgerFile, is_mounted, read_identity


def test_a_file_is_mounted_if_the_list_of_mounts_names_it_in_any_spelling(tmp_path):
    odd = tmp_path / "a b\\c.ledger"
    odd.touch()
    mounts = tmp_path / "mountinfo"
    escaped = str(odd).replace("\\", "\\134").replace(" ", "\\040")
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n63 22 8:1 /x {escaped} rw,relatime - ext4 /dev/sda rw\n")

    assert is_mounted(str(odd), mounts=str(mounts))
    assert not is_mounted(str(mounts), mounts=str(mounts))
    assert not is_mounted(str(odd), mounts=str(tmp_path / "none"))


def test_a_file_on_another_device_than_its_folder_is_mounted_even_without_a_list(tmp_path, monkeypatch):
    path, real = tmp_path / "a.ledger", os.stat
    path.touch()

    def stat(where, **options):
        found = real(where, **options)
        if os.fspath(where) != str(path):
            return found
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:10]])

    monkeypatch.setattr(os, "stat", stat)

    assert is_mounted(str(path), mounts=str(tmp_path / "none"))


@pytest.mark.parametrize("lost", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_files_that_are_not_those_that_were_opened_are_refused(tmp_path, lost, how):
    path = str(tmp_path / "a.ledger")
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"a.ledger{end}").touch()
    file = LedgerFile(path)
    file.remember_files()
    file.check_files()

    os.rename(path + lost, path + ".kept")  # so that the number of the inode is not used again
    if how == "replaced":
        (tmp_path / f"a.ledger{lost}").touch()

    with pytest.raises(LedgerUnsound, match=r"was moved or replaced|was deleted or replaced"):
        file.check_files()
    assert read_identity(path + ".kept") is not None
