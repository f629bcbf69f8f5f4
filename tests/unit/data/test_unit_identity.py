"""Rows get the same words if and only if their ids are equal."""

import datetime
import hashlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Unit
from expost.data import unit_identity
from expost.data.unit_identity import content_words, mix_words, text_words, unit_words, widen_words

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
        assert mix_words(np.array([-3, 7], kind), 5).tolist() == mix_words(np.array([-3, 7], np.int64), 5).tolist()
    assert widen_words(np.array([7], np.uint8)).tolist() == widen_words(np.array([7], np.int64)).tolist() == [7]


def _reference(text: bytes, key: bytes) -> tuple[int, int]:
    """The two words by the formula of the proof, piece by piece."""
    if len(text) >= unit_identity._LONG:
        secret = hashlib.sha256(b"expost long text" + key).digest()
        digest = hashlib.blake2b(text, digest_size=16, key=secret).digest()
        return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    pieces = [int.from_bytes(text[k : k + 4], "little") for k in range(0, len(text), 4)]
    stream = hashlib.shake_256(b"expost unit words" + key).digest(32 * (len(pieces) + 2))
    keys = np.frombuffer(stream, np.uint64).reshape(-1, 4).tolist()
    lanes = [
        (keys[0][lane] + keys[1][lane] * len(text) + sum(k[lane] * p for k, p in zip(keys[2:], pieces, strict=True)))
        % 2**64
        >> 32
        for lane in range(4)
    ]
    return lanes[0] << 32 | lanes[1], lanes[2] << 32 | lanes[3]


@pytest.mark.parametrize("run", [7, 1 << 20])
def test_a_text_has_the_words_of_the_formula_whatever_stands_around_it(run: int, monkeypatch) -> None:
    monkeypatch.setattr(unit_identity, "_RUN", run)
    lengths = [0, 1, 3, 4, 5, 7, 63, 64, 65, 66, 68, 69, 200, 1003, 4095, 4096, 4097, 9001]
    texts = [("ab\0ü9" * 4000).encode()[:length].decode("utf-8", "ignore") for length in lengths]
    around = [*texts, *(f"p{k}" for k in range(200)), *reversed(texts)]
    column = pa.array([None, *around, "end"], pa.large_string())[1:-1]

    first, second = text_words(column, b"key")

    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [_reference(t.encode(), b"key") for t in around]


def test_a_long_text_costs_time_for_its_own_bytes_only(monkeypatch) -> None:
    """Structure: however long one text is, the others are not read again for it."""
    read = 0
    whole = unit_identity._piece

    def counted(data, starts, lengths, piece):
        nonlocal read
        read += np.broadcast(starts, piece).size
        return whole(data, starts, lengths, piece)

    monkeypatch.setattr(unit_identity, "_piece", counted)
    short = [f"p{k:06}" for k in range(5000)]
    for length in (10, 100, 1000, 4000, 100_000, 1_000_000):
        read = 0
        text_words(pa.array([*short, "x" * length], pa.large_string()), b"key")
        pieces = 2 * len(short) + (length // 4 if length < unit_identity._LONG else 0)
        assert read <= 2 * pieces


def test_the_content_word_of_a_cell_does_not_depend_on_its_column() -> None:
    for cells in (["b", "", "x" * 5000], [3, -1, 2**62], [0.5, -0.0, 1e300], [True, False]):
        column = pa.array(cells)
        alone = [int(content_words(column[k : k + 1], b"s")[0]) for k in range(len(cells))]
        assert content_words(column, b"s").tolist() == alone
    assert content_words(pa.array([0.0, -0.0]), b"s").tolist()[0] == content_words(pa.array([-0.0]), b"s").tolist()[0]
