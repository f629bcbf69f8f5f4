import numpy as np
import pytest
from scipy import special, stats

from expost.robustness.confidence import score_bounds, vote_bounds


@pytest.mark.parametrize("chance", [0.01, 0.5, 0.93])
def test_vote_bounds_fail_no_more_often_than_they_may(chance):
    votes = np.arange(51)
    low, high = vote_bounds(votes, 50, failure_probability=0.05)
    law = stats.binom.pmf(votes, 50, chance)

    assert law[low > chance].sum() <= 0.05
    assert law[high < chance].sum() <= 0.05
    assert (law[low > chance - 0.08].sum() > 0.05) or chance < 0.08  # and not much less often


@pytest.mark.parametrize("shape", [(0.3, 0.3), (2.0, 5.0)])
def test_score_bounds_cover_the_mean_of_any_law_on_the_unit_interval(shape):
    rng = np.random.default_rng(1)
    means = rng.beta(*shape, size=(20_000, 40)).mean(1)
    truth = shape[0] / sum(shape)
    low, high = score_bounds(means, 40, failure_probability=0.05)

    assert (low > truth).mean() <= 0.05
    assert (high < truth).mean() <= 0.05


def test_score_bounds_are_never_wider_than_hoeffdings():
    means = np.linspace(0, 1, 101)
    low, high = score_bounds(means, 100, failure_probability=0.01)
    reach = np.sqrt(np.log(100) / 200)

    assert (low >= means - reach - 1e-9).all()
    assert (high <= means + reach + 1e-9).all()
    assert low[0] == 0
    assert high[-1] == 1


@pytest.mark.parametrize("failure", [1e-300, 1e-100, 1e-18, 1e-15, 1e-9, 1e-3, 0.5])
@pytest.mark.parametrize("samples", [1, 7, 1000, 10**9])
def test_bounds_of_rare_failures_are_numbers_on_their_side(samples, failure):
    votes = np.unique(np.rint(np.linspace(0, samples, 9)))
    for low, high in (
        vote_bounds(votes, samples, failure_probability=failure),
        score_bounds(votes / samples, samples, failure_probability=failure),
    ):
        assert np.isfinite([low, high]).all()
        assert (low >= 0).all()
        assert (high <= 1).all()
        assert (low <= votes / samples).all()
        assert (high >= votes / samples).all()
    low, high = vote_bounds(votes, samples, failure_probability=failure)
    inner = (low > 0) & (votes > 0)
    assert (special.betainc(votes[inner], samples - votes[inner] + 1, low[inner]) <= failure).all()
