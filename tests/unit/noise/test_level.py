"""Which levels exact noise can have."""

from fractions import Fraction

import pytest

from expost.core import InvalidRequest, Ladder, Norm, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, GaussianPath, PermuteAndFlip, SeededBits
from expost.noise.parameter import LARGEST_RATE, LARGEST_SCALE, check_gaussian_ladder, check_level, check_scale


@pytest.mark.parametrize("sensitivity", [1, 7, Fraction(1, 3)])
def test_the_ends_of_the_range_can_be_drawn_and_nothing_beyond(sensitivity):
    least, most = Fraction(sensitivity) / LARGEST_SCALE, Fraction(sensitivity) * LARGEST_RATE

    for level in (least, most):
        check_level(level, sensitivity)
        DiscreteLaplacePath(Sealed(0, Sensitivity(sensitivity)), Ladder((level,)), bits=SeededBits(1)).at(0)
    for level in (least * Fraction(999, 1000), most * Fraction(1001, 1000)):
        with pytest.raises(InvalidRequest, match="Expected epsilon"):
            check_level(level, sensitivity)


def test_a_climb_may_have_any_cap_but_not_any_lowest_level():
    check_scale(Fraction(10**12), 1)
    with pytest.raises(InvalidRequest, match="narrower"):
        check_scale(Fraction(1, 10**19), 1)


def test_a_gaussian_ladder_is_refused_where_its_path_could_not_be_drawn():
    sealed = Sealed(0, Sensitivity(10**15, Norm.L2))
    for ladder in (Ladder.of([1]), Ladder.of([1, 1 + 1e-5])):
        check_gaussian_ladder(ladder, 10**15)
        GaussianPath(sealed, ladder, bits=SeededBits(1)).at(0)
    for ladder in (Ladder.of([1e-9]), Ladder.of([1, 1 + 1e-9])):
        with pytest.raises(InvalidRequest, match="narrower"):
            check_gaussian_ladder(ladder, 10**15)
        with pytest.raises(InvalidRequest):
            GaussianPath(sealed, ladder, bits=SeededBits(1))


def test_coins_have_the_scales_of_noise():
    with pytest.raises(InvalidRequest, match="narrower"):
        PermuteAndFlip(1e-25).shortfall(Sensitivity(1), 0.05, candidates=3)
