import numpy as np
import pytest
from scipy import stats

from expost.audit.pair_attack import at_least, at_most


@pytest.mark.parametrize(("hits", "trials"), [(1, 50), (17, 50), (50, 50), (3, 100_000)])
def test_the_lower_bound_solves_the_binomial_tail(hits, trials):
    bound = float(at_least(hits, trials, failure_probability=0.01))

    assert stats.binom.sf(hits - 1, trials, bound) == pytest.approx(0.01, rel=1e-6)


def test_no_hits_say_nothing_from_below_and_all_hits_nothing_from_above():
    assert at_least(0, 100, failure_probability=0.01) == 0
    assert at_most(100, 100, failure_probability=0.01) == 1


@pytest.mark.parametrize("p", [0.003, 0.2, 0.97])
def test_the_bounds_miss_no_more_often_than_stated(p):
    hits, weights = np.arange(201), stats.binom.pmf(np.arange(201), 200, p)

    assert weights[at_least(hits, 200, failure_probability=0.05) > p].sum() <= 0.05
    assert weights[at_most(hits, 200, failure_probability=0.05) < p].sum() <= 0.05
