"""Privacy profiles: the smallest delta of one mechanism as a function of epsilon, in both directions.

``forward`` is the hockey-stick divergence of the outputs with the unit from those without it, ``backward`` the reverse,
both for epsilon >= 0; the values below zero follow from the other direction. A profile describes a pair of laws that
dominates the mechanism, and such pairs compose (ZDW22, Theorem 10).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from expost.accounting.events import (
    ApproxEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    SampledWithoutReplacement,
)
from expost.accounting.gaussian import gaussian_delta
from expost.accounting.rounding import Floats, float_up, sqrt_up

__all__ = ["Profile", "profile_of"]

_DEVIATIONS = 10.5  # standard deviations kept of a Gaussian loss; beyond them lies less than 1e-25
# Whose exponential is a float; a smaller factor takes less off, so delta is not below the truth.
_LARGEST_EXPONENT = 700.0
_LARGEST_SCALE = 1e5  # of a discrete Gaussian that is summed term by term

Curve = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Profile:
    """Two directions and the largest loss that is followed; what lies beyond counts as certain disclosure.

    >>> profile_of(LaplaceEvent(1)).forward(np.array([0.0])).round(4)
    array([0.3935])
    """

    forward: Curve
    backward: Curve
    largest: float

    @property
    def symmetric(self) -> bool:
        """Whether both directions are one."""
        return self.forward is self.backward


def profile_of(event: Event) -> Profile | None:
    """The profile of a leaf, or None where none tighter than its other currencies is known."""
    match event:
        case PureEvent(epsilon):
            return _both(functools.partial(_approx, float_up(epsilon), 0.0), float_up(epsilon))
        case ApproxEvent(epsilon, delta):
            return _both(functools.partial(_approx, float_up(epsilon), float_up(delta)), float_up(epsilon))
        case LaplaceEvent(noise_multiplier):
            largest = float_up(1 / noise_multiplier)
            return _both(functools.partial(_laplace, largest), largest)
        case DiscreteLaplaceEvent(scale, sensitivity):
            return _both(functools.partial(_discrete_laplace, float(scale), sensitivity), float_up(event.epsilon))
        case ExponentialEvent(epsilon):
            return _both(functools.partial(_bounded_range, float_up(epsilon)), float_up(epsilon))
        case GaussianEvent():
            mu = float_up(sqrt_up(event.mu_squared))
            return _both(functools.partial(gaussian_delta, mu=mu), mu**2 / 2 + _DEVIATIONS * mu)
        case DiscreteGaussianEvent():
            return _discrete_gaussian_profile(event)
        case PoissonSampled(rate, inner):
            return _poisson(float_up(rate), profile_of(inner))
        case SampledWithoutReplacement():
            return _without_replacement(float_up(event.rate), profile_of(event.event))
    return None


def _both(curve: Curve, largest: float) -> Profile:
    return Profile(curve, curve, largest)


def _approx(total: float, failure: float, epsilon: Floats) -> Floats:
    """Randomised response beside a failure (KOV15, Theorem 3.2)."""
    return failure + (1 - failure) * -np.expm1(np.minimum(epsilon - total, 0.0)) / (1 + math.exp(-total))


def _laplace(total: float, epsilon: Floats) -> Floats:
    """1 - e^((epsilon - total)/2) (docs/proofs/laplace-domination.md)."""
    return -np.expm1(np.minimum(epsilon - total, 0.0) / 2)


def _discrete_laplace(scale: float, sensitivity: int, epsilon: Floats) -> Floats:
    """The same at the losses (s - 2k)/scale and straight in e^epsilon between them (docs/proofs/laplace-domination.md)."""
    k = np.clip(np.floor((sensitivity - epsilon * scale) / 2), 0, sensitivity - 1)
    share = np.expm1(np.minimum(epsilon - (sensitivity - 2 * k) / scale, 0.0)) / math.expm1(-2 / scale)
    return np.where(
        epsilon >= sensitivity / scale, 0.0, -np.expm1(-k / scale) - np.exp(-k / scale) * math.expm1(-1 / scale) * share
    )


def _bounded_range(total: float, epsilon: Floats) -> Floats:
    """(1 - e^((epsilon - total)/2))^2 / (1 - e^-total) (DDR20, Section 3; docs/proofs/bounded-range.md)."""
    return np.expm1(np.minimum(epsilon - total, 0.0) / 2) ** 2 / -math.expm1(-total)


def _discrete_gaussian_profile(event: DiscreteGaussianEvent) -> Profile | None:
    """The scalar law summed term by term; None for vectors, fractional shifts and very wide noise."""
    sigma, shift = float(event.scale), event.sensitivity
    if event.dimension > 1 or shift.denominator != 1 or sigma > _LARGEST_SCALE:
        return None
    delta = int(shift)
    reach = math.ceil(14 * sigma) + 2 * delta + 2
    points = np.arange(-reach, reach + 1)
    weights = np.exp(-(points**2) / (2 * sigma**2))
    below = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
    mu = delta / sigma
    curve = functools.partial(_discrete_gaussian, below, reach, sigma, delta)
    return _both(curve, mu**2 / 2 + _DEVIATIONS * mu + mu / sigma)


def _discrete_gaussian(below: Floats, reach: int, sigma: float, shift: int, epsilon: Floats) -> Floats:
    """P[X < c] - e^epsilon P[X + shift < c]: outcomes below c are those whose loss exceeds epsilon."""
    # Sampling asks for an endless epsilon too: the edge is cut to the table while it is a float, and the factor to one.
    edge = np.clip(np.ceil((shift**2 - 2 * sigma**2 * epsilon) / (2 * shift)), -reach, reach + 1 + shift).astype(
        np.int64
    )
    here = np.clip(edge + reach, 0, len(below) - 1)
    there = np.clip(edge + reach - shift, 0, len(below) - 1)
    return np.maximum(below[here] - np.exp(np.minimum(epsilon, _LARGEST_EXPONENT)) * below[there], 0.0)


def _poisson(rate: float, base: Profile | None) -> Profile | None:
    """With the unit: (1 - q) without + q with (BBG18, Theorem 8); both directions exact (docs/proofs/sampling.md)."""
    if base is None or not base.symmetric:
        return None
    curve = base.forward

    def forward(epsilon: Floats) -> Floats:
        return rate * curve(_unsampled(epsilon, rate))

    def backward(epsilon: Floats) -> Floats:
        with np.errstate(divide="ignore", over="ignore"):
            left = np.maximum(-np.expm1(epsilon + math.log1p(-rate)), 0.0)  # 1 - (1 - q) e^epsilon
            inner = epsilon - np.log(left / rate)
        return left * curve(np.maximum(np.where(left > 0, inner, np.inf), 0.0))

    return Profile(forward, backward, _sampled(base.largest, rate))


def _without_replacement(rate: float, base: Profile | None) -> Profile | None:
    """A delta of q delta at ln(1 + q (e^epsilon - 1)), in both directions (BBG18, Theorem 9)."""
    if base is None or not base.symmetric:
        return None
    curve = base.forward

    def both(epsilon: Floats) -> Floats:
        return rate * curve(_unsampled(epsilon, rate))

    return _both(both, _sampled(base.largest, rate))


def _sampled(epsilon: float, rate: float) -> float:
    """ln(1 + q (e^epsilon - 1)) without overflow."""
    return (
        math.log1p(rate * math.expm1(epsilon))
        if epsilon < 1
        else epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))
    )


def _unsampled(epsilon: Floats, rate: float) -> Floats:
    """The inverse of ``_sampled``."""
    small = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / rate)
    return np.where(
        epsilon < 1, small, epsilon + np.log1p(-(1 - rate) * np.exp(-np.maximum(epsilon, 1.0))) - math.log(rate)
    )
