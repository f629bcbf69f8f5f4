"""The charging rules against exact enumeration: what is added bounds what is learnt, and refunds are theorems."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost.accounting.budget_rule import PARTS, ComposedGuarantee, round_total, rule_for
from expost.core import (
    ApproxLoss,
    GaussianLoss,
    PureLoss,
    ZeroConcentratedLoss,
    approx,
    epsilon,
    gdp,
    zcdp,
)

amounts = st.fractions(min_value=Fraction(1, 10**6), max_value=10, max_denominator=10**6)


# (epsilon, delta) accounts: pure ex-post and approximate questions, adaptively mixed
# (docs/proofs/ledger-mixed-composition.md)


def pure_question(rng: random.Random, cap: float):
    """Two laws on three answers and the realised loss of each answer, at most ``cap``."""
    weights = [rng.random() + 0.05 for _ in range(3)]
    tilted = [weight * math.exp(rng.uniform(-cap / 2, cap / 2)) for weight in weights]
    here = [weight / sum(weights) for weight in weights]
    there = [weight / sum(tilted) for weight in tilted]
    losses = [abs(math.log(one / other)) for one, other in zip(here, there, strict=True)]
    assert max(losses) <= cap + 1e-12
    return here, there, losses


def approximate_question(rng: random.Random, loss: float):
    """Two laws on three answers and the delta that makes them (loss, delta)-close both ways."""
    weights = [rng.random() + 0.01 for _ in range(3)]
    others = [rng.random() + 0.01 for _ in range(3)]
    here = [weight / sum(weights) for weight in weights]
    mixed = [
        0.9 * weight / sum(weights) + 0.1 * other / sum(others) for weight, other in zip(weights, others, strict=True)
    ]
    delta = max(hockey_stick(here, mixed, loss), hockey_stick(mixed, here, loss))
    return here, mixed, delta


def stopped_question(rng: random.Random, cap: float):
    """Two laws on three answers with a bill of each answer, at most ``cap``, and the delta at which the bills hold."""
    here, there, _ = approximate_question(rng, cap)
    bills = [cap, cap * rng.random(), cap * rng.random() ** 2]
    delta = max(
        sum(max(0.0, p - math.exp(bill) * q) for p, q, bill in zip(one, other, bills, strict=True))
        for one, other in ((here, there), (there, here))
    )
    return here, there, bills, delta


def hockey_stick(here, there, loss: float) -> float:
    """The largest P(S) - e^loss P'(S)."""
    return sum(max(0.0, p - math.exp(loss) * q) for p, q in zip(here, there, strict=True))


def adaptive_study(rng: random.Random, budget: tuple[float, float], *, depth: int, greedy: bool = False):
    """All transcripts of a study with their two probabilities; each question is chosen by what was seen.

    ``greedy`` gives back too much: half of the realised loss is forgotten, which must break the bound.
    """

    def ask(p: float, q: float, budget_left: tuple[float, float], level: int):
        if level == 0 or budget_left[0] < 0.05:
            return [(p, q)]
        cap = budget_left[0] * rng.uniform(0.5, 1.0)
        kind = rng.random()
        if kind < 0.4 or budget_left[1] == 0:
            here, there, losses = pure_question(rng, cap)
            charges = [(loss / 2 if greedy else loss, 0.0) for loss in losses]
        elif kind < 0.6:
            here, there, delta = approximate_question(rng, cap)
            charges = [(cap, delta)] * 3
        else:
            here, there, bills, delta = stopped_question(rng, cap)
            charges = [(bill, delta) for bill in bills]
        if max(gone for _, gone in charges) > budget_left[1]:
            return [(p, q)]
        return [
            leaf
            for one, other, (spent, gone) in zip(here, there, charges, strict=True)
            for leaf in ask(p * one, q * other, (budget_left[0] - spent, budget_left[1] - gone), level - 1)
        ]

    leaves = ask(1.0, 1.0, budget, depth)
    return [p for p, _ in leaves], [q for _, q in leaves]


@pytest.mark.parametrize("seed", range(60))
def test_realised_losses_at_the_delta_that_was_held_stay_within_the_account(seed):
    budget = (1.0, 0.05)
    here, there = adaptive_study(random.Random(seed), budget, depth=5)

    assert sum(here) == pytest.approx(1) and sum(there) == pytest.approx(1)
    assert hockey_stick(here, there, budget[0]) <= budget[1] + 1e-12
    assert hockey_stick(there, here, budget[0]) <= budget[1] + 1e-12


def test_giving_back_more_than_the_theorem_allows_breaks_the_account():
    studies = [adaptive_study(random.Random(seed), (1.0, 0.0), depth=7, greedy=True) for seed in range(60)]

    assert any(hockey_stick(here, there, 1.0) > 1e-6 for here, there in studies)


def test_giving_back_delta_where_nothing_bad_was_seen_breaks_the_account():
    """A question that is (ln 2, 0.04) approximately ex-post private and bills (0, 0) for its usual answer."""
    here, there, bills, budget = (0.04, 0.96), (0.08, 0.92), (math.log(2), 0.0), (1.0, 0.05)
    missed = sum(max(0.0, p - math.exp(bill) * q) for p, q, bill in zip(here, there, bills, strict=True))
    repeats = 40  # it is always admitted again: nothing was charged

    assert missed == pytest.approx(0.04)
    assert here[1] ** repeats - math.exp(budget[0]) * there[1] ** repeats > 1.5 * budget[1]
    # At the delta that was held it runs once.
    held = ApproxLoss(Fraction(7, 10), Fraction(4, 100))
    spent = rule_for(approx(*budget)).settled(held, ApproxLoss(0, 0))
    assert not rule_for(approx(*budget)).fits(spent + held)


@given(cap=amounts, share=st.fractions(min_value=0, max_value=1, max_denominator=1000), paid=st.booleans())
def test_settling_an_approximate_bill_gives_back_epsilon_and_keeps_the_delta_that_was_held(cap, share, paid):
    held = ApproxLoss(cap, Fraction(1, 10**6))
    bill = ApproxLoss(max(cap * share, Fraction(1, 10**12)), held.delta if paid else 0)

    assert rule_for(approx(10, 0.5)).settled(held, bill) == ApproxLoss(bill.epsilon, held.delta)


# zCDP accounts: the cap of a pure question, never its realised loss


def supermartingale(order: float, q: float, cap: float, charge) -> float:
    """E exp((order - 1)(loss - order charge)) of the two-answer question of the proof, worse direction."""
    here, there = [q, 1 - q], [q * math.exp(-cap), 1 - q * math.exp(-cap)]
    return max(
        sum(
            p * math.exp((order - 1) * (math.log(p / r) - order * charge(abs(math.log(p / r)))))
            for p, r in zip(one, other, strict=True)
        )
        for one, other in ((here, there), (there, here))
    )


@pytest.mark.parametrize("order", [1.1, 2, 3, 8, 40])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 1])
@pytest.mark.parametrize("cap", [0.1, 1.0, 3.0])
def test_the_cap_of_a_pure_question_is_worth_its_half_square(order, share, cap):
    charge = float(rule_for(zcdp(10)).held(PureLoss(cap)).rho)
    q = share / (1 + math.exp(-cap))  # at share 1 both answers reach the cap: randomised response

    assert supermartingale(order, q, cap, lambda _: charge) <= 1 + 1e-12


def test_the_realised_loss_of_a_pure_question_is_no_zcdp_charge():
    excess = supermartingale(2, 0.001, 1.0, lambda loss: loss**2 / 2) - 1

    assert excess == pytest.approx(0.31 * 0.001, rel=0.02)


@pytest.mark.parametrize("order", [1.5, 2, 10])
def test_a_gaussian_bill_is_worth_half_its_square_in_zcdp(order):
    mu = 0.7
    charge = float(rule_for(zcdp(10)).held(GaussianLoss(Fraction(49, 100))).rho)
    # Renyi divergence of N(mu, 1) from N(0, 1), by integration.
    step = 1e-3
    grid = [i * step for i in range(-20000, 20000)]
    integral = sum(
        math.exp(-(order * (x - mu) ** 2 + (1 - order) * x**2) / 2) / math.sqrt(2 * math.pi) * step for x in grid
    )

    assert math.log(integral) / (order - 1) == pytest.approx(order * charge, rel=1e-9)


# Algebra

PAIRS = [
    (epsilon(10), PureLoss),
    (approx(10, 0.5), PureLoss),
    (zcdp(100), ZeroConcentratedLoss),
    (zcdp(100), PureLoss),
    (zcdp(100), GaussianLoss),
    (gdp(10), GaussianLoss),
    (gdp(10), PureLoss),
    (ComposedGuarantee.of(approx(10, 0.5)), PureLoss),
    (ComposedGuarantee.of(approx(10, 0.5)), GaussianLoss),
    (ComposedGuarantee.of(approx(10, 0.5)), ZeroConcentratedLoss),
]
PURE = rule_for(epsilon(1))


@pytest.mark.parametrize(("budget", "kind"), PAIRS, ids=lambda value: getattr(value, "definition", ""))
@given(cap=amounts, share=st.fractions(min_value=0, max_value=1, max_denominator=1000))
def test_settling_never_charges_more_than_the_hold_nor_less_than_the_bill(budget, kind, cap, share):
    held, bill = kind(cap), kind(max(cap * share, Fraction(1, 10**12)))

    rule = rule_for(budget)
    reserved, charged, least = rule.held(held), rule.settled(held, bill), rule.held(bill)

    assert all(amount <= reserved.amounts()[name] for name, amount in charged.amounts().items())
    assert all(amount <= charged.amounts()[name] for name, amount in least.amounts().items())
    if kind is PureLoss and budget.definition in ("zcdp", "gdp"):
        assert charged == reserved  # a realised epsilon is not a parameter of these definitions


@given(st.lists(amounts, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_charges_does_not_matter(losses, rng):
    def total(ordered):
        spent = PureLoss(0)
        for loss in ordered:
            spent = PURE.add(spent, PureLoss(loss))
        return spent

    shuffled = list(losses)
    rng.shuffle(shuffled)

    assert total(losses) == total(shuffled) == PureLoss(sum(losses))


@given(amounts, st.integers(1, 50))
def test_charging_n_times_is_charging_a_list_of_n(loss, times):
    spent = PureLoss(0)
    for _ in range(times):
        spent = PURE.add(spent, PureLoss(loss))

    assert spent == PureLoss(loss * times)


@given(amounts, amounts)
def test_taking_a_hold_back_undoes_it(first, second):
    spent = PURE.add(PureLoss(first), PureLoss(second))

    assert PURE.add(spent, PureLoss(0), released=PureLoss(second)) == PureLoss(first)


@given(amounts, amounts)
def test_the_integer_column_exceeds_its_limit_exactly_when_the_budget_is_exceeded(total, spent):
    assert (rule_for(epsilon(total)).used(PureLoss(spent)) > PARTS) == (spent > total)


@given(st.fractions(min_value=0, max_value=10**6))
def test_a_stored_total_is_never_below_the_true_one(total):
    stored = round_total(total)

    assert stored >= total
    assert stored == total or stored <= total * (1 + Fraction(1, 10**14)) + Fraction(1, 10**18)


def test_a_total_with_an_endless_denominator_stays_short_and_is_rounded_up():
    total = Fraction(0)
    exact = Fraction(0)
    for prime in [p for p in range(2, 2000) if all(p % d for d in range(2, int(p**0.5) + 1))]:
        exact += Fraction(1, prime * 1000)
        total = round_total(total + Fraction(1, prime * 1000))

    assert total >= exact
    assert total <= exact * (1 + Fraction(1, 10**10))
    assert total.denominator.bit_length() <= 600


def test_tiny_amounts_are_rounded_up_when_charged_and_down_when_left():
    tiny = Fraction(1, 10**10)

    assert rule_for(zcdp(1)).held(PureLoss(tiny)) == ZeroConcentratedLoss(Fraction(1, 10**18))
    assert rule_for(epsilon(1)).left(PureLoss(1 - Fraction(1, 10**19))) == PureLoss(0)
    assert rule_for(approx(1, 1e-6)).left(ApproxLoss(0.5, 0)) == ApproxLoss(0.5, 1e-6)
