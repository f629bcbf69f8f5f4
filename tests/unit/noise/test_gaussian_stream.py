"""A stream gives fresh Gaussian noise to every vector, and refuses what it was not opened for."""

import copy
import os
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.distribution.goodness import SAMPLES, WRONG, follows, gaussian_cdf

from expost.core import InvalidRequest, Norm, Sealed, Sensitivity
from expost.noise import SeededBits
from expost.noise.gaussian_stream import SMOOTHING, GaussianStream, stream_variance

STEP = Sensitivity(1000, Norm.L2)


def opened(multiplier: float = 2.0, size: int = 5, seed: int = 1) -> GaussianStream:
    return GaussianStream(multiplier, STEP, size=size, bits=SeededBits(seed))


def test_the_variance_is_the_multiplier_squared_and_the_smoothing() -> None:
    assert opened().variance == 2000**2 + SMOOTHING
    assert stream_variance(Fraction(1, 2), STEP) == 500**2 + 4


def test_the_released_noise_follows_the_law() -> None:
    stream = opened(size=SAMPLES)

    noise = stream.release(Sealed(np.zeros(SAMPLES, np.int64), STEP))

    assert follows(noise, gaussian_cdf(float(stream.variance)))
    for factor in WRONG:
        wrong = opened(2 * factor, SAMPLES).release(Sealed(np.zeros(SAMPLES, np.int64), STEP))
        assert not follows(wrong, gaussian_cdf(2000.0**2))


def test_no_release_repeats_the_noise_of_another() -> None:
    stream, sealed = opened(size=4), Sealed(np.zeros(4, np.int64), STEP)

    rows = np.array([stream.release(sealed) for _ in range(20_000)])

    assert len(np.unique(rows, axis=0)) == len(rows)
    assert abs(np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]) < 0.02


def test_the_exact_vector_is_added_as_it_is() -> None:
    exact = np.array([10**15, -(10**15), 0, 1, -1])

    moved = opened().release(Sealed(exact, STEP)) - opened().release(Sealed(np.zeros(5, np.int64), STEP))

    assert moved.tolist() == exact.tolist()


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, object])
def test_vectors_of_any_type_get_the_same_noise(kind: type) -> None:
    exact = np.array([20_000, -20_000, 0, 1, -1])

    moved = opened().release(Sealed(exact.astype(kind), STEP)) - opened().release(Sealed(np.zeros(5, np.int64), STEP))

    assert moved.tolist() == exact.tolist()


@pytest.mark.parametrize("entry", [2**30 - 1, 1 - 2**30])
def test_short_vectors_do_not_wrap_around(entry: int) -> None:
    exact = np.full(5, entry, np.int32)

    moved = opened().release(Sealed(exact, STEP)) - opened().release(Sealed(np.zeros(5, np.int64), STEP))

    assert moved.tolist() == [entry] * 5


@pytest.mark.parametrize("entry", [2**62 - 1, 1 - 2**62])
def test_long_vectors_do_not_wrap_around(entry: int) -> None:
    released = opened().release(Sealed(np.full(5, entry, np.int64), STEP))

    assert released.dtype == np.int64
    noise = [int(value) - entry for value in released]
    assert noise == opened().release(Sealed(np.zeros(5, np.int64), STEP)).tolist()


def test_vectors_of_any_length_are_added_as_python_integers() -> None:
    released = opened().release(Sealed(np.array([2**70, -(2**70), 0, 1, -1], object), STEP))

    moved = released - opened().release(Sealed(np.zeros(5, np.int64), STEP))
    assert moved.tolist() == [2**70, -(2**70), 0, 1, -1]


def test_noise_is_drawn_where_used_noise_was_and_never_given_twice() -> None:
    stream = GaussianStream(2, STEP, size=1 << 18, bits=SeededBits(3))
    zeros = Sealed(np.zeros(1 << 18, np.int32), STEP)

    released = [stream.release(zeros) for _ in range(6)]  # three draws

    values = np.concatenate(released)
    assert abs(values.std() / 2000 - 1) < 0.005
    for later in range(1, 6):
        for earlier in range(later):
            assert abs(np.corrcoef(released[earlier], released[later])[0, 1]) < 0.01


@pytest.mark.parametrize(("multiplier", "kind"), [(2.0, np.int32), (2.0**19, np.int64)])
def test_the_type_of_a_release_depends_on_the_noise_alone(multiplier: float, kind: type) -> None:
    for entry in (0, 2**30 - 1):
        assert opened(multiplier).release(Sealed(np.full(5, entry, np.int32), STEP)).dtype == kind


@pytest.mark.parametrize(
    "sealed",
    [
        pytest.param(Sealed(np.zeros(5, np.int64), Sensitivity(1001, Norm.L2)), id="larger sensitivity"),
        pytest.param(Sealed(np.zeros(5, np.int64), Sensitivity(1000, Norm.LINF)), id="other norm"),
        pytest.param(Sealed(np.zeros(4, np.int64), STEP), id="other size"),
    ],
)
def test_a_vector_it_was_not_opened_for_is_refused(sealed: Sealed) -> None:
    with pytest.raises(InvalidRequest):
        opened().release(sealed)


def test_only_an_l2_sensitivity_opens_a_stream() -> None:
    with pytest.raises(InvalidRequest, match="L2"):
        GaussianStream(1, Sensitivity(10), size=1)


def test_a_stream_cannot_be_copied_and_shows_no_noise() -> None:
    stream = opened()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(stream)

    assert repr(stream) == "<Gaussian noise of variance 4e+06 for vectors of 5>"
    assert not stream.private


def test_the_smoothing_keeps_the_slack_that_is_stated() -> None:
    # docs/proofs/discrete-gaussian-calibration.md with t^2 = SMOOTHING: c(y) is within r of 1, and 2.1 r is the slack.
    with mpmath.workdps(60):
        t2 = mpmath.mpf(SMOOTHING)
        r = 2 * mpmath.fsum(mpmath.exp(-2 * mpmath.pi**2 * t2 * j * j) for j in range(1, 6))
        for y in (mpmath.mpf(0), mpmath.mpf(1) / 4, mpmath.mpf(1) / 2):
            masses = (mpmath.exp(-((k - y) ** 2) / (2 * t2)) for k in range(-60, 61))
            c = mpmath.fsum(masses) / mpmath.sqrt(2 * mpmath.pi * t2)
            assert abs(c - 1) <= r * (1 + mpmath.mpf("1e-10"))

        assert mpmath.mpf("2.1") * r < mpmath.mpf("2.2e-34")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_use_its_parents_noise() -> None:
    stream, sealed = GaussianStream(2, STEP, size=4), Sealed(np.zeros(4, np.int64), STEP)
    stream.release(sealed)
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(writer, stream.release(sealed).tobytes())
        os._exit(0)
    theirs = np.frombuffer(os.read(reader, 32), np.int64)
    os.waitpid(child, 0)

    assert not (theirs == stream.release(sealed)).any()


def test_blocks_drawn_ahead_are_all_different() -> None:
    stream, sealed = GaussianStream(2, STEP, size=50_000), Sealed(np.zeros(50_000, np.int64), STEP)

    rows = np.array([stream.release(sealed)[:8] for _ in range(40)])

    assert len(np.unique(rows, axis=0)) == 40


def test_a_seeded_stream_can_be_repeated() -> None:
    sealed = Sealed(np.zeros(50_000, np.int64), STEP)
    one, two = (opened(size=50_000, seed=3) for _ in range(2))

    for _ in range(15):
        assert (one.release(sealed) == two.release(sealed)).all()
