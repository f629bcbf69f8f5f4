"""Prices in Renyi divergences, one number an order: what filters and odometers over orders share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from expost.accounting.events import Event
from expost.accounting.price import Price
from expost.accounting.renyi import divergences, ex_post_divergences
from expost.accounting.rounding import Floats

__all__ = ["ByOrders"]


class ByOrders:
    """Prices every event at each of ``_orders``; pure ex-post parts at what they came to, order by order.

    See docs/proofs/ex-post-renyi.md for the ex-post parts.
    """

    _orders: tuple[float, ...]

    def _nothing(self) -> Floats:
        return np.zeros(len(self._orders))

    def _cost_of(self, leaf: Event) -> Floats:
        return divergences(leaf, self._orders)

    def _ex_post(self, loss: Fraction, cap: Fraction) -> Price:
        return Price(Fraction(0), ex_post_divergences(loss, cap, self._orders))
