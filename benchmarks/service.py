"""What the service carries: many clients, exact totals, and questions per second compared with a bare FastAPI route.

    python benchmarks/service.py [--clients 16] [--questions 500] [--workers 4] [--only sqlite|postgres]
                                 [--postgres URL] [--folder DIR] [--json FILE]

Every client is an analyst with a budget of its own, and every question is a new one, so that each is charged. SQLite is served by
one process, PostgreSQL by ``--workers``. The sum of all receipts must be what the ledger has spent, to the last digit, or the run
fails. The bare route writes one row to a database of the same kind and waits for the disk, from the same clients. Without
``--postgres`` a private server is started if its binaries are installed. The long run: ``--clients 64 --questions 100000``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sql
from fastapi import FastAPI

from expost.ledger import new_key
from expost.service import Curator, Role, ServiceSettings

try:
    from benchmarks.ledger import postgres_url
except ModuleNotFoundError:  # run as a script
    from ledger import postgres_url  # type: ignore[no-redef]

ROWS = 10_000
BARE = "EXPOST_BARE"
Send = Callable[[httpx2.AsyncClient, int, int], Awaitable[Fraction]]


# The two servers


def bare_app() -> FastAPI:
    """Return an application with one route, which commits one row."""
    where = os.environ[BARE]
    engine = sql.create_engine(where, pool_size=10, max_overflow=20)
    if engine.dialect.name == "sqlite":
        sql.event.listen(engine, "connect", _wait_for_disk)
    app = FastAPI()

    @app.post("/write")
    def write(body: dict[str, Any]) -> dict[str, Any]:
        with engine.begin() as connection:
            connection.execute(sql.text("INSERT INTO bare VALUES (:text)"), {"text": json.dumps(body)})
        return body

    return app


def _wait_for_disk(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=60000")


@contextmanager
def serving(command: list[str], port: int, path: str, **more: str) -> Iterator[tuple[str, int]]:
    """Run a server until the end of the block, and yield its address and its process once it answers."""
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, *command], env=os.environ | more)
    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                httpx2.get(address + path, timeout=5)
                break
            except httpx2.TransportError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the server did not start") from None
                time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(60)


def processor_seconds(process: int) -> float:
    """Return the processor time that a process and its children have used so far (Linux only, else 0)."""
    spent, waiting = 0, [process]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            facts = (folder / "stat").read_text().rpartition(")")[2].split()
            spent += int(facts[11]) + int(facts[12])
            for thread in (folder / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except OSError:  # it has ended, or this is another system
            continue
    return spent / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_settings(folder: Path, ledger: str, state: str) -> Path:
    """Write a table, its description and an owner's file without limits that a benchmark would meet."""
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"pay": rng.uniform(0, 100, ROWS)}), folder / "people.parquet")
    (folder / "people.toml").write_text('source = "people.parquet"\nname = "people"\n[bounds]\npay = [0, 100]\n')
    settings = folder / "owner.toml"
    settings.write_text(
        f'ledger = "{ledger}"\nstate = "{state}"\n[[datasets]]\ndescription = "people.toml"\nbudget = 1e9\n'
        "[limits]\nrequests_per_minute = 100000000\njobs_per_token = 1000\n"
    )
    return settings


# The load


async def run_clients(address: str, send: Send, *, clients: int, questions: int) -> dict[str, Any]:
    """Send all questions from so many clients at once; return their times and the sum of what was charged."""
    numbers = iter(range(questions))
    times: list[float] = []
    total = Fraction(0)

    async def one_client(name: int) -> None:
        nonlocal total
        async with httpx2.AsyncClient(base_url=address, timeout=120) as http:
            for number in numbers:
                start = time.perf_counter()
                charged = await send(http, name, number)
                total += charged  # not in one statement: it would read the total before it waits
                times.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*map(one_client, range(clients)))
    wall = time.perf_counter() - start
    ordered = sorted(times)
    return {
        "questions a second": len(ordered) / wall,
        "p50 seconds": statistics.median(ordered),
        "p99 seconds": ordered[int(0.99 * len(ordered))],
        "total": total,
    }


def ask_with(tokens: list[str]) -> Send:
    async def ask(http: httpx2.AsyncClient, client: int, number: int) -> Fraction:
        question = {"within": 200, "where": f"pay > {number / 10**6}"}
        headers = {"authorization": f"Bearer {tokens[client]}", "idempotency-key": f"question {number}"}
        body = {"statistic": "count", "arguments": question}
        found = await http.post("/v1/datasets/people/ask", json=body, headers=headers)
        while found.status_code == 202:
            job = await http.get(f"/v1/jobs/{found.json()['job']}?wait=20", headers=headers)
            found = _as_answer(job) if job.status_code == 200 and job.json()["state"] == "done" else found
        if found.status_code != 200:
            raise SystemExit(f"question {number} got {found.status_code}: {found.text}")
        return Fraction(found.json()["release"]["receipt"]["of"]["bill"]["epsilon"])

    return ask


def _as_answer(job: httpx2.Response) -> httpx2.Response:
    facts = job.json()
    return httpx2.Response(facts["status"], json=facts["result"])


async def write_row(http: httpx2.AsyncClient, client: int, number: int) -> Fraction:
    body = {"statistic": "count", "arguments": {"within": 200, "where": f"pay > {number / 10**6}"}}
    found = await http.post("/write", json=body | {"client": client})
    if found.status_code != 200:
        raise SystemExit(f"the bare route answered {found.status_code}")
    return Fraction(0)


def put_load(server: tuple[str, int], send: Send, *, clients: int, questions: int) -> dict[str, Any]:
    """Run all clients, after a few questions that start threads and connections, and add the processor time."""
    address, process = server
    warm = min(questions, 2 * clients)

    def warm_up(http: httpx2.AsyncClient, client: int, number: int) -> Awaitable[Fraction]:
        return send(http, client, number + 10**5)

    first = asyncio.run(run_clients(address, warm_up, clients=clients, questions=warm))
    before = processor_seconds(process)
    found = asyncio.run(run_clients(address, send, clients=clients, questions=questions))
    spent = (processor_seconds(process) - before) / questions
    return found | {"processor seconds a question": spent, "total": found["total"] + first["total"]}


# The rows of the table


def time_service(
    folder: Path, ledger: str, state: str, *, clients: int, questions: int, workers: int
) -> dict[str, Any]:
    path, port = write_settings(folder, ledger, state), free_port()
    curator = Curator(ServiceSettings.read(path))
    tokens = [
        curator.create_token(role=Role.ANALYST, subject=f"analyst-{number}", dataset="people", budget=1e8).text
        for number in range(clients)
    ]
    curator.close()
    command = ["-m", "expost", "serve", str(path), "--port", str(port), "--workers", str(workers)]
    with serving(command, port, "/ready") as server:
        result = put_load(server, ask_with(tokens), clients=clients, questions=questions)
    curator = Curator(ServiceSettings.read(path))
    spent = curator.ledger.spent("dataset:people").amounts()["epsilon"]
    analysts = sum(
        curator.ledger.spent(name).amounts()["epsilon"]
        for name in curator.ledger.accounts()
        if name.startswith("analyst:")
    )
    held, sound = curator.ledger.verify().open_holds, curator.store.check_log()  # an unsound ledger raises
    curator.close()
    total = result.pop("total")
    if not (total == spent == analysts and held == 0 and sound):
        raise SystemExit(f"receipts {total}, dataset {spent}, analysts {analysts}, {held} open holds, sound: {sound}")
    return result | {"epsilon of all receipts": str(total), "equals the ledger": True}


def time_bare(where: str, *, clients: int, questions: int, workers: int) -> dict[str, Any]:
    engine = sql.create_engine(where)
    with engine.begin() as connection:
        connection.execute(sql.text("CREATE TABLE bare (text TEXT)"))
    engine.dispose()
    port = free_port()
    place = ["--app-dir", str(Path(__file__).parent), "--port", str(port), "--workers", str(workers)]
    command = ["-m", "uvicorn", "service:bare_app", "--factory", *place, "--log-level", "warning", "--no-access-log"]
    command += ["--timeout-worker-healthcheck", "120"]  # as in the command of the service
    with serving(command, port, "/openapi.json", **{BARE: where}) as server:
        result = put_load(server, write_row, clients=clients, questions=questions)
    del result["total"]
    return result


def compare(name: str, bare: dict[str, Any], service: dict[str, Any], workers: int) -> list[dict[str, Any]]:
    rows = []
    for what, result in ((f"bare route, {name}", bare), (f"service, {name}", service)):
        ratio = result["questions a second"] / bare["questions a second"]
        rows.append({"row": what, "workers": workers, **result, "rate to bare": ratio})
        print(
            f"{what:<26}{workers:>8}{result['questions a second']:>13.1f}{1000 * result['p50 seconds']:>9.0f}"
            f"{1000 * result['p99 seconds']:>9.0f}{1000 * result['processor seconds a question']:>9.2f}{ratio:>9.2f}{'yes' if 'equals the ledger' in result else '':>8}",
            flush=True,
        )
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, default=16)
    options.add_argument("--questions", type=int, default=500)
    options.add_argument("--workers", type=int, default=4, help="processes with PostgreSQL")
    options.add_argument("--only", choices=("sqlite", "postgres"))
    options.add_argument("--postgres")
    options.add_argument("--folder", help="where the files go; a real disk, not a memory file system")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    os.environ.setdefault("EXPOST_LEDGER_KEY", new_key())
    load = {"clients": chosen.clients, "questions": chosen.questions}
    rows: list[dict[str, Any]] = []
    print(f"{'':<26}{'workers':>8}{'questions/s':>13}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms':>9}{'x bare':>9}{'exact':>8}")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        if chosen.only != "postgres":
            bare = time_bare(f"sqlite:///{folder / 'bare.db'}", workers=1, **load)
            rows += compare("SQLite", bare, time_service(folder, "a.ledger", "a.state", workers=1, **load), 1)
        url = None if chosen.only == "sqlite" else postgres_url(chosen.postgres)
        if url is not None:
            workers = chosen.workers
            bare = time_bare(url.replace("postgresql://", "postgresql+psycopg://"), workers=workers, **load)
            rows += compare("PostgreSQL", bare, time_service(folder, url, url, workers=workers, **load), workers)
    if chosen.json:
        chosen.json.write_text(json.dumps(load | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
