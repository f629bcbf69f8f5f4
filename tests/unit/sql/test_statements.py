"""Statements: what they answer, what they cost, and what they refuse."""

from __future__ import annotations

import datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.sql.exact_answers import without_noise

from expost import Dataset, Session
from expost.core import BudgetExceeded, InvalidRequest, Receipt, TargetNotMet
from expost.session.wire_format import decode_release, encode_release
from expost.sql.logical_plan import AggregateOf, Call, Constant, Shown, evaluate_formula
from expost.stats.statement_release import StatementRelease

ROWS = 4000
NUMBERS = np.random.default_rng(5)
TABLE = pa.table(
    {
        "carrier": NUMBERS.choice(["AA", "UA", "DL"], ROWS),
        "month": NUMBERS.integers(1, 13, ROWS),
        "delay": pa.array(np.where(NUMBERS.random(ROWS) < 0.1, np.nan, NUMBERS.normal(30, 20, ROWS)), from_pandas=True),
        "when": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=3 * k % 8700) for k in range(ROWS)],
        "note": NUMBERS.choice(["a", "b", "c"], ROWS),
    }
)


def flights(**terms: Any) -> Dataset:
    """The table with its public description."""
    return Dataset(
        TABLE,
        name="flights",
        bounds={"delay": (-60, 300), "month": (1, 12), "when": ("2024-01-01", "2024-12-31")},
        categories={"carrier": ["AA", "DL", "UA", "none"]},
        **terms,
    )


def session(budget: Any = (1000, 1e-3), **terms: Any) -> Session:
    """A session about the flights."""
    return Session(flights(**terms), budget)


def test_the_statement_of_the_documentation_is_answered_with_one_receipt() -> None:
    asked = session()
    release = asked.sql(
        "SELECT carrier, COUNT(*) AS flights, AVG(delay) AS delay FROM flights WHERE month BETWEEN 6 AND 8 "
        "AND carrier <> 'none' GROUP BY carrier ERROR WITHIN 10% AT CONFIDENCE 95% AT MOST EPSILON 20"
    )
    frame = release.to_pandas().set_index("carrier")

    assert list(frame.columns) == ["flights", "flights low", "flights high", "delay", "delay low", "delay high", "met"]
    assert frame.met[["AA", "DL", "UA"]].all()
    assert sum(entry.receipt is not None for entry in asked.history()) == 1
    assert release.confidence == Fraction(19, 20)


def test_statistics_of_one_column_are_paid_once() -> None:
    one, all_of_them = session(), session()
    one.sql("SELECT AVG(delay) FROM flights WITH EPSILON 1")
    text = "SELECT COUNT(*), COUNT(delay), SUM(delay), AVG(delay) FROM flights WITH EPSILON 1"

    release = all_of_them.sql(text)

    assert len(all_of_them.sql_price(text).parts) == 1
    assert release.receipt.bill.epsilon == one.spent().epsilon == 1


def test_counts_sums_and_means_of_one_release_fit_together() -> None:
    with without_noise():
        release = session().sql(
            "SELECT COUNT(*), COUNT(delay), SUM(delay), AVG(delay), VAR_POP(delay), STDDEV(delay) FROM flights WITH EPSILON 1"
        )
    rows, count, total, mean, variance, deviation = release.value[0]
    delays = TABLE.column("delay").drop_null().to_numpy()

    assert (rows, count) == (ROWS, len(delays))
    assert total == pytest.approx(delays.sum(), rel=1e-5)
    assert mean == pytest.approx(delays.mean(), rel=1e-5)
    assert variance == pytest.approx(delays.var(), rel=1e-4)
    assert deviation == pytest.approx(delays.std(ddof=1), rel=1e-4)


def test_arithmetic_of_decimal_constants_is_exact() -> None:
    table = pa.table({"x": [0.05, 0.06, 0.07, 0.3, 7.0]})
    asked = Session(Dataset(table, name="t", bounds={"x": (0, 9)}), 100)
    for condition, rows in {
        "x BETWEEN 0.06 - 0.01 AND 0.06 + 0.01": 3,
        "x = 0.1 + 0.2": 1,
        "x = 0.07 * 100": 1,
        "x = 3 * 0.1": 1,
        "x = -(1 - 1.3)": 1,
    }.items():
        with without_noise():
            assert asked.sql(f"SELECT COUNT(*) AS n FROM t WHERE {condition} WITH EPSILON 1").column("n") == [rows]


def test_intervals_hold_the_exact_answers() -> None:
    text = "SELECT COUNT(*), COUNT(delay), SUM(delay), AVG(delay), VAR_SAMP(delay) FROM flights WITH EPSILON 1"
    delays = TABLE.column("delay").drop_null().to_numpy()
    exact = (ROWS, len(delays), delays.sum(), delays.mean(), delays.var(ddof=1))
    missed = 0
    for _ in range(40):
        release = session().sql(text)
        missed += any(not low <= value <= high for value, (low, high) in zip(exact, release.ends[0], strict=True))
    assert missed <= 7  # 2 are expected; 8 have a probability below 0.001


@pytest.mark.parametrize(
    ("columns", "exact"),
    [
        (
            "100.0 * COUNT(delay) / COUNT(*), AVG(delay) - AVG(month), ABS(SUM(month))",
            lambda d, m: (100 * len(d) / ROWS, d.mean() - m.mean(), m.sum()),
        ),
        (
            "SQRT(VAR_POP(delay)) / AVG(delay), -2 * COUNT(*) + SUM(month), COUNT(delay) * AVG(delay)",
            lambda d, m: (d.std() / d.mean(), m.sum() - 2 * ROWS, d.sum()),
        ),
        (
            "(AVG(delay) - 30) * (AVG(delay) - 30), GREATEST(AVG(delay), AVG(month)), LEAST(COUNT(*), COUNT(delay))",
            lambda d, m: ((d.mean() - 30) ** 2, max(d.mean(), m.mean()), min(ROWS, len(d))),
        ),
    ],
)
def test_intervals_of_computed_columns_hold(columns: str, exact: Any) -> None:
    values = exact(TABLE.column("delay").drop_null().to_numpy(), TABLE.column("month").to_numpy())
    missed = 0
    for _ in range(40):
        (ends,) = session().sql(f"SELECT {columns} FROM flights WITH EPSILON 1 AT CONFIDENCE 80%").ends
        missed += any(not low <= value <= high for value, (low, high) in zip(values, ends, strict=True))
    assert missed <= 16  # 8 are expected at most; 17 have a probability below 0.001


def test_an_error_of_each_column_is_met() -> None:
    release = session().sql("SELECT COUNT(*), AVG(delay) FROM flights ERROR WITHIN 200, 5 AT MOST EPSILON 50")
    (low, high), (least, most) = release.ends[0]
    assert release.met == (True,)
    assert high - low <= 400.01
    assert most - least <= 10.01


def test_asking_again_is_free_and_asking_for_more_pays_the_difference() -> None:
    asked = session()
    text = "SELECT carrier, COUNT(*), AVG(delay) FROM flights GROUP BY carrier WITH EPSILON "
    asked.sql(text + "1")
    asked.sql(text + "1")
    assert asked.spent().epsilon == 1
    release = asked.sql(text + "3")
    assert asked.spent().epsilon == 3
    assert release.receipt.bill.epsilon == 2


def test_a_statement_continues_what_a_method_released() -> None:
    asked = session()
    asked.mean("delay", epsilon=1)
    asked.sql("SELECT AVG(delay) FROM flights WITH EPSILON 1")
    assert asked.spent().epsilon == 1


def test_arithmetic_with_aggregates_has_the_interval_that_follows() -> None:
    asked = session()
    release = asked.sql("SELECT 2 * COUNT(*) - COUNT(delay) AS n, COUNT(*) AS rows FROM flights WITH EPSILON 1")
    (low, high), (least, most) = release.ends[0]
    assert low <= ROWS + TABLE.column("delay").null_count <= high
    assert high - low >= 2 * (most - least)


def test_released_values_are_filtered_ordered_and_cut() -> None:
    with without_noise():
        release = session().sql(
            "SELECT month, COUNT(*) AS n FROM flights GROUP BY month HAVING COUNT(*) > 300 ORDER BY n DESC, month LIMIT 3 "
            "WITH EPSILON 1"
        )
    counts = TABLE.group_by("month").aggregate([("month", "count")]).to_pylist()
    expected = sorted(
        ((row["month"], row["month_count"]) for row in counts if row["month_count"] > 300), key=lambda r: (-r[1], r[0])
    )
    assert list(release.value) == expected[:3]


def test_distinct_public_values_cost_nothing() -> None:
    asked = session()
    release = asked.sql("SELECT DISTINCT carrier FROM flights")
    assert release.column("carrier") == ["AA", "DL", "UA", "none"]
    assert asked.spent().epsilon == 0


def test_private_groups_need_a_delta() -> None:
    asked = session()
    with pytest.raises(InvalidRequest, match="WITH DELTA"):
        asked.sql("SELECT note, COUNT(*) FROM flights GROUP BY note WITH EPSILON 1")
    release = asked.sql("SELECT note, COUNT(*) AS n FROM flights GROUP BY note WITH EPSILON 10 WITH DELTA 1e-6")
    assert set(release.column("note")) == {"a", "b", "c"}
    assert asked.spent().amounts()["delta"] == Fraction(1, 10**6)


def test_a_price_spends_nothing_and_is_the_bill() -> None:
    asked = session()
    text = "SELECT COUNT(*) FROM flights ERROR WITHIN 100 AT MOST EPSILON 1"
    price = asked.sql(f"EXPLAIN PRICE {text}")
    assert asked.spent().epsilon == 0
    assert "1 (L1)" in str(price)
    assert asked.sql(text).receipt.bill == price.quote.worst_case


def test_a_statement_above_its_cap_is_refused_for_free() -> None:
    asked = session()
    with pytest.raises(BudgetExceeded, match="above AT MOST EPSILON"):
        asked.sql("SELECT COUNT(*) FROM flights ERROR WITHIN 1 AT MOST EPSILON 0.1")
    assert asked.spent().epsilon == 0


def test_a_release_survives_the_wire() -> None:
    release = session().sql("SELECT carrier, COUNT(*) FROM flights GROUP BY 1 WITH EPSILON 1")
    again = decode_release(encode_release(release))
    assert isinstance(again, StatementRelease)
    assert again == release
    assert Receipt.from_json(release.receipt.to_json()) == release.receipt


REFUSED = {
    "SELECT COUNT(*) FROM flights": "an accuracy or a privacy level",
    "SELECT delay FROM flights WITH EPSILON 1": "inside an aggregate",
    "SELECT * FROM flights WITH EPSILON 1": "rows themselves are never shown",
    "SELECT AVG(delayy) FROM flights WITH EPSILON 1": "Did you mean 'delay'",
    "SELECT COUNT(*) FROM flighst WITH EPSILON 1": "Did you mean 'flights'",
    "SELECT MEDAIN(delay) FROM flights WITH EPSILON 1": "Did you mean 'MEDIAN'",
    "DELETE FROM flights": "tables are never changed",
    "SELECT COUNT(*) FROM flights; SELECT 1 WITH EPSILON 1": "one statement",
    "SELECT SUM(delay) OVER () FROM flights WITH EPSILON 1": "no OVER",
    "SELECT COUNT(*) FROM flights UNION SELECT COUNT(*) FROM flights WITH EPSILON 1": "UNION",
    "SELECT COUNT(*) FROM flights WHERE delay IN (SELECT delay FROM flights) WITH EPSILON 1": "on both sides of IN",
    "SELECT COUNT(*) FILTER (WHERE delay IN (SELECT delay FROM flights)) FROM flights WITH EPSILON 1": "list of constants",
    'SELECT AVG("when") FROM flights WITH EPSILON 1': "column of numbers",
    "SELECT COUNT(DISTINCT note) FROM flights WITH EPSILON 1": "id of the unit",
    "SELECT MAX(delay) FROM flights ERROR WITHIN 5%": "WITH EPSILON for MIN and MAX",
    "SELECT MODE(carrier) FROM flights ERROR WITHIN 5%": "error in rows",
    "SELECT MODE(month) FROM flights WITH EPSILON 1": "[categories] month = [1, 2, 3]",
    "SELECT MODE(UPPER(carrier)) FROM flights WITH EPSILON 1": "a column with public values in MODE",
    "SELECT COUNT(*) / AVG(delay) FROM flights ERROR WITHIN 5": "a share such as 5%",
    "SELECT COUNT(*) FROM flights ERROR WITHIN 5%, 3": "one error for all columns, or 1",
    "SELECT COUNT(*) FROM flights TABLESAMPLE 10% WITH EPSILON 1": "",
    "SELECT COUNT(*) FROM flights WHERE note + 1 > 2 WITH EPSILON 1": "numbers",
    "SELECT delay, COUNT(*) FROM flights GROUP BY delay WITH EPSILON 1": "public values to group by",
    "SELECT COUNT(*) AS a, AVG(delay) AS a FROM flights WITH EPSILON 1": "name of its own",
    "SELECT COUNT(*) FROM flights WITH EPSILON 1 WITH EPSILON 2": "each clause once",
    "SELECT COUNT(*) FROM flights ERROR WITHIN 5% WITH EPSILON 2": "either ERROR WITHIN or WITH EPSILON",
    "SELECT COUNT(*) FROM flights WITH DELTA 1e-6 WITH EPSILON 2": "no delta",
    "SELECT 7 // 2 * COUNT(*) FROM flights WITH EPSILON 1": "arithmetic",
    "SELECT carrier, carrier + COUNT(*) FROM flights GROUP BY 1 WITH EPSILON 1": "numbers to compute with, got 'texts'",
    "SELECT carrier, COUNT(*) FROM flights GROUP BY 1 HAVING COUNT(*) > '3' WITH EPSILON 1": "'numbers and texts'",
    "SELECT carrier, COUNT(*) FROM flights GROUP BY 1 HAVING COUNT(*) WITH EPSILON 1": "a condition",
    "SELECT ROUND(AVG(delay), COUNT(*)) FROM flights WITH EPSILON 1": "a number of digits from -9 to 9",
    'SELECT COUNT(*) FROM flights WHERE "when" > now() WITH EPSILON 1': "Write the time itself",
    "SELECT COUNT(*) FROM information_schema.tables WITH EPSILON 1": "without a schema",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_outside_the_subset_is_refused_with_its_place_for_free(text: str) -> None:
    asked = session()
    with pytest.raises(InvalidRequest) as refusal:
        asked.sql(text)
    assert REFUSED[text] in str(refusal.value)
    assert "Look at the mark:" in str(refusal.value)
    assert asked.spent().epsilon == 0


def test_the_mark_is_under_the_place() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        session().sql("SELECT COUNT(*),\n  AVG(delayy)\nFROM flights WITH EPSILON 1")
    *_, line, mark = str(refusal.value).split("\n")
    assert line[mark.index("^") :].startswith("delayy")


@pytest.mark.parametrize("call", ["string_agg(carrier, ',')", "arg_max(delay, month)", "list(delay)", "ln(COUNT(*))"])
def test_the_mark_is_under_the_name_of_an_unknown_function(call: str) -> None:
    with pytest.raises(InvalidRequest, match=f"got '{call.split('(')[0]}'") as refusal:
        session().sql(f"SELECT COUNT(*), {call} AS c FROM flights WITH EPSILON 1")
    *_, line, mark = str(refusal.value).split("\n")
    assert line[mark.index("^") :].startswith(call)


@pytest.mark.parametrize("column", ["AVG(delay)", "COUNT(*)"])
def test_a_refusal_by_the_plan_has_a_mark_too(column: str) -> None:
    asked = session() if column != "COUNT(*)" else session(adjacency="replace-one", rows=ROWS)
    text = f"SELECT {column} FROM flights WITH EPSILON {'1e-18' if column != 'COUNT(*)' else '1'}"
    for ask in (asked.sql, asked.sql_price):
        with pytest.raises(InvalidRequest) as refusal:
            ask(text)
        *_, line, mark = str(refusal.value).split("\n")
        assert line[mark.index("^") :].startswith(column)


def test_a_missing_bound_is_shown_as_a_line_of_the_description() -> None:
    asked = Session(Dataset(TABLE, name="flights"), 10)
    with pytest.raises(InvalidRequest, match=r"\[bounds\] delay = \[LOW, HIGH\]"):
        asked.sql("SELECT AVG(delay) FROM flights WITH EPSILON 1")
    with pytest.raises(InvalidRequest, match=r'\[categories\] carrier = \["A", "B"\]'):
        asked.sql("SELECT carrier, COUNT(*) FROM flights GROUP BY carrier WITH EPSILON 1")


def test_a_missing_limit_of_contributions_is_shown_as_a_line_of_the_description() -> None:
    asked = Session(Dataset(TABLE, name="flights", unit="note"), 10)
    with pytest.raises(InvalidRequest, match=r"\[unit\] max_rows_per_unit = 10"):
        asked.sql("SELECT COUNT(*) FROM flights WITH EPSILON 1")
    assert asked.sql("SELECT COUNT(DISTINCT note) AS n FROM flights WITH EPSILON 9").column("n") == [3]


def test_a_filter_leaves_out_groups_that_it_excludes_by_itself() -> None:
    release = session().sql(
        "SELECT carrier, month, COUNT(*) AS n FROM flights WHERE carrier IN ('AA', 'UA') AND month BETWEEN 6 AND 7 AND delay > 0 "
        "GROUP BY carrier, month WITH EPSILON 1"
    )
    assert [row[:2] for row in release.value] == [("AA", 6), ("AA", 7), ("UA", 6), ("UA", 7)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT carrier, COUNT(*), AVG(delay) FROM flights WHERE carrier = 'ZZ' GROUP BY 1 ERROR WITHIN 5%",
        "SELECT carrier, COUNT(*) AS n FROM flights WHERE carrier IS NULL GROUP BY 1 HAVING n > 3 ORDER BY n WITH EPSILON 1",
        "SELECT carrier, note, COUNT(*) FROM flights WHERE carrier = 'ZZ' GROUP BY 1, 2 WITH EPSILON 1 WITH DELTA 1e-6",
        "SELECT DISTINCT carrier FROM flights WHERE carrier = 'ZZ'",
    ],
)
def test_a_filter_that_excludes_every_public_group_shows_no_row_and_costs_nothing(text: str) -> None:
    asked = session()

    price, release = asked.sql_price(text), asked.sql(text)

    assert (price.groups, len(release), asked.spent().epsilon) == (0, 0, 0)
    assert release.columns[0] == "carrier"
    assert len(decode_release(encode_release(release))) == 0


def test_a_price_says_how_many_public_groups_there_are() -> None:
    groups = {
        "SELECT COUNT(*) FROM flights WITH EPSILON 1": 1,
        "SELECT carrier, month, COUNT(*) FROM flights WHERE carrier <> 'AA' GROUP BY 1, 2 WITH EPSILON 1": 36,
        "SELECT month, note, COUNT(*) FROM flights GROUP BY 1, 2 WITH EPSILON 1 WITH DELTA 1e-6": 12,
    }
    asked = session()
    assert {text: asked.sql_price(text).groups for text in groups} == groups


def test_a_price_above_the_question_cap_says_which_clause_allows_it() -> None:
    asked = session(1)
    with pytest.raises(BudgetExceeded, match="Allow it with AT MOST EPSILON"):
        asked.sql("SELECT COUNT(*) FROM flights ERROR WITHIN 1")


def test_a_target_that_is_missed_is_told_in_clauses() -> None:
    with pytest.raises(TargetNotMet, match="Raise AT MOST EPSILON") as missed:
        session().sql("SELECT COUNT(*) FROM flights ERROR WITHIN 0.01% AT MOST EPSILON 0.01")
    assert len(missed.value.release) == 1


def test_bounds_of_the_rows_stay_inside_public_ones() -> None:
    release = session().sql("SELECT MIN(month), MAX(month), MAX(month) - MIN(month) FROM flights WITH EPSILON 50")
    assert release.value == ((1, 12, 11),)


def test_times_of_groups_are_compared_with_constants() -> None:
    with without_noise():
        release = session().sql(
            """SELECT DATE_TRUNC('month', "when") AS m, COUNT(*) AS n, CAST(AVG(delay) AS INTEGER) AS d FROM flights GROUP BY m
            HAVING m > '2024-02-01' AND m < DATE '2024-06-01' - INTERVAL 1 MONTH ORDER BY m DESC WITH EPSILON 50"""
        )
    assert release.column("m") == [datetime.datetime(2024, 4, 1), datetime.datetime(2024, 3, 1)]
    assert all(float(each).is_integer() for each in release.column("d"))


NULLED = Call("nullif", (AggregateOf(0), Constant(0)))


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (Call("coalesce", (NULLED, Constant(7))), Shown(7)),
        (Call("coalesce", (AggregateOf(1), Constant(7))), Shown(3, 1.0, 5.0)),
        (Call("greatest", (NULLED, AggregateOf(1))), Shown(3)),
        (Call("greatest", (AggregateOf(1), AggregateOf(0))), Shown(3, 1.0, 5.0)),
        (Call("least", (NULLED, NULLED)), Shown(None)),
    ],
)
def test_what_is_missing_in_released_numbers_has_no_interval(formula: Call, shown: Shown) -> None:
    """The exact count may be above 0, so that an interval of what replaces it would promise too much."""
    assert evaluate_formula(formula, (), {0: Shown(0, -2.0, 2.0), 1: Shown(3, 1.0, 5.0)}) == shown
