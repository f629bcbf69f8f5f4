"""The private test of a score: its queries, its price and how often it errs."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from expost.audit.noise_laws import reduced_law
from expost.core import InvalidRequest, Ladder, Measure, Sealed, Sensitivity, Target
from expost.models.descent.score_head import Logistic, Softmax, Squared
from expost.models.descent.stopping_test import ScoreRule, ValidationTest
from expost.noise import ReducedAboveThreshold, SeededBits
from expost.noise.rising_threshold import RenewedThreshold

FAILURE = Fraction(1, 10)
ACCURACY = ScoreRule.of(Target(Measure.ACCURACY, Fraction(3, 4), FAILURE))
HALF = Fraction(1, 2)


def test_an_accuracy_is_met_exactly_when_the_sum_is_not_negative() -> None:
    for right in range(9):
        assert (ACCURACY.sum_correct(right, 8) >= 0) == (right / 8 >= 0.75)


def test_the_sum_counts_right_predictions() -> None:
    scores = np.array([[2.0, 0.0, 1.0], [1.0, 3.0, 0.0]])

    assert ACCURACY.total(Softmax(2), scores, np.array([0, 1, 1])) == 4 * 2 - 3 * 3
    assert ACCURACY.total(Logistic(), scores[:1], np.array([1, 0, -1])) == 4 * 2 - 3 * 3


def test_every_row_moves_every_query_within_one_interval_of_the_span() -> None:
    rmse = ScoreRule.of(Target(Measure.RMSE, Fraction(1, 2), FAILURE))
    moves = {ACCURACY.sum_correct(right, 1) for right in (0, 1)}
    errors = {rmse.total(Squared(), np.array([[error]]), np.zeros(1)) for error in np.linspace(-9, 9, 999)}

    assert max(moves) - min(moves) == ACCURACY.span and min(moves) < 0 < max(moves)
    assert max(errors) - min(errors) <= rmse.span and min(errors) < 0 < max(errors)


def test_an_rmse_counts_squared_errors_against_its_mark() -> None:
    rmse = ScoreRule.of(Target(Measure.RMSE, Fraction(1, 2), FAILURE), scale=1.0)

    assert rmse.total(Squared(), np.full((1, 10), 0.49), np.zeros(10)) > 0
    assert rmse.total(Squared(), np.full((1, 10), 0.51), np.zeros(10)) < 0


# Levels in units of ln 2 for an interval [-1, 2]: decays a unit, so that three units are worth the level.
RULE = RenewedThreshold(sensitivity=Sensitivity(2), span=3, ladder=Ladder.of([1, 2, 3]))
BELOW = (Fraction(3, 2), Fraction(3), Fraction(9, 2))  # what answers "below" add up to


def law(
    queries: tuple[int, ...],
    levels: tuple[float, ...] = (1, 2, 3),
    below: tuple[float | Fraction, ...] = BELOW,
    gaps: int = 12,
) -> dict[object, float]:
    """Exact: the rung and gap of the answer "above", or None."""
    found, alive = {}, 1.0
    for rung, query in enumerate(queries):
        a, b = 2.0 ** (-float(below[rung] - (below[rung - 1] if rung else 0)) / 3), 2.0 ** (-levels[rung] / 3)
        both = (1 - a) * (1 - b) / (1 - a * b)
        mass = {gap: both * (b ** (gap - query) if gap >= query else a ** (query - gap)) for gap in range(gaps)}
        above = b**-query * (1 - a) / (1 - a * b) if query <= 0 else 1 - a ** (1 + query) * (1 - b) / (1 - a * b)
        found |= {(rung, gap): alive * p for gap, p in mass.items()}
        alive *= 1 - above
    return found | {None: alive}


def test_the_law_has_the_decays_of_the_mechanism() -> None:
    grown = [BELOW[0], BELOW[1] - BELOW[0], BELOW[2] - BELOW[1]]

    assert [RULE.threshold_scale(rung) for rung in range(3)] == [3 / growth for growth in grown]
    assert [RULE.query_scale(rung) for rung in range(3)] == [3, Fraction(3, 2), 1]


def test_answers_below_never_add_up_to_more_than_the_next_level() -> None:
    close = RenewedThreshold(sensitivity=Sensitivity(2), span=3, ladder=Ladder.of([1, 1.25, 2]))

    # 1 * 3/2 would be more than 1.25: the second rung's answer "above" and the answers before it would cost too much.
    assert [3 / close.threshold_scale(rung) for rung in range(3)] == [Fraction(5, 4), Fraction(5, 8), Fraction(9, 8)]


@pytest.mark.parametrize("span", [1, 5])
def test_a_span_that_no_interval_of_this_sensitivity_has_is_refused(span: int) -> None:
    with pytest.raises(InvalidRequest, match="span"):
        RenewedThreshold(sensitivity=Sensitivity(2), span=span, ladder=Ladder.of([1]))


def worst_excess(left: dict[object, float], right: dict[object, float], levels: tuple[float, ...] = (1, 2, 3)) -> float:
    """The largest loss above the bill, in units of ln 2."""
    bills = {key: levels[-1] if key is None else levels[key[0]] for key in left}
    return max(abs(math.log2(left[key] / right[key])) - bills[key] for key in left)


STREAMS = [(base, move) for base in ((0, 0, 0), (-4, 1, 3), (5, 5, 5)) for move in product((-1, 0, 2), repeat=3)]


@pytest.mark.parametrize(("queries", "move"), STREAMS, ids=str)
def test_queries_that_move_within_an_interval_cost_the_level_of_the_last_rung(
    queries: tuple[int, ...], move: tuple[int, ...]
) -> None:
    neighbour = tuple(query + by for query, by in zip(queries, move, strict=True))

    assert worst_excess(law(queries), law(neighbour)) <= 1e-9


def test_a_wider_interval_than_declared_is_noticed_by_that_check() -> None:
    assert worst_excess(law((5, 5, 0)), law((8, 8, -3))) > 0.5


CLOSE = (1, 1.25, 2)


@pytest.mark.parametrize(("queries", "move"), STREAMS, ids=str)
def test_so_they_do_where_levels_are_close(queries: tuple[int, ...], move: tuple[int, ...]) -> None:
    neighbour = tuple(query + by for query, by in zip(queries, move, strict=True))
    left, right = (law(asked, CLOSE, (1.25, 1.875, 3.0)) for asked in (queries, neighbour))

    assert worst_excess(left, right, CLOSE) <= 1e-9


def test_answers_below_that_add_up_to_more_are_noticed_by_that_check() -> None:
    # As much as a row alone could move them, whatever the next level is: the excess is a third of the difference.
    left, right = (law(asked, CLOSE, (1.5, 1.875, 3.0)) for asked in ((9, -5, 0), (11, -6, 0)))

    assert worst_excess(left, right, CLOSE) > 0.05


def test_answers_below_that_add_up_to_more_than_a_row_can_do_are_noticed_by_that_check() -> None:
    left, right = (law(asked, below=(1.65, 3.3, 4.95)) for asked in ((9, 9, 9), (11, 11, 11)))

    assert worst_excess(left, right) > 0.2


def test_the_session_follows_that_law() -> None:
    test = ValidationTest(ACCURACY, Ladder.of([0.5, 1]), failure_probability=FAILURE)
    stopped = test.threshold.simulate([-2, 1], runs=40_000, bits=SeededBits(5))
    levels = tuple(Fraction(level) for level in (0.5, 1))
    decays = [math.exp(-float(level) / 4) for level in levels]
    against = math.exp(-float(levels[0] / 3))  # a row moves an accuracy of 3/4 by 3 of the 4 at most
    above = decays[0] ** 2 * (1 - against) / (1 - against * decays[0])

    assert abs((stopped[:, 0] == 0).mean() - above) < 4 * math.sqrt(0.25 / 40_000)
    assert abs((stopped[:, 0] == 0).mean() - above * 0.9) > 4 * math.sqrt(0.25 / 40_000)


def test_every_rung_is_asked_once() -> None:
    test = ValidationTest(ACCURACY, Ladder.of([0.5, 1]), failure_probability=FAILURE, bits=SeededBits(1))
    far_below = Sealed(-(10**6), ACCURACY.sensitivity)
    test.test_score(far_below, 0)

    with pytest.raises(InvalidRequest):
        test.test_score(far_below, 0)


def test_a_model_that_misses_the_target_is_accepted_as_seldom_as_promised() -> None:
    ladder, rows = Ladder.of([0.5, 1, 2, 4]), 1000
    right = 749  # one row below the target of 75 %
    accepted = 0
    for seed in range(600):
        test = ValidationTest(ACCURACY, ladder, failure_probability=FAILURE, bits=SeededBits(seed))
        for rung in range(4):
            score = ACCURACY.sum_correct(right, rows) - test.margin_at(rung)
            if test.test_score(Sealed(score, ACCURACY.sensitivity), rung).above:
                accepted += 1
                break

    assert accepted / 600 < 0.1 + 3 * math.sqrt(0.09 / 600)
    assert accepted / 600 > 0.02  # the margins are not absurd


def test_without_margins_it_would_be_accepted_too_often() -> None:
    accepted = 0
    for seed in range(200):
        test = ValidationTest(ACCURACY, Ladder.of([0.5, 1, 2, 4]), failure_probability=FAILURE, bits=SeededBits(seed))
        asked = Sealed(ACCURACY.sum_correct(749, 1000), ACCURACY.sensitivity)
        accepted += any(test.test_score(asked, rung).above for rung in range(4))

    assert accepted / 200 > 0.3


def test_a_model_far_above_the_target_is_accepted_at_once() -> None:
    test = ValidationTest(ACCURACY, Ladder.of([0.5, 1]), failure_probability=FAILURE, bits=SeededBits(1))

    crossing = test.test_score(Sealed(ACCURACY.sum_correct(950, 1000) - test.margin_at(0), ACCURACY.sensitivity), 0)

    assert crossing.above
    assert test.spent == HALF
    assert crossing.gap is not None
    assert abs(test.estimate_excess(crossing.gap, 0) - ACCURACY.sum_correct(950, 1000)) < 200


def test_a_restarted_test_goes_on_where_it_was() -> None:
    before = ValidationTest(ACCURACY, Ladder.of([0.5, 1, 2]), failure_probability=FAILURE, bits=SeededBits(1))
    before.test_score(Sealed(-(10**6), ACCURACY.sensitivity), 0)
    after = ValidationTest(ACCURACY, Ladder.of([0.5, 1, 2]), failure_probability=FAILURE, first=1, bits=SeededBits(2))

    assert before.spent == after.spent == HALF
    after.test_score(Sealed(10**6, ACCURACY.sensitivity), 1)
    assert after.spent == 1
    assert after.margin_at(1) == before.margin_at(1)


SLOW = Ladder.of([0.5 * 1.1**rung for rung in range(16)])
NINETY_FIVE = ScoreRule.of(Target(Measure.ACCURACY, Fraction(19, 20), FAILURE))


def test_noise_is_kept_on_the_threshold_where_levels_rise_slowly() -> None:
    slow = ValidationTest(NINETY_FIVE, SLOW, failure_probability=FAILURE)
    fast = ValidationTest(NINETY_FIVE, Ladder.of([0.5 * 1.25**rung for rung in range(16)]), failure_probability=FAILURE)
    middle = 8

    assert isinstance(slow.threshold, ReducedAboveThreshold) and isinstance(fast.threshold, RenewedThreshold)
    # There fresh noise is larger, though what is kept has three tenths of the level.
    renewed = RenewedThreshold(sensitivity=NINETY_FIVE.sensitivity, span=NINETY_FIVE.span, ladder=SLOW)
    assert renewed.threshold_scale(middle) > 3 * slow.threshold.threshold_scale(middle)


@pytest.mark.parametrize("query", [-(10**6), 10**6])
def test_an_answer_costs_the_level_whatever_it_was(query: int) -> None:
    """Else the bill would tell an answer that an interrupt kept from being told."""
    test = ValidationTest(NINETY_FIVE, SLOW, failure_probability=FAILURE, bits=SeededBits(1))
    assert test.spent == 0

    test.test_score(Sealed(query, NINETY_FIVE.sensitivity), 3)

    assert test.spent == SLOW[3]


def test_every_rung_is_asked_once_then_too() -> None:
    test = ValidationTest(NINETY_FIVE, SLOW, failure_probability=FAILURE, bits=SeededBits(1))
    far_below = Sealed(-(10**6), NINETY_FIVE.sensitivity)
    test.test_score(far_below, 2)

    for rung in (2, 1, 16):
        with pytest.raises(InvalidRequest, match="rung"):
            test.test_score(far_below, rung)


def test_a_model_that_misses_the_target_is_accepted_as_seldom_then() -> None:
    test = ValidationTest(NINETY_FIVE, SLOW, failure_probability=FAILURE)
    queries = [-1 - test.margin_at(rung) for rung in range(16)]  # in whole units, so just below the target
    found = {
        shift: (
            test.threshold.simulate([query + shift for query in queries], runs=20_000, bits=SeededBits(3))[:, 0] >= 0
        )
        for shift in (0, test.margin_at(8))
    }

    assert 0.05 < found[0].mean() < 0.1
    assert found[test.margin_at(8)].mean() > 0.5  # without margins it would be accepted often


def test_an_interrupted_test_goes_on_with_fresh_noise() -> None:
    test = ValidationTest(NINETY_FIVE, SLOW, failure_probability=FAILURE, first=5)

    # Given that it passed, noise of this size was smaller than usual: a guess of the score would be far too high.
    assert test.estimate_accuracy(3, 6, rows=1000.0) is None
    assert isinstance(test.threshold, RenewedThreshold)
    assert test.spent == SLOW[4]
    with pytest.raises(InvalidRequest, match="rung"):
        test.test_score(Sealed(0, NINETY_FIVE.sensitivity), 4)


def test_a_test_with_no_rung_left_answers_nothing() -> None:
    test = ValidationTest(NINETY_FIVE, SLOW, failure_probability=FAILURE, first=16)

    assert test.spent == SLOW.cap
    with pytest.raises(InvalidRequest, match="rung"):
        test.test_score(Sealed(0, NINETY_FIVE.sensitivity), 16)


CLOSER, CLOSER_BELOW = (1, 1.001, 1.002), (1.001, 1.002, 1.503)  # leaves no slack


def interrupted_law(
    queries: tuple[int, ...], levels: tuple[float, ...], below: tuple[float | Fraction, ...], share: float = 0.3
) -> dict[object, float]:
    """Exact: noise kept at the first two rungs, then a crash, then fresh noise at the third, as after two of its own."""
    kept = [2.0 ** (-share * level / 2) for level in levels[:2]]
    first = reduced_law(queries[:2], kept, [2.0 ** (-(1 - share) * level / 3) for level in levels[:2]], depth=200)
    alone = law((-(10**3), -(10**3), queries[2]), levels, below)  # the third rung after two that are surely "below"
    after = {key: mass for key, mass in alone.items() if key is None or key[0] == 2}
    return {(0, None): first[0], (1, None): first[1]} | {key: first[None] * mass for key, mass in after.items()}


@pytest.mark.parametrize(("levels", "below"), [((1, 2, 3), BELOW), (CLOSER, CLOSER_BELOW)], ids=["fast", "slow"])
@pytest.mark.parametrize(("queries", "move"), STREAMS, ids=str)
def test_an_interrupted_test_costs_the_level_of_its_last_rung(
    queries: tuple[int, ...],
    move: tuple[int, ...],
    levels: tuple[float, ...],
    below: tuple[float | Fraction, ...],
) -> None:
    neighbour = tuple(query + by for query, by in zip(queries, move, strict=True))
    left, right = (interrupted_law(asked, levels, below) for asked in (queries, neighbour))

    assert worst_excess(left, right, levels) <= 1e-6


@pytest.mark.parametrize(("share", "least", "most"), [(0.3, -0.4, -0.3), (2 / 3, -0.01, 1e-6), (0.8, 0.1, 0.2)])
def test_that_check_notices_a_larger_share_than_two_thirds(share: float, least: float, most: float) -> None:
    """Of the level; this is how much of the span is the sensitivity, beyond which the proof's inequality fails."""
    left, right = (interrupted_law(asked, CLOSER, CLOSER_BELOW, share) for asked in ((20, 20, -20), (22, 22, -21)))

    assert least < worst_excess(left, right, CLOSER) <= most


def test_senseless_targets_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        ScoreRule.of(Target(Measure.ACCURACY, Fraction(3, 2), FAILURE))
    with pytest.raises(InvalidRequest):
        ScoreRule.of(Target(Measure.RMSE, Fraction(10), FAILURE))
    with pytest.raises(InvalidRequest):
        ScoreRule.of(Target(Measure.R2, HALF, FAILURE))
