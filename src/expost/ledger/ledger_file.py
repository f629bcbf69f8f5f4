"""The file of a ledger: one name, one inode, and files next to it that share its name.

SQLite finds its log of fresh entries by the *name* of the database. Two names of one file have two logs, and each
process would spend the whole budget. So a ledger must have one name.
"""

from __future__ import annotations

import os
import re

from expost.core import LedgerUnsound
from expost.ledger.ledger_page import unsound_ledger

__all__ = ["LedgerFile", "is_mounted", "read_identity"]

Identity = tuple[int, int]

_MOUNTS = "/proc/self/mountinfo"
_MOUNT_POINT = 4  # the column of the mount point in that file
_LOGS = ("-wal", "-shm")  # what SQLite keeps next to an open database


class LedgerFile:
    """Watches the file that a connection has open, and the log that belongs to it.

    Parameters
    ----------
    path : str
        The path with all symbolic links resolved.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.opened: Identity | None = None
        self._logs: list[Identity | None] = []

    def check_name(self) -> None:
        """Refuse a file that has, or may have, a second name. Called before it is opened."""
        self._check_links()
        if is_mounted(self.path):
            raise LedgerUnsound(
                "Cannot use this ledger because its file is mounted by itself, and the files next to it are not",
                do="Mount the folder that contains the ledger, not the file",
            )

    def remember_files(self) -> None:
        """Note which files a new connection has opened."""
        self.opened = read_identity(self.path)
        self._logs = [read_identity(self.path + end) for end in _LOGS]

    def check_files(self) -> None:
        """Refuse to go on if the open files are not those that others find under their names. Called in a transaction."""
        if self._check_links() != self.opened:
            raise unsound_ledger("the file that was opened was moved or replaced")
        if [read_identity(self.path + end) for end in _LOGS] != self._logs:
            # Entries would go to a file that nobody finds any more.
            raise unsound_ledger("its log of fresh entries was deleted or replaced while it was open")

    def _check_links(self) -> Identity | None:
        """Refuse a file with several names, and return its identity."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        if status.st_nlink > 1:
            raise LedgerUnsound(
                f"Cannot use this ledger because its file has {status.st_nlink} names (hard links), "
                "each of which would have the whole budget",
                do="Keep the name that has its -wal and .head files next to it, and remove the other names",
            )
        return status.st_dev, status.st_ino


def read_identity(path: str) -> Identity | None:
    """Return device and inode of a file, or None if it is gone.

    >>> read_identity("no-such-file") is None
    True
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_mounted(path: str, *, mounts: str = _MOUNTS) -> bool:
    """Return whether a file is a mount of its own, as containers mount single files.

    >>> is_mounted("/no/such/file")
    False
    """
    try:
        # A file on another device than its folder is mounted, wherever there is no list of mounts.
        if os.stat(path).st_dev != os.stat(os.path.dirname(path)).st_dev:
            return True
    except OSError:
        return False
    try:
        with open(mounts, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    points = (line.split(b" ")[_MOUNT_POINT] for line in lines if line.count(b" ") > _MOUNT_POINT)
    return os.fsencode(path) in {_unescape(point) for point in points}


def _unescape(field: bytes) -> bytes:
    """Read a field of the list of mounts, where blanks, tabs, line feeds and backslashes are octal numbers."""
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)
