import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.noise import SeededBits, sample_gaussian

module = sys.modules["expost.noise.lattice_sampler"]


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(10), Fraction(50, 3)])
def test_accepted_proposals_have_the_gaussian_law(variance: Fraction) -> None:
    scale = math.isqrt(math.floor(variance)) + 1

    def log_weight(k: int) -> Fraction:
        proposal = Fraction(-abs(k), scale)
        acceptance = -((abs(k) - variance / scale) ** 2) / (2 * variance)
        return proposal + acceptance

    for k in range(-30, 31):  # the same up to a constant, exactly
        assert log_weight(k) - log_weight(0) == -Fraction(k * k) / (2 * variance)


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(10), Fraction(2**60)])
@pytest.mark.parametrize("alike", [True, False])
def test_giving_up_on_floats_changes_nothing(variance, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (variance, 300) if alike else ([variance] * 300, None)
    quick = sample_gaussian(*given, bits=SeededBits(1))
    monkeypatch.setattr(module, "_EXPONENT_ERROR", 0.05)
    slow = sample_gaussian(*given, bits=SeededBits(1))

    assert (quick == slow).all()


def test_the_spread_is_at_most_the_parameter() -> None:
    for variance in (0.25, 1, 100):
        values = sample_gaussian(variance, 200_000, bits=SeededBits(2))
        assert values.var() < variance * 1.02


def test_shapes_and_single_values() -> None:
    assert isinstance(sample_gaussian(4), int)
    assert sample_gaussian(4, (2, 5)).shape == (2, 5)
    assert sample_gaussian(4, 0).shape == (0,)
    assert sample_gaussian(np.array([[1.0, 100.0]])).shape == (1, 2)


def test_wide_noise_is_kept_in_python_integers() -> None:
    values = sample_gaussian(Fraction(2) ** 120, 300, bits=SeededBits(3))

    assert values.dtype == object
    assert max(abs(value) for value in values) > 2**60


@pytest.mark.parametrize("variance", [0, -1, float("nan"), [1, -1], 2**121])
def test_a_senseless_variance_is_refused(variance) -> None:
    with pytest.raises(InvalidRequest):
        sample_gaussian(variance, None)
