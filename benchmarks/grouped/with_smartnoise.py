"""Grouped, contribution-bounded count and sum with SmartNoise SQL on pandas: ``python with_smartnoise.py events.parquet``."""

import sys
import time
from importlib.metadata import version

import pandas as pd
import snsql

COLUMNS = {
    "person": {"type": "int", "private_id": True},
    "place": {"type": "int"},
    "amount": {"type": "float", "lower": 0.0, "upper": 20.0},
}
TABLE = {"max_ids": 4, "clamp_counts": False, "censor_dims": False, "sample_max_ids": True, **COLUMNS}

start, used = time.perf_counter(), time.process_time()
frame = pd.read_parquet(sys.argv[1]).set_axis(["person", "place", "amount"], axis=1)  # "group" is a word of SQL
reader = snsql.from_df(
    frame, privacy=snsql.Privacy(epsilon=1.0, delta=1e-6), metadata={"": {"events": {"events": TABLE}}}
)
rows = reader.execute("SELECT place, COUNT(*) AS n, SUM(amount) AS total FROM events.events GROUP BY place")
assert len(rows) == 1001  # with the names of the columns
print(version("smartnoise-sql"), time.perf_counter() - start, time.process_time() - used)
