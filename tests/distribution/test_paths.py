"""Every rung of every path has the law it promises, alone and as a step from its neighbour."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.distribution.goodness import (
    FALSE_ALARM,
    SAMPLES,
    follows,
    gaussian_cdf,
    geometric_cdf,
    laplace_cdf,
    notices_wrong_scales,
)

from expost.core import Ladder, Norm, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, GaussianPath, GeometricPath, RadialLaplacePath, SeededBits

LADDER = Ladder.of([0.02, 0.03, 0.1, 0.11, 1, 3])
ZEROS = np.zeros(SAMPLES, int)


def laplace_path(sensitivity: Fraction, seed: int) -> DiscreteLaplacePath:
    return DiscreteLaplacePath(Sealed(ZEROS, Sensitivity(sensitivity)), LADDER, bits=SeededBits(seed))


@pytest.mark.parametrize("sensitivity", [Fraction(1), Fraction(3, 2), Fraction(2**40)])
def test_every_rung_of_a_laplace_path_has_its_law(sensitivity: Fraction) -> None:
    path = laplace_path(sensitivity, 1)

    for rung, level in enumerate(LADDER):
        cdf = laplace_cdf(float(sensitivity / level))
        assert follows(path.at(rung), cdf)


@pytest.mark.parametrize("rung", [0, 3, 5])
def test_the_path_test_notices_wrong_scales(rung: int) -> None:
    cdf = laplace_cdf(float(4 / LADDER[rung]))

    assert notices_wrong_scales(lambda factor: laplace_path(4 * Fraction(factor), 2).at(rung), cdf)


def test_steps_between_rungs_have_the_law_of_the_kernel() -> None:
    block = laplace_path(Fraction(1), 3).block(0, len(LADDER))

    for rung in range(len(LADDER) - 1):
        low, high = float(LADDER[rung]), float(LADDER[rung + 1])
        stay = (np.sinh(low / 2) / np.sinh(high / 2)) ** 2
        a = np.exp(-low)
        unmoved = stay + (1 - stay) * (1 - a) / (1 + a)
        step = block[rung] - block[rung + 1]
        spread = (SAMPLES * unmoved * (1 - unmoved)) ** 0.5
        assert abs((step == 0).sum() - SAMPLES * unmoved) < 6 * spread
        assert follows(step[step > 0] - 1, geometric_cdf(1 / low))


def test_steps_do_not_depend_on_the_rung_above() -> None:
    block = laplace_path(Fraction(1), 4).block(0, len(LADDER))

    for rung in range(len(LADDER) - 1):
        step, above = block[rung] - block[rung + 1], block[rung + 1]
        assert abs(np.corrcoef(step, above)[0, 1]) < 6 / SAMPLES**0.5
        assert abs(np.corrcoef(step != 0, np.abs(above))[0, 1]) < 6 / SAMPLES**0.5


def test_coordinates_jump_independently() -> None:
    block = laplace_path(Fraction(1), 5).block(0, 3)
    jumped = block[0] != block[1]

    assert abs(np.corrcoef(jumped[:-1], jumped[1:])[0, 1]) < 6 / SAMPLES**0.5


def test_a_refined_path_has_the_law_of_a_path_drawn_whole() -> None:
    path = DiscreteLaplacePath(Sealed(ZEROS, Sensitivity(1)), LADDER.rungs[:2], bits=SeededBits(6))
    for level in LADDER.rungs[2:]:
        path.refine(level)

    block = path.block(0, len(LADDER))
    for rung, level in enumerate(LADDER):
        assert follows(block[rung], laplace_cdf(float(1 / level)))
    for rung in range(len(LADDER) - 1):  # a step down is independent of where it starts, in both directions of drawing
        low, high = float(LADDER[rung]), float(LADDER[rung + 1])
        step = block[rung] - block[rung + 1]
        stay = (np.sinh(low / 2) / np.sinh(high / 2)) ** 2
        a = np.exp(-low)
        unmoved = stay + (1 - stay) * (1 - a) / (1 + a)
        assert abs((step == 0).sum() - SAMPLES * unmoved) < 6 * (SAMPLES * unmoved * (1 - unmoved)) ** 0.5
        assert follows(step[step > 0] - 1, geometric_cdf(1 / low))
        assert abs(np.corrcoef(step, block[rung + 1])[0, 1]) < 6 / SAMPLES**0.5


def test_refinement_works_on_wide_lattices() -> None:
    sensitivity = Sensitivity(2**40)
    path = DiscreteLaplacePath(Sealed(ZEROS[:30_000], sensitivity), [Fraction(1, 32)], bits=SeededBits(7))
    rung = path.refine(Fraction(1, 25))

    assert follows(path.at(0), laplace_cdf(2.0**45))
    assert follows(path.at(rung), laplace_cdf(25 * 2.0**40))


@pytest.mark.parametrize("sensitivity", [Fraction(1), Fraction(2**40)])
def test_every_rung_of_a_geometric_path_has_its_law(sensitivity: Fraction) -> None:
    path = GeometricPath(Sensitivity(sensitivity), LADDER, size=SAMPLES, bits=SeededBits(8))

    for rung, level in enumerate(LADDER):
        assert follows(path.at(rung), geometric_cdf(float(sensitivity / level)))
    assert (np.diff(path.block(0, len(LADDER)), axis=0) <= 0).all()  # one-sided noise only ever shrinks


def test_the_geometric_path_test_notices_wrong_scales() -> None:
    def wrong(factor: float) -> np.ndarray:
        sensitivity = Sensitivity(4 * Fraction(factor))
        return GeometricPath(sensitivity, LADDER, size=SAMPLES, bits=SeededBits(9)).at(2)

    assert notices_wrong_scales(wrong, geometric_cdf(4 / 0.1))


def gaussian_path(sensitivity: Fraction, seed: int) -> GaussianPath:
    sealed = Sealed(ZEROS, Sensitivity(sensitivity, Norm.L2))
    return GaussianPath(sealed, LADDER, bits=SeededBits(seed))


def test_every_release_of_a_gaussian_path_has_its_law() -> None:
    path = gaussian_path(Fraction(20), 10)

    before = Fraction(0)
    for rung, level in enumerate(LADDER):
        assert follows(path.release(rung), gaussian_cdf(float(400 / (2 * (level - before)))))
        before = level


def test_the_gaussian_path_test_notices_wrong_scales() -> None:
    cdf = gaussian_cdf(400 / (2 * 0.02))

    assert notices_wrong_scales(lambda factor: gaussian_path(20 * Fraction(factor), 11).release(0), cdf)


def test_estimates_of_a_gaussian_path_move_like_brownian_noise_reduction() -> None:
    estimates = gaussian_path(Fraction(20), 12).block(0, len(LADDER))
    levels = np.array([float(level) for level in LADDER])

    expected = 400 / (2 * np.maximum.outer(levels, levels))  # covariance 1 / max of the precisions
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(np.cov(estimates) - expected) / scale < 0.03).all()


@pytest.mark.parametrize("size", [1, 3])
def test_every_rung_of_a_radial_path_has_its_law(size: int) -> None:
    ladder = Ladder.of([0.5, 0.8, 2])
    sealed = Sealed(np.zeros(size), Sensitivity(1, Norm.L2))
    bits = SeededBits(13)
    paths = np.array([RadialLaplacePath(sealed, ladder, bits=bits).block(0, 3) for _ in range(4000)])

    radii = np.linalg.norm(paths, axis=2)
    for rung, level in enumerate(ladder):
        law = stats.gamma(size, scale=1 / float(level))
        assert stats.kstest(radii[:, rung], law.cdf).pvalue > FALSE_ALARM
        assert stats.kstest(radii[:, rung] * 1.2, law.cdf).pvalue < FALSE_ALARM
