import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from expost.core import InvalidRequest, PureLoss
from expost.noise import LatticeBounds, SeededBits, SmoothNoise

WIDE = LatticeBounds(-(1 << 50), 1 << 50)


def log_mass(center, scale, power, points):
    """ln P(k) of the integer law, normalised by a sum whose tail is an integral."""
    sizes = np.arange(-60_000, 60_001, dtype=float)
    total = (1 / (scale**power + np.abs(sizes) ** power)).sum() + 2 * 60_000.5 ** (1 - power) / (power - 1)
    return -np.log(scale**power + np.abs(points - center) ** power) - math.log(total)


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("epsilon", [0.3, 1, 3])
@pytest.mark.parametrize("bound", [2.0, 30.0])
def test_no_integer_tells_neighbours_apart_by_more_than_epsilon(power, epsilon, bound):
    noise = SmoothNoise(epsilon, power)
    points = np.arange(-3000, 3001, dtype=float)
    for stretch in (-1, -0.5, 0, 0.5, 1):
        other = bound * math.exp(stretch * noise.smoothness)
        for share in (0, 0.5, 1):
            shift = math.floor(share * min(bound, other))
            left = log_mass(0, float(noise.scale(bound)), power, points)
            right = log_mass(shift, float(noise.scale(other)), power, points)
            assert np.abs(left - right).max() <= epsilon


def test_the_constants_are_nearly_used_up():
    worst = 0.0
    for stretch in (-1, 1):
        noise = SmoothNoise(1, 2)
        other = 300.0 * math.exp(stretch * noise.smoothness)
        points = np.arange(-20_000, 20_001, dtype=float)
        left = log_mass(0, float(noise.scale(300.0)), 2, points)
        right = log_mass(int(min(300.0, other)), float(noise.scale(other)), 2, points)
        worst = max(worst, np.abs(left - right).max())

    assert worst > 0.8


@pytest.mark.parametrize(("power", "slide", "stretch"), [(2, 0.7071, 0.7071), (4, 0.27, 1 / 6)])
def test_slide_and_stretch_together_cost_at_most_epsilon(power, slide, stretch):
    u = np.linspace(0, 1, 1_000_001)
    cost = slide * power * u ** ((power - 1) / power) * (1 - u) ** (1 / power) + stretch * np.abs(power * u - 1)
    noise = SmoothNoise(1, power)

    assert cost.max() + stretch * 1e-5 < 1
    assert float(1 / noise.steepness) == pytest.approx(slide)
    assert stretch - 1e-8 < noise.smoothness < stretch


def test_the_lattice_changes_the_normalising_sum_by_less_than_the_slack():
    with mpmath.workdps(30):
        for scale in (4, 4.3, 5, 8, 20):
            two = mpmath.diff(lambda s: mpmath.log(mpmath.coth(mpmath.pi * s)), scale) * scale

            def four(s):
                q = mpmath.sqrt(2) * mpmath.pi * s
                return mpmath.log((mpmath.sinh(q) + mpmath.sin(q)) / (mpmath.cosh(q) - mpmath.cos(q)))

            assert abs(two) < 1e-5
            assert abs(mpmath.diff(four, scale) * scale) < 1e-5


def test_the_closed_form_of_the_normalising_sum_is_right():
    with mpmath.workdps(20):
        for s in (1.0, 2.5):
            q = mpmath.sqrt(2) * mpmath.pi * s
            closed = (mpmath.sinh(q) + mpmath.sin(q)) / (mpmath.cosh(q) - mpmath.cos(q))
            closed *= mpmath.pi / (mpmath.sqrt(2) * s**3)
            summed = mpmath.nsum(lambda k, s=s: 1 / (s**4 + k**4), [-mpmath.inf, mpmath.inf])
            assert abs(closed - summed) < 1e-10


def test_the_scale_is_never_below_what_the_bound_asks_for_and_hardly_above():
    noise = SmoothNoise(0.7)
    for bound in (0.0, 1.0, 123.456, 1e9):
        wanted = max(noise.steepness * Fraction(bound), 4)
        assert wanted <= noise.scale(bound) <= wanted * (1 + Fraction(1, 10**9))


def test_answers_are_clamped_to_their_public_range():
    values = SmoothNoise(0.01).add(5, 100.0, LatticeBounds(0, 10), runs=1000, bits=SeededBits(1))

    assert values.min() == 0
    assert values.max() == 10


def test_the_bill_is_the_epsilon_asked_for():
    assert SmoothNoise(0.5).loss == PureLoss(Fraction(1, 2))
    assert SmoothNoise(0.5).guarantee == PureLoss(Fraction(1, 2)).promise()


@pytest.mark.parametrize(("epsilon", "power"), [(1, 3), (1e-12, 4), (0, 4)])
def test_senseless_settings_are_refused(epsilon, power):
    with pytest.raises(InvalidRequest):
        SmoothNoise(epsilon, power)


def test_values_center_on_the_answer():
    values = SmoothNoise(1).add(1000, 5.0, WIDE, runs=20_000, bits=SeededBits(2))

    assert abs(np.median(values) - 1000) <= 2
