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

from expost.accounting.concentrated import gaussian_delta
from expost.accounting.privacy_event import (
    ApproxEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PermuteAndFlipEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.rounding import Floats, float_up, sqrt_up

__all__ = ["DeltaCurve", "PrivacyProfile", "profile_of"]

_DEVIATIONS = 10.5  # standard deviations kept of a Gaussian loss; beyond them lies less than 1e-25
# Whose exponential is a float; a smaller factor takes less off, so delta is not below the truth.
_LARGEST_EXPONENT = 700.0
_LARGEST_SCALE = 1e5  # of a discrete Gaussian that is summed term by term

DeltaCurve = Callable[[Floats], Floats]
"""Deltas at many epsilons."""


@dataclass(frozen=True)
class PrivacyProfile:
    """Two directions and the largest loss that is followed; what lies beyond counts as certain disclosure.

    >>> profile_of(LaplaceEvent(1)).forward(np.array([0.0])).round(4)
    array([0.3935])
    """

    forward: DeltaCurve
    backward: DeltaCurve
    largest: float

    @property
    def symmetric(self) -> bool:
        """Whether both directions are one."""
        return self.forward is self.backward


def profile_of(event: PrivacyEvent) -> PrivacyProfile | None:
    """Return the profile of a leaf, or None where none tighter than its other currencies is known."""
    curve: DeltaCurve
    match event:
        case PureEvent(epsilon):
            largest = float_up(epsilon)
            curve = functools.partial(_approx_delta, largest, 0.0)
        case ApproxEvent(epsilon, delta):
            largest = float_up(epsilon)
            curve = functools.partial(_approx_delta, largest, float_up(delta))
        case LaplaceEvent(noise_multiplier):
            largest = float_up(1 / noise_multiplier)
            curve = functools.partial(_laplace_delta, largest)
        case PermuteAndFlipEvent(epsilon):
            largest = float_up(epsilon)
            curve = functools.partial(_laplace_delta, largest)  # docs/proofs/permute-and-flip.md, 6
        case DiscreteLaplaceEvent(scale, sensitivity):
            largest = float_up(event.epsilon)
            curve = functools.partial(_discrete_laplace_delta, float(scale), sensitivity)
        case ExponentialEvent(epsilon):
            largest = float_up(epsilon)
            curve = functools.partial(_bounded_range_delta, largest)
        case GaussianEvent():
            mu = float_up(sqrt_up(event.mu_squared))
            largest = mu**2 / 2 + _DEVIATIONS * mu
            curve = functools.partial(gaussian_delta, mu=mu)
        case DiscreteGaussianEvent():
            return _discrete_gaussian_profile(event)
        case PoissonSampled() | SampledWithoutReplacement():
            return _sampled_profile(event, float_up(event.rate))
        case Mixture():
            return _mixture_profile(event)
        case _:
            return None
    return PrivacyProfile(curve, curve, largest)


def _approx_delta(total: float, failure: float, epsilon: Floats) -> Floats:
    """Return the profile of randomized response together with a failure (KOV15, Theorem 3.2)."""
    return failure + (1 - failure) * -np.expm1(np.minimum(epsilon - total, 0.0)) / (1 + math.exp(-total))


def _laplace_delta(total: float, epsilon: Floats) -> Floats:
    """Return 1 - e^((epsilon - total)/2) (docs/proofs/laplace-domination.md)."""
    return -np.expm1(np.minimum(epsilon - total, 0.0) / 2)


def _discrete_laplace_delta(scale: float, sensitivity: int, epsilon: Floats) -> Floats:
    """Return the Laplace profile at the losses (s - 2k)/scale, straight in e^epsilon between them.

    Proof: docs/proofs/laplace-domination.md.
    """
    k = np.clip(np.floor((sensitivity - epsilon * scale) / 2), 0, sensitivity - 1)
    share = np.expm1(np.minimum(epsilon - (sensitivity - 2 * k) / scale, 0.0)) / math.expm1(-2 / scale)
    return np.where(
        epsilon >= sensitivity / scale, 0.0, -np.expm1(-k / scale) - np.exp(-k / scale) * math.expm1(-1 / scale) * share
    )


def _bounded_range_delta(total: float, epsilon: Floats) -> Floats:
    """Return (1 - e^((epsilon - total)/2))^2 / (1 - e^-total) (DDR20, Section 3; docs/proofs/bounded-range.md)."""
    return np.expm1(np.minimum(epsilon - total, 0.0) / 2) ** 2 / -math.expm1(-total)


def _discrete_gaussian_profile(event: DiscreteGaussianEvent) -> PrivacyProfile | None:
    """Sum the scalar law term by term; None for vectors, fractional shifts and very wide noise."""
    sigma = float(event.scale)
    if event.dimension > 1 or event.sensitivity.denominator != 1 or sigma > _LARGEST_SCALE:
        return None
    shift = int(event.sensitivity)
    reach = math.ceil(14 * sigma) + 2 * shift + 2
    points = np.arange(-reach, reach + 1)
    weights = np.exp(-(points**2) / (2 * sigma**2))
    below = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])

    def delta(epsilon: Floats) -> Floats:
        # P[X < c] - e^epsilon P[X + shift < c]: outcomes below c are those whose loss exceeds epsilon. Sampling may
        # pass an infinite epsilon: the edge is cut to the table while it is a float, and the factor to a finite one.
        edge = np.clip(np.ceil((shift**2 - 2 * sigma**2 * epsilon) / (2 * shift)), -reach, reach + 1 + shift)
        place = edge.astype(np.int64) + reach
        here = np.clip(place, 0, len(below) - 1)
        there = np.clip(place - shift, 0, len(below) - 1)
        found: Floats = below[here] - np.exp(np.minimum(epsilon, _LARGEST_EXPONENT)) * below[there]
        return np.maximum(found, 0.0)

    mu = shift / sigma
    return PrivacyProfile(delta, delta, mu**2 / 2 + _DEVIATIONS * mu + mu / sigma)


def _mixture_profile(event: Mixture) -> PrivacyProfile | None:
    """Average the profiles of the parts, which is exact where the choice is shown (docs/proofs/sampling.md)."""
    costly = [(float_up(share), profile_of(part)) for share, part in event.parts if part != Sequence()]
    known = [(share, profile) for share, profile in costly if profile is not None]
    if len(known) < len(costly) or not known:
        return None

    def forward(epsilon: Floats) -> Floats:
        return np.asarray(sum(share * profile.forward(epsilon) for share, profile in known))

    def backward(epsilon: Floats) -> Floats:
        return np.asarray(sum(share * profile.backward(epsilon) for share, profile in known))

    symmetric = all(profile.symmetric for _, profile in known)
    return PrivacyProfile(forward, forward if symmetric else backward, max(profile.largest for _, profile in known))


def _sampled_profile(event: PoissonSampled | SampledWithoutReplacement, rate: float) -> PrivacyProfile | None:
    """Return the profile of a sampled mechanism, from a symmetric profile of the mechanism itself.

    Without replacement a delta becomes q delta at ln(1 + q (e^epsilon - 1)), in both directions (BBG18, Theorem 9).
    In a Poisson sample the law with the unit is (1 - q) without + q with (BBG18, Theorem 8); both directions are exact
    (docs/proofs/sampling.md).
    """
    base = profile_of(event.event)
    if base is None or not base.symmetric:
        return None
    curve, top = base.forward, base.largest

    def forward(epsilon: Floats) -> Floats:
        # The epsilon before sampling, the inverse of ln(1 + q (e^epsilon - 1)).
        small = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / rate)
        large = epsilon + np.log1p(-(1 - rate) * np.exp(-np.maximum(epsilon, 1.0))) - math.log(rate)
        return rate * curve(np.where(epsilon < 1, small, large))

    def backward(epsilon: Floats) -> Floats:
        with np.errstate(divide="ignore", over="ignore"):
            left = np.maximum(-np.expm1(epsilon + math.log1p(-rate)), 0.0)  # 1 - (1 - q) e^epsilon
            inner = epsilon - np.log(left / rate)
        return left * curve(np.maximum(np.where(left > 0, inner, np.inf), 0.0))

    # ln(1 + q (e^top - 1)) without overflow.
    largest = math.log1p(rate * math.expm1(top)) if top < 1 else top + math.log(rate + (1 - rate) * math.exp(-top))
    return PrivacyProfile(forward, forward if isinstance(event, SampledWithoutReplacement) else backward, largest)
