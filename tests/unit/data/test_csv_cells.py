"""Cells are those that Python's own reader finds, and both ways of cutting find the same."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest

from expost.data import Dataset
from expost.data.engines.csv_engine import CutRecords

LETTERS = np.array(list('",,\n;x1\u00e9 '))


def written(table: list[list[str]], ending: str) -> list[str]:
    lines = []
    for row in table:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator=ending).writerow(row)
        lines.append(text.getvalue())
    return lines


def random_table(seed: int, rows: int, letters: np.ndarray = LETTERS) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    width = generator.integers(2, 5)
    return [["".join(generator.choice(letters, generator.integers(0, 6))) for _ in range(width)] for _ in range(rows)]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(20))
def test_cells_are_those_of_pythons_reader(ending: str, seed: int) -> None:
    table = random_table(seed, 50)
    lines = pa.array(written(table, ending))

    for part, rows in ((lines, table), (lines.slice(7, 20), table[7:27]), (lines.slice(50), [])):
        cut = CutRecords(part, ",")
        for place in range(len(table[0])):
            assert [text or "" for text in cut.column_cells(place).to_pylist()] == [row[place] for row in rows]
        assert set(cut.column_cells(len(table[0])).to_pylist()) <= {None}


@pytest.mark.parametrize("seed", range(5))
def test_cutting_each_line_by_itself_finds_the_same(seed: int, tmp_path) -> None:
    table = random_table(seed, 80, LETTERS[LETTERS != "\n"])
    names = [f"c{place}" for place in range(len(table[0]))]
    (tmp_path / "t.csv").write_text("".join(written([names, *table], "\n")), encoding="utf-8", newline="")
    types = dict.fromkeys(names, "text")

    both = [
        pa.Table.from_batches(Dataset(tmp_path / "t.csv", types=types, lines_are_rows=each).batches(names))
        for each in (True, False)
    ]

    assert both[0].to_pylist() == both[1].to_pylist()
    assert [[text or "" for text in row.values()] for row in both[0].to_pylist()] == table


def test_records_that_are_short_long_blank_or_lost() -> None:
    lines = pa.array(["1,2\n", "3\n", None, "\r\n", "4,5,6,7\n", ',""\n', ",\n", "8,9"])
    cut = CutRecords(lines, ",")

    assert cut.column_cells(0).to_pylist() == ["1", "3", None, "4", None, None, "8"]
    assert cut.column_cells(1).to_pylist() == ["2", None, None, "5", "", None, "9"]
    assert cut.whole_records().to_pylist() == ["1,2", "3", None, "4,5,6,7", ',""', ",", "8,9"]
    assert CutRecords(pa.nulls(2, pa.string()), ",").column_cells(1).to_pylist() == [None, None]


def test_a_line_end_is_taken_off_once() -> None:
    cut = CutRecords(pa.array(["1,x\r\r\n", '2,"y\r\n"\r\n', "3,z\r"]), ",")

    assert cut.column_cells(1).to_pylist() == ["x\r", "y\r\n", "z"]


@pytest.mark.parametrize("lines_are_rows", [True, False])
def test_a_number_that_is_not_whole_is_no_integer_and_no_other_id(lines_are_rows: bool, tmp_path) -> None:
    cells = {
        "7": 7,
        " +7": 7,
        "-7": -7,
        "7.0": 7,
        '"7"': 7,
        "7.4": None,
        "6.6": None,
        "7e0": None,
        "7_0": None,
        "0x7": None,
    }
    cells |= {str(2**63 - 1): 2**63 - 1, str(2**63): None, "": None, "x": None}
    (tmp_path / "t.csv").write_text("id,b\n" + "".join(f"{cell},b\n" for cell in cells), encoding="utf-8")

    dataset = Dataset(tmp_path / "t.csv", types={"id": "integer"}, lines_are_rows=lines_are_rows)

    assert pa.Table.from_batches(dataset.batches(["id"])).column("id").to_pylist() == list(cells.values())
