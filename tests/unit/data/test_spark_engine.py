"""A Spark task that fails on a cell prints nothing of it."""

import os
import subprocess
import sys
from importlib import util

import pytest

SCRIPT = """
from pyspark.sql import SparkSession
import expost
settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
loggers = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getLoggers()
levels = lambda: {logger.getName(): logger.getLevel().toString() for logger in loggers.values()}
before = levels()
cell = "case when id = 7 then 'SECRETCELL' else '5' end"
frame = spark.sql(f"select cast({cell} as int) as v from range(20)")
good = expost.Session(expost.Dataset(spark.sql("select 5 as v from range(20)"), bounds={"v": (0, 9)}), budget=expost.epsilon(500))
print("answered:", good.sum("v", epsilon=400).value)
session = expost.Session(expost.Dataset(frame, bounds={"v": (0, 9)}), budget=expost.epsilon(10))
try:
    session.sum("v", epsilon=1)
except expost.EngineFailed as error:
    print("refused:", error)
assert levels() == before, (before, levels())
print("levels are back")
"""


@pytest.mark.skipif(util.find_spec("pyspark") is None, reason="the extra spark is not installed")
def test_a_cell_that_spark_cannot_cast_is_not_printed() -> None:
    env = os.environ | {"PYSPARK_PYTHON": sys.executable}  # the workers need the same packages
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=500, check=False, env=env
    )

    assert "answered: 100.0\n" in run.stdout, run.stderr[-2000:]  # else the refusal below would say nothing
    assert "refused:" in run.stdout and "levels are back" in run.stdout, run.stderr[-2000:]
    assert "SECRETCELL" not in run.stdout + run.stderr
