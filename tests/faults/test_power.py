"""Simulated power cuts: of what was written, only what was synced is sure to be there.

A spender runs under strace. At a cut, each file is what its last sync made it, plus a random part of the writes since
(the disk may have got to them, in any order). The ledger must open and contain all that was acknowledged before.
"""

import os
import random
import re
import shutil
import subprocess
import sys

import pytest

from expost.core import LedgerUnsound, epsilon
from expost.ledger import EntryKind, open_ledger

SPENDER = """
import os, sys
from sqlalchemy import event
from expost.core import PureLoss, Receipt
from expost.ledger import open_ledger
from expost.ledger.sqlite_ledger import SqliteLedger

path, synchronous = sys.argv[1:]
original = SqliteLedger._on_connect

def on_connect(self, connection, record):
    original(self, connection, record)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA wal_autocheckpoint = 40")  # often, so that cuts hit checkpoints too

SqliteLedger._on_connect = on_connect
ledger = open_ledger(path)
held = PureLoss(0.5)
receipt = Receipt(question="count", method="m", promise=held.promise(), bill=PureLoss(0.25))
for _ in range(12):
    hold = ledger.hold(["dataset:flights"], held, question="count")
    os.write(1, f"ack {hold.id}\\n".encode())
    entry = ledger.settle(hold, receipt)
    os.write(1, f"ack {entry}\\n".encode())
ledger.close()
"""

CALL = re.compile(r"^\d+ +(\w+)\((?:(\d+)<([^>]*)>|\"([^\"]*)\")(?:, (.*))?\) += (\d+)$")


def plain(text: str) -> bytes:
    """The bytes of strace's hexadecimal string."""
    return bytes.fromhex(text.replace("\\x", ""))


def traced(folder, *, synchronous: int):
    """The disk before, and every write, sync and acknowledgement in order."""
    path = folder / "a.ledger"
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:flights", epsilon(100))
    before = {str(file): file.read_bytes() for file in folder.iterdir()}
    calls = "trace=pwrite64,write,ftruncate,fsync,fdatasync,unlink"
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", "100000", "-e", calls, "-o", str(folder / "log")]
    command += [sys.executable, "-c", SPENDER, str(path), str(synchronous)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "PTRACE" in done.stderr:
        pytest.skip("strace may not trace here: " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    steps = []
    for line in (folder / "log").read_text().splitlines():
        match = CALL.match(line)
        if match is None:
            continue
        call, descriptor, opened, named, rest, _ = match.groups()
        file = plain(opened or named).decode()
        if call == "write" and descriptor == "1":
            steps.append(("ack", plain(rest.split('"')[1]).decode().split()[1], None, None))
        elif file.startswith(str(path)) and not file.endswith("-shm"):
            steps.append((call, file, *_arguments(call, rest)))
    return before, steps


def _arguments(call, rest):
    if call == "pwrite64":
        _, data, tail = rest.split('"')
        return plain(data), int(tail.split(", ")[-1])
    return (None, int(rest)) if call == "ftruncate" else (None, None)


def applied(content: bytearray, call, data, number) -> bytearray:
    if call == "ftruncate":
        return content[:number].ljust(number, b"\0")
    content = content.ljust(number + len(data), b"\0")
    content[number : number + len(data)] = data
    return content


def cut(before, steps, instant: int, rng: random.Random):
    """The disk after a power cut at one step, and what was acknowledged until then."""
    synced = {file: bytearray(content) for file, content in before.items()}
    pending, acknowledged = {}, []
    for call, file, data, number in steps[:instant]:
        if call == "ack":
            acknowledged.append(file)
        elif call in {"fsync", "fdatasync"}:
            for change in pending.pop(file, []):
                synced[file] = applied(synced.get(file, bytearray()), *change)
        elif call == "unlink":
            pending.pop(file, None)
            synced.pop(file, None)
        else:
            pending.setdefault(file, []).append((call, data, number))
    for file, changes in pending.items():
        luck = rng.choice([0.0, 0.5, 1.0])
        for change in changes:
            if rng.random() < luck:
                synced[file] = applied(synced.get(file, bytearray()), *change)
    return synced, acknowledged


def lost_after_cuts(folder, *, synchronous: int, cuts: int) -> int:
    """How many cuts of power lost an acknowledged entry."""
    before, steps = traced(folder, synchronous=synchronous)
    assert sum(step[0] == "ack" for step in steps) == 24
    assert any(step[0] == "pwrite64" and step[1].endswith(".ledger") for step in steps), "no checkpoint was traced"
    rng, lost = random.Random(7), 0
    for _ in range(cuts):
        disk, acknowledged = cut(before, steps, rng.randrange(1, len(steps) + 1), rng)
        for file in folder.glob("a.ledger*"):
            file.unlink()
        for file, content in disk.items():
            with open(file, "wb") as image:
                image.write(content)
        try:
            with open_ledger(folder / "a.ledger") as ledger:
                there = {entry.id for entry in ledger.history() if entry.kind in {EntryKind.HOLD, EntryKind.SETTLE}}
            lost += not set(acknowledged) <= there
        except LedgerUnsound:
            lost += 1
    return lost


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: power cuts cannot be simulated")
class TestPowerCuts:
    def test_no_acknowledged_entry_is_lost_and_the_ledger_opens(self, tmp_path):
        assert lost_after_cuts(tmp_path, synchronous=2, cuts=150) == 0

    def test_the_usual_setting_of_others_loses_some_so_these_cuts_bite(self, tmp_path):
        assert lost_after_cuts(tmp_path, synchronous=1, cuts=30) > 5

    def test_what_was_traced_is_what_is_on_the_disk(self, tmp_path):
        before, steps = traced(tmp_path, synchronous=2)
        now = {str(file): file.read_bytes() for file in tmp_path.glob("a.ledger*")}
        replayed, acknowledged = cut(before, steps, len(steps), random.Random(3))

        main = os.fspath(tmp_path / "a.ledger")
        assert len(acknowledged) == 24
        assert bytes(replayed[main]) == now[main]
