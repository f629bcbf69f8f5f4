import numpy as np
import pytest
from tests.unit.noise.law_fit import fits

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise.selection_mechanism import gaps_to_best, pick_one, read_scores


@pytest.mark.parametrize("scores", [[], 3, [[1, 2]], [0.5]])
def test_anything_but_one_integer_a_candidate_is_refused(scores):
    with pytest.raises(InvalidRequest):
        read_scores(scores)


def test_gaps_do_not_wrap_around():
    assert gaps_to_best(np.array([2**62, -(2**62), 0])).tolist() == [0, 2**63, 2**62]


def test_each_flag_is_picked_equally_often():
    flags = np.tile([True, False, True, True], (60_000, 1))

    assert fits(pick_one(flags, bits=SeededBits(1)).tolist(), {0: 1 / 3, 2: 1 / 3, 3: 1 / 3})
