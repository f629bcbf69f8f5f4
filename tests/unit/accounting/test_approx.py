"""Pairs add; sampling shrinks both numbers."""

import math
from fractions import Fraction

import pytest

from expost.accounting import ApproxEvent, GaussianEvent, PoissonSampled, PureEvent, Repeat, Sequence
from expost.accounting.approx import ApproxTotal, cost_of, total
from expost.accounting.scenario import scenarios


def test_pairs_add_exactly() -> None:
    found = total(scenarios(Sequence([PureEvent(0.5), Repeat(ApproxEvent(0.1, 1e-6), 3)]))[0])

    assert found == ApproxTotal(Fraction(8, 10), Fraction(3, 10**6))


def test_below_its_own_delta_there_is_no_epsilon() -> None:
    pair = ApproxTotal(Fraction(1), Fraction(1, 100))

    assert pair.epsilon(Fraction(1, 1000)) == math.inf
    assert pair.epsilon(Fraction(1, 100)) == 1
    assert 0 < pair.epsilon(Fraction(1, 10)) < 1
    assert pair.delta(Fraction(2)) == pytest.approx(0.01)


def test_deltas_that_reach_one_prove_nothing() -> None:
    assert total(scenarios(Repeat(ApproxEvent(0.1, 0.5), 2))[0]) is None


def test_sampling_multiplies_delta_by_the_rate() -> None:
    epsilon, delta = cost_of(PoissonSampled(0.01, ApproxEvent(5, 1e-6)))  # type: ignore[misc]

    # Not 2 q epsilon = 0.10, which holds for small epsilon only.
    assert float(epsilon) == pytest.approx(0.9058, abs=1e-3)
    assert delta == Fraction(1, 10**8)


def test_gaussian_noise_has_no_pair_of_its_own() -> None:
    assert cost_of(GaussianEvent(1)) is None
