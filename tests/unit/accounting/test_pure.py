"""Pure sums are exact; delta buys what randomised response gives."""

import math
from fractions import Fraction

import pytest

from expost.accounting import (
    DiscreteLaplaceEvent,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    Sequence,
)
from expost.accounting.pure import PureTotal, cost_of, total
from expost.accounting.scenario import scenarios


def test_leaves_have_exact_epsilons() -> None:
    assert cost_of(LaplaceEvent(Fraction(3, 2))) == Fraction(2, 3)
    assert cost_of(DiscreteLaplaceEvent(7, 3)) == Fraction(3, 7)
    assert cost_of(ExponentialEvent(Fraction(1, 3))) == Fraction(1, 3)
    assert cost_of(GaussianEvent(1)) is None


def test_a_thousand_tenths_are_a_hundred() -> None:
    found = total(scenarios(Repeat(PureEvent(0.1), 1000))[0])

    assert found == PureTotal(Fraction(100))


def test_one_step_without_pure_privacy_spoils_the_sum() -> None:
    assert total(scenarios(Sequence([PureEvent(1), GaussianEvent(1)]))[0]) is None


def test_sampling_amplifies_sums_inside_the_sample() -> None:
    inner = Sequence([PureEvent(1), Repeat(LaplaceEvent(2), 2)])

    assert float(cost_of(PoissonSampled(0.1, inner))) == pytest.approx(math.log1p(0.1 * math.expm1(2)), rel=1e-9)


def test_delta_of_a_pure_total_is_that_of_randomised_response() -> None:
    pure = PureTotal(Fraction(1))
    keep = math.e / (1 + math.e)

    assert pure.delta(Fraction(0)) == pytest.approx(keep - (1 - keep), rel=1e-12)
    assert pure.delta(Fraction(1)) == 0
    assert pure.epsilon(Fraction(pure.delta(Fraction(1, 2)))) == pytest.approx(0.5, rel=1e-9)
    assert pure.epsilon(Fraction(99, 100)) == 0
