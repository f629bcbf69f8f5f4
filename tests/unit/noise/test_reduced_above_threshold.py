import copy
import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.noise.law_fit import fits

from expost.audit.noise_laws import reduced_law
from expost.core import InvalidRequest, Ladder, PureGuarantee, PureLoss, Sealed, Sensitivity
from expost.noise import AboveThreshold, ReducedAboveThreshold, SeededBits
from expost.noise.rising_threshold import RenewedThreshold

ONE = Sensitivity(1)
LADDER = Ladder.of([1, 2, 4])


def rule(**changes):
    return ReducedAboveThreshold(**({"threshold": 0, "sensitivity": ONE, "ladder": LADDER} | changes))


def test_the_stopping_rung_follows_the_law_of_the_definition():
    queries, levels = [-2, -1, -1], (1, 2, 4)

    def law(factor):
        decays = [math.exp(-level * factor / 2) for level in levels]
        query_decays = [math.exp(-level * factor / 4) for level in levels]
        return reduced_law(queries, decays, query_decays, depth=40)

    stopped = rule().simulate(queries, runs=60_000, bits=SeededBits(1))[:, 0]
    seen = [None if rung < 0 else int(rung) for rung in stopped]
    assert fits(seen, law(1))
    assert not fits(seen, law(0.9))
    assert not fits(seen, law(1.1))


moves = st.lists(st.tuples(st.integers(-2, 1), st.sampled_from([-1, 0, 1])), min_size=2, max_size=2)


@settings(max_examples=15, deadline=None)
@given(moves)
def test_no_neighbour_exceeds_the_level_of_the_stopping_rung_exactly(queries):
    query_decays = [Fraction(3, 5), Fraction(9, 25)]
    decays = [b * b for b in query_decays]  # half of each level on either side
    laws = [
        reduced_law(side, decays, query_decays, depth=30)
        for side in ([q for q, _ in queries], [q + move for q, move in queries])
    ]
    for outcome, p in laws[0].items():
        level = 1 / decays[-1] if outcome is None else (decays[outcome] * query_decays[outcome] ** 2) ** -1
        assert p <= level * laws[1][outcome] * (1 + Fraction(1, 10**6)) + 3 * decays[0] ** 30


# Queries that move within [-1, 2]: sensitivity 2, span 3, half of each level on either side. With u = exp(-level / 12) a unit
# is worth u^3 on the threshold, level / 4, and u^2 on a query, level / 6. Levels that are close leave the bill hardly any slack.
ROOTS = (0.8, 0.7995)


def interval_excess(queries, neighbour, query_power=2.0, threshold_power=3.0):
    """By what factor a stop is likelier than its bill allows, at most, in either direction."""
    decays, query_decays = [u**threshold_power for u in ROOTS], [u**query_power for u in ROOTS]
    here, there = (reduced_law(side, decays, query_decays, depth=40) for side in (queries, neighbour))
    bills = {0: ROOTS[0] ** -12, 1: ROOTS[1] ** -12, None: ROOTS[1] ** -6}
    return max(max(here[stop] / there[stop], there[stop] / here[stop]) / bills[stop] for stop in bills)


interval_moves = st.lists(st.tuples(st.integers(-6, 4), st.integers(-1, 2)), min_size=2, max_size=2)


@settings(max_examples=25, deadline=None)
@given(interval_moves)
def test_no_neighbour_within_the_interval_exceeds_it_either(queries):
    neighbour = [query + move for query, move in queries]

    assert interval_excess([query for query, _ in queries], neighbour) <= 1 + 1e-6


def test_a_neighbour_comes_close_to_it():
    assert interval_excess([0, -6], [2, -7]) > 0.97


@pytest.mark.parametrize(
    ("neighbour", "powers"),
    [([3, -7], {}), ([2, -7], {"query_power": 2.2}), ([2, -7], {"threshold_power": 3.3})],
    ids=["a wider interval", "a tenth too little noise on a query", "a tenth too little on the threshold"],
)
def test_that_check_notices(neighbour, powers):
    assert interval_excess([0, -6], neighbour, **powers) > 1.1


def gap_excess(queries, neighbour, query_power=2.0):
    """The same for a stop at the second rung together with its gap: as likely as that one is reached, but not the next."""
    decays, query_decays = [u**3 for u in ROOTS], [u**query_power for u in ROOTS]

    def masses(first, second):
        reached = [reduced_law([first, second - gap], decays, query_decays, depth=40)[1] for gap in range(7)]
        return [low - high for low, high in pairwise(reached)]

    pairs = zip(masses(*queries), masses(*neighbour), strict=True)
    return max(max(here / there, there / here) for here, there in pairs) / ROOTS[1] ** -12


@pytest.mark.parametrize(("first", "second"), [(0, -6), (0, 5), (-3, 3), (4, 1)])
@pytest.mark.parametrize("move", [(2, -1), (-1, 2), (2, 2), (-1, -1), (0, 2)])
def test_the_gap_costs_no_more(first, second, move):
    assert gap_excess([first, second], [first + move[0], second + move[1]]) <= 1 + 1e-6


def test_too_little_noise_on_a_query_is_noticed_by_the_gap_too():
    assert 0.97 < gap_excess([0, -6], [2, -7]) <= 1 + 1e-6
    assert gap_excess([0, -6], [2, -7], query_power=2.2) > 1.1


def test_the_scales_of_an_interval_are_those_of_that_law():
    interval = rule(sensitivity=Sensitivity(2), span=3)

    assert [interval.threshold_scale(rung) for rung in range(3)] == [4, 2, 1]  # exp(-level / 4) a unit
    assert [interval.query_scale(rung) for rung in range(3)] == [6, 3, Fraction(3, 2)]


def test_an_interval_of_one_side_is_a_monotone_move_and_one_of_two_is_any():
    assert rule(span=1).query_scale(1) == rule(monotone=True).query_scale(1)
    assert rule(span=2).query_scale(1) == rule().query_scale(1)


def test_the_margin_is_that_of_a_plain_rule_at_the_rungs_level():
    plain = AboveThreshold(threshold=0, sensitivity=ONE, epsilon_threshold=1, epsilon_query=1)

    assert rule().false_alarm_margin(0.01, rung=1) == plain.false_alarm_margin(0.01, queries=1)


def test_going_on_costs_the_thresholds_share_and_stopping_the_level():
    session = rule(threshold=1000, threshold_share=Fraction(1, 4)).open(bits=SeededBits(1))
    assert session.loss == PureLoss(0)

    assert not session.ask(Sealed(0, ONE), rung=0).above
    assert session.loss == PureLoss(Fraction(1, 4))
    assert not session.ask(Sealed(0, ONE), rung=2).above
    assert session.loss == PureLoss(1)
    assert session.ask(Sealed(5000, ONE), rung=2).above
    assert session.loss == PureLoss(4)
    assert session.rule.guarantee == PureGuarantee(4)


def test_a_stopped_session_and_a_step_down_are_refused():
    session = rule(threshold=1000).open(bits=SeededBits(1))
    session.ask(Sealed(0, ONE), rung=1)
    for rung in (0, 3, -1):
        with pytest.raises(InvalidRequest, match="rung"):
            session.ask(Sealed(0, ONE), rung=rung)
    session.ask(Sealed(9000, ONE), rung=1)
    with pytest.raises(InvalidRequest, match="has stopped"):
        session.ask(Sealed(0, ONE), rung=2)


def test_a_session_cannot_be_copied():
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(rule().open(bits=SeededBits(1)))


def test_monotone_queries_need_half_the_query_noise():
    assert rule(monotone=True).query_scale(0) * 2 == rule().query_scale(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 1.5},
        {"threshold_share": 1},
        {"threshold_share": 0},
        {"span": 3},
        {"span": 0},
        {"span": 1.5},
        {"span": 1, "monotone": True},
    ],
)
def test_senseless_rules_are_refused(changes):
    with pytest.raises(InvalidRequest):
        rule(**changes)


@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "fresh"])
@pytest.mark.parametrize(("failure", "rung"), [(0, 0), (-0.1, 0), (1.5, 0), (float("nan"), 0), (0.1, -1), (0.1, 3)])
def test_margins_of_no_probability_or_no_rung_are_refused(fresh, failure, rung):
    margins = RenewedThreshold(sensitivity=ONE, span=1, ladder=LADDER) if fresh else rule()

    with pytest.raises(InvalidRequest):
        margins.false_alarm_margin(failure, rung=rung)
