"""Grouped, contribution-bounded count and sum with expost on local Spark: ``python with_expost_on_spark.py events.parquet``.

The Java machine and the Spark session are started before the clock, as for Tumult Analytics.
"""

import os
import sys
import tempfile
import time

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from processor_time import tree_seconds
from pyspark.sql import SparkSession

import expost

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.memory", "4g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "8")
    .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
    .getOrCreate()
)
spark.range(10).count()
start, before = time.perf_counter(), tree_seconds()
facts = {"unit": "user", "max_groups_per_unit": 4, "max_rows_per_group": 2, "bounds": {"value": (0, 20)}}
dataset = expost.Dataset(spark.read.parquet(sys.argv[1]), categories={"group": list(range(1000))}, **facts)
session = expost.Session(dataset, expost.epsilon(2))
counts = session.count(by="group", epsilon=1)
sums = session.sum("value", by="group", epsilon=1)
assert len(counts.value) == len(sums.value) == 1000
print(expost.__version__, time.perf_counter() - start, tree_seconds() - before)
