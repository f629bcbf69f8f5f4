import itertools

import numpy as np
import pytest
from scipy import stats

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis import score_law
from expost.stats.hypothesis.score_law import null_deviation, score_masses, score_tail


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
    assert (masses * points**2).sum() == pytest.approx(null_deviation(rows) ** 2)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_tails_are_those_of_score_plus_noise(scale):
    rng = np.random.default_rng(5)
    masses = score_masses(6)
    drawn = rng.choice(np.arange(-15, 16, 2), 200_000, p=masses / masses.sum())
    drawn = drawn + discrete_laplace(scale, len(drawn), bits=SeededBits(1))
    at = np.arange(-20, 21)

    seen = np.array([(drawn >= point).mean() for point in at])
    np.testing.assert_allclose(score_tail(at, 6, scale), seen, atol=0.005)


@pytest.mark.parametrize("scale", [1.0, 500.0])
def test_the_normal_tail_takes_over_from_above(scale, monkeypatch):
    at = np.arange(0, 2000, 20)
    exact = score_tail(at, 100, scale)
    monkeypatch.setattr(score_law, "MOST_EXACT", 50)
    normal = score_tail(at, 100, scale)

    assert (normal >= exact - 5e-4).all()
    np.testing.assert_allclose(normal, exact, atol=4e-3)


def test_without_noise_the_tail_is_scipys():
    x, y = np.arange(8), np.array([2, 0, 1, 4, 3, 7, 5, 6])
    score = round(stats.kendalltau(x, y).statistic * 28)

    assert 2 * score_tail(score, 8, 1e-3) == pytest.approx(stats.kendalltau(x, y, method="exact").pvalue)
