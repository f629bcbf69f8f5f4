"""Formats of text files: missing values, declared times, separators, encodings, compression and fixed widths."""

import datetime
import gzip
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from expost.core import InvalidRequest, unseal
from expost.data import Dataset
from expost.data.description import Description

DAY = datetime.datetime(2023, 12, 31)


def cells(dataset: Dataset) -> dict[str, list[object]]:
    return pa.Table.from_batches(dataset.batches(list(dataset.schema))).to_pydict()


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_usual_marks_of_missing_values_are_missing_in_every_column(tmp_path) -> None:
    path = write(tmp_path / "t.csv", 'city,age\nRome,41\nNA,NA\nnull,NaN\n,\n" NA ",7\n"",8\nNAN,9\n')

    found = cells(Dataset(path, types={"age": "integer"}))
    assert found == {
        "city": ["Rome", None, None, None, None, "", "NAN"],
        "age": [41, None, None, None, 7, 8, 9],
    }
    assert cells(Dataset(path, missing=[]))["city"][1:3] == ["NA", "null"]
    assert cells(Dataset(path, missing=["Rome", "41"]))["city"][:2] == [None, "NA"]


def test_a_public_category_is_never_a_missing_value(tmp_path) -> None:
    path = write(tmp_path / "t.csv", "continent,age\nNA,NA\nEU,3\n")

    found = cells(Dataset(path, categories={"continent": ["NA", "EU"]}, bounds={"age": (0, 9)}))
    assert found["continent"] == ["NA", "EU"]
    assert np.isnan(found["age"][0])


def test_types_may_name_some_columns_and_the_others_are_texts(tmp_path) -> None:
    path = write(tmp_path / "t.csv", "a,b\n1,2\n")

    assert str(Dataset(path, types={"a": "integer"}).schema) == "a integer, b text"
    with pytest.raises(InvalidRequest, match=r'b holds text values\. .*types=\{"b": "real"\}'):
        Dataset(path).clamp(Dataset(path).expression("b"), (0, 1))


@pytest.mark.parametrize(
    ("kind", "cell", "expected"),
    [
        ("time:%d/%m/%Y", "31/12/2023", DAY),
        ("time:%d/%m/%Y", " 31/12/2023 ", DAY),
        ("time:%d/%m/%Y", "2023-12-31", None),
        ("time:%d/%m/%Y", "31/02/2023", None),
        ("time:%d %B %y", "31 December 23", DAY),
        ("time:%Y-%m-%d %H:%M%z", "2023-12-31 02:00+02:00", DAY),
        ("time:it's %Y%m%d", "it's 20231231", DAY),
        ("time", "2023-12-31", DAY),
        ("time", "31/12/2023", None),
    ],
)
def test_times_are_read_by_their_declared_format(kind, cell, expected, tmp_path) -> None:
    path = write(tmp_path / "t.csv", f"when,x\n{cell},1\n")
    sources = [path, {"when": [cell]}, pd.DataFrame({"when": np.array([cell], object)})]
    sources += [pl.DataFrame({"when": [cell]}), pl.DataFrame({"when": [cell]}).lazy()]

    for source in sources:
        assert cells(Dataset(source, types={"when": kind}))["when"] == [expected]


def test_objects_that_are_times_need_no_format() -> None:
    values = [DAY, "31/12/2023", 5, None, "2023-12-31"]

    assert cells(Dataset({"w": values}, types={"w": "time:%d/%m/%Y"}))["w"] == [DAY, DAY, None, None, None]


@pytest.mark.parametrize("kind", ["time:%Q", "time:%d", "time:", "time:%", "real:%Y", "time:%Y %Z", "time:%Y %n"])
def test_a_format_that_is_none_is_refused(kind, tmp_path) -> None:
    for source in (write(tmp_path / "t.csv", "when\n1\n"), {"when": ["1"]}):
        with pytest.raises(InvalidRequest, match="Expected"):
            Dataset(source, types={"when": kind})


@pytest.mark.parametrize("sign", [";", "\t", "#", " "])
def test_a_declared_separator_holds_whatever_the_header_has(sign, tmp_path) -> None:
    path = write(tmp_path / "t.csv", f'"a,b"{sign}c\n1,5{sign}2\n')

    assert cells(Dataset(path, separator=sign, decimal=",", types={"a,b": "real", "c": "integer"})) == {
        "a,b": [1.5],
        "c": [2],
    }


def test_a_decimal_comma_leaves_no_second_meaning_to_a_point(tmp_path) -> None:
    path = write(tmp_path / "t.csv", 'x;k\n1,5;1\n1.5;1,0\n1.234,5;1,5\n"1,2,3";1.0\n')

    found = cells(Dataset(path, decimal=",", separator=";", types={"x": "real", "k": "integer"}))
    assert found["x"][0] == 1.5 and np.isnan(found["x"][1:]).all()
    assert found["k"] == [1, 1, None, None]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
@pytest.mark.parametrize("ending", ["", ".gz", ".zst", ".bz2"])
def test_encodings_and_compressions_hold_the_same_rows(encoding, ending, tmp_path) -> None:
    text = 'größe,age\n"Zürich\nNord",41\nOslo,7\n'
    path = tmp_path / f"people.csv{ending}"
    with pa.output_stream(path, compression="detect" if ending else None) as file:
        file.write(text.encode(encoding))

    dataset = Dataset(path, encoding="utf-8" if "8" in encoding else encoding, types={"age": "integer"})
    assert cells(dataset) == {"größe": ["Zürich\nNord", "Oslo"], "age": [41, 7]}
    assert dataset.name == "people"


def test_an_archive_of_several_members_is_one_file_and_a_broken_one_is_refused(tmp_path) -> None:
    whole = gzip.compress(b"a\n1\n") + gzip.compress(b"2\n3\n")
    (tmp_path / "t.csv.gz").write_bytes(whole)
    assert cells(Dataset(tmp_path / "t.csv.gz"))["a"] == ["1", "2", "3"]

    (tmp_path / "t.csv.gz").write_bytes(whole[:-12])
    for lines_are_rows in (False, True):
        with pytest.raises(InvalidRequest, match="can be read") as refusal:
            Dataset(tmp_path / "t.csv.gz", lines_are_rows=lines_are_rows)
        assert refusal.value.__context__ is None


def test_a_fixed_width_file_is_cut_by_characters(tmp_path) -> None:
    path = write(tmp_path / "people.txt", " 41Zürich  x\r\n  7Oslo\n\n abNA\n123456789012345\n")

    dataset = Dataset(path, widths={"age": 3, "city": 8}, types={"age": "integer"})
    assert cells(dataset) == {"age": [41, 7, None, 123], "city": ["Zürich", "Oslo", None, "45678901"]}


ROWS = {
    "utf-16": [bytes([0, 0xD8]), bytes([0, 0xDC, 0, 0xD8]), "x".encode("utf-16-le") * 3000, b"\xff\xff", b"\xfe\xff"],
    "cp1252": [b"\x81", b"\xff\xfe", b"x" * 3000, b"\x00"],
    "utf-8": [b"\x81", b"\xed\xa0\x80", b"x" * 3000, b"\x00", b"9" * 400, b"-inf", b"infinity", b"1e999"],
}


@pytest.mark.parametrize("layout", ["separated", "lines", "fixed"])
@pytest.mark.parametrize(("encoding", "odd"), [(name, odd) for name, cells in ROWS.items() for odd in cells])
def test_an_odd_row_changes_no_other_row_type_or_warning(layout, encoding, odd, tmp_path) -> None:
    plain = "utf-16-le" if encoding == "utf-16" else encoding
    mark = b"\xff\xfe" if encoding == "utf-16" else b""
    sign = "" if layout == "fixed" else ";"
    good = [f"{k:3}{sign}{k},5{sign}{k:02}/01/2023{sign}Zürich{k}\n".encode(plain) for k in range(10, 30)]
    header = b"" if layout == "fixed" else "age;x;when;city\n".encode(plain)
    terms: dict[str, object] = {"types": {"age": "integer", "x": "real", "when": "time:%d/%m/%Y"}}
    terms |= {"encoding": encoding, "decimal": ",", "lines_are_rows": layout == "lines", "missing": ["NA", "-9"]}
    terms |= {"widths": {"age": 3, "x": 4, "when": 10, "city": 9}} if layout == "fixed" else {}
    strange = odd + sign.encode(plain) + odd + sign.encode(plain) + odd + "\n".encode(plain)

    def read(name: str, rows: list[bytes]) -> tuple[object, list[tuple[object, ...]]]:
        (tmp_path / name).write_bytes(mark + header + b"".join(rows))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dataset = Dataset(tmp_path / name, **terms)
            found = cells(dataset)
        return dataset.schema, list(zip(*found.values(), strict=True))

    schema, without = read("without.csv", good)
    assert without[0] == (10, 10.5, datetime.datetime(2023, 1, 10), "Zürich10")
    for place in (0, 7, len(good)):
        changed, found = read("with.csv", [*good[:place], strange, *good[place:]])
        assert changed == schema
        assert [*found[:place], *found[place + 1 :]] == without and len(found) == len(good) + 1


@pytest.mark.parametrize(
    "terms",
    [
        {"separator": ",,"},
        {"separator": '"'},
        {"separator": "é"},
        {"separator": 3},
        {"decimal": ";"},
        {"encoding": "shift-jis"},
        {"encoding": "utf-7"},
        {"missing": "NA"},
        {"missing": [1]},
        {"widths": {}},
        {"widths": {"a": 0}},
        {"widths": {"a": True}},
        {"widths": [3]},
        {"widths": {"a": 3}, "separator": ";"},
    ],
)
def test_settings_that_describe_no_file_are_refused(terms, tmp_path) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        Dataset(write(tmp_path / "t.csv", "a\n1\n"), **terms)


def test_settings_of_text_files_are_refused_elsewhere() -> None:
    for terms in ({"missing": ["x"]}, {"separator": ";"}, {"decimal": ","}, {"encoding": "latin-1"}):
        with pytest.raises(InvalidRequest, match=f"Expected {next(iter(terms))} only with a CSV file"):
            Dataset(pa.table({"a": [1]}), **terms)


def test_a_description_declares_the_format(tmp_path) -> None:
    write(tmp_path / "t.csv", "größe;wann\n1,5;31/12/2023\n?;31/12/2023\n", "latin-1")
    lines = ['source = "t.csv"', 'separator = ";"', 'decimal = ","', 'encoding = "latin-1"', 'missing = ["?"]']
    lines += ["[types]", '"größe" = "real"', 'wann = "time:%d/%m/%Y"']
    write(tmp_path / "t.toml", "\n".join(lines))

    found = cells(Description.read(tmp_path / "t.toml").open())
    assert found["wann"] == [DAY, DAY] and found["größe"][0] == 1.5 and np.isnan(found["größe"][1])
    widths = ['source = "t.csv"', 'encoding = "latin-1"', "[widths]", "a = 2", "b = 3"]
    write(tmp_path / "w.toml", "\n".join(widths))
    assert cells(Description.read(tmp_path / "w.toml").open())["a"] == ["gr", "1,", "?;"]


def test_releases_of_a_file_are_kept_apart_by_its_format(tmp_path) -> None:
    path = write(tmp_path / "t.csv", "a\nNA\n")
    same = [Dataset(path, name="t"), Dataset(path, name="t", encoding="utf-8")]
    others = [Dataset(path, name="t", **terms) for terms in ({"missing": []}, {"categories": {"a": ["NA"]}})]

    assert same[0].identity == same[1].identity
    assert len({each.identity for each in [same[0], *others]}) == 3
    assert unseal(same[0].measure_rows())[0] == 1


def test_text_files_of_any_name_are_read_once_their_layout_is_declared(tmp_path) -> None:
    path = tmp_path / "people.dat"
    path.write_text("id|x\n1|2\n3|NA\n")
    with pytest.raises(InvalidRequest, match="Pass separator= or widths="):
        Dataset(path, types={"id": "integer"})
    data = Dataset(path, separator="|", types={"x": "integer"})
    assert (data.name, list(data.schema)) == ("people", ["id", "x"])
    assert pa.Table.from_batches(data.batches(["x"])).to_pydict() == {"x": [2, None]}


def test_a_header_that_cannot_be_used_is_explained(tmp_path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("a,b\n", encoding="utf-16")
    with pytest.raises(InvalidRequest, match=r'mark of UTF-16.*Pass encoding="utf-16"'):
        Dataset(path)
    path.write_text("a,b,a\n")
    with pytest.raises(InvalidRequest, match="'a' is there twice"):
        Dataset(path)
    for given, meant in {"UTF8": "utf-8", "latin1": "latin-1", "UTF_16": "utf-16"}.items():
        with pytest.raises(InvalidRequest, match=f"Did you mean '{meant}'"):
            Dataset(path, encoding=given)


def test_a_header_divided_by_semicolons_warns_of_decimal_commas(tmp_path) -> None:
    path = write(tmp_path / "t.csv", "name;pay\nAnn;3500,5\n")
    with pytest.warns(UserWarning, match='pass decimal=","'):
        Dataset(path, types={"pay": "real"})

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # declared, or without numbers that could have commas
        found = cells(Dataset(path, types={"pay": "real"}, separator=";", decimal=","))
        Dataset(path, types={"pay": "real"}, separator=";")
        Dataset(path)
    assert found["pay"] == [3500.5]
