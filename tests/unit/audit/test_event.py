import numpy as np
import pytest

from expost.audit.pair_attack import Outcomes, Pair, find_events
from expost.audit.privacy_claim import ExPost
from expost.core import epsilon


def pair(claim, **options):
    return Pair("made up", claim, lambda *_: None, lambda *_: None, **options)


def find(claim, left, right, **options):
    return find_events(pair(claim, **options), left, right, failure_probability=1e-3)


def test_the_likelier_outcome_is_chosen_in_each_direction():
    left, right = Outcomes.of([0] * 900 + [1] * 100), Outcomes.of([0] * 500 + [1] * 500)
    zeros, ones = find(epsilon(0.1), left, right)

    assert zeros.count_groups(Outcomes.of([0, 0, 1])).sum() == 2
    assert ones.count_groups(Outcomes.of([0, 0, 1])).sum() == 1


def test_a_one_way_claim_is_attacked_one_way():
    outcomes = Outcomes.of([0] * 500 + [1] * 500)

    assert len(find(epsilon(1), outcomes, outcomes, one_way=True)) == 1


def test_ex_post_events_stay_within_one_bill():
    values = np.tile([0.0, 1.0], 500)
    left, right = Outcomes.of(values, values + 1), Outcomes.of(np.r_[values[:-200], np.zeros(200)], values + 1)
    for event in find(ExPost(epsilon(2)), left, right):
        assert event.cut == (event.allowed, event.allowed)
        inside = Outcomes.of([0, 1], [event.allowed, event.allowed + 7])
        assert event.count_groups(inside).sum() <= 1


def test_many_bills_are_grouped_under_their_largest():
    bills = np.linspace(0, 1, 1000)
    outcomes = Outcomes.of(np.zeros(1000), bills)
    for event in find(ExPost(epsilon(1)), outcomes, outcomes):
        assert event.allowed == pytest.approx(event.cut[1])


def test_rare_outcomes_do_not_win_over_what_is_certain():
    """A single lucky outcome has a large ratio and no weight."""
    left, right = Outcomes.of([0] * 700 + [1] * 299 + [7]), Outcomes.of([0] * 300 + [1] * 700)
    event, _ = find(epsilon(0.1), left, right)

    assert event.count_groups(Outcomes.of([0])).sum() == 1
