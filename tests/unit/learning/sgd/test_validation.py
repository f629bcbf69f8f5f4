"""The private test of a score: its queries, its price and how often it errs."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from expost.audit.noise_laws import above_threshold_law, reduced_law
from expost.core import InvalidRequest, Ladder, Measure, Sealed, Target
from expost.learning.sgd.head import Logistic, Softmax, Squared
from expost.learning.sgd.validation import ScoreRule, ValidationTest
from expost.noise import SeededBits

FAILURE = Fraction(1, 10)
ACCURACY = ScoreRule.of(Target(Measure.ACCURACY, Fraction(3, 4), FAILURE))
HALF = Fraction(1, 2)


def test_an_accuracy_is_met_exactly_when_the_sum_is_not_negative() -> None:
    for right in range(9):
        assert (ACCURACY.counted(right, 8) >= 0) == (right / 8 >= 0.75)


def test_the_sum_counts_right_predictions() -> None:
    scores = np.array([[2.0, 0.0, 1.0], [1.0, 3.0, 0.0]])

    assert ACCURACY.total(Softmax(2), scores, np.array([0, 1, 1])) == 4 * 2 - 3 * 3
    assert ACCURACY.total(Logistic(), scores[:1], np.array([1, 0, -1])) == 4 * 2 - 3 * 3


def test_every_row_moves_every_query_within_one_interval_of_the_span() -> None:
    rmse = ScoreRule.of(Target(Measure.RMSE, Fraction(1, 2), FAILURE))
    moves = {ACCURACY.counted(right, 1) for right in (0, 1)}
    errors = {rmse.total(Squared(), np.array([[error]]), np.zeros(1)) for error in np.linspace(-9, 9, 999)}

    assert max(moves) - min(moves) == ACCURACY.span and min(moves) < 0 < max(moves)
    assert max(errors) - min(errors) <= rmse.span and min(errors) < 0 < max(errors)


def test_an_rmse_counts_squared_errors_against_its_mark() -> None:
    rmse = ScoreRule.of(Target(Measure.RMSE, Fraction(1, 2), FAILURE), scale=1.0)

    assert rmse.total(Squared(), np.full((1, 10), 0.49), np.zeros(10)) > 0
    assert rmse.total(Squared(), np.full((1, 10), 0.51), np.zeros(10)) < 0


# Queries of a table and of the table with one more row, which moves each by -1 or by 2: an interval of length 3.
STREAMS = [((0, 1), tuple(a + b for a, b in zip((0, 1), move, strict=True))) for move in product((-1, 2), repeat=2)]


@pytest.mark.parametrize(("queries", "neighbour"), STREAMS, ids=str)
def test_queries_that_move_within_an_interval_cost_what_monotone_ones_do(
    queries: tuple[int, ...], neighbour: tuple[int, ...]
) -> None:
    # Decays a = b = 2^(-1/3) a unit would be irrational; work in units of the span instead: a^3 = b^3 = 1/2.
    a = b = 0.5 ** (1 / 3)
    left = above_threshold_law(queries, a, b, depth=120, gaps=4)
    right = above_threshold_law(neighbour, a, b, depth=120, gaps=4)
    hit, none = math.exp(math.log(2) + math.log(2)), math.exp(math.log(2))

    for one, two in ((left, right), (right, left)):
        for outcome, p in one.items():
            assert p <= (hit if outcome else none) * two[outcome] * (1 + 1e-9) + 1e-9


def test_a_wider_interval_than_declared_is_noticed_by_that_check() -> None:
    a = b = 0.5 ** (1 / 3)
    left = above_threshold_law((0, -6), a, b, depth=120)
    right = above_threshold_law((6, -12), a, b, depth=120)

    worst = max(one[key] / two[key] for one, two in ((left, right), (right, left)) for key in one)
    assert worst > 4.5


def test_the_reduced_form_costs_the_level_of_its_rung() -> None:
    decays, query_decays = (Fraction(3, 4), HALF), (Fraction(2, 3), HALF)
    for queries, moved in (((0, 0), (1, 0)), ((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 0), (1, 1))):
        left = reduced_law(queries, decays, query_decays, depth=40)
        right = reduced_law(moved, decays, query_decays, depth=40)
        for rung in (0, 1):
            allowed = 1 / (decays[rung] * query_decays[rung])
            for one, two in ((left, right), (right, left)):
                assert one[rung] <= allowed * two[rung] * (1 + Fraction(1, 10**6))


def test_a_model_that_misses_the_target_is_accepted_as_seldom_as_promised() -> None:
    ladder, rows = Ladder.of([0.5, 1, 2, 4]), 1000
    right = 749  # one row below the target of 75 %
    accepted = 0
    for seed in range(600):
        test = ValidationTest(ACCURACY, ladder, failure_probability=FAILURE, bits=SeededBits(seed))
        for rung in range(4):
            score = ACCURACY.counted(right, rows) - test.margin(rung)
            if test.ask(Sealed(score, ACCURACY.sensitivity), rung).above:
                accepted += 1
                break

    assert accepted / 600 < 0.1 + 3 * math.sqrt(0.09 / 600)
    assert accepted / 600 > 0.02  # the margins are not absurd


def test_without_margins_it_would_be_accepted_too_often() -> None:
    accepted = 0
    for seed in range(200):
        test = ValidationTest(ACCURACY, Ladder.of([0.5, 1, 2, 4]), failure_probability=FAILURE, bits=SeededBits(seed))
        asked = Sealed(ACCURACY.counted(749, 1000), ACCURACY.sensitivity)
        accepted += any(test.ask(asked, rung).above for rung in range(4))

    assert accepted / 200 > 0.3


def test_a_model_far_above_the_target_is_accepted_at_once() -> None:
    test = ValidationTest(ACCURACY, Ladder.of([0.5, 1]), failure_probability=FAILURE, bits=SeededBits(1))

    crossing = test.ask(Sealed(ACCURACY.counted(950, 1000) - test.margin(0), ACCURACY.sensitivity), 0)

    assert crossing.above
    assert test.spent == HALF
    assert crossing.gap is not None
    assert abs(test.estimate(crossing.gap, 0) - ACCURACY.counted(950, 1000)) < 200


def test_what_was_spent_before_a_restart_is_taken_off_every_level() -> None:
    before = ValidationTest(ACCURACY, Ladder.of([0.5, 1, 2]), failure_probability=FAILURE, bits=SeededBits(1))
    lost = before.worst_if_below(0)
    after = ValidationTest(
        ACCURACY, Ladder.of([0.5, 1, 2]), failure_probability=FAILURE, first=1, spent=lost, bits=SeededBits(2)
    )

    after.ask(Sealed(10**6, ACCURACY.sensitivity), 1)

    assert lost < HALF
    assert after.spent == 1
    assert after.margin(1) > before.margin(1)


def test_senseless_targets_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        ScoreRule.of(Target(Measure.ACCURACY, Fraction(3, 2), FAILURE))
    with pytest.raises(InvalidRequest):
        ScoreRule.of(Target(Measure.RMSE, Fraction(10), FAILURE))
    with pytest.raises(InvalidRequest):
        ScoreRule.of(Target(Measure.R2, HALF, FAILURE))
