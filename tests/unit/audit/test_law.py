import math
from fractions import Fraction

import pytest

from expost.audit import Law, LawPair, compare
from expost.core import InvalidRequest

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def test_probabilities_that_do_not_add_up_are_refused():
    for mass in ({"a": Fraction(2, 3), "b": HALF}, {"a": Fraction(-1, 3)}):
        with pytest.raises(InvalidRequest):
            Law(mass)


def test_the_decision_is_exact_to_the_last_digit():
    left, right = Law({"a": HALF, "b": HALF}), Law({"a": THIRD, "b": 1 - THIRD})
    hair = Fraction(1, 10**30)

    assert not compare(LawPair("tight", left, right, ratio=Fraction(3, 2))).violated
    assert compare(LawPair("a hair too much", left, right, ratio=Fraction(3, 2) - hair)).violated


def test_an_outcome_that_only_one_side_has_is_an_infinite_loss():
    finding = compare(LawPair("support", Law({"a": HALF, "b": HALF}), Law({"a": Fraction(1)}), ratio=Fraction(100)))

    assert finding.found == math.inf


def test_bills_may_differ_between_outcomes():
    left, right = Law({"a": HALF, "b": HALF}), Law({"a": THIRD, "b": 1 - THIRD})

    def bill(dear):
        return lambda outcome: Fraction(3, 2) if outcome == dear else Fraction(4, 3)

    assert not compare(LawPair("right", left, right, ratio=bill("a"))).violated
    assert compare(LawPair("swapped", left, right, ratio=bill("b"))).violated


def test_delta_forgives_what_it_covers_and_no_more():
    left, right = Law({"a": Fraction(9, 10), "b": Fraction(1, 10)}), Law({"a": Fraction(1)})

    assert not compare(LawPair("covered", left, right, ratio=Fraction(2), delta=Fraction(1, 10))).violated
    assert compare(LawPair("not", left, right, ratio=Fraction(2), delta=Fraction(99, 1000))).violated


def test_the_loss_shown_with_a_delta_is_the_least_that_would_do():
    left, right = Law({"a": HALF, "b": HALF}), Law({"a": Fraction(1, 4), "b": Fraction(3, 4)})
    finding = compare(LawPair("shown", left, right, ratio=Fraction(5), delta=Fraction(1, 8)))

    assert finding.found == pytest.approx(math.log(1.5), abs=1e-9)


def test_an_enumeration_too_coarse_to_decide_is_refused():
    left = Law({"a": HALF}, error=Fraction(1, 100))
    right = Law({"a": THIRD}, error=Fraction(1, 100))

    with pytest.raises(InvalidRequest, match="fine enough"):
        compare(LawPair("coarse", left, right, ratio=Fraction(3, 2)))
