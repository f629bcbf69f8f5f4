"""Renyi orders and their shares of delta, for totals that are only known once the interaction has ended."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from expost.accounting.rounding import float_down, float_up
from expost.accounting.zcdp import rdp_to_epsilon

__all__ = ["conversion", "default_shares"]

_GRID = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


def default_shares(epsilon: Fraction, delta: Fraction) -> dict[float, float]:
    """Half of delta for the order that serves Gaussian steps best at this target, the rest spread over a coarse grid.

    A fixed share s costs an order ln(1/s)/(order - 1) of epsilon; with half of it on the likely order that is little.

    >>> round(sum(default_shares(Fraction(1), Fraction(1, 10**6)).values()), 9)
    1.0
    """
    likely = _likely_order(float_up(epsilon), float_down(delta))
    others = sorted({float(order) for order in _GRID} - {likely})
    return {likely: 0.5} | {order: 0.5 / len(others) for order in others}


def conversion(order: float, delta: float) -> float:
    """What this order adds to its divergence on the way to (epsilon, delta) (CKS20, Proposition 12).

    >>> round(conversion(2.0, 0.25), 6)
    0.0
    """
    # At zero divergence the bound is cut at zero, so a divergence large enough to stay above it is added and taken off.
    base = max(64.0, 2 * abs(math.log(order)))
    return float(rdp_to_epsilon(np.array([order]), np.array([base]), delta)[0]) - base


def _likely_order(epsilon: float, delta: float) -> float:
    """The whole order at which the largest concentrated budget converts to this target."""
    orders = np.arange(2.0, 513.0)
    budgets = (epsilon - np.array([conversion(order, delta) for order in orders])) / orders
    return float(orders[int(np.argmax(budgets))])
