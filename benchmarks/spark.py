"""Spark as a cluster: concurrent tasks, bytes to the driver, and a logistic fit against MLlib.

``python -m benchmarks.spark [rows]`` prints one line per measurement. Ratios carry over to other machines, seconds do not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from expost.data import Dataset
from expost.data.engines.spark_engine import SparkEngine
from expost.data.sealed_form import ShareForm
from expost.data.tally import Measured
from expost.models import LogisticRegression

SLOTS, PARTITIONS, PAUSE = 4, 16, 2.0
GROUPS, FEATURES = 100_000, 50


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
    """Takes a while for each batch."""

    def __call__(self, batch: pa.RecordBatch) -> int:
        time.sleep(PAUSE)
        return batch.num_rows


class Add:
    """Adds two numbers."""

    def __call__(self, left: int, right: int) -> int:
        return left + right


def median_seconds(run: Callable[[], Any], runs: int = 3) -> float:
    """Return the median time of some runs after one that is not counted."""
    run()
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def measure_concurrency(spark: Any) -> dict[str, Any]:
    """Print and return how much longer a pass takes than its tasks would on all slots."""
    engine = SparkEngine(spark.range(0, PARTITIONS, 1, PARTITIONS))
    seconds, ideal = median_seconds(lambda: engine.reduce(Pause(), Add(), ["id"])), PARTITIONS * PAUSE / SLOTS
    print(f"{PARTITIONS} tasks of {PAUSE} s on {SLOTS} slots: {seconds:.2f} s, {seconds / ideal:.2f}x of the ideal")
    return {"tasks": PARTITIONS, "slots": SLOTS, "seconds": seconds, "ideal": ideal, "ratio": seconds / ideal}


def sum_groups(dataset: Dataset) -> Any:
    """Return sealed sums of x by group."""
    x = dataset.expression("x")
    measured = Measured(x, dataset.clamp(x))
    tally = dataset.tally(measured=(measured,), axes=(dataset.axis("g"),), degree=1)
    return dataset.measure_total(ShareForm(measured.clamp), tally, secret=bytes(16))


def measure_bytes(spark: Any, rows: int, folder: Path) -> list[dict[str, Any]]:
    """Print and return the bytes that the driver receives for sums by group, next to those of a plain query."""
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
        before, start = received_bytes(spark), time.perf_counter()
        run()
        seconds = time.perf_counter() - start
        received = (received_bytes(spark) - before) / 1e6
        print(f"sum by {GROUPS} groups, {rows} rows, {name}: {received:.3f} MB to the driver, {seconds:.2f} s")
        found.append({"case": name, "rows": rows, "groups": GROUPS, "megabytes": received, "seconds": seconds})
    return found


def measure_fit(spark: Any, rows: int, folder: Path) -> dict[str, Any]:
    """Print and return the time of a private logistic fit, next to that of MLlib on the same frame."""
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

    private = median_seconds(lambda: model.fit(dataset, "label"), 1)
    plain = median_seconds(fit_plain, 1)
    print(f"logistic fit, {rows} x {FEATURES}: {private:.1f} s, MLlib {plain:.1f} s, {private / plain:.2f}x")
    return {"rows": rows, "features": FEATURES, "private": private, "MLlib": plain, "ratio": private / plain}


def main() -> None:
    """Measure everything once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=float, default=1e6)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    spark, rows = start_spark(), int(given.rows)
    with tempfile.TemporaryDirectory() as folder:
        numbers = {
            "tasks": measure_concurrency(spark),
            "sums": measure_bytes(spark, rows, Path(folder)),
            "fit": measure_fit(spark, rows, Path(folder)),
        }
    if given.json:
        given.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
