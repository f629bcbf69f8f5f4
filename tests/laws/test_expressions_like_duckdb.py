"""Expressions give the answers that DuckDB gives, where NaN and infinite results count as missing."""

import datetime
import warnings
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.random_expressions import MACROS, draw_expression, draw_table, to_duckdb

from expost import Dataset, InvalidRequest
from expost.data import Schema
from expost.data.canonical_cell import canonical_batch
from expost.data.evaluation import evaluate
from expost.data.sql_expression import parse_sql
from expost.data.table_schema import kind_of


def to_list(column: pa.Array) -> list[Any]:
    """Cells as Python values, NaN as None and numbers as floats."""
    cells = column.to_pylist()
    numbers = [float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else cell for cell in cells]
    return [None if cell != cell else cell for cell in numbers]


@pytest.mark.parametrize("kind", ["number", "text", "time", "condition"])
def test_random_expressions_agree_with_duckdb(kind: str) -> None:
    random = np.random.default_rng(list(map(ord, kind)))
    connection = duckdb.connect()
    connection.sql(MACROS)
    for _ in range(4):
        batch = canonical_batch(draw_table(random, 40))
        schema, rows = Schema.of(batch.schema), pa.table(batch)
        place = rows.column_names.index("r")
        rows = rows.set_column(place, "r", pa.array(batch.column("r").to_numpy(), from_pandas=True))
        connection.register("rows", rows)
        for _ in range(60):
            expression = draw_expression(random, kind)
            kind_of(expression, schema)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                ours = to_list(evaluate(expression, batch).to_column())
            query = to_duckdb(expression)
            theirs = to_list(connection.sql(f"SELECT {query} AS x FROM rows").to_arrow_table().column(0))
            assert ours == theirs, repr(expression)
            assert repr(parse_sql(repr(expression))) == repr(expression)


def test_times_in_many_formats_are_read_as_duckdb_reads_them() -> None:
    texts = ["3 Feb 2013", "29 FEB 2012", "29 Feb 2013", "1 Foo 2013", "", None, "3-Feb-2013"]
    moments = ["12/31/1999 11:05 PM", "1/2/2000 12:00 am", "13/1/2000 1:00 am", "1/2/2000 0:30 am"]
    cases = {
        "%d %b %Y": texts,
        "%d %b %y": ["3 feb 99", "3 feb 08", "3 feb 1999"],
        "%m/%d/%Y %I:%M %p": moments,
        "%Y%%%m": ["2013%02", "2013-02"],
    }
    for layout, cells in cases.items():
        column = pa.array(cells, pa.large_string())
        ours = evaluate(parse_sql(f"strptime(s, '{layout}')"), pa.record_batch({"s": column})).to_column().to_pylist()
        query = "SELECT CAST(try_strptime(s, $1) AS TIMESTAMP) FROM (SELECT unnest($2) AS s)"
        assert ours == [row[0] for row in duckdb.execute(query, [layout, cells]).fetchall()], layout
    assert ours == [datetime.datetime(2013, 2, 1), None]


# Written as an asker writes them, with results as texts. NULL and unknown are None in both.
WRITTEN = [
    "t >= '2013-02-28'",
    "'2013-02-28' > t",
    "t = '2000-02-29 00:00:00'",
    "t <> '2000-02-29'",
    "t BETWEEN '1970-01-01' AND '2013-12-31'",
    "t NOT BETWEEN '1970-01-01' AND '2013-12-31'",
    "t IN ('2000-02-29', '1970-01-04 00:00:00')",
    "t NOT IN ('2000-02-29', NULL)",
    "CAST(w AS TIMESTAMP) < '2013-03-01'",
    "CAST(w AS DATE) = '2013-02-28'",
    "coalesce(t, '2000-01-01') = '2000-01-01'",
    "greatest(t, '2000-01-01') = '2000-01-01'",
    "CASE WHEN b THEN t ELSE '2000-01-01' END > '2000-02-01'",
    "CASE i WHEN 1 THEN 'one' WHEN 7 THEN 'seven' END",
    "nullif(s, 'a')",
    "nullif(i, 7) IS NULL",
    "left(s, 2)",
    "left(s, 0)",
    "date_part('isodow', t) = 4",
    "date_part('week', t) > 9",
    "EXTRACT(doy FROM t) > 60",
    "EXTRACT(week FROM d) = 52",
    "weekofyear(t) = 1",
    "NOT b OR i > 0 AND j <> 2",
    "s NOT LIKE 'a%' AND s IS NOT NULL",
    "s LIKE '_' OR s ILIKE 'A%'",
    "i NOT IN (1, 7, NULL)",
    "i IN (1, 7, NULL)",
    "b = (i > 0)",
    "- i + 3 * 5 % 4 = -4",
    "(i > 0) IS NULL",
    "s || 'x' || w",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_texts_that_askers_write_mean_what_they_mean_in_duckdb(text: str) -> None:
    batch = canonical_batch(draw_table(np.random.default_rng(len(text)), 200))
    data = Dataset(pa.table(batch))
    ours = to_list(evaluate(data.expression(parse_sql(text)), batch).to_column())

    connection = duckdb.connect()
    connection.register("rows", pa.table(batch))
    query = text.replace("CAST(w AS", "TRY_CAST(w AS")
    assert ours == to_list(connection.sql(f"SELECT {query} AS x FROM rows").to_arrow_table().column(0))


def test_a_text_that_is_no_time_is_refused_beside_a_time_and_kept_beside_a_text() -> None:
    data = Dataset(pa.table({"t": pa.array([0], pa.timestamp("us")), "s": ["x"]}))
    for text in ("t > 'soon'", "t IN ('2013-02-30')", "t BETWEEN '2013-01-01' AND 'x'", "coalesce(t, '') = t"):
        with pytest.raises(InvalidRequest, match="Expected a date or time to compare a time with"):
            data.expression(parse_sql(text))
    for text in ("t > s", "s = t", "t IN (1)", "least(t, s) = t"):
        with pytest.raises(InvalidRequest, match=r"t is a time.*Pass Dataset\(types|Compare like with like"):
            data.expression(parse_sql(text))
    assert repr(data.expression(parse_sql("s > '2013-01-01'"))) == "(s > '2013-01-01')"
