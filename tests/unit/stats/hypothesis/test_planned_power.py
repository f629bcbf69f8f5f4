"""A plan reaches the power that was asked for, for every test, in simulation; planners name the sizes they suppose."""

import math

import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import hypothesis
from expost.stats.hypothesis import smallest_rows

RUNS, POWER = 120, 0.8
SLOW = {"binomial, private": 25, "independence": 25, "Kruskal-Wallis": 40}  # runs of tests with drawn references
PRIVATE = {"adjacency": "add-remove"}


def bounded(rng, size, mean):
    return np.clip(rng.normal(mean, 2, size), 0, 10)


def pair(rng, size, slope):
    x = rng.normal(size=size)
    return x, slope * x + math.sqrt(1 - slope**2) * rng.normal(size=size)


CELLS, TABLE = [0.3, 0.2, 0.3, 0.2], np.array([[0.3, 0.2], [0.2, 0.3]])
PLANS = {  # how a sample is drawn, the test, what it is asked for, and its terms
    "binomial": (
        lambda r: (r.random(500) < 0.6, 0.5),
        hypothesis.binomial_test,
        {"power": POWER, "effect": 0.6},
        {},
    ),
    "binomial, private": (
        lambda r: (r.random(100) < 0.7, 0.5),
        hypothesis.binomial_test,
        {"power": POWER, "effect": 0.7, "expected_rows": 100},
        PRIVATE,
    ),
    "means": (
        lambda r: (bounded(r, 700, 5), bounded(r, 300, 5.8)),
        hypothesis.mean_difference_test,
        {"power": POWER, "effect": 0.8, "deviation": 2},
        {"bounds": (0, 10)},
    ),
    "means, private sizes": (
        lambda r: (bounded(r, 850, 5), bounded(r, 150, 5.8)),
        hypothesis.mean_difference_test,
        {"power": POWER, "effect": 0.8, "deviation": 2, "expected_sizes": (850, 150)},
        {"bounds": (0, 10), **PRIVATE},
    ),
    "several means": (
        lambda r: [bounded(r, n, m) for n, m in ((300, 4.5), (300, 5), (100, 5.5))],
        hypothesis.anova_test,
        {"power": POWER, "effect": (4.5, 5, 5.5), "deviation": 2},
        {"bounds": (0, 10)},
    ),
    "several means, private sizes": (
        lambda r: [bounded(r, n, m) for n, m in ((300, 4.5), (300, 5), (100, 5.5))],
        hypothesis.anova_test,
        {"power": POWER, "effect": (4.5, 5, 5.5), "deviation": 2, "expected_sizes": (300, 300, 100)},
        {"bounds": (0, 10), **PRIVATE},
    ),
    "given probabilities": (
        lambda r: (r.multinomial(1000, CELLS), [0.25] * 4),
        hypothesis.fit_test,
        {"power": POWER, "effect": CELLS},
        {},
    ),
    "independence": (
        lambda r: (r.multinomial(400, TABLE.ravel()).reshape(2, 2),),
        hypothesis.independence_test,
        {"power": POWER, "effect": TABLE},
        {},
    ),
    "rank correlation": (
        lambda r: pair(r, 300, 0.3),
        hypothesis.correlation_test,
        {"power": POWER, "effect": 0.3},
        {},
    ),
    "linear correlation": (
        lambda r: pair(r, 500, 0.3),
        hypothesis.linear_correlation_test,
        {"power": POWER, "effect": 0.3, "deviations": (1, 1)},
        {"bounds": ((-3, 3), (-3, 3))},
    ),
    "Mann-Whitney": (
        lambda r: (r.normal(0.5, 1, 300), r.normal(0, 1, 100)),
        hypothesis.mann_whitney_test,
        {"power": POWER, "effect": 0.5},
        {},
    ),
    "Mann-Whitney, private sizes": (
        lambda r: (r.normal(0.5, 1, 300), r.normal(0, 1, 100)),
        hypothesis.mann_whitney_test,
        {"power": POWER, "effect": 0.5, "expected_sizes": (300, 100)},
        PRIVATE | {"expected_sizes": (300, 100)},
    ),
    "Kruskal-Wallis": (
        lambda r: [r.normal(m, 1, n) for n, m in ((100, 0), (100, 0.5), (50, 0.8))],
        hypothesis.kruskal_wallis_test,
        {"power": POWER, "effect": (0, 0.5, 0.8)},
        {},
    ),
    "signed ranks": (
        lambda r: (r.normal(0.4, 1, 200), np.zeros(200)),
        hypothesis.signed_rank_test,
        {"power": POWER, "effect": 0.4},
        {},
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_reaches_the_power_that_was_asked_for(name):
    draw, test, asked, terms = PLANS[name]
    rng, bits, runs = np.random.default_rng(1), SeededBits(1), SLOW.get(name, RUNS)
    paid = test(*draw(rng), **(terms | asked), bits=bits).receipt.epsilon
    rejected = [test(*draw(rng), epsilon=paid, **terms, bits=bits).value.rejects(0.05) for _ in range(runs)]

    assert np.mean(rejected) > POWER - 3.5 * math.sqrt(POWER * (1 - POWER) / runs)


def test_even_groups_supposed_where_they_are_not_miss_the_power():
    """This is why sizes can be given: the guess of the number of rows alone buys less power than asked."""
    draw, test, asked, terms = PLANS["means, private sizes"]
    uneven = test(*draw(np.random.default_rng(1)), **(terms | asked)).receipt
    even = test(*draw(np.random.default_rng(1)), **(terms | asked | {"expected_sizes": None, "expected_rows": 1000}))

    assert uneven.terms["sizes supposed for the power"] == [850, 150]
    assert even.receipt.terms["sizes supposed for the power"] == [500, 500]
    power = hypothesis.mean_difference_power(
        (850, 150), 0.8, deviation=2, bounds=(0, 10), epsilon=even.receipt.epsilon, adjacency="add-remove"
    )
    assert power < 0.65 and uneven.epsilon > 1.3 * even.receipt.epsilon


def test_sizes_are_supposed_for_a_table_and_fit_into_it():
    table = pa.table({"x": np.linspace(0, 9, 300), "g": ["a", "b", "c"] * 100})
    data = Dataset(table, adjacency="replace-one", rows=300, bounds={"x": (0, 9)}, categories={"g": ["a", "b", "c"]})
    asked = {"power": 0.8, "effect": (3, 4, 5), "deviation": 1}
    plans = [
        hypothesis.AnovaTest("x", by="g", **asked, expected_sizes=sizes).plan(data)
        for sizes in (None, (100, 100, 100), (150, 120, 30))
    ]

    assert plans[0].price.epsilon == plans[1].price.epsilon < plans[2].price.epsilon
    assert plans[2].supposed_sizes == (150, 120, 30)
    for wrong, match in (
        ((200, 200, 200), "at most 300 rows"),
        ((1, 2), "sizes of 3 groups"),
        ((1, 2.5, 3), "whole number"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            hypothesis.AnovaTest("x", by="g", **asked, expected_sizes=wrong).plan(data)


ROWS = {
    "binomial": lambda n: hypothesis.binomial_power(n, 0.5, 0.6, epsilon=1),
    "two means": lambda n: hypothesis.mean_difference_power((n, n), 0.5, deviation=1, bounds=(0, 5), epsilon=1),
    "several means": lambda n: hypothesis.anova_power((n, n, n), (0, 0.5, 1), deviation=1, bounds=(0, 5), epsilon=1),
    "given probabilities": lambda n: hypothesis.fit_power(n, [0.5, 0.5], [0.4, 0.6], epsilon=1),
    "independence": lambda n: hypothesis.independence_power(n, [[0.3, 0.2], [0.2, 0.3]], epsilon=1),
    "rank correlation": lambda n: hypothesis.correlation_power(n, 0.15, epsilon=0.5),
    "linear correlation": lambda n: hypothesis.linear_correlation_power(
        n, 0.3, deviations=(1, 1), bounds=((-3, 3), (-3, 3)), epsilon=1
    ),
    "Mann-Whitney": lambda n: hypothesis.mann_whitney_power((n, 2 * n), 0.5, epsilon=0.5),
    "Kruskal-Wallis": lambda n: hypothesis.kruskal_wallis_power((n, n, n), (0, 0.5, 1), epsilon=0.5),
    "signed ranks": lambda n: hypothesis.signed_rank_power(n, 0.3, epsilon=0.5),
    "split": lambda n: hypothesis.split_power(n, 0.4, epsilon=1),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_fewest_rows_are_found_for_every_test(name):
    rows = smallest_rows(ROWS[name], power=0.8)

    assert ROWS[name](rows) >= 0.8 > ROWS[name](rows - 1)
