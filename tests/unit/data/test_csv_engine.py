"""CSV files: declared types are public, and no cell makes a query fail."""

from pathlib import Path

import pyarrow as pa
import pytest

from expost.core import InvalidRequest, unseal
from expost.data import Dataset
from expost.data.description import Description

TYPES = {"age": "integer", "x": "real", "ok": "boolean", "when": "time", "city": "text"}
HEADER = "age,x,ok,when,city"
ROWS = ["41,1.5,true,2013-01-01 10:00:00,Rome", "old,?,maybe,then,Oslo", "7", '8,2,false,2013-01-02,"a,b",too,many', ""]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows(dataset: Dataset) -> dict[str, list[object]]:
    return pa.Table.from_batches(dataset.batches(list(dataset.schema))).sort_by([("age", "descending")]).to_pydict()


def test_declared_types_hold_whatever_the_rows_are(tmp_path) -> None:
    dataset = Dataset(write(tmp_path / "people.csv", [HEADER, *ROWS]), types=TYPES)

    assert str(dataset.schema) == "age integer, x real, ok boolean, when time, city text"
    found = rows(dataset)
    assert found["age"][0] == 41 and found["x"][0] == 1.5 and found["ok"][0] is True
    assert None in found["age"] and "Oslo" in found["city"]
    assert 7 in found["age"]  # a short line is padded
    assert unseal(dataset.measure_rows())[0] == 4  # no line is lost where a cell does not fit


@pytest.mark.parametrize("lines", [[], ["9,9,9,9,9"] * 20, ["x,x,x,x,x"] * 20, ['"', '"""', ",,,,,,,", "\0"]])
def test_no_row_changes_a_declared_schema(lines, tmp_path) -> None:
    dataset = Dataset(write(tmp_path / "people.csv", [HEADER, *lines]), types=TYPES)

    assert str(dataset.schema) == "age integer, x real, ok boolean, when time, city text"
    assert unseal(dataset.measure_rows())[0] <= len(lines)


def test_tabs_several_files_and_a_byte_order_mark_are_read(tmp_path) -> None:
    for part in ("a", "b"):
        text = "\ufeffage\tcity\n41\tRome, north\n17\tOslo\n"
        (tmp_path / f"{part}.tsv").write_text(text, encoding="utf-8")
    dataset = Dataset(str(tmp_path / "*.tsv"), types={"age": "integer"})

    assert rows(dataset) == {"age": [41, 41, 17, 17], "city": ["Rome, north"] * 2 + ["Oslo"] * 2}


def test_where_rows_are_lines_a_stray_quote_reaches_no_other(tmp_path) -> None:
    plain = [f'{k},{k}.5,true,2013-01-01,"city, {k}"' for k in range(100)]
    terms = {"types": TYPES, "lines_are_rows": True}
    expected = rows(Dataset(write(tmp_path / "one.csv", [HEADER, *plain]), **terms))
    assert expected["city"][0] == "city, 99"

    for stray in ('5,"', '"""', '"5,6,7,8,9', '5,6,7,8,"x"y"', '"' * 7, "\0,\x01,", "x" * 5_000_000, '5,6,7,8,"open\r'):
        found = rows(Dataset(write(tmp_path / "two.csv", [HEADER, *plain[:50], stray, *plain[50:]]), **terms))
        kept = [city for city in found["city"] if city in set(expected["city"])]
        assert sorted(kept) == sorted(expected["city"])
        assert len(found["city"]) <= 101


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("", None),
        ('""', ""),
        ('"a""b"', 'a"b'),
        ("a b ", "a b "),
        ('"', '"'),
        ('"a', '"a'),
        ('"a"b', '"a"b'),
        ("é", "é"),
    ],
)
def test_quotes_are_taken_off_cells(cell, text, tmp_path) -> None:
    path = write(tmp_path / "people.csv", ["age,city", f"1,{cell}\r"])
    dataset = Dataset(path, types={"age": "integer"}, lines_are_rows=True)

    assert rows(dataset) == {"age": [1], "city": [text]}


@pytest.mark.parametrize("types", [{"nothing": "text"}, {"age": "number"}])
def test_types_of_no_column_or_no_kind_are_refused(types, tmp_path) -> None:
    with pytest.raises(InvalidRequest, match="Expected types"):
        Dataset(write(tmp_path / "people.csv", [HEADER]), types=types)


def test_headers_differ_or_are_missing_and_are_refused(tmp_path) -> None:
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    write(tmp_path / "p1.csv", ["a,b", "1,2"])
    write(tmp_path / "p2.csv", ["b,a", "1,2"])

    for source in ("empty.csv", "p*.csv"):
        with pytest.raises(InvalidRequest, match="header"):
            Dataset(str(tmp_path / source), types={})


def test_other_sources_have_types_of_their_own() -> None:
    for terms in ({"types": {"a": "text"}}, {"lines_are_rows": True}):
        with pytest.raises(InvalidRequest, match="only with a CSV"):
            Dataset(pa.table({"a": [1]}), **terms)


def test_a_description_declares_types(tmp_path) -> None:
    write(tmp_path / "people.csv", [HEADER, *ROWS])
    write(tmp_path / "people.toml", ['source = "people.csv"', "[types]", 'age = "real"'])

    dataset = Description.read(tmp_path / "people.toml").open()

    assert str(dataset.schema) == "age real, x text, ok text, when text, city text"
    write(tmp_path / "lines.toml", ['source = "people.csv"', "lines_are_rows = true"])
    assert Description.read(tmp_path / "lines.toml").lines_are_rows
    with pytest.raises(InvalidRequest, match="true or false"):
        Dataset(tmp_path / "people.csv", lines_are_rows="yes")
    with pytest.raises(InvalidRequest, match="types as texts"):
        Description.parse('source = "people.csv"\n[types]\nage = 5\n')
