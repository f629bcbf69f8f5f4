"""What people are told, against what attackers really can learn: exact laws, random laws, and simulated runs.

The law of docs/proofs/interpretation.md: whatever is computed from an output, its privacy loss exceeds the stated bound
with the stated probability at most. Outcomes of one loss may be merged or not, so the worst set of outcomes is looked for.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Parallel,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    RenyiEvent,
    Repeat,
    Sequence,
    account,
)
from expost.accounting.rounding import Floats
from expost.accounting.tradeoff_curve import TradeoffCurve, bound_by_pairs
from expost.core import ApproxLoss, GaussianLoss, Loss, PureLoss, Receipt, RenyiLoss, ZeroConcentratedLoss
from expost.core.meaning import explain_loss, loss_bound, posterior_bound

SEEDED = settings(max_examples=120, deadline=None, derandomize=True)
CHANCES = (0.2, 1e-2, 1e-4, 1e-6, 1e-9)
SENTENCE = re.compile(
    r"at most ([\d.]+) % sure after seeing [a-z ]+?(?:, except with probability ([\d.e-]+))?\.(?: |$)"
)

Pair = tuple[Floats, Floats]
"""Probabilities of the outcomes with a unit and without it."""


def stated(text: str) -> tuple[float, float]:
    """The belief and the exception of a sentence."""
    found = SENTENCE.search(text)
    assert found, text
    return float(found[1]) / 100, float(found[2] or 0)


def worst_event(pair: Pair, bound: float) -> float:
    """The largest probability of an event that is more than e^bound times likelier with the unit than without.

    Outcomes are added by falling likelihood ratio, the last one in part: the sum of all is then the worst event.
    """
    if not math.isfinite(bound):
        return 0.0  # "at most 100 % sure" is never wrong
    p, q = (one[(pair[0] > 0) | (pair[1] > 0)] for one in pair)
    with np.errstate(divide="ignore"):
        order = np.argsort(np.log(q) - np.log(p), kind="stable")
    with_unit, without = np.cumsum(p[order]), np.cumsum(q[order])
    inside = np.flatnonzero(with_unit > math.exp(bound) * without * (1 + 1e-12))
    if not len(inside):
        return 0.0
    last = inside[-1]
    found = with_unit[last]
    if last + 1 < len(p):
        step, rest = p[order][last + 1], q[order][last + 1]
        gap, slope = with_unit[last] - math.exp(bound) * without[last], math.exp(bound) * rest - step
        found += step * min(1.0, gap / slope) if slope > 0 else step
    return float(found)


def composed(pair: Pair, count: int) -> Pair:
    p, q = pair
    found = pair
    for _ in range(count - 1):
        found = np.outer(found[0], p).ravel(), np.outer(found[1], q).ravel()
    return found


def response(epsilon: float, delta: float = 0.0) -> Pair:
    """Randomised response that discloses everything with probability delta."""
    keep = (1 - delta) / (1 + math.exp(-epsilon))
    lie = (1 - delta) / (1 + math.exp(epsilon))
    return np.array([delta, keep, lie, 0.0]), np.array([0.0, lie, keep, delta])


def coarse(pair: Pair, cells: int) -> Pair:
    """Neighbouring outcomes merged: what is computed from an output is an output too."""
    edges = np.linspace(0, len(pair[0]), cells, endpoint=False).astype(int)
    return np.add.reduceat(pair[0], edges), np.add.reduceat(pair[1], edges)


def joint(one: Pair, two: Pair) -> Pair:
    return np.outer(one[0], two[0]).ravel(), np.outer(one[1], two[1]).ravel()


def gaussian(mu: float) -> Pair:
    """A Gaussian cut to narrow cells: merging outcomes is post-processing, so its losses are real ones."""
    edges = np.concatenate([[-np.inf], np.linspace(-9, 9 + mu, 4001), [np.inf]])

    def masses(edges: Floats) -> Floats:
        return np.where(edges[1:] <= 0, np.diff(norm.cdf(edges)), -np.diff(norm.sf(edges)))

    return masses(edges - mu), masses(edges)


def sampled(pair: Pair, rate: float) -> Pair:
    return (1 - rate) * pair[1] + rate * pair[0], pair[1]


def laplace(epsilon: float, cells: int = 400) -> Pair:
    edges = np.concatenate([[-np.inf], np.linspace(0, epsilon, cells), [np.inf]])

    def below(x: Floats) -> Floats:
        return np.where(x < 0, np.exp(np.minimum(x, 0)) / 2, 1 - np.exp(-np.maximum(x, 0)) / 2)

    return np.diff(below(edges - epsilon)), np.diff(below(edges))


def two_sided(scale: float, log_weight: Callable[[Floats], Floats], reach: int, shift: int = 1) -> Pair:
    points = np.arange(-reach, reach + shift + 1, dtype=np.float64)
    p, q = np.exp(log_weight((points - shift) / scale)), np.exp(log_weight(points / scale))
    return p / p.sum(), q / q.sum()


KNOWN: dict[str, tuple[PrivacyEvent, Pair]] = {
    "nothing": (Sequence(), (np.ones(1), np.ones(1))),
    "randomised response": (PureEvent(1.5), response(1.5)),
    "randomised response with a failure": (ApproxEvent(1, 1e-6), response(1, 1e-6)),
    "a large epsilon with a failure": (ApproxEvent(8, 1e-6), response(8, 1e-6)),
    "a failure alone": (ApproxEvent(0, 1e-9), response(0, 1e-9)),
    "failures that add up": (Repeat(ApproxEvent(0.3, 1e-4), 4), composed(response(0.3, 1e-4), 4)),
    "two different failures": (
        Sequence([PureEvent(3), ApproxEvent(0.1, 1e-9)]),
        joint(response(3), response(0.1, 1e-9)),
    ),
    "Gaussian": (GaussianEvent(1), gaussian(1)),
    "narrow Gaussian": (GaussianEvent(8), gaussian(0.125)),
    "Gaussian with a failure": (
        Sequence([GaussianEvent(1), ApproxEvent(0, 1e-6)]),
        joint(gaussian(1), response(0, 1e-6)),
    ),
    "Laplace": (LaplaceEvent(1), laplace(1)),
    "discrete Laplace": (DiscreteLaplaceEvent(2, 3), two_sided(2, lambda x: -np.abs(x), 120, 3)),
    "discrete Gaussian": (DiscreteGaussianEvent(3, 2), two_sided(3, lambda x: -(x**2) / 2, 60, 2)),
    # Scores that move towards and away from one of two choices: their log-odds change by epsilon in all.
    "exponential mechanism": (ExponentialEvent(1), response(0.5)),
    "sampled Gaussian": (PoissonSampled(0.1, GaussianEvent(1)), sampled(gaussian(1), 0.1)),
    "sampled Gaussians": (
        Repeat(PoissonSampled(0.1, GaussianEvent(1)), 3),
        composed(coarse(sampled(gaussian(1), 0.1), 40), 3),
    ),
    "sampled response": (PoissonSampled(0.25, PureEvent(2)), sampled(response(2), 0.25)),
    "sampled failure": (PoissonSampled(0.1, ApproxEvent(1, 1e-3)), sampled(response(1, 1e-3), 0.1)),
    "composition": (Repeat(PureEvent(0.5), 9), composed((response(0.5)[0][1:3], response(0.5)[1][1:3]), 9)),
    "zCDP": (ConcentratedEvent(0.5), gaussian(1)),
    "Renyi": (RenyiEvent(tuple((a, Fraction(a, 2)) for a in (2, 4, 8, 16, 32))), gaussian(1)),
    "parallel parts": (Parallel([ApproxEvent(1, 1e-6), GaussianEvent(1)]), gaussian(1)),
}


@pytest.mark.parametrize("name", list(KNOWN))
def test_no_event_is_likelier_by_more_than_the_bound(name: str) -> None:
    event, pair = KNOWN[name]
    whole = account(event)
    for chance in CHANCES:
        bound = whole.loss_bound(chance)

        assert worst_event(pair, bound) <= chance * (1 + 1e-6), (name, chance, bound)
        assert worst_event((pair[1], pair[0]), bound) <= chance * (1 + 1e-6), (name, chance, bound)


@pytest.mark.parametrize("name", list(KNOWN))
@pytest.mark.parametrize("prior", [0.5, 0.01])
def test_no_explanation_is_below_a_true_posterior(name: str, prior: float) -> None:
    event, pair = KNOWN[name]
    p, q = (one + 0.0 for one in pair)
    with np.errstate(invalid="ignore"):
        beliefs = np.nan_to_num(prior * p / (prior * p + (1 - prior) * q))
    whole = account(event)
    for delta in (1e-3, 1e-5, 1e-6, 1e-9):
        sure, exception = stated(whole.explain(delta, prior=prior))

        assert p[beliefs > sure + 1e-12].sum() <= exception * (1 + 1e-6), (name, delta, sure, exception)


@pytest.mark.parametrize("name", list(KNOWN))
def test_no_risk_is_above_what_the_curve_says(name: str) -> None:
    event, pair = KNOWN[name]
    curve = account(event).tradeoff()
    for p, q in (pair, (pair[1], pair[0])):
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.nan_to_num(p / q, posinf=np.inf), kind="stable")
        power, alarms = np.cumsum(p[order]), np.minimum(np.cumsum(q[order]), 1.0)

        assert np.all(1 - curve.missed_detection(alarms) >= power - 1e-9)


def test_a_risk_is_told_at_the_scale_of_the_truth() -> None:
    """A failure of one in a million is not a reason to say 47 % where 2.7 % is true."""
    for epsilon, delta in ((1, 1e-6), (0.1, 1e-5), (2, 1e-9), (3, 1e-3)):
        told = account(ApproxEvent(epsilon, delta)).tradeoff().risk(0.01)

        assert 0.01 * math.exp(epsilon) * (1 - delta) <= told <= 0.01 * math.exp(epsilon) + delta + 1e-4
    both = account(Sequence([GaussianEvent(1), ApproxEvent(0, 1e-6)])).tradeoff()

    assert both.risk(0.01) == pytest.approx(float(norm.cdf(norm.ppf(0.01) + 1)), rel=0.02)
    long = account(Repeat(PureEvent(1e-4), 10**8)).tradeoff()

    assert 0.9 < float(1 - long.missed_detection(0.4)) / float(norm.cdf(norm.ppf(0.4) + 1)) < 1.15


@pytest.mark.parametrize("mu", [1e-6, 0.03, 1.0, 7.0, 60.0])
def test_the_gaussian_bound_is_the_exact_one(mu: float) -> None:
    for chance in CHANCES:
        exact = math.log(chance) - float(norm.logsf(norm.isf(chance) + mu))
        found = loss_bound(GaussianLoss(Fraction(mu) ** 2), chance)

        assert exact * (1 - 1e-9) - 1e-13 <= found <= exact * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-3), (1.0, 1e-6), (2.5, 1e-2)])
def test_some_mechanism_meets_the_bound_of_epsilon_and_delta(epsilon: float, delta: float) -> None:
    """docs/proofs/interpretation.md, Theorem 2: a smaller bound would be false for this one."""
    for chance in (3 * delta, 20 * delta):
        bound = loss_bound(ApproxLoss(epsilon, delta), chance)
        p = np.array([chance, 1 - chance])
        q = np.array([chance * math.exp(-bound), 1 - chance * math.exp(-bound)])
        for one, two in ((p, q), (q, p)):
            assert np.maximum(one - math.exp(epsilon) * two, 0).sum() <= delta * (1 + 1e-9)
        assert worst_event((p, q), bound * (1 - 1e-6)) >= chance * (1 - 1e-9)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    size = draw(st.integers(2, 6))
    numbers = st.floats(-6, 3)
    p = np.exp(np.array(draw(st.lists(numbers, min_size=size, max_size=size))))
    q = np.exp(np.array(draw(st.lists(numbers, min_size=size, max_size=size))))
    if draw(st.booleans()):
        q[0] = 0.0
    return p / p.sum(), q / q.sum()


@SEEDED
@given(pairs(), st.just(0.0) | st.floats(1e-6, 4), st.sampled_from(CHANCES))
def test_every_pair_that_a_mechanism_meets_bounds_its_losses(pair: Pair, epsilon: float, chance: float) -> None:
    p, q = pair
    delta = max(np.maximum(one - math.exp(epsilon) * two, 0).sum() for one, two in ((p, q), (q, p)))
    if not 1e-25 < delta < 1:
        return
    loss = ApproxLoss(epsilon, Fraction(float(delta)).limit_denominator(10**12) + Fraction(1, 10**12))

    assert worst_event(pair, loss_bound(loss, chance)) <= chance * (1 + 1e-9)


@SEEDED
@given(pairs(), st.sampled_from(CHANCES))
def test_every_renyi_curve_of_a_mechanism_bounds_its_losses(pair: Pair, chance: float) -> None:
    p, q = pair
    if not np.all(q > 0):
        return
    curve = [
        (a, max(math.log(np.sum(one**a * two ** (1 - a))) / (a - 1) for one, two in ((p, q), (q, p))))
        for a in (1.25, 2.0, 5.0, 20.0)
    ]
    loss = RenyiLoss(tuple((Fraction(a), Fraction(cost) + Fraction(1, 10**12)) for a, cost in curve))

    assert worst_event(pair, loss_bound(loss, chance)) <= chance * (1 + 1e-9)


BILLS: list[tuple[Loss, PrivacyEvent, float]] = [
    (PureLoss(0.1), PureEvent(0.1), 0.0),
    (PureLoss(3), PureEvent(3), 1e-6),
    (ApproxLoss(0.045, 1e-5), ApproxEvent(0.045, 1e-5), 1e-5),
    (ApproxLoss(2, 1e-6), ApproxEvent(2, 1e-6), 1e-6),
    (ApproxLoss(1, 0.05), ApproxEvent(1, 0.05), 0.05),
    (ZeroConcentratedLoss(0.01), ConcentratedEvent(0.01), 1e-6),
    (GaussianLoss(Fraction(1, 4)), GaussianEvent(2), 1e-6),
    (RenyiLoss(((2, 0.1), (16, 0.8))), RenyiEvent(((2, 0.1), (16, 0.8))), 1e-6),
]


@pytest.mark.parametrize(("bill", "event", "delta"), BILLS, ids=lambda value: str(value)[:40])
def test_a_receipt_and_an_account_of_the_same_events_agree(bill: Loss, event: PrivacyEvent, delta: float) -> None:
    receipt = Receipt(question="count", method="any", promise=bill.promise(), bill=bill)
    told = stated(receipt.meaning)

    assert told == stated(account(event).explain(delta)) == stated(account(bill).explain(delta))
    assert told == stated(explain_loss(bill))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.045, 1e-5), (1.0, 1e-5), (1.0, 1e-6), (0.1, 1e-6), (3.0, 1e-9)])
def test_the_sentence_of_epsilon_and_delta_holds_for_the_gaussian_that_has_them(epsilon: float, delta: float) -> None:
    low, high = 1e-6, 10.0
    for _ in range(100):  # the mu whose delta at this epsilon is this one
        mu = (low + high) / 2
        reached = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        low, high = (mu, high) if reached < delta else (low, mu)
    sure, exception = stated(explain_loss(ApproxLoss(epsilon, delta)))
    bound = math.log(sure / (1 - sure))

    assert norm.sf(bound / mu - mu / 2) <= exception
    assert norm.sf(epsilon / mu - mu / 2) > 10 * delta  # what the epsilon itself would have got wrong


@pytest.mark.parametrize("event", [event for event, _ in KNOWN.values()], ids=list(KNOWN))
def test_no_bound_falls_to_zero_for_want_of_a_pair(event: PrivacyEvent) -> None:
    whole = account(event)
    bounds = [whole.loss_bound(chance) for chance in (*CHANCES, 1e-30, 0)]

    assert bounds == sorted(bounds)
    if event != Sequence():
        assert bounds[1] > 0
        assert bounds[-1] == whole.epsilon(0)


def test_a_curve_without_a_pair_says_nothing() -> None:
    for epsilons, deltas in (([0.0], [1e-3]), ([0.0], [1.0]), ([1.0, 2.0], [0.5, 0.4])):
        curve = TradeoffCurve(np.array(epsilons), np.array(deltas))

        assert curve.loss_bound(1e-6) == math.inf
    assert bound_by_pairs(np.zeros(0), np.zeros(0), 0.5) == math.inf
    assert bound_by_pairs(np.array([1.0]), np.array([1e-9]), 0.0) == math.inf


@pytest.mark.parametrize("currency", ["approx", "homogeneous", "zcdp", "gdp", "rdp", "pld"])
@pytest.mark.parametrize("count", [1, 3, 10**6])
def test_every_currency_bounds_or_says_that_it_cannot(currency: str, count: int) -> None:
    if currency == "pld":
        pytest.importorskip("dp_accounting")
    each = Fraction(1, 100) if count > 3 else Fraction(1, 2)
    whole = account(Repeat(PureEvent(each), count), currency=currency)
    for chance in CHANCES:
        # The loss is a sum of steps of one size: normal where there are many, and at most its largest value.
        many = count * float(each) ** 2
        exact = float(each) * count if count <= 3 else many / 2 + math.sqrt(many) * float(norm.isf(chance))
        least = exact if chance <= 0.01 and count == 1 else 0.0 if count == 3 else exact * 0.999

        assert whole.loss_bound(chance) >= least


def test_losses_whose_exponentials_are_no_floats_are_told_too() -> None:
    for event in (PureEvent(2000), Repeat(PureEvent(1), 10**5), GaussianEvent(Fraction(1, 1000))):
        whole = account(event)
        missed = whole.tradeoff().missed_detection(np.array([0.0, 1e-9, 0.5, 1.0]))

        assert missed == pytest.approx([1, 0, 0, 0], abs=1e-9)
        assert stated(whole.explain(1e-6))[0] == 1


def test_merging_outcomes_can_make_a_loss_likelier_which_is_why_tails_alone_are_not_told() -> None:
    """Outside its assumptions: the tail of one mechanism's loss does not bound the losses of what is computed from it."""
    mu, chance = 1.0, 0.01
    tail = mu**2 / 2 + mu * float(norm.isf(chance))
    merged = norm.isf(2 * chance)  # "the noisy value is large", likelier than the chance allowed
    loss = math.log(2 * chance / float(norm.sf(merged + mu)))

    assert loss > tail * 0.97
    assert worst_event(gaussian(mu), tail) > 1.5 * chance
    assert worst_event(gaussian(mu), account(GaussianEvent(1)).loss_bound(chance)) <= chance


class TestExPost:
    """Bills that depend on the outcome; docs/proofs/interpretation.md, Theorem 4."""

    def test_the_belief_after_an_outcome_is_at_most_what_its_own_bill_says(self) -> None:
        rng = np.random.default_rng(5)
        for _ in range(4):
            p = rng.dirichlet(np.ones(5))
            q = p * np.exp(rng.uniform(-2, 2, 5))
            q /= q.sum()
            bills = np.abs(np.log(p / q))
            for one, other, bill in zip(p, q, bills, strict=True):
                event = ExPostEvent(Fraction(float(bill)) + Fraction(1, 10**12), 20)
                sure, exception = stated(account(event).explain())

                assert exception == 0
                assert sure >= one / (one + other)

    def test_a_risk_is_that_of_the_run_before_it_ran(self) -> None:
        """Half of the runs tell nothing, the others nearly all: the bill of the first says nothing about both."""
        p = np.array([0.5, 0.5 * 0.99, 0.5 * 0.01])
        q = np.array([0.5, 0.5 * 0.01, 0.5 * 0.99])
        whole = account(ExPostEvent(0, Fraction(4596, 1000)))

        assert stated(whole.explain()) == (0.5, 0)
        assert whole.tradeoff().risk(float(q[1])) >= p[1]
        assert whole.guess_rate() >= np.maximum(p, q).sum() / 2

    def test_realised_losses_add_to_what_the_rest_may_lose(self) -> None:
        rest, both = account(GaussianEvent(1)), account([GaussianEvent(1), ExPostEvent(0.25, 1)])

        assert both.loss_bound(1e-6) == pytest.approx(rest.loss_bound(1e-6) + 0.25, abs=1e-9)

    @pytest.mark.parametrize("greedy", [0.5, 1.0, 2.0])
    def test_a_training_stopped_by_an_adversary_keeps_its_sentence(self, greedy: float) -> None:
        """Gaussian steps that stop where the loss is largest for its bill; each stop has its own (epsilon, delta)."""
        steps, mu, delta, runs = 12, 0.5, 1e-3, 400_000
        rng = np.random.default_rng(11)
        bills = [account(Repeat(GaussianEvent(1 / Fraction(mu)), k + 1)).epsilon(delta / steps) for k in range(steps)]
        told = [stated(explain_loss(ApproxLoss(Fraction(bill), Fraction(1, 1000)))) for bill in bills]
        bounds = np.array([math.log(sure / (1 - sure)) for sure, _ in told])
        exception = told[0][1]
        losses = np.cumsum(rng.normal(mu**2 / 2, mu, (runs, steps)), axis=1)
        ready = losses > bounds - greedy * (1 - np.arange(steps) / steps)
        stop = np.where(ready.any(axis=1), ready.argmax(axis=1), steps - 1)
        exceeded = np.mean(losses[np.arange(runs), stop] > bounds[stop])

        assert exceeded <= exception


def test_a_posterior_of_a_bound_is_bayes_rule() -> None:
    whole = account(ApproxEvent(1, 1e-6))

    assert whole.posterior(0.2, failure_probability=1e-3) == pytest.approx(
        posterior_bound(0.2, loss_bound(ApproxLoss(1, 1e-6), 1e-3)), rel=1e-9
    )
    assert whole.posterior(0.2, failure_probability=1e-6) == 1
