"""Each unit keeps a uniformly random part of its rows, decided by its own rows alone."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from expost.data import bounding
from expost.data.bounding import Atoms, Limits, bound_contributions
from expost.data.unit_identity import mix_words, text_words


def atoms(units, cells, values) -> Atoms:
    words = [np.array(units, dtype=np.uint64)]
    return Atoms(words, np.array(cells, dtype=np.int64), np.array(values, dtype=float).reshape(1, -1))


def rows(kept: Atoms) -> Counter:
    """The rows as a multiset."""
    return Counter(zip(kept.words[0].tolist(), kept.cell.tolist(), kept.steps[0].tolist(), strict=True))


def without_values(table, limits):
    """Units counted once per group have nothing measured: the questions that use ``once`` only count."""
    return [(unit, cell, 0) for unit, cell, _ in table] if limits.once else table


TABLES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=40)
LIMITS = st.builds(
    Limits,
    groups=st.none() | st.integers(1, 3),
    rows=st.none() | st.integers(1, 5),
    once=st.booleans(),
    rows_per_group=st.none() | st.integers(1, 3),
)


@settings(max_examples=80)
@given(TABLES, LIMITS, st.randoms())
def test_limits_hold_and_order_does_not_matter(table, limits, shuffler) -> None:
    table = without_values(table, limits)
    kept = rows(bound_contributions(atoms(*zip(*table, strict=True)), limits, b"secret"))
    shuffled = list(table)
    shuffler.shuffle(shuffled)

    assert rows(bound_contributions(atoms(*zip(*shuffled, strict=True)), limits, b"secret")) == kept
    assert not kept - Counter(table)
    for unit in {row[0] for row in table}:
        mine = [row for row in kept.elements() if row[0] == unit]
        assert limits.rows is None or len(mine) <= limits.rows
        assert limits.groups is None or len({row[1] for row in mine}) <= limits.groups
        assert not limits.once or len(mine) == len({row[1] for row in mine})
        assert limits.rows_per_group is None or max(Counter(row[1] for row in mine).values()) <= limits.rows_per_group


@settings(max_examples=60)
@given(TABLES, LIMITS)
def test_what_a_unit_keeps_does_not_depend_on_the_others(table, limits) -> None:
    table = without_values(table, limits)
    everyone = rows(bound_contributions(atoms(*zip(*table, strict=True)), limits, b"secret"))
    without = [row for row in table if row[0] != 0]
    kept = rows(bound_contributions(atoms(*zip(*without, strict=True)), limits, b"secret")) if without else Counter()

    assert Counter({row: n for row, n in everyone.items() if row[0] != 0}) == kept


@settings(max_examples=60)
@given(TABLES, st.integers(1, 5))
def test_a_unit_within_its_limit_keeps_everything(table, most) -> None:
    kept = rows(bound_contributions(atoms(*zip(*table, strict=True)), Limits(rows=most), b"secret"))
    sizes = Counter(row[0] for row in table)

    for row, count in Counter(table).items():
        if sizes[row[0]] <= most:
            assert kept[row] == count
    for unit, size in sizes.items():
        assert sum(n for row, n in kept.items() if row[0] == unit) == min(size, most)


def _chosen(limits: Limits, table, secrets: int) -> Counter:
    found: Counter = Counter()
    for secret in range(secrets):
        found[
            tuple(
                sorted(
                    rows(
                        bound_contributions(atoms(*zip(*table, strict=True)), limits, secret.to_bytes(8, "little"))
                    ).elements()
                )
            )
        ] += 1
    return found


def test_rows_are_drawn_uniformly_even_where_some_are_equal() -> None:
    # Nine equal rows and one other; keeping one row must keep the other one in a tenth of the draws.
    table = [(1, 0, 0)] * 9 + [(1, 0, 1)]
    other = _chosen(Limits(rows=1), table, 2000)[((1, 0, 1.0),)]

    assert scipy_stats.binomtest(other, 2000, 0.1).pvalue > 1e-6
    assert scipy_stats.binomtest(other, 2000, 0.5).pvalue < 1e-6  # what drawing *contents* would give


def test_subsets_of_rows_and_of_groups_are_equally_likely() -> None:
    table = [(1, cell, 0) for cell in range(5)]
    within = [(1, 0, value) for value in range(5)]

    for some, limits in ((table, Limits(rows=2)), (table, Limits(groups=2)), (within, Limits(rows_per_group=2))):
        found = _chosen(limits, some, 2500)
        assert len(found) == 10
        assert scipy_stats.chisquare(list(found.values())).pvalue > 1e-6


def test_priorities_that_agree_in_their_packed_digits_are_told_apart() -> None:
    # Over a million units leave few digits for priorities; ties are then broken by the whole of them.
    rng = np.random.default_rng(5)
    units = rng.integers(0, 2**40, 300_000).repeat(4).astype(np.uint64)
    cells = np.tile(np.arange(4), 300_000)
    kept = bound_contributions(Atoms([units], cells, np.zeros((0, len(units)))), Limits(groups=2), b"secret")

    assert len(kept) == 600_000
    assert scipy_stats.chisquare(np.bincount(kept.cell)).pvalue > 1e-6


def test_several_words_name_a_unit_together() -> None:
    words = [np.array([1, 1, 2, 2], np.uint64), np.array([5, 6, 5, 5], np.uint64)]
    kept = bound_contributions(Atoms(words, np.zeros(4, np.int64), np.zeros((0, 4))), Limits(rows=1), b"s")

    assert sorted(zip(*(word.tolist() for word in kept.words), strict=True)) == [(1, 5), (1, 6), (2, 5)]


def test_mixing_is_a_permutation() -> None:
    words = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)

    assert len(np.unique(mix_words(words, 12345))) == len(words)


@pytest.mark.parametrize("lane", [0, 1])
def test_texts_are_told_apart_and_padding_does_not_fool_them(lane: int) -> None:
    import pyarrow as pa

    texts = pa.array(["", "a", "a\0", "a\0\0\0\0", "ab", "abcd", "abcde", "b", None, "a"], pa.large_string())
    words = text_words(texts, b"key")[lane]

    assert len(set(words[:8].tolist())) == 8
    assert words[1] == words[9]
    assert text_words(texts.slice(1, 3), b"key")[lane].tolist() == words[1:4].tolist()
    assert text_words(texts, b"other")[lane][1] != words[1]


def test_text_words_spread_evenly() -> None:
    import pyarrow as pa

    texts = pa.array([f"N{k:05d}" for k in range(20_000)], pa.large_string())
    high, low = text_words(texts, b"key")

    assert len(np.unique(high)) == len(np.unique(low)) == 20_000
    for word in (high, low):
        for shift in (0, 28, 56):
            counts = np.bincount(((word >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256)
            assert scipy_stats.chisquare(counts).pvalue > 1e-8


def test_units_and_groups_that_agree_in_their_first_digits_are_told_apart(monkeypatch) -> None:
    rng = np.random.default_rng(9)
    units, cells, values = rng.integers(0, 300, 6000), rng.integers(0, 40, 6000), rng.integers(0, 5, 6000)
    every = Limits(groups=3, rows=4, rows_per_group=2)
    for limits in (every, Limits(groups=3, rows=4), Limits(groups=2, once=True), Limits(rows=5, once=True)):
        table = atoms(units, cells, np.zeros(6000) if limits.once else values)
        expected = rows(bound_contributions(table, limits, b"secret"))
        for digits in (2, 61):  # hardly a digit for the groups, hardly one for the units
            monkeypatch.setattr(bounding, "_DIGITS", np.uint64(digits))
            monkeypatch.setattr(bounding, "_LOW_DIGITS", np.uint64((1 << digits) - 1))
            assert rows(bound_contributions(table, limits, b"secret")) == expected
        monkeypatch.undo()


@pytest.mark.parametrize("width", [np.int16, np.int32, np.int64])
def test_an_id_keeps_the_same_rows_however_wide_its_column_is(width) -> None:
    rng = np.random.default_rng(2)
    units, cells = rng.integers(-20, 20, 2000), rng.integers(0, 9, 2000)
    narrow = Atoms([units.astype(width)], cells.astype(np.uint16), np.zeros((1, 2000), np.uint32))
    wide = Atoms([units.astype(np.int64)], cells.astype(np.uint64), np.zeros((1, 2000)))

    assert rows(bound_contributions(narrow, Limits(groups=3, rows=5), b"s")) == rows(
        bound_contributions(wide, Limits(groups=3, rows=5), b"s")
    )


def test_rows_beyond_the_total_are_drawn_uniformly_from_those_that_groups_keep() -> None:
    # Two rows of each of three groups are kept, then three of these six: each group keeps one row on average.
    table = [(1, cell, value) for cell in range(3) for value in range(4)]
    found = _chosen(Limits(rows=3, rows_per_group=2), table, 2000)
    rows_of = Counter(row for kept, times in found.items() for row in kept for _ in range(times))

    assert all(len(kept) == 3 for kept in found)
    assert scipy_stats.chisquare(list(rows_of.values())).pvalue > 1e-6 and len(rows_of) == 12
    together = sum(times for kept, times in found.items() if len({cell for _, cell, _ in kept}) == 3)
    assert scipy_stats.binomtest(together, 2000, 8 / 20).pvalue > 1e-6  # 2 * 2 * 2 of the 20 triples of six rows


@pytest.mark.parametrize(
    "limits", [Limits(rows=3), Limits(groups=2), Limits(groups=2, rows=3), Limits(rows=4, rows_per_group=2)]
)
def test_contents_that_share_a_hash_are_chosen_by_the_units_own_rows(limits: Limits) -> None:
    """All groups get one word: what is left to decide is decided by contents, not by where a sort left the rows."""
    rng = np.random.default_rng(3)
    table = [(int(u), int(c), 0) for u, c in zip(rng.integers(0, 50, 900), rng.integers(0, 12, 900), strict=True)]

    def kept(some: list[tuple[int, int, int]]) -> Counter:
        return rows(
            bound_contributions(
                atoms(*zip(*some, strict=True)), limits, b"s", lambda cell: np.zeros(len(cell), np.uint64)
            )
        )

    everyone = kept(table)
    assert kept([table[place] for place in rng.permutation(900)]) == everyone
    for unit in (0, 7, 49):
        alone, others = ([row for row in table if (row[0] == unit) is mine] for mine in (True, False))
        assert kept(alone) + kept(others) == everyone
