import numpy as np
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.robustness.perturbation import as_floats, blocks, laplace_scale, noise_kind, perturbations


@pytest.mark.parametrize(
    ("noise", "law"), [("gaussian", stats.norm(scale=0.7)), ("laplace", stats.laplace(scale=laplace_scale(0.7)))]
)
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_noise_has_its_law_and_no_other(noise, law, factor):
    drawn = perturbations((100_000,), noise=noise, sigma=0.7, bits=SeededBits(1)).astype(float) * factor

    assert (stats.kstest(drawn, law.cdf).pvalue > 1e-6) == (factor == 1.0)
    if factor == 1.0:
        assert drawn.std() == pytest.approx(0.7, rel=0.02)


def test_blocks_are_bounded_and_complete():
    counts = list(blocks(1000, 500, 784))

    assert sum(counts) == 1000
    assert max(counts) * 500 * 784 <= 1 << 23


def test_nonsense_is_refused():
    for bad in ([1.0, 2.0], np.zeros((0, 2)), [[np.nan]]):
        with pytest.raises(InvalidRequest, match="finite inputs"):
            as_floats(bad)
    with pytest.raises(InvalidRequest, match="noise"):
        noise_kind("uniform")
