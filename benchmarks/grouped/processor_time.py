"""The processor time of a program with its children, such as a Java machine and its workers. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def tree_seconds() -> float:
    """Return the processor seconds so far of this process and of all that it started, those that have ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = found.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(found.parent.name)
        parents[process], ticks[process] = int(words[1]), sum(map(int, words[11:15]))
    return sum(ticks[process] for process in ticks if _descends(process, parents)) / os.sysconf("SC_CLK_TCK")


def _descends(process: int, parents: dict[int, int]) -> bool:
    """Return whether a process is this one or one that it started."""
    while process > 1 and process != os.getpid():
        process = parents.get(process, 0)
    return process == os.getpid()
