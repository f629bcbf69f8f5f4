import numpy as np
import pytest

from expost.stats.hypothesis.power_bound import bound_on_share, critical_value, most_larger

RNG = np.random.default_rng(13)


def test_a_bound_on_a_share_is_wrong_as_rarely_as_it_says():
    hits = RNG.binomial(200, 0.7, 4000)

    wrong = np.mean([bound_on_share(int(count), 200, failure_probability=0.05) > 0.7 for count in hits])

    assert 0.01 < wrong <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 4000)
    assert bound_on_share(0, 10, failure_probability=0.1) == 0


@pytest.mark.parametrize("rounded", [False, True])
def test_a_critical_value_is_too_low_as_rarely_as_it_says(rounded):
    """For continuous laws, and for laws with many ties."""
    wrong = []
    for _ in range(600):
        drawn = RNG.exponential(size=500)
        drawn = np.floor(3 * drawn) / 3 if rounded else drawn
        critical = critical_value(drawn, 0.1, failure_probability=0.05)
        exceeded = np.exp(-(critical + 1 / 3)) if rounded else np.exp(-critical)
        wrong.append(exceeded > 0.1)

    assert np.mean(wrong) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 600)
    assert critical_value([1.0, 2.0], 0.01, failure_probability=0.05) == np.inf


def test_the_most_larger_draws_still_reject():
    for level in (0.001, 0.01, 0.05, 0.1):
        assert (1 + most_larger(level, 9_999)) / 10_000 <= level
    assert most_larger(1e-6, 9_999) == -1
