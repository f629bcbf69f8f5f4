from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest, Outcome
from expost.data import Dataset
from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis import IndependenceTest, independence_power, independence_test
from expost.stats.hypothesis.independence import independence_p_value, independence_power_bound

RNG = np.random.default_rng(10)


def noisy_tables(rows, law, scale, runs, noise=1, seed=3):
    counts = RNG.multinomial(rows, np.ravel(law), size=runs)
    added = discrete_laplace(noise * Fraction(scale), counts.shape, bits=SeededBits(seed))
    return (counts + added).astype(float).reshape((runs, *np.shape(law))), counts.reshape((runs, *np.shape(law)))


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("margins", [((0.5, 0.5), (0.5, 0.5)), ((0.9, 0.1), (0.6, 0.3, 0.1))])
@pytest.mark.parametrize(("rows", "scale"), [(30, 20), (30, 1), (300, 4)])
def test_independence_keeps_its_level(margins, rows, scale, public, keeps_level):
    noisy, _ = noisy_tables(rows, np.outer(*margins), scale, 200)

    p = [
        independence_p_value(table, rows if public else None, scale=scale, draws=99, bits=SeededBits(seed))
        for seed, table in enumerate(noisy)
    ]

    assert keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_reference_that_knows_too_little_noise_is_caught(keeps_level):
    noisy, _ = noisy_tables(300, np.full((2, 2), 0.25), 20, 400, noise=Fraction(3, 2))

    p = [independence_p_value(table, 300, scale=20, draws=199, bits=SeededBits(i)) for i, table in enumerate(noisy)]

    assert not keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_table_without_its_noise_in_the_reference_breaks_the_level(keeps_level):
    noisy, _ = noisy_tables(300, np.full((2, 2), 0.25), 20, 100)

    naive = [stats.chi2_contingency(np.maximum(table, 1), correction=False).pvalue for table in noisy]

    assert not keeps_level(naive)


def test_the_power_of_independence_is_as_promised_and_below_the_public_test():
    truth = np.array([[0.29, 0.21], [0.21, 0.29]])
    noisy, counts = noisy_tables(300, truth, 4, 200)
    p = [independence_p_value(table, 300, scale=4, draws=199, bits=SeededBits(1)) for table in noisy]
    public = [stats.chi2_contingency(table, correction=False).pvalue for table in counts]

    promised = independence_power(300, truth, epsilon=0.5)

    happened = (np.array(p) <= 0.05).mean()
    assert happened == pytest.approx(promised, abs=0.1)
    assert happened <= (np.array(public) <= 0.05).mean()
    assert independence_power_bound(300, truth, epsilon=0.5, level=0.05, failure_probability=1e-4) < promised


def test_a_proved_power_is_certified():
    release = independence_test([[30, 20], [20, 30]], power=0.5, effect=[[0.4, 0.1], [0.1, 0.4]], bits=SeededBits(1))
    paid = release.receipt.epsilon

    assert 0.05 < paid < 2
    assert release.receipt.outcome is Outcome.CERTIFIED
    assert "proved by simulation" in release.receipt.terms["power"]
    assert independence_power(100, [[0.4, 0.1], [0.1, 0.4]], epsilon=paid) >= 0.5


def test_a_private_number_of_rows_has_half_the_noise_and_an_estimated_power():
    effect = [[0.3, 0.2], [0.2, 0.3]]

    release = independence_test(
        [[300, 200], [200, 300]],
        power=0.8,
        effect=effect,
        adjacency="add-remove",
        expected_rows=1000,
        bits=SeededBits(1),
    )

    assert release.receipt.outcome is Outcome.ESTIMATED
    assert release.receipt.epsilon < 0.09
    assert independence_power(1000, effect, epsilon=0.05, adjacency="add-remove") > independence_power(
        1000, effect, epsilon=0.05
    )


@pytest.mark.parametrize("described", [{"adjacency": "replace-one", "rows": 800}, {"adjacency": "add-remove"}])
def test_a_dataset_is_tested_by_its_public_categories(described):
    table = pa.table(
        {
            "late": [True] * 400 + [False] * 400,
            "at": ["A"] * 300 + ["B"] * 100 + ["A"] * 100 + ["B"] * 290 + [None] * 10,
            "even": [True, False] * 400,
        }
    )
    public = {"late": [True, False], "at": ["A", "B"], "even": [True, False]}
    dataset = Dataset(table, categories=public, **described)

    def p_value(first, second):
        request = IndependenceTest(first, second, epsilon=1)
        request.check(dataset)
        return request.climb(request.measure(dataset), SeededBits(1)).value.p_value

    assert p_value("late", "at") < 0.001
    assert p_value("late", "even") > 0.01


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: independence_test([[1, 2]], epsilon=1), "table of counts"),
        (lambda: independence_test([[1, 2], [3, 4]], power=0.8), "joint probabilities"),
        (lambda: independence_test([[1, 2], [3, 4]], power=0.8, effect=[[0.2, 0.2, 0.2], [0.2, 0.1, 0.1]]), "shape"),
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
