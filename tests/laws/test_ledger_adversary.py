"""An adversary against accounts in (epsilon, delta): exact trees through a real ledger, and the best strategy by recursion.

The promise is that of docs/proofs/filters.md, Theorem 2, with the failures of docs/proofs/ledger-mixed-composition.md.
"""

import functools
import itertools
import math
import random
from fractions import Fraction

import pytest

from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.core import ApproxLoss, BudgetExceeded, GaussianLoss, PureLoss, Receipt, approx
from expost.ledger import MemoryLedger

ACCOUNT, PART, OTHER = "dataset:a", "a/site=1", "a/site=2"
STEP = Fraction(1, 10**6)


def normal_tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def pure_question(rng: random.Random, cap: Fraction):
    """Laws of three answers whose losses are at most the cap, and the bill of each answer, rounded up."""
    rare, common = rng.choice([0.02, 0.2, 0.5]), math.exp(-float(cap) * 0.999)
    here = [rare, (1 - rare) / 2, (1 - rare) / 2]
    there = [rare * common, 0.0, 0.0]
    rest = (1 - there[0]) / 2
    tilt = rng.uniform(-1, 1) * min(0.5, math.tanh(float(cap) / 4))
    there[1:] = [rest * (1 + tilt), rest * (1 - tilt)]
    losses = [abs(math.log(p / q)) for p, q in zip(here, there, strict=True)]
    if max(losses) > cap:  # the cap is too small for this tilt: randomised response instead
        high = math.exp(float(cap) * 0.999) / (1 + math.exp(float(cap) * 0.999))
        here, there, losses = [high, 1 - high], [1 - high, high], [float(cap) * 0.999] * 2
    bills = [min(PureLoss(Fraction(loss) + STEP / 10**3).epsilon, cap) for loss in losses]
    return here, there, PureLoss(cap), [PureLoss(bill) for bill in bills]


def approximate_question(rng: random.Random, cap: Fraction, delta: Fraction):
    """Randomised response that, with probability delta, tells the truth: the bill is always the pair."""
    high, d = math.exp(float(cap) * 0.999) / (1 + math.exp(float(cap) * 0.999)), float(delta)
    here, there = [d, (1 - d) * high, (1 - d) * (1 - high), 0.0], [0.0, (1 - d) * (1 - high), (1 - d) * high, d]
    return here, there, ApproxLoss(cap, delta), [ApproxLoss(cap, delta)] * 4


def gaussian_question(rng: random.Random, mu: Fraction):
    """Which of four intervals a Gaussian answer falls into."""
    cuts = [-math.inf, -0.8, float(mu) / 2, 0.8 + float(mu), math.inf]
    here, there = (
        [normal_tail(low - middle) - normal_tail(high - middle) for low, high in itertools.pairwise(cuts)]
        for middle in (0.0, float(mu))
    )
    return here, there, GaussianLoss(mu**2), [GaussianLoss(mu**2)] * 4


def choose_question(rng: random.Random, ledger: MemoryLedger):
    """A question that uses much of what is left, by what the ledger says is left."""
    place = rng.choice([ACCOUNT, PART])
    left = ledger.remaining(place).amounts()
    share = Fraction(rng.choice([1, 2, 4, 4]), 4)
    kind = rng.choice(["pure", "pure", "approx", "gauss"])
    if kind == "gauss":
        # Not announced by what is left: try a few, and fall back to nothing.
        return place, gaussian_question(rng, Fraction(rng.choice([1, 2, 3, 5]), 10))
    cap = left["epsilon"] * share
    if cap < STEP:
        return place, None
    if kind == "approx" and left["delta"] > STEP:
        return place, approximate_question(rng, cap, left["delta"] * share)
    return place, pure_question(rng, cap)


def replay(seed: int, budget, answers, *, parts: bool):
    """Play the answers on a fresh ledger and return the next question's laws, or None at the end."""
    ledger = MemoryLedger()
    ledger.open_account(ACCOUNT, budget)
    for name in (PART, OTHER) if parts else ():
        ledger.open_part(name, of=ACCOUNT, by="site", touching=1)
    path: tuple[int, ...] = ()
    while True:
        rng = random.Random(f"{seed} {path}")  # every choice depends on the answers so far
        if parts and rng.random() < 0.5:  # somebody else asks about other rows
            left = ledger.remaining(OTHER).amounts()["epsilon"] / 2
            if left > STEP:
                ledger.hold([OTHER], PureLoss(left), question="elsewhere")
        if rng.random() < 0.3:  # the owner raises the budget and lowers it again
            ledger.change_budget(ACCOUNT, approx(budget.epsilon * 2, budget.delta))
            ledger.change_budget(ACCOUNT, budget)
        place, question = choose_question(rng, ledger) if parts else choose_question_in_whole(rng, ledger)
        if question is None:
            return None
        here, there, worst, bills = question
        try:
            hold = ledger.hold([place], worst, question="q")
        except BudgetExceeded:
            assert isinstance(worst, GaussianLoss), "what is left was refused"
            return None
        if len(path) == len(answers):
            return here, there
        bill = bills[answers[len(path)]]
        ledger.settle(hold, Receipt(question="q", method="m", promise=worst.promise(), bill=bill))
        path = answers[: len(path) + 1]


def choose_question_in_whole(rng: random.Random, ledger: MemoryLedger):
    _, question = choose_question(rng, _WholeOnly(ledger))
    return ACCOUNT, question


class _WholeOnly:
    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

    def remaining(self, _: str):
        return self._ledger.remaining(ACCOUNT)


def list_transcripts(seed: int, budget, *, depth: int, parts: bool):
    """All transcripts with their two probabilities."""
    found = []

    def explore(answers, p, q):
        laws = replay(seed, budget, answers, parts=parts) if len(answers) < depth else None
        if laws is None:
            found.append((p, q))
            return
        for answer, (one, other) in enumerate(zip(*laws, strict=True)):
            if one or other:
                explore((*answers, answer), p * one, q * other)

    explore((), 1.0, 1.0)
    return found


def hockey_stick(pairs, loss: float) -> float:
    return sum(max(0.0, p - math.exp(loss) * q) for p, q in pairs)


@pytest.mark.parametrize(
    ("size", "chance", "seed", "parts"), [(0.5, 0.3, 1, False), (1, 0.05, 0, True), (2, 0.2, 1, False)]
)
def test_whatever_is_asked_the_account_keeps_its_promise(size, chance, seed, parts):
    found = list_transcripts(seed, approx(size, chance), depth=3, parts=parts)

    assert math.fsum(p for p, _ in found) == pytest.approx(1) and math.fsum(q for _, q in found) == pytest.approx(1)
    assert hockey_stick(found, size) <= chance + 1e-12
    assert hockey_stick([(q, p) for p, q in found], size) <= chance + 1e-12


# Budgets that change: which one holds at the end may depend on answers


def needed_shares(budget: ComposedGuarantee) -> list[float]:
    """The share of delta that the limit of each order needs (docs/proofs/filters.md, Theorem 2)."""
    return [
        (1 - 1 / order) ** (order - 1) / order * math.exp((order - 1) * float(Fraction(limit, 2**40) - budget.epsilon))
        for order, limit in zip(budget.orders, budget.limits, strict=True)
    ]


@pytest.mark.parametrize("raised", [approx(1, 1e-6), approx(3, 1e-6), approx(1, 1e-3), approx(7, 1e-9)], ids=str)
def test_budgets_that_come_back_share_delta_as_before(raised):
    ledger = MemoryLedger()
    ledger.open_account(ACCOUNT, approx(1, 1e-6))
    opened = ledger._page.sound_account(ACCOUNT).budget
    for budget in (raised, approx(1, 1e-6)):
        ledger.change_budget(ACCOUNT, budget)
    again = ledger._page.sound_account(ACCOUNT).budget
    # A transcript may end under either budget, by any order.
    shares = map(max, needed_shares(opened), needed_shares(again))

    assert opened.is_proved and again.is_proved
    assert math.fsum(shares) <= 1e-6 - float(opened.failure)
    assert all(limit >= old - 3 for limit, old in zip(again.limits, opened.limits, strict=True))
    ledger.verify()


def test_a_step_without_a_pure_epsilon_stays_above_every_budget():
    ledger = MemoryLedger()
    ledger.open_account(ACCOUNT, approx(1000, 1e-6))
    ledger.change_budget(ACCOUNT, approx(10**7, 1e-6))

    with pytest.raises(BudgetExceeded):
        ledger.hold([ACCOUNT], GaussianLoss(10**8), question="q")  # its loss is about 5 * 10^7


# The best strategy over many small steps


def best_strategy(budget: ComposedGuarantee, *, flip: bool, looser: float = 1.0) -> float:
    """The largest hockey stick divergence that any adaptive choice among three kinds of steps reaches.

    Randomised response, a step whose rare answer costs its cap and whose usual one nearly nothing, and one that tells
    all with a small probability. ``looser`` multiplies the limits, which must be caught.
    """
    rule = rule_for(budget)
    small, cap, rare = Fraction(1, 5), Fraction(1, 2), 0.1
    high = 1 / (1 + math.exp(-float(small)))
    here, there = [rare, 1 - rare], [rare * math.exp(-float(cap)), 1 - rare * math.exp(-float(cap))]
    here, there = (there, here) if flip else (here, there)
    usual = Fraction(abs(math.log(here[1] / there[1]))) + STEP / 10**3
    failing = budget.failure / 2
    prices = {
        "even": rule.held(PureLoss(small)),
        "cap": rule.held(PureLoss(cap)),
        "rare": rule.settled(PureLoss(cap), PureLoss(cap)),
        "usual": rule.settled(PureLoss(cap), PureLoss(usual)),
        "fail": rule.held(ApproxLoss(0, failing)),
    }
    widened = ComposedGuarantee(
        budget.epsilon * Fraction(looser),
        budget.delta,
        budget.failure,
        budget.orders,
        tuple(int(limit * looser) for limit in budget.limits),
    )

    @functools.cache
    def total(counts):
        found = rule.zero.amounts()
        for name, count in zip(("even", "rare", "usual", "fail"), counts, strict=True):
            found = {key: amount + count * prices[name].amounts()[key] for key, amount in found.items()}
        return rule.zero.with_amounts(found)

    @functools.cache
    def admits(counts, name):
        return rule_for(widened).fits(rule.add(total(counts), prices[name]))

    @functools.cache
    def value(even, net, rares, usuals, fails):
        loss = net * float(small) + rares * math.log(here[0] / there[0]) + usuals * math.log(here[1] / there[1])
        best, counts = max(0.0, 1 - math.exp(float(budget.epsilon) - loss)), (even, rares, usuals, fails)
        if admits(counts, "even"):
            up, down = value(even + 1, net + 1, rares, usuals, fails), value(even + 1, net - 1, rares, usuals, fails)
            best = max(best, high * up + (1 - high) * down)
        if admits(counts, "cap"):
            one, other = value(even, net, rares + 1, usuals, fails), value(even, net, rares, usuals + 1, fails)
            best = max(best, here[0] * one + here[1] * other)
        if admits(counts, "fail"):
            chance = float(failing)
            best = max(best, chance + (1 - chance) * value(even, net, rares, usuals, fails + 1))
        return best

    return value(0, 0, 0, 0, 0)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("size", "chance"), [(1, 0.02), (1, 0.2)])
def test_the_best_choice_of_steps_keeps_the_promise(size, chance, flip):
    assert best_strategy(ComposedGuarantee.of(approx(size, chance)), flip=flip) <= chance


def test_limits_that_are_much_too_wide_are_caught():
    assert best_strategy(ComposedGuarantee.of(approx(1, 0.02)), flip=False, looser=1.6) > 0.02
