"""Law: two cells are equal in every part of the pipeline or in none, and no cell touches another one's form."""

import datetime
import itertools
import math
import struct
from decimal import Decimal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expost
from expost.core import Unit, unseal
from expost.data import Dataset, col
from expost.data.axis import Categories
from expost.data.canonical_cell import (
    canonical_batch,
    canonical_column,
    canonical_schema,
    canonical_type,
    decode_column,
)
from expost.data.engines.engine import CanonicalEngine
from expost.data.exact_total import find_keys
from expost.data.row_source import read_rows
from expost.data.unit_identity import unit_words
from expost.stats.hypothesis.private_sample import encode_categories

QUICK = settings(max_examples=60, deadline=None, derandomize=True)

ODD_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_DEAD_BEEF))[0]
FLOATS = [0.0, -0.0, math.nan, ODD_NAN, math.inf, -math.inf, 5e-324, -5e-324, 1.0, 0.1, 2.0**53, 2.0**63, 1e308, None]
WHOLE = [0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None]
DECIMALS = [Decimal(n) for n in ("0.00", "-0.00", "0.10", "1.00", "9007199254740992.00", "9007199254740993.00")] + [
    None
]
TEXTS = ["", "a", "A", "a ", "1", "1.0", "é", "e\u0301", "x" * 3000, "\0", None]
MOMENTS = [0, 1, -1, 1_600_000_000, 253_402_300_799, 253_402_300_800, -62_135_596_800, -62_135_596_801, 2**60, None]

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "float64": (pa.float64(), FLOATS),
    "float32": (pa.float32(), [None if v is None else float(np.float32(v)) for v in FLOATS if v != 1e308]),
    "float16": (pa.float16(), [np.float16(v) for v in (0.0, -0.0, math.nan, math.inf, 6e-8, 1.0, 0.1)]),
    "int64": (pa.int64(), WHOLE),
    "uint64": (pa.uint64(), [0, 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1, None]),
    "int8": (pa.int8(), [0, 1, -128, 127, None]),
    "decimal": (pa.decimal128(20, 2), DECIMALS),
    "wide decimal": (pa.decimal256(60, 2), DECIMALS),
    "text": (pa.string(), TEXTS),
    "text view": (pa.string_view(), TEXTS),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "dictionary of floats": (pa.dictionary(pa.int8(), pa.float64()), FLOATS),
    "run-end": (pa.run_end_encoded(pa.int32(), pa.float64()), FLOATS),
    "truth": (pa.bool_(), [True, False, None]),
    "seconds": (pa.timestamp("s"), MOMENTS),
    "seconds of Rome": (pa.timestamp("s", "Europe/Rome"), MOMENTS),
    "nanoseconds": (pa.timestamp("ns"), [0, 1, 999, 1000, 1001, -1, None]),
    "days": (pa.date32(), [0, 1, -1, 2_932_896, 2_932_897, -719_162, -719_163, 2**31 - 1, None]),
    "milliseconds of days": (pa.date64(), [0, 86_400_000, -86_400_000, 86_400_000 * 2_932_897, None]),
}


def column_of(kind: pa.DataType, values: list[object]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        plain = pa.array(values, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(plain.indices.cast(kind.index_type), plain.dictionary)
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(pa.array(values, kind.value_type))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array(values, width).cast(kind)
    return pa.array(values, kind)


def public(cell: pa.Scalar) -> object:
    """Return a canonical cell as a caller would type it, or None if Python has no such value."""
    if pa.types.is_timestamp(cell.type):
        ticks = cell.value
        if ticks is None or (cell.type.unit == "ns" and ticks % 1000):
            return None
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(
            microseconds=ticks // (1000 if cell.type.unit == "ns" else 1)
        )
    value = cell.as_py()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def equal_in_units(dataset: Dataset) -> bool | None:
    (batch,) = dataset.batches(["x"])
    words, known = unit_words(Unit.of("x"), batch, {}, b"k" * 32)
    return bool(all(word[0] == word[1] for word in words)) if known.all() else None


def equal_in_keys(dataset: Dataset) -> bool | None:
    (batch,) = dataset.batches(["x"])
    present = unit_words(Unit.of("x"), batch, {}, b"k" * 32)[1]
    if not present.all() or pa.types.is_timestamp(batch.column(0).type):  # times are not keys
        return None
    return len(keys_of(dataset, "x")) == 1


def keys_of(dataset: Dataset, column: str) -> list[object]:
    tally = dataset.tally(axes=(Categories.of(col(column), ("",)),))
    return list(find_keys(dataset._engine, tally, col(column)).labels)


def equal_to_public(dataset: Dataset) -> dict[str, bool]:
    """Ask every part of the pipeline whether the second cell equals the first one, typed as a public value."""
    (batch,) = dataset.batches(["x"])
    value = public(batch.column(0)[0])
    if value is None:
        return {}
    found: dict[str, bool] = {}
    found["categories"] = dataset.axis("x", [value]).codes(batch, {}).tolist()[1] == 0
    if not isinstance(value, datetime.date):
        found["labels"] = next(_labels(dataset, value).read())[1].tolist()[1] == 0
        found["tests"] = encode_categories(batch, "x", (value,)).tolist()[1] == 0
    if isinstance(value, Decimal):
        key = pa.array([value], batch.column(0).type)
    else:
        key = pa.array([value], batch.column(0).type if isinstance(value, int) else None)
    if not isinstance(value, int) or abs(value) <= 2**53:  # constants are exact in floats
        joined = dataset.join(pa.table({"x": key, "hit": [1]}), on="x")
        found["joins"] = unseal(joined.where("hit = 1").measure_rows())[0] == 2
    if not isinstance(value, Decimal) and (not isinstance(value, int) or abs(value) <= 2**53) and value != "\0":
        both = [(col("x") == value), col("x").isin([value]), ~(col("x") != value)]
        for name, condition in zip(("=", "IN", "<>"), both, strict=True):
            found[name] = unseal(dataset.where(condition).measure_rows())[0] == 2
    return found


def _labels(dataset: Dataset, value: object):
    other = {bool: lambda: not value, str: lambda: value + "?"}.get(type(value), lambda: 12345)()
    described = Dataset(dataset._engine, adjacency="replace-one", rows=2)
    return read_rows(described.derive(one="1"), "x", names=("one",), classes=[value, other])


@pytest.mark.parametrize("name", COLUMNS)
def test_two_cells_are_equal_in_keys_units_categories_joins_filters_tests_and_labels_alike(name) -> None:
    kind, cells = COLUMNS[name]
    for pair in itertools.product(cells, repeat=2):
        dataset = Dataset(pa.table({"x": column_of(kind, list(pair))}))
        same = equal_in_units(dataset)
        if same is None:  # a missing cell equals nothing
            (batch,) = dataset.batches(["x"])
            missing = canonical_column(batch.column(0)).is_null(nan_is_null=True).to_pylist()
            assert any(missing), pair
            if missing == [False, True]:
                assert not any(equal_to_public(dataset).values()), pair
            continue
        assert equal_in_keys(dataset) in (None, same), pair
        for part, found in equal_to_public(dataset).items():
            assert found == same, (pair, part)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_canonical_column_is_a_fixed_point_and_each_cell_is_made_by_itself(name) -> None:
    kind, cells = COLUMNS[name]
    whole = canonical_column(column_of(kind, cells))

    assert whole.type == canonical_type(kind)
    again = canonical_column(whole)
    assert again.type == whole.type and str(again.to_numpy(False).tolist()) == str(whole.to_numpy(False).tolist())
    for place, cell in enumerate(cells):
        alone = canonical_column(column_of(kind, [cell]))
        assert alone.type == whole.type and _bits(alone) == _bits(whole.slice(place, 1)), cell
        sliced = canonical_column(column_of(kind, cells).slice(place, 1))
        assert _bits(sliced) == _bits(alone), cell


def _bits(column: pa.Array) -> object:
    values = column.to_numpy(zero_copy_only=False)
    return values.tobytes() if values.dtype.kind == "f" else values.tolist()


@QUICK
@given(st.lists(st.floats() | st.none(), max_size=20))
def test_canonical_floats_have_no_null_no_signed_zero_and_one_nan(values) -> None:
    found = canonical_column(pa.array(values, pa.float64())).to_numpy()

    assert not np.signbit(found[found == 0]).any()
    assert {bits for bits in found[np.isnan(found)].view(np.uint64).tolist()} <= {np.float64(np.nan).view(np.uint64)}
    assert [None if v is None or v != v else v + 0.0 for v in values] == [None if v != v else v for v in found.tolist()]


EXPRESSIONS = [
    "0 * x",
    "round(x)",
    "-x",
    "x % 5",
    "ceil(x)",
    "floor(x)",
    "x / 3",
    "abs(x) * -1",
    "coalesce(x, 0)",
    "x - x",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@QUICK
@given(st.lists(st.sampled_from(FLOATS) | st.floats(), min_size=1, max_size=8))
def test_derived_columns_are_canonical_too(expression, values) -> None:
    dataset = Dataset(pa.table({"x": pa.array(values, pa.float64())})).derive(k=expression)

    (batch,) = dataset.batches(["k"])
    assert _bits(batch.column(0)) == _bits(canonical_column(batch.column(0)))
    keys = keys_of(dataset, "k")
    assert len(set(map(repr, keys))) == len(set(keys)) and "-0.0" not in map(repr, keys)


def in_arrow(table, folder):
    return table


def in_polars(table, folder):
    return pl.from_arrow(table)


def in_pandas(table, folder):
    return table.to_pandas(types_mapper=__import__("pandas").ArrowDtype)


def in_parquet(table, folder):
    pq.write_table(table, folder / "cells.parquet")
    return folder / "cells.parquet"


def in_arrow_file(table, folder):
    with pa.ipc.new_file(str(folder / "cells.arrow"), table.schema) as writer:
        writer.write_table(table)
    return folder / "cells.arrow"


def in_duckdb(table, folder):
    in_parquet(table, folder)
    return f"select * from '{folder / 'cells.parquet'}'"


def in_a_relation(table, folder):
    connection = duckdb.connect()
    connection.register("cells", table)
    return connection.sql("select * from cells")


def in_python(table, folder):
    return {name: table.column(name).combine_chunks() for name in table.column_names}


SOURCES = [in_arrow, in_polars, in_pandas, in_parquet, in_arrow_file, in_duckdb, in_a_relation, in_python]


@pytest.mark.parametrize("build", SOURCES, ids=lambda build: build.__name__)
def test_every_source_hands_out_canonical_cells_only(build, tmp_path) -> None:
    table = pa.table(
        {
            "f": pa.array([0.0, -0.0, math.nan, None, 1.5], pa.float64()),
            "g": pa.array([0.0, -0.0, math.nan, None, 1.5], pa.float32()),
            "w": pa.array([2**53, 2**53 + 1, None, 0, 1], pa.int64()),
            "t": pa.array(["a", "", None, "é", "a"]),
            "c": pa.array(["a", "", None, "é", "a"]).dictionary_encode(),
            "z": pa.array([0, 3_600_000_000, None, 5, 6], pa.timestamp("us", "Europe/Rome")),
        }
    )
    dataset = Dataset(build(table, tmp_path))

    assert isinstance(dataset._engine, CanonicalEngine)
    assert dataset._engine.schema == canonical_schema(dataset._engine.schema)
    (batch,) = dataset._engine.batches(table.column_names)
    (mapped,) = dataset._engine.scan(lambda each: each, table.column_names)
    expected = canonical_batch(table.combine_chunks().to_batches()[0])
    for name in table.column_names:
        read = decode_column(mapped.column(name))  # dictionaries stay encoded until a function reads them
        assert batch.column(name).type == read.type == expected.column(name).type, name
        assert _bits(batch.column(name)) == _bits(read) == _bits(expected.column(name)), name


def test_parts_hold_the_rows_that_their_category_counts() -> None:
    table = pa.table({"x": pa.array([-0.0] * 7 + [0.0] * 5 + [1.0, math.nan])})
    session = expost.Session(Dataset(table, name="t", categories={"x": [-0.0, 1]}), expost.epsilon(1000))

    assert session.part("x", 0).count(epsilon=90).value == 12
    assert session.part("x", -0.0).count(epsilon=90).value == 12
    assert session.count(by="x", epsilon=90).value[0.0] == 12


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(20, 0)], ids=str)
def test_filters_tell_large_whole_numbers_apart(kind) -> None:
    cells = [2**53, 2**53 + 1, 2**53 + 2, None]
    dataset = Dataset(pa.table({"x": pa.array([None if v is None else Decimal(v) for v in cells]).cast(kind)}))

    for value, text in itertools.product((2**53, 2**53 + 2), ("=", "<>", "in")):
        condition = f"x in ({value})" if text == "in" else f"x {text} {value}"
        assert unseal(dataset.where(condition).measure_rows())[0] == (2 if text == "<>" else 1)
    if pa.types.is_integer(kind):
        assert unseal(dataset.where(f"x > {2**53} and x < {2**53 + 2}").measure_rows())[0] == 1
