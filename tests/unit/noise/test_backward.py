from fractions import Fraction

import numpy as np
import pytest

from expost.noise import SeededBits, laplace_path
from expost.noise.laplace_path import draw_less_noise

PAIRS = [(Fraction(9, 10), Fraction(1, 2)), (Fraction(99, 100), Fraction(97, 100)), (Fraction(1, 2), Fraction(1, 3))]


def laplace(a: Fraction, k: int) -> Fraction:
    return (1 - a) / (1 + a) * a ** abs(k)


@pytest.mark.parametrize(("a1", "a2"), PAIRS)
def test_the_stay_probability_is_bayes_rule(a1: Fraction, a2: Fraction) -> None:
    w = a2 / a1 * ((1 - a1) / (1 - a2)) ** 2

    for k in range(-25, 26):
        # exp(-(f - e) (|k| + 1)) (1 - exp(-2 e)) / (1 - exp(-2 f)), with a1 = exp(-e), a2 = exp(-f)
        stays = (a2 / a1) ** (abs(k) + 1) * (1 - a1**2) / (1 - a2**2)
        assert stays == w * laplace(a2, k) / laplace(a1, k)


@pytest.mark.parametrize(("a1", "a2"), PAIRS)
@pytest.mark.parametrize("k", [-7, -1, 0, 1, 5])
def test_accepted_proposals_have_the_backward_law(a1: Fraction, a2: Fraction, k: int) -> None:
    sign = -1 if k < 0 else 1
    ratios = set()
    for step in range(-20, 21):
        proposed = (a2 / a1) ** abs(step)
        accepted = a1 ** (2 * max(-step, step - abs(k), 0))
        j = sign * step
        ratios.add(proposed * accepted / (a2 ** abs(j) * a1 ** abs(k - j)))

    assert len(ratios) == 1


@pytest.mark.parametrize(("a1", "a2"), [*PAIRS, (Fraction(10**6 - 1, 10**6), Fraction(1, 10**6))])
def test_two_proposals_are_enough_on_average(a1: Fraction, a2: Fraction) -> None:
    w = a2 / a1 * ((1 - a1) / (1 - a2)) ** 2
    rho = a2 / a1
    proposals = (1 - w) * (1 - a2) / (1 + a2) * (1 + rho) / (1 - rho)

    assert proposals == (1 - a1 * a2) * (1 + rho) / (1 - a2**2)
    assert proposals <= 2


@pytest.mark.parametrize(("rate", "finer"), [(Fraction(1, 50), Fraction(1, 40)), (Fraction(1, 3), Fraction(2))])
def test_giving_up_on_floats_changes_nothing(rate, finer, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.arange(-200, 200)
    quick = draw_less_noise(noise, rate, finer, SeededBits(1))
    monkeypatch.setattr(laplace_path, "_ERROR", 0.02)
    slow = draw_less_noise(noise, rate, finer, SeededBits(1))

    assert (quick == slow).all()


def test_the_joint_law_of_both_rungs_is_the_forward_one() -> None:
    rate, finer = Fraction(2, 5), Fraction(1)
    a1, a2 = np.exp(-0.4), np.exp(-1.0)
    count = 200_000
    from expost.noise import sample_laplace

    noisy = sample_laplace(1 / rate, count, bits=SeededBits(2))
    less = draw_less_noise(noisy, rate, finer, SeededBits(3))

    w = a2 / a1 * ((1 - a1) / (1 - a2)) ** 2
    for j in range(-3, 4):
        for k in range(-4, 5):
            kernel = (w if j == k else 0) + (1 - w) * (1 - a1) / (1 + a1) * a1 ** abs(k - j)
            probability = (1 - a2) / (1 + a2) * a2 ** abs(j) * kernel
            seen = ((less == j) & (noisy == k)).sum()
            assert abs(seen - count * probability) < 6 * (count * probability) ** 0.5


def test_python_integers_are_refined_too() -> None:
    noise = np.array([2**70, -(2**70), 0], dtype=object)
    less = draw_less_noise(noise, Fraction(1, 2**60), Fraction(1, 2**59), SeededBits(4))

    assert less.dtype == object
    assert less.tolist() != noise.tolist()
