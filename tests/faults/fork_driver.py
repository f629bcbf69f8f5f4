"""Forks spenders off a parent at chosen points and checks the books after each ending; run as a script.

usage: fork_driver.py URL points|lines COUNT

The URL has a place for a NAME. Each case runs in a parent of its own, which opens the ledger, forks at the point, and
ends in the given way while its children spend. Prints one JSON object per case: what was acknowledged, what is missing
in the ledger afterwards, and whether the total is the sum of the charges.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from fractions import Fraction

import expost.ledger
from expost.core import ExpostError, PureLoss, Receipt, epsilon
from expost.ledger import Ledger, open_ledger

ACCOUNT = "dataset:flights"
PRICE = Fraction(1, 100)
RECEIPT = Receipt(question="count", method="m", promise=epsilon(PRICE), bill=PureLoss(PRICE))
CHILDREN, SPENDS = 2, 3
HERE = os.path.dirname(expost.ledger.__file__)


def spend(ledger: Ledger) -> str:
    return ledger.settle(ledger.hold([ACCOUNT], PureLoss(PRICE), question="count"), RECEIPT)


class Notes:
    """What was acknowledged to whom, in files of their own: a killed process loses none of it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, kind: str, text: str) -> None:
        descriptor = os.open(f"{self.folder}/{kind}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, text.encode() + b"\n")
        os.close(descriptor)

    def read(self, kind: str) -> list[str]:
        found = []
        for name in sorted(os.listdir(self.folder)):
            if name.startswith(kind + "-"):
                with open(f"{self.folder}/{name}") as file:
                    found += file.read().splitlines()
        return found


def work(ledger: Ledger, notes: Notes, started: int) -> None:
    """Spend in a child, before and after the parent ended."""
    try:
        for number in range(SPENDS):
            if number == 1:
                os.write(started, b"x")
                time.sleep(0.05)  # the parent ends meanwhile
            notes.write("ack", spend(ledger))
    except BaseException as error:
        notes.write("error", f"{type(error).__name__}: {error}")
        os.write(started, b"x")


# Where the parent forks. Each gets a function that forks the children.


def when_idle(ledger: Ledger, fork: Callable[[], None], notes: Notes) -> None:
    fork()


def between_hold_and_settle(ledger: Ledger, fork: Callable[[], None], notes: Notes) -> None:
    hold = ledger.hold([ACCOUNT], PureLoss(PRICE), question="count")
    fork()
    notes.write("ack", ledger.settle(hold, RECEIPT))


def while_another_thread_writes(ledger: Ledger, fork: Callable[[], None], notes: Notes) -> None:
    inside = threading.Event()
    slow = threading.Thread(target=lambda: ledger._write(lambda page: (inside.set(), time.sleep(0.2))))
    slow.start()
    inside.wait()
    fork()
    slow.join()


def while_another_thread_spends(ledger: Ledger, fork: Callable[[], None], notes: Notes) -> None:
    threads = [threading.Thread(target=lambda: notes.write("ack", spend(ledger))) for _ in range(3)]
    for thread in threads:
        thread.start()
    fork()
    for thread in threads:
        thread.join()


def with_two_handles(ledger: Ledger, fork: Callable[[], None], notes: Notes) -> None:
    other = open_ledger(ledger.url)
    notes.write("ack", spend(other))
    fork()
    notes.write("ack", spend(other))
    other.close()


POINTS = [
    when_idle,
    between_hold_and_settle,
    while_another_thread_writes,
    while_another_thread_spends,
    with_two_handles,
]

# How the parent ends while its children are at work.


def closes_and_stays(ledger: Ledger) -> None:
    ledger.close()


def exits(ledger: Ledger) -> None:
    raise SystemExit(0)


def raises(ledger: Ledger) -> None:
    raise RuntimeError("planned")


def is_killed(ledger: Ledger) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def spends_on(ledger: Ledger) -> None:
    spend(ledger)


ENDINGS = [closes_and_stays, exits, raises, is_killed, spends_on]


def run_parent(url: str, notes: Notes, point: Callable, ending: Callable, *, manner: str) -> None:
    """Play one case in this process."""
    started, start = os.pipe()
    with open_ledger(url) as ledger:
        ledger.open_account(ACCOUNT, epsilon(10))
        notes.write("ack", spend(ledger))
        children = []

        def fork() -> None:
            for _ in range(CHILDREN):
                if manner == "multiprocessing":
                    child = multiprocessing.get_context("fork").Process(target=work, args=(ledger, notes, start))
                    child.start()
                    children.append(child.pid)
                    continue
                children.append(os.fork())
                if children[-1] == 0:
                    work(ledger, notes, start)
                    os._exit(0)
            for _ in range(CHILDREN):
                os.read(started, 1)

        point(ledger, fork, notes)
        for pid in children:
            notes.write("pid", str(pid))
        ending(ledger)
    for pid in children:
        os.waitpid(pid, 0)


def in_a_process(body: Callable[[], None]) -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    status = 0
    try:
        body()
    except SystemExit:
        raise
    except BaseException as error:
        if "planned" not in str(error):
            traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


def wait_until_gone(pids: list[str]) -> None:
    """Wait for orphans, which nobody here can wait for."""
    for pid in pids:
        for _ in range(2000):
            try:
                os.kill(int(pid), 0)
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        break
            except OSError:
                break
            time.sleep(0.01)


def judge(url: str, notes: Notes) -> dict:
    acknowledged, errors = notes.read("ack"), notes.read("error")
    with open_ledger(url) as ledger:
        ledger.verify()
        entries = {entry.id for entry in ledger.history()}
        total, open_holds = ledger.spent(ACCOUNT), len(ledger.open_holds())
        settled = sum(entry.kind.value == "settle" for entry in ledger.history())
    return {
        "acknowledged": len(acknowledged),
        "lost": sum(entry not in entries for entry in acknowledged),
        "errors": errors,
        "adds up": total == PureLoss(PRICE * (settled + open_holds)),
    }


def play_cases(url: str, folder: str, count: int) -> None:
    """Play every point with every ending, ``count`` endings of each."""
    for place, point in enumerate(POINTS):
        for turn in range(count):
            ending = ENDINGS[(place + turn) % len(ENDINGS)]
            name = f"{point.__name__}-{ending.__name__}"
            os.mkdir(f"{folder}/{name}")
            notes, where = Notes(f"{folder}/{name}"), url.replace("NAME", f"{place}{turn}")
            manner = "multiprocessing" if (place + turn) % 3 == 0 else "fork"
            in_a_process(lambda: run_parent(where, notes, point, ending, manner=manner))  # noqa: B023
            wait_until_gone(notes.read("pid"))
            print(json.dumps({"case": name, **judge(where, notes)}), flush=True)


class ForkAtLine:
    """Forks once, at the given executed line of the ledger's code; the child goes on as the parent does."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count, self.child = limit, 0, None

    def on_call(self, frame, event, argument):
        return self.on_line if frame.f_code.co_filename.startswith(HERE) else None

    def on_line(self, frame, event, argument):
        if event == "line":
            self.count += 1
            if self.count == self.limit and self.child is None:
                sys.settrace(None)
                self.child = os.fork()
        return self.on_line


def play_lines(url: str, folder: str, stride: int) -> None:
    """Fork at every line of one spend. Both sides go on with it, and then spend again."""

    def body(limit: int, where: str, notes: Notes) -> None:
        ledger = open_ledger(where)
        ledger.open_account(ACCOUNT, epsilon(10))
        ledger.remaining(ACCOUNT)
        tracer = ForkAtLine(limit)
        for attempt in range(2):
            if attempt == 0:
                sys.settrace(tracer.on_call)
            try:
                notes.write("ack", spend(ledger))
            except ExpostError as error:
                notes.write("child" if tracer.child == 0 else "error", f"{type(error).__name__}: {error}")
            sys.settrace(None)
        notes.write("lines", str(tracer.count))
        if tracer.child:
            ledger.close()
            os.waitpid(tracer.child, 0)

    os.mkdir(f"{folder}/count")
    in_a_process(lambda: body(-1, url.replace("NAME", "count"), Notes(f"{folder}/count")))
    lines = int(Notes(f"{folder}/count").read("lines")[0])
    for limit in range(1, lines + 1, stride):
        os.mkdir(f"{folder}/{limit}")
        notes, where = Notes(f"{folder}/{limit}"), url.replace("NAME", f"line{limit}")
        in_a_process(lambda: body(limit, where, notes))  # noqa: B023
        print(json.dumps({"case": limit, "child": notes.read("child"), **judge(where, notes)}), flush=True)


def main(url: str, mode: str, count: str, folder: str) -> None:
    gc.freeze()
    (play_cases if mode == "points" else play_lines)(url, folder, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
