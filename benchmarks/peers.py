"""The same questions to each library at the same epsilon: how long an answer takes and how far off it is.

    python benchmarks/peers.py [--data FOLDER] [--rounds 15] [--python PEER=PATH ...] [--json FILE]

Counts, means, histograms and medians of arrival delays at epsilon 0.1, and a logistic regression of KDD Cup 99 (38 features,
100,000 rows, penalty 0.005) at epsilon 0.1. Every library runs in a process of its own, one thread each, and answers in
turn, so that a busy machine slows all alike; the first answer of each is not counted. ``--python`` names the Python of a
library that cannot live beside this package (diffprivlib needs an older scikit-learn); so does the environment variable
EXPOST_PEERS, as PEER=PATH with commas between. A library that is missing is named as missing. NumPy, DuckDB and scikit-learn
are exact and not private: what privacy costs in time. OpenDP and diffprivlib are asked in the way of their manuals;
diffprivlib's noise is made of floats and its accountant lives in the process. An error is the mean distance from the exact
answer (of a histogram: a cell); for the model the excess risk over the minimum.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks import tables
from benchmarks.peer_worker import PEERS
from expost.experiments.experiment_data import ExperimentTable, data_folder
from expost.experiments.fitting_methods import LogisticRisk

FACTS = {"epsilon": 0.1, "model_epsilon": 0.1, "penalty": 0.005, "low": -60.0, "high": 300.0, "late": 15.0}
CELLS = 36
EXACT = {"count": "NumPy", "mean": "NumPy", "histogram": "NumPy", "median": "NumPy", "logistic": "scikit-learn"}
OURS = "expost"


class Worker:
    """One library in its own process."""

    def __init__(self, peer: str, python: str, data: Path) -> None:
        script = Path(__file__).with_name("peer_worker.py")
        single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")}
        self._process = subprocess.Popen(
            [python, str(script), peer, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | single,
        )
        self.hello: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"missing": "its process ended"}

    def ask(self, question: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self._process.communicate(timeout=60)


def delays(folder: Path | None) -> np.ndarray:
    """Minutes of arrival delay."""
    return tables.nycflights(folder)["arr_delay"].drop_nulls().to_numpy()


def classified(folder: Path | None) -> tables.Table:
    if folder and (folder / "kddcup99_10pct.parquet").exists():
        return tables.kdd(folder)
    from expost.experiments.experiment_data import load

    made_up = load("made-up classification", None)
    return made_up.features, made_up.target


def write_data(folder: Path | None, path: Path) -> tuple[dict[str, np.ndarray], LogisticRisk]:
    features, labels = classified(folder)
    arrays = {
        "delays": np.asarray(delays(folder), dtype=np.float64),
        "edges": np.linspace(FACTS["low"], FACTS["high"], CELLS + 1),
        "features": features,
        "labels": labels,
    }
    np.savez(path, facts=json.dumps(FACTS), **arrays)
    return arrays, LogisticRisk(ExperimentTable("KDD 99", features, labels, classification=True), FACTS["penalty"])


def pythons(given: list[str]) -> dict[str, str]:
    """The Python of each peer that is not this one."""
    named = [*os.environ.get("EXPOST_PEERS", "").split(","), *given]
    return dict(each.split("=", 1) for each in named if "=" in each)


def measure(workers: dict[str, Worker], rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """All answers by question and peer; everybody answers once before anybody answers again."""
    answers: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for question in EXACT:
        able = {peer: worker for peer, worker in workers.items() if question in worker.hello["questions"]}
        for worker in able.values():
            worker.ask(question)
        found: dict[str, list[dict[str, Any]]] = {peer: [] for peer in able}
        for _ in range(rounds):
            for peer, worker in able.items():
                found[peer].append(worker.ask(question))
        answers[question] = found
    return answers


def rows(answers: dict[str, dict[str, list[dict[str, Any]]]], risk: LogisticRisk) -> list[dict[str, Any]]:
    """One row a question and peer: median time, times ours, mean error."""
    table = []
    for question, found in answers.items():
        seconds = {peer: statistics.median(each["seconds"] for each in given) for peer, given in found.items()}
        exact = np.array(found[EXACT[question]][0]["answer"]) if EXACT[question] in found else None
        for peer, given in found.items():
            values = np.array([each["answer"] for each in given])
            if question == "logistic":
                error = float(risk.excesses(values)[0].mean())
            else:
                error = float(np.abs(values - exact).mean()) if exact is not None else float("nan")
            table.append(
                {
                    "question": question,
                    "library": peer,
                    "milliseconds": 1e3 * seconds[peer],
                    "times_ours": seconds[peer] / seconds[OURS],
                    "error": error,
                }
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = data_folder(options.data)
    others = pythons(options.python)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "data.npz"
        arrays, risk = write_data(folder, path)
        started = {peer: Worker(peer, others.get(peer, sys.executable), path) for peer in PEERS}
        workers = {peer: worker for peer, worker in started.items() if "missing" not in worker.hello}
        table = rows(measure(workers, options.rounds), risk)
        for worker in started.values():
            worker.close()
    versions = {peer: worker.hello.get("version", "missing") for peer, worker in started.items()}
    print(", ".join(f"{peer} {found}" for peer, found in versions.items()))
    print(
        f"{len(arrays['delays']):,} delays, {CELLS} cells, epsilon {FACTS['epsilon']}; model: {arrays['features'].shape}"
    )
    print(f"{'question':10s} {'library':13s} {'ms':>9s} {'x expost':>9s} {'mean error':>11s}")
    for row in table:
        cells = f"{row['milliseconds']:9.2f} {row['times_ours']:9.2f} {row['error']:11.4g}"
        print(f"{row['question']:10s} {row['library']:13s} {cells}")
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "rows": table}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
