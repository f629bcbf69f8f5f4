"""The lattice kernel of gradual release, in exact rationals: marginals, joint losses, and what a shared coin breaks.

With a = exp(-epsilon / sensitivity) rational, every probability below is a rational number and every law an equality
(docs/proofs/lattice-laplace.md).
"""

import itertools
from fractions import Fraction
from math import log

import pytest

F = Fraction
PAIRS = [
    (F(9, 10), F(1, 2)),
    (F(99, 100), F(97, 100)),
    (F(1, 2), F(1, 3)),
    (F(999, 1000), F(1, 1000)),
    (F(3, 4), F(5, 8)),
]


def laplace(a: Fraction, k: int) -> Fraction:
    return (1 - a) / (1 + a) * a ** abs(k)


def stay(a1: Fraction, a2: Fraction) -> Fraction:
    return a2 / a1 * ((1 - a1) / (1 - a2)) ** 2


def kernel(a1: Fraction, a2: Fraction, jump: int) -> Fraction:
    """The probability that the step from rate a2 down to a1 < a2 in privacy loss adds this much noise."""
    w = stay(a1, a2)
    return (w if jump == 0 else 0) + (1 - w) * laplace(a1, jump)


def convolution(a: Fraction, b: Fraction, k: int) -> Fraction:
    """Sum over all j of laplace(a, j) laplace(b, k - j), in closed form: the tails are geometric series."""
    k = abs(k)
    inner = sum((a**j * b ** (k - j) for j in range(k + 1)), F(0))
    tails = (a**k + b**k) * (a * b) / (1 - a * b)
    return (1 - a) / (1 + a) * (1 - b) / (1 + b) * (inner + tails)


@pytest.mark.parametrize(("a1", "a2"), PAIRS)
def test_the_kernel_turns_one_rung_into_the_next(a1: Fraction, a2: Fraction) -> None:
    w = stay(a1, a2)

    assert 0 < w < 1
    for k in range(60):
        assert laplace(a1, k) == w * laplace(a2, k) + (1 - w) * convolution(a2, a1, k)


@pytest.mark.parametrize(("a1", "a2"), PAIRS)
def test_stay_probabilities_telescope(a1: Fraction, a2: Fraction) -> None:
    between = (a1 + a2) / 2

    assert stay(a1, a2) == stay(a1, between) * stay(between, a2)


@pytest.mark.parametrize(("a1", "a2"), PAIRS)
def test_the_complement_is_as_the_proof_says(a1: Fraction, a2: Fraction) -> None:
    assert 1 - stay(a1, a2) == (1 - a2 / a1) * (1 - a1 * a2) / (1 - a2) ** 2


@pytest.mark.parametrize("rates", [(F(9, 10), F(3, 4), F(1, 2)), (F(1, 2), F(2, 5), F(1, 10))])
def test_the_joint_prefix_loses_exactly_its_last_rung(rates: tuple[Fraction, ...]) -> None:
    for length in (1, 2, 3):
        prefix = rates[:length]
        worst = F(0)
        for last, *jumps in itertools.product(range(-6, 7), repeat=length):
            steps = [
                kernel(low, high, jump) for (low, high), jump in zip(itertools.pairwise(prefix), jumps, strict=True)
            ]
            here, moved = laplace(prefix[-1], last), laplace(prefix[-1], last - 1)
            for step in steps:
                here, moved = here * step, moved * step
            worst = max(worst, here / moved, moved / here)
        assert worst == 1 / prefix[-1]  # exp(epsilon) of the last rung, neither more nor less


def test_the_loss_grows_with_the_distance_up_to_the_sensitivity() -> None:
    a = F(4, 5)  # per lattice unit; sensitivity 3: the loss of a shift by 3 is a^-3

    assert max(laplace(a, k) / laplace(a, k - 3) for k in range(-10, 11)) == a**-3


def joint(a1: Fraction, a2: Fraction, noise: tuple[int, ...], *, shared: bool) -> Fraction:
    """The probability of the more private rung alone, all coordinates together."""
    w = stay(a1, a2)
    if not shared:
        product = F(1)
        for k in noise:
            product *= w * laplace(a2, k) + (1 - w) * convolution(a2, a1, k)
        return product
    kept, moved = w, 1 - w
    for k in noise:
        kept, moved = kept * laplace(a2, k), moved * convolution(a2, a1, k)
    return kept + moved


def loss(a1: Fraction, a2: Fraction, coordinates: int, *, shared: bool) -> float:
    zeros = (0,) * coordinates
    ratio = joint(a1, a2, zeros, shared=shared) / joint(a1, a2, (1, *zeros[1:]), shared=shared)
    return log(ratio)


def test_a_coin_of_its_own_keeps_every_coordinate_private() -> None:
    a1, a2 = F(9, 10), F(1, 3)

    for coordinates in (1, 2, 10):
        assert loss(a1, a2, coordinates, shared=False) == pytest.approx(log(1 / a1))


def test_a_shared_coin_keeps_the_marginals_and_breaks_the_privacy() -> None:
    a1, a2 = F(9, 10), F(1, 3)  # nominal losses 0.105 and 1.1

    for k in range(-10, 11):
        assert joint(a1, a2, (k,), shared=True) == laplace(a1, k)  # one coordinate cannot tell
    assert loss(a1, a2, 2, shared=True) > 3 * log(1 / a1)
    assert loss(a1, a2, 12, shared=True) > 0.99 * log(1 / a2)  # as if the less private rung had been shown


def test_a_stay_probability_without_its_square_misses_the_marginal() -> None:
    a1, a2 = F(9, 10), F(1, 2)
    wrong = a2 / a1 * (1 - a1) / (1 - a2)

    assert laplace(a1, 0) != wrong * laplace(a2, 0) + (1 - wrong) * convolution(a2, a1, 0)


def test_on_a_fine_lattice_the_kernel_is_the_one_of_the_reals() -> None:
    from math import exp

    for h in (1e-2, 1e-4):
        a1, a2 = F(exp(-0.3 * h)), F(exp(-0.9 * h))
        assert float(stay(a1, a2)) == pytest.approx((0.3 / 0.9) ** 2, rel=h)
