"""Tables in an object store, read from a local server that speaks the protocol of S3.

The server is moto, a program of its own: ``moto_server`` in the path, from any environment.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from expost import Dataset, InvalidRequest, Session, epsilon
from expost.core import unseal
from expost.data.sealed_form import CountForm

ROWS = 3000


def find_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server does not listen")


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[pyarrow.fs.FileSystem, str]]:
    """Start a server with a bucket. Yield its file system and the options of an address."""
    # Old versions of moto fail to complete uploads of several parts, so the program is named by who runs the long profile.
    program = shutil.which("moto_server") if os.environ.get("EXPOST_LONG") == "1" else None
    if program is None:
        pytest.skip("long profile with moto_server of moto 5.1 or newer in PATH: set EXPOST_LONG=1")
    port = find_port()
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        where = {"region": "us-east-1", "scheme": "http", "endpoint_override": f"127.0.0.1:{port}"}
        store = pyarrow.fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            allow_bucket_creation=True,
            background_writes=False,
            allow_delayed_open=True,  # small files in one request: moto fails to complete those of several parts
            **where,
        )
        store.create_dir("flights")
        yield store, "&".join(f"{name}={value}" for name, value in where.items())
    finally:
        server.terminate()
        server.wait()


def write_days(store: pyarrow.fs.FileSystem, days: range) -> None:
    for day in days:
        table = pa.table({"x": np.arange(ROWS / 3) % 10})
        pq.write_table(table, f"flights/visits/day={day}/part.parquet", filesystem=store)
    with store.open_output_stream("flights/visits/_SUCCESS"):
        pass


def count(dataset: Dataset) -> int:
    return int(unseal(dataset.measure_total(CountForm(), dataset.tally(), secret=b"secret key of 16"))[0])


def test_a_folder_in_s3(bucket: tuple[pyarrow.fs.FileSystem, str]) -> None:
    store, options = bucket
    write_days(store, range(1, 4))
    address = f"s3://key:secret@flights/visits?{options}"
    dataset = Dataset(address, bounds={"day": (1, 31), "x": (0, 10)})
    assert count(dataset) == ROWS and dataset.name == "visits"
    assert count(dataset.where("day = 2")) == ROWS // 3
    assert count(Dataset(f"s3://key:secret@flights/visits/day=2/part.parquet?{options}")) == ROWS // 3
    found = dataset.source_identity()
    assert found.places[0] == "s3://flights/visits" and "secret" not in repr(found) + dataset.identity
    session = Session(dataset, epsilon(5))
    session.count(within=100)
    write_days(store, range(4, 5))
    with pytest.raises(InvalidRequest, match="changed after it was opened"):
        session.count(within=50)
    assert count(Dataset(address)) == ROWS * 4 // 3


def test_what_is_not_there_is_refused_without_the_password(bucket: tuple[pyarrow.fs.FileSystem, str]) -> None:
    with pytest.raises(InvalidRequest) as error:
        Dataset(f"s3://key:secret@flights/nothing?{bucket[1]}")
    assert "secret" not in str(error.value)
