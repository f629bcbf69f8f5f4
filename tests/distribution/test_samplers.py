"""Exact samplers against their laws; wrong scales must fail."""

from fractions import Fraction

import numpy as np
import pytest
from tests.distribution.goodness import (
    SAMPLES,
    follows,
    gaussian_cdf,
    geometric_cdf,
    laplace_cdf,
    notices_wrong_scales,
    uniform_cdf,
)
from tests.unit.noise.bitwise import bitwise_geometric, bitwise_laplace

from expost.noise import (
    SeededBits,
    sample_bernoulli,
    sample_bernoulli_exp,
    sample_gaussian,
    sample_geometric,
    sample_laplace,
    sample_uniform,
)

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(100), Fraction(10**6, 7), Fraction(2**45)]


@pytest.mark.parametrize("sampler", [sample_laplace, bitwise_laplace])
@pytest.mark.parametrize("scale", SCALES)
def test_laplace_noise_has_its_law(sampler, scale: Fraction) -> None:
    cdf = laplace_cdf(float(scale))

    assert follows(sampler(scale, SAMPLES, bits=SeededBits(1)), cdf)
    assert notices_wrong_scales(lambda factor: sampler(scale * Fraction(factor), SAMPLES, bits=SeededBits(2)), cdf)


@pytest.mark.parametrize("sampler", [sample_geometric, bitwise_geometric])
@pytest.mark.parametrize("scale", SCALES)
def test_geometric_noise_has_its_law(sampler, scale: Fraction) -> None:
    cdf = geometric_cdf(float(scale))

    assert follows(sampler(scale, SAMPLES, bits=SeededBits(3)), cdf)
    assert notices_wrong_scales(lambda factor: sampler(scale * Fraction(factor), SAMPLES, bits=SeededBits(4)), cdf)


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(10), Fraction(10**6, 7), Fraction(2**90)])
def test_gaussian_noise_has_its_law(variance: Fraction) -> None:
    cdf = gaussian_cdf(float(variance))

    assert follows(sample_gaussian(variance, SAMPLES, bits=SeededBits(5)), cdf)
    assert notices_wrong_scales(
        lambda factor: sample_gaussian(variance * Fraction(factor) ** 2, SAMPLES, bits=SeededBits(6)), cdf
    )


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 2**40 + 1, 2**63, 2**70])
def test_uniform_integers_have_their_law(bound: int) -> None:
    count = SAMPLES if bound <= 2**63 else SAMPLES // 10

    assert follows(sample_uniform(bound, count, bits=SeededBits(7)), uniform_cdf(bound))


def test_the_uniform_test_notices_a_wrong_bound() -> None:
    assert not follows(sample_uniform(900, SAMPLES, bits=SeededBits(7)), uniform_cdf(1000))
    assert not follows(sample_uniform(1100, SAMPLES, bits=SeededBits(7)), uniform_cdf(1000))


@pytest.mark.parametrize("probability", [Fraction(1, 3), Fraction(1, 2), Fraction(1, 10**4), Fraction(999, 1000)])
def test_coins_have_their_probability(probability: Fraction) -> None:
    count = 2_000_000
    heads = sample_bernoulli(probability, count, bits=SeededBits(8)).sum()

    spread = float(count * probability * (1 - probability)) ** 0.5
    assert abs(heads - float(count * probability)) < 6 * spread
    assert spread * 6 < 0.1 * float(count * min(probability, 1 - probability)) * 5


@pytest.mark.parametrize("exponent", [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(5), Fraction(9, 2)])
def test_exponential_coins_have_their_probability(exponent: Fraction) -> None:
    count = 1_000_000
    probability = float(np.exp(-float(exponent)))
    heads = sample_bernoulli_exp(exponent, count, bits=SeededBits(9)).sum()

    spread = (count * probability * (1 - probability)) ** 0.5
    assert abs(heads - count * probability) < 6 * spread
    for wrong in (0.9, 1.1):
        off = abs(float(np.exp(-float(exponent) * wrong)) - probability) * count
        heads = sample_bernoulli_exp(exponent * Fraction(wrong), count, bits=SeededBits(9)).sum()
        assert off < 12 * spread or abs(heads - count * probability) > 6 * spread


def test_every_element_takes_its_own_parameter() -> None:
    scales = [Fraction(1, 2), Fraction(40), Fraction(2**40)]
    pattern = np.array(scales * 30_000, dtype=object)

    values = sample_laplace(pattern, bits=SeededBits(10))
    gaussians = sample_gaussian(pattern, bits=SeededBits(11))
    geometrics = sample_geometric(pattern, bits=SeededBits(12))

    for place, scale in enumerate(scales):
        assert follows(values[place::3], laplace_cdf(float(scale)))
        assert follows(gaussians[place::3], gaussian_cdf(float(scale)))
        assert follows(geometrics[place::3], geometric_cdf(float(scale)))


def test_low_bits_of_wide_noise_are_fair() -> None:
    values = sample_laplace(2**45, SAMPLES, bits=SeededBits(13))

    for bit in range(30):
        ones = ((values >> bit) & 1).sum()
        assert abs(ones - SAMPLES / 2) < 6 * (SAMPLES / 4) ** 0.5
