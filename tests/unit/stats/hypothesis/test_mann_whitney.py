import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import BudgetExceeded, InvalidRequest, Outcome
from expost.data import Dataset
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import (
    MannWhitneyTest,
    mann_whitney,
    mann_whitney_power,
    mann_whitney_test,
    mean_difference_power,
)
from expost.stats.hypothesis.mann_whitney import rank_sum_masses, rank_sum_p_values, score_sensitivity, sum_ranks

LEVELS = (0.01, 0.05, 0.1)


def null_scores(places, runs, rng):
    """Scores of samples of one law, by SciPy's ranks."""
    ranks = stats.rankdata(rng.random((runs, sum(places))), axis=1)
    return 2 * ranks[:, : places[0]].sum(1) - places[0] * (sum(places) + 1)


def noisy(scores, places, strength, *, one_place=True, noise=1):
    scale = noise * score_sensitivity(places, one_place=one_place) / Fraction(strength)
    return scores + sample_laplace(scale, len(scores), bits=SeededBits(sum(places)))


def most_above(p, runs):
    """By how many standard errors P(p <= level) is above the level, at worst."""
    return max((np.mean(p <= level) - level) / math.sqrt(level * (1 - level) / runs) for level in LEVELS)


def test_masses_are_those_of_all_orders():
    for first, second in [(1, 1), (2, 3), (3, 3), (1, 5)]:
        labels = [0] * first + [1] * second
        scores = [int(sum_ranks(np.array(order), 2)[0]) for order in itertools.permutations(labels)]
        found = [scores.count(s) / len(scores) for s in range(-first * second, first * second + 1, 2)]
        assert rank_sum_masses(first, second) == pytest.approx(found)


@pytest.mark.parametrize("strength", [Fraction(1, 10), 1, 20])
@pytest.mark.parametrize("places", [(3, 2), (10, 10), (60, 12), (150, 150), (400, 30)])
def test_the_level_is_kept_at_every_size_and_epsilon(places, strength):
    runs, rng = 20_000, np.random.default_rng(sum(places))
    released = noisy(null_scores(places, runs, rng), places, strength)
    scale = float(score_sensitivity(places, one_place=True) / Fraction(strength))
    for alternative in ("two-sided", "greater", "less"):
        p = rank_sum_p_values(released, places, scale=scale, alternative=alternative)
        assert most_above(p, runs) < 4.5


def test_a_reference_that_forgets_a_tenth_of_the_noise_is_caught():
    places, runs = (150, 150), 20_000
    released = noisy(
        null_scores(places, runs, np.random.default_rng(1)), places, Fraction(1, 10), noise=Fraction(10, 9)
    )
    p = rank_sum_p_values(released, places, scale=3000.0, alternative="two-sided")

    assert most_above(p, runs) > 5


@pytest.mark.parametrize("scale", [0.5, 30.0, 500.0])
@pytest.mark.parametrize("places", [(1, 4000), (2, 4000), (5, 2000), (20, 500), (50, 200), (90, 70)])
def test_the_normal_tail_is_above_the_exact_one(places, scale, monkeypatch):
    """A small part of 1e-6 is left out: there both decide alike."""
    at = np.arange(0, 2 * math.prod(places), 3)
    exact = mann_whitney.rank_sum_tail(at, places, scale)
    monkeypatch.setattr(mann_whitney, "_MOST_EXACT", 0)
    normal = mann_whitney.rank_sum_tail(at, places, scale)

    assert (exact <= normal + 1e-6).all()
    assert normal == pytest.approx(exact, abs=0.5 / min(places))


@pytest.mark.parametrize(
    ("places", "effect", "strength", "private"),
    [
        ((500, 500), 0.5, 0.1, False),
        ((700, 300), 0.5, 0.1, True),
        ((20, 20), 1.0, 1.0, False),
        ((60, 30), 0.8, 1, True),
    ],
)
def test_the_power_formula_is_close_to_what_happens(places, effect, strength, private):
    runs, rng = 3_000, np.random.default_rng(7)
    x = np.concatenate([rng.normal(effect, 1, (runs, places[0])), rng.normal(0, 1, (runs, places[1]))], axis=1)
    scores = 2 * stats.rankdata(x, axis=1)[:, : places[0]].sum(1) - places[0] * (sum(places) + 1)
    exact = Fraction(str(strength))
    released = noisy(scores, places, exact, one_place=not private)
    scale = float(score_sensitivity(places, one_place=not private) / exact)
    seen = np.mean(rank_sum_p_values(released, places, scale=scale, alternative="two-sided") <= 0.05)

    assert mann_whitney_power(places, effect, epsilon=exact, public_sizes=not private) == pytest.approx(seen, abs=0.045)


def test_it_has_far_more_power_than_the_test_of_means_at_a_small_epsilon():
    rng, bits = np.random.default_rng(3), SeededBits(3)
    rejected = [
        mann_whitney_test(rng.normal(0.5, 1, 500), rng.normal(0, 1, 500), epsilon=0.1, bits=bits).value.rejects(0.05)
        for _ in range(60)
    ]

    assert np.mean(rejected) > 0.85
    assert mean_difference_power((500, 500), 0.5, deviation=1, bounds=(-2.5, 2.5), epsilon=0.1) < 0.45


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("guess", [None, (80, 40), (30, 90)])
def test_ties_missing_values_and_wrong_guesses_keep_the_level(adjacency, guess):
    rng, bits, runs = np.random.default_rng(5), SeededBits(5), 400
    terms = {"epsilon": 2, "adjacency": adjacency, "bits": bits}
    if adjacency == "add-remove":
        terms["expected_sizes"] = guess
    p = []
    for _ in range(runs):
        x = np.where(rng.random(100) < 0.2, np.nan, rng.poisson(1.0, 100))
        p.append(mann_whitney_test(x[:60], x[60:], **terms).value.p_value)

    assert most_above(np.array(p), runs) < 4.5


def test_intervals_cover_the_chance_of_a_larger_value():
    rng, bits, truth = np.random.default_rng(8), SeededBits(8), stats.norm.cdf(0.5 / math.sqrt(2))
    covered = 0
    for _ in range(300):
        release = mann_whitney_test(rng.normal(0.5, 1, 80), rng.normal(0, 1, 60), epsilon=1, bits=bits)
        low, high = release.interval
        covered += low <= truth <= high

    assert covered >= 285 - 4 * math.sqrt(300 * 0.05 * 0.95)


def test_a_dataset_is_asked_like_arrays():
    rng = np.random.default_rng(9)
    table = pa.table({"x": np.r_[rng.normal(2, 1, 200), rng.normal(0, 1, 200)], "g": ["a"] * 200 + ["b"] * 200})
    for terms in ({}, {"adjacency": "replace-one", "rows": 400}):
        data = Dataset(table, **terms)
        for sizes in (None, (200, 200)):
            plan = MannWhitneyTest("x", by="g", groups=("a", "b"), epsilon=1, expected_sizes=sizes).plan(data)
            release = plan.climb(plan.measure(data), SeededBits(1))
            assert release.value.rejects(0.001) and release.value.estimate > 0.7 and release.interval is None


def test_a_power_is_priced():
    rng, bits = np.random.default_rng(10), SeededBits(10)
    terms = {"power": 0.8, "effect": 0.5, "adjacency": "add-remove", "expected_sizes": (300, 150), "bits": bits}
    release = mann_whitney_test(rng.normal(0.5, 1, 300), rng.normal(0, 1, 150), **terms)

    assert release.receipt.outcome is Outcome.ESTIMATED
    assert release.receipt.terms["sizes"] == [300, 150]
    assert release.receipt.epsilon < 0.5
    with pytest.raises(BudgetExceeded):
        mann_whitney_test([1, 2], [3, 4], **terms, max_epsilon=0.01)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: mann_whitney_test([1, 2], [3, 4], power=0.8), "difference in deviations"),
        (lambda: mann_whitney_test([1, 2], [3, 4], power=0.8, effect=1, adjacency="add-remove"), "expected_sizes"),
        (lambda: mann_whitney_test([1, 2], [3], epsilon=1), "at least 2 each"),
        (lambda: MannWhitneyTest("x", by="g", groups=("a", "a"), epsilon=1), "two different groups"),
        (lambda: mann_whitney_power((1 << 24, 5), 1, epsilon=1), "Expected at most"),
    ],
)
def test_wrong_arguments_are_refused(call, match):
    with pytest.raises(InvalidRequest, match=match):
        call()
