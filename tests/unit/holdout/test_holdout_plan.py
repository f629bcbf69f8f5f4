import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from expost.core import BudgetExceeded, InvalidRequest, epsilon
from expost.holdout import affordable_hits, plan_holdout, rows_needed, tolerance_reached
from expost.holdout.holdout_plan import HoldoutPlan, analysed_level, improved_level
from expost.holdout.holdout_session import plan_within_budget
from expost.holdout.holdout_size import (
    approximate_epsilon,
    published_bounds,
    rows_for_approximate,
    rows_for_concentrated,
    rows_for_pure,
)
from expost.noise import SeededBits, sample_geometric, sample_laplace

COMMON = {"failure_probability": 0.05, "max_queries": 200}


@pytest.mark.parametrize("variant", ["analysed", "improved"])
def test_sizing_and_its_reverse_agree(variant):
    rows = rows_needed(7, tolerance=0.15, variant=variant, **COMMON)

    assert affordable_hits(rows, tolerance=0.15, variant=variant, **COMMON) >= 7
    assert affordable_hits(rows - 1, tolerance=0.15, variant=variant, **COMMON) < 7
    assert tolerance_reached(rows, max_hits=7, variant=variant, **COMMON) <= 0.15


def test_the_improved_variant_carries_more_answers():
    analysed = affordable_hits(100_000, tolerance=0.1, variant="analysed", **COMMON)
    improved = affordable_hits(100_000, tolerance=0.1, variant="improved", **COMMON)

    assert improved > 5 * analysed > 0


@pytest.mark.parametrize("allowed", [0.1, 1, 4])
@pytest.mark.parametrize("tolerance", [0.02, 0.1, 0.4])
def test_within_one_epsilon_the_default_carries_no_fewer_answers_than_the_published_variant(tolerance, allowed):
    """docs/decisions/0013-improved-holdout-by-default.md."""
    carried = 0
    for rows, queries, failure in itertools.product((10_000, 100_000, 1_000_000), (1, 100, 10_000), (0.001, 0.5)):
        terms = {"tolerance": tolerance, "failure_probability": failure, "max_queries": queries}
        try:
            published = plan_within_budget(rows, epsilon(allowed), variant="analysed", **terms)
        except (InvalidRequest, BudgetExceeded):
            continue
        chosen = plan_within_budget(rows, epsilon(allowed), **terms)

        assert chosen.variant == "improved"
        assert chosen.guarantee.epsilon <= allowed
        assert chosen.max_hits >= published.max_hits
        assert chosen.hit_epsilon < published.hit_epsilon
        assert chosen.threshold_epsilon < published.threshold_epsilon
        carried += 1

    assert carried


def test_the_promise_is_the_tightest_certificate_and_keeps_the_tolerance():
    plan = plan_holdout(30_000, tolerance=0.15, variant="improved", **COMMON)

    assert plan.promise == min(plan.certificates)
    assert plan.promise.error <= 0.15
    assert plan.max_hits == affordable_hits(30_000, tolerance=0.15, variant="improved", **COMMON)


def test_the_whole_session_costs_what_lemma_3_2_says():
    plan = plan_holdout(200_000, tolerance=0.15, max_hits=3, variant="analysed", **COMMON)
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
    plan = plan_holdout(
        2_000_000, tolerance=0.3, failure_probability=0.05, max_queries=50, max_hits=7, variant="analysed"
    )
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


ROWS, QUERIES, HITS = 1000, 50, 5
UNIT = 1 << 20


def levels():
    return {
        "analysed": analysed_level(tolerance=Fraction(1, 10), failure_probability=0.1, max_queries=QUERIES),
        "improved": improved_level(
            tolerance=Fraction(1, 10),
            failure_probability=0.1,
            max_queries=QUERIES,
            max_hits=HITS,
            noise_share=Fraction(1, 4),
        ),
    }


@pytest.mark.parametrize("name", ["analysed", "improved"])
def test_noise_stays_within_its_promise(name):
    """The worst of all thresholds, questions and answers of a session, over many sessions."""
    level, runs = levels()[name], 4000
    draw = sample_geometric if level.one_sided else sample_laplace
    tests = 2 * QUERIES if level.one_sided else QUERIES
    thresholds = draw(level.threshold_scale * UNIT, (runs, HITS), bits=SeededBits(1)) / UNIT
    questions = draw(level.query_scale * UNIT, (runs, tests), bits=SeededBits(2)) / UNIT
    promised = level.sample_errors(max_queries=QUERIES, max_hits=HITS, failure_probability=0.1)

    # A kept training answer: difference < threshold + its noise - the question's noise.
    kept = float(level.threshold) + thresholds.max(1) - questions.min(1)
    if level.answer_scale is None:
        answers = np.abs(questions - float(level.query_scale)).max(1) + float(level.threshold_scale)
    else:
        answers = np.abs(sample_laplace(level.answer_scale * UNIT, (runs, HITS), bits=SeededBits(3)) / UNIT).max(1)

    assert (kept > promised[0]).mean() <= 0.1
    assert (answers > promised[1]).mean() <= 0.1


def test_the_published_constants_are_used():
    level = levels()["analysed"]
    sigma = level.answer_scale

    assert level.threshold == Fraction(3, 40)
    assert (level.threshold_scale, level.query_scale) == (2 * sigma, 4 * sigma)
    assert float(sigma) == pytest.approx(0.1 / (96 * np.log(4 * QUERIES / 0.1)), rel=1e-5)
    assert level.hit_epsilon_rows == 2 / sigma  # LeeNotes, Lemma 3.2(1): 2 B / (sigma n)


def test_the_split_of_the_improved_level_is_the_cheapest():
    level = levels()["improved"]
    b1, b2 = float(level.threshold_scale), float(level.query_scale)
    fine = 0.1 * 0.1 / 50
    first, second = np.log(2 * HITS / fine), np.log(4 * QUERIES / fine)
    spent = b1 * first + b2 * second

    assert spent == pytest.approx(0.1 / 4, rel=1e-4)
    for other in np.linspace(0.3, 3, 30) * b1:
        rest = (spent - other * first) / second
        if rest > 0:
            assert 1 / other + 2 / rest >= float(level.hit_epsilon_rows) * (1 - 1e-4)


def test_the_improved_level_costs_less_for_the_same_tolerance():
    cheap, dear = levels()["improved"], levels()["analysed"]

    assert cheap.hit_epsilon_rows < dear.hit_epsilon_rows / 3


def test_a_share_beyond_the_tolerance_is_refused():
    with pytest.raises(InvalidRequest):
        improved_level(
            tolerance=Fraction(1, 10), failure_probability=0.1, max_queries=5, max_hits=1, noise_share=Fraction(1)
        )


def advanced_composition(hits, step, delta):
    """DR14, Theorem 3.20, over 2 hits steps, as it is proved."""
    return math.sqrt(4 * hits * math.log(1 / delta)) * step + 2 * hits * step * math.expm1(step)


@pytest.mark.parametrize("hits", [1, 10, 1000])
@pytest.mark.parametrize("step", [1e-4, 1e-2, 0.3, 2.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_the_second_guarantee_is_only_given_where_it_is_true(hits, step, delta):
    claimed = approximate_epsilon(hits, sigma=1 / step, rows=1, delta=delta)

    assert claimed >= advanced_composition(hits, step, delta)


def test_the_condition_the_notes_leave_out_matters():
    """Eighty answers at e0 = 1: the printed form would promise less than composition gives."""
    printed = math.sqrt(32 * 80 * math.log(2 / 0.01))

    assert printed < advanced_composition(80, 1.0, 0.01)
    assert approximate_epsilon(80, sigma=1.0, rows=1, delta=0.01) == math.inf


def test_the_corrected_size_covers_the_condition_that_the_printed_one_misses():
    hits, sigma, error, failure = 10, 0.01, 0.1, 0.05
    delta = (failure / 8) ** (4 / error)
    rows = math.ceil(rows_for_approximate(hits, sigma=sigma, error=error, failure_probability=failure))
    printed = 32 * math.sqrt(2 * hits * math.log(8 / failure)) / (error**1.5 * sigma)
    printed += 16 * math.sqrt(math.log(2) * hits) / (error * sigma)

    assert approximate_epsilon(hits, sigma=sigma, rows=rows, delta=delta) <= error / 4
    assert approximate_epsilon(hits, sigma=sigma, rows=int(rows * 0.99), delta=delta) > error / 4
    assert rows <= printed + (16 * math.sqrt(2 * math.log(2) * hits) - 16 * math.sqrt(math.log(2) * hits)) / (
        error * sigma
    )


def test_the_zcdp_version_is_exact_and_needs_fewer_rows():
    hits, sigma, error, failure = 100, 0.01, 0.1, 0.05
    rows = rows_for_concentrated(hits, sigma=sigma, error=error, failure_probability=failure)
    rho, log = hits / (sigma * rows) ** 2, 4 / error * math.log(8 / failure)

    assert rho + 2 * math.sqrt(rho * log) == pytest.approx(error / 4)
    assert 2.7 < rows_for_approximate(hits, sigma=sigma, error=error, failure_probability=failure) / rows < 3.0


def test_a_known_value_of_the_concentrated_guarantee():
    """B = 100, sigma = 0.01, n = 100,000, delta = 1e-6: 0.0744 against 0.2155 of the printed lemma."""
    rho = 100 / (0.01 * 100_000) ** 2

    assert rho + 2 * math.sqrt(rho * math.log(1e6)) == pytest.approx(0.0744, abs=5e-5)
    assert approximate_epsilon(100, sigma=0.01, rows=100_000, delta=1e-6) == pytest.approx(0.2155, abs=5e-5)


def test_the_published_theorem_speaks_exactly_from_its_own_size_on():
    level = analysed_level(tolerance=Fraction(1, 5), failure_probability=0.05, max_queries=20)
    needed = math.ceil(rows_for_pure(1, sigma=float(level.answer_scale), error=0.025, failure_probability=0.05 / 40))

    def plan(rows):
        return HoldoutPlan(
            rows=rows,
            tolerance=Fraction(1, 5),
            failure_probability=Fraction(1, 20),
            max_queries=20,
            max_hits=1,
            variant="analysed",
            level=level,
            answer_step=Fraction(1, 80),
        )

    assert "LeeNotes, Theorem 3.3 (pure)" in [bound.theorem for bound in published_bounds(plan(needed))]
    assert published_bounds(plan(needed - 1)) == []


def test_the_improved_variant_claims_nothing_from_the_published_theorem():
    plan = plan_holdout(10**6, tolerance=0.2, failure_probability=0.05, max_queries=20, variant="improved")

    assert published_bounds(plan) == []
