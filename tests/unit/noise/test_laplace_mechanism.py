import math
from fractions import Fraction

import numpy as np
import pytest
from tests.distribution.goodness import SAMPLES, follows, notices_wrong_scales

from expost.core import InvalidRequest, Norm, PureGuarantee, PureLoss, Sealed, Sensitivity
from expost.noise import LaplaceMechanism, SeededBits


def laplace_cdf(scale):
    a = math.exp(-1 / scale)
    return lambda k: np.where(k >= 0, 1 - a ** (np.floor(k) + 1) / (1 + a), a ** -np.floor(k) / (1 + a))


@pytest.mark.parametrize(("level", "amount"), [(1, 1), (0.1, 3), (2, 1 << 20)])
def test_the_noise_has_scale_sensitivity_over_epsilon(level, amount):
    def draw(factor):
        mechanism = LaplaceMechanism(Fraction(level).limit_denominator(1000) / Fraction(factor).limit_denominator(10))
        return mechanism.simulate(7, Sensitivity(amount), runs=SAMPLES, bits=SeededBits(5)) - 7

    cdf = laplace_cdf(amount / level)
    assert follows(draw(1.0), cdf)
    assert notices_wrong_scales(draw, cdf)


def test_shapes_and_types_are_those_of_the_answer():
    mechanism, bits = LaplaceMechanism(1), SeededBits(1)

    assert type(mechanism.release(Sealed(5, Sensitivity(1)), bits=bits)) is int
    assert mechanism.release(Sealed(np.zeros((2, 3), int), Sensitivity(1)), bits=bits).shape == (2, 3)
    assert mechanism.release(Sealed([1 << 90], Sensitivity(1)), bits=bits)[0] > 1 << 89


def test_coordinates_get_independent_noise():
    noise = LaplaceMechanism(1).simulate([0, 0], Sensitivity(1), runs=50_000, bits=SeededBits(2))

    assert abs(np.corrcoef(noise.T.astype(float))[0, 1]) < 0.02


def test_promise_and_bill_are_the_epsilon_asked_for():
    assert LaplaceMechanism(0.1).guarantee == PureGuarantee(Fraction(1, 10))
    assert LaplaceMechanism(0.1).loss == PureLoss(Fraction(1, 10))


@pytest.mark.parametrize("level", [0, -1, float("nan"), float("inf"), "1"])
def test_a_senseless_epsilon_is_refused(level):
    with pytest.raises(InvalidRequest):
        LaplaceMechanism(level)


def test_an_l2_sensitivity_of_a_vector_is_refused():
    with pytest.raises(InvalidRequest, match="l1"):
        LaplaceMechanism(1).release(Sealed([1, 2], Sensitivity(1, Norm.L2)))


@pytest.mark.parametrize("coordinates", [1, 5])
@pytest.mark.parametrize("level", [0.05, 0.5, 3])
def test_the_half_width_is_the_smallest_that_holds(level, coordinates):
    width = LaplaceMechanism(level).half_width(Sensitivity(1), 0.05, coordinates=coordinates)
    a = math.exp(-level)

    def all_inside(h):
        return (1 - 2 * a ** (h + 1) / (1 + a)) ** coordinates

    assert all_inside(width) >= 0.95
    assert width == 0 or all_inside(width - 1) < 0.95


def test_the_half_width_is_met_as_often_as_promised():
    mechanism = LaplaceMechanism(0.3)
    noise = mechanism.simulate([0] * 4, Sensitivity(2), runs=20_000, bits=SeededBits(3))
    missed = np.mean(np.abs(noise).max(axis=1) > mechanism.half_width(Sensitivity(2), 0.1, coordinates=4))

    assert 0.07 < missed < 0.11
