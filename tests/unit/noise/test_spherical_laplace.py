"""The law of spherical noise falls off no faster than it says, and its decisions are exact."""

from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest
from scipy import stats

from expost.core import InvalidRequest, Norm, PureGuarantee, PureLoss, Sealed, Sensitivity
from expost.noise import SeededBits, SphericalLaplaceMechanism, sample_spherical_laplace
from expost.noise.spherical_noise import GRID_RATIO, draw_steps, least_step, shape_of

RATIO = float(GRID_RATIO)


STEPS = np.arange(least_step() + 1, 5500)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def log_chances(dimension: int) -> np.ndarray:
    """ln of the probability of each step, up to a constant: the integral of a gamma density over a cell, by quadrature."""
    shape, even = shape_of(dimension), dimension % 2 == 0
    ends = shape * RATIO**STEPS
    inside = (NODES - 1) / 2 * np.log(RATIO)  # the cell is ends * exp(inside)
    cells = np.exp(shape * inside - ends[:, None] * np.expm1(inside)) @ WEIGHTS
    return shape * np.log(ends) - ends + np.log(cells) - even * STEPS / 2 * np.log(RATIO)


def log_law(dimension: int, scale: float, lengths: np.ndarray) -> np.ndarray:
    """ln F at these lengths, without the constant."""
    variances = 2 * scale**2 * shape_of(dimension) * RATIO**STEPS
    # Poisson summation where the variance is large, plain sums where it is small.
    small = np.log(np.exp(-(np.arange(-60, 61) ** 2) / (2 * np.minimum(variances, 9)[:, None])).sum(axis=1))
    sums = np.where(variances > 9, 0.5 * np.log(2 * np.pi * variances), small)
    exponents = log_chances(dimension) - dimension * sums - lengths[:, None] ** 2 / (2 * variances)
    top = exponents.max(axis=1)
    return top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))


@pytest.mark.parametrize("dimension", [1, 2, 3, 6])
@pytest.mark.parametrize("scale", [0.7, 30.0])
def test_the_law_falls_no_faster_than_its_slope(dimension: int, scale: float) -> None:
    lengths = np.concatenate([np.linspace(0, 6, 40), np.geomspace(7, 60, 60)]) * scale

    slopes = -np.diff(log_law(dimension, scale, lengths)) / np.diff(lengths) * scale

    assert slopes.max() <= RATIO * (1 + 1e-9)
    assert slopes.min() >= -1e-9
    assert slopes[60:].min() > 0.98  # tight: a scale 10 % too small would be noticed
    assert (slopes / 0.9).max() > RATIO


@pytest.mark.parametrize("dimension", [1, 4])
def test_steps_have_their_law(dimension: int) -> None:
    drawn = draw_steps(dimension, 40_000, SeededBits(3))

    edges = np.quantile(drawn, np.linspace(0, 1, 30)[1:-1]).astype(int)
    chances = np.exp(log_chances(dimension) - log_chances(dimension).max())
    expected = np.bincount(np.searchsorted(edges, STEPS), chances / chances.sum(), minlength=len(edges) + 1)

    def fit(steps: np.ndarray) -> float:
        observed = np.bincount(np.searchsorted(edges, steps), minlength=len(edges) + 1)
        return float(stats.chisquare(observed, expected * len(steps)).pvalue)

    assert drawn.min() > least_step()
    assert fit(drawn) > 1e-4
    assert fit(drawn + 100) < 1e-4 and fit(drawn - 100) < 1e-4  # variances off by 10 %


@pytest.mark.parametrize("dimension", [1, 2])
def test_decisions_are_the_same_where_no_float_is_trusted(monkeypatch, dimension: int) -> None:
    plain = draw_steps(dimension, 60, SeededBits(5))
    # The function has its module's name, so the module is found by import.
    monkeypatch.setattr(import_module("expost.noise.spherical_noise"), "_FLOAT_ERROR", 1e-2)

    exact = draw_steps(dimension, 60, SeededBits(5))

    # In odd dimensions no decision draws a bit, so the steps agree; in even ones coins may draw further bits.
    if dimension % 2:
        assert exact.tolist() == plain.tolist()
    assert stats.ks_2samp(plain, exact).pvalue > 1e-4


def test_the_mechanism_bills_its_epsilon_and_scales_by_the_grid() -> None:
    mechanism = SphericalLaplaceMechanism(0.5)

    assert mechanism.guarantee == PureGuarantee(Fraction(1, 2)) and mechanism.loss == PureLoss(Fraction(1, 2))
    assert mechanism.scale(Sensitivity(3, Norm.L2), coordinates=7) == 6 * GRID_RATIO
    assert 1 < GRID_RATIO < Fraction(1001, 1000)
    released = mechanism.release(Sealed(np.zeros((2, 3), np.int64), Sensitivity(3, Norm.L2)), bits=SeededBits(1))
    assert released.shape == (2, 3)
    assert isinstance(mechanism.release(Sealed(5, Sensitivity(3)), bits=SeededBits(1)), int)


@pytest.mark.parametrize("scale, dimension", [(Fraction(0), 2), (Fraction(-1), 2), (Fraction(1), 0)])
def test_nonsense_is_refused(scale: Fraction, dimension: int) -> None:
    with pytest.raises(InvalidRequest):
        sample_spherical_laplace(scale, dimension, 1)


def test_a_largest_move_of_one_coordinate_is_no_euclidean_distance() -> None:
    with pytest.raises(InvalidRequest, match="l2"):
        SphericalLaplaceMechanism(1).scale(Sensitivity(1, Norm.LINF), coordinates=3)


def test_a_scale_beyond_64_bits_is_drawn_in_python_integers() -> None:
    drawn = sample_spherical_laplace(Fraction(2**70), 2, 4, bits=SeededBits(1))

    assert drawn.dtype == object and max(abs(int(each)) for each in drawn.ravel()) > 2**62
