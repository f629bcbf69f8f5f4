import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.noise.law_fit import fits

from expost.audit.noise_laws import above_threshold_law, geometric_reach, laplace_reach
from expost.core import Adjacency, InvalidRequest, PureGuarantee, PureLoss, Sealed, Sensitivity
from expost.noise import AboveThreshold, SeededBits

ONE = Sensitivity(1)


def rule(**changes):
    usual = {"threshold": 0, "sensitivity": ONE, "epsilon_threshold": 1, "epsilon_query": 2}
    return AboveThreshold(**(usual | changes))


def outcomes(rule, queries, gaps=3):
    answers, shown = rule.simulate(queries, runs=60_000, bits=SeededBits(1))
    hits = [np.flatnonzero(row == 1).tolist() for row in answers]
    return [tuple((t, min(int(row[t]), gaps - 1)) for t in where) for where, row in zip(hits, shown, strict=True)]


@pytest.mark.parametrize(
    ("changes", "decays"),
    [
        ({}, (1, 1)),
        ({"monotone": True}, (1, 2)),
        ({"two_sided": True}, (1, 1)),
        ({"hits": 2}, (1, 1)),
    ],
    ids=["one-sided", "monotone", "two-sided", "two hits"],
)
def test_answers_and_gaps_follow_the_law_of_the_definition(changes, decays):
    queries = [-2, -1, 0, -1]
    law = {
        factor: above_threshold_law(
            queries,
            math.exp(-decays[0] * factor),
            math.exp(-decays[1] * factor),
            depth=60,
            gaps=3,
            hits=changes.get("hits", 1),
            two_sided=changes.get("two_sided", False),
        )
        for factor in (0.9, 1, 1.1)
    }
    seen = outcomes(rule(**changes), queries)

    assert fits(seen, law[1])
    assert not fits(seen, law[0.9])
    assert not fits(seen, law[1.1])


small = st.lists(st.tuples(st.integers(-3, 2), st.sampled_from([-1, 0, 1])), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(small, st.booleans())
def test_no_neighbour_exceeds_the_bill_exactly(queries, two_sided):
    a, b, depth = Fraction(1, 2), Fraction(2, 3), 60
    left, right = [q for q, _ in queries], [q + move for q, move in queries]
    moves = {move for _, move in queries}
    together = moves <= {0, 1} or moves <= {0, -1}
    laws = [above_threshold_law(side, a, b, depth=depth, two_sided=two_sided, gaps=3) for side in (left, right)]
    slack = 1 + Fraction(1, 10**6)
    for outcome, p in laws[0].items():
        query_part = b ** -(1 if together else 2) if outcome else 1
        assert p <= query_part / a * laws[1][outcome] * slack + 4 * a**depth


@pytest.mark.parametrize("reach", [geometric_reach, laplace_reach])
def test_the_tail_fact_of_the_proof_holds_for_both_noises(reach):
    a = Fraction(3, 5)
    for x in range(-12, 13):
        for m in range(6):
            assert reach(a, x + m) >= a**m * reach(a, x)


def ask(session, *queries):
    return [session.ask(Sealed(query, ONE)) for query in queries]


def test_only_hits_and_an_unfinished_segment_are_billed():
    session = rule(threshold=1000, hits=2).open(bits=SeededBits(1))
    assert session.loss == PureLoss(0)

    ask(session, 0, 0)
    assert session.loss == PureLoss(1)
    assert ask(session, 5000)[0].above
    assert session.loss == PureLoss(3)
    ask(session, 0)
    assert session.loss == PureLoss(4)
    ask(session, 5000)
    assert session.loss == PureLoss(6)
    assert session.rule.guarantee == PureGuarantee(6)


def test_a_session_ends_with_its_last_hit():
    session = rule(threshold=0).open(bits=SeededBits(1))
    ask(session, 500)

    assert session.hits_left == 0
    with pytest.raises(InvalidRequest, match="all hits of this session are used up"):
        ask(session, 0)


def test_the_gap_is_near_the_distance_and_only_comes_with_a_hit():
    below, above = ask(rule(threshold=0).open(bits=SeededBits(1)), -500, 300)

    assert (below.above, below.gap) == (False, None)
    assert above.above
    assert 270 < above.gap < 330


def test_the_threshold_noise_is_fresh_after_a_hit():
    answers, gaps = rule(hits=2, epsilon_threshold=0.1, epsilon_query=50).simulate(
        [1000, 1000], runs=4000, bits=SeededBits(2)
    )

    assert (answers == 1).all()
    assert abs(np.corrcoef(gaps.T.astype(float))[0, 1]) < 0.06


def test_the_printed_algorithm_has_scales_two_and_four_over_epsilon():
    printed = AboveThreshold.paper2017(5, Sensitivity(3), epsilon=0.5)

    assert printed.threshold_scale == 12
    assert printed.query_scale == 24
    assert printed.guarantee == PureGuarantee(Fraction(1, 2))
    assert printed.two_sided


@pytest.mark.parametrize("two_sided", [False, True])
def test_the_margins_hold(two_sided):
    fine = rule(epsilon_threshold=0.1, epsilon_query=0.2, two_sided=two_sided)
    false_alarm = fine.false_alarm_margin(0.1, queries=5)
    answers, _ = fine.simulate([-false_alarm] * 5, runs=20_000, bits=SeededBits(1))
    assert np.mean((answers == 1).any(axis=1)) <= 0.105

    miss = fine.miss_margin(0.1)
    answers, _ = fine.simulate([miss], runs=20_000, bits=SeededBits(1))
    assert np.mean(answers == 0) <= 0.105


def test_the_one_sided_false_alarm_margin_is_nearly_tight():
    fine = rule(epsilon_threshold=0.1, epsilon_query=0.2)
    margin = fine.false_alarm_margin(0.1, queries=1)
    answers, _ = fine.simulate([-margin], runs=40_000, bits=SeededBits(1))

    assert np.mean(answers == 1) > 0.09


def test_a_query_beyond_the_declared_sensitivity_is_refused_and_costs_nothing():
    session = rule().open(bits=SeededBits(1))
    other = Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)
    for sealed in (Sealed(0, Sensitivity(2)), Sealed(0, other)):
        with pytest.raises(InvalidRequest, match="declared sensitivity"):
            session.ask(sealed)

    assert session.loss == PureLoss(0)


def test_a_session_cannot_be_copied_or_pickled():
    session = rule().open(bits=SeededBits(1))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            attempt(session)


def test_a_session_shows_neither_query_nor_noise():
    session = rule(threshold=123).open(bits=SeededBits(1))
    ask(session, 456)

    assert repr(session) == "<above-threshold session, 0 hits left>"


def test_queries_beyond_64_bits_are_exact():
    session = rule(threshold=1 << 80).open(bits=SeededBits(1))
    below, above = ask(session, (1 << 80) - 10**6, (1 << 80) + (1 << 70))

    assert not below.above
    assert above.gap == (1 << 62) - 1


@pytest.mark.parametrize("changes", [{"hits": 0}, {"threshold": 0.5}, {"epsilon_query": 0}, {"hits": True}])
def test_senseless_rules_are_refused(changes):
    with pytest.raises(InvalidRequest):
        rule(**changes)


def test_a_vector_of_queries_at_once_is_refused():
    with pytest.raises(InvalidRequest, match="single integer"):
        rule().open(bits=SeededBits(1)).ask(Sealed([1, 2], ONE))


def test_asking_many_at_once_follows_the_same_law():
    queries, bits = [-2, -1, 0, -1], SeededBits(4)
    sealed = [Sealed(query, ONE) for query in queries]
    law = {
        factor: above_threshold_law(
            queries, math.exp(-factor), math.exp(-factor), depth=60, gaps=3, hits=1, two_sided=False
        )
        for factor in (0.7, 1, 1.4)
    }

    found = [rule().open(bits=bits).ask_until_above(sealed) for _ in range(4_000)]
    seen = [() if hit is None else ((hit[0], min(hit[1].gap, 2)),) for hit in found]

    assert fits(seen, law[1])
    assert not fits(seen, law[0.7])
    assert not fits(seen, law[1.4])


def test_asking_many_at_once_bills_and_ends_as_one_by_one():
    low, high = Sealed(-10_000, ONE), Sealed(10_000, ONE)
    session = rule(hits=2).open()

    assert session.ask_until_above([]) is None
    assert session.loss == PureLoss(0)
    assert session.ask_until_above([low, low]) is None
    assert session.loss == PureLoss(1)
    assert session.ask_until_above([low, high, high])[0] == 1
    assert (session.loss, session.hits_left) == (PureLoss(3), 1)
    assert session.ask_until_above([high])[0] == 0
    with pytest.raises(InvalidRequest):
        session.ask_until_above([low])
    with pytest.raises(InvalidRequest):
        rule().open().ask_until_above([low, Sealed(0, Sensitivity(2))])
