import copy
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.noise.law_fit import fits

from expost.audit.noise_laws import reduced_law
from expost.core import InvalidRequest, Ladder, PureGuarantee, PureLoss, Sealed, Sensitivity
from expost.noise import ReducedAboveThreshold, SeededBits

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
    with pytest.raises(InvalidRequest, match="not stopped"):
        session.ask(Sealed(0, ONE), rung=2)


def test_a_session_cannot_be_copied():
    with pytest.raises(TypeError, match="reuse its noise"):
        copy.deepcopy(rule().open(bits=SeededBits(1)))


def test_monotone_queries_need_half_the_query_noise():
    assert rule(monotone=True).query_scale(0) * 2 == rule().query_scale(0)


@pytest.mark.parametrize("changes", [{"threshold": 1.5}, {"threshold_share": 1}, {"threshold_share": 0}])
def test_senseless_rules_are_refused(changes):
    with pytest.raises(InvalidRequest):
        rule(**changes)
