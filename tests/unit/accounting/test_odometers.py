"""Odometers add what ran and report at any moment."""

from fractions import Fraction

import pytest

from expost.accounting import (
    ApproxEvent,
    ConcentratedOdometer,
    DiscreteGaussianEvent,
    Event,
    ExPostEvent,
    GaussianEvent,
    GaussianOdometer,
    LaplaceEvent,
    Odometer,
    PoissonSampled,
    PureEvent,
    PureOdometer,
    RenyiOdometer,
    Repeat,
    account,
)
from expost.core import InvalidRequest
from expost.core.loss import ApproxLoss, PureLoss

EVERY = pytest.mark.parametrize(
    "make",
    [
        PureOdometer,
        lambda: RenyiOdometer(1e-6),
        lambda: ConcentratedOdometer(1e-6, tuned_at=0.1),
        lambda: GaussianOdometer(1e-6, tuned_at=0.1),
    ],
    ids=["pure", "renyi", "concentrated", "gaussian"],
)


@EVERY
def test_nothing_has_cost_nothing(make: object) -> None:
    assert make().epsilon == 0  # type: ignore[operator]


@EVERY
def test_reports_only_grow(make: object) -> None:
    odometer: Odometer = make()  # type: ignore[operator]
    reports = []
    for event in (PureEvent(0.1), ExPostEvent(0.05, 1), LaplaceEvent(5), Repeat(PureEvent(0.01), 20)):
        odometer.record(event)
        reports.append(odometer.epsilon)

    assert reports == sorted(reports)
    assert reports[0] > 0


def test_pure_ex_post_losses_add_exactly() -> None:
    odometer = PureOdometer()
    for _ in range(7):
        odometer.record(ExPostEvent(Fraction(1, 7), 1))

    assert odometer.loss() == PureLoss(1)


@pytest.mark.parametrize(
    "make", [lambda: ConcentratedOdometer(1e-6, tuned_at=0.1), lambda: GaussianOdometer(1e-6, tuned_at=0.1)]
)
def test_a_pure_ex_post_step_adds_what_it_came_to(make: object) -> None:
    odometer: Odometer = make()  # type: ignore[operator]
    odometer.record(GaussianEvent(5))
    before = odometer.epsilon
    odometer.record(ExPostEvent(0.25, 3))

    assert odometer.epsilon == pytest.approx(before + 0.25)


def test_in_renyi_orders_a_pure_ex_post_step_adds_at_most_what_it_came_to() -> None:
    odometer = RenyiOdometer(1e-6)
    odometer.record(GaussianEvent(5))
    before = odometer.epsilon
    odometer.record(ExPostEvent(0.25, 0.3))

    assert before < odometer.epsilon < before + 0.25


def test_a_report_costs_more_than_a_single_reading() -> None:
    steps = Repeat(GaussianEvent(20), 100)
    once = account(steps).epsilon(1e-6)
    for odometer in (
        RenyiOdometer(1e-6, expected_epsilon=2),
        ConcentratedOdometer(1e-6, tuned_at=0.125),
        ConcentratedOdometer(1e-6, tuned_at=0.125, linear=True),
        GaussianOdometer(1e-6, tuned_at=0.25),
        GaussianOdometer(1e-6, tuned_at=0.25, linear=True),
    ):
        odometer.record(steps)
        assert once < odometer.epsilon < 1.5 * once


def test_bills_carry_the_failure_probability() -> None:
    odometer = RenyiOdometer(1e-6)
    odometer.record(PoissonSampled(0.1, GaussianEvent(2)))
    bill = odometer.loss()

    assert isinstance(bill, ApproxLoss)
    assert bill.delta == Fraction(1, 10**6)
    assert float(bill.epsilon) >= odometer.epsilon


def test_steps_with_a_delta_are_refused() -> None:
    for odometer in (PureOdometer(), RenyiOdometer(1e-6), ConcentratedOdometer(1e-6, tuned_at=1)):
        with pytest.raises(InvalidRequest):
            odometer.record(ApproxEvent(0.1, 1e-9))


@pytest.mark.parametrize("event", [DiscreteGaussianEvent(10), PoissonSampled(0.1, GaussianEvent(1))], ids=repr)
def test_only_gaussian_steps_may_use_the_other_clock(event: Event) -> None:
    with pytest.raises(InvalidRequest, match="price in this currency"):
        GaussianOdometer(1e-6, tuned_at=1).record(event)


def test_pure_steps_beside_gaussian_ones_add_their_epsilon() -> None:
    odometer = GaussianOdometer(1e-6, tuned_at=1)
    odometer.record(GaussianEvent(2))
    before = odometer.epsilon
    odometer.record(Repeat(PureEvent(0.1), 3))

    assert odometer.epsilon == pytest.approx(before + 0.3)


def test_a_large_cost_is_reported_without_overflow() -> None:
    odometer = RenyiOdometer(1e-6)
    odometer.record(Repeat(PureEvent(10), 1000))

    assert 9000 < odometer.epsilon < 11_000
