"""A remainder read under noise: accepted no more often than computed, whatever it depends on."""

from fractions import Fraction

import numpy as np
import pytest

from expost.accuracy.noisy_remainder import CELLS, CLIMB_COST, RATIO, THRESHOLDS, acceptance, largest_scale
from expost.core import Ladder, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, SeededBits

FIRST = 10_000  # the noise of the first rung, in grid units
LEVELS = Ladder(tuple(Fraction(1, FIRST) * RATIO**rung for rung in range(len(THRESHOLDS))))


@pytest.fixture(scope="module")
def rungs() -> np.ndarray:
    """Noise of whole paths, one column a path, in units of the first rung's."""
    bits, size = SeededBits(11), 200_000
    # Each coordinate of a path has its own coins; with sensitivity 1 a level is a rate.
    path = DiscreteLaplacePath(Sealed(np.zeros(size, dtype=np.int64), Sensitivity(1)), LEVELS, bits=bits)
    return path.block(0, len(THRESHOLDS)) / FIRST


def highest_accepted(rungs: np.ndarray) -> np.ndarray:
    """The largest remainder that some rung of each path accepts."""
    return (np.array([float(each) for each in THRESHOLDS])[:, None] - rungs).max(axis=0)


def test_no_remainder_is_accepted_more_often_than_bounded(rungs: np.ndarray) -> None:
    accepted = highest_accepted(rungs)
    for remainder in (0.5, 1.0, 2.0, 3.0, 4.0, 6.0):
        share = float(np.mean(accepted >= remainder))
        bound = float(acceptance(np.array([remainder]))[0])
        error = np.sqrt(share * (1 - share) / len(accepted))
        assert share <= bound + 3 * error
        # Noise a tenth larger would break the bound.
        if remainder >= 3:
            assert bound < share * 1.05
            assert float(np.mean(accepted * 1.1 >= remainder)) > bound + 3 * error


def test_a_climb_over_nothing_costs_what_is_planned_and_hardly_ever_fails(rungs: np.ndarray) -> None:
    accepts = rungs <= np.array([float(each) for each in THRESHOLDS])[:, None]
    stopped = np.where(accepts.any(axis=0), accepts.argmax(axis=0), len(THRESHOLDS) - 1)

    assert np.mean(float(RATIO) ** stopped) == pytest.approx(CLIMB_COST, rel=0.02)
    assert np.mean(~accepts.any(axis=0)) < 0.005


@pytest.mark.parametrize("failure", [0.02, 0.1, 0.3])
def test_the_worst_dependence_of_remainder_on_room_uses_the_failures_up(rungs: np.ndarray, failure: float) -> None:
    # The room is 100 minus a square of an exponential: P(known > t) is exact. The remainder is as large as the room.
    known = np.log(1 / CELLS) ** 2 * 5
    scale = largest_scale(100 - known, Fraction(failure), grid=1e-6)
    assert scale is not None
    draws = np.random.default_rng(0).exponential(size=rungs.shape[1]) ** 2 * 5

    failed = np.mean(highest_accepted(rungs) * scale >= 100 - draws)

    assert 0.9 * failure < failed <= failure + 3 * np.sqrt(failure / rungs.shape[1])


def test_no_noise_is_found_where_the_known_part_fails_too_often_by_itself() -> None:
    assert largest_scale(np.full(len(CELLS), -1.0), Fraction(1, 10), grid=1e-6) is None


def test_a_coarse_grid_costs_noise_and_never_failures() -> None:
    rooms = np.full(len(CELLS), 50.0)
    fine, coarse = (largest_scale(rooms, Fraction(1, 10), grid=grid) for grid in (1e-9, 1e-3))

    assert fine is not None and coarse is not None and coarse < fine
