"""What a caller asks becomes a schedule and prices, without any data."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from expost.core import BudgetExceeded, InvalidRequest, Measure
from expost.models.descent.training_order import TrainingOrder
from expost.models.descent.training_schedule import Disjoint, Full, Poisson


def order(**changes: Any) -> TrainingOrder:
    return TrainingOrder(**({"rows": 10_000, "delta": 1e-6, "steps": 20} | changes))


def test_an_epsilon_leads_to_noise() -> None:
    plan = order(epsilon=1.0).plan_course()

    assert plan.target is None and plan.validation_share == 0
    assert Fraction(99, 100) < plan.prices.cap.epsilon <= 1


def test_a_noise_multiplier_leads_to_an_epsilon() -> None:
    plan = order(noise_multiplier=10).plan_course()

    assert plan.schedule.phases[0].noise_multiplier == 10
    assert 1.9 < plan.prices.cap.epsilon < 2.1


def test_a_target_leads_to_a_ladder_under_the_cap() -> None:
    plan = order(score=("accuracy", 0.9), max_epsilon=2.0, phases=5).plan_course()

    assert plan.target is not None and plan.target.measure is Measure.ACCURACY
    assert len(plan.schedule.phases) == 5
    assert plan.prices.cap.epsilon <= 2
    assert plan.schedule.batches.rows == 8000  # a fifth is held out


def test_a_target_with_constant_noise_stops_where_it_may() -> None:
    plan = order(score=("accuracy", 0.9), noise_multiplier=40, max_epsilon=3.0, phases=4).plan_course()

    assert {phase.noise_multiplier for phase in plan.schedule.phases} == {40}
    assert len(plan.prices.epsilons) == 4
    with pytest.raises(BudgetExceeded):
        order(score=("accuracy", 0.9), noise_multiplier=1, max_epsilon=1.0).plan_course()


def test_large_tables_are_sampled_and_small_ones_read_whole() -> None:
    assert isinstance(order(noise_multiplier=10).plan_course().schedule.batches, Full)
    large = order(rows=10**7, width=100, noise_multiplier=10, accountant="rdp").plan_course().schedule.batches
    assert isinstance(large, Poisson)
    assert isinstance(order(noise_multiplier=9, batches="disjoint").plan_course().schedule.batches, Disjoint)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"epsilon": 1, "score": ("accuracy", 0.9)},
        {"epsilon": 1, "noise_multiplier": 1},
        {"epsilon": -1},
        {"epsilon": 1, "rows": 0},
        {"epsilon": 1, "rows": 10.5},
        {"epsilon": 1, "steps": 0},
        {"epsilon": 1, "delta": 0},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 1, "delta": 1e-20},  # a ledger counts in parts of 1e-18
        {"score": ("f1", 0.9)},
        {"score": 0.9},
        {"score": ("accuracy", 0.9), "validation_share": 1.0},
        {"epsilon": 1, "batches": "shuffled"},
        {"epsilon": 1, "batches": "poisson", "batch_size": 20_000},
        {"noise_multiplier": 1, "accountant": "moments"},
    ],
    ids=str,
)
def test_senseless_orders_are_refused_before_any_data(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        order(**wrong).plan_course()


@pytest.mark.parametrize(
    ("rows", "accuracy", "cap", "share"),
    [
        (60_000, 0.95, 1.0, Fraction(18, 100)),  # sqrt(100 / 3000)
        (60_000, 0.95, 4.0, Fraction(9, 100)),  # at larger epsilons the test needs fewer rows
        (1_000_000, 0.9, 4.0, Fraction(1, 50)),  # never less than this
        (2_000, 0.95, 1.0, Fraction(1, 5)),  # never more
        (10**12, 0.95, 1e6, Fraction(1, 50)),
    ],
)
def test_so_many_rows_are_held_out_as_the_test_needs(rows: int, accuracy: float, cap: float, share: Fraction) -> None:
    terms: dict[str, Any] = {"delta": 1e-6, "score": ("accuracy", accuracy), "batches": "poisson"}
    order = TrainingOrder(rows=rows, max_epsilon=cap, **terms)

    assert order.validation_part() == share


def test_fewer_rows_are_held_out_where_prices_begin_at_a_quarter_of_the_cap() -> None:
    terms: dict[str, Any] = {"rows": 60_000, "delta": 1e-6, "score": ("accuracy", 0.95)}

    assert (
        TrainingOrder(falling=False, **terms).validation_part()
        == TrainingOrder(noise_multiplier=4, **terms).validation_part()
        == Fraction(9, 100)
    )


def test_who_says_how_many_rows_are_held_out_is_heard() -> None:
    order = TrainingOrder(rows=60_000, delta=1e-6, score=("accuracy", 0.95), validation_share=0.3)

    assert order.validation_part() == Fraction(3, 10)


def test_a_target_that_counts_no_errors_holds_out_a_fifth() -> None:
    order = TrainingOrder(rows=60_000, delta=1e-6, score=("rmse", 0.1), batches="poisson")

    assert order.validation_part() == Fraction(1, 5)


@pytest.mark.parametrize("batches", ["full", "poisson", "disjoint"])
def test_noise_that_does_not_fall_is_the_same_in_all_phases(batches: str) -> None:
    plan = order(
        score=("accuracy", 0.9), max_epsilon=2.0, phases=5, steps=320, batches=batches, batch_size=1000, falling=False
    ).plan_course()

    assert len({phase.noise_multiplier for phase in plan.schedule.phases}) == 1
    assert 1.8 < plan.prices.cap.epsilon <= 2
    growth = [after / before for before, after in pairwise(map(float, plan.prices.epsilons))]
    assert max(growth) < 1.35 * min(growth)  # about a geometric progression, not a root
    assert 3 < plan.prices.cap.epsilon / plan.prices.epsilons[0] < 6


def test_networks_are_asked_as_often_as_their_growth_says() -> None:
    terms: dict[str, Any] = {"score": ("accuracy", 0.95), "falling": False, "batches": "poisson", "batch_size": 1000}
    private, free = (order(public_test=public, steps=60, **terms).plan_course() for public in (False, True))

    assert (len(private.prices.epsilons), len(free.prices.epsilons)) == (24, 25)
    assert private.schedule.steps == free.schedule.steps == 60


@pytest.mark.parametrize(("batches", "steps", "phases"), [("poisson", 13, 13), ("poisson", 6, 8), ("disjoint", 90, 10)])
def test_networks_are_not_asked_so_often_that_their_training_grows(batches: str, steps: int, phases: int) -> None:
    """Unless there would be fewer phases than prices that rise by a quarter need; here passes have nine batches."""
    plan = order(
        score=("accuracy", 0.95), falling=False, batches=batches, batch_size=1000, steps=steps, validation_share=0.1
    ).plan_course()

    assert len(plan.schedule.phases) == phases
    assert plan.schedule.steps == max(steps, phases)


def test_phases_without_a_step_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one step"):
        order(score=("accuracy", 0.95), phases=21).plan_course()


def test_free_tests_begin_low_and_stand_close() -> None:
    terms: dict[str, Any] = {"score": ("accuracy", 0.95), "delta": 1e-5, "steps": 120, "batches": "full"}
    free = TrainingOrder(rows=60_000, public_test=True, **terms).plan_course()
    private = TrainingOrder(rows=60_000, validation_share=0.1, **terms).plan_course()

    assert free.validation_share == 0 and free.schedule.batches.rows == 60_000
    assert len(free.prices.epsilons) > len(private.prices.epsilons)
    assert 0.01 < free.prices.epsilons[0] < private.prices.epsilons[0]
    few = TrainingOrder(rows=600, public_test=True, **terms).plan_course()
    assert few.prices.epsilons[0] >= Fraction(1, 8)  # nothing can be learned from so few rows below that
