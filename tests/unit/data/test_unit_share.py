"""The rows of one person share one weight, which depends on that person's rows only."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest, TableChanged
from expost.data.unit_share import (
    MOST_ROWS_PER_UNIT,
    RowsOfUnits,
    UnitShares,
    content_of,
    share_weights,
)

SECRET = bytes(range(32))
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=30)


def as_part(rows: list, *, wide: bool = False) -> RowsOfUnits:
    unit = np.array([row[0] for row in rows], np.int64)
    words = [unit.astype(np.uint64) * np.uint64(256), np.zeros(len(rows), np.uint64)] if wide else [unit]
    known = np.array([row[2] for row in rows], bool)
    return RowsOfUnits(words, known, content_of([np.array([row[1] for row in rows], float)], len(rows), SECRET))


def kept_rows(rows: list, most: int, *, cuts: tuple[int, ...] = (), wide: bool = False, memory: int = 1 << 30) -> list:
    """Return (unit, content, weight) of the rows that are kept, in order."""
    edges = [0, *sorted(cuts), len(rows)]
    parts = [rows[start:stop] for start, stop in itertools.pairwise(edges)]
    given_parts = [as_part(part, wide=wide) for part in parts]
    reading = UnitShares(given_parts, most=most, secret=SECRET, memory_limit=memory).start_pass()
    weights = np.concatenate([np.zeros(0), *(reading.next_weights(part) for part in given_parts)])
    reading.finish()
    found = [(row[0], row[1], float(weight)) for row, weight in zip(rows, weights, strict=True) if weight]
    return sorted(found)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(1, 5), st.booleans())
def test_each_unit_keeps_up_to_the_limit_and_weighs_at_most_one(rows: list, most: int, wide: bool) -> None:
    kept = kept_rows(rows, most, wide=wide)

    for unit in range(5):
        mine = [row for row in rows if row[0] == unit and row[2]]
        weights = [weight for owner, _, weight in kept if owner == unit]
        count = min(len(mine), most)
        assert len(weights) == count
        assert sum(map(Fraction, weights), Fraction(0)) <= 1
        assert float(np.sum(np.array(weights, np.float32), dtype=np.float32)) <= 1
        assert not mine or sum(weights) > 1 - 1e-5


@settings(max_examples=150, deadline=None)
@given(ROWS, ROWS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_another_units_rows_order_and_batches_change_nothing(rows: list, more: list, most: int, random) -> None:
    added = [(9, row[1], row[2]) for row in more]
    mixed = rows + added
    random.shuffle(mixed)
    cut = random.randint(0, len(mixed))

    before = kept_rows(rows, most)
    after = kept_rows(mixed, most, cuts=(cut,))

    assert [row for row in after if row[0] != 9] == before
    assert [row for row in after if row[0] == 9] == kept_rows(added, most)


def test_rows_that_do_not_fit_into_memory_are_kept_alike() -> None:
    rng = np.random.default_rng(0)
    unit, value = rng.integers(0, 60_000, 300_000), rng.integers(0, 50, 300_000).astype(float)
    part = RowsOfUnits([unit], np.ones(len(unit), bool), content_of([value], len(unit), SECRET))

    weights = [
        UnitShares([part], most=3, secret=SECRET, memory_limit=limit).start_pass().next_weights(part)
        for limit in (1 << 40, 1 << 20)
    ]

    assert np.array_equal(*weights)
    sums = np.bincount(unit, weights[0].astype(float))
    assert sums.max() <= 1 and np.bincount(unit, weights[0] > 0).max() == 3


def test_the_choice_is_uniform_over_secrets() -> None:
    part = RowsOfUnits([np.zeros(4, np.int64)], np.ones(4, bool), content_of([np.arange(4.0)], 4, b""))
    counts = np.zeros(4)
    for seed in range(2000):
        shares = UnitShares([part], most=1, secret=seed.to_bytes(32, "little"))
        counts += shares.start_pass().next_weights(part)

    assert counts.sum() == 2000
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    "changed",
    [
        [(0, 1, True)],
        [(0, 1, True), (1, 2, True), (1, 2, True)],
        [(0, 2, True), (1, 1, True)],
        [(0, 1, True), (7, 2, True)],
        [(0, 1, True), (1, 2, False)],
    ],
)
def test_a_table_that_changed_is_noticed(changed: list) -> None:
    shares = UnitShares([as_part([(0, 1, True), (1, 2, True)])], most=2, secret=SECRET)
    reading = shares.start_pass()
    reading.next_weights(as_part(changed))

    with pytest.raises(TableChanged):
        reading.finish()


def test_a_table_without_rows_or_without_ids_has_no_weights() -> None:
    empty, unknown = as_part([]), as_part([(1, 1, False)])

    for parts in ([], [empty], [unknown]):
        reading = UnitShares(parts, most=2, secret=SECRET).start_pass()
        assert [reading.next_weights(part).tolist() for part in parts] == [[0.0] * len(part.known) for part in parts]
        reading.finish()


def test_weights_are_on_a_grid_that_float32_adds_exactly() -> None:
    weights = share_weights(MOST_ROWS_PER_UNIT)

    rows = np.arange(1, MOST_ROWS_PER_UNIT + 1)
    steps = weights[1:].astype(np.float64) * 2**24
    assert np.array_equal(steps, np.floor(steps))
    assert (steps * rows <= 2**24).all() and (steps * rows > 2**24 - rows).all()
    for many in (3, 10, 1000):
        total = np.float32(0)
        for _ in range(many):
            total += weights[many]
        assert float(total) == many * float(weights[many]) <= 1


def test_contents_have_one_zero_and_one_missing_number() -> None:
    quiet, other = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    words = content_of([np.array([0.0, -0.0, quiet, other, 1.0])], 5, SECRET)

    assert words[0] == words[1] and words[2] == words[3]
    assert len(set(words.tolist())) == 3


def test_limits_that_cannot_be_kept_are_refused_and_secrets_stay_here() -> None:
    for most in (0, MOST_ROWS_PER_UNIT + 1):
        with pytest.raises(InvalidRequest, match="max_rows_per_unit"):
            UnitShares([], most=most, secret=SECRET)
    shares = UnitShares([as_part([(3, 1, True)])], most=1, secret=SECRET)
    assert repr(shares) == "<weights of private rows>"
    with pytest.raises(TypeError):
        shares.__reduce__()
