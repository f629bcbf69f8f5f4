import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import KruskalWallisTest, anova_power, kruskal_wallis_power, kruskal_wallis_test
from expost.stats.hypothesis.kruskal_wallis import draw_rank_sums, rank_spread_p_values, spread_sensitivity
from expost.stats.hypothesis.mann_whitney import sum_ranks

LEVELS = (0.01, 0.05, 0.1)


def spread_of(values, places):
    """Absolute rank sums of samples side by side, by SciPy's ranks."""
    ranks = 2 * stats.rankdata(values, axis=1) - (sum(places) + 1)
    return np.abs(np.add.reduceat(ranks, np.cumsum(places) - places, axis=1)).sum(1)


def p_values(scores, places, strength, *, noise=1, seed=0):
    scale = spread_sensitivity(places, one_place=True) / Fraction(strength)
    released = scores + sample_laplace(noise * scale, len(scores), bits=SeededBits(seed))
    return rank_spread_p_values(
        released, places, scale=scale, draws=200_000 // sum(places) * 10, bits=SeededBits(seed + 1)
    )


@pytest.mark.parametrize("strength", [Fraction(1, 10), 1, 20])
@pytest.mark.parametrize("places", [(2, 3, 2), (20, 10, 10), (30, 30, 30, 5)])
def test_the_level_is_kept_at_every_size_and_epsilon(places, strength):
    """The draws of the reference are shared by all runs, so its own error is allowed for."""
    runs, rng = 20_000, np.random.default_rng(sum(places))
    p = p_values(spread_of(rng.random((runs, sum(places))), places), places, strength)
    draws = 200_000 // sum(places) * 10
    for level in LEVELS:
        assert np.mean(p <= level) < level + 4.5 * math.sqrt(level * (1 - level) * (1 / runs + 1 / draws))


def test_a_reference_that_forgets_a_tenth_of_the_noise_is_caught():
    places, runs = (20, 10, 10), 20_000
    scores = spread_of(np.random.default_rng(1).random((runs, 40)), places)
    p = p_values(scores, places, Fraction(1, 10), noise=Fraction(10, 9))

    assert np.mean(p <= 0.05) > 0.05 + 5 * math.sqrt(0.05 * 0.95 / runs)


def test_p_values_of_fresh_draws_keep_the_level_ties_and_missing_values_included():
    rng, bits, runs = np.random.default_rng(5), SeededBits(5), 300
    p = []
    for _ in range(runs):
        x = np.where(rng.random(30) < 0.2, np.nan, rng.poisson(1.0, 30))
        p.append(kruskal_wallis_test(x[:10], x[10:15], x[15:], epsilon=3, bits=bits).value.p_value)
    for level in LEVELS:
        assert np.mean(np.array(p) <= level) < level + 4.5 * math.sqrt(level * (1 - level) / runs)


def test_the_normal_limit_has_the_moments_of_the_ranks():
    places = (40, 25, 60)
    exact, limit = (draw_rank_sums(places, 20_000, SeededBits(3), exact=known) for known in (True, False))

    assert exact.sum(1) == pytest.approx(np.zeros(20_000))
    assert np.abs(limit.sum(1)).max() < 1e-6
    assert np.cov(limit.T) == pytest.approx(np.cov(exact.T), rel=0.1, abs=0.05 * np.cov(exact.T).max())
    assert np.quantile(np.abs(limit).sum(1), 0.95) == pytest.approx(np.quantile(np.abs(exact).sum(1), 0.95), rel=0.03)


def test_rank_sums_count_pairs():
    order = np.array([0, 1, 2, 1, 0])
    wins = [[sum(order[:i] != order[i]) - sum(order[i + 1 :] != order[i])] for i in range(5)]
    by_group = [sum(win[0] for win, group in zip(wins, order, strict=True) if group == g) for g in range(3)]

    assert sum_ranks(order, 3).tolist() == by_group


@pytest.mark.parametrize(
    ("places", "means", "strength"),
    [((300, 300, 300), (0, 0.25, 0.5), 0.2), ((100, 50, 50, 30), (0, 0.5, 0, 1), 0.5), ((40, 40, 40), (0, 0, 0.8), 1)],
)
def test_the_power_formula_is_close_to_what_happens(places, means, strength):
    runs, rng = 2_000, np.random.default_rng(7)
    values = rng.normal(np.repeat(means, places), 1, (runs, sum(places)))
    p = p_values(spread_of(values, places), places, Fraction(str(strength)))

    assert kruskal_wallis_power(places, means, epsilon=strength) == pytest.approx(np.mean(p <= 0.05), abs=0.05)


def test_it_has_more_power_than_anova_at_a_small_epsilon():
    rng, bits = np.random.default_rng(3), SeededBits(3)
    rejected = [
        kruskal_wallis_test(*rng.normal([[0.0], [0.25], [0.5]], 1, (3, 300)), epsilon=0.3, bits=bits).value.rejects(
            0.05
        )
        for _ in range(15)
    ]

    assert np.mean(rejected) > 0.7
    assert anova_power([300] * 3, [0, 0.25, 0.5], deviation=1, bounds=(-2.25, 2.75), epsilon=0.3) < 0.65


def test_a_dataset_is_asked_with_private_or_guessed_sizes():
    rng = np.random.default_rng(9)
    table = pa.table({"x": rng.normal(np.repeat([0, 1, 2], 150), 1), "g": np.repeat(["a", "b", "c"], 150)})
    for terms in ({}, {"adjacency": "replace-one", "rows": 450}):
        data = Dataset(table, categories={"g": ["a", "b", "c"]}, **terms)
        for sizes in (None, (150, 150, 150)):
            plan = KruskalWallisTest("x", by="g", epsilon=2, expected_sizes=sizes).plan(data)
            assert plan.climb(plan.measure(data), SeededBits(1)).value.rejects(0.01)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: kruskal_wallis_test([1, 2], epsilon=1), "at least two groups"),
        (lambda: kruskal_wallis_test([1, 2], [3, 4], power=0.8), "mean of each group"),
        (lambda: kruskal_wallis_power((5, 5), (1, 2, 3), epsilon=1), "mean of each group"),
        (lambda: kruskal_wallis_test([1], [2], epsilon=1, adjacency="add-remove", expected_sizes=(1,)), "sizes of"),
    ],
)
def test_wrong_arguments_are_refused(call, match):
    with pytest.raises(InvalidRequest, match=match):
        call()
