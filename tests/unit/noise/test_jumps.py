from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.unit.noise.scripted import ScriptedBits

from expost.core import Ladder
from expost.noise import SeededBits
from expost.noise.jump_noise import JumpLine, draw_jumps

LADDER = Ladder.of([Fraction(1, 1000), Fraction(1, 7), Fraction(1, 6), 1, 5])


def line(ladder: Ladder = LADDER, *, order: int = 2, coordinates: int = 50) -> JumpLine:
    return JumpLine(
        np.array([float(rung) for rung in ladder]), ladder.__getitem__, order=order, coordinates=coordinates
    )


def stay(order: int, low: Fraction, high: Fraction) -> mpmath.mpf:
    """The kernel's probability of no jump, from its definition."""
    a, b = (mpmath.exp(-mpmath.mpf(each.numerator) / each.denominator) for each in (low, high))
    return b / a * ((1 - a) / (1 - b)) ** order


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("length", [64, 200])
def test_borders_are_sums_of_minus_log_stay_probabilities(order: int, length: int) -> None:
    subject = line(order=order, coordinates=3)

    with mpmath.workprec(500):
        place = mpmath.mpf(0)
        for cell in range(subject.cells):
            low, high = subject.border(cell, 0, length)
            assert low <= place * mpmath.mpf(2) ** length <= high
            assert high - low <= 40
            step = cell // 3
            place -= mpmath.log(stay(order, LADDER[3 - step], LADDER[4 - step]))


def test_float_borders_stay_within_their_error() -> None:
    ladder = Ladder.geometric(1e-5, 10, rungs=200)
    subject = line(ladder, coordinates=1000)

    for step in range(0, 200, 13):
        low, high = subject.border(step * 1000, 0, 200)
        assert abs(Fraction(float(subject.borders[step])) * 2**200 - low) <= Fraction(subject.error) / 3 * 2**200
        assert high - low <= 10**5


def test_a_border_can_be_seen_from_the_start_of_a_row() -> None:
    subject = line()
    low, high = subject.border(60, 0, 64)

    assert subject.border(60, 2, 64) == (low - (2 << 64), high - (2 << 64))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("coordinates", [1, 7, 300])
def test_giving_up_on_floats_changes_nothing(order: int, coordinates: int) -> None:
    quick = draw_jumps(line(order=order, coordinates=coordinates), SeededBits(1))
    cautious = line(order=order, coordinates=coordinates)
    cautious.error, cautious.densities = 0.01, np.minimum(cautious.densities, 100)
    slow = draw_jumps(cautious, SeededBits(1))

    assert (quick[0] == slow[0]).all()
    assert (quick[1] == slow[1]).all()


def test_jumps_come_in_order_and_only_once() -> None:
    steps, coordinates = draw_jumps(line(coordinates=2000), SeededBits(2))
    keys = steps * 2000 + coordinates

    assert (np.diff(keys) > 0).all()
    assert 0 <= steps.min() <= steps.max() <= 3
    assert 0 <= coordinates.min() <= coordinates.max() < 2000


@pytest.mark.parametrize("order", [1, 2])
def test_each_step_jumps_as_often_as_the_kernel_says(order: int) -> None:
    count = 100_000
    steps, _ = draw_jumps(line(order=order, coordinates=count), SeededBits(3))

    for step in range(4):
        jump = 1 - float(stay(order, LADDER[3 - step], LADDER[4 - step]))
        assert abs((steps == step).sum() - count * jump) < 6 * (count * jump * (1 - jump)) ** 0.5 + 1


def test_jumps_of_different_steps_and_coordinates_are_independent() -> None:
    count = 50_000
    steps, coordinates = draw_jumps(line(coordinates=count), SeededBits(4))
    jumped = np.zeros((4, count))
    jumped[steps, coordinates] = 1

    correlations = np.corrcoef(np.vstack([jumped, np.roll(jumped, 1, axis=1)]))
    assert np.abs(correlations - np.eye(8)).max() < 6 / count**0.5


def test_stay_probabilities_telescope() -> None:
    with mpmath.workprec(200):
        for order in (1, 2):
            direct = stay(order, LADDER[0], LADDER[4])
            product = mpmath.fprod(stay(order, LADDER[i], LADDER[i + 1]) for i in range(4))
            assert abs(direct - product) < mpmath.mpf(2) ** -180


def test_the_work_does_not_grow_with_the_rungs() -> None:
    drawn = []
    for rungs in (10, 10_000):
        bits = ScriptedBits()
        ladder = Ladder.geometric(1e-4, 1, rungs=rungs)
        draw_jumps(line(ladder, coordinates=500), bits)
        drawn.append(bits.drawn)

    assert drawn[1] < 1.1 * drawn[0]


def test_the_work_grows_with_the_logarithm_of_the_range() -> None:
    jumps = [
        len(draw_jumps(line(Ladder.geometric(low, 0.1, rungs=2000), coordinates=2000), SeededBits(5))[0])
        for low in (1e-3, 1e-5)
    ]

    assert jumps[1] == pytest.approx(2 * jumps[0], rel=0.05)
    assert jumps[0] == pytest.approx(2000 * 2 * np.log(100), rel=0.05)


def test_a_ladder_of_one_rung_has_no_jumps() -> None:
    steps, coordinates = draw_jumps(line(Ladder.of([1])), SeededBits(6))

    assert steps.size == coordinates.size == 0


def test_short_lines_often_have_no_jump_at_all() -> None:
    near = Ladder.of([1, Fraction(11, 10)])
    jumped = sum(draw_jumps(line(near, coordinates=1), SeededBits(seed))[0].size for seed in range(2000))

    probability = 1 - float(stay(2, near[0], near[1]))
    assert abs(jumped - 2000 * probability) < 6 * (2000 * probability * (1 - probability)) ** 0.5


def test_no_coordinates_have_no_jumps() -> None:
    assert draw_jumps(line(coordinates=0), SeededBits(6))[0].size == 0


def test_rungs_that_floats_cannot_tell_apart_are_told_apart() -> None:
    near = Ladder.of([Fraction(1), Fraction(1) + Fraction(1, 2**60), Fraction(2)])
    steps, _ = draw_jumps(line(near, coordinates=20_000), SeededBits(7))

    jump = 1 - float(stay(2, near[1], near[2]))
    assert abs((steps == 0).sum() - 20_000 * jump) < 6 * (20_000 * jump * (1 - jump)) ** 0.5
    assert (steps == 1).sum() == 0  # probability 2^-60 each


def test_a_point_in_a_step_shorter_than_the_error_is_found_exactly() -> None:
    near = Ladder.of([Fraction(1), Fraction(2), Fraction(2) + Fraction(1, 2**20)])
    quick = draw_jumps(line(near, coordinates=3000), SeededBits(9))
    cautious = line(near, coordinates=3000)
    cautious.error = 1e-4  # a hundred cells of the first step
    cautious.densities = np.minimum(cautious.densities, 1e4)
    slow = draw_jumps(cautious, SeededBits(9))

    assert (quick[0] == slow[0]).all()
    assert (quick[1] == slow[1]).all()


def test_steep_ladders_jump_almost_surely() -> None:
    steep = Ladder.of([Fraction(1, 10**9), 900])
    steps, coordinates = draw_jumps(line(steep, coordinates=20), SeededBits(8))

    assert coordinates.tolist() == list(range(20))
    assert not steps.any()
