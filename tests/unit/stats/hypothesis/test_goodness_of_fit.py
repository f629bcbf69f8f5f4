from fractions import Fraction
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest, Outcome
from expost.data import Dataset
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import GoodnessOfFitTest, fit_power, fit_test
from expost.stats.hypothesis.goodness_of_fit import bound_fit_power, fit_p_values, private_fit_p_value
from expost.stats.hypothesis.reference_law import noise_variance

RNG = np.random.default_rng(10)
SKEWED = np.array([0.7, 0.2, 0.05, 0.03, 0.02])


def noisy_tables(rows, law, scale, runs, noise=1, seed=3):
    counts = RNG.multinomial(rows, np.ravel(law), size=runs)
    added = sample_laplace(noise * Fraction(scale), counts.shape, bits=SeededBits(seed))
    return (counts + added).astype(float).reshape((runs, *np.shape(law))), counts.reshape((runs, *np.shape(law)))


@pytest.mark.parametrize("law", [np.full(2, 0.5), np.full(4, 0.25), SKEWED])
@pytest.mark.parametrize("rows", [10, 300])
@pytest.mark.parametrize("scale", [40, 2])
def test_goodness_of_fit_keeps_its_level(law, rows, scale, keeps_level):
    noisy, _ = noisy_tables(rows, law, scale, 4000)

    # 20,000 draws of the reference add their own error to the level: half a standard error here.
    assert keeps_level(fit_p_values(noisy, rows, law, scale=scale, draws=20_000, bits=SeededBits(7)))


def test_goodness_of_fit_with_ten_per_cent_more_noise_is_caught(keeps_level):
    noisy, _ = noisy_tables(10, SKEWED, 40, 20_000, noise=Fraction(11, 10))

    assert not keeps_level(fit_p_values(noisy, 10, SKEWED, scale=40, draws=20_000, bits=SeededBits(7)))


@pytest.mark.parametrize("law", [np.full(4, 0.25), SKEWED])
@pytest.mark.parametrize(("rows", "scale"), [(10, 1), (40, 8), (300, 2)])
def test_a_private_number_of_rows_keeps_the_level(law, rows, scale, keeps_level):
    noisy, _ = noisy_tables(rows, law, scale, 150)

    p = [private_fit_p_value(each, law, scale=scale, draws=99, bits=SeededBits(i)) for i, each in enumerate(noisy)]

    assert keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_private_number_of_rows_costs_less_than_the_doubled_noise_of_a_public_one():
    law, truth = np.full(4, 0.25), np.array([0.31, 0.19, 0.31, 0.19])
    private, _ = noisy_tables(400, truth, 10, 40)
    public, _ = noisy_tables(400, truth, 20, 2000)

    here = np.mean(
        [private_fit_p_value(each, law, scale=10, draws=299, bits=SeededBits(1)) <= 0.05 for each in private]
    )
    there = (fit_p_values(public, 400, law, scale=20, bits=SeededBits(1)) <= 0.05).mean()

    assert here > there + 0.1


def test_the_power_of_goodness_of_fit_is_as_promised_and_below_the_public_test():
    law, truth = np.full(4, 0.25), np.array([0.29, 0.21, 0.29, 0.21])
    noisy, counts = noisy_tables(500, truth, 4, 4000)

    happened = (fit_p_values(noisy, 500, law, scale=4, draws=5000, bits=SeededBits(1)) <= 0.05).mean()
    public = (stats.chisquare(counts, 125.0, axis=1).pvalue <= 0.05).mean()

    assert happened == pytest.approx(fit_power(500, law, truth, epsilon=0.5), abs=0.05)
    assert 0.5 * public < happened <= public
    bound = bound_fit_power(500, law, truth, epsilon=0.5, level=0.05, failure_probability=1e-4)
    assert happened - 0.08 < bound < happened + 0.02


def test_a_proved_power_is_certified_and_says_how_sure_the_simulation_is():
    release = fit_test([260, 240, 260, 240], [0.25] * 4, power=0.8, effect=[0.3, 0.2, 0.3, 0.2], bits=SeededBits(1))
    paid = release.receipt.epsilon

    assert 0.05 < paid < 1
    assert release.receipt.outcome is Outcome.CERTIFIED
    assert "probability at most 0.0001" in release.receipt.terms["power"]
    assert str(release.receipt.target) == "power >= 0.8 at level 0.05"
    noisy, _ = noisy_tables(1000, [0.3, 0.2, 0.3, 0.2], 2 / paid, 4000)
    happened = (fit_p_values(noisy, 1000, np.full(4, 0.25), scale=2 / paid, bits=SeededBits(1)) <= 0.05).mean()
    assert 0.79 < happened < 0.9


def test_a_private_number_of_rows_is_priced_for_an_expected_one_and_estimated():
    terms = {"power": 0.8, "effect": [0.3, 0.2, 0.3, 0.2], "adjacency": "add-remove", "bits": SeededBits(1)}

    release = fit_test([260, 240, 260, 240], [0.25] * 4, expected_rows=1000, **terms)

    assert release.receipt.outcome is Outcome.ESTIMATED
    assert release.receipt.terms["rows"] == "private"
    assert not release.receipt.adjacency.public_size
    with pytest.raises(InvalidRequest, match="guess of the number of rows"):
        fit_test([260, 240, 260, 240], [0.25] * 4, **terms)


@pytest.mark.parametrize("described", [{"adjacency": "replace-one", "rows": 800}, {"adjacency": "add-remove"}])
def test_datasets_are_tested_by_their_public_categories(described):
    dataset = Dataset(pa.table({"late": [True] * 400 + [False] * 400}), categories={"late": [True, False]}, **described)

    def p_value(chances):
        request = GoodnessOfFitTest("late", chances, epsilon=1)
        plan = request.plan(dataset)
        return plan.climb(plan.measure(dataset), SeededBits(1)).value.p_value

    assert p_value([0.7, 0.3]) < 0.01 < p_value([0.5, 0.5])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: fit_test([1, 2], [0.5, 0.6], epsilon=1), "sum to 1"),
        (lambda: fit_test([1, 2], ["a", "b"], epsilon=1), "sum to 1"),
        (lambda: fit_test([1, 2, 3], [0.5, 0.5], epsilon=1), "for each count"),
        (lambda: fit_test([1.5, 2], [0.5, 0.5], epsilon=1), "table of counts"),
        (lambda: fit_test([-1, 2], [0.5, 0.5], epsilon=1), "table of counts"),
        (lambda: fit_test([1, 2], [0.5, 0.5], power=0.8), "probabilities at which"),
        (
            lambda: fit_test([1, 2], [0.5, 0.5], power=0.8, effect=[0.2, 0.2, 0.6]),
            "effect has 3 entries but there are 2",
        ),
        (lambda: fit_test([1, 2], [0.5, 0.5], epsilon=1, adjacency="none"), "adjacency"),
        (lambda: fit_test([1, 2], [0.5, 0.5], epsilon=1, adjacency="add-remove", expected_rows=0), "expected_rows"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()


def test_categories_must_be_public():
    dataset = Dataset(pa.table({"a": ["x"], "b": ["y"]}), adjacency="replace-one", rows=1)

    with pytest.raises(InvalidRequest, match="for each public category"):
        GoodnessOfFitTest("a", [0.5, 0.5], epsilon=1).plan(dataset)


def test_many_rows_added_at_once_have_the_law_of_single_ones(monkeypatch):
    module = import_module("expost.stats.hypothesis.goodness_of_fit")
    law, noisy, scale = np.array([0.2, 0.3, 0.5]), np.array([4500.0, 1000.0, 4500.0]), 1000.0
    at_once = private_fit_p_value(noisy, law, scale=scale, bits=SeededBits(1))
    monkeypatch.setattr(module, "_FEW_ROWS", 10**6)
    one_by_one = private_fit_p_value(noisy, law, scale=scale, bits=SeededBits(2))

    assert 0.02 < one_by_one < 0.5
    assert at_once == pytest.approx(one_by_one, abs=6 * np.sqrt(0.25 / 1999))


def test_noise_of_any_width_is_answered():
    for epsilon in (1e-7, 1000):
        release = fit_test(np.array([30, 20]), [0.5, 0.5], epsilon=epsilon, adjacency="add-remove", bits=SeededBits(1))

        assert 0 < release.value.p_value <= 1
    assert noise_variance(1e-3) == 0 and noise_variance(1e9) == pytest.approx(2e18)


@pytest.mark.parametrize(
    "counts", [np.array([2**63 + 5, 2**63], np.uint64), [2**62, 2**62], [[1, 2], [3]], [10**30, 1], ["a", "b"]]
)
def test_counts_that_cannot_be_counted_are_refused(counts):
    with pytest.raises(InvalidRequest, match="table of counts"):
        fit_test(counts, [0.5, 0.5], epsilon=1)
