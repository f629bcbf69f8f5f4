"""Features come from public declarations: what is missing, repeated or unfit is named in a sentence, before any row."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.models.tabular import CategoryColumn, DateColumn, FlagColumn, NumberColumn, read_columns

DAY = datetime.date
SECRET = "Xanadu"
TABLE = pa.table(
    {
        "id": [7],
        "age": [41],
        "city": [SECRET],
        "member": [True],
        "day": [DAY(2024, 5, 17)],
        "when": [datetime.datetime(2024, 5, 17, 3)],
        "blob": [b"x"],
        "sick": [True],
    }
)
WINDOW = (DAY(2020, 1, 1), DAY(2024, 12, 31))
ALL = {"age": (0, 120), "city": ["Rome", "Oslo"], "member": "boolean", "day": WINDOW, "when": WINDOW}


def test_a_mapping_names_exactly_the_features_in_its_order() -> None:
    encoder = read_columns(ALL, Dataset(TABLE), target="sick", unit="id")

    assert encoder.names_in == ("age", "city", "member", "day", "when")
    assert [type(column) for column in encoder.columns] == [
        NumberColumn,
        CategoryColumn,
        FlagColumn,
        DateColumn,
        DateColumn,
    ]
    assert read_columns({"age": (0, 120)}, Dataset(TABLE), target="sick").names_in == ("age",)


def test_a_tuple_of_texts_is_a_list_of_levels_unless_it_spells_two_dates() -> None:
    levels = read_columns(
        {"city": ("Rome", "Oslo"), "when": ("2020-01-01", "2024-12-31")}, Dataset(TABLE), target="sick"
    )

    assert levels.columns[0].levels == ("Rome", "Oslo")
    assert isinstance(levels.columns[1], DateColumn)


def test_hours_follow_from_the_type_of_the_column_unless_a_ready_column_says_otherwise() -> None:
    days, moments = read_columns({"day": WINDOW, "when": WINDOW}, Dataset(TABLE), target="sick").columns
    ready = DateColumn("when", *WINDOW)

    assert (days.hours, moments.hours) == (False, True)
    assert read_columns([ready], Dataset(TABLE), target="sick").columns == (ready,)
    assert read_columns({"when": ready}, Dataset(TABLE), target="sick").columns == (ready,)


def test_the_dataset_supplies_what_the_caller_leaves_out() -> None:
    table = TABLE.select(["id", "age", "city", "member", "sick"])
    dataset = Dataset(
        table, unit="id", max_rows_per_unit=2, bounds={"age": (0, 120)}, categories={"city": ["Rome", None]}
    )
    expected = (NumberColumn("age", 0, 120), CategoryColumn("city", ["Rome"]), FlagColumn("member"))

    assert read_columns(None, dataset, target="sick").columns == expected
    assert read_columns(["city", "age"], dataset, target="sick").columns == (expected[1], expected[0])
    assert read_columns({"age": None, "city": ["Oslo"]}, dataset, target="sick").columns[1].levels == ("Oslo",)


def test_a_declared_target_or_unit_is_not_a_feature() -> None:
    dataset = Dataset(TABLE, unit="id", max_rows_per_unit=1, bounds={"id": (0, 9)})

    encoder = read_columns({"age": (0, 120), "sick": "boolean", "id": (0, 9)}, dataset, target="sick")

    assert encoder.names_in == ("age",)
    assert read_columns({"age": (0, 9), "id": (0, 9)}, Dataset(TABLE), target="sick", unit="id").names_in == ("age",)


def test_columns_that_nobody_declared_are_named_with_a_template_that_holds_no_value() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_columns(None, Dataset(TABLE, bounds={"age": (0, 120)}), target="sick", unit="id")

    text = str(caught.value)
    assert "none for 'city', 'day', 'when', 'blob'" in text
    assert 'columns={"age": None, "city": [...], "member": None, "day": (START, END), "when": (START, END)}' in text
    assert 'texts are refused: declare levels, "private" to pay for them, or leave the column out' in text
    assert "a column that is not in it is not used" in text
    assert SECRET not in text and "41" not in text and "2024" not in text
    with pytest.raises(InvalidRequest) as caught:
        read_columns(None, Dataset(TABLE.select(["age", "sick"])), target="sick")
    assert 'Pass columns={"age": (LOW, HIGH)} with public values' in str(caught.value)


def test_a_description_file_declares_the_features(tmp_path: Path) -> None:
    described = tmp_path / "people.toml"
    described.write_text(
        'source = "people.parquet"\n[unit]\ncolumn = "id"\n[types]\nmember = "boolean"\n'
        "[bounds]\nage = [0, 120]\nid = [0, 9]\nsick = [0, 1]\n[categories]\ncity = ['Rome']\n"
    )

    for columns in (described, str(described)):
        encoder = read_columns(columns, Dataset(TABLE), target="sick")
        assert encoder.names_in == ("age", "city", "member")
    with pytest.raises(InvalidRequest, match="readable description file"):
        read_columns(tmp_path / "none.toml", Dataset(TABLE), target="sick")


def test_an_unnamed_matrix_takes_one_pair_or_one_for_each_column() -> None:
    dataset = Dataset({"x0": np.zeros(2), "x1": np.ones(2), "y": np.ones(2)})
    expected = (NumberColumn("x0", 0, 1), NumberColumn("x1", -1, 1))

    assert read_columns([(0, 1), (-1, 1)], dataset, target="y").columns == expected
    assert read_columns(np.array([[0, 1], [-1, 1]]), dataset, target="y").columns == expected
    assert read_columns((0, 1), dataset, target="y").columns == (NumberColumn("x0", 0, 1), NumberColumn("x1", 0, 1))
    with pytest.raises(InvalidRequest, match="each of the 2 columns, got 3"):
        read_columns([(0, 1)] * 3, dataset, target="y")


def test_the_levels_of_a_polars_enum_are_public_and_those_of_a_pandas_category_are_not() -> None:
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    kind = polars.Enum(["ä;1", "", "c"])
    frame = polars.DataFrame({"city": polars.Series(["c"], dtype=kind), "y": [1]})

    assert read_columns(None, Dataset(frame), target="y").columns == (CategoryColumn("city", ["ä;1", "", "c"]),)
    collected = pandas.DataFrame({"city": pandas.Series(["c"], dtype="category"), "y": [1.0]})
    with pytest.raises(InvalidRequest, match="none for 'city'"):
        read_columns(None, Dataset(collected), target="y")
    declared = pandas.CategoricalDtype(["a", "c"])
    assert read_columns({"city": declared}, Dataset(collected), target="y").columns[0].levels == ("a", "c")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"age": (120, 0)}, "low below high, got '120, 0'"),
        ({"age": (0, 120, 5)}, "two numbers or two dates in the pair of 'age'"),
        ({"age": (None, 5)}, "two numbers or two dates in the pair of 'age'"),
        ({"age": "number"}, "declaration of 'age', got 'number'"),
        ({"age": 3}, "list of levels for 'age'"),
        ({"city": []}, "at least one level for 'city'"),
        ({"city": ["Rome", "Rome"]}, "each level of 'city' once, got 'Rome'"),
        ({"city": ["Rome", None]}, "missing and unknown values are the level"),
        ({"city": [1, 2]}, "values like its levels"),
        ({"city": (0, 1)}, "numbers .bounds are declared. in 'city', got 'a column of texts'. Declare its levels"),
        ({"city": "boolean"}, "booleans in 'city'"),
        ({"city": None}, "texts are refused: declare levels, .private. to pay for them, or leave the column out"),
        (["city"], "texts are refused"),
        ({"blob": (0, 1)}, "a type that cannot be a feature"),
        ({"blob": None}, "columns of other types cannot be features"),
        ({"age": WINDOW}, "dates or times"),
        ({"day": (WINDOW[1], WINDOW[0])}, "start before its end"),
        ({"day": [WINDOW[0], None]}, "level"),
        ({"height": (0, 3)}, "columns of the table, not 'height'"),
        ({"age": NumberColumn("city", 0, 1)}, "declaration of 'age', got 'city'"),
        ([NumberColumn("age", 0, 1), NumberColumn("age", 0, 2)], "declared once, got 'age'"),
        (["age", "age"], "declared once, got 'age'"),
        ({"sick": "boolean"}, "at least one feature"),
        ({}, "at least one feature"),
        ([], "names, ready columns or pairs"),
        ([(0, 1), "age"], "names, ready columns or pairs"),
        (7, "declaration of columns, got 7"),
        ({7: (0, 1)}, "name of a column"),
        ((0, 1), "Declare its levels"),
    ],
)
def test_a_wrong_declaration_is_named_in_a_sentence(columns: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        read_columns(columns, Dataset(TABLE), target="sick")

    assert SECRET not in str(caught.value)


def test_bounds_and_categories_of_one_column_are_declared_twice() -> None:
    dataset = Dataset(TABLE, bounds={"age": (0, 120)}, categories={"age": [1, 2]})

    with pytest.raises(InvalidRequest, match="bounds or categories for 'age', not both"):
        read_columns(["age"], dataset, target="sick")
    assert read_columns({"age": (0, 120)}, dataset, target="sick").names_in == ("age",)


def test_a_derived_column_is_a_feature_and_its_large_whole_numbers_are_not_levels() -> None:
    dataset = Dataset(TABLE).derive(double="age * 2", same="when")

    assert read_columns({"double": (0, 240), "same": WINDOW}, dataset, target="sick").columns[1].hours
    with pytest.raises(InvalidRequest, match="64-bit floats hold exactly"):
        read_columns({"double": [2**53 + 1]}, dataset, target="sick")


def test_a_target_or_unit_that_is_not_in_the_table_is_refused() -> None:
    for terms in ({"target": "nothing"}, {"target": "sick", "unit": "nothing"}):
        with pytest.raises(InvalidRequest, match="got 'nothing'"):
            read_columns({"age": (0, 1)}, Dataset(TABLE), **terms)
