from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis import (
    GoodnessOfFitTest,
    IndependenceTest,
    fit_power,
    fit_test,
    independence_power,
    independence_test,
)
from expost.stats.hypothesis.chi_squared import fit_p_values, independence_p_value

RNG = np.random.default_rng(10)
SKEWED = np.array([0.7, 0.2, 0.05, 0.03, 0.02])


def noisy_tables(rows, law, strength, runs, noise=1, seed=3):
    counts = RNG.multinomial(rows, np.ravel(law), size=runs)
    added = discrete_laplace(noise * 2 / Fraction(strength), counts.shape, bits=SeededBits(seed))
    return (counts + added).astype(float).reshape((runs, *np.shape(law))), counts.reshape((runs, *np.shape(law)))


@pytest.mark.parametrize("law", [np.full(2, 0.5), np.full(4, 0.25), SKEWED])
@pytest.mark.parametrize("rows", [10, 300])
@pytest.mark.parametrize("strength", ["0.05", "1"])
def test_goodness_of_fit_keeps_its_level(law, rows, strength, keeps_level):
    noisy, _ = noisy_tables(rows, law, strength, 4000)

    # 20,000 draws of the reference add their own error to the level: half a standard error here.
    assert keeps_level(fit_p_values(noisy, rows, law, epsilon=float(strength), draws=20_000, bits=SeededBits(7)))


def test_goodness_of_fit_with_ten_per_cent_more_noise_is_caught(keeps_level):
    noisy, _ = noisy_tables(10, SKEWED, "0.05", 20_000, noise=Fraction(11, 10))

    assert not keeps_level(fit_p_values(noisy, 10, SKEWED, epsilon=0.05, draws=20_000, bits=SeededBits(7)))


@pytest.mark.parametrize("margins", [((0.5, 0.5), (0.5, 0.5)), ((0.9, 0.1), (0.6, 0.3, 0.1))])
@pytest.mark.parametrize(("rows", "strength"), [(30, "0.1"), (30, "3"), (300, "0.5")])
def test_independence_keeps_its_level(margins, rows, strength, keeps_level):
    noisy, _ = noisy_tables(rows, np.outer(*margins), strength, 250)

    p = [
        independence_p_value(table, rows, epsilon=float(strength), draws=199, bits=SeededBits(seed))
        for seed, table in enumerate(noisy)
    ]

    assert keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_table_without_its_noise_in_the_reference_breaks_the_level(keeps_level):
    noisy, _ = noisy_tables(300, np.full((2, 2), 0.25), "0.1", 100)

    naive = [stats.chi2_contingency(np.maximum(table, 1), correction=False).pvalue for table in noisy]

    assert not keeps_level(naive)


def test_the_power_of_goodness_of_fit_is_as_promised_and_below_the_public_test():
    law, truth = np.full(4, 0.25), np.array([0.29, 0.21, 0.29, 0.21])
    noisy, counts = noisy_tables(500, truth, "0.5", 2000)

    happened = (fit_p_values(noisy, 500, law, epsilon=0.5, draws=5000, bits=SeededBits(1)) <= 0.05).mean()
    public = (stats.chisquare(counts, 125.0, axis=1).pvalue <= 0.05).mean()

    assert happened == pytest.approx(fit_power(500, law, truth, epsilon=0.5), abs=0.05)
    assert 0.5 * public < happened <= public


def test_the_power_of_independence_is_as_promised():
    truth = np.array([[0.29, 0.21], [0.21, 0.29]])
    noisy, _ = noisy_tables(300, truth, "0.5", 150)
    p = [independence_p_value(table, 300, epsilon=0.5, draws=199, bits=SeededBits(1)) for table in noisy]

    promised = independence_power(300, truth, epsilon=0.5)

    assert (np.array(p) <= 0.05).mean() == pytest.approx(promised, abs=0.12)
    assert 0.3 < promised < 0.95


def test_power_is_bought_with_the_smallest_epsilon():
    release = fit_test([260, 240, 260, 240], [0.25] * 4, power=0.8, effect=[0.3, 0.2, 0.3, 0.2], bits=SeededBits(1))
    table = independence_test([[30, 20], [20, 30]], power=0.5, effect=[[0.4, 0.1], [0.1, 0.4]], bits=SeededBits(1))

    assert 0.05 < release.receipt.epsilon < 1
    assert fit_power(1000, [0.25] * 4, [0.3, 0.2, 0.3, 0.2], epsilon=release.receipt.epsilon) >= 0.81
    assert 0.05 < table.receipt.epsilon < 2


def test_datasets_are_tested_by_their_public_categories():
    table = pa.table(
        {
            "late": [True] * 400 + [False] * 400,
            "at": ["A"] * 300 + ["B"] * 100 + ["A"] * 100 + ["B"] * 290 + [None] * 10,
        }
    )
    dataset = Dataset(table, adjacency="replace-one", rows=800, categories={"late": [True, False], "at": ["A", "B"]})
    fit = GoodnessOfFitTest("late", [0.7, 0.3], epsilon=1)
    independent = IndependenceTest("late", "at", epsilon=1)

    for request in (fit, independent):
        request.check(dataset)
        release = request.climb(request.measure(dataset), SeededBits(1))

        assert release.value.rejects(0.001)


def test_a_true_null_is_not_rejected_on_a_dataset():
    table = pa.table({"late": [True, False] * 400, "at": ["A", "A", "B", "B"] * 200})
    dataset = Dataset(table, adjacency="replace-one", rows=800, categories={"late": [True, False], "at": ["A", "B"]})
    request = IndependenceTest("late", "at", epsilon=1)
    request.check(dataset)

    assert request.climb(request.measure(dataset), SeededBits(1)).value.p_value > 0.01


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: fit_test([1, 2], [0.5, 0.6], epsilon=1), "sum to 1"),
        (lambda: fit_test([1, 2, 3], [0.5, 0.5], epsilon=1), "for each count"),
        (lambda: fit_test([1.5, 2], [0.5, 0.5], epsilon=1), "table of counts"),
        (lambda: independence_test([[1, 2]], epsilon=1), "table of counts"),
        (lambda: independence_test([[1, 2], [3, 4]], power=0.8), "joint probabilities"),
        (lambda: fit_test([1, 2], [0.5, 0.5], power=0.8), "probabilities at which"),
        (lambda: IndependenceTest("a", "a", epsilon=1), "different columns"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()


def test_categories_must_be_public():
    dataset = Dataset(pa.table({"a": ["x"], "b": ["y"]}), adjacency="replace-one", rows=1)

    with pytest.raises(InvalidRequest, match="public categories"):
        IndependenceTest("a", "b", epsilon=1).check(dataset)
    with pytest.raises(InvalidRequest, match="for each public category"):
        GoodnessOfFitTest("a", [0.5, 0.5], epsilon=1).check(dataset)
