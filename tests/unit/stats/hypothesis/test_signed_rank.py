import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import SignedRankTest, signed_rank, signed_rank_power, signed_rank_test
from expost.stats.hypothesis.signed_rank import signed_rank_masses, signed_rank_p_values

LEVELS = (0.01, 0.05, 0.1)


def noisy_scores(differences, strength, *, noise=1):
    """Signed ranks of many samples, by SciPy's ranks, under noise."""
    rows = differences.shape[1]
    scores = (np.sign(differences) * stats.rankdata(np.abs(differences), axis=1)).sum(1)
    return scores + sample_laplace(noise * 2 * rows / Fraction(strength), len(scores), bits=SeededBits(rows))


def test_masses_are_those_of_all_signs():
    for rows in (1, 2, 5):
        ranks, most = np.arange(1, rows + 1), rows * (rows + 1) // 2
        scores = [int(np.dot(signs, ranks)) for signs in itertools.product((-1, 1), repeat=rows)]
        assert signed_rank_masses(rows) == pytest.approx(
            [scores.count(s) / len(scores) for s in range(-most, most + 1, 2)]
        )


@pytest.mark.parametrize("strength", [Fraction(1, 10), 1, 20])
@pytest.mark.parametrize("rows", [3, 30, 299, 400])
def test_the_level_is_kept_at_every_size_and_epsilon(rows, strength):
    runs, rng = 15_000, np.random.default_rng(rows)
    released = noisy_scores(rng.standard_t(1, (runs, rows)), strength)
    for alternative in ("two-sided", "greater", "less"):
        p = signed_rank_p_values(released, rows, scale=float(2 * rows / Fraction(strength)), alternative=alternative)
        for level in LEVELS:
            assert np.mean(p <= level) < level + 4.5 * math.sqrt(level * (1 - level) / runs)


def test_a_reference_that_forgets_a_tenth_of_the_noise_is_caught():
    runs, rows = 20_000, 100
    released = noisy_scores(np.random.default_rng(1).normal(size=(runs, rows)), Fraction(1, 10), noise=Fraction(10, 9))
    p = signed_rank_p_values(released, rows, scale=2000.0, alternative="two-sided")

    assert np.mean(p <= 0.05) > 0.05 + 5 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("scale", [0.5, 30.0, 500.0])
@pytest.mark.parametrize("rows", [20, 100, 300])
def test_the_normal_tail_is_above_the_exact_one(rows, scale, monkeypatch):
    """A small part of 1e-6 is left out: there both decide alike."""
    at = np.arange(0, rows * rows)
    exact = signed_rank.signed_rank_tail(at, rows, scale)
    monkeypatch.setattr(signed_rank, "_MOST_EXACT", 1)
    normal = signed_rank.signed_rank_tail(at, rows, scale)

    assert (exact <= normal + 1e-6).all()
    assert normal == pytest.approx(exact, abs=0.5 / rows)


@pytest.mark.parametrize(("rows", "effect", "strength"), [(500, 0.25, 0.15), (40, 0.6, 1), (15, 1.0, 3)])
def test_the_power_formula_is_close_to_what_happens(rows, effect, strength):
    runs, rng, exact = 3_000, np.random.default_rng(7), Fraction(str(strength))
    released = noisy_scores(rng.normal(effect, 1, (runs, rows)), exact)
    p = signed_rank_p_values(released, rows, scale=float(2 * rows / exact), alternative="two-sided")

    assert signed_rank_power(rows, effect, epsilon=exact) == pytest.approx(np.mean(p <= 0.05), abs=0.045)


@pytest.mark.parametrize("terms", [{}, {"adjacency": "add-remove"}, {"adjacency": "add-remove", "expected_rows": 70}])
def test_zeros_ties_and_missing_numbers_keep_the_level(terms):
    rng, bits, runs = np.random.default_rng(5), SeededBits(5), 600
    p = []
    for _ in range(runs):
        x, y = rng.poisson(1.0, (2, 50)).astype(float)
        x[rng.random(50) < 0.2] = np.nan
        p.append(signed_rank_test(x, y, epsilon=3, bits=bits, **terms).value.p_value)
    for level in LEVELS:
        assert np.mean(np.array(p) <= level) < level + 4.5 * math.sqrt(level * (1 - level) / runs)


def test_dropping_zeros_without_a_coin_would_break_the_level():
    """The reference is for all rows: with many zeros that all count as negative, it is wrong."""
    rng, rows, runs = np.random.default_rng(6), 50, 2_000
    drawn = rng.choice([-1.0, 0.0, 1.0], (runs, rows), p=[0.3, 0.4, 0.3])
    released = noisy_scores(np.where(drawn == 0, -1e-9, drawn), 20)

    assert np.mean(signed_rank_p_values(released, rows, scale=5.0, alternative="less") <= 0.05) > 0.1


def test_a_dataset_is_asked_with_public_private_and_guessed_numbers_of_rows():
    rng = np.random.default_rng(9)
    table = pa.table({"x": rng.normal(1, 1, 200), "y": rng.normal(0, 1, 200)})
    for terms in ({}, {"adjacency": "replace-one", "rows": 200}):
        data = Dataset(table, **terms)
        for guess in (None, 200):
            plan = SignedRankTest("x", "y", epsilon=1, alternative="greater", expected_rows=guess).plan(data)
            assert plan.climb(plan.measure(data), SeededBits(1)).value.rejects(0.01)
    filtered = Dataset(table, adjacency="replace-one", rows=200).where("x > 0")
    assert SignedRankTest("x", "y", epsilon=1).plan(filtered).places is None


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: signed_rank_test([1], [1, 2], epsilon=1), "equal length"),
        (lambda: signed_rank_test([], [], epsilon=1), "the number of rows"),
        (lambda: signed_rank_test([1], [2], power=0.8), "difference in deviations"),
        (lambda: signed_rank_test([1], [2], power=0.8, effect=1, adjacency="add-remove"), "expected_rows"),
    ],
)
def test_wrong_arguments_are_refused(call, match):
    with pytest.raises(InvalidRequest, match=match):
        call()
