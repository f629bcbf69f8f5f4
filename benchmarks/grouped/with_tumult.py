"""Grouped, contribution-bounded count and sum with Tumult Analytics on local Spark: ``python with_tumult.py events.parquet``.

The Java machine and the Spark session are started before the clock.
"""

import os
import sys
import tempfile
import time
from importlib.metadata import version

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from processor_time import tree_seconds
from pyspark.sql import SparkSession, functions
from tmlt.analytics import (
    AddRowsWithID,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    PureDPBudget,
    QueryBuilder,
    Session,
)

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
events = spark.read.parquet(sys.argv[1]).withColumn("user", functions.col("user").cast("long"))
session = Session.from_dataframe(PureDPBudget(2), "events", events, protected_change=AddRowsWithID("user"))
keys = KeySet.from_dict({"group": list(range(1000))})
bounded = QueryBuilder("events").enforce(MaxGroupsPerID("group", 4)).enforce(MaxRowsPerGroupPerID("group", 2))
counts = session.evaluate(bounded.groupby(keys).count(), PureDPBudget(1)).toPandas()
sums = session.evaluate(bounded.groupby(keys).sum("value", 0.0, 20.0), PureDPBudget(1)).toPandas()
assert len(counts) == len(sums) == 1000
print(version("tmlt.analytics"), time.perf_counter() - start, tree_seconds() - before)
