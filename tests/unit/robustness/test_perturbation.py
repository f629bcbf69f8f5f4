from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.robustness.perturbation import (
    SAMPLER_ERROR,
    as_floats,
    blocks,
    laplace_scale,
    noise_kind,
    noisy_copies,
    perturbations,
)


@pytest.mark.parametrize(
    ("noise", "law"), [("gaussian", stats.norm(scale=0.7)), ("laplace", stats.laplace(scale=laplace_scale(0.7)))]
)
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_noise_has_its_law_and_no_other(noise, law, factor):
    drawn = perturbations((100_000,), noise=noise, sigma=0.7, bits=SeededBits(1)) * factor

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


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_noisy_copy_is_the_lattice_point_nearest_to_the_exact_sum(noise):
    inputs = np.array([[0.1, -3.7, 1.7e9 + 0.3, -1e12 + 1]])
    sigma, step = 3.0, 2.0**-9

    (copies,) = noisy_copies(inputs, noise=noise, sigma=sigma, samples=2000, bits=SeededBits(2))
    drawn = perturbations((2000, 4), noise=noise, sigma=sigma, bits=SeededBits(2))

    exact = [
        round((Fraction(x) + Fraction(z)) / Fraction(step)) * Fraction(step)
        for x, z in zip(np.tile(inputs[0], 2000), drawn.flat, strict=True)
    ]
    assert [Fraction(copy) for copy in copies.flat] == exact


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_noise_is_as_near_to_its_exact_quantile_as_the_proof_asks(noise):
    """Theorem 3 of docs/proofs/certified-radius.md: a relative error of 2^-48 at most, out to the last cell."""
    cells = np.unique(np.geomspace(1, 2**51, 80).astype(np.uint64)) - 1
    cells = np.concatenate([cells, np.uint64(2**52 - 1) - cells])
    bits = SimpleNamespace(words=lambda _count, _dtype: cells << np.uint64(12))

    drawn = perturbations(cells.shape, noise=noise, sigma=1536.0, bits=bits)

    with mpmath.workdps(50):
        for cell, found in zip(cells, drawn, strict=True):
            exact = 1536 * _quantile(noise, (mpmath.mpf(int(cell)) + 0.5) / 2**52)
            assert abs(found - exact) <= 2.0**-48 * abs(exact)
    assert np.abs(drawn).max() < (8.3 if noise == "gaussian" else 25.6) * 1536
    boundaries = 52 * 2**11 + 4
    assert 3 * boundaries * 2.0**-52 + 2.0**-51 + 2.02 * 2.0**-36 < 2.0**-33 < SAMPLER_ERROR


def _quantile(noise, u):
    if noise == "gaussian":
        return mpmath.sqrt(2) * mpmath.erfinv(2 * u - 1)
    tail = mpmath.log(2 * min(u, 1 - u)) / mpmath.sqrt(2)
    return tail if u < 0.5 else -tail


def test_inputs_keep_single_precision_only_where_the_caller_has_it():
    for given, kept in (
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.int32, np.float64),
        (float, np.float64),
    ):
        inputs = as_floats(np.ones((1, 1), given))
        assert inputs.dtype == kept
        (copies,) = noisy_copies(inputs, noise="gaussian", sigma=1.0, samples=2, bits=SeededBits(1))
        assert copies.dtype == kept


def test_inputs_that_doubles_do_not_tell_apart_are_refused():
    with pytest.raises(InvalidRequest, match=r"whole numbers up to 2\^52"):
        as_floats([[2**53 + 1]])
    with pytest.raises(InvalidRequest, match=r"below 2\^41 times sigma"):
        next(noisy_copies(np.array([[2.0**43]]), noise="gaussian", sigma=1.0, samples=1))
    assert next(noisy_copies(np.array([[2.0**41 - 1]]), noise="gaussian", sigma=1.0, samples=1)).size == 1
