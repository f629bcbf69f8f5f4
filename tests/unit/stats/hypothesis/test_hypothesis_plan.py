import dataclasses
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest, Outcome, PlanContext, PureLoss, Sealed, Sensitivity, WrongArguments
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import hypothesis
from expost.stats.hypothesis import AnovaTest, BinomialTest, CorrelationTest, LinearCorrelationTest, MeanDifferenceTest
from expost.stats.hypothesis.hypothesis_input import read_alternative
from expost.stats.hypothesis.hypothesis_plan import HypothesisVerdict, add_laplace_noise, tail_to_p_value

ROWS = 400
TABLE = pa.table(
    {
        "x": np.linspace(0, 9, ROWS),
        "y": np.linspace(9, 0, ROWS),
        "g": ["a", "b"] * (ROWS // 2),
        "a": [True, False] * 200,
    }
)
DESCRIBED = {"bounds": {"x": (0, 9), "y": (0, 9)}, "categories": {"g": ["a", "b"], "a": [True, False]}}
POWER = {"power": 0.5, "effect": 0.5}
QUERIES = [
    BinomialTest("a", equals=True, null=0.3, **POWER),
    AnovaTest("x", by="g", power=0.5, effect=(0.0, 3.0), deviation=1),
    MeanDifferenceTest("x", by="g", groups=("a", "b"), deviation=1, power=0.5, effect=3),
    CorrelationTest("x", "y", **POWER),
    hypothesis.SignedRankTest("x", "y", **POWER),
    LinearCorrelationTest("x", "y", deviations=(2, 2), power=0.5, effect=0.8),
]
FIXED = [
    BinomialTest("a", equals=True, null=0.3, epsilon=2),
    hypothesis.GoodnessOfFitTest("g", [0.5, 0.5], epsilon=2),
    hypothesis.IndependenceTest("a", "g", epsilon=2),
    hypothesis.SplitTest("means", "x", "g", epsilon=2),
    hypothesis.MannWhitneyTest("x", by="g", groups=("a", "b"), epsilon=2),
    hypothesis.KruskalWallisTest("x", by="g", epsilon=2),
]


def table_of(rows):
    return Dataset(TABLE.slice(0, rows), adjacency="replace-one", rows=rows, **DESCRIBED)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)
def test_a_power_is_priced_for_the_table_it_is_planned_for(query):
    small, large = (query.plan(table_of(rows), PlanContext()) for rows in (200, ROWS))

    assert large.worst_case.epsilon < small.worst_case.epsilon
    assert small.price.outcome in (Outcome.CERTIFIED, Outcome.ESTIMATED)
    assert small.worst_case == query.plan(table_of(200)).worst_case  # the other plan left nothing behind


@pytest.mark.parametrize("query", QUERIES + FIXED, ids=lambda query: type(query).__name__)
def test_queries_and_plans_are_frozen(query):
    plan = query.plan(table_of(ROWS))

    with pytest.raises(dataclasses.FrozenInstanceError):
        query.epsilon = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.price = None
    assert plan.question == query.question
    release = plan.climb(plan.measure(table_of(ROWS)), SeededBits(1))
    assert release.receipt.bill == plan.worst_case
    assert release.receipt.question == query.question


def test_a_given_epsilon_is_the_price():
    assert FIXED[0].plan(table_of(ROWS)).worst_case == PureLoss(2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: BinomialTest("a", equals=True, null=0.3, epsilom=1),
        lambda: hypothesis.binomial_test([True], 0.5, epsilom=1),
        lambda: hypothesis.SplitTest("means", "x", "g", epsilom=1),
    ],
)
def test_a_misspelt_argument_is_explained(call):
    with pytest.raises(WrongArguments, match=r"unexpected argument 'epsilom'\. Did you mean 'epsilon'"):
        call()


@pytest.mark.parametrize("column", [1, None, ["x"], np.zeros(2)])
def test_a_column_is_named_by_a_text(column):
    for build in (
        lambda: BinomialTest(column, equals=True, null=0.3, epsilon=1),
        lambda: AnovaTest("x", by=column, epsilon=1),
        lambda: hypothesis.MannWhitneyTest(column, by="g", groups=("a", "b"), epsilon=1),
        lambda: hypothesis.KruskalWallisTest("x", by=column, epsilon=1),
        lambda: hypothesis.SignedRankTest(column, "y", epsilon=1),
        lambda: CorrelationTest(column, "y", epsilon=1),
        lambda: LinearCorrelationTest(column, column, epsilon=1),
        lambda: hypothesis.IndependenceTest(column, "y", epsilon=1),
        lambda: hypothesis.SplitTest("means", "x", column, epsilon=1),
    ):
        with pytest.raises(InvalidRequest, match="name of a column"):
            build()


def test_noise_has_the_scale_of_its_sensitivity():
    sealed = Sealed([0] * 4000, Sensitivity(3))
    seen = abs(add_laplace_noise(sealed, Fraction(1, 2), SeededBits(1))).mean()

    assert 0.9 * 6 < seen < 1.1 * 6


def test_a_verdict_rejects_at_and_below_its_p_value():
    verdict = HypothesisVerdict(test="t", statistic=1.0, p_value=0.05)

    assert verdict.rejects(0.05)
    assert not verdict.rejects(0.049)
    with pytest.raises(InvalidRequest):
        verdict.rejects(0)


def test_tails_add_up():
    assert tail_to_p_value(0.3, "greater") + tail_to_p_value(0.3, "less") == 1
    assert tail_to_p_value(0.9, "two-sided") == pytest.approx(0.2)


def test_an_unknown_alternative_is_refused():
    with pytest.raises(InvalidRequest):
        read_alternative("unequal")
