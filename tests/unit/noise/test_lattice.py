from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Norm, Sensitivity
from expost.noise.lattice import add_exactly, read_integers, unwrap_scalar
from expost.noise.parameter import sensitivity_in


@pytest.mark.parametrize("floats", [0.5, [1.0, 2.0], np.array([1.5]), [True, False], ["1"]])
def test_anything_but_integers_is_refused(floats):
    with pytest.raises(InvalidRequest, match="exact integers"):
        read_integers(floats)


def test_the_refusal_does_not_repeat_the_answer():
    with pytest.raises(InvalidRequest) as error:
        read_integers(123456.5)

    assert "123456" not in str(error.value)


def test_large_integers_stay_exact():
    assert read_integers([1 << 80]).tolist() == [1 << 80]
    assert read_integers(np.array([2**63 + 5], dtype=np.uint64)).tolist() == [2**63 + 5]


def test_a_sum_never_wraps_around():
    near_the_top = np.array([2**62 - 1])

    assert add_exactly(near_the_top, np.array([2**62 + 7])).tolist() == [2**63 + 6]
    assert add_exactly(-near_the_top, np.array([-(2**62) - 7])).tolist() == [-(2**63) - 6]


def test_a_scalar_comes_back_as_a_scalar():
    assert unwrap_scalar(np.array(5)) == 5
    assert unwrap_scalar(np.array([5])).shape == (1,)


def test_a_larger_norm_may_stand_for_a_smaller_one_and_not_the_reverse():
    assert sensitivity_in(Norm.LINF, Sensitivity(3, Norm.L1), 5) == 3
    assert sensitivity_in(Norm.L1, Sensitivity(Fraction(7, 2), Norm.L2), 1) == Fraction(7, 2)
    with pytest.raises(InvalidRequest, match="sensitivity in l1"):
        sensitivity_in(Norm.L1, Sensitivity(3, Norm.L2), 2)
