"""What a replaced unit loses: a table, the table without a unit, and the table with another unit in its place.

docs/proofs/replace-one-accounts.md. Exact laws on three tables, and adversaries that choose every question by the answers.
"""

import itertools
import math
import os
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from expost.accounting import GaussianEvent, PoissonSampled, RenyiEvent
from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.accounting.neighbour_change import exp_up, replaced_event, replaced_loss, share_for_added
from expost.accounting.renyi import ex_post_divergences, renyi_divergences
from expost.core import (
    Adjacency,
    ApproxLoss,
    BudgetExceeded,
    GaussianLoss,
    InvalidRequest,
    PureLoss,
    Receipt,
    RenyiGuarantee,
    RenyiLoss,
    Unit,
    ZeroConcentratedLoss,
    approx,
    epsilon,
)
from expost.ledger import MemoryLedger, Protected
from expost.ledger import posting as posting_module
from expost.ledger.neighbour_posting import NeighbourTerms

ACCOUNT, PARTS = "dataset:a", ("a/site=1", "a/site=2")
ADDED, SWAPPED = (Protected(ACCOUNT, each, Unit.row()) for each in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE))
STEP = Fraction(1, 10**6)


def divergence(p, r, order: float) -> float:
    return math.log(sum(a**order * b ** (1 - order) for a, b in zip(p, r, strict=True))) / (order - 1)


def hockey_stick(p, r, loss: float) -> float:
    return sum(max(0.0, a - math.exp(loss) * b) for a, b in zip(p, r, strict=True))


def three_laws(rng: random.Random, cap: float, size: int = 4):
    """A law on the middle table and two others, each within ``cap`` of it, often at the limit."""
    middle = np.array([rng.random() ** 3 + 1e-3 for _ in range(size)])
    middle /= middle.sum()

    def neighbour():
        for _ in range(100):
            tilt = np.array([rng.choice([-1, -1, 0, 1, 1]) * rng.choice([1, 1, rng.random()]) for _ in range(size)])
            found = middle * np.exp(tilt * cap / 2)
            found /= found.sum()
            if np.max(np.abs(np.log(found / middle))) <= cap:
                return found
        return middle

    return neighbour(), middle, neighbour()


# Single runs


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 10**9), Fraction(1, 3), Fraction(7), Fraction(150)])
def test_the_exponential_is_rounded_up_by_almost_nothing(exponent):
    exact = Fraction(math.exp(float(exponent)))
    assert exact * (1 - Fraction(1, 10**13)) <= exp_up(exponent) <= exact * (1 + Fraction(1, 10**13))
    assert exp_up(exponent) >= 1 + exponent + exponent**2 / 2


@pytest.mark.parametrize("seed", range(20))
def test_pure_losses_double_outcome_by_outcome(seed):
    rng = random.Random(seed)
    p, q, r = three_laws(rng, rng.choice([0.1, 1.0, 3.0]))
    seen = np.maximum(np.abs(np.log(p / q)), np.abs(np.log(q / r)))  # the bill of each answer

    assert (np.abs(np.log(p / r)) <= 2 * seen * (1 + 1e-12)).all()
    for order in (1.5, 2.0, 8.0, 32.0):  # the doubled bill under the doubled cap is a valid charge at every order
        cap = Fraction(float(seen.max())) + STEP
        costs = [ex_post_divergences(Fraction(2 * float(each)) + STEP, 2 * cap, (order,))[0] for each in seen]
        for here, there in ((p, r), (r, p)):
            moment = sum(
                a * math.exp((order - 1) * (math.log(a / b) - c)) for a, b, c in zip(here, there, costs, strict=True)
            )
            assert moment <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_the_weak_triangle_inequality_bounds_every_order(seed):
    rng = random.Random(seed)
    p, q, r = three_laws(rng, rng.choice([0.3, 1.0, 3.0]))
    for a in (1.25, 2.0, 3.0, 8.0, 20.0):
        both = 2 * a / (2 * a - 1) * divergence(p, q, 2 * a - 1) + divergence(q, r, 2 * a)
        assert divergence(p, r, a) <= both + 1e-12


def test_a_pair_of_epsilon_and_delta_is_converted_as_stated_and_not_far_from_the_truth():
    size, chance = 0.7, 0.01
    e = math.exp(size)
    # The middle table gives the second answer with probability delta; the first table gives it e times as often and more.
    p, q, r = ((e + 1) * chance, 1 - (e + 1) * chance), (chance, 1 - chance), (0.0, 1.0)
    assert hockey_stick(p, q, size) <= chance * (1 + 1e-9) and hockey_stick(q, r, size) <= chance * (1 + 1e-9)

    loss = replaced_loss(ApproxLoss(Fraction(7, 10), Fraction(1, 100)))
    assert loss.epsilon == Fraction(7, 5)
    assert hockey_stick(p, r, float(loss.epsilon)) <= float(loss.delta) * (1 + 1e-12)
    assert hockey_stick(p, r, float(loss.epsilon)) > float(loss.delta) * 0.999
    assert hockey_stick(p, r, float(loss.epsilon)) > 2 * chance  # twice delta would be too little


@pytest.mark.parametrize("rate", [0.05, 0.5])
@pytest.mark.parametrize("noise", [0.8, 2.0])
def test_a_sampled_gaussian_step_costs_a_replaced_row_at_most_its_converted_price(rate, noise):
    orders = (2.0, 3.0, 8.0)
    event = replaced_event(
        PoissonSampled(Fraction(rate), GaussianEvent(Fraction(noise))), definition="approx", orders=orders
    )
    price = rule_for(ComposedGuarantee.of(approx(50, 1e-5), orders=orders)).held(ApproxLoss(1, 1e-9), event=event)

    x = np.linspace(-40.0, 60.0, 400_001)
    here, there = (
        np.logaddexp(math.log(1 - rate) + norm.logpdf(x, 0, noise), math.log(rate) + norm.logpdf(x, shift, noise))
        for shift in (1.0, -1.0)
    )
    for order, cost in zip(orders, price.costs, strict=True):
        moment = logsumexp(order * here + (1 - order) * there) + math.log(x[1] - x[0])
        assert 0 < moment / (order - 1) <= cost / 2**40


def test_gaussians_quadruple_and_no_less_would_do():
    assert replaced_loss(GaussianLoss(Fraction(1, 4))) == GaussianLoss(Fraction(1))
    assert replaced_loss(ZeroConcentratedLoss(Fraction(1, 8))) == ZeroConcentratedLoss(Fraction(1, 2))
    # Answers 0, 1/2 and 1 on the three tables: the ends are one apart.
    assert renyi_divergences(GaussianEvent(1), (2.0,))[0] == pytest.approx(
        4 * renyi_divergences(GaussianEvent(2), (2.0,))[0]
    )


def test_a_listed_curve_keeps_the_orders_of_which_twice_the_order_is_listed():
    loss = replaced_loss(RenyiLoss(((2, Fraction(1, 10)), (4, Fraction(1, 5)), (8, Fraction(2, 5)))))
    assert [order for order, _ in loss.curve] == [2, 4]
    chord = (1 * 0.1 + 3 * 0.2) / 2 / 2  # the divergence at order 3, between the listed ones
    assert float(loss.curve[0][1]) == pytest.approx(4 / 3 * chord + 0.2)

    with pytest.raises(InvalidRequest, match="counts replaced units"):
        replaced_loss(RenyiLoss(((2, Fraction(1, 10)), (3, Fraction(1, 5)))))
    rule = rule_for(RenyiGuarantee(((2, Fraction(1)), (8, Fraction(4)))))
    with pytest.raises(InvalidRequest, match="can be charged for"):  # order 8 would need order 16
        rule.held(RenyiLoss(((2, Fraction(1, 10)), (8, Fraction(2, 5)))), replaced=True)
    event = RenyiEvent(((2, Fraction(1, 10)), (4, Fraction(1, 5))))
    assert replaced_event(event, definition="approx", orders=(2.0, 4.0)).curve[-1][0] == 2


@pytest.mark.parametrize(
    "left", [PureLoss(1), ApproxLoss(1, 1e-6), ApproxLoss(3, 1e-3), ZeroConcentratedLoss(0.1), GaussianLoss(2)]
)
def test_the_share_for_added_rows_is_what_fits(left):
    share = share_for_added(left)
    assert replaced_loss(share).within(left)
    amounts = {name: amount * Fraction(101, 100) for name, amount in share.amounts().items()}
    assert not replaced_loss(share.with_amounts(amounts)).within(left)


# Accounts: an adversary who knows three tables and chooses everything by the answers


def pure_run(rng: random.Random, cap: Fraction):
    p, q, r = three_laws(rng, float(cap) * 0.999, 3)
    bills = [
        Fraction(float(max(abs(math.log(a / b)), abs(math.log(b / c))))) + STEP / 10**3
        for a, b, c in zip(p, q, r, strict=True)
    ]
    return (p, q, r), PureLoss(cap), [PureLoss(min(each, cap)) for each in bills]


def revealing_run(cap: Fraction):
    """Randomised response that tells the removal and the addition apart as much as the cap allows."""
    up, down = math.exp(float(cap) * 0.999), math.exp(-float(cap) * 0.999)
    q = (1 - down) / (up - down)
    laws = (np.array([q * up, 1 - q * up]), np.array([q, 1 - q]), np.array([q * down, 1 - q * down]))
    return laws, PureLoss(cap), [PureLoss(cap)] * 2


def approximate_run(cap: Fraction, delta: Fraction):
    """The law of ``revealing_run`` that also tells the truth on the outer tables with probability delta."""
    (p, q, r), _, _ = revealing_run(cap)
    d = float(delta)
    laws = (
        np.array([d, 0.0, *((1 - d) * p)]),
        np.array([0.0, 0.0, *q]),
        np.array([0.0, d, *((1 - d) * r)]),
    )
    losses = [abs(math.log(a / b)) for law in (laws[0], laws[2]) for a, b in zip(law[2:], q, strict=True)]
    return laws, ApproxLoss(max(cap, Fraction(max(losses)) + STEP), delta), None


def replaced_run(rng: random.Random, cap: Fraction):
    """A run that protects a replaced row, and on the middle table says how many rows there are."""
    high = math.exp(float(cap) * 0.999) / (1 + math.exp(float(cap) * 0.999))
    p, r = np.array([high, 1 - high, 0.0]), np.array([1 - high, high, 0.0])
    return (p, np.array([0.0, 0.0, 1.0]), r), PureLoss(cap), [PureLoss(cap)] * 3


def choose_run(rng: random.Random, ledger: MemoryLedger, place: str):
    protected = SWAPPED if rng.random() < 0.45 else ADDED
    left = ledger.remaining_for(place, protected).amounts()
    cap = left["epsilon"] * Fraction(rng.choice([1, 2, 4, 4]), 4)
    if cap < STEP:
        return protected, None
    if protected is SWAPPED:
        return protected, replaced_run(rng, cap)
    if left.get("delta", 0) > STEP and rng.random() < 0.4:
        return protected, approximate_run(cap * Fraction(9, 10), left["delta"] * Fraction(rng.choice([1, 2]), 4))
    return protected, rng.choice([pure_run(rng, cap), revealing_run(cap)])


def replay(seed: int, budget, answers, *, parts: bool):
    """Play the answers on a fresh ledger; return the laws of the next question, or None, and what the account counts."""
    ledger = MemoryLedger()
    ledger.open_account(ACCOUNT, budget)
    if parts:
        ledger.open_part(PARTS, of=ACCOUNT, by="site")
    for number in itertools.count():
        rng = random.Random(f"{seed} {answers[:number]}")
        # The row that is removed is in the first part, the one that is added in the second.
        place = rng.choice([ACCOUNT, *PARTS]) if parts else ACCOUNT
        protected, run = choose_run(rng, ledger, place)
        over = ledger.counts(ACCOUNT) is Adjacency.REPLACE_ONE
        if run is None:
            return None, over
        (p, q, r), cap, bills = run
        if place == PARTS[0] and protected is ADDED:
            r = q  # an added row in the other part changes nothing here
        if place == PARTS[1] and protected is ADDED:
            p = q
        try:
            hold = ledger.hold([place], cap, question="q", protected=protected)
        except BudgetExceeded:
            return None, over
        if number == len(answers):
            return (p, q, r), over
        bill = cap if bills is None else bills[answers[number]]
        receipt = Receipt(question="q", method="m", promise=cap.promise(), bill=bill, adjacency=protected.adjacency)
        ledger.settle(hold, receipt)


def list_transcripts(seed: int, budget, *, depth: int, parts: bool):
    """All transcripts with their probabilities on the three tables, and whether the account went over."""
    found = []

    def explore(answers, chances):
        laws, over = replay(seed, budget, answers, parts=parts)
        if laws is None or len(answers) == depth:
            found.append((chances, over))
            return
        for answer, each in enumerate(zip(*laws, strict=True)):
            after = tuple(chance * one for chance, one in zip(chances, each, strict=True))
            if any(after):
                explore((*answers, answer), after)

    explore((), (1.0, 1.0, 1.0))
    return found


def missed(found, size: float, *, over: bool, pair: tuple[int, int]) -> float:
    """The hockey stick divergence on the transcripts that ended in this state of the account."""
    chosen = [chances for chances, state in found if state is over]
    return sum(max(0.0, each[pair[0]] - math.exp(size) * each[pair[1]]) for each in chosen)


LONG = bool(os.environ.get("EXPOST_LONG"))


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize(("size", "chance"), [(1.0, 0.0), (2.0, 0.0), (0.5, 0.3), (1.0, 0.1)])
def test_whatever_is_asked_under_either_adjacency_the_account_keeps_its_promise(size, chance, parts):
    budget = epsilon(size) if not chance else approx(size, chance)
    went_over = 0
    for seed in range(20 if LONG else 8 if not chance else 2 - parts):
        found = list_transcripts(seed, budget, depth=3 if LONG or not chance else 2, parts=parts)
        for table in range(3):
            assert math.fsum(chances[table] for chances, _ in found) == pytest.approx(1)
        for pair in ((0, 2), (2, 0)):  # after going over: for replaced rows
            assert missed(found, size, over=True, pair=pair) <= chance + 1e-12
        for pair in ((0, 1), (1, 0), (1, 2), (2, 1)):  # before: for added and removed ones
            assert missed(found, size, over=False, pair=pair) <= chance + 1e-12
        went_over += any(state for _, state in found)
    assert went_over


def test_an_account_that_does_not_convert_breaks_its_promise(monkeypatch):
    """The sum of both adjacencies, unconverted, is what version 0.2 had to refuse."""
    monkeypatch.setattr(posting_module, "meet_neighbours", lambda *_: NeighbourTerms())
    ledger = MemoryLedger()
    ledger.open_account(ACCOUNT, epsilon(1))
    (p, _, r), cap, _ = revealing_run(Fraction(1, 2))
    (s, _, t), other, _ = replaced_run(random.Random(0), Fraction(1, 2))
    ledger.hold([ACCOUNT], cap, question="q", protected=ADDED)
    ledger.hold([ACCOUNT], other, question="q", protected=SWAPPED)

    losses = [math.log(p[i] * s[j] / (r[i] * t[j])) for i, j in itertools.product(range(2), range(2))]
    assert max(losses) > 1.4


def test_replace_one_privacy_says_nothing_about_an_added_row():
    """Why no account goes back: the exact number of rows is private for a replaced row at no cost."""
    (p, q, r), _, _ = replaced_run(random.Random(0), Fraction(1, 10**6))
    assert np.max(np.abs(np.log(p[:2] / r[:2]))) < 1e-5
    assert hockey_stick(p, q, 100.0) == pytest.approx(1)
