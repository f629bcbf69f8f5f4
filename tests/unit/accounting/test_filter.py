"""Filters refuse before an overrun, give back what a theorem allows, and nothing else."""

import copy
import os
import pickle
import threading
from fractions import Fraction

import pytest

from expost.accounting import (
    ApproxEvent,
    ApproxFilter,
    BasicFilter,
    ConcentratedEvent,
    ConcentratedFilter,
    ExPostEvent,
    Filter,
    GaussianEvent,
    GaussianFilter,
    Parallel,
    PoissonSampled,
    PureEvent,
    PureFilter,
    RenyiFilter,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
    account,
    filter_for,
)
from expost.core import BudgetExceeded, InvalidRequest, approx, epsilon, gdp, zcdp
from expost.core.guarantee import RenyiGuarantee

ALL = [
    lambda: PureFilter(1),
    lambda: BasicFilter(1, 1e-6),
    lambda: ConcentratedFilter(0.5),
    lambda: GaussianFilter(1),
    lambda: RenyiFilter(((2, 1), (8, 1))),
    lambda: ApproxFilter(1, 1e-6),
]
EVERY = pytest.mark.parametrize("make", ALL, ids=["pure", "basic", "concentrated", "gaussian", "renyi", "approx"])


def test_the_last_exact_tenth_still_fits() -> None:
    filter = PureFilter(1)
    for _ in range(10):
        filter.charge(PureEvent(0.1))

    assert filter.spent.cost == 1
    with pytest.raises(BudgetExceeded, match="exceeds what is left"):
        filter.charge(PureEvent(Fraction(1, 10**15)))


def test_a_refused_step_costs_nothing() -> None:
    filter = PureFilter(1)
    with pytest.raises(BudgetExceeded):
        filter.charge(PureEvent(2))

    assert filter.spent.cost == 0
    assert filter.admits(PureEvent(1))


@EVERY
def test_a_reservation_holds_the_worst_case_until_it_is_settled(make: object) -> None:
    filter: Filter = make()  # type: ignore[operator]
    step = filter.reserve(ExPostEvent.promise(Fraction(1, 2)))
    held = filter.spent
    filter.settle(step, ExPostEvent(Fraction(1, 100), Fraction(1, 2)))
    after = filter.spent

    refunded = type(filter) not in (ConcentratedFilter, GaussianFilter)
    lower = after.loss < held.loss or (hasattr(after.cost, "shape") and bool((after.cost < held.cost).all()))
    assert lower == refunded


@EVERY
def test_without_an_outcome_the_worst_case_stays_charged(make: object) -> None:
    filter: Filter = make()  # type: ignore[operator]
    step = filter.reserve(ExPostEvent(0, Fraction(1, 2)))
    filter.settle(step)

    assert not filter.admits(PureEvent(5))
    assert filter.spent.loss == Fraction(1, 2) or filter.spent.cost is not None


@EVERY
def test_a_reservation_is_settled_once(make: object) -> None:
    filter: Filter = make()  # type: ignore[operator]
    step = filter.reserve(PureEvent(Fraction(1, 10)))
    filter.settle(step)

    with pytest.raises(InvalidRequest, match="open reservation"):
        filter.settle(step)
    with pytest.raises(InvalidRequest, match="open reservation"):
        ALL[0]().settle(step)


@EVERY
def test_the_outcome_of_another_event_is_refused(make: object) -> None:
    filter: Filter = make()  # type: ignore[operator]
    step = filter.reserve(ExPostEvent.promise(Fraction(1, 2)))

    for wrong in (PureEvent(Fraction(1, 10)), ExPostEvent(0, Fraction(1, 3))):
        with pytest.raises(InvalidRequest, match="outcome of the event"):
            filter.settle(step, wrong)


def test_open_worst_cases_count_against_each_other() -> None:
    filter = PureFilter(1)
    filter.reserve(ExPostEvent.promise(Fraction(6, 10)))

    assert not filter.admits(ExPostEvent.promise(Fraction(5, 10)))
    with pytest.raises(BudgetExceeded):
        filter.reserve(ExPostEvent.promise(Fraction(5, 10)))


def test_a_filter_survives_a_crowd_of_threads() -> None:
    filter, admitted = PureFilter(10), []

    def spend() -> None:
        for _ in range(50):
            try:
                filter.settle(filter.reserve(PureEvent(Fraction(1, 10))))
                admitted.append(1)
            except BudgetExceeded:
                pass

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(admitted) == 100
    assert filter.spent.cost == 10


def test_costs_of_currencies_differ_as_they_should() -> None:
    assert not PureFilter(1).admits(Repeat(PureEvent(0.1), 11))
    assert ConcentratedFilter(0.5).admits(Repeat(PureEvent(0.1), 100))
    assert GaussianFilter(1).admits(Repeat(GaussianEvent(10), 100))
    assert not GaussianFilter(1).admits(Repeat(GaussianEvent(10), 101))
    assert ConcentratedFilter(0.5).admits(Repeat(GaussianEvent(10), 100))


def test_failures_have_a_budget_of_their_own() -> None:
    assert not PureFilter(1).__class__(1).admits(PureEvent(2))
    assert BasicFilter(1, 1e-6).admits(ApproxEvent(0.1, 1e-6))
    assert not BasicFilter(1, 1e-6).admits(Repeat(ApproxEvent(0.1, 1e-6), 2))
    assert not ConcentratedFilter(1).admits(ApproxEvent(0.1, 1e-9))
    assert ConcentratedFilter(1, failure=1e-9).admits(ApproxEvent(0.1, 1e-9))
    assert not ApproxFilter(1, 1e-6).admits(ApproxEvent(0.1, 1e-9))
    assert ApproxFilter(1, 1e-6, failure=1e-7).admits(ApproxEvent(0.1, 1e-7))
    assert not RenyiFilter(((2, 1),)).admits(ApproxEvent(0.1, 1e-9))


def test_what_a_currency_cannot_price_is_refused_with_its_name() -> None:
    with pytest.raises(InvalidRequest, match="zcdp"):
        PureFilter(1).admits(ConcentratedEvent(0.1))


def test_the_adjacency_is_part_of_a_filter() -> None:
    sampled = PoissonSampled(0.1, PureEvent(1))
    assert PureFilter(1, adjacency="replace-one").admits(sampled)
    assert not PureFilter(0.99, adjacency="replace-one").admits(sampled)
    assert PureFilter(0.2).admits(sampled)
    with pytest.raises(InvalidRequest, match="replace-one"):
        PureFilter(1).admits(SampledWithoutReplacement(1, 10, PureEvent(1)))


def test_a_mixed_interaction_of_ex_post_and_gaussian_steps() -> None:
    """Refunds of pure ex-post steps make room for Gaussian ones in one (epsilon, delta) budget."""
    filter = ApproxFilter(1, 1e-6)
    for _ in range(5):
        step = filter.reserve(ExPostEvent.promise(Fraction(4, 10)))
        filter.settle(step, ExPostEvent(Fraction(1, 50), Fraction(4, 10)))

    assert filter.admits(GaussianEvent(10))
    assert not filter.admits(Repeat(ExPostEvent.promise(Fraction(4, 10)), 5))


def test_parallel_steps_cost_their_dearest_part() -> None:
    filter = PureFilter(1)
    filter.charge(Parallel([Repeat(PureEvent(0.1), 3), PureEvent(0.9)]))

    assert filter.spent.cost == Fraction(9, 10)


def test_the_filter_of_a_budget() -> None:
    curve = RenyiGuarantee(((Fraction(2), Fraction(1)),))
    for budget in (epsilon(1), approx(1, 1e-6), zcdp(0.5), gdp(0.5), curve):
        assert filter_for(budget).budget == budget


def test_the_advanced_filter_ends_within_its_target() -> None:
    filter = ConcentratedFilter.for_approx(1, 1e-6)
    steps = 0
    while filter.admits(PureEvent(Fraction(1, 100))):
        filter.charge(PureEvent(Fraction(1, 100)))
        steps += 1
    classical = (steps, 0.01**2 / 2 * steps)

    # sqrt(2 ln(1/delta) sum eps^2) + sum eps^2 / 2 <= 1 stops at 348 steps; the optimised conversion goes on.
    assert classical[0] > 400
    assert account(Repeat(PureEvent(Fraction(1, 100)), steps)).epsilon(1e-6) <= 1


def test_bad_shares_are_refused() -> None:
    for shares in ({}, {2.0: 0.7, 4.0: 0.7}, {2.0: -1.0}, {1.0: 1.0}):
        with pytest.raises(InvalidRequest, match="shares"):
            ApproxFilter(1, 1e-6, shares=shares)
    with pytest.raises(InvalidRequest, match="failure below delta"):
        ApproxFilter(1, 1e-6, failure=1e-6)


def test_nested_outcomes_are_priced_as_a_whole() -> None:
    filter = PureFilter(1)
    event = Sequence([ExPostEvent.promise(Fraction(3, 10)), PureEvent(0.1), ExPostEvent.promise(Fraction(4, 10))])
    step = filter.reserve(event)
    assert filter.spent.loss + filter.spent.cost == Fraction(8, 10)
    filter.settle(step, Sequence([ExPostEvent(0, Fraction(3, 10)), PureEvent(0.1), ExPostEvent(0.1, Fraction(4, 10))]))

    assert filter.spent.loss + filter.spent.cost == Fraction(2, 10)


def test_a_concentrated_filter_with_a_failure_does_not_promise_that_there_is_none() -> None:
    filter = ConcentratedFilter(1, failure=Fraction(1, 100))
    filter.charge(ApproxEvent(0.001, 0.01))

    assert filter.budget.delta == Fraction(1, 50)
    assert filter.budget.epsilon >= account(ConcentratedEvent(1)).epsilon(0.01)
    assert ConcentratedFilter(1).budget == zcdp(1) and filter.rho == 1
    for failure in (0.4, 0.9, 0.999999):
        assert failure < ConcentratedFilter(1, failure=failure).budget.delta < 1
    with pytest.raises(InvalidRequest, match="failure below 1"):
        ConcentratedFilter(1, failure=1)


def test_a_concentrated_filter_for_a_pair_promises_that_pair() -> None:
    filter = ConcentratedFilter.for_approx(1, 1e-6, failure=1e-7)

    assert filter.budget == approx(1, 1e-6)
    assert account(ConcentratedEvent(filter.rho)).epsilon(9e-7) <= 1


@EVERY
def test_a_copy_is_the_filter_itself_and_a_pickle_is_refused(make) -> None:
    filter = make()

    assert copy.copy(filter) is copy.deepcopy(filter) is filter
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(filter)


def test_a_forked_process_cannot_spend_the_budget_again(monkeypatch) -> None:
    filter = PureFilter(1)
    reserved = filter.reserve(PureEvent(0.5))
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -7)
        for spend in (filter.charge, filter.reserve):
            with pytest.raises(InvalidRequest, match="belongs to another process"):
                spend(PureEvent(0.1))
        with pytest.raises(InvalidRequest, match="belongs to another process"):
            filter.settle(reserved)

    filter.settle(reserved)
    assert filter.spent.cost == Fraction(1, 2)
