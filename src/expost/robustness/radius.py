"""How far an input may be moved before its prediction can change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.robustness.perturbation import deviation_of, laplace_scale, numbers_of

__all__ = ["analytic_pixeldp_radius", "laplace_radius", "pixeldp_l1_radius", "pixeldp_radius", "smoothing_radius"]

Floats = NDArray[np.float64]

_EPSILONS = np.linspace(0.005, 0.995, 199)  # the classical calibration of Gaussian noise needs epsilon < 1
_WIDE_EPSILONS = np.concatenate([np.linspace(0.0, 3.0, 121), np.geomspace(3.1, 40.0, 60)])


def smoothing_radius(lower: Any, upper: Any, *, sigma: float) -> Floats:
    """The largest l2 radius within which the top score provably stays on top under Gaussian noise.

    ``lower`` bounds the expected score of the predicted class from below, ``upper`` those of all others from above.
    sigma/2 (Phi^-1(lower) - Phi^-1(upper)): CRK19, Theorem 1 for votes; for any scores in [0, 1] because
    Phi^-1(E f(x + noise)) is 1/sigma-Lipschitz (docs/proofs/certified-radius.md). No better bound exists from these two
    numbers.

    >>> round(float(smoothing_radius(0.9, 0.1, sigma=0.5)), 4)
    0.6408
    """
    low, high = _clipped(lower, upper)
    radius = deviation_of(sigma) / 2 * (special.ndtri(low) - special.ndtri(high))
    return _positive(radius, low, high)


def pixeldp_radius(lower: Any, upper: Any, *, sigma: float) -> Floats:
    """The l2 radius of PixelDP as published.

    Noise of sigma = sqrt(2 ln(1.25/delta)) L / epsilon, epsilon < 1, makes scores (epsilon, delta)-stable within L;
    the prediction is safe when lower > e^(2 epsilon) upper + (1 + e^epsilon) delta (LAGHJ19, Proposition 2). The best
    epsilon and delta are taken.

    >>> round(float(pixeldp_radius(0.9, 0.1, sigma=0.5)), 4)
    0.1951
    """
    low, high = (each[..., None] for each in _clipped(lower, upper))
    delta = (low - np.exp(2 * _EPSILONS) * high) / (1 + np.exp(_EPSILONS)) * (1 - 1e-9)
    safe = np.clip(delta, 1e-300, 0.5)
    radii = np.where(delta > 0, deviation_of(sigma) * _EPSILONS / np.sqrt(2 * np.log(1.25 / safe)), 0.0)
    best: Floats = radii.max(-1)
    return best


def analytic_pixeldp_radius(lower: Any, upper: Any, *, sigma: float) -> Floats:
    """The same condition with the exact (epsilon, delta) curve of Gaussian noise in the place of the calibration.

    delta(epsilon) = Phi(r/2 - epsilon/r) - e^epsilon Phi(-r/2 - epsilon/r) with r = L/sigma (BW18, Theorem 8), for every
    epsilon >= 0; L by bisection, rounded down.

    >>> round(float(analytic_pixeldp_radius(0.9, 0.1, sigma=0.5)), 4)
    0.5244
    """
    low, high = _clipped(lower, upper)
    inside, outside = np.zeros(low.shape), np.full(low.shape, 40.0)
    for _ in range(50):
        middle = (inside + outside) / 2
        safe = _stable(low, high, middle)
        inside, outside = np.where(safe, middle, inside), np.where(safe, outside, middle)
    return _positive(inside * deviation_of(sigma), low, high)


def pixeldp_l1_radius(lower: Any, upper: Any, *, sigma: float) -> Floats:
    """The l1 radius of PixelDP under Laplace noise: b/2 ln(lower/upper), b the scale (LAGHJ19, Proposition 2).

    >>> round(float(pixeldp_l1_radius(0.9, 0.1, sigma=0.5)), 4)
    0.3884
    """
    low, high = _clipped(lower, upper)
    return _positive(laplace_scale(sigma) / 2 * np.log(low / high), low, high)


def laplace_radius(lower: Any, upper: Any, *, sigma: float) -> Floats:
    """The largest l1 radius that pure stability under Laplace noise gives.

    Moving by L changes every expected score s in [0, 1] to one between max(e^-t s, 1 - e^t (1 - s)) and
    min(e^t s, 1 - e^-t (1 - s)), t = L/b. The best of the four ways to compare them; for upper = 1 - lower it is
    TLG20's -b ln(2 (1 - lower)) (docs/proofs/certified-radius.md).

    >>> round(float(laplace_radius(0.9, 0.1, sigma=0.5)), 4)
    0.569
    """
    low, high = _clipped(lower, upper)
    ways = [
        np.log(low / high) / 2,
        -np.log1p(high - low),
        np.log1p(low - high),
        np.log((1 - high) / (1 - low)) / 2,
    ]
    return _positive(laplace_scale(sigma) * np.max(ways, axis=0), low, high)


def _stable(low: Floats, high: Floats, ratio: Floats) -> NDArray[np.bool_]:
    """Whether some epsilon shows the prediction stable when the input moves by ``ratio`` standard deviations."""
    r = np.maximum(ratio, 1e-12)[..., None]
    delta = special.ndtr(r / 2 - _WIDE_EPSILONS / r) - np.exp(
        _WIDE_EPSILONS + special.log_ndtr(-r / 2 - _WIDE_EPSILONS / r)
    )
    grown = np.exp(2 * _WIDE_EPSILONS) * high[..., None] + (1 + np.exp(_WIDE_EPSILONS)) * np.maximum(delta, 0.0)
    return np.asarray((low[..., None] > grown * (1 + 1e-12)).any(-1))


def _clipped(lower: Any, upper: Any) -> tuple[Floats, Floats]:
    low = np.clip(numbers_of(lower, "lower"), 0.0, 1 - 1e-15)
    high = np.clip(numbers_of(upper, "upper"), 1e-15, 1.0)
    return np.maximum(low, 1e-15), np.minimum(high, 1 - 1e-15)


def _positive(radius: Any, low: Floats, high: Floats) -> Floats:
    """The radius where the bounds are apart, else 0."""
    return np.where(low > high, np.maximum(radius, 0.0), 0.0)
