"""What the ledger costs: hold + settle against bare SQLite commits, many clients, a thousand windows, and its length.

    python benchmarks/ledger.py [--rounds 20] [--pairs 10] [--clients 32] [--lengths 1000 10000] [--postgres URL]
                                [--folder DIR] [--picture FILE] [--json FILE]

Rounds are interleaved, so that a busy machine slows all rows alike; medians and ratios are printed. A hold and a
settle are two durable commits, so the ratio to two bare commits of the same bytes says what chain, checks and exact sums
cost. Without ``--postgres`` a server of our own is started if its binaries are installed. ``--lengths`` grows ledgers of so
many entries and times what should not depend on the length; ``--picture`` draws it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from expost.core import PureLoss, Receipt, epsilon
from expost.ledger import EntryKind, Ledger, new_key, open_ledger
from expost.ledger.ledger_entry import LedgerEntry, canonical_json, new_ticket

HELD = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="discrete Laplace", promise=HELD.promise(), bill=PureLoss(0.125))
ACCOUNTS = ["dataset:flights", "analyst:ann"]
BUDGET = 10**9
WINDOWS = (125, 250, 500, 1000)


def spend_pairs(ledger: Ledger, count: int) -> None:
    for _ in range(count):
        ledger.settle(ledger.hold(ACCOUNTS, HELD, question="count"), RECEIPT)


def pairs_on(ledger: Ledger) -> Callable[[int], None]:
    for account in ACCOUNTS:
        ledger.open_account(account, epsilon(BUDGET))
    return partial(spend_pairs, ledger)


def entry_bytes() -> int:
    """Return the size of the row of an entry, half of what a hold and its settlement write to the chain."""
    ledger = open_ledger(None)
    pairs_on(ledger)(2)
    return sum(len(entry.text) + 2 * len(entry.hash) for entry in ledger.history()[-2:]) // 2


def connect_bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = 2")
    connection.execute("CREATE TABLE IF NOT EXISTS entries (text TEXT)")
    return connection


def bare_commits(path: Path) -> Callable[[int], None]:
    connection, content = connect_bare(path), "x" * entry_bytes()

    def run(count: int) -> None:
        for _ in range(2 * count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO entries VALUES (?)", [content])
            connection.execute("COMMIT")

    return run


def postgres_url(given: str | None) -> str | None:
    if given is not None:
        return given
    path = Path(__file__).parents[1] / "tests" / "faults" / "postgres_server.py"
    spec = importlib.util.spec_from_file_location("postgres_server", path)
    if spec is None or spec.loader is None or not path.exists():
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if reason := module.missing():
        print(f"no PostgreSQL row: {reason}", file=sys.stderr)
        return None
    return str(module.shared_server().new_place())


# One client


def time_one_client(folder: Path, url: str | None, *, rounds: int, pairs: int) -> list[dict[str, Any]]:
    runs = {
        "two bare SQLite commits": bare_commits(folder / "bare.db"),
        "memory": pairs_on(open_ledger(None)),
        "SQLite": pairs_on(open_ledger(folder / "a.ledger")),
    }
    if url is not None:
        runs["PostgreSQL"] = pairs_on(open_ledger(url))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run(pairs)
            seconds[name].append((time.perf_counter() - start) / pairs)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first warms up
    bare = medians["two bare SQLite commits"]
    print(f"{'one client':<26}{'pairs/s':>10}{'ms/pair':>10}{'x bare':>10}")
    for name, median in medians.items():
        print(f"{name:<26}{1 / median:>10.0f}{1000 * median:>10.2f}{bare / median:>10.2f}")
    return [{"ledger": name, "seconds a pair": each, "rate to bare": bare / each} for name, each in medians.items()]


# Many clients


def spend_for(place: str, seconds: float, gate: Any, told: Any) -> None:
    """Spend in a process of its own, and tell the time of each pair."""
    if place.endswith(".db"):
        run: Callable[[int], None] = bare_commits(Path(place))
    else:
        run = partial(spend_pairs, open_ledger(place))
    run(1)
    gate.wait()
    times, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        run(1)
        times.append(time.perf_counter() - start)
    told.put(times)


def time_many_clients(folder: Path, url: str | None, *, clients: int, seconds: float) -> list[dict[str, Any]]:
    places = {"two bare SQLite commits": str(folder / "crowd.db"), "SQLite": str(folder / "crowd.ledger")}
    connect_bare(Path(places["two bare SQLite commits"])).close()
    if url is not None:
        places["PostgreSQL"] = url
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    print(f"\n{f'{clients} clients':<26}{'pairs/s':>10}{'p99 ms':>10}{'most/least':>12}{'x bare':>10}")
    for name, place in places.items():
        if not place.endswith(".db"):
            with open_ledger(place) as ledger:
                pairs_on(ledger)(1)
        gate, told = context.Barrier(clients), context.Queue()
        crowd = [context.Process(target=spend_for, args=(place, seconds, gate, told)) for _ in range(clients)]
        for each in crowd:
            each.start()
        times = [told.get() for _ in crowd]
        for each in crowd:
            each.join()
        every = sorted(one for mine in times for one in mine)
        rate, counts = len(every) / seconds, sorted(map(len, times))
        row = {"ledger": name, "pairs a second": rate, "p99 seconds": every[int(0.99 * len(every))]}
        row |= {"busiest to least": counts[-1] / max(counts[0], 1)}
        row |= {"rate to bare": rate / rows[0]["pairs a second"] if rows else 1.0}
        rows.append(row)
        print(
            f"{name:<26}{rate:>10.0f}{1000 * row['p99 seconds']:>10.0f}{row['busiest to least']:>12.2f}"
            f"{row['rate to bare']:>10.2f}"
        )
    return rows


# Many windows


def time_windows(folder: Path) -> list[dict[str, Any]]:
    rows = []
    print(f"\n{'windows at once':<26}{'hold ms':>10}{'settle ms':>10}")
    for count in WINDOWS:
        with open_ledger(folder / f"{count} windows.ledger") as ledger:
            ledger.open_account("dataset:visits", epsilon(BUDGET))
            names = [f"dataset:visits/week={number}" for number in range(count)]
            ledger.open_part(names, of="dataset:visits", by="week")
            held, settled = [], []
            for _ in range(3):
                start = time.perf_counter()
                hold = ledger.hold(names, HELD, question="count")
                held.append(time.perf_counter() - start)
                start = time.perf_counter()
                ledger.settle(hold, RECEIPT)
                settled.append(time.perf_counter() - start)
        rows.append({"windows": count, "seconds to hold": min(held), "seconds to settle": min(settled)})
        print(f"{count:<26}{1000 * min(held):>10.0f}{1000 * min(settled):>10.0f}")
    return rows


# Length


def grow_ledger(path: Path, length: int) -> None:
    """Write a ledger of so many entries, as holds and settlements would, without a commit for each."""
    with open_ledger(path) as ledger:
        pairs_on(ledger)(1)
        hold, settle = (entry.body for entry in ledger.history()[-2:])
        last = ledger.history()[-1]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = 0")
    connection.execute("BEGIN")
    entries: list[LedgerEntry] = []
    holds: list[tuple[Any, ...]] = []
    spent = Fraction(1, 8)
    while last.sequence < length - 1:
        ticket = new_ticket()
        last = LedgerEntry.follow(last, EntryKind.HOLD, next_body(hold, last, spent + HELD.epsilon, ticket=ticket))
        entries.append(last)
        spent += RECEIPT.bill.amounts()["epsilon"]
        last = LedgerEntry.follow(last, EntryKind.SETTLE, next_body(settle, last, spent, hold=last.id))
        entries.append(last)
        holds.append((last.sequence - 1, None, ticket, "settled", last.sequence))
        if len(entries) >= 20_000 or last.sequence >= length - 1:
            rows = [(one.sequence, one.kind.value, one.recorded, one.text, one.previous, one.hash) for one in entries]
            connection.executemany("INSERT INTO ledger_entries VALUES (?, ?, ?, ?, ?, ?)", rows)
            connection.executemany("INSERT INTO ledger_holds VALUES (?, ?, ?, ?, ?)", holds)
            entries.clear()
            holds.clear()
    total = canonical_json(PureLoss(spent).to_json())
    used = -(-spent * 10**18 // BUDGET)
    connection.execute(
        "UPDATE ledger_accounts SET spent = ?, own = ?, used = ?, entry = ?", (total, total, used, last.sequence)
    )
    connection.execute("COMMIT")
    connection.close()


def next_body(body: dict[str, Any], last: LedgerEntry, spent: Fraction, **more: Any) -> dict[str, Any]:
    total = PureLoss(spent).to_json()
    return body | more | {"spent": dict.fromkeys(ACCOUNTS, total), "links": dict.fromkeys(ACCOUNTS, last.sequence)}


def time_call(action: Callable[[], Any], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def time_lengths(folder: Path, lengths: Sequence[int]) -> list[dict[str, Any]]:
    key, rows = new_key(), []
    names = ("open with key", "open without", "page", "open holds", "hold + settle")
    print(f"\n{'entries':<12}" + "".join(f"{name + ' ms':>19}" for name in names))
    for length in lengths:
        path = folder / f"{length} entries.ledger"
        grow_ledger(path, length)
        os.environ.pop("EXPOST_LEDGER_KEY", None)
        start = time.perf_counter()
        with open_ledger(path, key=key) as ledger:
            without = time.perf_counter() - start  # there is no checkpoint yet
            spend_pairs(ledger, 1)
        with open_ledger(path, key=key) as ledger:
            middle = ledger.history(last=1, before=ledger.history(last=length // 2)[0].id)[0].id
            row = {
                "entries": length,
                "open with key": time_call(lambda path=path: open_ledger(path, key=key).close()),
                "open without": without,
                "page": max(
                    time_call(lambda ledger=ledger: ledger.history(ACCOUNTS[0], last=50)),
                    time_call(lambda ledger=ledger, middle=middle: ledger.history(ACCOUNTS[0], last=50, before=middle)),
                ),
                "open holds": time_call(ledger.open_holds),
                "hold + settle": time_call(lambda ledger=ledger: spend_pairs(ledger, 1)),
            }
        rows.append(row)
        print(f"{length:<12}" + "".join(f"{1000 * row[name]:>19.1f}" for name in names))
        for end in ("", "-wal", "-shm", ".head", ".lock"):
            Path(f"{path}{end}").unlink(missing_ok=True)
    return rows


def draw_growth(rows: Sequence[dict[str, Any]], windows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw time against the length, and against the number of windows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in ("open without", "open with key", "page", "hold + settle", "open holds"):
        left.plot([row["entries"] for row in rows], [1000 * row[name] for row in rows], marker="o", label=name)
    left.set(xscale="log", yscale="log", xlabel="entries", ylabel="milliseconds")
    left.legend(fontsize=7)
    right.plot([row["windows"] for row in windows], [1000 * row["seconds to hold"] for row in windows], marker="o")
    right.plot([row["windows"] for row in windows], [1000 * row["seconds to settle"] for row in windows], marker="o")
    right.set(xlabel="windows charged at once", ylabel="milliseconds", ylim=(0, None))
    right.legend(["hold", "settle"], fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--seconds", type=float, default=10.0, help="how long many clients spend")
    options.add_argument("--lengths", type=int, nargs="*", default=[1000, 10_000])
    options.add_argument("--postgres")
    options.add_argument("--folder", help="where the files go; a real disk, not a memory file system")
    options.add_argument("--picture", type=Path, help="an SVG or PNG file with the growth")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder, url = Path(name), postgres_url(chosen.postgres)
        numbers: dict[str, Any] = {
            "rows": time_one_client(folder, url, rounds=chosen.rounds, pairs=chosen.pairs),
            "clients": time_many_clients(folder, url, clients=chosen.clients, seconds=chosen.seconds),
            "windows": time_windows(folder),
            "lengths": time_lengths(folder, chosen.lengths),
        }
    if chosen.picture:
        draw_growth(numbers["lengths"], numbers["windows"], chosen.picture)
    if chosen.json:
        chosen.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
