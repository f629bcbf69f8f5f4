"""Grouped climbs: all cells right at once, the budget given to the small ones."""

import os
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.accuracy.interval import MOST_RUNGS, failure_parts, predicted_rate, relative_ladder, relative_rule
from expost.core import Sealed, Sensitivity
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import Mean
from expost.stats.gradual_release import GradualRelease
from expost.stats.relative_climb import RelativeClimb

long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")

FAILURE = Fraction(1, 5)


def climbs(counts: list[int], runs: int, cap: int | Fraction = 20, share: str = "1/10"):
    for seed in range(runs):
        climb = RelativeClimb(Fraction(share), FAILURE, Fraction(cap))
        yield climb.run(
            GradualRelease(Sealed(np.array(counts), Sensitivity(1))), Fraction(1), len(counts), SeededBits(seed)
        )


@pytest.mark.parametrize("counts", [[40, 900], [200, 210, 190], [5, 60, 3000, 0]], ids=str)
def test_all_groups_are_right_at_once_as_often_as_asked(counts: list[int]) -> None:
    exact, wrong, runs = np.array(counts), 0, 120
    for result in climbs(counts, runs):
        off = np.abs(result.reading.value - exact) > 0.1 * exact
        outside = (result.reading.low > exact) | (result.reading.high < exact)
        wrong += bool((off & result.met).any() or outside.any())

    # A rate of 20 % shows as more than 39 % of 120 runs once in a million.
    assert wrong / runs <= 0.39


def wrong_at_once(counts: list[int], share: str, runs: int) -> float:
    """How often some group is met and off by more than the share, below zero, or outside its interval."""
    exact, wrong = np.array(counts), 0
    for result in climbs(counts, runs, share=share, cap=50):
        assert (result.reading.value >= 0).all() and (result.reading.low >= 0).all()
        off = np.abs(result.reading.value - exact) > float(Fraction(share)) * exact + 1e-9
        outside = (result.reading.low > exact) | (result.reading.high < exact)
        wrong += bool((off & result.met).any() or outside.any())
    return wrong / runs


@pytest.mark.parametrize("counts", [[0, 900], [0, 0, 0], [3, 60, 100_000, 0]], ids=str)
def test_groups_are_right_at_once_at_a_loose_share_too(counts: list[int]) -> None:
    # A rate of 20 % shows as more than 39 % of 120 runs once in a million.
    assert wrong_at_once(counts, "9/10", 120) <= 0.39


@long_profile
@pytest.mark.parametrize("share", ["1/20", "1/2", "9/10", "99/100"])
@pytest.mark.parametrize("counts", [[0, 900], [0, 0, 0], [3, 60, 100_000, 0], [1] * 20], ids=str)
def test_groups_are_right_at_once_in_many_runs(counts: list[int], share: str) -> None:
    # A rate of 20 % shows as more than 25.4 % of 1,500 runs once in ten million.
    assert wrong_at_once(counts, share, 1_500) <= 0.254


@pytest.mark.parametrize("exact", [0, -40, 40])
@pytest.mark.parametrize("share", ["1/10", "9/10"])
def test_a_sum_of_either_sign_is_met_with_its_own_sign_as_often_as_asked(exact: int, share: str) -> None:
    climb, runs, wrong = RelativeClimb(Fraction(share), FAILURE, Fraction(20), signed=True), 150, 0
    for seed in range(runs):
        result = climb.run(GradualRelease(Sealed(np.array([exact]), Sensitivity(1))), Fraction(1), 1, SeededBits(seed))
        off = abs(result.reading.value[0] - exact) > float(Fraction(share)) * abs(exact) + 1e-9
        wrong += bool(result.met[0] and off)

    # A rate of 20 % shows as more than 37 % of 150 runs once in a million.
    assert wrong / runs <= 0.37


def test_a_count_of_zero_is_met_only_where_zero_is_certain() -> None:
    for cap, met in (("1", False), ("20", True)):
        seen = list(climbs([0], 60, cap=Fraction(cap)))
        right = [result for result in seen if not result.met[0] or result.reading.value[0] == 0]
        assert len(right) >= 40
        assert np.mean([result.met[0] for result in right]) == met


def test_raising_the_cap_a_little_each_time_adds_no_rungs_of_its_own() -> None:
    kept = GradualRelease(Sealed(np.array([30]), Sensitivity(1)))
    for step in range(12):
        RelativeClimb(Fraction(1, 100), FAILURE, Fraction(100 + step, 1000)).run(kept, Fraction(1), 1, SeededBits(1))

    whole = set(relative_ladder(Fraction(1), Fraction(1000)).rungs)
    assert set(kept.path.ladder.rungs) <= whole


def test_tiny_and_large_caps_in_turn_look_at_no_more_rungs_than_the_rule_allows_for() -> None:
    kept = GradualRelease(Sealed(np.array([10]), Sensitivity(1)))
    for cap in (Fraction(1, 10**8), Fraction(5), Fraction(1, 10**8), Fraction(900)):
        climb = RelativeClimb(Fraction(1, 10), FAILURE, cap)
        result = climb.run(kept, Fraction(1), 1, SeededBits(1))
        looks = climb.rungs_to_check(kept, kept.path.ladder, Fraction(1), cap, relative_rule(climb.share, FAILURE))
        assert 1 <= len(looks) <= MOST_RUNGS
        kept.read = max(kept.read, result.top)


def test_the_smallest_group_sets_the_bill_and_the_number_of_groups_hardly_matters() -> None:
    few = np.mean([float(result.cost) for result in climbs([50], 20)])
    many = np.mean([float(result.cost) for result in climbs([50] + [5000] * 30, 20)])

    assert many <= 1.5 * few  # an even split over 31 groups would pay about three times as much


def test_small_groups_get_the_failure_probability() -> None:
    parts = failure_parts(np.array([30.0, 400.0, 4000.0]), 0.05, 0.05).parts

    assert parts[0] > 0.8 and parts.sum() <= 1
    assert failure_parts(np.full(7, 100.0), 0.05, 0.05).parts.sum() <= 1


def test_the_forecast_is_the_rate_that_the_counts_would_need() -> None:
    rate = predicted_rate(np.array([100.0]), 0.05, 0.05)

    assert 2 * np.exp(-6 * rate) / (1 + np.exp(-rate)) == pytest.approx(0.05, rel=1e-6)


def test_what_is_billed_covers_every_rung_that_was_needed_to_decide() -> None:
    for result in climbs([3, 3000], 20, cap=1):
        assert not result.met[0]
        assert result.cost == result.pilot_cost + max(result.ladder[rung] for rung in result.rung.tolist())
        assert result.cost <= 1


@pytest.mark.parametrize("groups", [2, 7, 400])
def test_groups_that_are_all_given_up_share_the_failure_probability_evenly(groups: int) -> None:
    lost = np.full(groups, np.inf)
    parts = failure_parts(lost, 0.05, 0.05).parts

    assert predicted_rate(lost, 0.05, 0.05) == 0
    assert len(set(parts.tolist())) == 1 and 0.75 <= parts.sum() <= 1


@pytest.mark.parametrize("cap", ["1/1000", "1/10", "1"])
@pytest.mark.parametrize("counts", [[10] * 4, [0, 0], [100, 9, 1]], ids=str)
def test_groups_that_no_rung_can_serve_are_flagged_and_keep_their_intervals(counts: list[int], cap: str) -> None:
    for result in climbs(counts, 20, cap=Fraction(cap), share="1/200"):
        assert not result.met.any() and result.cost <= Fraction(cap)
        assert np.isfinite([result.reading.value, result.reading.low, result.reading.high]).all()


@pytest.mark.parametrize("rows", [30, 10**6, 10**9])
def test_what_a_climb_costs_does_not_depend_on_its_cap(rows: int) -> None:
    def cost(cap: int, seed: int) -> float:
        kept = GradualRelease(Sealed(np.array([rows]), Sensitivity(1)))
        climb = RelativeClimb(Fraction(1, 20), Fraction(1, 20), Fraction(cap))
        return float(climb.run(kept, Fraction(1), 1, SeededBits(seed)).cost)

    costs = [np.median([cost(cap, seed) for seed in range(9)]) for cap in (10, 100, 1000)]

    assert max(costs) <= 1.25 * min(costs)
    assert 20 / rows < min(costs) and max(costs) < 120 / rows


def test_what_a_climb_by_looks_costs_does_not_depend_on_its_cap() -> None:
    data = Dataset(pa.table({"x": np.arange(200_000) % 100}), bounds={"x": (0, 100)})

    def cost(cap: int, seed: int) -> float:
        question = Mean("x", within="10%", max_epsilon=cap)
        plan = question.plan(data)
        return plan.climb(plan.measure(data), SeededBits(seed)).receipt.epsilon

    costs = [np.median([cost(cap, seed) for seed in range(5)]) for cap in (1, 1000)]

    assert max(costs) <= 1.5 * min(costs)
