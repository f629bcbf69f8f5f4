import numpy as np
import pytest
from scipy import optimize, stats

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.binomial import _critical
from expost.stats.hypothesis.draw import uniforms
from expost.stats.hypothesis.tulap import noisy_binomial_tail, tulap_cdf


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_law_is_discrete_laplace_spread_over_unit_intervals(epsilon):
    integers = np.arange(-30, 31)
    decay = np.exp(-epsilon)

    mass = tulap_cdf(integers + 0.5, epsilon) - tulap_cdf(integers - 0.5, epsilon)

    np.testing.assert_allclose(mass, (1 - decay) / (1 + decay) * decay ** np.abs(integers), rtol=1e-9, atol=1e-15)
    inside = tulap_cdf(integers[:, None] + np.linspace(-0.5, 0.5, 5), epsilon)
    np.testing.assert_allclose(
        np.diff(inside, axis=1), np.broadcast_to(mass[:, None] / 4, (61, 4)), rtol=1e-6, atol=1e-15
    )


def test_the_tail_of_the_noisy_count_is_the_convolution():
    exact = sum(stats.binom.pmf(x, 12, 0.3) * (1 - tulap_cdf(5.3 - x, 0.7)) for x in range(13))

    assert noisy_binomial_tail(5.3, 12, 0.3, 0.7) == pytest.approx(exact, rel=1e-12)


def test_a_large_number_of_rows_costs_no_accuracy():
    assert noisy_binomial_tail(500_000.0, 1_000_000, 0.5, 0.1) == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize("off", [1.0, 0.9, 1.1])
def test_p_values_are_uniform_at_the_null_only_under_the_right_noise(off):
    rows, epsilon, runs = 20, 0.2, 200_000
    bits = SeededBits(5)
    counts = np.random.default_rng(1).binomial(rows, 0.4, runs)
    noise = discrete_laplace(off / epsilon, runs, bits=bits)

    p = noisy_binomial_tail(counts + noise + uniforms((runs,), bits) - 0.5, rows, 0.4, epsilon)
    distance = stats.kstest(p, "uniform").statistic

    # At 200,000 draws a distance of 0.0055 has probability 1e-5; ten per cent more or less noise is four times that.
    assert (distance < 0.0055) == (off == 1.0)


@pytest.mark.parametrize(("epsilon", "level"), [(0.3, 0.05), (1.0, 0.05), (1.0, 0.2)])
def test_no_private_test_of_the_same_level_has_more_power(epsilon, level):
    """Every epsilon-DP test of n bits is a point of a polytope; the best one is found by linear programming."""
    rows, null, truth = 8, 0.4, 0.7
    x = np.arange(rows + 1)
    at_null, at_truth = stats.binom.pmf(x, rows, null), stats.binom.pmf(x, rows, truth)
    bound = np.exp(epsilon)
    constraints, limits = [at_null], [level]
    for here, there in [(i, i + 1) for i in range(rows)] + [(i + 1, i) for i in range(rows)]:
        row = np.zeros(rows + 1)
        row[here], row[there] = 1, -bound  # phi(x) <= e^eps phi(x')
        constraints.append(row)
        limits.append(0.0)
        constraints.append(-row)  # 1 - phi(x) <= e^eps (1 - phi(x'))
        limits.append(bound - 1)
    best = -optimize.linprog(-at_truth, A_ub=np.array(constraints), b_ub=limits, bounds=(0, 1)).fun

    power = float(noisy_binomial_tail(_critical(rows, null, epsilon, level), rows, truth, epsilon))

    assert power == pytest.approx(best, rel=1e-6)
