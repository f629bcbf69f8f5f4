import itertools

import numpy as np
import pytest
from scipy import stats

from expost.noise import SeededBits
from expost.stats.hypothesis.permutation import part_rejects, statistic_of

RNG = np.random.default_rng(16)


def agree(statistic, public, first, second):
    """Both order all orderings alike."""
    orders = np.array(list(itertools.permutations(range(len(second)))))
    ours = np.array(statistic(first, second, orders), float)
    theirs = np.array([public(first[order], second) for order in orders])
    ours, theirs = (np.round(each / np.abs(each).max(), 9) for each in (ours, theirs))
    return stats.spearmanr(ours, theirs).statistic > 0.9999


def test_between_groups_it_is_the_statistic_of_anova():
    values, labels = RNG.normal(size=6), np.array([0, 0, 1, 1, 2, 2])

    def public(x, g):
        return stats.f_oneway(*(x[g == group] for group in range(3))).statistic

    assert agree(statistic_of("means"), public, values, labels)


def test_of_categories_it_is_chi_squared():
    first, second = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])

    def public(a, b):
        table = [[((a == i) & (b == j)).sum() for j in range(3)] for i in range(2)]
        return stats.chi2_contingency(table, correction=False).statistic

    assert agree(statistic_of("independence"), public, first, second)


def test_of_numbers_it_is_spearmans():
    first, second = np.array([3.0, 1, 1, 7, 9, -2]), np.array([1.0, 5, 2, 2, 0, 9])

    assert agree(statistic_of("correlation"), lambda a, b: abs(stats.spearmanr(a, b).statistic), first, second)


@pytest.mark.parametrize("relation", ["means", "independence", "correlation"])
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_parts_of_any_size_and_value_give_an_answer(relation, rows):
    strange = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308])[:rows]
    labels = np.array([-1, 0, 1, 0, 1])[:rows]
    first = strange if relation != "independence" else np.zeros(rows, int)
    second = strange if relation == "correlation" else labels

    assert part_rejects(first, second, statistic_of(relation), SeededBits(1)) in (True, False)


def test_constant_columns_never_reject():
    for relation in ("means", "independence", "correlation"):
        assert not part_rejects(np.zeros(30), np.zeros(30, int), statistic_of(relation), SeededBits(1))


@pytest.mark.parametrize("relation", ["means", "independence", "correlation"])
def test_scores_are_exact_so_that_names_and_order_of_the_rows_do_not_matter(relation):
    rows = 24
    orders = np.argsort(RNG.random((30, rows)), axis=1)
    for _ in range(20):
        first = RNG.integers(0, 4, rows) if relation == "independence" else np.exp(8 * RNG.normal(size=rows))
        second = RNG.normal(size=rows) if relation == "correlation" else RNG.integers(-1, 5, rows)
        renamed = second if relation == "correlation" else np.where(second < 0, -1, 9 - second)
        place = RNG.permutation(rows)
        moved = np.argsort(place)[orders[:, place]]  # the same pairs of rows, each in another place

        scores = [
            statistic_of(relation)(first, second, orders),
            statistic_of(relation)(first, renamed, orders),
            statistic_of(relation)(first[place], second[place], moved),
        ]

        assert scores[0] == scores[1] == scores[2]
        assert all(type(score) is int for score in scores[0])


def test_scores_of_many_rows_do_not_overflow():
    rows = 1 << 20
    x, order = np.arange(float(rows)), np.arange(rows)[None]

    assert statistic_of("correlation")(x, x, order) == [rows * (rows**2 - 1) // 3]
    (between,) = statistic_of("means")(np.where(x < rows / 2, -1e300, 1e300), x >= rows / 2, order)
    assert between > 1 << 100


def test_without_any_group_nothing_rejects():
    nobody, values = np.full(9, -1), np.arange(9.0)

    assert statistic_of("means")(values, nobody, np.arange(9)[None]) == [0]
    assert statistic_of("independence")(nobody, nobody, np.arange(9)[None]) == [0]
    assert not part_rejects(values, nobody, statistic_of("means"), SeededBits(1))
