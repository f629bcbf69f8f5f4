"""Prices, sums and limits of accounts."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from expost.accounting import ApproxFilter, DiscreteGaussianEvent, ExPostEvent, GaussianEvent, PureEvent, Repeat
from expost.accounting.budget_rule import (
    RULES,
    ComposedGuarantee,
    ComposedLoss,
    read_budget,
    read_total,
    rule_for,
    write_rule_table,
)
from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    GaussianLoss,
    InvalidRequest,
    LedgerUnsound,
    PureLoss,
    RenyiGuarantee,
    RenyiLoss,
    ZeroConcentratedLoss,
    approx,
    epsilon,
    gdp,
    zcdp,
)

ROOT = Path(__file__).parents[3]
COMPOSED = ComposedGuarantee.of(approx(1, 1e-6))


def charge_often(rule, loss, times, **terms):
    total = rule.zero
    for _ in range(times):
        total = rule.add(total, rule.held(loss, **terms))
    return total


def count_admitted(rule, loss, **terms):
    total, admitted = rule.zero, 0
    while rule.fits(total := rule.add(total, rule.held(loss, **terms))):
        admitted += 1
    return admitted


def test_every_rule_names_a_proof_that_exists_and_the_ledger_page_shows_the_table():
    named = {page for line in RULES for page in re.findall(r"docs/proofs/[\w-]+\.md", line.theorem)}

    assert all(line.theorem for line in RULES)
    assert all((ROOT / page).exists() for page in named)
    assert write_rule_table() in (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")


LOSSES = {
    "pure": PureLoss(0.01),
    "approx": ApproxLoss(0.01, 1e-9),
    "zcdp": ZeroConcentratedLoss(0.0001),
    "gdp": GaussianLoss(Fraction(1, 10**4)),
    "rdp": RenyiLoss(((2, 0.001), (32, 0.01))),
}
BUDGETS = {
    "pure": epsilon(1),
    "approx": COMPOSED,
    "zcdp": zcdp(1),
    "gdp": gdp(1),
    "rdp": RenyiGuarantee(((2, 1), (32, 2))),
}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_table_lists_exactly_what_has_a_price(loss, budget):
    listed = any(line.loss == loss and budget in line.budgets for line in RULES)
    rule = rule_for(BUDGETS[budget])

    if listed:
        assert rule.fits(rule.add(rule.zero, rule.held(LOSSES[loss])))
    else:
        with pytest.raises(InvalidRequest, match=f"an account in {budget} can be charged for"):
            rule.held(LOSSES[loss])


def test_many_small_questions_cost_less_than_their_sum():
    # Plain sums admit 100. The filter alone, with all of delta for composition, admits 460.
    assert count_admitted(rule_for(COMPOSED), PureLoss(0.01)) >= 430
    assert count_admitted(rule_for(approx(1, 1e-6)), PureLoss(0.01)) == 100


def test_plain_sums_are_never_refused():
    rule = rule_for(COMPOSED)

    assert count_admitted(rule, PureLoss(Fraction(1, 10))) >= 10
    assert rule.fits(rule.add(rule.zero, rule.held(PureLoss(1))))
    assert not rule.fits(rule.add(rule.zero, rule.held(PureLoss(Fraction(1001, 1000)))))


def test_the_account_admits_exactly_what_the_filter_admits():
    """The same steps, once through the accountant's filter and once through the numbers that a ledger stores."""
    rule, filter = rule_for(COMPOSED), ApproxFilter(1, 1e-6, failure=5e-7)
    total = rule.zero
    for number in range(2000):
        step = PureEvent(Fraction(number % 7 + 1, 500)) if number % 3 else GaussianEvent(40 + number % 11)
        charged = rule.add(total, rule.held(ApproxLoss(1, 0), event=step))
        assert rule.fits(charged) == filter.admits(step)
        if not rule.fits(charged):
            break
        filter.charge(step)
        total = charged
    assert number > 100


@pytest.mark.parametrize("times", [0, 1, 10, 50, 150, 400])
def test_what_is_left_is_admitted_and_a_little_more_is_not(times):
    rule = rule_for(COMPOSED)
    total = charge_often(rule, PureLoss(0.01), times)
    left = rule.left(total).epsilon

    assert rule.fits(rule.add(total, rule.held(PureLoss(left))))
    assert not rule.fits(rule.add(total, rule.held(PureLoss(left * Fraction(1001, 1000)))))


@pytest.mark.parametrize("times", [1, 5, 40, 400])
def test_what_is_shown_is_the_smaller_of_the_sum_and_what_the_orders_prove(times):
    rule = rule_for(COMPOSED)
    shown = rule.shown(charge_often(rule, PureLoss(0.01), times))

    assert shown.epsilon <= Fraction(times, 100)
    assert shown.delta in (0, Fraction(5, 10**7))
    assert times < 40 or shown.epsilon < Fraction(times, 100) * Fraction(9, 10)


def test_a_delta_never_comes_back_and_has_its_own_limit():
    rule = rule_for(COMPOSED)
    held = rule.held(ApproxLoss(0.1, 1e-7))
    settled = rule.settled(ApproxLoss(0.1, 1e-7), ApproxLoss(0, 0))

    assert settled.epsilon == 0 and max(settled.costs) <= 1  # nothing but rounding
    assert held.delta == settled.delta == Fraction(1, 10**7)
    assert count_admitted(rule, ApproxLoss(0.001, 1e-7)) == 5


def test_steps_that_did_not_run_come_back():
    rule, steps = rule_for(COMPOSED), 100
    event, ran = Repeat(DiscreteGaussianEvent(50), steps), Repeat(DiscreteGaussianEvent(50), 10)
    held = rule.held(ApproxLoss(1, 1e-6), event=event)
    settled = rule.settled(ApproxLoss(1, 1e-6), ApproxLoss(0.2, 1e-6), event=event, outcome=ran)

    assert held.delta == settled.delta == 0
    assert all(few == pytest.approx(many / 10, rel=1e-6) for few, many in zip(settled.costs, held.costs, strict=True))


def test_ten_trainings_cost_far_less_than_ten_times_one():
    """Ten Gaussian trainings of (0.1, 1e-6) each: about 0.3 together, not 1."""
    rule = rule_for(ComposedGuarantee.of(approx(1, 1e-6)))
    step = GaussianEvent(Fraction(485, 10))  # mu = 1/48.5, epsilon 0.1 at delta 1e-6
    total = charge_often(rule, ApproxLoss(0.1, 1e-6), 10, event=step)

    assert Fraction(29, 100) < rule.shown(total).epsilon < Fraction(37, 100)


def test_more_steps_than_were_held_are_refused():
    rule = rule_for(COMPOSED)
    event, more = GaussianEvent(50), GaussianEvent(40)

    with pytest.raises(LedgerUnsound, match="not within what was held"):
        rule.settled(ApproxLoss(1, 1e-6), ApproxLoss(1, 1e-6), event=event, outcome=more)
    with pytest.raises(LedgerUnsound, match="not within what was held"):
        rule.settled(PureLoss(0.5), PureLoss(0.6))


def test_a_refinement_adds_its_difference_to_the_sum_and_more_to_the_orders():
    rule = rule_for(COMPOSED)
    first, more = rule.held(PureLoss(0.1)), rule.held(PureLoss(0.1), before=Fraction(1, 10))

    assert first.epsilon + more.epsilon == Fraction(2, 10)
    assert all(again > once for once, again in zip(first.costs, more.costs, strict=True))
    # By itself the second step can lose what both levels allow together.
    alone = rule.held(PureLoss(Fraction(3, 10)))
    assert more.costs == alone.costs


@pytest.mark.parametrize("budget", [epsilon(1), approx(1, 1e-6), COMPOSED, zcdp(1), gdp(1)], ids=str)
def test_budgets_and_totals_are_read_as_they_were_stored(budget):
    rule = rule_for(budget)
    total = rule.add(rule.zero, rule.held(PureLoss(Fraction(1, 7))))

    assert read_budget(budget.to_json()) == budget
    assert read_total(total.to_json()) == total


def test_a_charge_below_its_price_is_not_covered():
    rule = rule_for(COMPOSED)
    price = rule.held(PureLoss(0.1))
    lower = ComposedLoss(price.epsilon, price.delta, tuple(cost - cost // 1000 for cost in price.costs))

    assert rule.covers(price, price)
    assert not rule.covers(lower, price)
    assert not rule.covers(ComposedLoss(price.epsilon / 2, price.delta, price.costs), price)
    assert not rule_for(epsilon(1)).covers(PureLoss(0.1), PureLoss(0.2))
    # Half the square, the coarser theorem of older ledgers.
    assert rule_for(zcdp(1)).covers(ZeroConcentratedLoss(Fraction(1, 2)), rule_for(zcdp(1)).held(PureLoss(1)))


def test_a_lowered_charge_at_a_renyi_order_is_not_covered():
    rule = rule_for(RenyiGuarantee(((2, 1), (32, 2))))
    price = rule.held(RenyiLoss(((2, Fraction(1, 2)), (32, Fraction(9, 10)))))

    assert rule.covers(price, price)
    assert not rule.covers(RenyiLoss(((2, Fraction(499, 1000)), (32, Fraction(9, 10)))), price)
    assert not rule.covers(rule.zero, price)


def test_a_refusal_names_the_currencies_that_would_do():
    with pytest.raises(InvalidRequest, match=r"account in pure .* got 'zcdp'. Use an account in zcdp or approx or rdp"):
        rule_for(epsilon(1)).held(ZeroConcentratedLoss(0.1))
    with pytest.raises(InvalidRequest, match=r"account in gdp .* got 'approx'"):
        rule_for(gdp(1)).held(ApproxLoss(0.1, 1e-7))
    with pytest.raises(
        InvalidRequest, match=r"account in approx .* Use an account in zcdp or a new one in approx or rdp"
    ):
        rule_for(approx(1, 1e-6)).held(ZeroConcentratedLoss(0.1))  # plain sums, as in a ledger of version 0.1


def test_renyi_losses_need_the_orders_of_the_account():
    with pytest.raises(InvalidRequest, match="rdp at its orders"):
        rule_for(RenyiGuarantee(((3, 1),))).held(RenyiLoss(((2, 1),)))
    with pytest.raises(InvalidRequest, match="Use an account in rdp"):
        rule_for(epsilon(1)).held(RenyiLoss(((2, 1),)))


def test_a_loss_in_the_accounts_own_definition_is_not_rounded():
    loss = GaussianLoss(Fraction(1, 3))

    assert rule_for(gdp(1)).held(loss) == loss
    assert rule_for(zcdp(1)).held(ZeroConcentratedLoss(Fraction(1, 3))) == ZeroConcentratedLoss(Fraction(1, 3))
    assert rule_for(epsilon(1)).settled(PureLoss(1), PureLoss(Fraction(1, 3))) == PureLoss(Fraction(1, 3))


def test_an_ex_post_event_keeps_what_was_paid_before():
    event = ExPostEvent(0.1, 0.2, 0.3)

    assert ExPostEvent.from_json(event.to_json()) == event


def test_what_is_shown_is_never_above_a_budget_that_is_kept():
    rule = rule_for(COMPOSED)
    total = rule.zero
    while (left := rule.left(total).epsilon) > Fraction(1, 10**6):
        total = rule.add(total, rule.held(PureLoss(min(left, Fraction(1, 20)))))

    assert total.epsilon > 1
    assert rule.fits(total) and rule.shown(total).epsilon <= 1


def test_what_is_left_may_be_asked_for_as_a_pair():
    rule = rule_for(COMPOSED)
    total = charge_often(rule, PureLoss(0.01), 150)

    assert rule.fits(rule.add(total, rule.held(rule.left(total))))


@pytest.mark.parametrize("delta", [Fraction(1, 10**30), Fraction(1, 10**40)])
def test_a_delta_too_small_to_be_shared_is_for_plain_sums(delta):
    assert not ComposedGuarantee.suits(ApproxGuarantee(1, delta))
    with pytest.raises(InvalidRequest, match="Expected a delta of at least 1e-24"):
        COMPOSED.changed_to(ApproxGuarantee(1, delta))


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1, 30, 1000])
@pytest.mark.parametrize("delta", [1e-24, 1e-6, 0.5, 0.999])
def test_extreme_budgets_are_proved_and_admit_what_is_left(size, delta):
    budget = ComposedGuarantee.of(approx(size, delta))
    rule, total = rule_for(budget), rule_for(budget).zero
    assert budget.is_proved and read_budget(budget.to_json()) == budget
    for _ in range(5):
        left = rule.left(total)
        assert rule.fits(rule.add(total, rule.held(left)))
        total = rule.add(total, rule.held(PureLoss(max(left.epsilon / 3, Fraction(1, 10**18)))))
        assert rule.shown(total).epsilon <= budget.epsilon


def test_a_charge_is_shown_to_people_without_its_costs_at_each_order():
    rule = rule_for(COMPOSED)

    assert str(rule.held(PureLoss(0.05))) == "epsilon 0.05, delta 0"
    assert str(rule.held(ApproxLoss(0.05, 1e-7))) == "epsilon 0.05, delta 1e-07"
    assert str(rule.held(GaussianLoss(Fraction(1, 100)))) == "no pure epsilon, delta 0"
