import pickle
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Ladder, Sensitivity
from expost.noise import GeometricPath, SeededBits

LADDER = Ladder.of([0.1, 0.5, 2])


def geometric(a: Fraction, k: int) -> Fraction:
    return (1 - a) * a**k if k >= 0 else Fraction(0)


def kernel(a1: Fraction, a2: Fraction, jump: int) -> Fraction:
    w = a2 / a1 * (1 - a1) / (1 - a2)
    return (w if jump == 0 else 0) + (1 - w) * geometric(a1, jump)


@pytest.mark.parametrize(("a1", "a2"), [(Fraction(9, 10), Fraction(1, 2)), (Fraction(99, 100), Fraction(97, 100))])
def test_the_kernel_turns_one_rung_into_the_next_exactly(a1: Fraction, a2: Fraction) -> None:
    for k in range(60):
        mixed = sum(geometric(a2, j) * kernel(a1, a2, k - j) for j in range(k + 1))
        assert mixed == geometric(a1, k)


def test_a_prefix_moved_up_costs_its_last_rung() -> None:
    a1, a2 = Fraction(9, 10), Fraction(1, 2)
    worst = max(
        geometric(a2, top) * kernel(a1, a2, jump) / (geometric(a2, top + 1) * kernel(a1, a2, jump))
        for top in range(20)
        for jump in range(20)
    )

    assert worst == 1 / a2  # exp(epsilon) of the less private rung


def test_noise_never_grows_along_the_ladder() -> None:
    path = GeometricPath(Sensitivity(5), LADDER, size=1000, bits=SeededBits(1))

    assert (np.diff(path.block(0, 3), axis=0) <= 0).all()
    assert (path.at(2) >= 0).all()
    assert (path.at(1) == path.block(0, 3)[1]).all()


def test_a_path_of_noise_is_secret() -> None:
    path = GeometricPath(Sensitivity(5), LADDER, bits=SeededBits(1))

    assert str(int(path.at(0)[0])) not in repr(path)
    with pytest.raises(TypeError):
        pickle.dumps(path)
    assert not path.private


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_path_has_at_least_one_coordinate(size) -> None:
    with pytest.raises(InvalidRequest):
        GeometricPath(Sensitivity(1), LADDER, size=size)


def test_a_bare_number_is_no_sensitivity() -> None:
    with pytest.raises(InvalidRequest, match="Sensitivity"):
        GeometricPath(1, LADDER)  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (2, 1), (0, 4)])
def test_an_empty_or_foreign_block_is_refused(start: int, stop: int) -> None:
    with pytest.raises(InvalidRequest):
        GeometricPath(Sensitivity(1), LADDER).block(start, stop)
