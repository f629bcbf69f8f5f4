from fractions import Fraction

import pytest

from expost.core import InvalidRequest, Outcome, PureLoss, Sealed, Sensitivity
from expost.noise import SeededBits
from expost.stats.hypothesis import AnovaTest, BinomialTest, CorrelationTest, LinearCorrelationTest, MeanDifferenceTest
from expost.stats.hypothesis.price import Ask, Priced
from expost.stats.hypothesis.priced_test import PricedTest, under_noise

POWER = {"power": 0.8, "effect": 0.5}
OPEN = [
    BinomialTest("a", equals=True, null=0.3, **POWER),
    AnovaTest("x", by="g", power=0.8, effect=(0.0, 1.0), deviation=1),
    MeanDifferenceTest("x", by="g", groups=("a", "b"), deviation=1, **POWER),
    CorrelationTest("x", "y", **POWER),
    LinearCorrelationTest("x", "y", deviations=(1, 1), **POWER),
]


@pytest.mark.parametrize("test", OPEN, ids=lambda test: type(test).__name__)
def test_a_power_has_no_price_before_the_table_is_known(test):
    with pytest.raises(InvalidRequest, match="Call check"):
        _ = test.worst_case


def test_a_given_epsilon_is_the_price_and_a_found_one_takes_its_place():
    test = PricedTest(Ask(power=0.8))
    test._priced = Priced(Fraction(1, 4), Outcome.CERTIFIED)

    assert test.worst_case == PureLoss(0.25)
    assert PricedTest(Ask(epsilon=0.5)).worst_case == PureLoss(0.5)


def test_noise_has_the_scale_of_its_sensitivity():
    sealed = Sealed([0] * 4000, Sensitivity(3))
    seen = abs(under_noise(sealed, Fraction(1, 2), SeededBits(1))).mean()

    assert 0.9 * 6 < seen < 1.1 * 6
