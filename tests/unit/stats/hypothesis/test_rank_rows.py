import itertools
import math
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.stats.hypothesis.ranked_laws import law_distance, ranked_law

from expost.core import Adjacency, InvalidRequest, Unit
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats.hypothesis import KruskalWallisTest, MannWhitneyTest, SignedRankTest, mann_whitney_test
from expost.stats.hypothesis.kruskal_wallis import spread_sensitivity
from expost.stats.hypothesis.mann_whitney import score_sensitivity, sum_ranks
from expost.stats.hypothesis.rank_rows import RankedRows, rank_labels, subtract_numbers

VALUES = (None, 0.0, 1.0, 2.0)


def two_groups(order):
    return int(sum_ranks(np.array(order), 2)[0])


def three_groups(order):
    return int(np.abs(sum_ranks(np.array(order), 3)).sum())


def tables(rng, groups, rows):
    return [(VALUES[rng.integers(4)], int(rng.integers(groups))) for _ in range(rows)]


@pytest.mark.parametrize("places", [(1, 3), (2, 2), (3, 1)])
def test_one_unit_moves_the_law_of_the_rank_sum_by_at_most_its_sensitivity(places):
    rng, furthest = np.random.default_rng(1), {True: 0, False: 0}
    for _ in range(60):
        table, row = tables(rng, 2, int(rng.integers(1, 5))), tables(rng, 2, 2)
        removed, first, second = (ranked_law(part, places, two_groups) for part in (table, *([*table, r] for r in row)))
        furthest[True] = max(furthest[True], law_distance(removed, first), law_distance(removed, second))
        furthest[False] = max(furthest[False], law_distance(first, second))
    for one_place, found in furthest.items():
        assert found <= score_sensitivity(places, one_place=one_place)


def test_the_sensitivities_of_two_groups_are_reached():
    bottom, top = ([(value, 0), (1.0, 1), (1.0, 1), (1.0, 1)] for value in (0.0, 2.0))
    laws = [ranked_law(table, (1, 3), two_groups) for table in (bottom, top)]

    assert law_distance(*laws) == score_sensitivity((1, 3), one_place=True) == 6

    shared = [(1.0, 0), (2.0, 1), (2.0, 1)]  # a row that leaves its group and enters a full one
    laws = [ranked_law([*shared, (0.0, group)], (2, 2), two_groups) for group in (0, 1)]
    assert law_distance(*laws) == score_sensitivity((2, 2), one_place=False) == 6


@pytest.mark.parametrize("places", [(1, 1, 2), (2, 1, 1), (1, 2, 1)])
def test_one_unit_moves_the_law_of_several_rank_sums_by_at_most_its_sensitivity(places):
    rng = np.random.default_rng(2)
    for _ in range(60):
        table, row = tables(rng, 3, int(rng.integers(1, 5))), tables(rng, 3, 2)
        removed, first, second = (
            ranked_law(part, places, three_groups) for part in (table, *([*table, r] for r in row))
        )
        assert law_distance(removed, first) <= spread_sensitivity(places, one_place=True)
        assert law_distance(first, second) <= spread_sensitivity(places, one_place=False)


@pytest.mark.parametrize("places", [(2, 2, 2), (1, 2, 3), (1, 1, 1, 1, 2), (1, 1, 1, 1, 1, 1)])
def test_two_moved_rows_of_two_groups_move_the_rank_sums_by_at_most_the_bound(places):
    """Every pair of moves of one row each of two groups, in random orders."""
    rng, rows = np.random.default_rng(3), sum(places)
    furthest = {True: 0, False: 0}
    for _ in range(60):
        order = rng.permutation(np.repeat(np.arange(len(places)), places))
        before = sum_ranks(order, len(places))
        for a, to in itertools.product(range(rows), repeat=2):
            moved = np.insert(np.delete(order, a), to, order[a])
            furthest[True] = max(furthest[True], np.abs(sum_ranks(moved, len(places)) - before).sum())
            b, target = rng.integers(rows, size=2)
            if moved[b] != order[a]:
                again = np.insert(np.delete(moved, b), target, moved[b])
                furthest[False] = max(furthest[False], np.abs(sum_ranks(again, len(places)) - before).sum())
    assert furthest[True] <= spread_sensitivity(places, one_place=True)
    assert furthest[False] <= spread_sensitivity(places, one_place=False)
    assert furthest[True] > 0.7 * spread_sensitivity(places, one_place=True)


def test_signed_ranks_move_by_at_most_twice_their_number():
    rng, furthest, rows = np.random.default_rng(4), 0, 5
    ranks = np.arange(1, rows + 1)
    for _ in range(3000):
        signs = rng.choice([-1, 1], rows)
        a, to = rng.integers(rows, size=2)
        moved = np.insert(np.delete(signs, a), to, rng.choice([-1, 1]))
        furthest = max(furthest, abs(int((moved - signs) @ ranks)))
    assert furthest == 2 * rows


def test_ranked_labels_have_the_law_that_the_proof_is_about():
    table = [(1.0, 0), (1.0, 1), (2.0, 1), (0.0, 1), (None, 0)]
    places, runs, bits = (2, 2), 20_000, SeededBits(5)
    values = np.array([math.nan if value is None else value for value, _ in table])
    rows = RankedRows(values, np.array([group for _, group in table]), count=2)
    seen = Counter(two_groups(rows.rank_groups(places, bits)) for _ in range(runs))

    expected = ranked_law(table, places, two_groups)
    assert set(seen) == set(expected)
    for score, chance in expected.items():
        spread = math.sqrt(float(chance * (1 - chance)) / runs)
        assert abs(seen[score] / runs - float(chance)) < 5.5 * spread


def test_rows_of_equal_law_are_in_a_uniform_order_whatever_is_missing():
    """All orders of the groups are equally likely, with rows left out and added."""
    rng, bits, runs = np.random.default_rng(6), SeededBits(6), 20_000
    seen: Counter = Counter()
    for _ in range(runs):
        values = np.round(rng.normal(size=5), 0)
        rows = RankedRows(np.where(rng.random(5) < 0.3, np.nan, values), np.array([0, 0, 0, 1, 1]), count=2)
        seen[tuple(rows.rank_groups((2, 3), bits).tolist())] += 1

    assert len(seen) == math.comb(5, 2)
    assert all(abs(count / runs - 0.1) < 5.5 * math.sqrt(0.09 / runs) for count in seen.values())


def test_the_number_of_drawn_words_depends_on_no_value():
    class Counted(SeededBits):
        drawn = 0

        def words(self, count, *more):
            Counted.drawn += count
            return super().words(count, *more)

    drawn = set()
    for values in (np.arange(6.0), np.zeros(6), np.full(6, np.nan)):
        Counted.drawn = 0
        rows = RankedRows(values, np.array([0, 0, 0, 1, 1, 1]), count=2)
        rows.rank_groups((3, 3), Counted(1))
        RankedRows(values, np.zeros(6, np.int64), count=1).rank_signs(6, Counted(1))
        drawn.add(Counted.drawn)
    assert len(drawn) == 1


@pytest.mark.parametrize("ids", [False, True])
def test_what_is_drawn_follows_rows_and_not_their_places_and_takes_as_many_bits(ids):
    rng = np.random.default_rng(0)
    values, groups = rng.integers(0, 4, 60).astype(float), rng.integers(0, 2, 60)
    words = [rng.integers(0, 9, 60).astype(np.uint64)] if ids else None
    order = rng.permutation(60)
    moved = None if words is None else [word[order] for word in words]
    here, there = (
        RankedRows(values, groups, count=2, words=words),
        RankedRows(values[order], groups[order], count=2, words=moved),
    )
    fewer = RankedRows(values[:40], groups[:40], count=2, words=None if words is None else [words[0][:40]])

    streams = [SeededBits(5) for _ in range(3)]
    drawn = [rows._draw_words(bits, 2) for rows, bits in zip((here, there, fewer), streams, strict=True)]
    keys = [word.tolist() for word in (values, groups, *(words or ()))]
    contents, shuffled = list(zip(*keys, strict=True)), [list(zip(*keys, strict=True))[place] for place in order]
    for first, second in zip(drawn[0], drawn[1], strict=True):
        assert sorted(zip(contents, first.tolist(), strict=True)) == sorted(zip(shuffled, second.tolist(), strict=True))
    assert len({int(bits.words(1)[0]) for bits in streams}) == 1  # the next bits are the same, whatever the rows were
    assert here.rank_groups((20, 20), SeededBits(1)).tolist() == there.rank_groups((20, 20), SeededBits(1)).tolist()


def test_one_row_of_each_id_is_ranked_and_rows_without_id_are_not():
    table = pa.table({"who": [1, 1, 1, 2, None, 3], "x": [1.0, 2.0, None, 5.0, 7.0, None], "g": [*"aababb"]})
    data = Dataset(table, unit="who", max_rows_per_unit=5, categories={"g": ["a", "b"]})
    rows = RankedRows.of_dataset(data, ["x"], "g", ["a", "b"])
    chosen = [rows._values[rows._choose(*rows._draw_words(SeededBits(seed), 1))[0] >= 0].tolist() for seed in range(40)]

    assert {tuple(each) for each in chosen} == {(1.0, 5.0), (2.0, 5.0)}


@pytest.mark.parametrize("unit", ["row", "who"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_receipts_name_the_unit_the_sizes_and_the_parts(adjacency, unit):
    table = pa.table({"who": range(60), "x": np.arange(60.0), "y": np.zeros(60), "g": ["a", "b", "c"] * 20})
    terms = {"adjacency": adjacency, "unit": unit, "categories": {"g": ["a", "b", "c"]}}
    data = Dataset(table, **terms, **({"rows": 60} if unit == "row" and adjacency == "replace-one" else {}))
    queries = [
        MannWhitneyTest("x", by="g", groups=("a", "b"), epsilon=2),
        KruskalWallisTest("x", by="g", epsilon=2),
        SignedRankTest("x", "y", epsilon=2),
    ]
    for query in queries:
        plan = query.plan(data)
        receipt = plan.climb(plan.measure(data), SeededBits(1)).receipt
        assert receipt.epsilon == 2 and sum(receipt.breakdown.values()) in (0, 2)
        assert receipt.adjacency is Adjacency.parse(adjacency)
        assert receipt.unit == (Unit.row() if unit == "row" else Unit.of("who"))
        assert receipt.terms["level"] in ("proved", "asymptotic, checked by simulation")


def test_time_windows_of_an_id_are_refused():
    table = pa.table({"who": [1], "t": pa.array([0], pa.timestamp("us")), "x": [1.0], "y": [1.0]})
    data = Dataset(table, unit=Unit.of("who", per="week", time="t"), max_rows_per_unit=1)

    with pytest.raises(InvalidRequest, match="windows of one id are not independent"):
        SignedRankTest("x", "y", epsilon=1).plan(data)


def test_rows_do_not_leave_by_printing_or_pickling():
    rows = RankedRows(np.array([123.0]), np.array([0]), count=1)

    assert "123" not in repr(rows)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(rows)


def test_differences_of_equal_infinities_are_zero():
    found = subtract_numbers(np.array([np.inf, np.inf, np.nan, 1e308]), np.array([np.inf, -np.inf, 1.0, -1e308]))

    assert found[:2].tolist() == [0.0, np.inf] and math.isnan(found[2]) and found[3] == np.inf


def test_more_rows_than_places_are_left_out_by_priority():
    values, groups = np.array([5.0, 1.0, 3.0]), np.array([0, 0, 1])
    priority, labels = np.array([2, 1, 0], np.uint64), np.array([7, 8, 9])
    ranked = rank_labels(values, groups, priority, priority, labels, np.array([0, 0]), (1, 1), SeededBits(1))

    assert ranked.tolist() == [8, 9]


def test_a_tiny_epsilon_does_not_fill_the_memory():
    release = mann_whitney_test([1.0], [2.0], adjacency="add-remove", epsilon=1e-9, bits=SeededBits(1))

    assert 0 < release.value.p_value <= 1
