"""Reading Parquet takes memory for a few pages per column, however long row groups are."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, COLUMNS = 400_000, 20

READ = """
import sys
import pyarrow as pa
from expost.data.engines import ParquetEngine

engine = ParquetEngine([sys.argv[1]])
names = engine.schema.names
read = sum(batch.num_rows for batch in engine.batches(names, rows_per_batch=1 << 14))
scanned = engine.reduce(lambda batch: batch.num_rows, lambda left, right: left + right, names)
print(read, scanned, pa.default_memory_pool().max_memory())
"""


def test_memory_does_not_grow_with_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    numbers = np.random.default_rng(0).random(ROWS)
    table = pa.table({f"x{place}": numbers for place in range(COLUMNS)})
    pq.write_table(table, path, row_group_size=ROWS, compression="none", use_dictionary=False, data_page_size=1 << 17)
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    read, scanned, peak = map(int, done.stdout.split())
    assert read == scanned == ROWS
    assert peak < path.stat().st_size / 2  # the row group itself is 64 MB
