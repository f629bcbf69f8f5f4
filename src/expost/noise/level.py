"""The privacy levels that exact integer noise can have."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from expost.core.errors import InvalidRequest
from expost.core.ladder import Ladder
from expost.noise.parameter import LARGEST_SCALE

__all__ = ["LARGEST_RATE", "check_gaussian_ladder", "check_level", "check_scale"]

LARGEST_RATE = 1000  # noise of exp(-1000) per unit of sensitivity is none at all, and jumps are counted by the rate


def check_level(level: Fraction, sensitivity: int | Fraction) -> None:
    """Refuse an epsilon at which exact integer noise is none at all, or wider than its integers.

    Questions ask this before anything is held, so that no epsilon fails once it is paid for.

    >>> check_level(Fraction(2000), 1)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected epsilon of at most 1000 per unit of sensitivity, so that any noise is ...
    """
    check_scale(level, sensitivity)
    if level > LARGEST_RATE * sensitivity:
        raise InvalidRequest(
            f"Expected epsilon of at most {LARGEST_RATE} per unit of sensitivity, so that any noise is left",
            got=f"epsilon {float(level):.4g}",
            do="Lower it",
        )


def check_scale(level: Fraction, sensitivity: int | Fraction) -> None:
    """Refuse an epsilon whose noise is wider than exact sampling supports."""
    if sensitivity > LARGEST_SCALE * level:
        raise InvalidRequest(
            "Expected epsilon whose noise is narrower than 2^60 lattice units",
            got=f"epsilon {float(level):.4g}",
            do="Raise it, or ask for more accuracy",
        )


def check_gaussian_ladder(ladder: Ladder, sensitivity: int | Fraction) -> None:
    """Refuse rhos whose Gaussian noise is wider than exact sampling supports.

    Each rung adds a release at what it has above the rung below (docs/proofs/gaussian-path.md).

    >>> check_gaussian_ladder(Ladder.of([1e-30]), 10**6)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected rho whose noise is narrower than 2^60 lattice units, got ...
    """
    least = min((high - low for low, high in pairwise((Fraction(0), *ladder))), default=ladder.cap)
    if Fraction(sensitivity) ** 2 > 2 * least * LARGEST_SCALE**2:
        raise InvalidRequest(
            "Expected rho whose noise is narrower than 2^60 lattice units",
            got=f"rho {float(least):.4g}",
            do="Raise epsilon or delta",
        )
