from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.unit.stats.hypothesis.simulated_groups import SPREAD_STRENGTHS, of_unequal_spreads, simulated

from expost.core import Adjacency, InvalidRequest, Outcome
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats.hypothesis import AnovaTest, anova_power, anova_test, mean_difference_test
from expost.stats.hypothesis.anova import anova_p_values

RNG = np.random.default_rng(9)
LAWS = {
    "normal": lambda shape: RNG.normal(0.5, 0.1, shape),
    "rare": lambda shape: (RNG.random(shape) < 0.1).astype(float),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("strength", ["0.05", "1", "8"])
@pytest.mark.parametrize(("sizes", "public_sizes"), [((10, 10, 10), True), ((100, 60, 40, 30), False)])
def test_the_level_is_kept_at_small_n_and_small_epsilon(name, strength, sizes, public_sizes, keeps_level):
    groups, _ = simulated(LAWS[name], sizes, strength, public_sizes=public_sizes, runs=1000)

    assert keeps_level(anova_p_values(groups, draws=299, bits=SeededBits(5)))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("strength", ["0.5", "4"])
def test_the_level_is_kept_when_nothing_about_the_sizes_is_public(name, strength, keeps_level):
    groups, _ = simulated(
        LAWS[name], (100, 60, 40), strength, public_sizes=False, runs=1000, adjacency=Adjacency.ADD_REMOVE
    )

    assert keeps_level(anova_p_values(groups, draws=299, bits=SeededBits(5)))


@pytest.mark.parametrize(
    ("sizes", "spreads"), [((1000, 1000, 50), (1, 1, 4)), ((30, 10, 10), (1, 1, 6)), ((100,) * 4, (0.1, 1, 1, 4))]
)
@pytest.mark.parametrize(("strength", "public_sizes"), SPREAD_STRENGTHS)
def test_the_level_is_kept_where_groups_differ_in_spread_and_size(sizes, spreads, strength, public_sizes, keeps_level):
    for groups in of_unequal_spreads(RNG, sizes, spreads, strength, public_sizes=public_sizes, runs=600):
        assert keeps_level(anova_p_values(groups, draws=299, bits=SeededBits(5)))


def test_taking_unequal_spreads_for_equal_breaks_the_level(keeps_level):
    terms = {"public_sizes": True, "runs": 600, "spreads": (1, 1, 4), "equal_spread": True}
    groups, _ = simulated(lambda shape: RNG.normal(0.5, 0.04, shape), (1000, 1000, 50), "5", **terms)

    assert not keeps_level(anova_p_values(groups, draws=299, bits=SeededBits(5)))


def test_a_reference_with_too_little_noise_is_caught(keeps_level):
    groups, _ = simulated(LAWS["normal"], (10, 10, 10), "0.05", public_sizes=True, runs=4000, noise=Fraction(13, 10))

    assert not keeps_level(anova_p_values(groups, draws=299, bits=SeededBits(5)))


@pytest.mark.parametrize("equal_spread", [True, False])
@pytest.mark.parametrize("public_sizes", [True, False])
def test_the_power_formula_is_close_to_what_happens(public_sizes, equal_spread):
    sizes, shifts, spread = (100, 100, 100), (-0.07, 0.0, 0.07), 0.2
    strength = 1 if public_sizes else 2

    def law(shape):
        return RNG.normal(0.45, spread, shape)

    terms = {"public_sizes": public_sizes, "equal_spread": equal_spread}
    groups, values = simulated(law, sizes, strength, runs=800, shifts=shifts, **terms)
    happened = (anova_p_values(groups, draws=499, bits=SeededBits(5)) <= 0.05).mean()
    means = [0.45 + shift for shift in shifts]
    promised = anova_power(sizes, means, deviation=spread, bounds=(0, 1), epsilon=strength, **terms)

    assert happened == pytest.approx(promised, abs=0.05)
    assert happened <= (stats.f_oneway(*values, axis=1).pvalue <= 0.05).mean()


def test_the_power_is_bought_at_the_smallest_epsilon():
    x = [RNG.normal(mean, 1.0, 200) for mean in (4, 5, 6)]

    release = anova_test(*x, bounds=(0, 10), power=0.8, effect=[4, 5, 6], deviation=1.0, bits=SeededBits(1))

    paid = release.receipt.epsilon
    assert anova_power([200] * 3, [4, 5, 6], deviation=1.0, bounds=(0, 10), epsilon=paid) >= 0.82
    assert anova_power([200] * 3, [4, 5, 6], deviation=1.0, bounds=(0, 10), epsilon=paid * 0.9) < 0.85
    assert release.receipt.target is not None
    assert release.receipt.outcome is Outcome.ESTIMATED


@pytest.mark.parametrize("described", [{"adjacency": "replace-one", "rows": 600}, {"adjacency": "add-remove"}])
def test_a_private_number_of_rows_is_priced_for_an_expected_one(described):
    table = pa.table({"x": np.repeat([3.0, 5.0, 7.0], 200), "g": np.repeat(["a", "b", "c"], 200)})
    dataset = Dataset(table, bounds={"x": (0, 10)}, categories={"g": ["a", "b", "c"]}, **described)
    request = AnovaTest("x", by="g", power=0.8, effect=[4, 5, 6], deviation=1.0, expected_rows=600)
    plan = request.plan(dataset)

    release = plan.climb(plan.measure(dataset), SeededBits(1))

    assert release.value.rejects(0.05)
    assert release.receipt.adjacency is dataset.adjacency


def test_two_groups_are_tested_alike_by_both_tests():
    x, y = RNG.normal(4, 1, 300), RNG.normal(4.3, 0.3, 100)
    terms = {"bounds": (0, 10), "epsilon": 5}

    both = [test(x, y, **terms, bits=SeededBits(3)).value.p_value for test in (anova_test, mean_difference_test)]

    assert both[0] == pytest.approx(both[1], abs=0.02)


def test_equal_spreads_are_said_on_the_receipt():
    x = [RNG.normal(mean, 1.0, 200) for mean in (4, 5, 6)]

    said = [
        anova_test(*x, bounds=(0, 10), epsilon=1, equal_spread=equal, bits=SeededBits(1)).receipt.terms["spread"]
        for equal in (False, True)
    ]

    assert said == ["of each group", "taken for equal"]
    with pytest.raises(InvalidRequest, match="equal_spread"):
        anova_test(*x, bounds=(0, 10), epsilon=1, equal_spread="yes")


def test_a_dataset_is_tested_by_its_public_categories():
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "delay": np.concatenate([rng.normal(mean, 5, 2000) for mean in (10, 10, 14)]),
            "at": ["A"] * 2000 + ["B"] * 2000 + ["C"] * 2000,
        }
    )
    dataset = Dataset(
        table, adjacency="replace-one", rows=6000, bounds={"delay": (-20, 60)}, categories={"at": ["A", "B", "C"]}
    )
    request = AnovaTest("delay", by="at", epsilon=1)
    plan = request.plan(dataset)

    release = plan.climb(plan.measure(dataset), SeededBits(1))

    assert release.value.rejects(0.01)
    assert release.receipt.epsilon == 1.0


def test_nonsense_costs_nothing():
    table = pa.table({"x": [1.0], "g": ["a"]})
    dataset = Dataset(table, adjacency="replace-one", rows=1, bounds={"x": (0, 1)})

    with pytest.raises(InvalidRequest, match="two groups"):
        anova_test([1.0, 2.0], bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidRequest, match="mean of each group"):
        anova_test([1.0, 2.0], [1.0, 2.0], bounds=(0, 1), power=0.8)
    with pytest.raises(InvalidRequest, match="public categories"):
        AnovaTest("x", by="g", epsilon=1).plan(dataset)
