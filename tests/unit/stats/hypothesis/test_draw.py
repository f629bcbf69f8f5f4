import numpy as np
import pytest
from scipy import stats

from expost.noise import SeededBits
from expost.stats.hypothesis.draw import binomials, laplaces, multinomials, normals, uniforms


@pytest.mark.parametrize(("draw", "law"), [(uniforms, "uniform"), (normals, "norm"), (laplaces, "laplace")])
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_draws_follow_their_law_and_no_other(draw, law, factor):
    drawn = draw((100_000,), SeededBits(1)) * factor

    assert (stats.kstest(drawn, law).pvalue > 1e-6) == (factor == 1.0)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("chance", [0.001, 0.3, 0.97])
def test_binomials_follow_their_law(chance, one_by_one):
    drawn = binomials(np.full(50_000, 20), np.full(50_000, chance) if one_by_one else chance, SeededBits(2))
    expected = stats.binom.pmf(np.arange(21), 20, chance) * 50_000
    seen = np.bincount(drawn.astype(int), minlength=21)
    common = expected > 20

    distance = ((seen - expected)[common] ** 2 / expected[common]).sum()

    assert stats.chi2.sf(distance, common.sum()) > 1e-6


def test_certain_and_impossible_events():
    assert binomials(np.array([0, 5, 5]), np.array([0.5, 0.0, 1.0])).tolist() == [0, 0, 5]


def test_multinomials_have_the_right_means_and_covariances():
    law = np.array([0.5, 0.3, 0.2])
    drawn = multinomials(30, law, 40_000, SeededBits(3))

    np.testing.assert_allclose(drawn.mean(0), 30 * law, atol=0.08)
    np.testing.assert_allclose(np.cov(drawn.T), 30 * (np.diag(law) - np.outer(law, law)), atol=0.2)


def test_looking_binomials_up_gives_what_inverting_them_gives():
    trials = np.tile([0, 1, 7, 300, 4000], 2000)

    for chance in (0.0005, 0.2, 0.5, 0.999):
        np.testing.assert_array_equal(
            binomials(trials, chance, SeededBits(4)), binomials(trials, np.full(trials.shape, chance), SeededBits(4))
        )
