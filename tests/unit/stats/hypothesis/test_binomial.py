from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import optimize, stats

from expost.answer import answer
from expost.core import BudgetExceeded, InvalidRequest, Outcome, PureLoss, epsilon
from expost.data import Dataset
from expost.ledger import open_ledger
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import BinomialTest, binomial_power, binomial_test
from expost.stats.hypothesis.binomial import _solve_critical, binomial_p_values, noisy_binomial_tail, tulap_cdf
from expost.stats.hypothesis.reference_law import sample_uniforms


def statistics(rows, chance, strength, runs, seed=1):
    """Released statistics of so many runs at once: noisy count plus uniform number."""
    bits = SeededBits(seed)
    counts = np.random.default_rng(seed).binomial(rows, chance, runs)
    return counts + sample_laplace(1 / Fraction(strength), runs, bits=bits) + sample_uniforms((runs,), bits) - 0.5


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(("rows", "strength"), [(3, "0.01"), (12, "0.2"), (40, "2")])
def test_the_level_is_exact_at_small_n_and_small_epsilon(rows, strength, alternative):
    seen = statistics(rows, 0.3, strength, 40_000)

    p = binomial_p_values(seen, rows, 0.3, epsilon=float(strength), alternative=alternative)

    for level in (0.01, 0.05, 0.2):
        assert (p <= level).mean() == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 40_000))


def test_one_release_has_the_p_value_of_its_statistic():
    verdict = binomial_test([True] * 60 + [False] * 40, 0.5, epsilon=0.5, bits=SeededBits(1)).value

    assert verdict.p_value == binomial_p_values(np.array([verdict.statistic]), 100, 0.5, epsilon=0.5)[0]


def test_intervals_cover_the_true_proportion():
    rng = np.random.default_rng(3)
    bits = SeededBits(6)
    intervals = [binomial_test(rng.random(60) < 0.2, 0.5, epsilon=0.5, bits=bits).interval for _ in range(300)]

    covered = np.mean([low <= 0.2 <= high for low, high in intervals])

    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / 300))


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_the_power_formula_is_what_happens(alternative):
    seen = statistics(150, 0.62, "0.3", 40_000)
    p = binomial_p_values(seen, 150, 0.5, epsilon=0.3, alternative=alternative)

    promised = binomial_power(150, 0.5, 0.62, epsilon=0.3, alternative=alternative)

    assert (p <= 0.05).mean() == pytest.approx(promised, abs=0.01)


def test_power_rises_with_epsilon_towards_the_test_without_privacy():
    powers = [binomial_power(200, 0.5, 0.6, epsilon=e) for e in (0.01, 0.1, 1.0, 10.0, float("inf"))]

    assert powers == sorted(powers)
    assert powers[-1] - powers[2] < 0.02 < powers[-1] - powers[1]


def test_the_smallest_epsilon_for_a_power_is_bought():
    release = binomial_test([True, False] * 250, 0.5, power=0.9, effect=0.6, bits=SeededBits(1))
    paid = release.receipt.epsilon

    assert binomial_power(500, 0.5, 0.6, epsilon=paid) >= 0.9 > binomial_power(500, 0.5, 0.6, epsilon=0.999 * paid)
    assert release.receipt.outcome is Outcome.CERTIFIED
    assert str(release.receipt.target) == "power >= 0.9 at level 0.05"


def test_a_power_beyond_the_cap_is_refused_before_the_data_is_touched():
    with pytest.raises(BudgetExceeded, match=r"above max_epsilon=0\.01"):
        binomial_test([True, False] * 250, 0.5, power=0.9, effect=0.6, max_epsilon=0.01)
    with pytest.raises(InvalidRequest, match="without privacy"):
        binomial_test([True, False] * 5, 0.5, power=0.99, effect=0.51)


def test_a_dataset_is_billed_through_the_curator():
    people = pa.table({"late": [True] * 70 + [False] * 30 + [None] * 4})
    dataset = Dataset(people, adjacency="replace-one", rows=104)
    ledger = open_ledger(None)
    ledger.open_account("dataset:flights", epsilon(1))
    request = BinomialTest("late", equals=True, null=0.2, alternative="greater", epsilon=0.5)

    release = answer(request, dataset, ledger=ledger, accounts=["dataset:flights"], bits=SeededBits(1), simulation=True)

    assert release.value.rejects(0.01)
    assert 0.5 < release.value.estimate < 0.85
    assert ledger.spent("dataset:flights") == PureLoss(0.5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: binomial_test([], 0.5, epsilon=1), "non-empty list"),
        (lambda: binomial_test([1, 0], 1.5, epsilon=1), "null between 0 and 1"),
        (lambda: binomial_test([1, 0], 0.5), "either epsilon or power"),
        (lambda: binomial_test([1, 0], 0.5, epsilon=-1), "epsilon > 0"),
        (lambda: binomial_test([1, 0], 0.5, power=0.8), "proportion at which the power"),
        (lambda: binomial_test([1, 0], 0.5, epsilon=1, alternative="both"), "alternative"),
        (lambda: binomial_test([1, 0], 0.5, power=0.01, effect=0.6), "above the level"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()


def test_a_dataset_of_several_rows_a_person_is_refused():
    table = pa.table({"late": [True], "id": ["a"]})
    request = BinomialTest("late", equals=True, null=0.2, epsilon=0.5)

    with pytest.raises(InvalidRequest, match="different people"):
        request.plan(Dataset(table, unit="id", max_rows_per_unit=1, adjacency="replace-one", rows=1))
    with pytest.raises(InvalidRequest, match="boolean values"):
        BinomialTest("late", equals="yes", null=0.2, epsilon=0.5).plan(Dataset(table, adjacency="replace-one", rows=1))
    with pytest.raises(InvalidRequest, match="guess of the number of rows"):
        BinomialTest("late", equals=True, null=0.2, power=0.8, effect=0.3).plan(Dataset(table))


def test_a_private_number_of_rows_is_told_on_the_receipt():
    people = pa.table({"late": [True] * 140 + [False] * 60 + [None] * 4})
    request = BinomialTest("late", equals=True, null=0.5, alternative="greater", epsilon=0.5)
    plan = request.plan(Dataset(people))
    release = plan.climb(plan.measure(Dataset(people)), SeededBits(1))

    assert release.value.rejects(0.01)
    assert release.receipt.terms["rows"] == "private"
    assert not release.receipt.adjacency.public_size
    direct = binomial_test([True] * 140 + [False] * 64, 0.5, alternative="greater", adjacency="add-remove", epsilon=0.5)
    assert direct.interval[1] == release.interval[1] == 1.0


def test_a_power_with_a_private_number_of_rows_is_proved_for_an_expected_one():
    release = binomial_test(
        [True, False] * 250,
        0.5,
        power=0.8,
        effect=0.6,
        adjacency="add-remove",
        expected_rows=500,
        bits=SeededBits(1),
    )
    paid = release.receipt.epsilon

    assert release.receipt.outcome is Outcome.CERTIFIED
    assert binomial_power(500, 0.5, 0.6, epsilon=paid, adjacency="add-remove") >= 0.8
    assert binomial_power(500, 0.5, 0.6, epsilon=paid / 1.2, adjacency="add-remove") < 0.8


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
    noise = sample_laplace(off / epsilon, runs, bits=bits)

    p = noisy_binomial_tail(counts + noise + sample_uniforms((runs,), bits) - 0.5, rows, 0.4, epsilon)
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

    power = float(noisy_binomial_tail(_solve_critical(rows, null, epsilon, level), rows, truth, epsilon))

    assert power == pytest.approx(best, rel=1e-6)
