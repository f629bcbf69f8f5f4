"""Grouped, contribution-bounded count and sum with OpenDP's Polars path: ``python with_opendp.py events.parquet``."""

import sys
import time
from importlib.metadata import version

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib", "honest-but-curious")
start, used = time.perf_counter(), time.process_time()
context = dp.Context.compositor(
    data=pl.scan_parquet(sys.argv[1]),
    privacy_unit=dp.unit_of(
        contributions=[dp.polars.Bound(per_group=2), dp.polars.Bound(by=["group"], num_groups=4)], identifier="user"
    ),
    privacy_loss=dp.loss_of(epsilon=2.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(by=["group"], max_length=100_000_000, max_groups=1001)],
)
# keep="sample" raises in 0.16, and keep="first" keeps one group less than it is told.
query = (
    context.query()
    .truncate_per_group(2)
    .truncate_num_groups(5, by=["group"], keep="first")
    .group_by("group")
    .agg(dp.len(), pl.col("value").fill_null(0.0).fill_nan(0.0).dp.sum((0.0, 20.0)))
    .with_keys(pl.LazyFrame({"group": pl.Series(range(1000), dtype=pl.Int32)}))
)
rows = query.release().collect()
assert len(rows) == 1000
print(version("opendp"), time.perf_counter() - start, time.process_time() - used)
