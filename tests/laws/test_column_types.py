"""Law: the type of a column is declared or stored; no cell changes it, and a cell that does not fit is missing."""

import datetime
import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expost
from expost.core import InvalidRequest, unseal
from expost.data import Dataset, col
from expost.data.row_source import read_rows, typed_column
from expost.data.tally import Measured
from expost.data.untyped_table import TYPES, implied_types
from expost.data.value_place import label_codes
from expost.noise import SeededBits
from expost.stats import Sum

QUICK = settings(max_examples=40, deadline=None, derandomize=True)

HOSTILE = type("Hostile", (), {"__eq__": lambda *_: 1 / 0, "__hash__": None, "__float__": lambda _: 1 / 0})()
ZONE = datetime.timezone(datetime.timedelta(hours=2))
ODD = [
    None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT"), True, False, 0, 1, -1, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64,
    2**70, 10**400, -(2**63), 0.0, -0.0, 1.5, 2.0**60, math.inf, -math.inf, 5e-324, Decimal("1.5"), Decimal("2"), Decimal("NaN"),
    Decimal("sNaN"), Decimal("1e9999"), 1j, 2 + 0j, "x", "", "1", "\ud800", "x" * 100_000, b"x", b"\xff", [1], {}, (), object(),
    HOSTILE, datetime.date(2020, 1, 1), datetime.date(1, 1, 1), datetime.date.max, datetime.datetime(2020, 1, 1, 1, tzinfo=ZONE),
    datetime.datetime(1, 1, 1, tzinfo=ZONE), pd.Timestamp("2020-01-01 00:00:00.000000001"), np.float32(0.1), np.int8(3),
    np.bool_(True), np.datetime64("10000-01-01"), np.datetime64("2020-01-01"), np.str_("a"), np.timedelta64(1, "s"),
]  # fmt: skip
PLAIN = {
    "integer": [1, 2, 3, 40],
    "real": [0.5, 1.5, 2.5, 40.0],
    "boolean": [True, False, True, True],
    "text": ["a", "b", "a", ""],
    "time": [datetime.datetime(2020, 1, day) for day in (1, 2, 3, 4)],
}


def cells(dataset: Dataset) -> list[str]:
    return [str(value) for batch in dataset.batches(["v"]) for value in batch.column("v").to_pylist()]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("source", ["frame", "columns", "rows", "object frame"])
def test_one_odd_cell_changes_its_own_cell_and_nothing_else(kind, source) -> None:
    def opened(values: list[object]) -> Dataset:
        rows: object = {"v": values}
        if source == "rows":
            rows = [{"v": value} for value in values]
        elif source == "frame":
            rows = pd.DataFrame({"v": values})
        elif source == "object frame":
            rows = pd.DataFrame({"v": pd.Series(values, dtype=object)})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return Dataset(rows, types={"v": kind})

    base = opened(PLAIN[kind])
    for odd in ODD:
        if source == "frame" and isinstance(odd, str) and odd == "\ud800":
            continue  # pandas refuses it itself
        found = opened([*PLAIN[kind], odd])

        assert found.schema == base.schema
        assert found._engine.schema == base._engine.schema
        assert cells(found)[:-1] == cells(base), odd
        assert len(cells(found)) == 5


@QUICK
@given(st.lists(st.sampled_from(ODD), max_size=6), st.sampled_from(list(TYPES)))
def test_any_odd_cells_give_the_same_cells_in_every_order_and_company(odd, kind) -> None:
    whole = cells(Dataset({"v": odd}, types={"v": kind})) if odd else []
    alone = [cells(Dataset({"v": [value]}, types={"v": kind}))[0] for value in odd]

    assert whole == alone


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_bounds_and_categories_say_what_a_frame_column_holds(odd) -> None:
    """Without types= a described column is read by its description, whatever dtype one cell has given it."""
    base = [0.1 * k for k in range(20)]
    kinds = {str(Dataset(pd.DataFrame({"v": rows}), bounds={"v": (0, 2)}).schema) for rows in (base, [*base, odd])}
    assert kinds == {"v real"}
    truths = [True, False] * 3
    for rows in (truths, [*truths, odd]):
        if pd.Series(rows).dtype.kind in "Ob":
            assert str(Dataset(pd.DataFrame({"v": rows}), categories={"v": [False, True]}).schema) == "v boolean"


def sealed_sum(source: object, **terms: object) -> list[int]:
    dataset = Dataset(source, bounds={"v": (0, 2)}, **terms)
    question = Sum("v", epsilon=1)
    plan = question.plan(dataset)
    return [int(value) for value in unseal(plan.measure(dataset))]


@pytest.mark.parametrize("odd", [None, math.nan, "x", b"x", [1], Decimal("sNaN"), pd.NA, datetime.date(2020, 1, 1)])
def test_a_cell_that_is_no_number_adds_nothing_to_a_sum(odd) -> None:
    base = [0.1 * k for k in range(20)]

    assert sealed_sum(pd.DataFrame({"v": [*base, odd]})) == sealed_sum(pd.DataFrame({"v": base}))


def test_integers_with_and_without_a_missing_cell_release_numbers_of_one_lattice() -> None:
    base = list(range(20, 60)) * 5
    values = []
    for rows in (base, [*base, None]):
        for terms in ({}, {"types": {"v": "integer"}}):
            dataset = Dataset(pd.DataFrame({"v": rows}), name="p", bounds={"v": (0, 120)}, **terms)
            question = Sum("v", epsilon=1)
            plan = question.plan(dataset)
            release = plan.climb(plan.measure(dataset), SeededBits(1))
            values.append((str(dataset.schema), type(release.value), repr(release.value)))

    assert values[0] == values[2] and values[1] == values[3]
    assert values[0][0] == "v real" and values[1][0] == "v integer"


def test_typed_columns_of_frames_keep_their_type() -> None:
    frame = pd.DataFrame(
        {
            "a": pd.array([2**53 + 1, None], dtype="Int64"),
            "b": pd.array([True, None], dtype="boolean"),
            "c": pd.array(["x", None], dtype="string"),
            "d": pd.Series([2**60 + 1, None], dtype=pd.ArrowDtype(pa.int64())),
            "e": pd.to_datetime(["2020-01-01", None]),
            "f": pd.Categorical(["x", None]),
            "g": np.array([1, 2], np.int64),
        }
    )
    dataset = Dataset(frame)

    assert str(dataset.schema) == "a integer, b boolean, c text, d integer, e time, f text, g real"
    (batch,) = dataset.batches(["a", "d"])
    assert batch.column("a").to_pylist() == [2**53 + 1, None]
    assert batch.column("d").to_pylist() == [2**60 + 1, None]


def test_an_object_column_without_a_description_is_text_and_a_warning_says_so() -> None:
    frame = pd.DataFrame({"v": pd.Series(["a", 3, None], dtype=object), "w": [1, 2, 3]})

    with pytest.warns(UserWarning, match="read as text.*: v\\. .*declare types"):
        dataset = Dataset(frame)
    assert str(dataset.schema) == "v text, w real" and cells(dataset) == ["a", "None", "None"]


def test_types_of_polars_frames_can_be_declared_too() -> None:
    for frame in (pl.DataFrame({"v": [1.0, 1.5, None]}), pl.LazyFrame({"v": [1.0, 1.5, None]})):
        assert cells(Dataset(frame, types={"v": "integer"})) == ["1", "None", "None"]
    assert cells(Dataset(pl.DataFrame({"v": ["1", None]}), types={"v": "integer"})) == ["None", "None"]


@pytest.mark.parametrize("types", [{"w": "integer"}, {"v": "number"}, {"v": 3}, "integer", {3: "text"}])
def test_types_of_no_column_or_no_kind_are_refused(types) -> None:
    for source in (pd.DataFrame({"v": [1]}), pl.DataFrame({"v": [1]}), {"v": [1]}):
        with pytest.raises(InvalidRequest, match="Expected types"):
            Dataset(source, types=types)


def test_a_list_without_a_type_is_refused_whatever_it_holds() -> None:
    for values in ([], [1], ["a"], [None]):
        with pytest.raises(InvalidRequest, match="declared type for v"):
            Dataset({"v": values})
        with pytest.raises(InvalidRequest, match="declared types"):
            Dataset([{"v": value} for value in values])
    assert str(Dataset({"v": [1, "x"]}, bounds={"v": (0, 1)}).schema) == "v real"


def test_the_description_of_a_csv_file_decides_its_types(tmp_path) -> None:
    for name, last in (("a", "4"), ("b", "x"), ("c", "1.5"), ("d", "")):
        (tmp_path / f"{name}.csv").write_text(f"v,w\n1,1\n2,2\n{last},{last}\n", encoding="utf-8")
        described = Dataset(tmp_path / f"{name}.csv", bounds={"v": (0, 9)}, categories={"w": ["1", "2"]})
        assert str(described.schema) == "v real, w text"
        partly = Dataset(tmp_path / f"{name}.csv", types={"v": "integer"}, categories={"w": [1, 2]})
        assert str(partly.schema) == "v integer, w real"


def test_a_description_implies_types_of_one_kind_only() -> None:
    listed = {
        "a": [1, 2.5],
        "b": ["x", None],
        "c": [True],
        "d": [datetime.date(2020, 1, 1)],
        "e": [1, "x"],
        "f": [None],
    }

    assert implied_types({"g": (0, 1)}, listed, "t") == {
        "g": "real", "a": "real", "b": "text", "c": "boolean", "d": "time", "t": "time",
    }  # fmt: skip


def test_the_index_of_a_frame_is_not_a_column() -> None:
    frame = pd.DataFrame({"v": [1.0, 2.0, 3.0]})

    assert Dataset(frame[frame["v"] > 1]).schema == Dataset(frame).schema


LARGE = 2**53
LABELS = {
    "int64": lambda labels: pa.array(labels, pa.int64()),
    "uint64": lambda labels: pa.array(labels, pa.uint64()),
    "chunks": lambda labels: pa.chunked_array([pa.array(labels[:3], pa.int64()), pa.array(labels[3:], pa.int64())]),
    "dictionary": lambda labels: pa.array(labels, pa.int64()).dictionary_encode(),
    "Int64": lambda labels: pd.Series(labels, dtype="Int64"),
    "polars": lambda labels: pl.Series(labels, dtype=pl.Int64),
    "list": list,
}


@pytest.mark.parametrize("kind", LABELS)
def test_a_missing_label_leaves_large_whole_labels_apart(kind) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.4, 0.4, (400, 1))
    labels = [LARGE + int(x > 0) for x in rows[:, 0]]
    build = LABELS[kind]
    for column in (labels, [None, *labels[1:]]):
        for model in (
            expost.LogisticRegression(epsilon=50, classes=(LARGE, LARGE + 1), simulation_seed=1, feature_bound=1.0),
            expost.SGDClassifier(
                epsilon=50, classes=[LARGE, LARGE + 1], rows=400, steps=20, simulation_seed=1, feature_bound=1.0
            ),
        ):
            assert float(np.ravel(model.fit(rows, build(column)).coef_)[0]) > 1


def test_half_a_surrogate_pair_is_a_missing_text_and_a_label_of_no_class() -> None:
    words = ["a", "b", "\ud800", "b"]
    columns = [np.array(words), pd.Series(words, dtype=pd.StringDtype("python")), pd.Series(words, dtype=object)]
    for column in columns:
        assert cells(Dataset({"v": column}, types={"v": "text"})) == ["a", "b", "None", "b"]
        labels = column if typed_column(column) is None else typed_column(column)
        assert label_codes(labels, ["a", "b"]).tolist() == [0, 1, -1, 1]
    with pytest.raises(InvalidRequest, match="target's kind"):
        label_codes(np.array(words), [0, 1])


def test_the_types_of_labels_and_features_do_not_depend_on_a_batch() -> None:
    for column in (
        pa.array([1, None], pa.int64()),
        pa.array([1, 2], pa.int64()),
        pa.array([True, None]),
        pa.array([1.5, None]),
    ):
        dataset = Dataset(pa.table({"x": column, "y": column}), adjacency="replace-one", rows=2)
        features, target = next(read_rows(dataset, "y").read())
        assert features.dtype == target.dtype == np.float64
        codes = next(read_rows(dataset, "y", classes=[1, 2]).read())[1]
        assert codes.dtype == np.intp


def test_measured_numbers_are_those_of_the_declared_type() -> None:
    dataset = Dataset({"v": [1, "x", 2**70, None, True]}, types={"v": "real"}, bounds={"v": (0, 10)})
    measured = Measured(col("v"), dataset.clamp(col("v")))

    (batch,) = dataset.batches(["v"])
    tally, kept = dataset.tally(measured=(measured,)), np.ones(5, bool)
    numbers = tally._read_numbers(measured.expression, batch, kept)
    assert numbers[kept].tolist() == [1.0, 2.0**70, 1.0]
    np.testing.assert_array_equal(tally.read_atoms(batch).steps, [measured.clamp.to_steps(numbers[kept])])
