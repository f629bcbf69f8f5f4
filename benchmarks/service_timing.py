"""What the time of an answer tells: a planted row, and the size of the noise, as areas under the curve (0.5 is nothing).

    python benchmarks/service_timing.py [--questions 1000] [--grid SECONDS] [--clients 1] [--folder DIR] [--json FILE]

Two tables, each with a service of its own, differ in one row, which is as large as it can be. Sums of both are asked in random order, each a new question, and the
client measures the time from sending to receiving. The area is that of telling the tables apart by the time, and of telling noise
above its median from noise below. The long run: ``--questions 10000``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import rankdata

from expost.ledger import new_key
from expost.service import Curator, Role, ServiceSettings

try:
    from benchmarks.service import free_port, serving
except ModuleNotFoundError:  # run as a script
    from service import free_port, serving  # type: ignore[no-redef]

ROWS = 10_000
TABLES = ("without", "planted")


def write_table(folder: Path, name: str, grid: float | None) -> tuple[Path, str, float]:
    """Write one of the tables and its service; return the owner's file, an analyst's token and the exact sum."""
    pay = np.random.default_rng(0).uniform(0, 100, ROWS)
    pay = np.append(pay, 100.0) if name == "planted" else pay
    pq.write_table(pa.table({"pay": pay}), folder / "people.parquet")
    (folder / "people.toml").write_text('source = "people.parquet"\nname = "people"\n[bounds]\npay = [0, 100]\n')
    lines = ['ledger = "a.ledger"', 'state = "a.state"', *([] if grid is None else [f"time_grid = {grid}"])]
    lines += ["[[datasets]]", 'description = "people.toml"', "budget = 1e9"]
    lines += ["[limits]", "requests_per_minute = 100000000", "jobs_per_token = 1000"]
    settings = folder / "owner.toml"
    settings.write_text("\n".join(lines))
    curator = Curator(ServiceSettings.read(settings))
    token = curator.create_token(role=Role.ANALYST, subject="ann", dataset="people", budget=1e8).text
    curator.close()
    return settings, token, float(pay.sum())


async def ask_all(
    addresses: dict[str, str], tokens: dict[str, str], *, questions: int, clients: int
) -> list[dict[str, Any]]:
    """Ask for sums of both tables in random order; return table, seconds and value of each."""
    order = np.random.default_rng().integers(0, 2, questions)
    numbers, found = iter(range(questions)), list[dict[str, Any]]()

    async def one_client() -> None:
        async with httpx2.AsyncClient(timeout=120) as http:
            for number in numbers:
                table = TABLES[order[number]]
                question = {"column": "pay", "epsilon": 0.01, "where": f"pay >= {-1 - number}"}
                headers = {"authorization": f"Bearer {tokens[table]}", "idempotency-key": str(number)}
                body = {"statistic": "sum", "arguments": question}
                start = time.perf_counter()
                answer = await http.post(f"{addresses[table]}/v1/datasets/people/ask", json=body, headers=headers)
                seconds = time.perf_counter() - start
                value = answer.json()["release"]["value"]
                found.append({"table": table, "seconds": seconds, "value": read_number(value)})

    await asyncio.gather(*(one_client() for _ in range(clients)))
    return found


def read_number(value: Any) -> float:
    return float(value["of"].split("/")[0]) / float(value["of"].split("/")[1]) if isinstance(value, dict) else value


def area(seconds: np.ndarray[Any, Any], positive: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the area under the curve of telling ``positive`` by time, and its standard error if time tells nothing."""
    ranks, many, few = rankdata(seconds), int(positive.sum()), int((~positive).sum())
    found = (ranks[positive].sum() - many * (many + 1) / 2) / (many * few)
    return float(found), float(np.sqrt((many + few + 1) / (12 * many * few)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--questions", type=int, default=1000)
    options.add_argument("--grid", type=float)
    options.add_argument("--clients", type=int, default=1)
    options.add_argument("--folder")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    os.environ.setdefault("EXPOST_LEDGER_KEY", new_key())
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, contextlib.ExitStack() as running:
        addresses, tokens, exact = dict[str, str](), dict[str, str](), dict[str, float]()
        for name in TABLES:
            place, port = Path(folder) / name, free_port()
            place.mkdir()
            path, tokens[name], exact[name] = write_table(place, name, chosen.grid)
            command = ["-m", "expost", "serve", str(path), "--port", str(port)]
            addresses[name], _ = running.enter_context(serving(command, port, "/ready"))
        found = asyncio.run(ask_all(addresses, tokens, questions=chosen.questions, clients=chosen.clients))
    seconds = np.array([each["seconds"] for each in found])
    planted = np.array([each["table"] == "planted" for each in found])
    noise = np.abs(np.array([each["value"] - exact[each["table"]] for each in found]))
    rows = {"a planted row": area(seconds, planted), "noise above its median": area(seconds, noise > np.median(noise))}
    print(f"{len(found)} questions, median {np.median(seconds):.3f} s, p99 {np.quantile(seconds, 0.99):.3f} s")
    for what, (value, error) in rows.items():
        print(f"area under the curve for {what}: {value:.3f}, standard error {error:.3f}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"questions": len(found), "grid": chosen.grid, **rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
