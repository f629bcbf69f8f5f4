"""Spark with executors of their own: killed ones, a killed worker, speculation, and a session elsewhere, each in a new process."""

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

KILLS = """
class Kills:
    # Counts rows; the first task to come here kills a Java process that it depends on.
    def __init__(self, marker, group):
        self.marker, self.group = marker, group
    def __call__(self, batch):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return batch.num_rows
        daemon = os.getppid()
        executor = int(open(f"/proc/{daemon}/stat").read().rpartition(")")[2].split()[1])
        if self.group:  # with the worker that started it
            os.killpg(os.getpgid(executor), signal.SIGKILL)
        os.kill(executor, signal.SIGKILL)
        return batch.num_rows

class Add:
    def __call__(self, left, right):
        return left + right

def kill_and_compare(frame, group):
    assert SparkEngine(frame).reduce(Kills(folder + "/killed", group), Add(), ["distance"]) == 6000
    assert os.path.exists(folder + "/killed")
    compare(frame)
    print("same bits")
"""

CLUSTER = (
    KILLS
    + """
for name, value in {
    "spark.speculation": "true", "spark.speculation.multiplier": "1.01", "spark.speculation.quantile": "0.1",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executor.memory": "512m",
}.items():
    builder = builder.config(name, value)
spark = builder.master("local-cluster[2,1,1024]").getOrCreate()
frame = spark.read.parquet(folder + "/flights.parquet").repartition(6)
compare(frame)

kill_and_compare(frame, group=False)
spark.stop()
"""
)

STANDALONE = (
    KILLS
    + """
import socket, subprocess, time
import pyspark

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
place, _, port = address.partition(":")

def start(name, *words):
    command = [os.path.dirname(pyspark.__file__) + "/bin/spark-class", "org.apache.spark.deploy." + name, "--host", place]
    return subprocess.Popen([*command, "--webui-port", "0", *words], stdout=2, start_new_session=True)

started = [start("master.Master", "--port", port)]
try:
    for each in range(2):
        words = "--cores", "1", "--memory", "1g", "--work-dir", f"{folder}/worker{each}", "spark://" + address
        started.append(start("worker.Worker", *words))
    for name, value in {
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executor.memory": "512m", "spark.executor.cores": "1",
        "spark.worker.timeout": "20",
    }.items():
        builder = builder.config(name, value)
    spark = builder.master("spark://" + address).getOrCreate()
    known = lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    while known() < 3:  # the driver counts
        time.sleep(0.2)
    frame = spark.read.parquet(folder + "/flights.parquet").repartition(6)
    compare(frame)
    kill_and_compare(frame, group=True)
    spark.stop()
finally:
    for each in started:
        try:
            os.killpg(each.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
"""
)

REMOTE = """
spark = builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
compare(spark.read.parquet(folder + "/flights.parquet"))
print("same bits")
os._exit(0)  # the server of this process is not waited for
"""


LONG = [STANDALONE, REMOTE]


@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none in PATH")
@pytest.mark.skipif(util.find_spec("pyspark") is None, reason="the extra spark is not installed")
@pytest.mark.parametrize("program", [CLUSTER, STANDALONE, REMOTE], ids=["local cluster", "two workers", "connect"])
def test_executors_of_their_own_give_the_same_bits(program: str, tmp_path: Path) -> None:
    if program in LONG and not os.environ.get("EXPOST_LONG"):
        pytest.skip("long profile: several Java processes")
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
