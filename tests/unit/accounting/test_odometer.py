"""Odometers never report less than the loss; boundaries are crossed as rarely as promised."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from expost.accounting import (
    ApproxEvent,
    ConcentratedOdometer,
    DiscreteGaussianEvent,
    ExPostEvent,
    GaussianEvent,
    GaussianOdometer,
    LaplaceEvent,
    LinearBoundary,
    MixtureBoundary,
    Odometer,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    PureOdometer,
    RenyiOdometer,
    Repeat,
    account,
)
from expost.accounting.odometer import normal_mixture_quantile
from expost.core import InvalidRequest
from expost.core.loss import ApproxLoss, PureLoss

CLOCK = np.array([0.1, 0.25, 0.5, 1, 2, 4, 10])


def test_the_linear_boundary_has_the_values_of_the_reference_table() -> None:
    table = [2.94, 3.41, 4.19, 5.76, 8.89, 15.1, 33.9]

    assert LinearBoundary(1e-6, tuned_at=1).curve(CLOCK) == pytest.approx(table, abs=0.05)


def test_the_one_sided_mixture_is_below_the_two_sided_table() -> None:
    two_sided = np.array([1.88, 2.99, 4.27, 6.17, 9.05, 13.6, 24.6])
    found = MixtureBoundary(1e-6, tuned_at=1).curve(CLOCK)

    assert np.all(found < two_sided)
    assert np.all(found > 0.95 * two_sided)


@pytest.mark.parametrize("concentrated", [False, True])
def test_the_mixture_is_lowest_where_it_is_tuned(concentrated: bool) -> None:
    at = np.array([1.0])
    here = MixtureBoundary(1e-6, tuned_at=1, concentrated=concentrated).curve(at)
    for tuned in (0.5, 2.0):
        assert here < MixtureBoundary(1e-6, tuned_at=tuned, concentrated=concentrated).curve(at)


def test_only_the_mixture_in_the_other_clock_vanishes_at_zero() -> None:
    tiny = 1e-9

    assert MixtureBoundary(1e-6, tuned_at=1).epsilon(tiny) < 1e-3
    assert MixtureBoundary(1e-6, tuned_at=1).epsilon(0) == 0
    assert MixtureBoundary(1e-6, tuned_at=1, concentrated=True).epsilon(tiny) > 0.5
    assert LinearBoundary(1e-6, tuned_at=1).epsilon(tiny) > 1


def test_the_quantile_solves_its_equation_from_above() -> None:
    with mp.workdps(40):
        for growth in (1.0, 3.0, 1e6):
            for log_inverse in (0.8, 5.0, 300.0):
                z = mp.mpf(float(normal_mixture_quantile(np.array([growth]), log_inverse)[0]))
                target = mp.mpf(log_inverse) + mp.log(mp.mpf(growth)) / 2

                assert z**2 / 2 + mp.log(mp.ncdf(z)) >= target
                assert z**2 / 2 + mp.log(mp.ncdf(z)) <= target * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize("concentrated", [False, True])
def test_brownian_motion_crosses_as_often_as_promised(concentrated: bool) -> None:
    """A dense walk crosses with nearly the failure probability, and a curve lowered by a tenth more often."""
    chance, runs = 0.05, 40_000
    clock = np.geomspace(1e-3, 1e3, 900)
    curve = MixtureBoundary(chance, tuned_at=1, concentrated=concentrated).curve(clock)
    rng = np.random.default_rng(5)
    level, crossed, lowered = np.zeros(runs), np.zeros(runs, dtype=bool), np.zeros(runs, dtype=bool)
    for index, width in enumerate(np.diff(np.r_[0, clock])):
        level += math.sqrt(width) * rng.standard_normal(runs)
        loss = clock[index] / 2 + level
        crossed |= loss >= curve[index]
        lowered |= loss - clock[index] / 2 >= 0.9 * (curve[index] - clock[index] / 2)

    assert 0.6 * chance < crossed.mean() <= chance + 4 * math.sqrt(chance / runs)
    assert lowered.mean() > chance + 4 * math.sqrt(chance / runs)


def test_a_straight_line_is_crossed_exactly_as_often_as_promised() -> None:
    """P[some v: X_v >= b + a v] = e^(-2ab), so the line's two numbers multiply to half of ln(1/delta)."""
    curve = LinearBoundary(0.01, tuned_at=3)
    ends = curve.curve(np.array([0.0, 1.0])) - np.array([0.0, 0.5])
    intercept, slope = ends[0], ends[1] - ends[0]

    assert math.exp(-2 * intercept * slope) == pytest.approx(0.01, rel=1e-6)


def test_nonsense_is_refused() -> None:
    for build in (
        lambda: LinearBoundary(0, tuned_at=1),
        lambda: LinearBoundary(0.1, tuned_at=0),
        lambda: MixtureBoundary(0.3, tuned_at=1),
    ):
        with pytest.raises(InvalidRequest, match="Expected"):
            build()


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
def test_only_gaussian_steps_may_use_the_other_clock(event: PrivacyEvent) -> None:
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
