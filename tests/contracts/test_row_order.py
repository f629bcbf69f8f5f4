"""No answer rests on where a row stands: every reading of every engine comes in another order and in other batches."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from expost import approx
from expost.core import EngineFailed, TableChanged, TargetNotMet
from expost.data import Dataset, unit_ball
from expost.data.data_source import open_source
from expost.data.engines import ROWS_PER_BATCH, ArrowEngine, Engine
from expost.data.row_identity import row_coins
from expost.data.row_source import KeyedRows, read_rows, split_rows
from expost.ledger import open_ledger
from expost.models import HuberSVC, LogisticRegression, Ridge
from expost.models.descent import training_query as training
from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor
from expost.models.descent.trainer import Trainer
from expost.models.linear.classifier_fit import known_labels
from expost.models.model_choice import fit_one_of
from expost.models.tabular import TabularRows, read_columns
from expost.noise import SeededBits, bits

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")


def _shared(name: str, folder: str) -> Any:
    """What other tests have, by file; pytest imports each test by itself."""
    module = f"expost_tests_{name}"
    if module not in sys.modules:
        spec = util.spec_from_file_location(module, Path(__file__).parents[1] / folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[module] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


ENGINE_TESTS = _shared("test_engine", "contracts")
EVERY_QUESTION = _shared("every_question", "journey")


class Disorderly(Engine):
    """An engine whose every reading has another order and other batches; it counts them."""

    def __init__(self, inner: Engine, seed: int = 1) -> None:
        self._inner, self._rng, self.readings = inner, np.random.default_rng(seed), 0

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        self.readings += 1
        if not columns:  # rows without cells are all alike
            yield from self._inner.batches(columns, rows_per_batch=int(self._rng.integers(1, 1000)))
            return
        table = pa.Table.from_batches(self._inner.batches(columns)).combine_chunks()
        table, start = table.take(self._rng.permutation(len(table))), 0
        while start < len(table):
            size = int(self._rng.integers(1, min(rows_per_batch, 1 + len(table) // 3) + 1))
            yield from table.slice(start, size).to_batches()
            start += size


def in_csv(table: pa.Table, folder: Path) -> Engine:
    pyarrow.csv.write_csv(table.select(["plane", "origin", "delay", "distance"]), folder / "flights.csv")
    types = {"plane": "text", "origin": "text", "delay": "real", "distance": "integer"}
    return open_source(folder / "flights.csv", types=types)[0]


@pytest.fixture(params=[*ENGINE_TESTS.ENGINES, in_csv], ids=lambda build: build.__name__)
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


def flights() -> pa.Table:
    """A table with missing and infinite values, and every twentieth row many times."""
    table = ENGINE_TESTS.flights(rows=3000)
    return pa.concat_tables([table, *[table.slice(0, 150)] * 8])


ROWS = 4200
PUBLIC = {"adjacency": "replace-one", "rows": ROWS}


def contents(parts: Any) -> list[Counter]:
    """The rows of each part, as multisets of texts."""
    found = []
    for part in parts:
        rows = [np.column_stack([np.asarray(features, float), target]) for features, target in part.read()]
        found.append(Counter(map(str, np.concatenate(rows).tolist())))
    return found


def test_rows_kept_for_tests_are_the_same_in_every_reading_of_every_engine(build: Any, tmp_path: Path) -> None:
    def parts(engine: Engine) -> Any:
        source = read_rows(Dataset(engine, **PUBLIC), "origin", names=("delay", "distance"))
        return split_rows(KeyedRows.of(source.map_targets(known_labels(("EWR", "JFK"))), bytes(32)), 5)

    expected = contents(parts(ArrowEngine(flights())))
    found = parts(Disorderly(build(flights(), tmp_path)))

    assert [contents(found) for _ in range(2)] == [expected] * 2
    assert not expected[0] & expected[1] - Counter({row: 9 for row in expected[0]})
    assert sum(map(len, expected)) > 0 and min(sum(part.values()) for part in expected) > 500


def test_rows_held_out_of_a_training_are_the_same_in_every_engine(build: Any, tmp_path: Path) -> None:
    def coins(engine: Engine) -> Any:
        source = read_rows(Dataset(engine), "distance", names=("delay",), declared_rows=ROWS)
        found, mark = row_coins(((f, np.asarray(t, float)) for f, t in source.read()), 99)
        return sorted(found.tolist()), mark

    assert coins(Disorderly(build(flights(), tmp_path))) == coins(ArrowEngine(flights()))


def test_rows_and_weights_of_persons_are_the_same_in_every_reading_of_every_engine(build: Any, tmp_path: Path) -> None:
    if build.__name__ == "in_spark" and not os.environ.get("EXPOST_LONG"):
        pytest.skip("long profile: Spark needs a minute to start")
    columns = {"delay": (-60, 300), "origin": ["EWR", "JFK"]}

    def rows(engine: Engine) -> TabularRows:
        dataset = Dataset(engine, unit="plane", max_rows_per_unit=3)
        encoder = read_columns(columns, dataset, target="distance")
        return TabularRows.read(dataset, encoder, "distance", secret=bytes(32))

    def read_once(source: TabularRows) -> Counter:
        parts = [np.column_stack([chunk.features, chunk.targets, chunk.weights]) for chunk in source]
        return Counter(map(str, np.concatenate(parts).tolist()))

    expected, found = read_once(rows(ArrowEngine(flights()))), rows(Disorderly(build(flights(), tmp_path)))

    assert [read_once(found) for _ in range(2)] == [expected] * 2
    assert 0 < sum(expected.values()) < ROWS


# Every question ---------------------------------------------------------------------------------------------------

SINGLE_READING = {"split test of means", "split test of independence", "split test of correlation", "rank correlation"}
"""Read the rows once into memory and draw fresh coins there: nothing is kept of an order."""


class Frozen(SeededBits):
    """The same bits again, in place of the system's: keys and secrets are frozen."""

    private = True


def people(rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "id": rng.integers(0, rows // 4, rows),
            "x": np.append(rng.uniform(0, 10, rows - 3), [np.nan, np.inf, -0.0]).round(1),
            "y": rng.uniform(0, 10, rows).round(1),
            "c": rng.choice(["a", "b", "c", "?"], rows),
            "d": rng.choice(["u", "v"], rows),
        }
    )


def answered(engine: Engine, build: Any, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> Any:
    monkeypatch.setattr(bits, "_SYSTEM", Frozen(3))
    dataset = Dataset(engine, **EVERY_QUESTION.described(), **facts)
    question = build(8)
    if hasattr(question, "plan"):
        plan = question.plan(dataset)
    else:
        plan = question
        plan.check(dataset)
    release = plan.climb(plan.measure(dataset), SeededBits(4))
    return repr(release.value), str(release.receipt)


def compared(name: str, build: Any, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    expected = answered(ArrowEngine(people()), build, monkeypatch, **facts)
    for seed in (1, 2):
        engine = Disorderly(ArrowEngine(people()), seed)
        found = answered(engine, build, monkeypatch, **facts)
        if name in SINGLE_READING:
            assert engine.readings == 1
        else:
            assert found == expected


@pytest.mark.parametrize("name", EVERY_QUESTION.QUESTIONS)
@pytest.mark.parametrize("unit", ["row", "id"])
def test_no_statistic_depends_on_the_order_of_any_reading(name: str, unit: str, monkeypatch: Any) -> None:
    limits = {} if unit == "row" else {"max_rows_per_unit": 2, "max_groups_per_unit": 1}
    if unit == "row" and name == "count of units":
        pytest.skip("needs an id")
    compared(name, EVERY_QUESTION.QUESTIONS[name], monkeypatch, unit=unit, **limits)


@pytest.mark.parametrize("name", EVERY_QUESTION.TESTS)
def test_no_hypothesis_test_depends_on_the_order_of_any_reading(name: str, monkeypatch: Any) -> None:
    compared(name, EVERY_QUESTION.TESTS[name], monkeypatch, adjacency="replace-one", rows=3000)


# Every fit --------------------------------------------------------------------------------------------------------


def examples(rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(6)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    x = np.round(x, 1)  # many equal rows
    y = np.clip(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * np.round(rng.normal(size=rows)), -1, 1)
    return pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "label": (y > 0).astype(np.int64)})


COMMON = {"max_epsilon": 400.0, "simulation_seed": 7, "regularization": 0.05}
RISK, CLASSES = {"excess_risk": 0.1}, {"classes": (0, 1)}
FITS: dict[str, tuple[Callable[[], Any], str]] = {
    **{
        f"ridge, {method}": (
            lambda m=method: Ridge(method=m, feature_bound=1.0, target_bounds=1.0, **RISK, **COMMON),
            "y",
        )
        for method in ("objective", "certificate", "output", "gradient", "cov_nr", "output_nr", "doubling", "theory")
    },
    "ridge, test": (
        lambda: Ridge(method="test", score=("r2", 0.2), feature_bound=1.0, target_bounds=1.0, **COMMON),
        "y",
    ),
    "ridge, certificate of a score": (
        lambda: Ridge(method="certificate", score=("rmse", 0.9), feature_bound=1.0, target_bounds=1.0, **COMMON),
        "y",
    ),
    **{
        f"logistic, {method}": (
            lambda m=method: LogisticRegression(method=m, feature_bound=1.0, **RISK, **CLASSES, **COMMON),
            "label",
        )
        for method in ("objective", "output", "gradient", "output_nr", "doubling", "theory")
    },
    "logistic, delta": (
        lambda: LogisticRegression(delta=1e-6, feature_bound=1.0, **RISK, **CLASSES, **COMMON),
        "label",
    ),
    **{
        f"logistic, test, {score[0]}, {every}": (
            lambda s=score, k=every: LogisticRegression(
                score=s, validation_every=k, feature_bound=1.0, **CLASSES, **COMMON
            ),
            "label",
        )
        for score in (("accuracy", 0.75), ("log_loss", 0.66))
        for every in (None, 5)
    },
    **{
        f"huber, {method}": (
            lambda m=method: HuberSVC(method=m, feature_bound=1.0, **RISK, **CLASSES, **COMMON),
            "label",
        )
        for method in ("objective", "output", "gradient")
    },
    "huber, test, 4": (
        lambda: HuberSVC(score=("accuracy", 0.75), validation_every=4, feature_bound=1.0, **CLASSES, **COMMON),
        "label",
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_no_fit_depends_on_the_order_of_any_reading(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_ball, "_CACHED_VALUES", 0)  # every pass reads the source anew
    build, target = FITS[name]
    columns = ["a", "b", "c", target]

    def fitted(engine: Engine) -> Any:
        dataset = Dataset(engine, adjacency="replace-one", rows=3000)
        model = build().fit(dataset, target)
        return np.append(model.coef_, model.intercept_), model.receipt_

    table = examples().select(columns)
    plain, receipt = fitted(ArrowEngine(table))
    engine = Disorderly(ArrowEngine(table))
    found, shuffled = fitted(engine)

    assert engine.readings >= 1
    assert (receipt.bill, receipt.rung, receipt.outcome) == (shuffled.bill, shuffled.rung, shuffled.outcome)
    if name.rpartition(" ")[2] in ("gradient", "cov_nr", "output_nr", "doubling", "theory"):
        # The methods of papers sum risks of many hypotheses in floats, which differ in their last bits.
        np.testing.assert_allclose(found, plain, rtol=1e-6, atol=1e-8)
    else:
        assert found.tolist() == plain.tolist()


@pytest.mark.parametrize("solver", ["gradient", "newton"])
@pytest.mark.parametrize("kind", ["classifier", "regressor", "one of"])
def test_no_training_on_all_rows_depends_on_their_order(kind: str, solver: str) -> None:
    public = {"rows": 3000, "steps": 12, "batches": "full", "simulation_seed": 8, "solver": solver}

    def trained(engine: Engine) -> Any:
        target = "y" if kind == "regressor" else "label"
        dataset = Dataset(engine, bounds={name: (-1, 1) for name in "abc"})
        try:
            if kind == "regressor":
                terms = {"score": ("rmse", 0.9), "target_bounds": (-1, 1), "max_epsilon": 4.0}
                return SGDRegressor(phases=4, **terms, **public).fit(dataset, target).release_
            if kind == "one of":
                models = [SGDClassifier(classes=[0, 1], **public)]
                return fit_one_of(models, dataset, target, score=("accuracy", 0.6), max_epsilon=4.0).release_
            terms = {"score": ("accuracy", 0.6), "classes": [0, 1], "max_epsilon": 4.0}
            return SGDClassifier(phases=4, **terms, **public).fit(dataset, target).release_
        except TargetNotMet as missed:
            return missed.release

    columns = ["a", "b", "c", "y" if kind == "regressor" else "label"]
    plain = trained(ArrowEngine(examples().select(columns)))
    engine = Disorderly(ArrowEngine(examples().select(columns)))
    found = trained(engine)

    assert engine.readings == 1
    assert plain.receipt.bill == found.receipt.bill
    if kind != "one of":  # its parts are dealt by fresh coins for every attempt, in memory
        assert (plain.value.coefficients == found.value.coefficients).all()


# Another process --------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    """Stands for a process that died."""


def resumed(table: pa.Table, later: pa.Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A training that dies in its third phase, and goes on with another table; which rows were held out, each time."""
    held: list[Counter] = []
    gathered: list[np.ndarray] = []
    dealt, table_of, judge = training.sample_rows, training.TrainingPlan.measure, Trainer._judge_phase

    def measured(self: Any, dataset: Any) -> Any:
        found = table_of(self, dataset)
        gathered.append(np.column_stack([found.kept.rows.integers(), found.kept.targets]))
        return found

    def sampled(*given: Any, **terms: Any) -> Any:
        places = dealt(*given, **terms)
        held.append(Counter(map(tuple, gathered[-1][places].tolist())))
        return places

    def dying(self: Any, test: Any, phase: int, now: Any) -> None:
        judge(self, test, phase, now)
        if phase == 2 and len(held) == 1:
            raise Interrupted

    monkeypatch.setattr(training, "sample_rows", sampled)
    monkeypatch.setattr(training.TrainingPlan, "measure", measured)
    monkeypatch.setattr(Trainer, "_judge_phase", dying)
    ledger = open_ledger(f"sqlite:///{folder}/book")
    ledger.open_account("dataset:t", approx(10, 1e-4))
    ledger.close()

    def train(engine: Engine) -> Any:
        model = SGDClassifier(
            score=("accuracy", 0.9999),
            max_epsilon=2.0,
            classes=[0, 1],
            rows=3000,
            steps=24,
            phases=6,
            batches="full",
            ledger=f"sqlite:///{folder}/book",
            account="dataset:t",
            checkpoint=str(folder / "run.npz"),
            feature_bound=1.0,
        )
        dataset = Dataset(engine, name="t", bounds={name: (-1, 1) for name in "abc"})
        return model.fit(dataset, "label")

    columns = ["a", "b", "c", "label"]
    with pytest.raises(EngineFailed):
        train(Disorderly(ArrowEngine(table.select(columns)), 1))
    try:
        train(Disorderly(ArrowEngine(later.select(columns)), 2))
    except TargetNotMet:
        return held, "finished"
    except TableChanged:
        return held, "refused"


def test_a_restarted_training_holds_the_same_rows_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, end = resumed(examples(), examples(), tmp_path, monkeypatch)

    assert end == "finished"
    assert held[0] == held[1] and 300 < sum(held[0].values()) < 900


@pytest.mark.parametrize("change", ["a row less", "a row more", "a label"])
def test_a_training_does_not_go_on_with_another_table(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = examples()
    label = table["label"].to_numpy().copy()
    label[17] = 1 - label[17]
    later = {
        "a row less": table.slice(1),
        "a row more": pa.concat_tables([table, table.slice(0, 1)]),
        "a label": table.set_column(4, "label", pa.array(label)),
    }[change]

    held, end = resumed(table, later, tmp_path, monkeypatch)

    assert end == "refused" and len(held) == 1
    assert len(open_ledger(f"sqlite:///{tmp_path}/book").open_holds()) == 1  # what was begun stays charged
    assert (tmp_path / "run.npz").exists()


def test_a_fit_of_a_table_that_changes_while_it_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_ball, "_CACHED_VALUES", 0)

    class Changing(Disorderly):
        def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Any:
            if self.readings == 2:
                self._inner = ArrowEngine(pa.concat_tables([examples().slice(1), examples().slice(5, 1)]))
            return super().batches(columns, rows_per_batch=rows_per_batch)

    for validation in (None, 5):
        dataset = Dataset(Changing(ArrowEngine(examples())), adjacency="replace-one", rows=3000)
        model = LogisticRegression(
            score=("accuracy", 0.75), validation_every=validation, classes=(0, 1), max_epsilon=400.0, feature_bound=1.0
        )
        with pytest.raises(TableChanged):
            model.fit(dataset, "label")
