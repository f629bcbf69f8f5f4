import numpy as np
import pytest
from scipy import stats

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.proportion import (
    _noise_tail,
    private_interval,
    private_p_value,
    private_power,
    private_power_bound,
)

RNG = np.random.default_rng(12)


def noisy_pairs(rows, chance, scale, runs, noise=1):
    counts = RNG.binomial(rows, chance, runs)
    pairs = np.stack([counts, rows - counts], axis=1)
    return pairs + discrete_laplace(noise * scale, pairs.shape, bits=SeededBits(rows)), counts


@pytest.mark.parametrize("chance", [0.5, 0.1])
@pytest.mark.parametrize("scale", [1, 20])
def test_the_law_of_the_noise_is_bounded_closely(chance, scale):
    noise = discrete_laplace(scale, (400_000, 2), bits=SeededBits(5))
    both = (1 - chance) * noise[:, 0] - chance * noise[:, 1]

    for at in np.quantile(both, [0.05, 0.5, 0.9, 0.999]):
        seen = (both >= at).mean()
        assert seen - 0.003 <= _noise_tail(np.array([at]), chance, scale)[0] <= seen + 0.01


@pytest.mark.parametrize(("rows", "scale"), [(5, 1), (30, 8), (200, 3)])
@pytest.mark.parametrize("chance", [0.5, 0.05])
@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
def test_the_level_is_kept_at_small_n_and_small_epsilon(rows, scale, chance, alternative, keeps_level):
    pairs, _ = noisy_pairs(rows, chance, scale, 200)

    p = [private_p_value(*pair, chance, scale=scale, alternative=alternative) for pair in pairs.tolist()]

    assert keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_reference_that_knows_too_little_noise_is_caught(keeps_level):
    pairs, _ = noisy_pairs(30, 0.5, 8, 400, noise=2)

    assert not keeps_level([private_p_value(*pair, 0.5, scale=8, alternative="greater") for pair in pairs.tolist()])


def test_the_power_is_at_least_as_promised_and_below_the_public_test():
    pairs, counts = noisy_pairs(300, 0.6, 5, 300)
    happened = np.mean([private_p_value(*pair, 0.5, scale=5) <= 0.05 for pair in pairs.tolist()])
    public = np.mean([stats.binomtest(int(count), 300, 0.5).pvalue <= 0.05 for count in counts])
    terms = {"epsilon": 0.2, "level": 0.05, "alternative": "two-sided"}

    bound = private_power_bound(300, 0.5, 0.6, **terms)

    assert bound - 0.08 < happened <= public
    assert happened < bound + 0.15
    assert bound == pytest.approx(private_power(300, 0.5, 0.6, **terms), abs=0.06)
    assert private_power_bound(300, 0.5, 0.4, **terms) == pytest.approx(bound, abs=1e-9)
    assert private_power_bound(300, 0.5, 0.4, **terms | {"alternative": "greater"}) == 0


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_intervals_cover_the_proportion(alternative):
    pairs, _ = noisy_pairs(150, 0.3, 2, 30)

    intervals = [private_interval(*pair, scale=2, failure=0.1, alternative=alternative) for pair in pairs.tolist()]

    covered = [low <= 0.3 <= high for low, high in intervals]
    assert np.mean(covered) >= 0.9 - 4 * np.sqrt(0.09 / 30)
    assert np.mean([high - low for low, high in intervals]) < (0.35 if alternative == "two-sided" else 0.85)


@pytest.mark.parametrize("pair", [(0, 0), (-30, -50), (-30, 5), (3, -200)])
def test_counts_below_zero_give_answers_that_say_little(pair):
    low, high = private_interval(*pair, scale=20, failure=0.05, alternative="two-sided")

    assert 0 <= low <= high <= 1
    assert private_p_value(*pair, 0.5, scale=20) <= 1
