"""Two private tables joined on the id of their unit: a person's joined rows depend on that person's rows only."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.replay import assert_one_number_differs

from expost import Session, Unit, epsilon
from expost.core import InvalidRequest, unseal
from expost.data import Dataset, col
from expost.data.sealed_form import TotalForm
from expost.data.tally import Measured
from expost.data.unit_join import UnitJoin

LEFT = pa.schema({"id": pa.string(), "k": pa.int64(), "x": pa.float64()})
RIGHT = pa.schema({"id": pa.string(), "k": pa.int64(), "city": pa.string(), "y": pa.float64()})
CELLS: dict[str, list[Any]] = {
    "id": ["a", "b", "c", "d", "", "x" * 5000, None],
    "k": [0, 1, 2, None],
    "x": [0.0, -0.0, 1.5, float("nan"), None],
    "y": [0.0, -0.0, 2.5, float("inf"), None],
    "city": ["Rome", "Oslo", "", None],
}


def made_up(schema: pa.Schema, rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = {name: [CELLS[name][k] for k in draw.integers(len(CELLS[name]), size=rows)] for name in schema.names}
    return pa.table(columns, schema=schema)


def described(table: pa.Table, limit: int | None = 3, **facts: Any) -> Dataset:
    return Dataset(table, unit="id", max_rows_per_unit=limit, **facts)


def joined(left: pa.Table, right: pa.Table, *, limit: int = 3, secret: bytes = b"fixed", **terms: Any) -> Dataset:
    view = described(left).join(described(right, limit), prefix="r_", **({"on": "id"} | terms))
    assert isinstance(view._engine, UnitJoin)
    view._engine._secret = secret
    return view


def rows_of(dataset: Dataset) -> Counter[tuple[str, ...]]:
    """All rows as texts, which show NaN and the sign of zero."""
    names = list(dataset.schema)
    batches = list(dataset.batches(names))
    table = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})
    return Counter(zip(*([repr(cell) for cell in column.to_pylist()] for column in table.columns), strict=True))


def without(table: pa.Table, person: object) -> pa.Table:
    return table.filter(pa.array([each != person for each in table["id"].to_pylist()]))


def only(table: pa.Table, person: object) -> pa.Table:
    return table.filter(pa.array([each == person for each in table["id"].to_pylist()]))


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("on", ["id", ["id", "k"], ["k", "id"]])
def test_a_join_has_the_rows_that_duckdb_finds(how: str, on: Any) -> None:
    left, right = made_up(LEFT, 60, seed=1), made_up(RIGHT, 50, seed=2)
    keys = [on] if isinstance(on, str) else on
    rest = ", ".join(f"r.{name} AS r_{name}" for name in RIGHT.names if name not in keys)
    condition = " AND ".join(f"l.{key} = r.{key}" for key in keys)

    view = joined(left, right, limit=1000, how=how, on=on)
    text = f"SELECT l.*, {rest} FROM lefts l {how} JOIN rights r ON {condition}"
    expected = duckdb_join(left, right, text)

    assert rows_of(view) == rows_of(Dataset(expected))


def duckdb_join(left: pa.Table, right: pa.Table, text: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("lefts", left)
        connection.register("rights", right)
        return connection.sql(text).to_arrow_table()


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("limit", [1, 2])
def test_the_joined_rows_of_a_person_depend_on_no_other_person_order_or_batch(how: str, limit: int) -> None:
    left, right = made_up(LEFT, 80, seed=3), made_up(RIGHT, 80, seed=4)
    whole = rows_of(joined(left, right, limit=limit, how=how))

    for person in CELLS["id"]:
        rest = rows_of(joined(without(left, person), without(right, person), limit=limit, how=how))
        own = rows_of(joined(only(left, person), only(right, person), limit=limit, how=how))
        assert whole == rest + own
    order = np.random.default_rng(5)
    for _ in range(3):
        shuffled = [each.take(order.permutation(len(each))) for each in (left, right)]
        assert rows_of(joined(*shuffled, limit=limit, how=how)) == whole
    view = joined(left, right, limit=limit, how=how)
    for size in (1, 2, 7):
        parts = view._engine.batches(list(view.schema), rows_per_batch=max(size, limit))
        checked = [batch for batch in parts if batch.num_rows <= max(size, limit)]
        assert rows_of(Dataset(pa.Table.from_batches(checked))) == whole


def test_a_limit_keeps_each_row_equally_often() -> None:
    left, right = pa.table({"id": [1]}), pa.table({"id": [1] * 4, "y": [10, 10, 20, 30]})
    kept: Counter[int] = Counter()
    for number in range(3000):
        view = joined(left, right, limit=2, secret=number.to_bytes(8, "little"), how="inner")
        kept.update(next(view.batches(["r_y"])).column(0).to_pylist())

    # 6000 kept rows; the standard deviation of each share is about 32
    assert abs(kept[10] - 3000) < 200 and abs(kept[20] - 1500) < 200 and abs(kept[30] - 1500) < 200


def two_tables() -> tuple[pa.Table, pa.Table]:
    draw = np.random.default_rng(6)
    left = pa.table({"id": draw.integers(5, size=60), "x": draw.integers(0, 10, size=60)})
    return left, pa.table({"id": draw.integers(5, size=40), "city": draw.choice(["Rome", "Oslo"], 40)})


def described_join(left: pa.Table, right: pa.Table, how: str) -> Dataset:
    people = described(right, 2, categories={"city": ["Rome", "Oslo"]}, name="people")
    visits = described(left, 4, bounds={"x": (0, 9)}, name="visits")
    view = visits.join(people, on="id", how=how, max_rows_per_unit=3)
    view._engine._secret = b"fixed"  # type: ignore[attr-defined]
    return view


@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_person_in_both_tables_moves_a_total_by_its_declared_sensitivity(how: str) -> None:
    left, right = two_tables()

    def total(left: pa.Table, right: pa.Table) -> tuple[Any, int]:
        view = described_join(left, right, how)
        clamp = view.clamp(col("x"))
        tally = view.tally(measured=(Measured(col("x"), clamp),), axes=(view.axis("city"),), degree=1)
        sealed = view.measure_total(TotalForm(clamp), tally, secret=b"secret!!")
        return np.asarray(unseal(sealed)), sealed.sensitivity.amount

    whole, allowed = total(left, right)
    moved = []
    for person in range(5):
        rest, _ = total(without(left, person), without(right, person))
        moved.append(np.abs(whole - rest).sum())
    assert allowed == 27 and 9 < max(moved) <= allowed


@pytest.mark.parametrize("how", ["left", "inner"])
def test_one_person_changes_one_number_of_a_question_about_a_join(how: str) -> None:
    left, right = two_tables()

    def action(left: pa.Table, right: pa.Table) -> Any:
        view = described_join(left, right, how)

        def run(bits: Any) -> Any:
            session = Session(view, epsilon(50), bits=bits, simulation=True)
            return repr(view), session.mean("x", epsilon=1), session.count(epsilon=1, by="city")

        return run

    assert_one_number_differs(action(left, right), action(without(left, 3), without(right, 3)), moves=3)


def test_a_join_without_a_limit_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": [7] * 50, "y": [1] * 50})
    bounded = sum(batch.num_rows for batch in joined(rows, rows, limit=2, how="inner").batches(["r_y"]))
    monkeypatch.setattr(UnitJoin, "_most", property(lambda self: 1 << 20, lambda self, value: None), raising=False)
    unbounded = sum(batch.num_rows for batch in joined(rows, rows, limit=2, how="inner").batches(["r_y"]))

    assert bounded == 100 and unbounded == 2500


def test_filters_derived_columns_and_facts_of_both_tables_apply() -> None:
    visits = described(pa.table({"id": [1, 1, 2], "paid": [5, 50, 7]}), 10, bounds={"paid": (0, 60)}).where("paid < 40")
    people = described(
        pa.table({"id": [1, 2, 3], "born": [1950, 1990, 2000]}), 1, bounds={"born": (1900, 2020)}
    ).derive(old="born < 1960")

    view = visits.join(people.where("born < 1995"), on="id", how="inner").derive(twice="paid * 2")

    assert list(view.schema) == ["id", "paid", "born", "old", "twice"]
    assert view.bounds == {"paid": (0, 60), "born": (1900, 2020)} and view.max_rows_per_unit == 10
    table = pa.Table.from_batches(view.batches(["id", "old", "twice"])).to_pydict()
    assert table == {"id": [1, 2], "old": [True, False], "twice": [10.0, 14.0]}


def test_joins_can_be_joined_and_aggregated_again() -> None:
    first, second = pa.table({"id": [1, 1, 2], "x": [1, 2, 3]}), pa.table({"id": [1, 2], "y": [10, 20]})
    third = pa.table({"id": [2, 2], "z": [5, 6]})

    view = described(first, 2).join(described(second, 1), on="id").join(described(third, 2), on="id", how="inner")
    people = view.per_unit(total="sum(z)", bounds={"total": (0, 100)})

    assert view.max_rows_per_unit == 4
    assert pa.Table.from_batches(people.batches(["id", "total"])).to_pydict() == {"id": [2], "total": [11]}


@pytest.mark.parametrize(
    ("left", "right", "terms", "words"),
    [
        ({"unit": "row"}, {}, {}, "same id column"),
        ({}, {"unit": "row"}, {}, "same id column"),
        ({"unit": "k"}, {}, {}, "same id column"),
        (
            {"unit": Unit.of("id", per="week", time="at")},
            {"unit": Unit.of("id", per="week", time="at")},
            {},
            "time window",
        ),
        ({}, {"adjacency": "replace-one"}, {}, "same adjacency"),
        ({}, {"max_rows_per_unit": None}, {}, "limit on the rows"),
        ({}, {}, {"on": "k"}, "id of the unit"),
        ({}, {}, {"on": ["id", "at"]}, "same type"),
        ({}, {}, {"on": ["id", "none"]}, "same type"),
        ({}, {}, {"prefix": ""}, "only one of the tables"),
        ({}, {}, {"how": "outer"}, 'how="left"'),
        ({}, {}, {"max_rows_per_unit": 0}, "whole number"),
    ],
)
def test_wrong_joins_are_refused_in_words(
    left: dict[str, Any], right: dict[str, Any], terms: dict[str, Any], words: str
) -> None:
    at = pa.array([0], pa.timestamp("us"))
    first = pa.table({"id": [1], "k": [1], "at": at})
    second = pa.table({"id": [1], "k": [1], "at": at if left.get("unit") and right.get("unit") else pa.array(["now"])})

    def describe(table: pa.Table, given: dict[str, Any]) -> Dataset:
        settings = {"unit": "id", "max_rows_per_unit": 5} | given
        if settings["unit"] == "row":
            settings["max_rows_per_unit"] = None
        return Dataset(table, **settings)

    with pytest.raises(InvalidRequest, match=words):
        describe(first, left).join(describe(second, right), **({"on": "id", "prefix": "r_"} | terms))


def test_ids_of_other_types_do_not_match_silently() -> None:
    with pytest.raises(InvalidRequest, match="same type"):
        described(pa.table({"id": [1]})).join(described(pa.table({"id": ["1"]})), on="id")


def test_an_empty_second_table_matches_nothing() -> None:
    right = pa.schema({"id": pa.int64(), "y": pa.int64()}).empty_table()
    left = described(pa.table({"id": [1, 2]}))

    found = {
        how: pa.Table.from_batches(left.join(described(right), on="id", how=how).batches(["y"]))
        for how in ("left", "inner")
    }

    assert found["left"]["y"].to_pylist() == [None, None] and found["inner"].num_rows == 0


def test_time_shows_no_square_of_the_rows_of_a_person() -> None:
    rows = pa.table({"id": np.zeros(20_000, np.int64), "y": np.arange(20_000)})

    view = described(rows, 1).join(described(rows, 1), on="id", prefix="r_", how="inner")
    sizes: Iterator[int] = (batch.num_rows for batch in view._engine.batches(["y", "r_y"]))

    assert sum(sizes) == 20_000
