"""Grouped, contribution-bounded count and sum with PipelineDP's local backend: ``python with_pipelinedp.py events.parquet``."""

import operator
import sys
import time
from importlib.metadata import version

import pipeline_dp
import pyarrow.parquet as pq

start, used = time.perf_counter(), time.process_time()
table = pq.read_table(sys.argv[1])
rows = list(zip(*(table[name].to_pylist() for name in ("user", "group", "value")), strict=True))
accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=2.0, total_delta=1e-6)
engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
parameters = pipeline_dp.AggregateParams(
    metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.SUM],
    noise_kind=pipeline_dp.NoiseKind.LAPLACE,
    max_partitions_contributed=4,
    max_contributions_per_partition=2,
    min_value=0.0,
    max_value=20.0,
)
columns = pipeline_dp.DataExtractors(
    privacy_id_extractor=operator.itemgetter(0),
    partition_extractor=operator.itemgetter(1),
    value_extractor=operator.itemgetter(2),
)
result = engine.aggregate(rows, parameters, columns, public_partitions=list(range(1000)))
accountant.compute_budgets()
assert len(list(result)) == 1000
print(version("pipeline-dp"), time.perf_counter() - start, time.process_time() - used)
