import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.unit.noise.scripted import ScriptedBits, words

from expost.noise import SeededBits, sample_geometric, sample_laplace
from expost.noise.bits import BitSource

module = sys.modules["expost.noise.lattice_sampler"]


@pytest.mark.parametrize("a", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 100)])
def test_sign_first_then_magnitude_is_the_discrete_laplace_law(a: Fraction) -> None:
    negative = a / (1 + a)  # 1 / (1 + exp(1 / scale)) with a = exp(-1 / scale)

    for k in range(-20, 21):
        magnitude, sign = (k, 1 - negative) if k >= 0 else (-1 - k, negative)
        assert sign * (1 - a) * a**magnitude == (1 - a) / (1 + a) * a ** abs(k)


def test_a_negative_value_is_the_complement_of_its_magnitude() -> None:
    head = words(2**63, 2**63)
    signs = words(0, 2**32 - 1, dtype=np.uint32)

    values = sample_laplace(10, 2, bits=ScriptedBits(head, signs))
    magnitude = sample_geometric(10, 1, bits=ScriptedBits(words(2**63)))[0]

    assert values.tolist() == [-1 - magnitude, magnitude]


@pytest.mark.parametrize(("offset", "negative"), [(-9, True), (9, False)])
def test_a_sign_at_its_probability_is_decided_exactly(offset: int, negative: bool) -> None:
    with mpmath.workprec(200):
        whole = int(mpmath.floor(mpmath.mpf(2) ** 96 / (1 + mpmath.exp(mpmath.mpf(1) / 3))))
    first, second = divmod(whole, 2**64)
    script = ScriptedBits(words(2**63), words(first, dtype=np.uint32), words(second + offset))

    assert (sample_laplace(3, 1, bits=script)[0] < 0) == negative


def test_giving_up_on_floats_changes_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = sample_laplace([Fraction(1, 2), 3, 10**6] * 300, bits=SeededBits(1))
    monkeypatch.setattr(module, "_SIGN_ERROR", 0.1)
    slow = sample_laplace([Fraction(1, 2), 3, 10**6] * 300, bits=SeededBits(1))

    assert (np.sign(quick) == np.sign(slow)).all()


def test_ten_thousand_values_use_twelve_bytes_each() -> None:
    bits = ScriptedBits()
    sample_laplace(100, 10_000, bits=bits)

    assert bits.drawn <= 12 * 10_000 + 1000


def test_one_source_gives_different_values_each_time() -> None:
    bits: BitSource = SeededBits(1)

    assert (sample_laplace(1000, 50, bits=bits) != sample_laplace(1000, 50, bits=bits)).any()


def test_wide_scales_give_python_integers_of_both_signs() -> None:
    values = sample_laplace(2**60, 400, bits=SeededBits(2))

    assert values.dtype == object
    assert min(values) < -(2**60) < 2**60 < max(values)
