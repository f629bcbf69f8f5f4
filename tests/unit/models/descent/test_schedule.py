"""Schedules find the noise that a price allows."""

from fractions import Fraction

import pytest

from expost.accounting import account
from expost.core import InvalidRequest
from expost.models.descent.training_schedule import Disjoint, Full, Phase, Poisson, Schedule

DELTA = Fraction(1, 10**5)


@pytest.mark.parametrize("batches", [Full(1000), Disjoint(5, 1000), Poisson(Fraction(1, 20), 1000)], ids=str)
def test_a_fixed_schedule_costs_what_was_asked_and_hardly_less(batches: object) -> None:
    schedule = Schedule.fixed(batches, steps=20, epsilon=Fraction(1), delta=DELTA)  # type: ignore[arg-type]

    price = schedule.prices(DELTA).cap.epsilon

    assert Fraction(99, 100) < price <= 1


@pytest.mark.parametrize("accountant", ["auto", "rdp"])
@pytest.mark.parametrize("batches", [Full(1000), Disjoint(5, 1000), Poisson(Fraction(1, 20), 1000)], ids=str)
def test_a_ladder_rises_evenly_to_its_cap_and_never_above(batches: object, accountant: str) -> None:
    schedule, prices = Schedule.ladder(
        batches,  # type: ignore[arg-type]
        steps=40,
        phases=5,
        lowest=Fraction(1, 10),
        highest=Fraction(1),
        delta=DELTA,
        accountant=accountant,
    )

    ratios = [float(high / low) for low, high in zip(prices.epsilons[:-1], prices.epsilons[1:], strict=True)]
    assert Fraction(95, 100) < prices.cap.epsilon <= 1
    assert min(ratios) > 1.2 and max(ratios) < 3
    assert [phase.steps for phase in schedule.phases] == [8] * 5


def test_the_event_of_a_prefix_lists_its_phases_in_order() -> None:
    schedule = Schedule(Full(10), (Phase(2, Fraction(3)), Phase(3, Fraction(3)), Phase(1, Fraction(2))))

    assert schedule.build_event(2).to_json()["count"] == 5
    assert [part["count"] for part in schedule.build_event(3).to_json()["events"]] == [5, 1]
    assert schedule.steps == 6


def test_the_event_of_phases_that_are_no_whole_passes_counts_every_pass_that_was_begun() -> None:
    schedule = Schedule(Disjoint(16, 3200), (Phase(13, Fraction(5)),) * 8)

    whole = account(schedule.build_event(8))

    assert schedule.build_event(8).to_json()["count"] == 8  # 104 steps in a row would be 7 passes
    prices = schedule.prices(DELTA)
    assert whole.epsilon(prices.shares[-1]) == pytest.approx(float(prices.cap.epsilon))


@pytest.mark.parametrize("epsilon", [100, 10**4, 10**6])
def test_a_large_epsilon_has_a_schedule_too(epsilon: int) -> None:
    schedule = Schedule.fixed(Poisson(Fraction(1, 40), 1000), steps=20, epsilon=Fraction(epsilon), delta=DELTA)

    assert schedule.phases[0].noise_multiplier < Fraction(1, 4)
    assert schedule.prices(DELTA).cap.epsilon <= epsilon


def test_equal_terms_are_planned_once() -> None:
    terms = {"steps": 40, "phases": 4, "lowest": Fraction(1, 8), "highest": Fraction(1), "delta": DELTA}

    first, again = (Schedule.ladder(Full(1000), **terms) for _ in range(2))  # type: ignore[arg-type]

    assert again[0] is first[0] and again[1] is first[1]
    assert Schedule.ladder(Full(1001), **terms)[0] != first[0]  # type: ignore[arg-type]


def test_an_impossible_cap_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="max_epsilon"):
        Schedule.ladder(
            Full(10),
            steps=10**6,
            phases=2,
            lowest=Fraction(1, 10**9),
            highest=Fraction(1, 10**8),
            delta=Fraction(1, 10**6),
        )
