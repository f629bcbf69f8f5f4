"""Staged holds, exactly: two runs that watch each other's stages, over all outcomes."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.core import PureLoss, approx

ORDERS = (1.5, 2.0, 4.0, 16.0)


def response(order, cap):
    """The divergence of randomised response at a cap."""
    k = order - 1
    return math.log((math.exp((k + 1) * cap) + math.exp(-k * cap)) / (1 + math.exp(cap))) / k


def price(order, loss, cap):
    return min(loss, response(order, cap))


def moment(order, outcomes):
    """The sum that a valid charge keeps at most at 1, of (p, q, charge)."""
    return sum(p * math.exp((order - 1) * (math.log(p / q) - charge)) for p, q, charge in outcomes)


def split(random, p, q, parts, spread):
    """Split one atom of a pair of laws into several, with ratios that differ by about the spread."""
    weights = random.dirichlet(np.ones(parts), size=2)
    mixed = weights[0] * (1 - spread) + weights[1] * spread
    return [(p * float(a), q * float(b)) for a, b in zip(mixed, weights[0], strict=True)]


def tree(random):
    """One staged run: where it stops at once, and how the rest goes on if it is allowed to and if it is refused."""
    first = split(random, 1.0, 1.0, 3, 0.3)
    stopped, (p, q) = first[:2], first[2]
    return stopped, split(random, p, q, 3, 0.8), split(random, p, q, 2, 0.2)


def loss(pair):
    return abs(math.log(pair[0] / pair[1]))


def test_the_price_is_that_of_the_library():
    rule = rule_for(ComposedGuarantee.of(approx(1, 1e-6)))
    charge = rule.settled(PureLoss(Fraction(1, 2)), PureLoss(Fraction(1, 32)))
    wanted = [price(order, 1 / 32, 1 / 2) for order in rule.budget.orders]

    assert np.allclose([cost / 2**40 for cost in charge.costs], wanted, rtol=1e-6, atol=1e-10)


def watched_run(random, order):
    """A run whose second stage another run is chosen by, whose answer decides whether a third stage is refused."""
    stopped, allowed, refused = tree(random)
    cap = max(map(loss, (*stopped, *allowed, *refused)))
    whole = [(p, q, price(order, loss((p, q)), cap)) for p, q in stopped]
    level = float(random.uniform(0.01, 2))  # of the other run, asked only after the second stage was seen
    truth = math.exp(level) / (1 + math.exp(level))
    for kept, (p, q) in ((allowed, (truth, 1 - truth)), (refused, (1 - truth, truth))):
        other = response(order, level)
        whole += [(p * a, q * b, other + price(order, loss((a, b)), cap)) for a, b in kept]

    return whole


@pytest.mark.parametrize("order", ORDERS)
def test_runs_that_watch_each_other_keep_the_supermartingale(order):
    runs = [watched_run(np.random.default_rng(seed), order) for seed in range(200)]

    assert all(math.isclose(sum(p for p, _, _ in run), 1) for run in runs)
    assert max(moment(order, run) for run in runs) <= 1 + 1e-12


@pytest.mark.parametrize("order", ORDERS)
def test_the_price_of_the_stage_alone_would_break_it(order):
    stage, cap = 0.05, 2.0
    rare = (math.exp(stage) - 1) / (math.exp(stage) - math.exp(-cap))
    common, surprise = ((1 - rare) * math.exp(stage), 1 - rare), (rare * math.exp(-cap), rare)

    by_cap = [(*common, price(order, stage, cap)), (*surprise, price(order, cap, cap))]
    by_stage = [(*common, price(order, stage, stage)), (*surprise, price(order, cap, cap))]

    assert moment(order, by_cap) <= 1 + 1e-12
    assert moment(order, by_stage) > 1 + stage / 10
