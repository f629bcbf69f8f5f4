"""The file of a ledger: one name, one inode, and files next to it that share its name.

SQLite finds its log of fresh entries by the *name* of the database. Two names of one file have two logs, and each
process would spend the whole budget. So a ledger must have one name.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from expost.core import LedgerBusy, LedgerUnsound
from expost.ledger.ledger_page import unsound_ledger

if sys.platform != "win32":
    import fcntl

__all__ = [
    "BACKUP_ID",
    "LEDGER_ID",
    "LedgerFile",
    "create_whole",
    "is_missing",
    "is_mounted",
    "open_private",
    "put_in_place",
    "read_identity",
]

LEDGER_ID = 0x45585054
"""The application id in the header of a ledger file: "EXPT"."""

BACKUP_ID = 0x45585042
"""The one of a backup, which must not be used as a ledger: "EXPB"."""

Identity = tuple[int, int]

_MOUNTS = "/proc/self/mountinfo"
_MOUNT_POINT = 4  # the column of the mount point in that file
_PRIVATE = 0o600  # a ledger has questions, receipts and names of accounts
_PAUSE_SECONDS = 0.002
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


def create_whole(path: str, fill: Callable[[str], None], *, patience: float) -> None:
    """Create a file that is complete as soon as it has its name. Of processes that do so at once, one creates it.

    ``fill`` gets the name of an empty file that only its owner can read. An empty file counts as missing: it is what a
    crash or ``mktemp`` leaves. Does nothing if there is a file.
    """
    draft = path + ".new"
    with _lock_name(path + ".creating", patience):
        if not is_missing(path):
            return
        _remove_draft(draft)  # of a process that was killed here
        os.close(open_private(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        try:
            fill(draft)
        except BaseException:
            _remove_draft(draft)
            raise
        put_in_place(draft, path)


def _remove_draft(draft: str) -> None:
    for end in ("", "-journal", *_LOGS):
        with suppress(FileNotFoundError):
            os.unlink(draft + end)


def is_missing(path: str) -> bool:
    """Return whether there is no file, or an empty one.

    >>> is_missing("no-such-file")
    True
    """
    try:
        return os.stat(path).st_size == 0
    except FileNotFoundError:
        return True


def put_in_place(draft: str, path: str) -> None:
    """Give a finished file its name, so that not even a power cut leaves half of it there."""
    _sync_file(draft)
    os.rename(draft, path)
    _sync_file(os.path.dirname(path))


def _sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: str, flags: int, *, like: str | None = None) -> int:
    """Open a file that only its owner can read, whatever the umask; or those who can read the file ``like``.

    An existing file keeps its mode: its owner may have given it to a group.
    """
    mode = _PRIVATE
    if like is not None:
        with suppress(OSError):
            mode = os.stat(like).st_mode & 0o666
    try:
        return os.open(path, flags & ~os.O_CREAT | os.O_CLOEXEC)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    os.fchmod(descriptor, mode)  # the umask may have taken the owner's own rights
    return descriptor


@contextmanager
def _lock_name(path: str, patience: float) -> Iterator[None]:
    """Hold a lock on a file that exists as long as it is needed."""
    deadline = time.monotonic() + patience
    while True:
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise LedgerBusy(
                        "Cannot create this ledger now because another process creates it and does not finish",
                        do="Try again later",
                    )
                time.sleep(_PAUSE_SECONDS)
            status = os.fstat(descriptor)
            if read_identity(path) != (status.st_dev, status.st_ino):
                continue  # whoever had the lock has finished, and deleted the file
            try:
                yield
            finally:
                os.unlink(path)
            return
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    if sys.platform == "win32":  # no such lock: the rename decides which of two creators wins
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
