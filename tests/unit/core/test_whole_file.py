"""A file is replaced whole, or stays as it was."""

import os
from pathlib import Path

import pytest

from expost.core import whole_file
from expost.core.whole_file import write_file


def test_a_file_that_cannot_be_finished_leaves_the_old_one_and_no_draft(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "model.json").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole_file.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "model.json", b"new")

    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.json", b"old")]


def test_a_link_stays_a_link_and_a_mode_a_mode(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    write_file(tmp_path / "link", b"new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_and_a_folder_is_not(tmp_path: Path) -> None:
    write_file(os.devnull, b"gone")
    assert not Path(os.devnull).is_file()
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path, b"x")
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nowhere" / "file", b"x")
