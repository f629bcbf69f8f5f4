"""The failure probabilities for which quantiles of noise can be computed in floats, and the refusal of all others."""

from __future__ import annotations

from expost.core import InvalidRequest

__all__ = ["LEAST_FAILURE", "check_failure", "too_rare"]

LEAST_FAILURE = 1e-11
"""Fourier transforms of probabilities are off by less; what is rarer cannot be told from it."""


def check_failure(failure_probability: float) -> None:
    """Refuse a failure probability that no quantile of noise can be computed for.

    >>> check_failure(1e-12)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a failure probability well above 1e-11 and below 1, got 1e-12. Allow more failures.
    """
    if not LEAST_FAILURE < failure_probability < 1:
        raise too_rare(failure_probability)


def too_rare(failure_probability: float) -> InvalidRequest:
    """Return the error for a quantile that was not found: never a number in its place.

    >>> too_rare(1.05e-11)
    InvalidRequest('Expected a failure probability well above 1e-11 and below 1, got 1.05e-11. Allow more failures.')
    """
    return InvalidRequest(
        f"Expected a failure probability well above {LEAST_FAILURE:g} and below 1",
        got=failure_probability,
        do="Allow more failures",
    )
