"""A table of units has one row per unit, which depends on that unit's rows only, bit for bit."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.replay import assert_one_number_differs

from expost import Session, Unit, epsilon
from expost.core import InvalidRequest, unseal
from expost.core.sealed import Sensitivity
from expost.data import Dataset, UnitAggregate, col
from expost.data.sealed_form import CountForm, TotalForm
from expost.data.tally import Measured

BOUNDS = {"total": (0, 100), "mean": (-5, 50)}
COLUMNS = {
    "total": "sum(x)",
    "mean": "mean(x)",
    "visits": "count()",
    "low": "min(x)",
    "high": "max(x)",
    "n": "count(x)",
}


def rows(dataset: Dataset) -> dict[object, tuple[object, ...]]:
    """The row of each unit; bytes show NaN and the sign of zero."""
    table = pa.Table.from_batches(dataset.batches(list(dataset.schema)))
    found = zip(*table.to_pydict().values(), strict=True)
    return {
        first: tuple(np.float64(np.nan if cell is None else cell).tobytes() for cell in rest) for first, *rest in found
    }


def values(dataset: Dataset, column: str) -> dict[object, object]:
    names = [dataset.unit.column, column]
    table = pa.Table.from_batches(dataset.batches(names))
    return dict(zip(*table.to_pydict().values(), strict=True))


def test_aggregates_are_those_of_each_units_rows() -> None:
    table = pa.table({"id": ["a", "b", "a", None, "c", "a"], "x": [1.5, 7.0, None, 9.0, None, 200.0], "k": [1] * 6})
    people = Dataset(table, unit="id").per_unit(
        total="sum(x)",
        mean=UnitAggregate("mean", col("x") * 2),
        visits="count( * )",
        n="count(x)",
        low="min(x)",
        ones="sum(k)",
        bounds={"total": (0, 100), "mean": (0, 500), "ones": (0, 9)},
    )

    assert str(people.schema) == "id text, total real, mean real, visits integer, n integer, low real, ones integer"
    assert values(people, "total")["a"] == 100 and values(people, "total")["b"] == 7
    assert np.isnan(values(people, "total")["c"]) and np.isnan(values(people, "low")["c"])
    assert values(people, "mean")["a"] == pytest.approx(201.5, abs=1e-6)
    assert values(people, "visits") == {"a": 3, "b": 1, "c": 1} and values(people, "n") == {"a": 2, "b": 1, "c": 0}
    assert values(people, "ones") == {"a": 3, "b": 1, "c": 1}
    assert people.bounds == {"total": (0, 100), "mean": (0, 500), "ones": (0, 9)}


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([0, 2**62, 2**53, 2**53 + 1], pa.int64()),
        ([0.0, float("inf"), 5e-324, 1.5], pa.float64()),
        (["a", "", "A", "é"], pa.string_view()),
        ([Decimal("1.0"), Decimal("1.1"), Decimal("9.0"), Decimal("0.0")], pa.decimal128(20, 1)),
        ([datetime.datetime(2020, 1, day) for day in range(1, 5)], pa.timestamp("ns")),
    ],
)
def test_the_row_of_a_unit_depends_on_no_other_unit_order_or_batch(ids, kind) -> None:
    generator = np.random.default_rng(5)
    odd = [1e16, 1.0, -1e16, 0.1, 0.2, 0.3, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308, -1e308, 1e-300]
    who = generator.integers(0, 4, 400)
    x = generator.choice(odd, 400)

    def people(chosen: np.ndarray, chunk: int) -> dict[object, tuple[object, ...]]:
        table = pa.table({"id": pa.array([ids[k] for k in who[chosen]], kind), "x": x[chosen]})
        parts = [table.slice(start, chunk) for start in range(0, len(table), chunk)]
        dataset = Dataset(pa.concat_tables(parts), unit="id")
        return rows(dataset.per_unit(bounds=BOUNDS, **COLUMNS))

    whole = people(np.arange(400), 400)
    assert len(whole) == 4
    assert people(generator.permutation(400), 7) == whole
    for unit in range(4):
        left = people(np.flatnonzero(who != unit)[::-1], 13)
        assert left == {name: row for name, row in whole.items() if name != pa.array([ids[unit]], kind)[0].as_py()}


def test_floats_added_in_their_order_would_change_other_units_rows() -> None:
    x = np.array([1e16, 1.0, -1e16, 1.0])

    assert x.sum() != x[[0, 2, 1, 3]].sum()  # so the test above can fail


def test_a_sum_beyond_all_integers_stays_at_its_bound() -> None:
    table = pa.table({"id": np.repeat([0, 1], 5000), "x": np.repeat([1e300, -1e300], 5000)})

    bounds = {"total": (-3, 2), "mean": (-3, 2)}
    people = Dataset(table, unit="id").per_unit(total="sum(x)", mean="mean(x)", bounds=bounds)
    assert values(people, "total") == values(people, "mean") == {0: 2.0, 1: -3.0}


def test_whole_numbers_are_added_without_rounding() -> None:
    numbers = np.random.default_rng(2).integers(-(2**40), 2**40, 2000)
    table = pa.table({"id": np.arange(2000) % 7, "k": numbers, "x": numbers.astype(float)})
    people = Dataset(table, unit="id").per_unit(
        k="sum(k)", x="sum(x)", bounds={"k": (-(2**30), 2**30), "x": (-1e9, 1e9)}
    )

    for unit in range(7):
        exact = int(numbers[unit::7].sum())
        assert values(people, "k")[unit] == min(max(exact, -(2**30)), 2**30)
        assert values(people, "x")[unit] == min(max(exact, -1e9), 1e9)


@pytest.mark.parametrize("window", ["day", "week", "month"])
def test_a_unit_with_a_window_has_a_row_per_window(window) -> None:
    moments = [datetime.datetime(2023, 1, 1, 5) + datetime.timedelta(hours=11 * k) for k in range(200)]
    moments += [datetime.datetime(1969, 12, 31, 23), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)]
    table = pa.table(
        {"id": [k % 3 for k in range(203)], "when": pa.array(moments, pa.timestamp("us")), "x": [1.0] * 203}
    )
    visits = Dataset(table, unit=Unit.of("id", per=window, time="when"), max_rows_per_unit=1000)
    people = visits.per_unit(total="sum(x)", bounds={"total": (0, 1000)})

    def measured(dataset: Dataset, once: bool) -> int:
        tally = dataset.tally()
        return int(unseal(dataset.measure_total(CountForm(), tally, secret=b"secret!!", once=once))[0])

    assert measured(people, False) == measured(visits, True) == measured(people, True)


def test_filters_and_derived_columns_apply_first() -> None:
    table = pa.table({"id": [1, 1, 2], "x": [1.0, 2.0, 3.0]})
    late = Dataset(table, unit="id").derive(y="x * 10").where("x < 3").per_unit(t="sum(y)", bounds={"t": (0, 99)})

    assert values(late, "t") == {1: 30.0}


def test_a_statistic_of_units_has_the_sensitivity_of_one_row() -> None:
    table = pa.table({"id": np.arange(900) % 300, "x": np.full(900, 2.0)})
    visits = Dataset(table, name="visits", unit="id", max_rows_per_unit=50)
    people = visits.per_unit(total="sum(x)", bounds={"total": (0, 10)})
    clamp = people.clamp(people.expression("total"))
    tally = people.tally(measured=(Measured(col("total"), clamp),), degree=1)

    assert people.sensitivity(TotalForm(clamp), tally) == Sensitivity(TotalForm(clamp).row_size, unit=people.unit)
    session = Session(people, epsilon(100))
    assert session.mean("total", epsilon=20).value == pytest.approx(6, abs=0.1)
    assert session.median("total", epsilon=20).value == pytest.approx(6, abs=0.1)
    assert list(session.histogram("total", edges=[0, 5, 10], epsilon=20).value.values()) == [0, 300]
    assert session.count(epsilon=10).value == pytest.approx(300, abs=5)


def test_one_unit_changes_one_number_of_a_question_about_units() -> None:
    generator = np.random.default_rng(3)
    ids, x = generator.integers(0, 30, 300), generator.choice([0.1, 1e16, -1e16, np.nan, 7.0, np.inf], 300)

    def action(kept):
        people = Dataset(pa.table({"id": ids[kept], "x": x[kept]}), name="t", unit="id").per_unit(
            bounds=BOUNDS, **COLUMNS
        )

        def run(bits):
            session = Session(people, epsilon(50), bits=bits, simulation=True)
            return repr(people), session.mean("total", epsilon=1), session.sum("mean", epsilon=1)

        return run

    assert_one_number_differs(action(np.ones(300, bool)), action(ids != 7), moves=1)


def test_questions_about_units_are_charged_to_the_same_account(tmp_path) -> None:
    table = pa.table({"id": [1, 1, 2], "x": [1.0, 2.0, 3.0]})
    visits = Dataset(table, name="visits", unit="id", max_rows_per_unit=5)
    with Session(visits, epsilon(1), ledger=tmp_path / "l.ledger") as session:
        session.count(epsilon=0.5)
    people = visits.per_unit(total="sum(x)", bounds={"total": (0, 10)})
    with Session(people, ledger=tmp_path / "l.ledger") as session:
        assert session.remaining().epsilon == 0.5
        session.count(epsilon=0.25)
        assert session.remaining().epsilon == 0.25


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({}, "new columns"),
        ({"total": "sum(x)"}, r"bounds of total\. Pass per_unit\(\.\.\., bounds="),
        ({"total": "sum()", "bounds": {"total": (0, 1)}}, "Expected an aggregate"),
        ({"total": "median(x)"}, "Expected an aggregate"),
        ({"total": 3}, "Expected an aggregate"),
        ({"total": UnitAggregate("sum")}, "Expected an aggregate"),
        ({"id": "count()"}, "names of their own"),
        ({"n": "count()", "bounds": {"m": (0, 1)}}, "bounds of the new columns"),
        ({"n": "min(city)"}, "column of numbers in n = min"),
        ({"n": "min(nothing)"}, "name of a column"),
        ({"n": "count()", "bounds": {"n": (1, 0)}}, "lower bound"),
    ],
)
def test_what_is_no_aggregate_is_refused_before_a_row_is_read(terms, sentence) -> None:
    visits = Dataset(pa.table({"id": [1], "x": [1.0], "city": ["a"]}), unit="id")

    with pytest.raises(InvalidRequest, match=sentence):
        visits.per_unit(**terms)


def test_a_unit_that_is_a_row_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Expected a unit that is an id"):
        Dataset(pa.table({"x": [1.0]})).per_unit(n="count()")


def test_units_are_grouped_by_declared_values_of_an_aggregate() -> None:
    visits = Dataset(pa.table({"id": [1, 1, 2, 3], "x": [1.0, 2.0, 3.0, 4.0]}), unit="id")

    units = visits.per_unit(n="count()", bounds=(0, 5), categories=range(1, 4))

    assert Session(units, 1e9).count(by="n", epsilon=500).value == {1: 2, 2: 1, 3: 0}
    with pytest.raises(InvalidRequest, match="categories of the new columns, got 'm'"):
        visits.per_unit(n="count()", categories={"m": [1]})
    with pytest.raises(InvalidRequest, match="categories of n of the kind integer"):
        visits.per_unit(n="count()", categories=["one"])


def test_aggregates_of_a_unit_become_a_column_of_its_rows_by_a_join() -> None:
    visits = Dataset(pa.table({"id": [1, 1, 2], "x": [1.0, 2.0, 3.0]}), unit="id", max_rows_per_unit=5)

    joined = visits.join(visits.per_unit(n="count()", categories=[1, 2]), on="id")

    assert Session(joined, 1e9).count(by="n", epsilon=500).value == {1: 1, 2: 2}
    assert joined.max_rows_per_unit == 5
