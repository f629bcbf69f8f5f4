import numpy as np
import pytest

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.noise_reach import noise_reach, size_range


@pytest.mark.parametrize("cells", [1, 2, 9])
@pytest.mark.parametrize("scale", [1, 30])
def test_a_sum_of_noises_stays_within_its_reach(cells, scale):
    sums = np.abs(discrete_laplace(scale, (200_000, cells), bits=SeededBits(1)).sum(1))

    reach = noise_reach(cells, scale, failure_probability=0.01)

    assert (sums > reach).mean() <= 0.01
    assert (sums > reach / 2).mean() > 0.01  # half the reach would not do


def test_possible_sizes_are_never_negative():
    assert size_range(-500.0, 2, 10.0) == (0, 0)
    low, high = size_range(50.0, 4, 10.0)
    assert low == 0 < high
