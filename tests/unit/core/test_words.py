"""Targets, ladders, units, sensitivities, errors."""

import math
import pickle
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.odd_numbers import answers

from expost.core import (
    Adjacency,
    BudgetExceeded,
    ExpostError,
    InvalidRequest,
    Ladder,
    Measure,
    MissingExtra,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sensitivity,
    Target,
    TargetNotMet,
    Unit,
    posterior_bound,
)


@pytest.mark.parametrize(
    "within", [0, -1, math.nan, math.inf, "5", "0%", "-5%", "100%", "5%%", "% 5", "a%", "1/0%", None]
)
def test_a_senseless_tolerance_is_refused(within) -> None:
    with pytest.raises(InvalidRequest):
        Target.within(within)


def test_a_percentage_is_relative_and_exact() -> None:
    target = Target.within("2.5%", confidence=0.9)

    assert target == Target(Measure.RELATIVE_ERROR, Fraction(1, 40), Fraction(1, 10))


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=1), st.integers(1, 400))
def test_a_geometric_ladder_increases_to_its_cap(lowest: Fraction, rungs: int) -> None:
    ladder = Ladder.geometric(lowest, 2, rungs=rungs)

    assert ladder.cap == 2
    assert all(low < high for low, high in pairwise(ladder))
    assert len(ladder) <= max(rungs, 1)


@pytest.mark.parametrize("rungs", [(), (1, 1), (2, 1), (0, 1), (-1, 1)])
def test_a_ladder_that_does_not_climb_is_refused(rungs) -> None:
    with pytest.raises(InvalidRequest):
        Ladder(rungs)


def test_no_number_of_a_ladder_or_a_belief_ends_in_an_error_that_is_not_ours() -> None:
    for call, usual in (
        (Ladder, {"rungs": (1, 2)}),
        (Ladder.of, {"rungs": (1, 2)}),
        (lambda rung: Ladder((rung, 3)), {"rung": 1}),
        (Ladder.geometric, {"lowest": 0.1, "highest": 1, "rungs": None, "ratio": 1.1}),
    ):
        for argument, value, ladder in answers(call, usual):
            assert 0 < ladder[0] <= ladder.cap, (argument, value)
    for argument, value, belief in answers(posterior_bound, {"prior": 0.5, "epsilon": 0.1}):
        assert 0 <= belief <= 1, (argument, value)


def test_a_prior_of_zero_stays_and_an_endless_loss_tells_everything_else() -> None:
    assert [posterior_bound(prior, math.inf) for prior in (0, 1e-9, 1)] == [0, 1, 1]


def test_the_first_rung_at_least_a_level() -> None:
    ladder = Ladder.of([0.1, 0.2, 0.4])

    assert [ladder.first_at_least(Fraction(x, 10)) for x in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("amount", [0, -1, 0.5, True])
def test_a_sensitivity_is_exact_and_positive(amount) -> None:
    with pytest.raises(InvalidRequest):
        Sensitivity(amount)


@given(st.integers(1, 10**30))
def test_an_l2_sensitivity_by_its_square_is_rounded_up(square: int) -> None:
    amount = Sensitivity.from_square(square).amount

    assert square <= amount**2 <= square * (1 + Fraction(1, 10**9))


def test_a_unit_is_a_row_an_id_or_an_id_in_a_window() -> None:
    assert Unit.row().is_row
    assert str(Unit.of("id", per="day", time="t")) == "all rows of one id within one day"
    with pytest.raises(InvalidRequest):
        Unit.of("id", per="decade", time="t")
    with pytest.raises(InvalidRequest):
        Unit.of("id", per="day")
    with pytest.raises(InvalidRequest):
        Unit.of("")


def test_an_unknown_adjacency_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="'add-remove' or 'replace-one', got 'swap'"):
        Adjacency.parse("swap")


def release() -> Release:
    return Release(1, Receipt(question="q", method="m", promise=PureGuarantee(1), bill=PureLoss(1)))


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("Expected a", got=1, do="Do b"),
        InvalidRequest("Expected a"),
        BudgetExceeded("Expected a", got=None),
        MissingExtra("plots", package="matplotlib"),
        TargetNotMet("Expected a", release()),
    ],
)
def test_errors_cross_process_borders(error: ExpostError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again)) == (type(error), str(error))


def test_every_error_says_what_it_cost() -> None:
    kinds = list(ExpostError.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if not kind.__name__.startswith("_"):
            assert kind.cost != "unknown", kind
            assert kind.code != "error", kind


@given(st.floats(0.01, 0.99), st.floats(0, 700))
def test_the_posterior_bound_is_bayes_rule(prior: float, epsilon: float) -> None:
    bound = posterior_bound(prior, epsilon)

    odds = prior / (1 - prior) * math.exp(epsilon)
    assert bound == pytest.approx(odds / (1 + odds), rel=1e-9)
    assert prior - 1e-12 <= bound <= 1
