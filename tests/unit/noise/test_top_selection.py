"""Several picks have the law of rounds of permute-and-flip."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from expost.audit.noise_laws import permute_and_flip_law
from expost.core import InvalidRequest, Norm, Sensitivity
from expost.noise import SeededBits, TopSelection

SENSITIVITY = Sensitivity(1, Norm.LINF)


def test_the_picks_have_the_law_of_rounds_among_those_left() -> None:
    scores, runs = [3, 2, 0], 40_000
    a = exp(-1 / 2)  # two rounds at epsilon 1 each, gaps may move by 2

    drawn = TopSelection(Fraction(2), picks=2).simulate(scores, SENSITIVITY, runs=runs, bits=SeededBits(1))

    for first, chance in permute_and_flip_law([0, 1, 3], a).items():
        left = [index for index in range(3) if index != first]
        best = max(scores[index] for index in left)
        for place, second in permute_and_flip_law([best - scores[index] for index in left], a).items():
            expected = chance * second
            found = ((drawn[:, 0] == first) & (drawn[:, 1] == left[place])).mean()
            assert abs(found - expected) < 5 * np.sqrt(expected / runs)


def test_a_pick_is_never_repeated_and_all_can_be_picked() -> None:
    drawn = TopSelection(1, picks=4).simulate([5, 1, 9, 9], SENSITIVITY, runs=50, bits=SeededBits(2))

    assert (np.sort(drawn, axis=1) == np.arange(4)).all()


def test_large_scores_are_compared_exactly() -> None:
    scores = [2**61, -(2**61), 2**61 - 5000]

    picked = TopSelection(2, picks=2).simulate(scores, SENSITIVITY, runs=20, bits=SeededBits(3))

    assert (np.sort(picked, axis=1) == [0, 2]).all()


@pytest.mark.parametrize("picks", [0, -1, True, 1.5])
def test_a_wrong_number_of_picks_is_refused(picks: object) -> None:
    with pytest.raises(InvalidRequest, match="picks"):
        TopSelection(1, picks=picks)  # type: ignore[arg-type]


def test_more_picks_than_candidates_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="as many picks"):
        TopSelection(1, picks=3).simulate([1, 2], SENSITIVITY, runs=1)


def test_the_shortfall_holds_for_all_picks_together() -> None:
    mechanism, scores = TopSelection(2, picks=2), np.array([40, 30, 20, 0])
    drawn = mechanism.simulate(scores, SENSITIVITY, runs=5000, bits=SeededBits(4))
    most = mechanism.shortfall(SENSITIVITY, 0.1, candidates=4)

    first = scores.max() - scores[drawn[:, 0]]
    left = np.where(drawn[:, :1] == 0, 30, 40)[:, 0] - scores[drawn[:, 1]]
    assert (np.maximum(first, left) > most).mean() <= 0.1
