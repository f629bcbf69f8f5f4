"""Rows are known by what stands in them: one row changes its own part only, in any order and any batches."""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse

from expost.core import TableChanged
from expost.data import row_identity, unit_ball
from expost.data.row_identity import Mark, RowIdentity, row_coins
from expost.data.row_source import KeyedRows, RowSource, read_rows, split_rows
from expost.data.unit_ball import UnitBall, UnitRows, grid_numbers

KEY = bytes(range(32))
Table = np.ndarray


def disorderly(table: Table, seed: int) -> RowSource:
    """A source whose every reading has another order and other batches; the last column is the target."""
    rng = np.random.default_rng(seed)

    def read() -> Iterator[tuple[Table, Table]]:
        shuffled = table[rng.permutation(len(table))]
        cuts = np.sort(rng.integers(0, len(table) + 1, 5))
        for part in np.split(shuffled, cuts):
            yield part[:, :-1], part[:, -1]

    return RowSource(len(table), table.shape[1] - 1, None, read)


def sides(table: Table, seed: int, *, key: bytes = KEY, every: int = 3) -> tuple[Counter, Counter]:
    """The rows of either part, as multisets, each read twice."""
    parts = split_rows(KeyedRows.of(disorderly(table, seed), key), every)
    found = []
    for part in parts * 2:
        rows = [np.column_stack([features, target]) for features, target in part.read()]
        found.append(Counter(map(tuple, np.concatenate(rows).tolist())))
    assert found[:2] == found[2:]
    return found[0], found[1]


def crowded(seed: int, rows: int = 60) -> Table:
    """A table of few different rows, most of them several times."""
    return np.random.default_rng(seed).integers(0, 3, (rows, 3)).astype(float)


@pytest.mark.parametrize("seed", range(20))
def test_one_row_more_changes_its_own_part_only(seed: int) -> None:
    table = crowded(seed)
    extra = np.random.default_rng(seed + 1).integers(0, 4, 3).astype(float)
    before, after = sides(table, 1, every=2 + seed % 4), sides(np.vstack([extra, table]), 2, every=2 + seed % 4)

    gained = [now - then for then, now in zip(before, after, strict=True)]
    lost = [then - now for then, now in zip(before, after, strict=True)]

    assert sum(gained, Counter()) == Counter([tuple(extra)])
    assert not sum(lost, Counter())
    assert before[0] + before[1] == Counter(map(tuple, table.tolist()))


@pytest.mark.parametrize("seed", range(20))
def test_a_replaced_row_stays_in_its_part_or_leaves_one_and_joins_the_other(seed: int) -> None:
    table, other = crowded(seed), crowded(seed)
    other[seed] = [5.0, 5.0, seed % 2]

    before, after = sides(table, 3), sides(other, 4)

    changed = [sum(((now - then) + (then - now)).values()) for then, now in zip(before, after, strict=True)]
    assert sorted(changed) in ([0, 2], [1, 1])


def test_names_that_merge_different_rows_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Theorem 1 assumes: with one name for all rows their order decides who is where.
    one_name = np.array([b"the same for all"])
    monkeypatch.setattr(RowIdentity, "name_rows", lambda self, blocks: one_name.repeat(len(blocks[0])))

    with pytest.raises(AssertionError):
        sides(crowded(0), 1)


@pytest.mark.parametrize("every", [2, 5])
def test_few_different_rows_are_dealt_evenly(every: int) -> None:
    table = np.repeat([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]], 10_000, axis=0)

    _, tested = sides(table, 1, every=every)

    # Six standard deviations: 2e-9 for each of the two rows.
    spread = 6 * np.sqrt(10_000 / every * (1 - 1 / every))
    assert all(abs(tested[row] - 10_000 / every) < spread for row in [(0.0, 1.0, 0.0), (1.0, 0.0, 1.0)])


def test_coins_of_rows_and_of_copies_are_uniform_and_differ_between_keys() -> None:
    unique, copies = np.arange(40_000.0), np.zeros(40_000)
    for column in (unique, copies):
        coins, _ = row_coins([[column]], 7)
        others, _ = row_coins([[column]], 8)
        counts = np.bincount((coins >> np.uint64(60)).astype(int), minlength=16)
        assert ((counts - 2500) ** 2 / 2500).sum() < 70  # 15 degrees of freedom: 1e-8
        pairs = np.bincount((coins >> np.uint64(63)).astype(int) * 2 + (others >> np.uint64(63)).astype(int))
        assert ((pairs - 10_000) ** 2 / 10_000).sum() < 45  # 3 degrees of freedom: 1e-9
        assert len(np.unique(coins)) == len(coins)


def test_one_value_has_one_name() -> None:
    identity = RowIdentity(KEY)
    odd = np.array([0xFFF8000000000001, 0x7FF8000000000000, 0x7FF0000000000001], np.uint64).view(np.float64)
    zeros = np.array([0.0, -0.0])

    assert len(set(identity.name_rows([odd]).tolist())) == 1
    assert len(set(identity.name_rows([zeros]).tolist())) == 1
    assert len({*identity.name_rows([np.array([0.0, np.nan, 1.0, 5e-324, np.inf, -np.inf])]).tolist()}) == 6


def test_a_name_does_not_depend_on_type_batch_or_storage() -> None:
    identity, table = RowIdentity(KEY), np.random.default_rng(0).integers(-3, 3, (500, 40))
    expected = identity.name_rows([table.astype(np.float64), table[:, 0]])

    objects = table.astype(object)
    for stored in (table, table.astype(np.int16), scipy.sparse.csr_matrix(table), objects, table.astype(np.float32)):
        assert (identity.name_rows([stored, table[:, 0].astype(float)]) == expected).all()
    assert (identity.name_rows([table[7:8], table[7:8, 0]]) == expected[7]).all()
    assert (RowIdentity(KEY[::-1]).name_rows([table, table[:, 0]]) != expected).all()


def test_a_multilinear_hash_merges_no_more_than_the_lemma_says() -> None:
    # The lemma with 8 bits for 64 and 4 for 32, over all keys and all differences: at most 2^-3.
    constants, key = np.arange(256), np.arange(256)
    for difference, other in itertools.product([*range(-15, 0), *range(1, 16)], range(16)):
        first = constants[:, None] + key * max(0, -difference) + 3 * other
        second = first + key * difference
        assert (((first & 255) >> 4) == ((second & 255) >> 4)).mean() <= 2**-3


def merged_names(rows: int) -> float:
    """Bound the probability that two different rows of so many share a name (docs/proofs/row-identity.md, Lemma 1)."""
    return rows * (rows - 1) / 2 * 2.0 ** (-31 * row_identity._LANES)


def test_merged_names_are_as_rare_as_the_page_says() -> None:
    assert merged_names(10**9) < 2.5e-20
    assert merged_names(10**12) < 2.5e-14  # the most rows that a training may declare
    assert merged_names(1) == 0


def test_rows_that_differ_least_have_different_names() -> None:
    # Single bits of one value, the case in which the lemma's bound is reached.
    words = np.uint64(1) << np.arange(62, dtype=np.uint64)
    values = np.append(words, np.uint64(0)).view(np.float64)
    for seed in range(50):
        names = RowIdentity(seed.to_bytes(32, "little")).name_rows([values])
        assert len(set(names.tolist())) == 63


@pytest.mark.parametrize("change", ["one cell", "one row less", "one row more", "one row twice, another one lost"])
def test_a_table_that_changes_between_readings_is_refused(change: str) -> None:
    table = np.random.default_rng(0).normal(size=(300, 3))
    later = {
        "one cell": np.vstack([table[:-1], table[-1] + [0, 0, 1]]),
        "one row less": table[:-1],
        "one row more": np.vstack([table, table[:1]]),
        "one row twice, another one lost": np.vstack([table[:-1], table[:1]]),
    }[change]
    readings = itertools.chain([table, table], itertools.repeat(later))
    source = RowSource(300, 2, None, lambda: iter([(now := next(readings))[:, :2], now[:, 2]] for _ in range(1)))

    first, second = split_rows(KeyedRows.of(source, KEY), 5)

    assert sum(len(target) for _, target in first.read()) < 300
    with pytest.raises(TableChanged, match="Cannot finish because the rows of the table changed"):
        list(second.read())


@pytest.mark.parametrize("changes", [False, True])
def test_unit_rows_read_twice_must_be_the_same_in_any_order(changes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_ball, "_CACHED_VALUES", 0)
    table = np.random.default_rng(0).uniform(-1, 1, (300, 3))
    source = disorderly(table, 5)
    rows = UnitRows(source, UnitBall(2), grid_numbers(1.0))
    list(rows.chunks())
    list(rows.chunks())
    if changes:
        table[17, 1] += 0.5
        with pytest.raises(TableChanged):
            list(rows.chunks())
    else:
        list(rows.chunks())


def test_a_mark_says_nothing_and_survives_as_a_text_of_one_length() -> None:
    marks = [Mark(), Mark(10**9, 2**128 - 1), row_coins([[np.arange(5.0)]], 1)[1]]

    assert [Mark.from_text(mark.to_text()) for mark in marks] == marks
    assert len({len(mark.to_text()) for mark in marks}) == 1
    assert {repr(mark) for mark in marks} == {"<mark of private rows>"}


def test_split_rows_are_disjoint_and_complete() -> None:
    x = np.arange(20_003.0)[:, None]
    first, second = split_rows(KeyedRows.of(read_rows(x, x[:, 0]), KEY), 7)

    seen = [np.concatenate([features[:, 0] for features, _ in part.read()]) for part in (first, second)]

    assert abs(len(seen[1]) - 20_003 / 7) < 6 * np.sqrt(20_003 / 7)
    assert sorted(np.concatenate(seen)) == list(range(20_003))
    assert first.rows == second.rows == 20_003  # how many a part has is private
