"""The ladder's bill covers its exact output law; failed attempts cost what the proof says and no less."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from expost import InvalidRequest
from expost.accuracy.black_box import Attempt, BlackBoxLadder
from expost.core import Ladder
from expost.noise import SeededBits, sample_bernoulli

LADDER = BlackBoxLadder(Ladder.of([0.5, 1.0, 2.0]))


def law(passing: list[float], leave: float = 0.5) -> list[float]:
    """The probabilities of success at each level and of none, for trainers that pass with these probabilities."""
    reach, out = 1.0, []
    for share in passing:
        rest = leave / (leave + (1 - leave) * share)
        out.append(reach * (1 - rest))
        reach *= rest
    return [*out, reach]


def test_the_bill_bounds_the_ratio_of_the_exact_laws_for_all_trainers() -> None:
    levels = [float(level) for level in LADDER.levels]
    worst = 0.0
    for share in np.linspace(0.001, 0.999, 60):
        # A trainer that is exactly epsilon-DP: its passing probabilities on neighbours differ as much as allowed.
        left = [float(share)] * 3
        for up in (True, False):
            if up:
                right = [min(share * math.exp(e), 1 - (1 - share) * math.exp(-e)) for e in levels]
            else:
                right = [max(share * math.exp(-e), 1 - (1 - share) * math.exp(e)) for e in levels]
            ratios = [abs(math.log(a / b)) for a, b in zip(law(left), law(right), strict=True) if a > 0 and b > 0]
            bills = [float(LADDER.spent(rung).epsilon) for rung in range(3)] + [float(LADDER.spent(None).epsilon)]
            assert all(ratio <= bill + 1e-9 for ratio, bill in zip(ratios, bills, strict=True))
            worst = max(worst, max(r / b for r, b in zip(ratios, bills, strict=True)))
    assert worst > 0.4  # the bill is not far above what can happen


def test_success_costs_at_most_twice_its_level_when_levels_double() -> None:
    ladder = BlackBoxLadder(Ladder.of([Fraction(2**step, 100) for step in range(10)]))

    assert all(ladder.spent(rung).epsilon <= 2 * level for rung, level in enumerate(ladder.levels))


def test_runs_follow_the_exact_law() -> None:
    bits, runs = SeededBits(1), 4000
    chance = [Fraction(1, 5), Fraction(1, 2), Fraction(9, 10)]

    def trainer(level: Fraction, bits) -> Attempt:
        rung = LADDER.levels.rungs.index(level)
        return Attempt(rung, float(sample_bernoulli(chance[rung], bits=bits)))

    ends = [LADDER.run(trainer, score=1.0, bits=bits).rung for _ in range(runs)]

    expected = law([float(each) for each in chance])
    for rung, probability in zip([0, 1, 2, None], expected, strict=True):
        share = ends.count(rung) / runs
        assert abs(share - probability) < 4.5 * math.sqrt(probability * (1 - probability) / runs)


def test_nothing_reached_is_billed_without_a_level() -> None:
    result = LADDER.run(lambda level, bits: Attempt("m", 0.0), score=1.0, bits=SeededBits(2))

    assert result.attempt is None and result.rung is None
    assert result.loss == LADDER.spent(None)
    assert result.loss.epsilon < LADDER.guarantee.epsilon


def test_a_trainer_must_return_its_score() -> None:
    with pytest.raises(InvalidRequest, match="Attempt"):
        BlackBoxLadder(Ladder.of([1]), leave=Fraction(1, 10**6)).run(lambda level, bits: "m", score=0.0)


DELTA = 0.02


def missing_mass(left: list[tuple[float, float]], right: list[tuple[float, float]], ladder: BlackBoxLadder) -> float:
    """How much of the left law lies above the bill times the right one; trainers have two passing outputs each."""

    def outcomes(trainers: list[tuple[float, float]]) -> list[float]:
        reach, found = 1.0, []
        for one, two in trainers:
            rest = 0.5 / (0.5 + 0.5 * (one + two))
            found += [reach * rest * one, reach * rest * two]
            reach *= rest
        return [*found, reach]

    bills = [float(ladder.spent(rung).epsilon) for rung in range(len(left)) for _ in range(2)]
    bills.append(float(ladder.spent(None).epsilon))
    return sum(
        max(0.0, p - math.exp(bill) * q) for p, q, bill in zip(outcomes(left), outcomes(right), bills, strict=True)
    )


def test_the_bill_with_delta_bounds_the_exact_laws() -> None:
    ladder = BlackBoxLadder(Ladder.of([0.5, 1.0, 2.0]), delta=Fraction(1, 50))
    levels, worst = [0.5, 1.0, 2.0], 0.0
    for share in np.linspace(0.0, 0.9, 40):
        # An output that only one of the neighbours has, of mass delta, beside one that is exactly epsilon-DP.
        left = [(float(share), DELTA)] * 3
        right = [(max(share * math.exp(-e), 1 - (1 - share) * math.exp(e)), 0.0) for e in levels]
        for one, two in ((left, right), (right, left)):
            worst = max(worst, missing_mass(one, two, ladder))

    assert worst <= float(ladder.guarantee.delta)
    assert worst > 0.5 * float(ladder.guarantee.delta)  # so much is really missing


def test_a_ladder_that_forgot_its_delta_is_noticed_by_that_check() -> None:
    pure = BlackBoxLadder(Ladder.of([0.5, 1.0, 2.0]))

    assert missing_mass([(0.0, DELTA)] * 3, [(0.0, 0.0)] * 3, pure) > 0.03


def test_the_promise_carries_a_delta_for_every_level() -> None:
    ladder = BlackBoxLadder(Ladder.of([0.5, 1.0]), delta=Fraction(1, 10**6))

    assert ladder.spent(0).delta == Fraction(2, 10**6)
    assert 0 < ladder.price(0) - BlackBoxLadder(Ladder.of([0.5, 1.0])).price(0) < Fraction(2, 10**6)


FALLBACK = BlackBoxLadder(Ladder.of([0.5, 1.0, 2.0]), fallback=True)


def test_a_fallback_makes_a_miss_cost_what_a_success_at_the_top_costs() -> None:
    result = FALLBACK.run(lambda level, bits: Attempt(level, 0.0), score=1.0, bits=SeededBits(2))

    assert result.rung is None
    assert result.attempt is not None and result.attempt.model == 2
    assert result.loss.epsilon == FALLBACK.guarantee.epsilon == LADDER.guarantee.epsilon
    assert FALLBACK.spent(0) == LADDER.spent(0)


def test_a_fallback_may_be_another_trainer_and_must_return_its_score_too() -> None:
    def none(level: Fraction, bits: object) -> Attempt:
        return Attempt("failed", 0.0)

    kept = FALLBACK.run(none, score=1.0, bits=SeededBits(2), fallback=lambda level, bits: Attempt("kept", 0.0))

    assert kept.attempt is not None and kept.attempt.model == "kept"
    with pytest.raises(InvalidRequest, match="Attempt"):
        FALLBACK.run(none, score=1.0, bits=SeededBits(2), fallback=lambda level, bits: "m")


def test_the_bill_of_a_fallback_covers_its_exact_law() -> None:
    # An attempt passes, or gives model x or model y; "none, and x" is compared over trainers that are exactly 2-DP.
    level, worst = 2.0, 0.0
    bill = float(BlackBoxLadder(Ladder.of([level]), fallback=True).spent(None).epsilon)
    for a, x in itertools.product(np.linspace(0.001, 0.3, 40), np.linspace(0.001, 0.9, 40)):
        a_there, x_there = a * math.exp(level), x * math.exp(-level)
        y, y_there = 1 - a - x, 1 - a_there - x_there
        if y > 0 and y * math.exp(-level) <= y_there <= y * math.exp(level):
            left, there = law([float(a)])[-1] * x, law([float(a_there)])[-1] * x_there
            worst = max(worst, math.log(left / there))

    assert 0.75 * bill < worst <= bill


def test_with_delta_a_fallback_adds_one() -> None:
    ladder = BlackBoxLadder(Ladder.of([0.5, 1.0]), delta=Fraction(1, 10**6), fallback=True)

    assert {ladder.spent(rung).delta for rung in (0, 1, None)} == {Fraction(3, 10**6)}


def test_the_levels_are_told_in_order_and_the_attempts_are_not() -> None:
    told: list[int] = []
    LADDER.run(lambda level, bits: Attempt("m", 0.0), score=1.0, bits=SeededBits(3), entered=told.append)

    assert told == [0, 1, 2]


def test_attempts_that_are_counted_lose_more_than_any_bill() -> None:
    # Why a stopped ladder cannot go on: to know that n attempts failed is worth n times ln (1 - a) / (1 - a').
    level, attempts = 1.0, 40
    a, b = 0.5 * math.exp(-level), 0.5
    lost = attempts * math.log((1 - a) / (1 - b))

    assert lost > 5 * float(LADDER.guarantee.epsilon)
