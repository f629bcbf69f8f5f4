"""Disjoint parts by exact enumeration: a real ledger admits and bills, and the transcript's density ratio is compared.

docs/proofs/parallel-parts.md, Theorem 1.
"""

import math
import random
from fractions import Fraction

import pytest

from expost.core import BudgetExceeded, PureLoss, Receipt, epsilon
from expost.ledger import MemoryLedger

WHOLE, PARTS = "dataset:people", ("A", "B", "C")
BUDGET = Fraction(1)


def charged(history, touching):
    """A ledger in which all this happened: places, caps and bills."""
    ledger = MemoryLedger()
    ledger.open_account(WHOLE, epsilon(BUDGET))
    for part in PARTS:
        ledger.open_part(part, of=WHOLE, by="site", touching=touching)
    for places, cap, bill in history:
        hold = ledger.hold(places, PureLoss(cap), question="q")
        ledger.settle(hold, Receipt(question="q", method="m", promise=epsilon(cap), bill=PureLoss(bill)))
    return ledger


def answers(rng, cap):
    """Two laws on two answers, and the realised loss of each answer, rounded up and at most the cap."""
    here = rng.uniform(0.2, 0.8)
    there = here * math.exp(rng.choice([-1, 1]) * float(cap) * 0.99)
    while not 0 < there < 1 or abs(math.log((1 - here) / (1 - there))) > cap:
        there = (here + there) / 2
    losses = [abs(math.log(here / there)), abs(math.log((1 - here) / (1 - there)))]
    bills = [min(cap, Fraction(math.ceil(loss * 10**9), 10**9)) for loss in losses]
    return [(here, there, bills[0]), (1 - here, 1 - there, bills[1])]


def largest_ratio(seed, *, touching, touched, depth=5):
    """The largest log-ratio over all transcripts of an adaptive study, for neighbours that differ in ``touched``."""
    rng = random.Random(seed)

    def ask(history, log_ratio):
        ledger = charged(history, touching)
        places = rng.choice([[WHOLE], ["A"], ["A"], ["B"], ["B"], ["C"], ["A", "B"]])
        # Everything that fits: the worst case that a real analyst could ask for.
        cap = min(ledger.remaining(place).epsilon for place in places)
        if len(history) == depth or cap < Fraction(1, 100):
            return abs(log_ratio)
        cap = cap if rng.random() < 0.5 else cap / 2
        seen = places == [WHOLE] or not touched.isdisjoint(places)
        if len(places) > 1 and touching > 1:
            cap /= 2  # two parts at once raise the sum of the two largest twice
        return max(
            ask([*history, (places, cap, bill)], log_ratio + (math.log(here / there) if seen else 0))
            for here, there, bill in answers(rng, cap)
        )

    return ask([], 0.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part", ["A", "B"])
def test_who_is_in_one_part_loses_at_most_the_budget_of_the_whole(seed, part):
    assert largest_ratio(seed, touching=1, touched={part}) <= float(BUDGET) + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_a_replaced_row_that_changes_its_part_loses_at_most_the_budget(seed):
    assert largest_ratio(seed, touching=2, touched={"A", "B"}) <= float(BUDGET) + 1e-9


def test_a_unit_with_rows_in_two_parts_breaks_an_account_that_counts_one():
    ratios = [largest_ratio(seed, touching=1, touched={"A", "B"}) for seed in range(12)]

    assert max(ratios) > 1.3 * float(BUDGET)


def test_an_account_that_forgot_the_questions_about_the_whole_would_break():
    # The same study with two accounts side by side, as if parts did not belong to the whole.
    ledger = MemoryLedger()
    for name in (WHOLE, "A"):
        ledger.open_account(name, epsilon(1))
        ledger.hold([name], PureLoss(1), question="q")
    joined = charged([([WHOLE], Fraction(1), Fraction(1))], 1)

    assert ledger.spent(WHOLE).epsilon + ledger.spent("A").epsilon == 2
    with pytest.raises(BudgetExceeded):
        joined.hold(["A"], PureLoss(Fraction(1, 1000)), question="q")
