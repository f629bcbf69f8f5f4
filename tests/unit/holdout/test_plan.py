import math
from fractions import Fraction

import pytest

from expost.core import InvalidRequest
from expost.holdout import affordable_hits, approximate_epsilon, plan_holdout, rows_needed, tolerance_reached

COMMON = {"failure_probability": 0.05, "max_queries": 200}


@pytest.mark.parametrize("variant", ["analysed", "improved"])
def test_sizing_and_its_reverse_agree(variant):
    rows = rows_needed(7, tolerance=0.15, variant=variant, **COMMON)

    assert affordable_hits(rows, tolerance=0.15, variant=variant, **COMMON) >= 7
    assert affordable_hits(rows - 1, tolerance=0.15, variant=variant, **COMMON) < 7
    assert tolerance_reached(rows, max_hits=7, variant=variant, **COMMON) <= 0.15


def test_the_improved_variant_carries_more_answers():
    analysed = affordable_hits(100_000, tolerance=0.1, **COMMON)
    improved = affordable_hits(100_000, tolerance=0.1, variant="improved", **COMMON)

    assert improved > 5 * analysed > 0


def test_the_promise_is_the_tightest_certificate_and_keeps_the_tolerance():
    plan = plan_holdout(30_000, tolerance=0.15, variant="improved", **COMMON)

    assert plan.promise == min(plan.certificates)
    assert plan.promise.error <= 0.15
    assert plan.max_hits == affordable_hits(30_000, tolerance=0.15, variant="improved", **COMMON)


def test_the_whole_session_costs_what_lemma_3_2_says():
    plan = plan_holdout(200_000, tolerance=0.15, max_hits=3, **COMMON)
    sigma = plan.level.answer_scale

    assert plan.guarantee.epsilon == 3 * 2 / (sigma * 200_000)
    assert plan.concentrated.rho == 3 / (sigma * 200_000) ** 2
    assert plan.threshold_epsilon == Fraction(1, 2) / (sigma * 200_000)


def test_the_bound_in_force_grows_with_the_answers_given_and_ends_at_the_promise():
    plan = plan_holdout(30_000, tolerance=0.15, variant="improved", **COMMON)
    bounds = [plan.bound_in_force(199, hits, from_holdout=False).error for hits in range(plan.max_hits)]

    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(plan.promise.error, rel=1e-9)
    assert plan.bound_in_force(0, 0, from_holdout=True).error < bounds[0]


def test_a_holdout_that_is_too_small_is_refused_with_the_way_out():
    with pytest.raises(InvalidRequest, match="see tolerance_reached"):
        plan_holdout(1000, tolerance=0.01, **COMMON)
    with pytest.raises(InvalidRequest, match="at least 500 answers"):
        plan_holdout(30_000, tolerance=0.1, failure_probability=0.05, max_queries=1000, max_hits=500)


@pytest.mark.parametrize(
    "changes",
    [
        {"tolerance": 0},
        {"tolerance": 1.5},
        {"tolerance": float("nan")},
        {"failure_probability": 0},
        {"failure_probability": 1},
        {"max_queries": 0},
        {"max_queries": 2.5},
        {"rows": -1},
        {"max_hits": 0},
        {"variant": "best"},
    ],
)
def test_nonsense_is_refused(changes):
    arguments = {"rows": 30_000, "tolerance": 0.15, **COMMON} | changes

    with pytest.raises(InvalidRequest):
        plan_holdout(arguments.pop("rows"), **arguments)


@pytest.mark.parametrize("variant", ["analysed", "improved"])
@pytest.mark.parametrize("rows", [20_000, 2_000_000])
def test_the_approximate_guarantee_is_the_least_of_the_three_known(variant, rows):
    plan = plan_holdout(
        rows,
        tolerance=0.3,
        failure_probability=0.05,
        max_queries=50,
        max_hits=1 if rows < 10**6 else 50,
        variant=variant,
    )
    delta = 1e-6
    found = plan.approximate(delta)
    rho = float(plan.concentrated.rho)

    assert found.epsilon <= plan.guarantee.epsilon
    assert float(found.epsilon) <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-8)
    if variant == "analysed":
        published = approximate_epsilon(plan.max_hits, sigma=float(plan.level.answer_scale), rows=rows, delta=delta)
        assert float(found.epsilon) <= published * (1 + 1e-8)


def test_one_hit_of_the_analysed_variant_costs_what_the_lemma_says():
    plan = plan_holdout(2_000_000, tolerance=0.3, failure_probability=0.05, max_queries=50, max_hits=7)
    sigma = plan.level.answer_scale

    # LeeNotes, Lemma 3.2(1): 2 B / (sigma n); the zCDP form of its 2 B steps of 1/(sigma n) each is B / (sigma n)^2.
    assert plan.guarantee.epsilon == 7 * 2 / (sigma * plan.rows)
    assert plan.concentrated.rho == 7 / (sigma * plan.rows) ** 2
    assert float(sigma) == pytest.approx(0.3 / (96 * math.log(4 * 50 / 0.05)), rel=1e-5)
    assert (plan.level.threshold, plan.level.threshold_scale, plan.level.query_scale) == (
        3 * plan.tolerance / 4,
        2 * sigma,
        4 * sigma,
    )
