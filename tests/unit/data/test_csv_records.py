"""One record of a CSV file is one row, whatever its cells hold, however it is read."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from expost import Session, epsilon
from expost.core import InvalidRequest, unseal
from expost.data import Dataset
from expost.data.engines.csv_engine import guess_types, open_csv
from expost.data.engines.text_record import Misquoted, csv_records

TYPES = {"age": "integer", "comment": "text"}
READINGS = [TYPES, None]
FORGERIES = {
    "LF": "hello\n" + "41,x\n" * 1000,
    "CRLF": "hello\r\n" + "41,x\r\n" * 1000,
    "CR": "hello\r" + "41,x\r" * 1000,
    "a lone CR": "hi\r41",
    "quotes": 'hello"\n41,"x\n"41,x\n',
    "only line ends": "\n\r\n\r",
    "a border first": ',\n41,"',
    "a quote first": '"\n41,x\n',
}


def plain(number: int) -> list[dict[str, object]]:
    return [{"age": 7 + k % 30, "comment": f'fine, {k} "yes"\nor not'} for k in range(number)]


def read(path: Path, types: dict[str, str] | None, **terms: object) -> list[tuple[object, ...]]:
    dataset = Dataset(path, types=types, **terms)
    table = pa.Table.from_batches(dataset.batches(list(dataset.schema)))
    return list(zip(*table.to_pydict().values(), strict=True))


def age(number: int, types: dict[str, str] | None) -> object:
    """An age as it is read: a text unless its type is declared."""
    return str(number) if types is None else number


@pytest.mark.parametrize("types", READINGS, ids=["declared", "texts"])
@pytest.mark.parametrize("cell", FORGERIES.values(), ids=FORGERIES)
@pytest.mark.parametrize("place", [0, 50, 100])
def test_one_record_adds_one_row_and_changes_no_other(types, cell, place, tmp_path) -> None:
    people = plain(100)
    pd.DataFrame(people).to_csv(tmp_path / "without.csv", index=False)
    pd.DataFrame([*people[:place], {"age": 41, "comment": cell}, *people[place:]]).to_csv(
        tmp_path / "with.csv", index=False
    )

    without, found = read(tmp_path / "without.csv", types), read(tmp_path / "with.csv", types)

    assert without == [(age(each["age"], types), each["comment"]) for each in people]
    assert found == [*without[:place], (age(41, types), cell), *without[place:]]


def test_nobody_forges_rows_for_a_count(tmp_path) -> None:
    rows = [*plain(500), {"age": 41, "comment": FORGERIES["LF"]}]
    pd.DataFrame(rows).to_csv(tmp_path / "people.csv", index=False)
    session = Session(Dataset(tmp_path / "people.csv", name="people", types=TYPES), epsilon(100))

    assert session.count(epsilon=40).value == 501
    assert session.count(where="age = 41", epsilon=40).value == 1


def test_records_of_a_correct_writer_are_told_at_every_block_size(tmp_path) -> None:
    letters = np.array(list('",\n\r;x1\u00e9'))
    generator = np.random.default_rng(11)
    path = tmp_path / "random.csv"
    for ending in ("\n", "\r\n"):
        for _ in range(40):
            table = [["".join(generator.choice(letters, generator.integers(0, 6))) for _ in range(3)] for _ in range(9)]
            written = []
            for row in table:
                text = io.StringIO(newline="")
                csv.writer(text, lineterminator=ending, quoting=csv.QUOTE_ALL).writerow(row)
                written.append(text.getvalue())
            path.write_text("".join(written), encoding="utf-8", newline="")
            for block in (1, 2, 3, 7, 1 << 20):
                found = csv_records(path, ",", lines_are_rows=False, block=block)
                assert [text for part in found for text in part.to_pylist()] == written


STRAYS = ['7,"open', "7,5' 11\" tall", '7,"x"y', '7, "x"', '7,"a\\"b"', '7,"x"y"', '7,"""']


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("types", READINGS, ids=["declared", "texts"])
@pytest.mark.parametrize("repeated", [1, 3])
def test_a_file_whose_records_nobody_can_tell_is_refused_before_any_question(stray, types, repeated, tmp_path) -> None:
    good = [f'{k},"city, {k}"' for k in range(50)]
    lines = ["age,comment", *good, *[stray] * repeated, *good]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    with pytest.raises(InvalidRequest, match="RFC 4180") as refusal:
        Dataset(tmp_path / "people.csv", types=types)
    assert refusal.value.__context__ is None and "tall" not in str(refusal.value)

    found = read(tmp_path / "people.csv", types, lines_are_rows=True)
    assert [row for row in found if row[1] is not None and str(row[1]).startswith("city, ")] == [
        (age(k, types), f"city, {k}") for k in range(50)
    ] * 2
    assert len(found) == 100 + repeated


def test_a_file_that_becomes_unreadable_answers_nothing_more(tmp_path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,comment\n1,a\n", encoding="utf-8")
    dataset = Dataset(path, types=TYPES)
    path.write_text('age,comment\n1,"a\n', encoding="utf-8")

    with pytest.raises(Misquoted):
        list(dataset.batches(["age"]))


@pytest.mark.parametrize("lines_are_rows", [True, False])
@pytest.mark.parametrize("block", [5, 1 << 20])
def test_a_record_beyond_all_measure_is_one_row_of_nothing(lines_are_rows, block, tmp_path) -> None:
    path = tmp_path / "people.csv"
    for last in ("\n", ""):
        path.write_text(f"a,b\n1,x\n2,{'y' * 500}\n3,z\n4,{'y' * 500}{last}", encoding="utf-8")
        found = csv_records(path, ",", lines_are_rows=lines_are_rows, block=block, longest=100)
        texts = [text for part in found for text in part.to_pylist()]
        assert texts == ["a,b\n", "1,x\n", None, "3,z\n", None]


@pytest.mark.parametrize("length", [99, 100, 101])
@pytest.mark.parametrize("before", range(12))
def test_whether_a_record_is_too_long_depends_on_no_other(length, before, tmp_path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("x" * before + "\n" + "y" * (length - 1) + "\n", encoding="utf-8")

    for block in (4, 7, 50, 1 << 20):
        found = csv_records(path, ",", lines_are_rows=False, block=block, longest=100)
        assert ([text for part in found for text in part.to_pylist()][1] is None) == (length > 100)


@pytest.mark.parametrize("types", READINGS, ids=["declared", "texts"])
@pytest.mark.parametrize(
    "cell", [b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", "Zürich".encode("latin1"), "\U0010ffff".encode()]
)
def test_a_cell_that_is_no_text_is_missing_in_its_own_row_alone(types, cell, tmp_path) -> None:
    good = "".join(f'{k},"Zürich\n{k}"\n' for k in range(50)).encode()
    (tmp_path / "people.csv").write_bytes(b"age,comment\n" + good + b"41," + cell + b"\n" + good)

    expected = [(age(k, types), f"Zürich\n{k}") for k in range(50)]
    assert read(tmp_path / "people.csv", types) == [*expected, (age(41, types), None), *expected]


def test_line_ends_that_are_carriage_returns_alone_are_refused_by_the_header(tmp_path) -> None:
    (tmp_path / "people.csv").write_bytes(b"age,comment\r41,x\r")
    for lines_are_rows in (True, False):
        with pytest.raises(InvalidRequest, match="end in LF"):
            Dataset(tmp_path / "people.csv", types=TYPES, lines_are_rows=lines_are_rows)


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_header_alone_tells_the_layout(sign, tmp_path) -> None:
    path = tmp_path / "people.csv"
    rows = [["", "born", 'a "b", c'], ["1", "2001-02-03", "x;y|z"], ["2", "2001-02-04", "1,5\t2"]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=sign).writerows(rows)
    dataset = Dataset(path)
    assert str(dataset.schema) == 'column0 text, born text, a "b", c text'
    assert unseal(dataset.measure_rows())[0] == 2
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    assert list(Dataset(path).schema) == ["column0", "born", 'a "b", c']


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2", ""], "integer"),
        (["1", "NA", "null"], "integer"),
        (["1", "2.5"], "real"),
        (["true", "FALSE"], "boolean"),
        (["2001-01-01", "2001-01-01 10:00:00"], "time"),
        (["1", "x"], "text"),
        (["", '""'], "text"),
        ([str(10**30), "1"], "real"),
    ],
)
def test_types_are_guessed_for_a_draft_and_never_for_a_dataset(cells, kind, tmp_path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{cell},b\n" for cell in cells), encoding="utf-8")

    assert guess_types(open_csv([tmp_path / "t.csv"])) == {"a": kind, "b": "text"}
    assert str(Dataset(tmp_path / "t.csv").schema) == "a text, b text"
