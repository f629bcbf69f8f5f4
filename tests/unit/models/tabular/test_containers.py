"""The container of a table does not change the features of a row: equal cells are equal features, bit for bit."""

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expost.data import Dataset
from expost.models.tabular import CategoryColumn, DateColumn, FlagColumn, NumberColumn, TableEncoder, encode_frame
from expost.models.tabular.tabular_rows import TabularRows
from expost.models.tabular.tabular_source import table_dataset

ENCODER = TableEncoder(
    (
        NumberColumn("size", -8, 64),
        NumberColumn("count", -8, 64),
        CategoryColumn("city", ["Rome", "Bogotá", ""]),
        CategoryColumn("code", [1, 2, 3]),
        FlagColumn("member"),
        DateColumn("day", "2020-01-01", "2024-12-31"),
        DateColumn("seen", "2020-01-01", "2024-12-31", hours=True),
    )
)
SCHEMA = pa.schema(
    {
        "size": pa.float64(),
        "count": pa.int64(),
        "city": pa.string(),
        "code": pa.int64(),
        "member": pa.bool_(),
        "day": pa.date32(),
        "seen": pa.timestamp("us"),
        "row": pa.float64(),
    }
)
DAYS = [datetime.date(2022, 2, 28), datetime.date(1999, 12, 31), datetime.date(2024, 2, 29), None]
MOMENTS = [
    datetime.datetime(2022, 2, 28, 23, 59, 59),
    datetime.datetime(2020, 1, 1),
    datetime.datetime(1960, 7, 9, 1),
    None,
]
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -7.25, 63.0, 1e30]),
        st.sampled_from([None, 0, 1, -3, 41, 2**40]),
        st.sampled_from([None, "Rome", "Bogotá", "rome", "Bogot", "", 'a,b\n"c"']),
        st.sampled_from([None, 1, 2, 5]),
        st.sampled_from([None, True, False]),
        st.sampled_from(DAYS),
        st.sampled_from(MOMENTS),
    ),
    min_size=1,
    max_size=12,
)
Make = Callable[[pa.Table, Path], Any]


def cells_of(table: pa.Table) -> dict[str, list[Any]]:
    return {name: table.column(name).to_pylist() for name in table.column_names}


def cast(**types: pa.DataType) -> Make:
    """Return how the same cells are stored with other Arrow types."""

    def make(table: pa.Table, folder: Path) -> pa.Table:
        for name, wanted in types.items():
            column = table.column(name).combine_chunks()
            if pa.types.is_dictionary(wanted):
                column = column.dictionary_encode()
            elif pa.types.is_run_end_encoded(wanted):
                column = pa.compute.run_end_encode(column)
            elif pa.types.is_timestamp(wanted) and wanted.tz is not None:
                column = column.cast(pa.timestamp(wanted.unit, "UTC")).cast(wanted)
            else:
                column = column.cast(wanted, safe=False)
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    return make


def make_parquet(table: pa.Table, folder: Path) -> str:
    pyarrow.parquet.write_table(table.slice(0, 3), folder / "part-1.parquet", row_group_size=2)
    pyarrow.parquet.write_table(table.slice(3), folder / "part-2.parquet")
    return str(folder / "part-*.parquet")


def make_csv(table: pa.Table, folder: Path) -> Path:
    pyarrow.csv.write_csv(table, folder / "rows.csv")
    return folder / "rows.csv"


def make_feather(table: pa.Table, folder: Path) -> Path:
    pyarrow.feather.write_feather(table, folder / "rows.feather")
    return folder / "rows.feather"


def make_duckdb(table: pa.Table, folder: Path) -> Any:
    connection = duckdb.connect()
    connection.register("rows", table)
    connection.execute("create type place as enum ('Rome', 'Bogotá', 'rome', 'Bogot', '', 'a,b\n\"c\"')")
    return connection.sql('select * replace (city::place as city, "count"::hugeint as "count") from rows')


def make_sql(table: pa.Table, folder: Path) -> str:
    pyarrow.parquet.write_table(table, folder / "all.parquet")
    return f"select * from '{folder / 'all.parquet'}'"


def make_arrays(table: pa.Table, folder: Path) -> dict[str, Any]:
    """Return NumPy columns; those of objects where NumPy has no missing value."""
    cells = cells_of(table)
    arrays: dict[str, Any] = {name: np.array(values, object) for name, values in cells.items()}
    arrays["size"] = np.array([math.nan if value is None else value for value in cells["size"]])
    arrays["seen"] = np.array(cells["seen"], "datetime64[us]")
    arrays["day"] = np.array(cells["day"], "datetime64[D]")
    arrays["row"] = np.array(cells["row"])
    return arrays


def make_pandas(table: pa.Table, folder: Path) -> pd.DataFrame:
    frame = pd.DataFrame(cells_of(table))
    frame["day"] = pd.to_datetime(frame["day"])
    frame["seen"] = pd.to_datetime(frame["seen"])
    return frame


def make_categories(table: pa.Table, folder: Path) -> pd.DataFrame:
    frame = make_pandas(table, folder)
    for name in ("city", "code", "member", "count"):
        frame[name] = pd.Series(cells_of(table)[name], dtype=object).astype("category")
    frame["seen"] = frame["seen"].dt.tz_localize("UTC").dt.tz_convert("Asia/Kolkata")
    return frame


def make_enums(table: pa.Table, folder: Path) -> pl.DataFrame:
    words = ["Rome", "Bogotá", "rome", "Bogot", "", 'a,b\n"c"']
    frame = pl.DataFrame(table)
    return frame.with_columns(
        frame["city"].cast(pl.Enum(words)), frame["count"].cast(pl.Float64), frame["code"].cast(pl.Int8)
    )


CONTAINERS: dict[str, Make] = {
    "chunks": lambda table, _: pa.concat_tables([table.slice(0, 1), table.slice(1)]),
    "reader": lambda table, _: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2)),
    "views": cast(city=pa.string_view(), seen=pa.timestamp("ns")),
    "dictionaries": cast(city=pa.dictionary(pa.int32(), pa.string()), code=pa.dictionary(pa.int32(), pa.int64())),
    "runs": cast(city=pa.run_end_encoded(pa.int32(), pa.string()), code=pa.run_end_encoded(pa.int32(), pa.int64())),
    "large": cast(city=pa.large_string(), seen=pa.timestamp("ms"), day=pa.date64(), size=pa.float32()),
    "zones": cast(seen=pa.timestamp("s", "Europe/Rome"), day=pa.timestamp("us"), code=pa.int8()),
    "wider": cast(code=pa.float64(), count=pa.float64(), member=pa.int8(), day=pa.timestamp("s")),
    "dataset": lambda table, _: Dataset(table),
    "lists": lambda table, _: cells_of(table),
    "arrays": make_arrays,
    "rows": lambda table, _: table.to_pylist(),
    "objects": lambda table, _: pd.DataFrame({n: pd.Series(c, dtype=object) for n, c in cells_of(table).items()}),
    "pandas": make_pandas,
    "nullable": lambda table, folder: make_pandas(table, folder).convert_dtypes(),
    "arrow frame": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "categories": make_categories,
    "polars": lambda table, _: pl.DataFrame(table),
    "lazy": lambda table, _: pl.DataFrame(table).lazy(),
    "enums": make_enums,
    "parquet": make_parquet,
    "csv": make_csv,
    "feather": make_feather,
    "duckdb": make_duckdb,
    "sql": make_sql,
}


def features_of(source: Any) -> np.ndarray:
    """Return the features that a fit reads, in the order of the rows."""
    dataset, target = table_dataset(source, "row", columns=ENCODER)
    chunks = list(TabularRows.read(dataset, ENCODER, target))
    order = np.argsort(np.concatenate([chunk.targets for chunk in chunks]))
    found: np.ndarray = np.concatenate([chunk.features for chunk in chunks])[order]
    return found


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_a_container_does_not_change_the_features_of_a_row(container: str, rows: list, tmp_path: Path) -> None:
    columns = [*map(list, zip(*rows, strict=True)), list(map(float, range(len(rows))))]
    table = pa.table([pa.array(cells, field.type) for cells, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    expected = ENCODER.encode(table)

    found = features_of(CONTAINERS[container](table, tmp_path))
    assert found.tobytes() == expected.tobytes()
    if container != "dataset":
        predicted = encode_frame(CONTAINERS[container](table, tmp_path), ENCODER)
        if container in ("lazy", "duckdb", "sql"):  # no order is promised
            assert sorted(predicted.tolist()) == sorted(expected.tolist())
        else:
            assert predicted.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "stored",
    [pa.decimal32(9, 2), pa.decimal128(12, 2), pa.decimal128(30, 2), pa.decimal256(40, 2), pa.decimal64(15, 2)],
)
def test_decimals_have_the_features_of_the_floats_that_they_spell(stored: pa.DataType) -> None:
    cents = np.random.default_rng(0).integers(-800, 6400, 500)
    decimals = [None, *(Decimal(int(each)).scaleb(-2) for each in cents)]
    floats = [None, *(float(each) for each in decimals[1:])]
    column = NumberColumn("size", -8, 64)
    encoder = TableEncoder((column,))
    expected = column.encode(pa.array(floats, pa.float64()))

    assert column.encode(pa.array(decimals, pa.decimal128(12, 2)).cast(stored)).tobytes() == expected.tobytes()
    for source in ({"size": decimals}, pd.DataFrame({"size": decimals}), {"size": pa.array(decimals, stored)}):
        assert encode_frame(source, encoder).tobytes() == expected.tobytes()
