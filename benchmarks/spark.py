"""Spark as a cluster: concurrent tasks, bytes to the driver, a logistic fit against MLlib, and bounded sums against Tumult.

``python -m benchmarks.spark [rows] [--tumult PYTHON] [--json FILE]`` prints one line per measurement. Ratios carry over to other
machines, seconds do not; processor seconds are those of the Java machine and its workers too. Tumult Analytics 0.21 needs an
environment of its own, whose Python is named, here or by the environment variable EXPOST_PEERS (tumult=PATH).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.grouped.processor_time import tree_seconds
from benchmarks.model_peers import peer_pythons
from benchmarks.stats import write_events
from expost.data import Dataset
from expost.data.engines.spark_engine import SparkEngine
from expost.data.sealed_form import ShareForm
from expost.data.tally import Measured
from expost.models import LogisticRegression

SLOTS, PARTITIONS, PAUSE = 4, 16, 2.0
GROUPS, FEATURES = 100_000, 50
COMPARED = [
    *(("logistic fit", "expost", "MLlib", key) for key in ("seconds", "cpu")),
    *(("bounded count and sum", "Tumult", "expost", key) for key in ("seconds", "cpu")),
    *(("sum by group", ours, "plain groupBy", "MB to the driver") for ours in ("a row is a unit", "bounded by id")),
]
Line = dict[str, Any]


def start_spark() -> Any:
    """Return a session with as many slots as are measured."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("expost benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(),
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def received_bytes(spark: Any) -> int:
    """Return the bytes of all results that tasks sent to the driver so far."""
    store, total = spark.sparkContext._jsc.sc().statusStore(), 0
    for stage in itertools.count():
        try:
            total += store.lastStageAttempt(stage).resultSize()
        except Exception:  # there is no such stage
            return total
    return total


class Pause:
    """Takes a while for each batch, and returns from when to when."""

    def __call__(self, batch: pa.RecordBatch) -> list[tuple[float, float]]:
        start = time.time()
        time.sleep(PAUSE if batch.num_rows else 0)
        return [(start, time.time())] if batch.num_rows else []


class Join:
    """Joins two lists."""

    def __call__(self, left: list[Any], right: list[Any]) -> list[Any]:
        return left + right


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """Return the most spans that overlap."""
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)


def time_run(run: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what the second of two runs gives, its seconds, and the processor seconds of all processes."""
    run()
    start, before = time.perf_counter(), tree_seconds()
    found = run()
    return found, {"seconds": time.perf_counter() - start, "cpu": tree_seconds() - before}


def measure_concurrency(spark: Any) -> list[Line]:
    """Measure how many tasks run at once, and how much longer a pass takes than its tasks would on all slots."""
    engine = SparkEngine(spark.range(0, PARTITIONS, 1, PARTITIONS))
    spans, times = time_run(lambda: engine.reduce(Pause(), Join(), ["id"]))
    ideal = PARTITIONS * PAUSE / SLOTS
    facts = {
        "slots": SLOTS,
        "tasks": PARTITIONS,
        "at once": most_at_once(spans),
        "of the ideal": times["seconds"] / ideal,
    }
    return [{"case": "concurrent tasks", **times, **facts}]


def sum_groups(dataset: Dataset) -> Any:
    """Return sealed sums of x by group."""
    x = dataset.expression("x")
    measured = Measured(x, dataset.clamp(x))
    tally = dataset.tally(measured=(measured,), axes=(dataset.axis("g"),), degree=1)
    return dataset.measure_total(ShareForm(measured.clamp), tally, secret=bytes(16))


def measure_bytes(spark: Any, rows: int, folder: Path) -> list[Line]:
    """Measure the bytes that the driver receives for sums by group, beside those of a plain query."""
    rng = np.random.default_rng(0)
    columns = {
        "id": rng.integers(0, rows // 10, rows),
        "g": rng.integers(0, GROUPS, rows),
        "x": rng.uniform(0, 100, rows),
    }
    pq.write_table(pa.table(columns), folder / "sums.parquet", row_group_size=rows // 8)
    frame = spark.read.parquet(str(folder / "sums.parquet"))
    facts: dict[str, Any] = {"bounds": {"x": (0, 100)}, "categories": {"g": list(range(GROUPS))}}
    bounded = facts | {"unit": "id", "max_rows_per_unit": 5, "max_groups_per_unit": 3}
    cases: dict[str, Callable[[], Any]] = {
        "plain groupBy": lambda: frame.groupBy("g").sum("x").collect(),
        "a row is a unit": lambda: sum_groups(Dataset(frame, **facts)),
        "bounded by id": lambda: sum_groups(Dataset(frame, **bounded)),
    }
    found = []
    for name, run in cases.items():
        run()
        before, (_, times) = received_bytes(spark), time_run(run)
        received = (received_bytes(spark) - before) / 2e6  # of two runs
        found.append(
            {"case": f"sum by group, {name}", "rows": rows, "groups": GROUPS, "MB to the driver": received, **times}
        )
    return found


def measure_fit(spark: Any, rows: int, folder: Path) -> list[Line]:
    """Measure the time of a private logistic fit, beside that of MLlib on the same frame."""
    from pyspark.ml.classification import LogisticRegression as PlainLogistic
    from pyspark.ml.feature import VectorAssembler

    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (rows, FEATURES))
    names = [f"x{place}" for place in range(FEATURES)]
    label = (x @ rng.normal(size=FEATURES) + rng.logistic(size=rows) > 0).astype(np.int64)
    table = pa.table(dict(zip(names, x.T, strict=True)) | {"label": label})
    pq.write_table(table, folder / "fit.parquet", row_group_size=rows // 8)
    frame = spark.read.parquet(str(folder / "fit.parquet")).persist()
    frame.count()
    dataset = Dataset(frame, adjacency="replace-one", rows=rows)
    model = LogisticRegression(epsilon=1.0, feature_bound=8.0, feature_norm="l2", classes=(0, 1), regularization=1e-3)

    def fit_plain() -> None:
        given = VectorAssembler(inputCols=names, outputCol="features").transform(frame)
        PlainLogistic(regParam=1e-3, maxIter=100).fit(given)

    found = []
    for name, run in {"expost": lambda: model.fit(dataset, "label"), "MLlib": fit_plain}.items():
        found.append({"case": f"logistic fit, {name}", "rows": rows, "features": FEATURES, **time_run(run)[1]})
    return found


def measure_bounded(rows: int, folder: Path, tumult: str) -> list[Line]:
    """Measure count and sum by group, bounded by an id, beside Tumult Analytics, each in a new process with its own Spark."""
    write_events(folder / "events.parquet", rows)
    found: list[Line] = []
    for name, python, script in (("expost", sys.executable, "expost_on_spark"), ("Tumult", tumult, "tumult")):
        program = Path(__file__).parent / "grouped" / f"with_{script}.py"
        command = [python, str(program), str(folder / "events.parquet")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        version, seconds, cpu = done.stdout.split()[-3:]
        times = {"seconds": float(seconds), "cpu": float(cpu)}
        found.append({"case": f"bounded count and sum, {name}", "rows": rows, "version": version, **times})
    return found


def main() -> None:
    """Measure everything once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=float, default=1e6)
    parser.add_argument(
        "--tumult",
        default=peer_pythons().get("tumult"),
        help="a Python that has Tumult Analytics, by default of EXPOST_PEERS",
    )
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    given = parser.parse_args()
    rows, found = int(given.rows), list[Line]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.tumult:
            found += measure_bounded(rows, folder, given.tumult)
        spark = start_spark()
        found += measure_concurrency(spark) + measure_bytes(spark, rows, folder) + measure_fit(spark, rows, folder)
    for line in found:
        print(
            ", ".join(
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in line.items()
            )
        )
    by_case = {line["case"]: line for line in found}
    ratios = {
        f"{name}, {key}": by_case[f"{name}, {ours}"][key] / by_case[f"{name}, {plain}"][key]
        for name, ours, plain, key in COMPARED
        if f"{name}, {plain}" in by_case
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}x")
    if given.json:
        given.json.write_text(json.dumps({"found": found, "ratios": ratios}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
