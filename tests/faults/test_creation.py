"""A ledger is created as a whole or not at all, once, whoever else does so and wherever its creator dies."""

import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import expost.ledger
from expost.core import LedgerUnsound, PureLoss, epsilon
from expost.ledger import open_ledger

HERE = os.path.dirname(expost.ledger.__file__)
long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")


@pytest.fixture
def folder():
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def begin(path):
    """What a first user does, up to the first entries that have a note."""
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
        ledger.hold(["dataset:flights"], PureLoss(0.25), question="count")


def in_a_fork(body):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


class DiesAtLine:
    """Kills its process at one executed line of the ledger's code; counts when each line is first executed."""

    def __init__(self, limit):
        self.limit, self.count, self.first = limit, 0, {}

    def on_call(self, frame, event, argument):
        return self.on_line if frame.f_code.co_filename.startswith(HERE) else None

    def on_line(self, frame, event, argument):
        if event == "line":
            self.count += 1
            self.first.setdefault((frame.f_code.co_filename, frame.f_lineno), self.count)
            if self.count == self.limit:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.on_line


@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=long_profile)])
def test_after_a_kill_at_any_line_of_the_creation_the_next_process_goes_on(folder, stride):
    begin(folder / "first.ledger")  # the first one imports modules and fills caches
    counter, tracer = DiesAtLine(-1), sys.gettrace()
    sys.settrace(counter.on_call)
    begin(folder / "count.ledger")
    sys.settrace(tracer)
    instants = sorted(counter.first.values())[::stride]

    bad, killed = [], 0
    for instant in instants:
        path = folder / f"{instant}.ledger"

        def traced(limit=instant, path=path):
            sys.settrace(DiesAtLine(limit).on_call)
            begin(path)

        killed += os.WIFSIGNALED(in_a_fork(traced))
        if in_a_fork(lambda path=path: begin(path)) != 0:
            bad.append((instant, sorted(file.name for file in folder.glob(f"{instant}.*"))))

    assert bad == []
    assert killed >= 0.9 * len(instants)


CREATES = """
import sys
from expost.core import PureLoss, epsilon
from expost.ledger import open_ledger
with open_ledger(sys.argv[1]) as ledger:
    ledger.open_account("dataset:flights", epsilon(1))
    ledger.hold(["dataset:flights"], PureLoss(0.25), question="count")
print("done")
"""
ENDS = ["", ".new", ".new-wal", ".new-shm", ".new-journal", ".creating", "-wal", "-shm", ".head", ".head.new", ".lock"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("stride", [60, pytest.param(1, marks=long_profile)])
def test_after_a_kill_at_any_system_call_of_the_creation_the_next_process_goes_on(folder, stride):
    bad, number = [], 1
    while number < 1000:
        path = folder / f"{number}.ledger"
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=all"]
        command += ["-e", f"inject=all:signal=SIGKILL:when={number}"]
        for end in ENDS:
            command += ["-P", f"{path}{end}"]
        done = subprocess.run([*command, sys.executable, "-c", CREATES, str(path)], capture_output=True, text=True)
        if "PTRACE" in done.stderr:
            pytest.skip("strace may not trace here")
        if in_a_fork(lambda path=path: begin(path)) != 0:
            bad.append((number, sorted(file.name for file in folder.glob(f"{number}.*"))))
        if done.stdout == "done\n":
            break
        number += stride

    assert bad == []
    assert number > 100


def open_and_spend(path, gate, told):
    gate.wait()
    try:
        with open_ledger(path) as ledger:
            ledger.open_account("dataset:flights", epsilon(1))
            ledger.hold(["dataset:flights"], PureLoss(0.01), question="count")
        told.put("fine")
    except Exception as error:
        told.put(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("trials", [6, pytest.param(60, marks=long_profile)])
def test_processes_that_open_a_new_ledger_at_once_all_get_it(folder, trials):
    context, crowd = multiprocessing.get_context("fork"), 6
    answers = []
    for trial in range(trials):
        gate, told = context.Barrier(crowd), context.Queue()
        path = folder / f"{trial}.ledger"
        children = [context.Process(target=open_and_spend, args=(path, gate, told)) for _ in range(crowd)]
        for child in children:
            child.start()
        answers += [told.get(timeout=60) for _ in children]
        for child in children:
            child.join()
        with open_ledger(path) as ledger:
            assert ledger.verify().holds == crowd

    assert answers == ["fine"] * crowd * trials


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_all_files_are_private_whatever_the_umask(folder, umask):
    before = os.umask(umask)
    try:
        with open_ledger(folder / "a.ledger") as ledger:
            ledger.open_account("dataset:flights", epsilon(1))
            ledger.hold(["dataset:flights"], PureLoss(0.25), question="count")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    finally:
        os.umask(before)

    assert {"a.ledger", "a.ledger-wal", "a.ledger-shm", "a.ledger.head"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_a_mode_that_the_owner_chose_is_kept_and_holds_for_the_files_next_to_it(folder):
    path = folder / "a.ledger"
    open_ledger(path).close()
    path.chmod(0o660)
    begin(path)

    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o660}


@pytest.mark.parametrize("leftover", ["", ".head", ".new", ".new-wal", ".creating", ".head.new"])
def test_an_empty_file_that_a_crash_left_counts_as_missing(folder, leftover):
    (folder / f"a.ledger{leftover}").touch()

    begin(folder / "a.ledger")

    with open_ledger(folder / "a.ledger") as ledger:
        assert ledger.verify().holds == 1


def test_a_ledger_is_not_created_next_to_the_note_of_one_that_is_gone(folder):
    path = folder / "a.ledger"
    begin(path)
    path.unlink()

    with pytest.raises(LedgerUnsound, match="its file is missing, but not the note next to it"):
        open_ledger(path)
    assert not path.exists()
