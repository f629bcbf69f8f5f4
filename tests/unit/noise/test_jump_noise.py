from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Ladder
from expost.noise import SeededBits, jump_noise
from expost.noise.jump_noise import JumpNoise, check_rates
from expost.noise.lattice_sampler import draw_laplace

LADDER = Ladder.of([0.1, 0.2, 0.5, 1])


def example() -> JumpNoise:
    """Two coordinates; the first jumps at rungs 2 and 0, the second at rung 1."""
    return JumpNoise(np.array([1, 2]), np.array([2, 1, 0]), np.array([0, 1, 0]), np.array([10, 200, 3000]))


def test_a_rung_adds_the_jumps_of_its_own_and_of_less_private_rungs() -> None:
    noise = example()

    assert noise.at(3).tolist() == [1, 2]
    assert noise.at(2).tolist() == [11, 2]
    assert noise.at(1).tolist() == [11, 202]
    assert noise.at(0).tolist() == [3011, 202]


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (3, 4), (0, 1)])
def test_a_block_holds_its_rungs(start: int, stop: int) -> None:
    noise = example()

    assert (noise.block(start, stop) == np.array([noise.at(rung) for rung in range(start, stop)])).all()


@pytest.mark.parametrize(
    ("top", "sizes", "kind"), [(2**61, 2**60, np.int64), (2**61, 2**61, object), (1, -(2**62), object)]
)
def test_sums_that_could_leave_64_bits_are_python_integers(top: int, sizes: int, kind: type) -> None:
    noise = JumpNoise(np.array([top, 2]), np.array([2]), np.array([0]), np.array([sizes]))

    assert noise.block(0, 4).dtype == kind
    assert noise.at(0).tolist() == [top + sizes, 2]


def test_a_new_top_leaves_the_rungs_below_as_they_were() -> None:
    longer = example().extend(np.array([0, 2]), 3)

    assert longer.at(4).tolist() == [0, 2]
    assert (longer.block(0, 4) == example().block(0, 4)).all()


def test_noise_that_is_none_and_noise_without_end_are_refused() -> None:
    check_rates(Ladder.of([1, 1000]), Fraction(1))
    with pytest.raises(InvalidRequest, match="any noise is left"):
        check_rates(Ladder.of([1, 1001]), Fraction(1))
    with pytest.raises(InvalidRequest, match=r"2\^60"):
        check_rates(Ladder.of([1]), Fraction(2**60 + 1))


def test_many_coordinates_are_drawn_on_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump_noise, "_LINE", 70)
    noise = JumpNoise.draw(LADDER, Fraction(1), 500, order=2, sampler=draw_laplace, bits=SeededBits(2))

    assert noise.top.shape == (500,)
    assert (np.diff(noise.rungs) <= 0).all()
    assert len({*zip(noise.rungs.tolist(), noise.coordinates.tolist(), strict=True)}) == len(noise.rungs)
    for start in range(0, 500, 70):  # every line jumps about as often: 1 - w(0.1, 1) is 0.99
        assert np.isin(np.arange(start, min(start + 70, 500)), noise.coordinates).mean() > 0.85
