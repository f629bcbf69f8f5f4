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
from expost.stats.hypothesis import CorrelationTest, correlation_power, correlation_test, rank_correlation
from expost.stats.hypothesis.hypothesis_plan import add_laplace_noise
from expost.stats.hypothesis.rank_correlation import (
    correlation_p_values,
    count_score,
    measure_score,
    score_deviation,
    score_masses,
    score_tail,
)

RNG = np.random.default_rng(11)


def scores(rows, runs, *, linear=0.0, ties=False):
    """Kendall's score of so many samples, pair by pair."""
    x = RNG.normal(size=(runs, rows))
    y = linear * x + np.sqrt(1 - linear**2) * RNG.normal(size=(runs, rows))
    if ties:
        x, y = np.round(2 * x), np.round(2 * y)
    total = np.zeros(runs)
    a, b = (column + 1e-6 * RNG.random(column.shape) for column in (x, y))  # breaks ties
    for i in range(rows):
        total += (np.sign(a[:, i : i + 1] - a[:, i + 1 :]) * np.sign(b[:, i : i + 1] - b[:, i + 1 :])).sum(1)
    return total, x, y


def noisy(exact, rows, strength, noise=1):
    return exact + sample_laplace(noise * 2 * (rows - 1) / Fraction(strength), len(exact), bits=SeededBits(rows))


def test_the_score_counts_pairs_exactly_ties_included():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(0, 6, 35), rng.integers(0, 9, 35)
        pairs = np.triu(np.sign(x[:, None] - x) * np.sign(y[:, None] - y), 1).sum()
        ranks = [np.unique(column, return_inverse=True)[1] for column in (x, y)]

        assert count_score(*ranks) == pairs


def exact_score(x, y, seed):
    """The sealed score under next to no noise."""
    sealed = measure_score(np.asarray(x, float), np.asarray(y, float), rows=len(x), bits=SeededBits(seed))
    return int(add_laplace_noise(sealed, Fraction(900), SeededBits(1))[0])


def test_ties_are_broken_at_random_row_by_row():
    x, y = [0.0, 0.0, 1.0], [1.0, 2.0, 3.0]
    drawn = [exact_score(x, y, seed) for seed in range(400)]

    # The first two rows are tied in x: they agree with y in half of all draws, and the other two pairs always.
    assert set(drawn) == {1, 3}
    assert 150 < drawn.count(3) < 250
    constant = [exact_score([1.0] * 3, [2.0] * 3, seed) for seed in range(400)]
    shares = np.array([constant.count(score) for score in (-3, -1, 1, 3)]) / 400
    np.testing.assert_allclose(shares, [1 / 6, 1 / 3, 1 / 3, 1 / 6], atol=0.1)


def test_with_ties_one_row_moves_the_score_by_at_most_the_declared_sensitivity():
    rng = np.random.default_rng(4)
    for seed in range(30):
        x, y = rng.integers(0, 3, (2, 12)).astype(float)
        other = [column.copy() for column in (x, y)]
        other[0][5], other[1][5] = rng.integers(0, 3, 2)

        # The same seed breaks the ties of every row alike; both tables have ties in both columns.
        assert abs(exact_score(x, y, seed) - exact_score(*other, seed)) <= 2 * (12 - 1)


def test_replacing_a_row_moves_the_score_by_at_most_the_declared_sensitivity():
    order = np.arange(20.0)
    last = order.copy()
    last[0] = 99.0  # the row that every other one agreed with now disagrees with all

    def exact(x, y):
        return count_score(*[np.unique(column, return_inverse=True)[1] for column in (x, y)])

    assert exact(order, order) - exact(order, last) == 2 * (20 - 1)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rows", [5, 30])
@pytest.mark.parametrize("strength", ["0.1", "1", "20"])
def test_the_level_is_kept_whatever_the_columns(rows, strength, ties, keeps_level):
    exact, _, _ = scores(rows, 10_000, ties=ties)

    assert keeps_level(correlation_p_values(noisy(exact, rows, strength), rows, epsilon=float(strength)))


@pytest.mark.parametrize("rows", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("strength", [1, 20, 1000])
def test_the_level_is_exact_for_a_few_rows(rows, strength):
    """By enumeration: over all orders and all noise, P(p <= level) <= level at every level there is."""
    orders = np.array(list(itertools.permutations(range(rows))))
    firsts, seconds = np.triu_indices(rows, 1)
    exact = np.sign(orders[:, seconds] - orders[:, firsts]).sum(1)
    scale = 2 * (rows - 1) / strength
    reach = np.arange(-math.ceil(30 * scale) - 2, math.ceil(30 * scale) + 3)
    noise = np.exp(-np.abs(reach) / scale) * math.tanh(1 / (2 * scale))
    seen = np.arange(reach[0] + exact.min(), reach[-1] + exact.max() + 1)
    chance = np.convolve(np.bincount(exact - exact.min()) / len(exact), noise)

    for alternative in ("two-sided", "greater", "less"):
        p = correlation_p_values(seen, rows, epsilon=strength, alternative=alternative)
        order = np.argsort(p)
        assert (np.cumsum(chance[order])[np.searchsorted(p[order], p, "right") - 1] <= p + 1e-9).all()
        assert p.min() < 0.35


def test_ten_per_cent_more_noise_than_the_reference_knows_is_caught(keeps_level):
    exact, _, _ = scores(30, 20_000)

    p = correlation_p_values(noisy(exact, 30, "0.1", Fraction(11, 10)), 30, epsilon=0.1)

    assert not keeps_level(p)


@pytest.mark.parametrize(("rows", "linear", "strength"), [(200, 0.3, "0.5"), (100, 0.3, "2")])
def test_the_power_formula_is_close_to_what_happens(rows, linear, strength):
    exact, x, y = scores(rows, 1500, linear=linear)
    happened = (correlation_p_values(noisy(exact, rows, strength), rows, epsilon=float(strength)) <= 0.05).mean()
    public = np.mean([stats.pearsonr(a, b).pvalue <= 0.05 for a, b in zip(x[:300], y[:300], strict=True)])

    assert happened == pytest.approx(correlation_power(rows, linear, epsilon=float(strength)), abs=0.05)
    assert happened <= public + 0.05


def test_intervals_cover_tau():
    truth = 2 * np.arcsin(0.5) / np.pi
    covered = []
    bits = SeededBits(2)
    for _ in range(150):
        x = RNG.normal(size=100)
        low, high = correlation_test(x, 0.5 * x + np.sqrt(0.75) * RNG.normal(size=100), epsilon=1, bits=bits).interval
        covered.append(low <= truth <= high)

    assert np.mean(covered) >= 0.95 - 4 * np.sqrt(0.05 * 0.95 / 150)


def test_a_dataset_gives_the_same_score_as_its_arrays():
    x, y = RNG.normal(size=300), RNG.normal(size=300)
    dataset = Dataset(pa.table({"x": x, "y": y + x}), adjacency="replace-one", rows=300)
    request = CorrelationTest("x", "y", epsilon=1, alternative="greater")
    plan = request.plan(dataset)

    release = plan.climb(plan.measure(dataset), SeededBits(5))

    direct = correlation_test(x, y + x, epsilon=1, alternative="greater", bits=SeededBits(5))
    assert release.value == direct.value
    assert release.value.rejects(0.01)


def test_missing_values_and_constant_columns_do_not_raise():
    x = np.array([1.0, np.nan, np.inf, -np.inf, 3.0] * 10)

    assert correlation_test(x, np.ones(50), epsilon=1, bits=SeededBits(1)).value.p_value > 0.01
    assert correlation_test(x, x, epsilon=5, bits=SeededBits(1)).value.rejects(0.05)


def test_a_table_longer_than_declared_is_cut():
    dataset = Dataset(pa.table({"x": np.arange(50.0), "y": np.arange(50.0)}), adjacency="replace-one", rows=10)
    request = CorrelationTest("x", "y", epsilon=100)
    plan = request.plan(dataset)

    release = plan.climb(plan.measure(dataset), SeededBits(1))

    assert abs(release.value.statistic) <= 45 + 20


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: correlation_test([1, 2], [1, 2], epsilon=1), "Expected between 3"),
        (lambda: correlation_test([1, 2, 3], [1, 2], epsilon=1), "equal length"),
        (lambda: correlation_test([1, 2, 3], [1, 2, 3], power=0.8), "correlation at which"),
        (lambda: correlation_power(10, 1.5, epsilon=1), "between -1 and 1"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()


def test_a_power_is_bought_at_the_smallest_epsilon():
    x = RNG.normal(size=400)

    paid = correlation_test(x, x, power=0.8, effect=0.3, bits=SeededBits(1)).receipt.epsilon

    assert correlation_power(400, 0.3, epsilon=paid) >= 0.82 > correlation_power(400, 0.3, epsilon=0.99 * paid)


@pytest.mark.parametrize("rows", [2, 3, 5, 7])
def test_masses_are_those_of_all_orders(rows):
    orders = np.array(list(itertools.permutations(range(rows))))
    firsts, seconds = np.triu_indices(rows, 1)
    scores = np.sign(orders[:, seconds] - orders[:, firsts]).sum(1)
    points = np.arange(-(rows * (rows - 1) // 2), rows * (rows - 1) // 2 + 1, 2)

    np.testing.assert_allclose(score_masses(rows), [(scores == point).mean() for point in points], atol=1e-12)


@pytest.mark.parametrize("rows", [3, 10, 100])
def test_the_masses_have_the_known_variance(rows):
    masses = score_masses(rows)
    points = np.arange(-(len(masses) - 1), len(masses), 2)

    assert masses.sum() == pytest.approx(1.0)
    assert (masses * points**2).sum() == pytest.approx(score_deviation(rows) ** 2)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_tails_are_those_of_score_plus_noise(scale):
    rng = np.random.default_rng(5)
    masses = score_masses(6)
    drawn = rng.choice(np.arange(-15, 16, 2), 200_000, p=masses / masses.sum())
    drawn = drawn + sample_laplace(scale, len(drawn), bits=SeededBits(1))
    at = np.arange(-20, 21)

    seen = np.array([(drawn >= point).mean() for point in at])
    np.testing.assert_allclose(score_tail(at, 6, scale), seen, atol=0.005)


@pytest.mark.parametrize("scale", [1.0, 500.0])
def test_the_normal_tail_takes_over_from_above(scale, monkeypatch):
    at = np.arange(0, 2000, 20)
    exact = score_tail(at, 100, scale)
    monkeypatch.setattr(rank_correlation, "_MOST_EXACT", 50)
    normal = score_tail(at, 100, scale)

    assert (normal >= exact - 5e-4).all()
    np.testing.assert_allclose(normal, exact, atol=4e-3)


def test_without_noise_the_tail_is_scipys():
    x, y = np.arange(8), np.array([2, 0, 1, 4, 3, 7, 5, 6])
    score = round(stats.kendalltau(x, y).statistic * 28)

    assert 2 * score_tail(score, 8, 1e-3) == pytest.approx(stats.kendalltau(x, y, method="exact").pvalue)
