"""Measures the engines of one machine: processor time and memory per row, group and feature, against plain code.

    python -m benchmarks.embedded_engines [--rows 1e5 1e6] [--features 50 100] [--groups 1000 10000] [--json FILE]
    python -m benchmarks.embedded_engines --only ridge logistic --rows 1e7

Each case runs in a process of its own, with one BLAS thread, on Parquet of uncompressed floats made once per size. A table of more
than 10^7 rows is a folder of files with the same content. A case runs on 10^4 rows first, which loads its
libraries. It prints processor seconds, peak memory, and passes over the file. Below the table come ratios to plain code on the same file, and slopes: the exponent of processor time
between the two largest sizes. Further numbers of groups and features are measured with the most rows.

Plain code is Arrow with BLAS in float32 for the Gram matrix, DuckDB for sums by group, and scikit-learn for the fit. It bounds
nothing and adds no noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20_260
ROWS_PER_GROUP, ROWS_PER_FILE, WARM_ROWS = 250_000, 10_000_000, 10_000
PLAIN = {"gram": "plain gram", "grouped sum": "plain grouped sum", "ridge": "plain ridge"}
# Fits of fewer rows are refused; those of more take minutes, and the plain one 16 GB.
RANGES = {"plain ridge": (1e3, 1e6), "ridge": (1e4, 1e7), "logistic": (1e5, 1e6), "ridge by moments": (1e4, 1e9)}
PASSES = ("batches", "reduce", "by_unit")


def name_table(rows: int, features: int, groups: int) -> str:
    return f"{rows}-{features}-{groups}.parquet"


def write_table(path: Path, rows: int, features: int, groups: int) -> None:
    """Write made-up rows, row group by row group, or a folder of a file under several names."""
    if rows > ROWS_PER_FILE:
        path.mkdir()
        one = path.with_name(name_table(ROWS_PER_FILE, features, groups))
        if not one.exists():
            write_table(one, ROWS_PER_FILE, features, groups)
        os.link(one, path / "0.parquet")
        for number in range(1, rows // ROWS_PER_FILE):
            os.link(path / "0.parquet", path / f"{number}.parquet")
        return
    rng = np.random.default_rng(SEED)
    slopes = rng.normal(size=features)
    names = [f"x{place}" for place in range(features)]
    kinds = [(name, pa.float32()) for name in names]
    schema = pa.schema([*kinds, ("y", pa.float32()), ("z", pa.int8()), ("g", pa.int32()), ("u", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, ROWS_PER_GROUP):
            many = min(ROWS_PER_GROUP, rows - start)
            table = rng.random((many, features), dtype=np.float32)
            score = (table - 0.5) @ slopes
            others = [
                np.clip(score / 6, -1, 1).astype(np.float32),
                (score > 0).astype(np.int8),
                rng.integers(0, groups, many).astype(np.int32),
                rng.integers(0, max(rows // 10, 1), many),
            ]
            writer.write_table(pa.table([*table.T.copy(), *others], schema=schema))


def list_files(path: Path) -> list[Path]:
    """Return the files of a table."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def read_batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows as plain code reads them."""
    for each in list_files(path):
        with pq.ParquetFile(each, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=1 << 14, columns=columns)


def open_table(path: Path, rows: int, features: int, groups: int, **description: Any) -> tuple[Any, dict[str, int]]:
    """Open the file as a dataset, and count the passes over it."""
    import expost

    bounds = {**{f"x{place}": (0, 1) for place in range(features)}, "y": (-1, 1)}
    if description.get("adjacency") == "replace-one":
        description["rows"] = rows
    dataset = expost.Dataset(path, name="t", bounds=bounds, categories={"g": list(range(groups))}, **description)
    counted = dict.fromkeys(PASSES, 0)
    for name in PASSES:

        def counting(*given: Any, _plain: Any = getattr(dataset._engine, name), _name: str = name, **terms: Any) -> Any:
            counted[_name] += 1
            return _plain(*given, **terms)

        setattr(dataset._engine, name, counting)
    return dataset, counted


def fit_model(
    path: Path, rows: int, features: int, groups: int, *, ridge: bool, method: str = "auto"
) -> dict[str, int]:
    import expost

    dataset, counted = open_table(path, rows, features, groups, adjacency="replace-one")
    terms: dict[str, Any] = {"bounds": [(0, 1)] * features, "max_epsilon": 1.0}
    model = (
        expost.Ridge(excess_risk=0.01, feature_bound=1.0, method=method, **terms)
        if ridge
        else expost.LogisticRegression(excess_risk=0.05, classes=[0, 1], **terms)
    )
    names = [f"x{place}" for place in range(features)]
    # Few rows do not reach the accuracy, after the same passes, or are refused: then libraries are loaded at least.
    with contextlib.suppress(expost.TargetNotMet, expost.BudgetExceeded, expost.InvalidRequest):
        expost.Session(dataset, expost.epsilon(100)).fit(model, features=names, target="y" if ridge else "z")
    return counted


def ask_question(path: Path, rows: int, features: int, groups: int, *, by: str | None, unit: str) -> dict[str, int]:
    import expost

    limits = {} if unit == "row" else {"max_groups_per_unit": 4, "max_rows_per_group": 2}
    dataset, counted = open_table(path, rows, features, groups, unit=unit, **limits)
    expost.Session(dataset, expost.epsilon(100)).sum("x0", by=by, epsilon=1)
    return counted


def sum_products(path: Path, rows: int, features: int, groups: int) -> dict[str, int]:
    """Sum the products of clipped rows on the engine's contract, as a model does, in float32 blocks."""
    from expost.data.data_source import open_source

    names = [f"x{place}" for place in range(features)]
    open_source(str(path))[0].reduce(_Products(names), np.add, names)
    return {"reduce": 1}


class _Products:
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, batch: pa.RecordBatch) -> Any:
        table = np.column_stack([batch.column(name).to_numpy() for name in self.names]).astype(np.float32, copy=False)
        return (table.T @ table).astype(np.float64)


def plain_gram(path: Path, rows: int, features: int, groups: int) -> dict[str, int]:
    names, total = [f"x{place}" for place in range(features)], np.zeros((features, features))
    for batch in read_batches(path, names):
        table = np.column_stack([column.to_numpy() for column in batch.columns])
        total += table.T @ table
    return {"batches": 1}


def plain_grouped_sum(path: Path, rows: int, features: int, groups: int) -> dict[str, int]:
    import duckdb

    files = list(map(str, list_files(path)))
    duckdb.connect(config={"threads": "2"}).sql(f"select g, sum(x0) from read_parquet({files}) group by g").fetchall()
    return {"batches": 1}


def plain_ridge(path: Path, rows: int, features: int, groups: int) -> dict[str, int]:
    from sklearn.linear_model import Ridge

    names = [f"x{place}" for place in range(features)]
    table = pq.read_table(path, columns=[*names, "y"])
    matrix = np.column_stack([table.column(name).to_numpy() for name in names]).astype(np.float64)
    Ridge(alpha=1.0).fit(np.clip(matrix, 0, 1), table.column("y").to_numpy().astype(np.float64))
    return {"batches": 1}


def count_rows(path: Path, rows: int, features: int, groups: int) -> dict[str, int]:
    """Read every value once, which is the least that a pass costs."""
    for _ in read_batches(path):
        pass
    return {"batches": 1}


CASES: dict[str, Callable[[Path, int, int, int], dict[str, int]]] = {
    "read": count_rows,
    "gram": sum_products,
    "plain gram": plain_gram,
    "sum": lambda *size: ask_question(*size, by=None, unit="row"),
    "grouped sum": lambda *size: ask_question(*size, by="g", unit="row"),
    "plain grouped sum": plain_grouped_sum,
    "bounded sum": lambda *size: ask_question(*size, by="g", unit="u"),
    "ridge": lambda *size: fit_model(*size, ridge=True),
    "ridge by moments": lambda *size: fit_model(*size, ridge=True, method="certificate"),
    "plain ridge": plain_ridge,
    "logistic": lambda *size: fit_model(*size, ridge=False),
}


def peak_memory() -> float:
    """Return the peak memory of this process in MB; that of ``getrusage`` begins with the memory of the parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(found.split()[1]) / 1024


def measure_here(name: str, path: Path, rows: int, features: int, groups: int) -> dict[str, Any]:
    """Run one case in this process."""
    CASES[name](path.with_name(name_table(WARM_ROWS, features, groups)), WARM_ROWS, features, groups)  # loads libraries
    started, clock = time.process_time(), time.perf_counter()
    counted = CASES[name](path, rows, features, groups)
    peak = peak_memory()
    seconds = time.process_time() - started, time.perf_counter() - clock
    return {"cpu": seconds[0], "wall": seconds[1], "peak_mb": peak, "passes": sum(counted.values())}


def measure_case(name: str, path: Path, rows: int, features: int, groups: int) -> dict[str, Any]:
    """Run one case in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.embedded_engines", "--child", name, str(path)]
    command += ["--rows", str(rows), "--features", str(features), "--groups", str(groups)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {"case": name, "rows": rows, "features": features, "groups": groups, **json.loads(done.stdout)}


def measure_sizes(names: list[str], sizes: list[tuple[int, int, int]], folder: Path) -> list[dict[str, Any]]:
    """Measure cases on tables of several sizes, and print a line for each."""
    found = []
    print(
        f"{'case':20s} {'rows':>12s} {'features':>8s} {'groups':>7s} {'cpu s':>9s} {'ns a row':>9s} {'peak MB':>9s} {'passes':>7s}"
    )
    for size in sizes:
        path, small = folder / name_table(*size), folder / name_table(WARM_ROWS, *size[1:])
        for each in {path, small}:
            if not each.exists():
                write_table(each, int(each.name.partition("-")[0]), *size[1:])
        for name in names:
            least, most = RANGES.get(name, (0, math.inf))
            if not least <= size[0] <= most:
                continue
            one = measure_case(name, path, *size)
            found.append(one)
            line = f"{name:20s} {size[0]:12,d} {size[1]:8d} {size[2]:7d} {one['cpu']:9.2f} {1e9 * one['cpu'] / size[0]:9.0f}"
            print(f"{line} {one['peak_mb']:9.0f} {one['passes']:7d}", flush=True)
        if size[0] not in (WARM_ROWS, ROWS_PER_FILE):  # those files may be needed again
            for file in list_files(path):
                file.unlink()
    return found


def find_ratios(found: list[dict[str, Any]]) -> dict[str, float]:
    """Return the processor time of cases as multiples of that of plain code on the same table."""
    by_case = {(each["case"], each["rows"], each["features"], each["groups"]): each for each in found}
    ratios = {}
    for (name, *size), each in by_case.items():
        plain = by_case.get((PLAIN.get(name), *size))
        if plain is not None:
            ratios[f"{name} against {PLAIN[name]} at {size[0]:,} rows"] = each["cpu"] / plain["cpu"]
    return ratios


def find_slopes(found: list[dict[str, Any]], along: str = "rows") -> dict[str, float]:
    """Return the exponent of processor time in rows, groups or features between the two largest sizes of each case."""
    slopes, others = {}, [key for key in ("rows", "groups", "features") if key != along]
    for name in dict.fromkeys(each["case"] for each in found):
        own = [each for each in found if each["case"] == name]
        largest = max(own, key=lambda each: each[along])
        alike = [each for each in own if all(each[key] == largest[key] for key in others)]
        ends = sorted((each[along], each["cpu"]) for each in alike)[-2:]
        if len(ends) > 1:
            (few, short), (many, long) = ends
            slopes[name] = math.log(long / short) / math.log(many / few)
    return slopes


def draw_growth(found: list[dict[str, Any]], path: str) -> None:
    """Draw processor time and peak memory against rows, both on logarithmic scales."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure, colors = Figure(figsize=(10, 4.2), layout="constrained"), colormaps["tab20"].colors  # type: ignore[attr-defined]
    axes = figure.subplots(1, 2)
    for axis, key, label in ((axes[0], "cpu", "processor seconds"), (axes[1], "peak_mb", "peak memory, MB")):
        for place, name in enumerate(dict.fromkeys(each["case"] for each in found)):
            own = sorted((each["rows"], each[key]) for each in found if each["case"] == name)
            style = "--" if name.startswith("plain") else "-"
            axis.loglog(
                *zip(*own, strict=True), style, marker="o", markersize=3, color=colors[place % len(colors)], label=name
            )
        axis.set_xlabel("rows")
        axis.set_ylabel(label)
        axis.grid(visible=True, which="major", alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.savefig(path)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--features", type=int, nargs="+", default=[50])
    parser.add_argument("--groups", type=int, nargs="+", default=[1000])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json")
    parser.add_argument("--picture")
    parser.add_argument("--more", type=Path, help="the JSON of another run, whose lines are added: long runs in parts")
    parser.add_argument("--folder", help="where tables are written; the system's folder of temporary files by default")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    rows, features, groups = [int(each) for each in chosen.rows], chosen.features, chosen.groups
    if chosen.child:
        name, path = chosen.child
        print(json.dumps(measure_here(name, Path(path), rows[0], features[0], groups[0])))
        return
    sizes = [(each, features[0], groups[0]) for each in rows]
    sizes += [(rows[-1], features[0], each) for each in groups[1:]] + [
        (rows[-1], each, groups[0]) for each in features[1:]
    ]
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        found = measure_sizes(chosen.only, sizes, Path(folder))
    if chosen.more:
        earlier = json.loads(chosen.more.read_text(encoding="utf-8"))
        found += earlier.get("numbers", earlier)["found"]
    ratios = find_ratios(found)
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}x processor time")
    slopes = {along: find_slopes(found, along) for along in ("rows", "groups", "features")}
    for along, names in slopes.items():
        for name, slope in names.items():
            print(f"slope of {name} in {along}: {slope:.2f}")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps({"found": found, "ratios": ratios, "slopes": slopes}, indent=2))
    if chosen.picture:
        draw_growth(
            [each for each in found if (each["features"], each["groups"]) == (features[0], groups[0])], chosen.picture
        )


if __name__ == "__main__":
    main()
