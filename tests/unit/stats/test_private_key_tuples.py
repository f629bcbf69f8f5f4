"""Private keys of several columns: combinations of values that enough units have."""

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost.core import InvalidRequest
from expost.data import Dataset, col
from expost.data.axis import KeyTuples
from expost.data.canonical_cell import canonical_column
from expost.noise import SeededBits
from expost.stats import Count, CountByPrivateKeys, Mean, Median, PrivateKeys, Sum

RANDOM = np.random.default_rng(5)
SIZE = 3000
TABLE = pa.table(
    {
        "city": RANDOM.choice(["Oslo", "Ro\x1fme", "Ri\x1e1ga"], SIZE),
        "job": RANDOM.integers(0, 2, SIZE),
        "rate": RANDOM.choice([0.1, 1e20, -2.0], SIZE),
        "price": pa.array([Decimal(int(cents)) / 100 for cents in RANDOM.integers(0, 2, SIZE)], pa.decimal128(10, 2)),
        "old": RANDOM.choice([True, False], SIZE),
        "who": RANDOM.integers(0, 500, SIZE),
        "pay": RANDOM.uniform(0, 10, SIZE),
    }
)
PEOPLE = Dataset(TABLE, name="people", bounds={"pay": (0, 10)}, categories={"old": [False, True]})
KEYS: dict[str, Any] = {"epsilon": 20, "delta": 1e-6}


def ask(question: Any, dataset: Dataset = PEOPLE) -> Any:
    plan = question.plan(dataset)
    return plan.climb(plan.measure(dataset), SeededBits(1))


@pytest.mark.parametrize("columns", [["city", "job"], ["rate", "price"], ["old", "rate", "city"], ["price", "old"]])
def test_keys_are_tuples_of_the_stored_values(columns: list[str]) -> None:
    exact = Counter(zip(*(TABLE[name].to_pylist() for name in columns), strict=True))

    assert ask(PrivateKeys(columns, **KEYS)).value == tuple(sorted(exact))
    counts = ask(Count(by=PrivateKeys(columns, **KEYS), epsilon=20)).value
    assert counts.columns == tuple(columns)
    assert dict(counts) == pytest.approx(dict(exact), abs=3)


def test_a_rare_combination_of_common_values_is_not_shown() -> None:
    table = pa.table({"a": ["x"] * 500 + ["y"] * 500 + ["x"], "b": [1] * 500 + [2] * 500 + [2]})
    question = PrivateKeys(["a", "b"], epsilon=1, delta=1e-9)

    for seed in range(20):
        plan = question.plan(Dataset(table))
        assert plan.climb(plan.measure(Dataset(table)), SeededBits(seed)).value == (("x", 1), ("y", 2))


def test_rows_with_a_missing_part_have_no_key() -> None:
    table = pa.table({"a": ["x", None] * 300, "b": [1.0, 2.0, float("nan")] * 200})

    assert ask(PrivateKeys(["a", "b"], **KEYS), Dataset(table)).value == (("x", 1.0), ("x", 2.0))


def test_other_statistics_and_public_groups_go_with_tuples() -> None:
    pair = PrivateKeys(["city", col("job") + 1], **KEYS)
    for question in (Sum("pay", by=pair, epsilon=20), Median("pay", by=pair, epsilon=20)):
        assert [len(label) for label in ask(question).value] == [2] * 6
    mixed = ask(Mean("pay", by=["old", pair], epsilon=20))

    assert mixed.value.columns == ("old", "city", "(job + 1)")
    assert next(iter(mixed.value)) == (False, "Oslo", 1.0)
    assert len(mixed.value) == 12
    assert "mean of pay by old, private city, (job + 1)" in Mean("pay", by=["old", pair], epsilon=20).question


def test_a_session_counts_by_tuples_and_bounds_the_groups_of_a_person() -> None:
    people = Dataset(TABLE, name="people", unit="who", max_rows_per_unit=4, max_groups_per_unit=2)
    session = expost.Session(people, expost.approx(100, 1e-3), bits=SeededBits(1), simulation=True)
    counts = session.count_by_private_keys(["city", "job"], epsilon=40, delta=1e-6)

    assert counts.value.columns == ("city", "job")
    assert 500 < sum(counts.value.values()) <= 2000
    assert len(session.private_keys(["city"], epsilon=10, delta=1e-6).value) == 3
    assert session.private_keys("city", epsilon=10, delta=1e-6).value[0] == "Oslo"


def test_no_key_shown_still_names_the_columns() -> None:
    rare = Dataset(pa.table({"a": ["x", "y"], "b": [1, 2]}))
    counts = ask(CountByPrivateKeys(["a", "b"], epsilon=1, delta=1e-6), rare).value

    assert (len(counts), counts.columns) == (0, ("a", "b"))
    assert ask(PrivateKeys(["a", "b"], epsilon=1, delta=1e-6), rare).value == ()


@pytest.mark.parametrize("columns", [[], [3], 3, ["a", ["b"]]])
def test_what_is_not_a_list_of_columns_is_refused(columns: Any) -> None:
    with pytest.raises(InvalidRequest):
        PrivateKeys(columns, epsilon=1, delta=1e-6)


def test_different_keys_are_different_texts_and_find_their_rows() -> None:
    texts = ["", "a", "\x1f", "\x1e", "\x1e0", "\x1e1", "\x1f\x1e", "a\x1f", "\x1fa", "0", "1"]
    pairs = [(left, right) for left in texts for right in texts]
    left, right = (canonical_column(pa.array(part)) for part in zip(*pairs, strict=True))
    axis = KeyTuples.of_keys((col("l"), col("r")), (pa.large_string(), pa.large_string()), pairs)

    assert len(set(axis.values)) == len(pairs)
    assert axis.codes(pa.record_batch({"l": left, "r": right}), {}).tolist() == list(range(len(pairs)))
    assert axis.labels == tuple(pairs)
