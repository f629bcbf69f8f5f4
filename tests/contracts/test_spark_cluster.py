"""Spark with executors of their own: killed ones, speculation, and a session elsewhere. Each runs in a process of its own."""

import os
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

START = """
import os, pickle, signal, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.executable
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
sys.path[:0] = sys.argv[2:]
import test_engine as contract
from expost.data.engines import ArrowEngine
from expost.data.engines.spark_engine import SparkEngine

folder = sys.argv[1]
table = contract.flights(rows=6000)
pq.write_table(table, folder + "/flights.parquet", row_group_size=700)
builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "4")
builder = builder.config("spark.sql.warehouse.dir", folder).config("spark.driver.host", "127.0.0.1")

def compare(frame):
    for unit in ("row", "plane"):
        expected = contract.sealed_integers(contract.describe(ArrowEngine(table), unit))
        assert contract.sealed_integers(contract.describe(SparkEngine(frame), unit)) == expected, unit
"""

CLUSTER = """
for name, value in {
    "spark.speculation": "true", "spark.speculation.multiplier": "1.01", "spark.speculation.quantile": "0.1",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executor.memory": "512m",
}.items():
    builder = builder.config(name, value)
spark = builder.master("local-cluster[2,1,1024]").getOrCreate()
frame = spark.read.parquet(folder + "/flights.parquet").repartition(6)
compare(frame)

class KillsOneExecutor:
    # Counts rows; the first task to come here kills the Java process of its executor.
    def __init__(self, marker):
        self.marker = marker
    def __call__(self, batch):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return batch.num_rows
        daemon = os.getppid()
        parent = int(open(f"/proc/{daemon}/stat").read().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        return batch.num_rows

class Add:
    def __call__(self, left, right):
        return left + right

assert SparkEngine(frame).reduce(KillsOneExecutor(folder + "/killed"), Add(), ["distance"]) == 6000
assert os.path.exists(folder + "/killed")
compare(frame)
print("same bits")
spark.stop()
"""

REMOTE = """
spark = builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
compare(spark.read.parquet(folder + "/flights.parquet"))
print("same bits")
os._exit(0)  # the server of this process is not waited for
"""


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not os.environ.get("EXPOST_LONG"), reason="long profile: each starts several Java processes")
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none in PATH")
@pytest.mark.skipif(util.find_spec("pyspark") is None, reason="the extra spark is not installed")
@pytest.mark.parametrize("program", [CLUSTER, REMOTE], ids=["cluster", "connect"])
def test_executors_of_their_own_give_the_same_bits(program: str, tmp_path: Path) -> None:
    if program is REMOTE and util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio, grpcio-status, googleapis-common-protos and zstandard")
    source = str(TESTS.parents[1] / "src")
    run = subprocess.run(
        [sys.executable, "-c", START + program, str(tmp_path), str(TESTS), source],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert "same bits" in run.stdout, run.stdout[-500:] + run.stderr[-3000:]
