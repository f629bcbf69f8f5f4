import math
from fractions import Fraction

import pytest

from expost.holdout import plan_holdout
from expost.holdout.noise_level import analysed_level
from expost.holdout.plan import HoldoutPlan
from expost.holdout.published import (
    approximate_epsilon,
    published_bounds,
    rows_for_approximate,
    rows_for_concentrated,
    rows_for_pure,
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
