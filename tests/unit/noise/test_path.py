import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Ladder, Norm, SealBroken, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, GaussianPath, SeededBits
from expost.noise.laplace_path import _narrow_integers
from expost.noise.release_path import check_norm, check_rung, read_ladder

LADDER = Ladder.of([0.1, 0.2, 0.5, 1])


@pytest.mark.parametrize("rung", [-1, 4, 1.0, True, None])
def test_only_an_index_names_a_rung(rung) -> None:
    with pytest.raises(InvalidRequest, match="rung from 0 to 3"):
        check_rung(LADDER, rung)


def test_a_block_is_a_range_of_rungs() -> None:
    path = DiscreteLaplacePath(Sealed(1, Sensitivity(1)), LADDER, bits=SeededBits(1))

    assert path.block(1, 4).shape == (3, 1)
    for start, stop in ((0, 0), (2, 2), (3, 1), (-1, 2), (0, 5)):
        with pytest.raises(InvalidRequest):
            path.block(start, stop)


def test_a_ladder_may_be_plain_numbers() -> None:
    assert read_ladder([0.1, 0.2, 0.5, 1]) == LADDER
    assert read_ladder(LADDER) is LADDER


def test_the_norm_of_the_sensitivity_is_the_one_of_the_noise() -> None:
    sealed = Sealed(1, Sensitivity(Fraction(7, 2), Norm.L2))

    assert check_norm(sealed, Norm.L2) == Fraction(7, 2)
    with pytest.raises(InvalidRequest, match="L1"):
        check_norm(sealed, Norm.L1)


@pytest.mark.parametrize(
    ("exact", "dtype"),
    [
        (5, object),
        (2**62, object),
        ([5, 2**70], object),
        (np.array([1, 2], np.int8), np.int64),
        (np.array([2**63 - 1]), np.int64),
        (np.array([5], np.uint64), object),
        (np.array([2**63], np.uint64), object),
    ],
)
def test_sealed_integers_become_a_column_of_a_type_that_their_type_sets(exact, dtype) -> None:
    column = DiscreteLaplacePath(Sealed(exact, Sensitivity(1)), LADDER, bits=SeededBits(1))._exact

    assert column.dtype == dtype
    assert column.tolist() == np.atleast_1d(np.asarray(exact, object)).tolist()


def test_values_are_narrowed_only_when_they_fit() -> None:
    assert _narrow_integers(np.array([1, -(2**63)], dtype=object)).dtype == np.int64
    assert _narrow_integers(np.array([1, 2**63], dtype=object)).dtype == object


def test_threads_that_read_at_once_see_one_answer() -> None:
    path = GaussianPath(Sealed(np.zeros(2000, int), Sensitivity(1, Norm.L2)), LADDER)
    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.append(path.release(3).tobytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(seen)) == 1
    assert len(path._releases) == 4


def test_the_other_side_of_a_fork_cannot_draw_a_second_answer() -> None:
    code = """
import os, sys
from expost.core import *
from expost.noise import DiscreteLaplacePath, GaussianPath
laplace = DiscreteLaplacePath(Sealed(1, Sensitivity(1)), [0.1, 1])
gaussian = GaussianPath(Sealed(1, Sensitivity(1, Norm.L2)), [0.1, 1])
gaussian.at(0)
if os.fork() == 0:
    laplace.at(1), gaussian.at(0)  # drawn before the fork: the same on both sides
    for draw in (lambda: laplace.refine(2), lambda: gaussian.at(1)):
        try:
            draw()
            print("drawn")
        except InvalidRequest:
            print("refused")
    sys.stdout.flush()
    os._exit(0)
os.wait()
gaussian.at(1), laplace.refine(2)
print("continued")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["refused", "refused", "continued"]


def test_a_path_keeps_its_seal() -> None:
    path = DiscreteLaplacePath(Sealed(1, Sensitivity(1)), LADDER, bits=SeededBits(1))

    with pytest.raises((SealBroken, TypeError)):
        int(path)  # type: ignore[call-overload]
