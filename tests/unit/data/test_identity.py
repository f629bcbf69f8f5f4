"""Rows get the same words if and only if their ids are equal."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Unit
from expost.data.identity import mix, unit_words, widened

NOW = 1_700_000_000_000_000_000


def identities(column: pa.Array) -> list[int | None]:
    """The number of the first row with the same words, or None where a row belongs to nobody."""
    words, known = unit_words(Unit.of("who"), pa.record_batch({"who": column}), {}, b"key")
    names = list(zip(*(word.tolist() for word in words), strict=True))
    return [names.index(name) if has else None for name, has in zip(names, known, strict=True)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([2**53, 2**53 + 1, None, 2**53]), [0, 1, None, 0]),
        (pa.array([2**64 - 1, 2**64 - 2], pa.uint64()), [0, 1]),
        (pa.array([2**53, 2**53 + 1, 2**53]).dictionary_encode(), [0, 1, 0]),
        (pa.array([0.0, -0.0, float("nan"), None, float("inf"), float("-inf"), 0.1]), [0, 0, None, None, 4, 5, 6]),
        (pa.array([0.1, 0.1, None], pa.float32()), [0, 0, None]),
        (pa.array([Decimal(2**53), Decimal(2**53 + 1), None], pa.decimal128(20, 2)), [0, 1, None]),
        (pa.array(["a", "A", "", None, "a", "a "]), [0, 1, 2, None, 0, 5]),
        (pa.array(["1", "1.0", "01"]), [0, 1, 2]),
        (pa.array([True, False, None, True]), [0, 1, None, 0]),
        (pa.array([NOW, NOW + 1, None, NOW], pa.timestamp("ns")), [0, 1, None, 0]),
        (pa.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None]), [0, 1, None]),
    ],
    ids=["int64", "uint64", "dictionary", "float64", "float32", "decimal", "text", "spelling", "truth", "time", "date"],
)
def test_ids_are_equal_only_where_the_stored_values_are(column: pa.Array, expected: list[int | None]) -> None:
    assert identities(column) == expected


def test_an_integer_has_one_word_whatever_the_width_of_its_column() -> None:
    for kind in (np.int8, np.int16, np.int32, np.int64):
        assert mix(np.array([-3, 7], kind), 5).tolist() == mix(np.array([-3, 7], np.int64), 5).tolist()
    assert widened(np.array([7], np.uint8)).tolist() == widened(np.array([7], np.int64)).tolist() == [7]
