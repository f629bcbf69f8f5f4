"""Expressions give the answers that DuckDB gives, where NaN and infinite results count as missing."""

import datetime
import warnings
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.random_expressions import MACROS, draw_expression, draw_table, to_duckdb

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
