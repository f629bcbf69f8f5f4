"""What an event under add/remove is for a replaced unit, kind by kind."""

from fractions import Fraction

import numpy as np
import pytest

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    PureEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.accounting.neighbour_change import replaced_event, replaced_loss, share_for_added
from expost.core import ApproxLoss, InvalidRequest, PureLoss, RenyiGuarantee, approx, gdp, zcdp

TENTH = Fraction(1, 10)
PLAIN = {
    PureEvent(1): PureEvent(2),
    ConcentratedEvent(TENTH): ConcentratedEvent(4 * TENTH),
    GaussianEvent(3): GaussianEvent(Fraction(3, 2)),
    LaplaceEvent(3): LaplaceEvent(Fraction(3, 2)),
    DiscreteLaplaceEvent(9, 2): DiscreteLaplaceEvent(9, 4),
    DiscreteGaussianEvent(9, 2, 3): DiscreteGaussianEvent(9, 4, 3),
    ExponentialEvent(TENTH): ExponentialEvent(2 * TENTH),
    PermuteAndFlipEvent(TENTH): PermuteAndFlipEvent(2 * TENTH),
    ExPostEvent(TENTH, 1, 2): ExPostEvent(2 * TENTH, 2, 4),
    Sequence((PureEvent(1), ExPostEvent(0, 1))): Sequence((PureEvent(2), ExPostEvent(0, 2))),
    Repeat(PureEvent(1), 3): Repeat(PureEvent(2), 3),
    Parallel((PureEvent(1), GaussianEvent(2))): Parallel((PureEvent(2), GaussianEvent(1))),
}


@pytest.mark.parametrize("event", PLAIN, ids=lambda event: event.kind)
def test_every_kind_of_step_is_converted_by_itself(event):
    assert replaced_event(event, definition="approx", orders=(2.0,)) == PLAIN[event]


SAMPLED = [
    PoissonSampled(TENTH, GaussianEvent(1)),
    PoissonSampled(TENTH, PureEvent(1)),
    Mixture((GaussianEvent(4), PureEvent(TENTH)), (TENTH, 1 - TENTH)),
    PoissonSampled(TENTH, ApproxEvent(1, 1e-9)),
    PoissonSampled(TENTH, ExPostEvent(TENTH, 1)),
    PoissonSampled(TENTH, Sequence((GaussianEvent(2), PureEvent(TENTH)))),
    PoissonSampled(1, GaussianEvent(1)),
]
KINDS = [*PLAIN, *SAMPLED, ApproxEvent(TENTH, 1e-9), RenyiEvent(((2, TENTH), (600, TENTH * 3)))]
COMPOSED = rule_for(ComposedGuarantee.of(approx(5, 1e-5)))
RULES = {
    "composed": COMPOSED,
    "zcdp": rule_for(zcdp(9)),
    "gdp": rule_for(gdp(9)),
    "rdp": rule_for(RenyiGuarantee(((2, 9),))),
}
CAP = ApproxLoss(9, 1e-9)


@pytest.mark.parametrize("currency", RULES)
@pytest.mark.parametrize("event", KINDS, ids=lambda event: event.kind)
def test_a_converted_step_costs_at_least_two_steps(event, currency):
    """What disjoint parts rely on: a replaced unit that touches two of them loses no more than the larger one costs."""
    rule = RULES[currency]
    try:
        once, converted = rule.held(CAP, event=event), rule.held(CAP, event=event, replaced=True)
    except InvalidRequest:
        assert currency != "composed"  # other currencies have no price for some steps, converted or not
        return
    for name, amount in once.amounts().items():
        assert (
            converted.amounts()[name] >= 2 * amount * (1 - Fraction(1, 10**9)) - 2 or converted.amounts()[name] >= 2**20
        )


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_a_sample_of_gaussians_is_priced_in_every_currency_that_prices_it(rate):
    step = PoissonSampled(Fraction(rate), GaussianEvent(1))

    assert replaced_event(step, definition="zcdp").events[0].event == ConcentratedEvent(2)
    assert float(replaced_event(step, definition="gdp").events[0].event.mu_squared) == pytest.approx(4)
    curve = replaced_event(step, definition="approx", orders=(2.0, 4.0)).events[0].event.curve
    assert [order for order, _ in curve] == [2, 4]


@pytest.mark.parametrize(
    ("event", "definition"),
    [
        (SampledWithoutReplacement(1, 10, PureEvent(1)), "approx"),
        (PoissonSampled(TENTH, Parallel((PureEvent(1), GaussianEvent(1)))), "approx"),
        (PoissonSampled(TENTH, GaussianEvent(1)), "pure"),
        (ApproxEvent(1, Fraction(1, 2)), "approx"),
        (ApproxEvent(10**6, 1e-9), "approx"),
        (PoissonSampled(TENTH, Sequence((ApproxEvent(1, 1e-9), GaussianEvent(1)))), "approx"),
    ],
)
def test_what_has_no_price_is_refused(event, definition):
    with pytest.raises(InvalidRequest, match="counts replaced units"):
        replaced_event(event, definition=definition)


def test_where_a_step_has_no_price_the_whole_run_has():
    event = SampledWithoutReplacement(1, 10, PureEvent(1))
    whole = COMPOSED.held(ApproxLoss(1, 1e-9), replaced=True)

    assert COMPOSED.held(ApproxLoss(1, 1e-9), event=event, replaced=True) == whole
    assert whole.epsilon == 2 and float(whole.delta) == pytest.approx(1e-9 * (1 + np.e))


@pytest.mark.parametrize("cap", [TENTH, Fraction(1), Fraction(3)])
def test_what_comes_back_is_the_converted_hold_less_the_converted_bill(cap):
    for bill in (Fraction(0), cap / 3, cap):
        for before in (Fraction(0), TENTH):
            found = COMPOSED.settled(PureLoss(cap), PureLoss(bill), before=before, replaced=True)
            assert found == COMPOSED.settled(PureLoss(2 * cap), PureLoss(2 * bill), before=2 * before)


@pytest.mark.parametrize("left", [ApproxLoss(500, 1e-6), ApproxLoss(1, 0)])
def test_a_share_without_a_delta_is_named_as_one(left):
    assert share_for_added(left).delta == 0


def test_a_delta_of_one_is_not_a_guarantee():
    with pytest.raises(InvalidRequest, match="smaller epsilon and delta"):
        replaced_loss(ApproxLoss(3, 0.1))
