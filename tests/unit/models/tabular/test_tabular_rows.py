"""Rows for training: what one person adds changes no other person's features, targets or weights."""

import datetime
import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest, TableChanged, Unit
from expost.data import Dataset
from expost.data.engines import ArrowEngine
from expost.models.tabular import CategoryColumn, DateColumn, FlagColumn, NumberColumn, TableEncoder
from expost.models.tabular.tabular_rows import TabularRows

SECRET = bytes(range(32))
ENCODER = TableEncoder((NumberColumn("age", 0, 10), CategoryColumn("city", ["Rome", "Oslo"]), FlagColumn("member")))
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "cy", None]),
        st.sampled_from([None, 0.0, 3.0, 99.0, float("nan"), float("inf")]),
        st.sampled_from(["Rome", "Oslo", "Bonn", None]),
        st.sampled_from([True, False, None]),
        st.sampled_from([None, 1.0, 2.0]),
    ),
    max_size=14,
)
SCHEMA = pa.schema(
    {"id": pa.string(), "age": pa.float64(), "city": pa.string(), "member": pa.bool_(), "stay": pa.float64()}
)


def as_table(rows: list) -> pa.Table:
    return pa.table([[row[k] for row in rows] for k in range(5)], schema=SCHEMA)


def read_all(rows: TabularRows) -> list[tuple]:
    """Return all rows as (features, target, weight), sorted."""
    found = []
    for features, targets, weights in rows:
        assert features.dtype == weights.dtype == np.float32
        assert len(features) == len(targets) == len(weights)
        found += [
            (tuple(line), str(target), weight)
            for line, target, weight in zip(features.tolist(), targets.tolist(), weights.tolist(), strict=True)
        ]
    return sorted(found)


def people(rows: list, most: int, cuts: tuple[int, ...] = ()) -> TabularRows:
    edges = [0, *sorted(cuts), len(rows)]
    parts = [as_table(rows[start:stop]) for start, stop in itertools.pairwise(edges)]
    dataset = Dataset(pa.concat_tables(parts), unit="id", max_rows_per_unit=most)
    return TabularRows.read(dataset, ENCODER, "stay", secret=SECRET)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_without_ids_every_row_has_its_features_its_target_and_weight_one(rows: list) -> None:
    table = as_table(rows)

    found = read_all(TabularRows.read(Dataset(table), ENCODER, "stay"))

    expected = zip(ENCODER.encode(table).tolist(), table.column("stay").to_pylist(), strict=True)
    assert found == sorted((tuple(line), "nan" if stay is None else str(stay), 1.0) for line, stay in expected)


@settings(max_examples=60, deadline=None)
@given(ROWS, ROWS, st.integers(1, 3), st.randoms(use_true_random=False))
def test_adding_a_person_changes_no_other_persons_rows_or_weights(rows, more, most, random) -> None:
    added = [("zoe", *row[1:]) for row in more]
    mixed = rows + added
    random.shuffle(mixed)

    before = read_all(people(rows, most))
    alone = read_all(people(added, most))
    after = read_all(people(mixed, most, cuts=(random.randint(0, len(mixed)),)))

    assert sorted(before + alone) == after


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 3))
def test_the_weights_of_a_person_sum_to_at_most_one_and_rows_without_an_id_are_left_out(rows: list, most: int) -> None:
    for name in ("ann", "bob", "cy"):
        mine = [row for row in rows if row[0] == name]
        weights = [Fraction(weight) for _, _, weight in read_all(people(mine, most))]
        assert len(weights) == min(len(mine), most)
        assert sum(weights, Fraction(0)) <= 1
    named = [row for row in rows if row[0] is not None]
    assert read_all(people(rows, most)) == read_all(people(named, most))


def test_every_iteration_reads_the_same_rows() -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"id": rng.integers(0, 2000, 20_000), "x": rng.normal(size=20_000), "y": rng.normal(size=20_000)})
    dataset = Dataset(table, unit="id", max_rows_per_unit=4)
    encoder = TableEncoder((NumberColumn("x", -2, 2),))

    rows = TabularRows.read(dataset, encoder, "y")
    first, second = read_all(rows), read_all(rows)
    shuffled = Dataset(table.take(rng.permutation(20_000)), unit="id", max_rows_per_unit=4)
    again = TabularRows.read(shuffled, encoder, "y", secret=rows.secret)
    other = read_all(TabularRows.read(dataset, encoder, "y"))

    assert first == second == read_all(again)
    assert len(other) == len(first) and other != first
    assert abs(sum(weight for _, _, weight in first) - 2000) < 1e-3


def test_targets_are_class_indices_or_numbers() -> None:
    table = pa.table({"member": [True] * 4, "label": ["no", "yes", "?", None], "stay": [1, 2, None, 4]})
    encoder = TableEncoder((FlagColumn("member"),))

    (labels,) = TabularRows.read(Dataset(table), encoder, "label", classes=np.array(["yes", "no"]))
    (numbers,) = TabularRows.read(Dataset(table), encoder, "stay")

    assert labels.targets.tolist() == [1, 0, -1, -1]
    assert numbers.targets.dtype == np.float64
    np.testing.assert_array_equal(numbers.targets, [1, 2, np.nan, 4])


def test_filters_derived_columns_and_windows_of_a_unit_are_followed() -> None:
    day = datetime.datetime(2024, 1, 1)
    table = pa.table(
        {
            "id": [1, 1, 1, 1, 2],
            "x": [1.0, 2.0, 3.0, 4.0, 5.0],
            "y": [0.0] * 5,
            "when": [day, day, day + datetime.timedelta(40), None, day],
        }
    )
    encoder = TableEncoder(
        (NumberColumn("double", 0, 20, missing=False), DateColumn("when", "2024-01-01", "2024-12-31"))
    )
    whole = Dataset(table, unit=Unit.of("id", per="month", time="when"), max_rows_per_unit=9).derive(double="x * 2")

    weights = [weight for _, _, weight in read_all(TabularRows.read(whole, encoder, "y"))]
    filtered = [weight for _, _, weight in read_all(TabularRows.read(whole.where("x > 1"), encoder, "y"))]

    assert sorted(weights) == [0.5, 0.5, 1.0, 1.0]
    assert filtered == [1.0, 1.0, 1.0]


class Growing(ArrowEngine):
    """A table that has one more row in each reading."""

    def batches(self, columns, *, rows_per_batch=1 << 17):
        yield from super().batches(columns, rows_per_batch=rows_per_batch)
        self._table = pa.concat_tables([self._table, self._table.slice(0, 1)])


def test_a_table_that_changes_between_readings_is_noticed() -> None:
    dataset = Dataset(Growing(as_table([("ann", 1.0, "Rome", True, 1.0)])), unit="id", max_rows_per_unit=2)

    with pytest.raises(TableChanged):
        list(TabularRows.read(dataset, ENCODER, "stay"))


def test_an_empty_table_has_no_rows() -> None:
    assert read_all(TabularRows.read(Dataset(as_table([])), ENCODER, "stay")) == []
    assert read_all(people([], 2)) == []


@pytest.mark.parametrize(
    ("target", "classes", "words"),
    [
        ("nothing", None, "name of a column, got 'nothing'"),
        ("age", None, "not a feature, got 'age'"),
        ("id", None, "numbers, or of labels with public classes"),
        ("id", [1, 2], "classes of 'id' like its labels"),
        ("stay", ["a", "b"], "classes of 'stay' like its labels"),
        ("id", ["a"], "at least two different classes of 'id'"),
        ("stay", [1, 1.0], "at least two different classes of 'stay'"),
        ("id", ["a", None], "none missing"),
        ("id", "ab", "at least two different classes"),
    ],
)
def test_a_wrong_target_is_refused_before_any_row_is_read(target: str, classes: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        TabularRows.read(Dataset(as_table([])), ENCODER, target, classes=classes)


def test_an_id_needs_a_limit_and_a_choice_stays_in_its_process() -> None:
    with pytest.raises(InvalidRequest, match="limit on the rows of one id"):
        TabularRows.read(Dataset(as_table([]), unit="id"), ENCODER, "stay")
    rows = people([], 2)
    assert "TabularRows(rows of 6 features" in repr(rows)
    with pytest.raises(TypeError):
        rows.__reduce__()


def weighted_sum(rows: TabularRows, *, weighted: bool = True) -> np.ndarray:
    total = np.zeros(ENCODER.width)
    for features, _, weights in rows:
        total += (weights if weighted else np.ones(len(weights))).astype(np.float64) @ features.astype(np.float64)
    return total


@settings(max_examples=60, deadline=None)
@given(ROWS, ROWS, st.integers(1, 4))
def test_a_person_moves_a_weighted_sum_by_no_more_than_one_row_could(rows: list, more: list, most: int) -> None:
    added = [("zoe", *row[1:]) for row in more]

    moved = weighted_sum(people(rows + added, most)) - weighted_sum(people(rows, most))

    assert np.linalg.norm(moved) <= np.sqrt(ENCODER.squared_length) * (1 + 1e-12)


def test_without_the_weights_a_person_would_move_the_sum_further() -> None:
    rows = [("zoe", 10.0, "Rome", True, 1.0)] * 5

    moved = weighted_sum(people(rows, 4), weighted=False)

    assert np.linalg.norm(moved) > 3 * np.sqrt(ENCODER.squared_length)
