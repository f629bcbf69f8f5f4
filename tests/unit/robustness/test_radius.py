import numpy as np
import pytest
from scipy import special

from expost.core import InvalidRequest
from expost.robustness import (
    analytic_pixeldp_radius,
    laplace_radius,
    pixeldp_l1_radius,
    pixeldp_radius,
    smoothing_radius,
)

LOWER, UPPER = np.meshgrid(np.linspace(0.3, 0.9999, 15), np.linspace(0.001, 0.6, 15))


def test_the_smoothing_radius_is_reached_by_a_half_space():
    """f = 1 on one side of a hyperplane: at the radius the two classes tie, just beyond it the prediction flips."""
    sigma, margin = 0.7, 0.9
    lower = special.ndtr(margin / sigma)
    radius = float(smoothing_radius(lower, 1 - lower, sigma=sigma))

    assert radius == pytest.approx(margin, rel=1e-9)


def test_pixeldp_never_certifies_more_than_the_tight_bound():
    tight = smoothing_radius(LOWER, UPPER, sigma=0.5)
    published = pixeldp_radius(LOWER, UPPER, sigma=0.5)
    analytic = analytic_pixeldp_radius(LOWER, UPPER, sigma=0.5)

    assert (published <= analytic + 1e-3).all()
    assert (analytic <= tight + 1e-9).all()
    assert (tight[LOWER > UPPER] > 0).all()
    assert published.max() > 0


def test_the_published_radius_satisfies_its_own_condition():
    sigma, lower, upper = 0.5, 0.95, 0.03
    radius = float(pixeldp_radius(lower, upper, sigma=sigma))
    epsilon = np.linspace(0.001, 0.999, 5000)
    delta = 1.25 * np.exp(-((sigma * epsilon / radius) ** 2) / 2)

    assert (lower > np.exp(2 * epsilon) * upper + (1 + np.exp(epsilon)) * delta).any()
    larger = 1.25 * np.exp(-((sigma * epsilon / (1.01 * radius)) ** 2) / 2)
    assert not (lower > np.exp(2 * epsilon) * upper + (1 + np.exp(epsilon)) * larger).any()


def worst_laplace_shift(lower, upper, steps):
    """In one dimension, the largest shift under which no pair of score functions can swap, by the exact trade-off."""
    tops = []
    for t in steps:
        falls = np.where(lower > 1 - np.exp(-t) / 2, 1 - np.exp(t) * (1 - lower), np.exp(-t) * lower)
        falls = np.where((lower >= 0.5) & (lower <= 1 - np.exp(-t) / 2), np.exp(-t) / (4 * (1 - lower)), falls)
        rises = 1 - np.where(
            1 - upper > 1 - np.exp(-t) / 2,
            1 - np.exp(t) * upper,
            np.where(1 - upper >= 0.5, np.exp(-t) / (4 * np.maximum(upper, 1e-12)), np.exp(-t) * (1 - upper)),
        )
        tops.append(falls > rises)
    return np.max(np.where(tops, np.array(steps)[:, None, None], 0.0), axis=0)


def test_the_laplace_radius_is_valid_and_beats_pixeldp():
    scale = 0.5 / np.sqrt(2)
    ours = laplace_radius(LOWER, UPPER, sigma=0.5)
    exact = worst_laplace_shift(LOWER, UPPER, np.linspace(0, 8, 4001)) * scale

    assert (ours <= exact + 0.002).all()
    assert (ours >= pixeldp_l1_radius(LOWER, UPPER, sigma=0.5) - 1e-12).all()


def test_the_binary_laplace_radius_is_the_known_one():
    scale = 1 / np.sqrt(2)

    assert laplace_radius(0.9, 0.1, sigma=1.0) == pytest.approx(-scale * np.log(0.2))


@pytest.mark.parametrize(
    "radius", [smoothing_radius, pixeldp_radius, analytic_pixeldp_radius, pixeldp_l1_radius, laplace_radius]
)
def test_overlapping_bounds_certify_nothing_and_extreme_ones_are_finite(radius):
    assert float(radius(0.4, 0.5, sigma=1.0)) == 0
    assert float(radius(0.5, 0.5, sigma=1.0)) == 0
    assert 0 < float(radius(1.0, 0.0, sigma=1.0)) < 100


ODD = [None, "x", b"x", {}, [1, "a"], object(), 10**400, float("nan"), [0.5, float("nan")]]


@pytest.mark.parametrize(
    "radius", [smoothing_radius, pixeldp_radius, analytic_pixeldp_radius, pixeldp_l1_radius, laplace_radius]
)
def test_what_is_no_number_is_refused_in_our_own_words(radius) -> None:
    for argument in ("lower", "upper", "sigma"):
        for value in ODD:
            with pytest.raises(InvalidRequest, match=f"Expected {argument}"):
                radius(**{"lower": 0.7, "upper": 0.2, "sigma": 0.5} | {argument: value})
    for sigma in (0, -1, float("inf")):
        with pytest.raises(InvalidRequest, match="Expected sigma"):
            radius(0.7, 0.2, sigma=sigma)
