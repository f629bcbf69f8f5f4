from fractions import Fraction

import numpy as np
import pytest
from tests.distribution.goodness import SAMPLES, follows, notices_wrong_scales

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.noise import smooth_sensitivity as module
from expost.noise.smooth_sensitivity import sample_heavy_tail

SCALE = Fraction(25, 4)


def cdf_of(scale, power):
    """The tail beyond the table is an integral up to a relative error of 1 / table."""
    size = np.arange(0, 100_000, dtype=float)
    weights = 1 / (scale**power + size**power)
    tail = (len(size) - 0.5) ** (1 - power) / (power - 1)
    upper = (np.cumsum(weights[::-1])[::-1] + tail) / (2 * (weights.sum() + tail) - weights[0])

    def reach(n):  # P(X >= n), n >= 1
        far = np.maximum(n - 0.5, 1.0) ** (1 - power) / (power - 1) / (2 * (weights.sum() + tail) - weights[0])
        return np.where(n < len(size), upper[np.clip(n, 0, len(size) - 1).astype(int)], far)

    return lambda k: np.where(k >= 0, 1 - reach(np.floor(k) + 1), reach(-np.floor(k)))


@pytest.mark.parametrize("power", [2, 4])
def test_the_noise_follows_its_law(power):
    def draw(factor):
        scale = SCALE * Fraction(factor).limit_denominator(10)
        return sample_heavy_tail(scale, SAMPLES, power=power, bits=SeededBits(1))

    cdf = cdf_of(6.25, power)
    assert follows(draw(1.0), cdf)
    assert notices_wrong_scales(draw, cdf)


@pytest.mark.parametrize("power", [2, 4])
def test_the_exact_arithmetic_agrees_with_the_floats_wherever_they_are_sure(power, monkeypatch):
    sampler = module._HeavyTail(SCALE, power)

    def draws():
        sizes, wide = sampler.propose(400, SeededBits(3))
        return sizes.tolist(), wide, sampler.flip_coins(np.arange(400), {}, SeededBits(4)).tolist()

    floats = draws()
    monkeypatch.setattr(module, "_FLOAT_ERROR", 1e9)  # doubt everything

    assert draws() == floats


def test_a_size_beyond_the_cap_keeps_its_own_coin():
    sampler = module._HeavyTail(SCALE, 2)
    far = 1 << 70

    coins = sampler.flip_coins(np.full(4000, 1 << 62), dict.fromkeys(range(4000), far), SeededBits(1))
    assert abs(coins.mean() - float(sampler.chance(far))) < 0.05


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("scale", [Fraction(4), SCALE, Fraction(10**9)])
def test_the_envelope_covers_the_law(scale, power):
    sampler = module._HeavyTail(scale, power)
    sizes = {int(scale * Fraction(step, 40)) for step in range(400)} | {0, 1, 10**30}
    chances = [sampler.chance(size) for size in sizes]

    assert min(chances) > 0
    assert max(chances) <= 1


def test_proposals_have_a_rational_survival():
    sizes = module._HeavyTail(SCALE, 2).propose(100_000, SeededBits(5))[0].astype(float)
    for n in (1, 6, 60, 600):
        expected = 6.25 / (6.25 + n)
        assert abs(np.mean(sizes >= n) - expected) < 6 * np.sqrt(expected / 100_000)


def test_huge_scales_work():
    noise = sample_heavy_tail(Fraction(1 << 45), 2000, power=4, bits=SeededBits(1))

    assert 0.5 < np.median(np.abs(noise)) / 2**45 < 0.8


@pytest.mark.parametrize(("scale", "power"), [(3, 2), (10, 3)])
def test_small_scales_and_other_powers_are_refused(scale, power):
    with pytest.raises(InvalidRequest):
        sample_heavy_tail(Fraction(scale), 1, power=power)
