"""Texts in ISO format are read as times where a time is declared; any other text is missing, and none raises."""

import datetime

import pytest

from expost.data.untyped_table import lists_to_table


@pytest.mark.parametrize(
    ("cell", "moment"),
    [
        ("2024-02-29", datetime.datetime(2024, 2, 29)),
        (" 2024-02-29 13:05:07 ", datetime.datetime(2024, 2, 29, 13, 5, 7)),
        ("2024-02-29T13:05:07+02:00", datetime.datetime(2024, 2, 29, 11, 5, 7)),
        (datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29)),
        ("2023-02-29", None),
        ("yesterday", None),
        ("", None),
        (20240229, None),
        ("\ud800", None),
    ],
)
def test_a_cell_is_read_as_a_moment_or_is_missing(cell, moment) -> None:
    table = lists_to_table({"when": [cell, None]}, {"when": "time"})

    assert table.column("when").to_pylist() == [moment, None]
