"""Tables in every form become the same rows, and predictions read them as the fit does."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from expost.core import Adjacency, InvalidRequest
from expost.data import Dataset
from expost.models.tabular import CategoryColumn, FlagColumn, NumberColumn, TableEncoder, read_columns
from expost.models.tabular.tabular_rows import TabularRows
from expost.models.tabular.tabular_source import encode_frame, table_dataset

WINDOW = (datetime.date(2020, 1, 1), datetime.date(2024, 12, 31))
COLUMNS = {"age": (0, 100), "city": ["Rome", "Oslo"], "member": "boolean", "seen": WINDOW}
CELLS = {
    "id": ["a", "b", "a"],
    "age": [25.0, None, 500.0],
    "city": ["Rome", "Bonn", None],
    "member": [True, None, False],
    "seen": [datetime.datetime(2022, 5, 1, 12), None, datetime.datetime(2030, 1, 1)],
    "spare": ["x", "y", "z"],
    "sick": ["no", "yes", "no"],
}
TABLE = pa.table(CELLS)


def rows_of(source: object, y: object = "sick", **terms: object) -> list:
    """Return features, class indices and weights of all rows."""
    dataset, target = table_dataset(source, y, columns=COLUMNS, classes=["no", "yes"], **terms)
    encoder = read_columns(COLUMNS, dataset, target=target)
    chunks = list(TabularRows.read(dataset, encoder, target, classes=["no", "yes"], secret=bytes(32)))
    return [[part.tolist() for part in chunk] for chunk in chunks]


def forms(folder: Path) -> dict[str, object]:
    """Return the same table in every form."""
    pandas = pytest.importorskip("pandas")
    pyarrow.parquet.write_table(TABLE.slice(0, 2), folder / "part-1.parquet")
    pyarrow.parquet.write_table(TABLE.slice(2), folder / "part-2.parquet")
    pyarrow.csv.write_csv(TABLE, folder / "people.csv")
    frame = pandas.DataFrame(CELLS)
    found = {
        "arrow": TABLE,
        "chunks": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        "batch": TABLE.to_batches()[0],
        "dataset": Dataset(TABLE),
        "mapping": CELLS,
        "pandas": frame.drop(columns="spare"),
        "objects": frame.astype({name: object for name in COLUMNS}).drop(columns="spare"),
        "rows": [dict(zip(CELLS, row, strict=True)) for row in zip(*CELLS.values(), strict=True)],
        "glob": str(folder / "part-*.parquet"),
        "csv": folder / "people.csv",
    }
    try:
        import polars
    except ImportError:
        return found
    return found | {"polars": polars.DataFrame(CELLS), "lazy": polars.DataFrame(CELLS).lazy()}


def test_every_form_of_a_table_gives_the_same_rows(tmp_path: Path) -> None:
    expected = rows_of(TABLE)

    assert expected[0][1] == [0, 1, 0]
    for name, source in forms(tmp_path).items():
        assert np.array_equal(
            *(np.concatenate([np.array(c[0]) for c in each]) for each in (rows_of(source), expected))
        ), name
        assert [label for chunk in rows_of(source) for label in chunk[1]] == [0, 1, 0], name


def test_every_form_of_a_table_predicts_the_same_features_in_the_same_order(tmp_path: Path) -> None:
    encoder = read_columns(COLUMNS, Dataset(TABLE), target="sick")
    expected = encoder.encode(TABLE)

    for name, source in forms(tmp_path).items():
        if name == "dataset":
            with pytest.raises(InvalidRequest, match="a Dataset is private"):
                encode_frame(source, encoder)
            continue
        assert np.array_equal(encode_frame(source, encoder), expected), name
    assert np.array_equal(encode_frame(TABLE.select(TABLE.column_names[::-1]), encoder), expected)
    assert encode_frame(TABLE.slice(0, 0), encoder).shape == (0, encoder.width)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize(
    "labels",
    [
        ["no", "yes", "no"],
        np.array(["no", "yes", "no"]),
        np.array([["no"], ["yes"], ["no"]], object),
        pa.array(["no", "yes", "no"]),
        pa.chunked_array([["no"], ["yes", "no"]]),
    ],
)
def test_targets_can_be_an_array_of_their_own(labels: object) -> None:
    features = TABLE.drop_columns(["sick"])

    assert rows_of(features, labels) == rows_of(TABLE)
    dataset, target = table_dataset(features.append_column("y", TABLE.column("sick")), labels, columns=None)
    assert target == "y_" and "y" in dataset.schema


def test_matrices_have_columns_by_number_and_targets_beside_them() -> None:
    matrix = np.array([[0.0, 50.0], [np.nan, 200.0]])
    encoder = TableEncoder((NumberColumn("x0", 0, 100), NumberColumn("x1", 0, 100)))

    for source in (matrix, matrix.tolist(), matrix.astype(object), matrix.astype(np.float32)):
        dataset, target = table_dataset(source, np.array([1, 2]), columns=(0, 100))
        assert read_columns((0, 100), dataset, target=target) == encoder
        (chunk,) = TabularRows.read(dataset, encoder, target)
        assert chunk.features.tolist() == [[-1, 0, 0, 0], [0, 1, 1, 0]]
        assert chunk.targets.tolist() == [1.0, 2.0]
        assert encode_frame(source, encoder).tolist() == chunk.features.tolist()
    sparse = pytest.importorskip("scipy.sparse").csr_matrix(np.nan_to_num(matrix))
    assert encode_frame(sparse, encoder).tolist() == [[-1, 0, 0, 0], [-1, 0, 1, 0]]


def test_objects_that_do_not_fit_are_missing_and_refuse_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    odd = {"age": [1.0, "41", None, [], 10**400], "city": [1, "Rome", b"Oslo", object(), float("nan")]}
    encoder = TableEncoder((NumberColumn("age", 0, 100), CategoryColumn("city", ["Rome", "Oslo"])))

    for source in (odd, pandas.DataFrame({name: pandas.Series(cells, dtype=object) for name, cells in odd.items()})):
        features = encode_frame(source, encoder)
        assert features[:, 1].tolist() == [0, 1, 1, 1, 0]
        assert features[4, 0] == 1
        assert features[:, 2:].argmax(axis=1).tolist() == [2, 0, 2, 2, 2]


def test_one_odd_cell_that_changes_a_dtype_changes_no_other_row() -> None:
    pandas = pytest.importorskip("pandas")
    encoder = TableEncoder((NumberColumn("x", 0, 4), FlagColumn("b"), CategoryColumn("c", [1, 2])))
    plain = {"x": [1, 2], "b": [True, False], "c": [1, 3]}
    expected = encode_frame(pandas.DataFrame(plain), encoder)

    for odd in (None, "text", 2.5, 1j, 2**70, b"1", float("inf"), datetime.date(2024, 1, 1)):
        frame = pandas.DataFrame({name: [*cells, odd] for name, cells in plain.items()})
        assert np.array_equal(encode_frame(frame, encoder)[:2], expected), odd
        for column in plain:
            frame = pandas.DataFrame(
                {name: [*cells, odd if name == column else cells[0]] for name, cells in plain.items()}
            )
            assert np.array_equal(encode_frame(frame, encoder)[:2], expected), (odd, column)


def test_lists_of_ids_need_no_type_and_may_have_one() -> None:
    terms = {"columns": COLUMNS, "classes": ["no", "yes"], "unit": "id", "max_rows_per_unit": 2}

    for types in (None, {"id": "text"}):
        dataset, _ = table_dataset(CELLS, "sick", types=types, **terms)
        assert dataset.unit.column == "id"


def test_a_unit_is_named_here_or_by_the_dataset() -> None:
    mine, _ = table_dataset(TABLE, "sick", columns=COLUMNS, unit="id", max_rows_per_unit=2)
    theirs = Dataset(TABLE, unit="id", max_rows_per_unit=2)
    view, _ = table_dataset(Dataset(TABLE), "sick", unit="id", max_rows_per_unit=2)

    assert mine.adjacency is Adjacency.ADD_REMOVE
    for dataset in (mine, theirs, view, table_dataset(theirs, "sick")[0]):
        assert (dataset.unit.column, dataset.max_rows_per_unit) == ("id", 2)
    assert table_dataset(theirs, "sick", max_rows_per_unit=5)[0].max_rows_per_unit == 5
    assert theirs.max_rows_per_unit == 2
    chunks = rows_of(TABLE, unit="id", max_rows_per_unit=2)
    assert sorted(chunks[0][2]) == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("source", "y", "terms", "words"),
    [
        (TABLE, None, {}, "Expected a target"),
        (TABLE, "nothing", {}, "nothing"),
        (TABLE, [1, 2], {}, "one target for each row"),
        (TABLE, np.zeros((3, 2)), {}, "one column of targets"),
        (Dataset(TABLE), np.zeros(3), {}, "name of the target column with a Dataset"),
        (TABLE, "sick", {"max_rows_per_unit": 2}, "only with an id column"),
        (Dataset(TABLE), "sick", {"max_rows_per_unit": 2}, "only with an id column"),
        (Dataset(TABLE), "sick", {"unit": "nothing"}, "nothing"),
        (Dataset(TABLE), "sick", {"unit": "id", "max_rows_per_unit": 0}, "whole number >= 1"),
        (Dataset(TABLE, unit="id"), "sick", {"unit": "city"}, "unit of the dataset, id"),
        (np.zeros(3), [1, 2, 3], {}, "rows and columns"),
        (np.zeros((2, 2, 2)), [1, 2], {}, "rows and columns"),
        ([[1, 2], [3]], [1, 2], {}, "rows and columns"),
        (np.zeros((3, 0)), [1, 2, 3], {}, "at least one column"),
        (np.ma.masked_array(np.zeros((2, 2))), [1, 2], {}, "without a mask"),
    ],
)
def test_wrong_tables_are_refused_in_a_sentence(source: object, y: object, terms: dict, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        table_dataset(source, y, **terms)


def test_a_file_needs_a_named_target(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(TABLE, tmp_path / "people.parquet")

    with pytest.raises(InvalidRequest, match="name of the target column with a file"):
        table_dataset(tmp_path / "people.parquet", [1, 2, 3])


def test_predictions_name_missing_columns_and_check_the_width_of_a_matrix() -> None:
    encoder = TableEncoder((FlagColumn("a"), FlagColumn("b")))

    for source in (
        {"a": [1]},
        pa.table({"a": [True]}),
        pa.table({}),
    ):
        with pytest.raises(InvalidRequest, match="'b' in the table"):
            encode_frame(source, encoder)
    with pytest.raises(InvalidRequest, match="2 columns, got 3"):
        encode_frame(np.zeros((1, 3)), encoder)
    with pytest.raises(InvalidRequest, match="booleans in 'a'"):
        encode_frame({"a": np.array(["1"]), "b": [1]}, encoder)
    assert encode_frame([{"a": 1, "b": 0}, {}], encoder).tolist() == [[1, -1], [0, 0]]


@pytest.mark.filterwarnings("ignore:Object columns are read as text")
@pytest.mark.parametrize("odd", ["x", None, 2.5, float("nan"), b"\xff", True])
@pytest.mark.parametrize("form", [pandas.DataFrame, dict])
def test_one_odd_id_of_a_dataset_without_a_unit_leaves_the_others_as_they_are(form: Any, odd: Any) -> None:
    ids = np.repeat(np.arange(10), 3)
    objects = ids.astype(object)
    objects[4] = odd
    target = np.arange(30.0)
    kept = []
    for column in (ids, objects):
        table = form({"id": column, "age": target, "pay": target})
        dataset, name = table_dataset(Dataset(table), "pay", unit="id", max_rows_per_unit=3)
        encoder = read_columns({"age": (0, 30)}, dataset, target=name, unit="id")
        (chunk,) = TabularRows.read(dataset, encoder, name)
        kept.append(dict(zip(chunk.targets.tolist(), chunk.weights.tolist(), strict=True)))
    others = [row for row in range(30) if row not in (3, 4, 5) and (odd is not True or row > 2)]
    assert [kept[0][row] for row in others] == [kept[1][row] for row in others]
