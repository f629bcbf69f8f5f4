"""Spark runs functions where rows lie: the same bits under every setting, failure and partitioning, and no row comes back."""

import itertools
import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import expost
from expost.core import EngineFailed, InvalidRequest, unseal
from expost.data import Dataset
from expost.data.engines import ArrowEngine
from expost.data.sealed_form import CountForm, SquareForm
from expost.data.tally import Measured
from expost.models import LogisticRegression, Ridge, SGDRegressor

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")

from expost.data.engines.spark_engine import SparkEngine  # noqa: E402
from expost.data.engines.spark_task import FoldRows  # noqa: E402


def _contract() -> Any:
    name = "expost_tests_test_engine"
    if name not in sys.modules:
        spec = util.spec_from_file_location(name, Path(__file__).parent / "test_engine.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


CONTRACT = _contract()


class Restless(SparkEngine):
    """An engine that divides and orders its rows anew for every pass, and gives no row to the driver."""

    def __init__(self, frame: Any) -> None:
        super().__init__(frame)
        self._counts = itertools.cycle([1, 7, 3])

    def _select(self, columns: Sequence[str]) -> Any:
        return super()._select(columns).repartition(next(self._counts))

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = 1) -> Iterator[pa.RecordBatch]:
        raise AssertionError("rows came to the driver")


@pytest.fixture(scope="module")
def spark() -> Any:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none in PATH")
    from pyspark import cloudpickle

    # The executors cannot import test files, so that their classes travel with the functions.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return CONTRACT._spark()


def flights(spark: Any, folder: Path, rows: int = 4000) -> tuple[pa.Table, Any]:
    table = CONTRACT.flights(rows=rows)
    pq.write_table(table, folder / "flights.parquet", row_group_size=900)
    return table, spark.read.parquet(str(folder / "flights.parquet"))


SETTINGS: list[dict[str, str]] = [
    {"spark.sql.execution.arrow.maxRecordsPerBatch": "37", "spark.sql.session.timeZone": "Asia/Tokyo"},
    {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "3", "spark.sql.ansi.enabled": "false"},
    {"spark.sql.ansi.enabled": "true", "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: ",".join(each.values()))
@pytest.mark.parametrize("unit", ["row", "plane"])
def test_no_setting_and_no_partitioning_changes_a_sealed_integer(
    spark: Any, settings: dict[str, str], unit: str, tmp_path: Path
) -> None:
    table, frame = flights(spark, tmp_path)
    expected = CONTRACT.sealed_integers(CONTRACT.describe(ArrowEngine(table), unit))
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        assert CONTRACT.sealed_integers(CONTRACT.describe(Restless(frame), unit)) == expected
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_decimals_dates_and_times_are_counted_as_in_memory(spark: Any) -> None:
    frame = spark.sql(
        "select cast(id % 7 as decimal(9, 2)) / 4 as price, timestamp '2024-01-01 23:30:00' + make_interval(0,0,0,id) as at,"
        " date '2024-02-28' + cast(id % 3 as int) as day from range(200)"
    )
    near, far = Dataset(ArrowEngine(frame.toArrow())), Dataset(Restless(frame))
    for condition in ("price >= 0.75", "day = TIMESTAMP '2024-02-29'", "at < TIMESTAMP '2024-02-01'", "hour(at) = 23"):
        assert unseal(far.where(condition).measure_rows())[0] == unseal(near.where(condition).measure_rows())[0]


CONDITIONS = [
    "number >= 3 and real / 2 < 40",
    "number > 2.5 and not (real > 9)",
    "number in (1, 5, NULL) or text = 'it''s'",
    "text <> 'a' and real <= 0.5",
    "text in ('a', 'B') and not flag",
    "not (number = 3 and flag)",
    "number is not null and real is not null",
    "moment >= '2024-01-02' and number <> 4",
    "real = 0 or real > 1e300",
    "price > 0.1 and day < '2024-01-20'",
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_filter_that_spark_applies_keeps_the_same_rows(spark: Any, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.sql(
            "select if(id = 7, null, cast(id % 9 as int)) as number, case id % 5 when 0 then double('NaN') when 1 then"
            " -0.0D when 2 then double('Infinity') else id / 4 end as real, element_at(array('a', 'B', 'A', 'it''s', null),"
            " cast(id % 5 + 1 as int)) as text, id % 3 = 0 as flag, timestamp_seconds(1704060000 + 5000 * id) as moment,"
            " cast(id % 7 as decimal(9, 2)) / 10 as price, date '2024-01-01' + cast(id as int) as day from range(60)"
        )
        near, far = Dataset(ArrowEngine(frame.toArrow())), Dataset(frame)
        pushed = [far._engine.narrow(far.condition(text)) is not far._engine for text in CONDITIONS]
        counts = [[unseal(each.where(text).measure_rows())[0] for text in CONDITIONS] for each in (near, far)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert counts[0] == counts[1]
    assert pushed == [True] * 9 + [False]


def test_a_filter_reaches_the_files(spark: Any, tmp_path: Path) -> None:
    _, frame = flights(spark, tmp_path)
    engine = SparkEngine(frame).narrow(Dataset(frame).condition("distance > 4000 and origin in ('JFK', 'LGA')"))

    plan = engine._frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [IsNotNull(distance), GreaterThan(distance,4000)" in plan and "In(origin, [JFK,LGA])" in plan


def test_a_session_refuses_a_frame_whose_files_were_rewritten(spark: Any, tmp_path: Path) -> None:
    table, frame = flights(spark, tmp_path)
    dataset = Dataset(frame)
    session = expost.Session(dataset, budget=expost.epsilon(3))
    session.count(epsilon=1)
    assert not dataset.has_changed()
    pq.write_table(table.slice(5), tmp_path / "flights.parquet")

    assert dataset.has_changed()
    with pytest.raises(InvalidRequest, match="was changed"):
        session.count(epsilon=1)
    assert session.spent().epsilon == 1


def test_aggregates_per_unit_are_computed_where_the_rows_are(spark: Any, tmp_path: Path) -> None:
    table, frame = flights(spark, tmp_path)

    def measure(engine: Any) -> list[int]:
        planes = (
            Dataset(engine, unit="plane")
            .where("distance > 9")
            .per_unit(
                total="sum(distance)",
                delay="min(delay)",
                flights="count()",
                bounds={"total": (0, 9e4), "delay": (-60, 300)},
            )
        )
        found = []
        for name in ("total", "delay", "flights"):
            column = planes.expression(name)
            measured = Measured(column, planes.clamp(column, (-60, 90_000)))
            tally = planes.tally(measured=(measured,), degree=2)
            found += unseal(planes.measure_total(SquareForm(measured.clamp), tally, secret=bytes(16))).tolist()
        return found

    assert measure(Restless(frame)) == measure(ArrowEngine(table))


def test_a_frame_that_is_costly_to_compute_again_comes_with_advice(spark: Any, tmp_path: Path) -> None:
    _, frame = flights(spark, tmp_path)
    costly = frame.groupBy("plane").count()
    kept = frame.groupBy("origin").count().persist()
    for given, number in ((costly, 1), (frame, 0), (kept, 0)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            engine = SparkEngine(given)
            for _ in range(3):
                engine.reduce(count_rows, add, [])
        assert sum("persist" in str(each.message) for each in seen) == number
    kept.unpersist()


class FailsOnce:
    """Counts rows, but the first attempt of every task fails, and every batch is counted twice, once in vain."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __call__(self, batch: pa.RecordBatch) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise ValueError(f"cell {batch.column(0)[0]}")
        self.count(batch)
        return self.count(batch)


def count_rows(batch: pa.RecordBatch) -> int:
    return batch.num_rows


def add(left: int, right: int) -> int:
    return left + right


def test_tasks_that_fail_and_run_again_count_once(spark: Any, tmp_path: Path) -> None:
    _, frame = flights(spark, tmp_path)

    assert Restless(frame).reduce(FailsOnce(count_rows), add, ["distance"]) == 4000


class Fails:
    def __call__(self, batch: pa.RecordBatch) -> int:
        raise ValueError(f"the cell is {batch.column(0)[0]}")


def test_a_function_that_fails_shows_no_cell(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    frame = spark.sql("select 8675309 as cell from range(10)")
    with pytest.raises(Exception, match="A function of private rows failed") as failure:
        SparkEngine(frame).reduce(Fails(), add, ["cell"])

    streams = capfd.readouterr()
    assert "8675309" not in str(failure.value) + streams.out + streams.err
    with pytest.raises(EngineFailed) as failed:
        dataset = Dataset(spark.sql("select cast('8675309x' as int) as cell from range(10)"), bounds={"cell": (0, 9)})
        expost.Session(dataset, budget=expost.epsilon(1.0)).mean("cell", epsilon=0.5)
    streams = capfd.readouterr()
    assert "8675309" not in str(failed.value) + streams.out + streams.err


def sent_to_driver(spark: Any) -> int:
    """The bytes of all task results so far."""
    store, total = spark.sparkContext._jsc.sc().statusStore(), 0
    for stage in itertools.count():
        try:
            total += store.lastStageAttempt(stage).resultSize()
        except Exception:  # there is no such stage
            return total
    return total


@pytest.mark.parametrize("unit", ["row", "plane"])
def test_what_the_driver_receives_does_not_grow_with_the_rows(spark: Any, unit: str, tmp_path: Path) -> None:
    received = []
    for rows in (1000, 8000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        dataset = CONTRACT.describe(SparkEngine(flights(spark, folder, rows)[1]), unit)
        dataset.measure_rows() if unit == "row" else None
        before = sent_to_driver(spark)
        dataset.measure_total(CountForm(), dataset.tally(axes=(dataset.axis("origin"),)), secret=bytes(16))
        received.append(sent_to_driver(spark) - before)

    # Each task reports its metrics, some thousand bytes, whatever its rows.
    assert received[1] < received[0] + 100_000 and received[1] < 400_000


def test_no_plan_holds_a_secret(spark: Any, tmp_path: Path) -> None:
    secret = b"a secret of 24 letters.."
    dataset = CONTRACT.describe(SparkEngine(flights(spark, tmp_path)[1]), "plane")
    dataset.measure_total(CountForm(), dataset.tally(axes=(dataset.axis("origin"),)), secret=secret)

    store = spark._jsparkSession.sharedState().statusStore()
    runs = store.executionsList()
    plans = [runs.apply(place).physicalPlanDescription() for place in range(runs.size())]
    assert plans and any("MapInArrow" in plan for plan in plans)
    assert not any(secret.decode() in plan or secret.hex() in plan for plan in plans)
    assert secret not in pickle.dumps(FoldRows("the address of a broadcast", 1000))


def examples(rows: int = 1500) -> pa.Table:
    rng = np.random.default_rng(6)
    x = np.round(rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3))), 2)
    y = np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * np.round(rng.normal(size=rows)), -1, 1)
    columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "label": (y > 0).astype(np.int64)}
    return pa.table(columns | {"id": rng.integers(0, rows // 3, rows)})


class Fixed:
    """Words of a secret, the same for every fit."""

    def words(self, count: int) -> Any:
        return np.arange(count, dtype=np.uint64) + np.uint64(5)


LONG = {"classifier of persons", "regressor"}
"""Some seventy passes each: minutes on a busy machine."""
OF_LABELS = {"logistic regression of persons", "classifier of persons"}
BOUNDS = {name: (-1, 1) for name in "abc"}
COMMON = {"simulation_seed": 7, "regularization": 0.05}
FITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ridge": (
        lambda source: Ridge(excess_risk=0.1, feature_bound=1.0, target_bounds=1.0, max_epsilon=400.0, **COMMON).fit(
            source, "y"
        ),
        {"adjacency": "replace-one", "rows": 1500},
    ),
    "logistic regression of persons": (
        lambda source: LogisticRegression(epsilon=2.0, feature_bound=1.0, classes=(0, 1), **COMMON).fit(
            source, "label"
        ),
        {"unit": "id", "max_rows_per_unit": 2},
    ),
    "gradient steps": (
        lambda source: SGDRegressor(
            epsilon=2.0, rows=1500, steps=3, feature_bound=1.0, target_bounds=1.0, simulation_seed=7
        ).fit(source, "y"),
        {},
    ),
    "gradient steps of persons to an rmse": (
        lambda source: SGDRegressor(
            score=("rmse", 0.9),
            rows=500,
            steps=25,
            feature_bound=1.0,
            target_bounds=1.0,
            solver="newton",
            simulation_seed=7,
        ).fit(source, "y"),
        {"unit": "id", "max_rows_per_unit": 2},
    ),
    "pipeline": (
        lambda source: expost.Pipeline(
            [
                ("scale", expost.StandardScaler(epsilon=1.0, bounds=(-1, 1))),
                ("pick", expost.SelectKBest(k=2, epsilon=1.0, bounds=(-9, 9), target_bounds=(-1, 1))),
                ("fit", SGDRegressor(epsilon=2.0, rows=1500, steps=2, feature_bound=3.0, target_bounds=1.0)),
            ],
            simulation_seed=7,
        ).fit(source, "y")[-1],
        {},
    ),
    "classifier of persons": (
        lambda source: expost.Classifier(
            columns=BOUNDS, classes=[0, 1], epsilon=0.7, delta=1e-6, simulation_seed=1
        ).fit(source, target="label"),
        {"unit": "id", "max_rows_per_unit": 2},
    ),
    "regressor": (
        lambda source: expost.Regressor(columns=BOUNDS, target_bounds=(-1, 1), epsilon=0.7, simulation_seed=1).fit(
            source, target="y"
        ),
        {},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_has_the_same_bits_where_rows_are_far(
    spark: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in LONG and not os.environ.get("EXPOST_LONG"):
        pytest.skip("long profile: some seventy passes")
    for module in ("linear.linear_fit", "tabular.tabular_rows", "descent.gradient_model"):
        monkeypatch.setattr(f"expost.models.{module}.system_bits", Fixed)
    fit, facts = FITS[name]
    used = ["a", "b", "c", "label" if name in OF_LABELS else "y", *(["id"] if "unit" in facts else [])]
    table = examples().select(used)
    pq.write_table(table, tmp_path / "examples.parquet", row_group_size=400)

    near = fit(Dataset(ArrowEngine(table), **facts))
    far = fit(Dataset(Restless(spark.read.parquet(str(tmp_path / "examples.parquet")).persist()), **facts))

    assert np.array_equal(far.coef_, near.coef_) and np.array_equal(far.intercept_, near.intercept_)
    assert str(far.receipt_.bill) == str(near.receipt_.bill)


@pytest.mark.parametrize("terms", [{"batches": "poisson"}, {"batch_size": 9}, {"score": ("rmse", 0.5), "phases": 3}])
def test_parts_of_rows_that_are_far_are_refused_for_nothing(spark: Any, terms: dict[str, Any], tmp_path: Path) -> None:
    dataset = Dataset(flights(spark, tmp_path)[1], bounds={"distance": (0, 5000), "delay": (-60, 300)})
    session = expost.Session(dataset, budget=(5, 1e-6))
    model = SGDRegressor(rows=4000, **({"epsilon": 1.0} | terms if "score" not in terms else terms))
    with pytest.raises(InvalidRequest, match="Expected a training without"):
        session.fit(model, features=["distance"], target="delay")
    assert session.spent().epsilon == 0
