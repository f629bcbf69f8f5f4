"""Derived columns can be grouped by and bounded: by declared facts, and by facts that follow from their formulas."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset, col, when
from expost.data.description import Description, draft_description
from expost.models.tabular.column_declaration import declare_columns

ROWS = pa.table(
    {
        "when": [datetime.datetime(2013, 1, 1), datetime.datetime(2013, 5, 31, 23, 59), None],
        "x": [0.0, 99.0, None],
        "s": ["2013-01-01", "?", None],
    }
)
YEAR = {"when": ("2012-12-30", "2013-12-31"), "x": (0, 100)}


QUARTERS = tuple(datetime.datetime(*start, 1) for start in [(2012, 10), (2013, 1), (2013, 4), (2013, 7), (2013, 10)])


def dataset(**facts: Any) -> Dataset:
    return Dataset(ROWS, name="rows", **{"bounds": YEAR, **facts})


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        ("month(when)", tuple(range(1, 13))),
        ("quarter(when)", (1, 2, 3, 4)),
        ("weekday(when)", tuple(range(1, 8))),
        ("hour(strptime(s, '%Y-%m-%d'))", tuple(range(24))),
        ("year(when)", (2012, 2013)),
        ("x > 3", (False, True)),
        ("case when x > 3 then 'high' when x > 1 then 'low' end", ("high", "low")),
        ("case when x > 3 then month(when) else 0 end", (*range(1, 13), 0)),
        ("coalesce(quarter(when), -1)", (1, 2, 3, 4, -1)),
        ("bin(x, 4)", (0.0, 25.0, 50.0, 75.0)),
        ("bin(x, 0, 1, 2)", (0.0, 0.5)),
        ("width_bucket(x, 0, 50, 2)", (0, 1, 2, 3)),
        ("date_trunc('year', when)", (datetime.datetime(2012, 1, 1), datetime.datetime(2013, 1, 1))),
        ("date_trunc('quarter', date(when))", QUARTERS),
    ],
)
def test_a_formula_knows_its_categories(formula: str, values: tuple[Any, ...]) -> None:
    assert dataset().axis(formula).values == values
    derived = dataset().derive(d=formula)
    assert derived.axis("d").values == values
    assert dataset(derive={"d": formula}).axis("d").values == values


@pytest.mark.parametrize("formula", ["x + 1", "lower(s)", "case when x > 3 then x else 0 end", "date(when)"])
def test_other_formulas_need_declared_categories(formula: str) -> None:
    plain = Dataset(ROWS)
    with pytest.raises(InvalidRequest, match="public categories"):
        plain.axis(formula)
    with pytest.raises(InvalidRequest, match="public categories"):
        plain.derive(d=formula).axis("d")


def test_weeks_of_a_range_begin_on_mondays_and_the_last_day_counts_until_its_end() -> None:
    weeks = dataset().axis("date_trunc('week', when)").values
    hours = dataset(bounds={"when": (datetime.date(2013, 1, 1), datetime.date(2013, 1, 2))}).axis(
        "date_trunc('hour', when)"
    )

    assert weeks[0] == datetime.datetime(2012, 12, 24)
    assert {week.weekday() for week in weeks} == {0}
    assert weeks[-1] <= datetime.datetime(2013, 12, 31) < weeks[-1] + datetime.timedelta(days=7)
    assert hours.size == 48


def test_categories_and_bounds_are_declared_with_the_columns() -> None:
    one = dataset().derive(m="month(when)", categories=range(1, 4)).derive(y="x * 2", bounds=(0, 10))
    both = dataset().derive(m=col("when").month(), y="x * 2", categories={"m": [1, 2]}, bounds={"y": (0, 10)})
    chained = dataset().derive(a="month(when)", b="a * 2", bounds={"b": (2, 24)})

    assert one.axis("m").values == (1, 2, 3)
    assert one.clamp(col("y")).high == 10
    assert both.axis("m").values == (1, 2)
    assert chained.clamp(col("b")).high == 24
    assert dataset().categories == {}


def test_known_numbers_are_their_own_bounds() -> None:
    clamp = dataset().clamp(col("when").month())

    assert (clamp.low, clamp.high, clamp.whole) == (1, 12, True)
    assert dataset().derive(c=when(col("x") > 3).then(5).otherwise(-5)).clamp(col("c")).low == -5


@pytest.mark.parametrize(
    "build",
    [
        lambda: dataset().derive(a="x", b="x", bounds=(0, 1)),
        lambda: dataset().derive(a="x", bounds={"b": (0, 1)}),
        lambda: dataset().derive(a="x", categories="abc"),
        lambda: dataset().derive(a="s", bounds=(0, 1)),
        lambda: dataset().derive(a="x", categories=["b"]),
        lambda: dataset().derive(x="x"),
        lambda: dataset().derive(a="bin(s, 4)"),
        lambda: Dataset(ROWS).derive(a="bin(x, 4)"),
        lambda: dataset().derive(a="bin(x, 0)"),
        lambda: dataset().derive(a="bin(x, 1, 0, 4)"),
        lambda: dataset().derive(a="bin(x, 0, 5e-324, 4)"),
        lambda: dataset(derive={"x": "x"}),
        lambda: dataset(derive=["month(when)"]),
        lambda: Dataset(ROWS, bounds={"x": ("2013-01-01", "2013-01-02")}),
        lambda: Dataset(ROWS, bounds={"when": ("2013-01-02", "2013-01-01")}),
        lambda: Dataset(ROWS, bounds={"when": ("soon", "2013-01-01")}),
        lambda: Dataset(ROWS, bounds={"when": (1, 2)}),
    ],
)
def test_facts_that_do_not_fit_are_refused(build: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^Expected "):
        build()


def test_a_description_declares_derived_columns_and_time_ranges(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "rows.toml").write_text(
        'source = "rows.parquet"\n[bounds]\nwhen = [2013-01-01, 2013-12-31]\ny = [0, 10]\n'
        '[categories]\nm = [1, 2]\n[derive]\nm = "month(when)"\ny = "x * 2"\nq = "date_trunc(\'quarter\', when)"\n'
    )
    described = Description.read(tmp_path / "rows.toml")
    opened = described.open()

    assert opened.axis("m").values == (1, 2)
    assert opened.axis("q").size == 4
    assert opened.clamp(col("y")).high == 10
    assert set(declare_columns(described, ["when"])) >= {"when"}
    assert Description.parse(draft_description("rows.csv", [("x", "real")])).derive == {}
    for text in ("[derive]\nm = 3\n", "[bounds]\nx = [1, 2013-01-01]\n"):
        with pytest.raises(InvalidRequest):
            Description.parse('source = "rows.parquet"\n' + text)


def test_a_range_gives_lists_their_type() -> None:
    rows = Dataset({"when": ["2013-01-01", "x", 3]}, bounds={"when": ("2013-01-01", "2013-12-31")})

    assert str(rows.schema) == "when time"
