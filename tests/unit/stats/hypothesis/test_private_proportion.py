import math

import numpy as np
import pytest
from scipy import signal, stats

from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import binomial_test
from expost.stats.hypothesis.private_proportion import (
    _noise_law,
    _noise_tail,
    _sum_by_cells,
    _sum_by_counts,
    private_interval,
    private_p_value,
    private_power,
    private_power_bound,
)

RNG = np.random.default_rng(12)


def noisy_pairs(rows, chance, scale, runs, noise=1):
    counts = RNG.binomial(rows, chance, runs)
    pairs = np.stack([counts, rows - counts], axis=1)
    return pairs + sample_laplace(noise * scale, pairs.shape, bits=SeededBits(rows)), counts


@pytest.mark.parametrize("chance", [0.5, 0.1])
@pytest.mark.parametrize("scale", [1, 20])
def test_the_law_of_the_noise_is_bounded_closely(chance, scale):
    noise = sample_laplace(scale, (400_000, 2), bits=SeededBits(5))
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


def summed_law(chance, scale):
    """The law of the noise by adding up each of its values: slow, and as plain as can be."""
    most = math.ceil(45 * scale) + 1
    cell, values = 2 * (most + 1) / (1 << 15), np.arange(-most, most + 1)
    masses = np.tanh(0.5 / scale) * np.exp(-np.abs(values) / scale)
    parts = [np.ceil(weight * values / cell).astype(int) for weight in (1 - chance, -chance)]
    laws = [np.bincount(part - part.min(), masses) for part in parts]
    tails = np.cumsum(signal.fftconvolve(*laws).clip(0)[::-1])[::-1] + 1e-12
    return cell, sum(part.min() for part in parts), np.append(tails.clip(max=1), 1e-12)


@pytest.mark.parametrize("chance", [1e-6, 0.013, 0.5, 0.77, 1 - 1e-6])
def test_the_law_in_closed_form_is_that_of_every_value_added_up(chance):
    for scale in (1 / 3, 1.0, 10.0, 1000.0, 20_000.0):
        (cell, first, tails), (known_cell, known_first, known) = _noise_law(chance, scale), summed_law(chance, scale)

        assert (cell, first, len(tails)) == (known_cell, known_first, len(known))
        assert np.abs(tails - known).max() < 1e-12


@pytest.mark.parametrize("chance", [0.001, 0.3, 0.5, 0.99])
def test_cells_and_counts_give_the_same_tails(chance):
    trials = np.array([0, 1, 40, 3000, 30_000])
    for scale in (5.0, 400.0, 30_000.0):
        for at in (-2 * scale, 0.0, 0.3 * scale, 50.0, 4 * scale):
            by_cells, by_counts = _sum_by_cells(at, trials, chance, scale), _sum_by_counts(at, trials, chance, scale)

            assert np.abs(by_cells - by_counts).max() < 1e-9


def test_answers_are_those_of_the_sums_over_all_values():
    """As computed, before there was a closed form, from some hundred thousand values of the noise a proportion."""
    known = {
        1: (0.0010000002345022102, (0.5693379445910453, 0.6308238870066404)),
        100: (0.1307599493657933, (0.4466302866216898, 0.8709863753162622)),
        1000: (0.47582088019741337, (0.0, 1.0)),
        10_000: (0.5369687661989896, (0.0, 1.0)),
    }
    for scale, (p, interval) in known.items():
        pair, terms = (600 + 1.3 * scale, 400 + 0.2 * scale), {"scale": float(scale), "alternative": "two-sided"}

        assert private_p_value(*pair, 0.5, **terms) == pytest.approx(p, abs=1e-11)
        assert private_interval(*pair, failure=0.05, **terms) == pytest.approx(interval, abs=1e-6)


def test_noise_of_any_width_is_answered():
    for scale in (1e6, 1e9):  # tables of every value would have 90 million entries, or 90 billion
        away, near = (private_p_value(40 * scale, 0, 0.5, scale=scale), private_p_value(600, 400, 0.5, scale=scale))

        assert away < 0.002 < 0.9 < near
    low, high = private_interval(60 * scale, 40 * scale, scale=scale, failure=0.05, alternative="two-sided")
    assert 0.5 < low < 0.6 < high < 0.7
    assert binomial_test([True] * 60, 0.5, epsilon=1e-9, adjacency="add-remove").value.p_value > 0.001
