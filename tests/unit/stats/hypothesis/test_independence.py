import os
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest, Outcome
from expost.data import Dataset
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import IndependenceTest, independence_power, independence_test
from expost.stats.hypothesis.independence import (
    NUISANCE_MARGINS,
    bound_shares,
    build_margin_net,
    independence_p_value,
    list_possible_sizes,
    sample_independent_tables,
)

RNG = np.random.default_rng(10)

long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")


def noisy_tables(rows, law, scale, runs, noise=1, seed=3):
    counts = RNG.multinomial(rows, np.ravel(law), size=runs)
    added = sample_laplace(noise * Fraction(scale), counts.shape, bits=SeededBits(seed))
    return (counts + added).astype(float).reshape((runs, *np.shape(law))), counts.reshape((runs, *np.shape(law)))


EVEN, RARE = (0.5, 0.5), (0.9, 0.05, 0.05)
LAWS = [
    (EVEN, EVEN, 300, 4),
    ((0.9, 0.1), (0.6, 0.3, 0.1), 30, 1),
    (RARE, RARE, 30, 7),  # a margin of 1.5 rows under noise of ten
    (RARE, RARE, 30, 0.1),  # the same under no noise: only the sample is discrete
    ((0.9, 0.025, 0.025, 0.025, 0.025), (0.9, 0.025, 0.025, 0.025, 0.025), 100, 20),
    ((0.8, 0.2), (0.125,) * 8, 5, 0.2),
    ((0.9, 0.09, 0.009, 0.001), (0.9, 0.09, 0.009, 0.001), 100, 20),
]
"""Margins of two columns, a number of rows, and the scale of the noise."""


def p_values(first, second, rows, scale, *, public, runs, draws=99):
    noisy, _ = noisy_tables(rows, np.outer(first, second), Fraction(scale), runs)
    known = rows if public else None
    return [
        independence_p_value(table, known, scale=scale, draws=draws, bits=SeededBits(seed))
        for seed, table in enumerate(noisy)
    ]


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(("first", "second", "rows", "scale"), LAWS)
def test_independence_keeps_its_level(first, second, rows, scale, public, keeps_level):
    p = p_values(first, second, rows, scale, public=public, runs=120 if public else 40)

    assert keeps_level(p, levels=(0.05, 0.1, 0.2))


@long_profile
@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_independence_keeps_its_level_for_any_table(seed, public, keeps_level):
    rng = np.random.default_rng(seed)
    first, second = (rng.dirichlet(np.full(rng.integers(2, 6), rng.choice([0.2, 1, 9]))) for _ in range(2))
    rows, scale = int(rng.choice([5, 15, 30, 100, 300])), float(rng.choice([0.04, 0.4, 2, 10, 40]))

    assert keeps_level(p_values(first, second, rows, scale, public=public, runs=1500), levels=(0.05, 0.1, 0.2))


def test_the_old_statistic_with_fitted_margins_would_be_caught(keeps_level):
    """Distances centred without regard to the margins, and a reference from the fitted margins alone."""

    def distance(tables):
        shares = [np.maximum(tables.sum(axis) / 30, 0.005) for axis in (2, 1)]
        first, second = (share / share.sum(1, keepdims=True) for share in shares)
        law = first[:, :, None] * second[:, None, :]
        away = tables - 30 * law
        away = away - away.mean(1, keepdims=True) - away.mean(2, keepdims=True) + away.mean((1, 2), keepdims=True)
        return (away**2 / (np.maximum(30 * law, 0.5) + 98)).sum((1, 2)), law

    law = np.outer((0.9, *[0.025] * 4), (0.9, *[0.025] * 4))
    noisy, _ = noisy_tables(30, law, 7, 600)
    seen, fitted = distance(noisy)
    p = []
    for place in range(600):
        drawn, _ = noisy_tables(30, fitted[place], 7, 99, seed=place)
        p.append((1 + (distance(drawn)[0] >= seen[place]).sum()) / 100)

    assert not keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_reference_that_knows_too_little_noise_is_caught(keeps_level):
    noisy, _ = noisy_tables(300, np.full((2, 2), 0.25), 20, 150, noise=2)

    p = [independence_p_value(table, 300, scale=20, draws=99, bits=SeededBits(i)) for i, table in enumerate(noisy)]

    assert not keeps_level(p, levels=(0.05, 0.1, 0.2))


def test_a_table_without_its_noise_in_the_reference_breaks_the_level(keeps_level):
    noisy, _ = noisy_tables(300, np.full((2, 2), 0.25), 20, 100)

    naive = [stats.chi2_contingency(np.maximum(table, 1), correction=False).pvalue for table in noisy]

    assert not keeps_level(naive)


def test_the_power_of_independence_is_as_promised_and_below_the_public_test():
    truth = np.array([[0.29, 0.21], [0.21, 0.29]])
    noisy, counts = noisy_tables(300, truth, 4, 100)
    p = [independence_p_value(table, 300, scale=4, draws=499, bits=SeededBits(1)) for table in noisy]
    public = [stats.chi2_contingency(table, correction=False).pvalue for table in counts]

    promised = independence_power(300, truth, epsilon=0.5)

    happened = (np.array(p) <= 0.05).mean()
    assert happened == pytest.approx(promised, abs=0.15)  # three standard errors
    assert happened <= (np.array(public) <= 0.05).mean()


def test_the_power_of_independence_is_estimated():
    release = independence_test([[30, 20], [20, 30]], power=0.5, effect=[[0.4, 0.1], [0.1, 0.4]], bits=SeededBits(1))
    paid = release.receipt.epsilon

    assert 0.05 < paid < 2
    assert release.receipt.outcome is Outcome.ESTIMATED
    assert "estimated by simulation" in release.receipt.terms["power"]
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
        plan = request.plan(dataset)
        return plan.climb(plan.measure(dataset), SeededBits(1)).value.p_value

    assert p_value("late", "at") < 0.003  # the probability spent on bounds is 0.002 at most
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
        IndependenceTest("a", "b", epsilon=1).plan(dataset)


MARGIN_LAWS = [
    ((0.5, 0.5), 30, 5.0),
    ((0.9, 0.05, 0.05), 30, 0.1),
    ((0.999, 0.0005, 0.0005), 1000, 1.0),
    ((0.25,) * 4, 5, 40.0),
]


@pytest.mark.parametrize(("law", "rows", "scale"), MARGIN_LAWS)
def test_the_possible_shares_hold_the_true_ones_as_surely_as_they_say(law, rows, scale):
    runs, shape = 4000, (len(law), 3)
    counts = np.random.default_rng(1).multinomial(rows, law, runs)
    noise = sample_laplace(Fraction(scale), (runs, *shape), bits=SeededBits(1)).sum(2)

    missed = 0
    for totals in counts + noise.astype(float):
        low, high = bound_shares(totals, rows, scale, shape)
        missed += not ((low <= np.array(law) + 1e-12) & (np.array(law) <= high + 1e-12)).all()

    assert missed / runs <= NUISANCE_MARGINS + 5 * np.sqrt(NUISANCE_MARGINS / runs)


@pytest.mark.parametrize("totals", [[900.0, 100.0], [-5.0, 703.0, 302.0], [333.0, 333.0, 334.0]])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_the_net_is_made_of_possible_laws_and_reaches_both_ends(totals, scale):
    totals = np.array(totals)
    shape = (len(totals), 2)

    net = build_margin_net(totals, 1000, scale, shape)

    low, high = bound_shares(totals, 1000, scale, shape)
    for law in net:
        assert law.sum() == pytest.approx(1)
        assert (law >= low - 1e-9).all()
        assert (law <= high + 1e-9).all()
    spreads = [float((law**2).sum()) for law in net]
    assert max(spreads) == pytest.approx(spreads[0])
    assert min(spreads) == pytest.approx(spreads[-2])


@pytest.mark.parametrize("totals", [[-50.0, 3.0, 2.0], [4000.0, 9.0], [0.0, 0.0], [4000.0, 4000.0]])
def test_totals_that_no_law_explains_still_give_laws(totals):
    for law in build_margin_net(np.array(totals), 1000, 0.1, (len(totals), 2)):
        assert law.sum() == pytest.approx(1)
        assert (law >= 0).all()


def test_tables_of_few_and_of_many_rows_follow_the_same_laws(monkeypatch):
    noisy = np.array([[30.0, 5.0], [4.0, 1.0]])

    def means():
        return [t.mean(0) for t in sample_independent_tables(noisy, [40], scale=0.5, draws=4000, bits=SeededBits(1))]

    by_row = means()
    monkeypatch.setattr("expost.stats.hypothesis.independence._UNIFORMS", 0)

    assert len(by_row) == 25
    np.testing.assert_allclose(by_row, means(), atol=0.4)


def test_a_private_number_of_rows_is_tried_at_the_ends_and_in_the_middle():
    assert list_possible_sizes(np.full((2, 2), 100.0), 400, 1.0) == [400]
    low, middle, high = list_possible_sizes(np.full((2, 2), 100.0), None, 1.0)
    assert low < middle == 400 < high
    assert min(list_possible_sizes(np.full((2, 2), -100.0), None, 1.0)) == 1
