"""Hold + settle per second, against bare SQLite commits of the same durability in the same run.

    python benchmarks/ledger.py [--rounds 20] [--pairs 10] [--postgres URL] [--json FILE]

Rounds are interleaved, so that a busy machine slows all rows alike; medians and ratios are printed. A hold and a
settle are two durable commits, so the ratio to two bare commits says what chain, checks and exact sums cost. Without
``--postgres`` a server of our own is started if its binaries are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from expost.core import PureLoss, Receipt, epsilon
from expost.ledger import Ledger, open_ledger

HELD = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="discrete Laplace", promise=HELD.promise(), bill=PureLoss(0.125))


def pairs_on(ledger: Ledger) -> Callable[[int], None]:
    accounts = ["dataset:flights", "analyst:ann"]
    for account in accounts:
        ledger.open_account(account, epsilon(10**6))

    def run(count: int) -> None:
        for _ in range(count):
            ledger.settle(ledger.hold(accounts, HELD, question="count"), RECEIPT)

    return run


def bare_commits(path: Path) -> Callable[[int], None]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = 2")
    connection.execute("CREATE TABLE entries (text TEXT)")

    def run(count: int) -> None:
        for _ in range(2 * count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO entries VALUES (?)", ["x" * 800])
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--postgres")
    options.add_argument("--folder", help="where the files go; a real disk, not a memory file system")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        runs = {
            "two bare SQLite commits": bare_commits(Path(folder) / "bare.db"),
            "memory": pairs_on(open_ledger(None)),
            "SQLite": pairs_on(open_ledger(Path(folder) / "a.ledger")),
        }
        if url := postgres_url(chosen.postgres):
            runs["PostgreSQL"] = pairs_on(open_ledger(url))
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(chosen.rounds + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                run(chosen.pairs)
                seconds[name].append((time.perf_counter() - start) / chosen.pairs)
        medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first warms up
        bare = medians["two bare SQLite commits"]
        print(f"{'ledger':<26}{'pairs/s':>10}{'ms/pair':>10}{'x bare':>10}")
        for name, median in medians.items():
            print(f"{name:<26}{1 / median:>10.0f}{1000 * median:>10.2f}{median / bare:>10.2f}")
        ledger = open_ledger(Path(folder) / "a.ledger")
        start = time.perf_counter()
        report = ledger.verify()
        verify = (time.perf_counter() - start) / report.entries
        print(f"verify: {1e6 * verify:.0f} us per entry, {report.entries} entries")
    if chosen.json:
        rows = [
            {"ledger": name, "seconds a pair": median, "times bare": median / bare} for name, median in medians.items()
        ]
        numbers = {"rows": rows, "seconds to verify an entry": verify, "entries": report.entries}
        chosen.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
