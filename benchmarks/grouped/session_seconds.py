"""The processor time of a program with its children, such as a Java machine and its workers. Standard library only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def start_session() -> None:
    """Put this process into a session of its own. Programs that it starts belong to it."""
    with contextlib.suppress(PermissionError):  # the leader of a group, as in a shell, has one already
        os.setsid()


def session_seconds() -> float:
    """Return the processor seconds so far of all processes of this one's session, which ``start_session`` began."""
    ticks = 0
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = found.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(words[3]) == os.getsid(0):
            ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
