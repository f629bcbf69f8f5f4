from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from expost.audit.entries_threshold import small_plan, threshold_pair
from expost.audit.pair_attack import attack
from expost.core import PureLoss
from expost.holdout import Thresholdout, plan_holdout
from expost.holdout.holdout_plan import GRID
from expost.noise import SeededBits

ROWS = 40_000
PLANS = {
    variant: plan_holdout(ROWS, tolerance=0.2, failure_probability=0.05, max_queries=50, max_hits=4, variant=variant)
    for variant in ("analysed", "improved")
}


def total(mean):
    return round(mean * ROWS) * GRID


@pytest.mark.parametrize("variant", PLANS)
def test_the_scales_of_the_test_are_those_of_the_plan_on_the_lattice(variant):
    plan = PLANS[variant]
    rule = Thresholdout(plan).rule

    assert rule.threshold_scale == plan.level.threshold_scale * ROWS * GRID
    assert rule.query_scale == plan.level.query_scale * ROWS * GRID
    assert rule.threshold == round(plan.level.threshold * ROWS * GRID)
    assert rule.two_sided == (variant == "analysed")


@pytest.mark.parametrize("variant", PLANS)
def test_the_bill_is_hits_plus_an_open_threshold(variant):
    plan = PLANS[variant]
    session = Thresholdout(plan).open(bits=SeededBits(1))

    assert session.loss == PureLoss(0)
    assert session.ask(total(0.5), guess=Fraction(1, 2)) is None
    assert session.loss == PureLoss(plan.threshold_epsilon)
    assert session.ask(total(0.5), guess=Fraction(0)) is not None
    assert session.loss == PureLoss(plan.hit_epsilon)
    assert session.ask(total(0.5), guess=Fraction(1)) is not None
    assert session.loss == PureLoss(2 * plan.hit_epsilon)
    assert session.ask(total(0.5), guess=Fraction(1, 2)) is None
    assert session.loss == PureLoss(2 * plan.hit_epsilon + plan.threshold_epsilon)
    assert session.hits_left == 2


@pytest.mark.parametrize("variant", PLANS)
def test_a_spent_session_costs_exactly_the_promise(variant):
    plan = PLANS[variant]
    session = Thresholdout(plan).open(bits=SeededBits(2))
    for _ in range(plan.max_hits):
        session.ask(total(0.5), guess=Fraction(0))

    assert session.hits_left == 0
    assert session.loss == PureLoss(plan.guarantee.epsilon)


@pytest.mark.parametrize("variant", PLANS)
@pytest.mark.parametrize("guess", [Fraction(0), Fraction(1)])
def test_answers_from_the_holdout_are_unbiased_and_on_the_few_values_there_are(variant, guess):
    plan = PLANS[variant]
    bits = SeededBits(3)
    answers = [Thresholdout(plan).open(bits=bits).ask(total(0.4), guess=guess) for _ in range(120)]

    assert all((answer / plan.answer_step).denominator == 1 for answer in answers)
    assert len(set(answers)) <= plan.alphabet
    assert np.mean([float(answer) for answer in answers]) == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("variant", PLANS)
def test_noise_errors_stay_within_the_sample_errors(variant):
    plan = PLANS[variant]
    training, holdout = plan._half_errors
    bits = SeededBits(4)
    failures = 0
    for run in range(60):
        session = Thresholdout(plan).open(bits=bits)
        rng = np.random.default_rng(run)
        for _ in range(plan.max_queries):
            if not session.hits_left:
                break
            truth, guess = 0.5, Fraction(float(0.5 + rng.uniform(-0.25, 0.25)))
            answer = session.ask(total(truth), guess=guess)
            error = abs(float(guess) - truth) if answer is None else abs(float(answer) - truth)
            failures += error > (training if answer is None else holdout)

    assert failures <= 60 * 0.025 + 4 * np.sqrt(60 * 0.025)


def test_the_gap_is_free():
    """For equal scales the published way would pay for the answer as well."""
    assert PLANS["improved"].level.answer_scale is None
    assert PLANS["improved"].hit_epsilon < PLANS["analysed"].hit_epsilon


@pytest.mark.parametrize(("variant", "share"), [("improved", Fraction(1, 2)), ("analysed", Fraction(1, 4))])
def test_the_audit_catches_too_little_noise(variant, share):
    """The same claim, with a share of its noise: found. With all of it: not found."""
    honest = small_plan(variant)
    level = replace(
        honest.level,
        threshold_scale=honest.level.threshold_scale * share,
        query_scale=honest.level.query_scale * share,
    )
    faulty = Thresholdout(replace(honest, level=level))
    rise, fall = [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]
    right = threshold_pair("right", Thresholdout(honest), rise, fall)
    wrong = threshold_pair("wrong", Thresholdout(honest), rise, fall, run_instead=faulty)

    assert not attack(right, 60_000, bits=SeededBits(1)).violated
    assert attack(wrong, 60_000, bits=SeededBits(1)).violated
