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
    ours = statistic(first, second[orders])
    theirs = np.array([public(first, second[order]) for order in orders])
    return stats.spearmanr(np.round(ours, 9), np.round(theirs, 9)).statistic > 0.9999


def test_between_groups_it_is_the_statistic_of_anova():
    values, labels = RNG.normal(size=6), np.array([0.0, 0, 1, 1, 2, 2])

    def public(x, g):
        return stats.f_oneway(*(x[g == group] for group in range(3))).statistic

    assert agree(statistic_of("means"), public, values, labels)


def test_of_categories_it_is_chi_squared():
    first, second = np.array([0.0, 0, 0, 1, 1, 1]), np.array([0.0, 0, 1, 1, 2, 2])

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
    first = strange if relation != "independence" else np.zeros(rows)
    second = strange if relation == "correlation" else np.array([-1.0, 0, 1, 0, 1])[:rows]

    assert part_rejects(first, second, statistic_of(relation), SeededBits(1)) in (True, False)


def test_constant_columns_never_reject():
    for relation in ("means", "independence", "correlation"):
        assert not part_rejects(np.zeros(30), np.zeros(30), statistic_of(relation), SeededBits(1))
