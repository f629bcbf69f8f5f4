"""How long accuracy-first fits take: ratios against scikit-learn in one run, interleaved, one BLAS thread, least processor times.

``--scale`` measures memory and long streams instead: the peak above a float32 matrix of 10^7 x 50, and a fit to 10^8 rows of
Parquet that never holds more than a batch. Each runs in a process of its own, whose resident set is read at the end.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.linear_model import Ridge as PlainRidge
from threadpoolctl import threadpool_limits

from expost.data import Dataset
from expost.models import LogisticRegression, Ridge

PENALTY = 0.005
UNIT: dict[str, Any] = {"feature_bound": 1.0, "target_bounds": 1.0}  # rows and targets are scaled already
# Trials of the original research code on a machine like this, in seconds (ridge p = 77, logistic p = 38).
ORIGINAL = {"ridge": 211.0, "logistic": 111.0}


def table(rows: int, width: int, *, signs: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.lognormal(0, 1.5, (rows, width)) * rng.lognormal(0, 1.0, (rows, 1))
    features /= np.abs(features).sum(axis=1).max()
    score = np.log1p(features.sum(axis=1) * 1e3 * np.exp(0.3 * rng.normal(size=rows)))
    target = score / score.max()
    return features, np.where(target > np.median(target), 1.0, -1.0) if signs else target


def seconds(fits: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the least processor time of each: what else the machine does can only add to it. All in turn."""
    times: dict[str, list[float]] = {name: [] for name in fits}
    for fit in fits.values():
        fit()
    for _ in range(repeats):
        for name, fit in fits.items():
            start = time.process_time()
            fit()
            times[name].append(time.process_time() - start)
    return {name: min(values) for name, values in times.items()}


def report(kind: str, plain: str, fits: dict[str, Callable[[], object]], repeats: int) -> list[dict[str, object]]:
    """Prints the times; returns them as rows."""
    took = seconds(fits, repeats)
    for name, value in took.items():
        against = (
            f"{value / took[plain]:5.2f}x {plain}, {ORIGINAL[kind] / value:6.0f}x faster than the 2017 code's trial"
        )
        print(f"{kind:9} {name:42} {value * 1000:8.1f} ms  {against if name != plain else ''}")
    return [
        {"problem": kind, "fit": name, "seconds": value, f"times {plain}": value / took[plain]}
        for name, value in took.items()
    ]


def peak() -> float:
    """The largest resident set of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit_in_memory(rows: int, width: int) -> dict[str, object]:
    """A fit to a matrix in memory: peak above the matrix itself, which is generated in place."""
    rng = np.random.default_rng(0)
    x, y = np.empty((rows, width), dtype=np.float32), np.empty(rows, dtype=np.float32)
    for start in range(0, rows, 100_000):
        block = x[start : start + 100_000]
        rng.random(out=block, dtype=np.float32)
        block /= width
        y[start : start + 100_000] = block.sum(axis=1)
    before, start_time = peak(), time.perf_counter()
    model = Ridge(excess_risk=0.01, regularization=PENALTY, method="certificate", **UNIT).fit(x, y)
    took = time.perf_counter() - start_time
    return measured(f"{rows:.0e} x {width} float32 in memory", took, peak() - before, model)


def measured(table: str, took: float, memory: float, model: Ridge) -> dict[str, object]:
    """A row of what a large fit needed; memory is what came on top of a started process with its input."""
    return {"table": table, "seconds": took, "MB more": memory, "epsilon": model.receipt_.epsilon}


def write_parquet(path: Path, rows: int, width: int) -> None:
    """A table of a sum of uniform columns, row group by row group."""
    rng, names = np.random.default_rng(0), [f"x{index}" for index in range(width)]
    schema = pa.schema([(name, pa.float32()) for name in [*names, "y"]])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, 1_000_000):
            block = rng.random((width, min(1_000_000, rows - start)), dtype=np.float32) / width
            writer.write_table(pa.table([*block, block.sum(axis=0)], schema=schema))


def fit_stream(path: Path, rows: int, width: int) -> dict[str, object]:
    """A fit to a file that is only ever read in batches."""
    data = Dataset(str(path), name="stream", adjacency="replace-one", rows=rows)
    before, start = peak(), time.perf_counter()
    model = Ridge(excess_risk=0.001, regularization=PENALTY, method="certificate", **UNIT).fit(data, "y")
    took, size = time.perf_counter() - start, path.stat().st_size / 2**20
    return measured(f"{rows:.0e} x {width} rows of Parquet ({size:.0f} MB)", took, peak() - before, model)


def alone(function: Callable[..., dict[str, object]], *arguments: object) -> dict[str, object]:
    """Run in a fresh process, so that its peak is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        row = pool.submit(function, *arguments).result()
    print(
        f"certificate, {row['table']}: {row['seconds']:.1f} s, {row['MB more']:.0f} MB more than before the fit, "
        f"epsilon {row['epsilon']:.3g}",
        flush=True,
    )
    return row


def scale(memory_rows: int, stream_rows: int) -> list[dict[str, object]]:
    rows = [alone(fit_in_memory, memory_rows, 50)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.parquet"
        write_parquet(path, stream_rows, 3)
        return [*rows, alone(fit_stream, path, stream_rows, 3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--scale", action="store_true", help="measure memory and a long stream instead")
    parser.add_argument("--memory-rows", type=int, default=10_000_000)
    parser.add_argument("--stream-rows", type=int, default=100_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = scale(options.memory_rows, options.stream_rows) if options.scale else times(options.rows, options.repeats)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def times(count: int, repeats: int) -> list[dict[str, object]]:
    """Fits of both problems, beside scikit-learn's."""
    x, y = table(count, 77, signs=False)
    z, s = table(count, 38, signs=True)
    common = {"regularization": PENALTY, "max_epsilon": 100.0, "feature_bound": 1.0}
    with threadpool_limits(1, user_api="blas"):
        ridge = report(
            "ridge",
            "sklearn Ridge",
            {
                "sklearn Ridge": lambda: PlainRidge(alpha=PENALTY * len(y), fit_intercept=False).fit(x, y),
                "expost, default": lambda: Ridge(excess_risk=0.02, target_bounds=1.0, **common).fit(x, y),
                "expost, certificate, 1000 rungs": lambda: Ridge(
                    excess_risk=0.02, method="certificate", rungs=1000, target_bounds=1.0, **common
                ).fit(x, y),
                "expost, paper2017, 1000 rungs": lambda: Ridge(
                    excess_risk=0.02, method="paper2017", target_bounds=1.0, **common
                ).fit(x, y),
            },
            repeats,
        )
        logistic = report(
            "logistic",
            "sklearn LogisticRegression",
            {
                "sklearn LogisticRegression": lambda: PlainLogistic(C=1 / (PENALTY * len(s)), fit_intercept=False).fit(
                    z, s
                ),
                "expost, default": lambda: LogisticRegression(excess_risk=0.02, classes=(-1, 1), **common).fit(z, s),
                "expost, paper2017, 1000 rungs": lambda: LogisticRegression(
                    excess_risk=0.1, classes=(-1, 1), method="paper2017", **common
                ).fit(z, s),
            },
            repeats,
        )
    return ridge + logistic


if __name__ == "__main__":
    main()
