"""What an attacker can do: false alarms against missed detections, and how sure anyone can become.

Proofs of the inequalities: docs/proofs/interpretation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting.rounding import Floats, float_down
from expost.accounting.tails import bound_by_pairs
from expost.accounting.typed import amount_of
from expost.core.errors import InvalidRequest
from expost.core.picture import draw

__all__ = ["TradeoffCurve", "check_prior", "grid_of", "guess_rate", "plot_tradeoff"]

_POINTS = 120
_ROUNDING = 2.0**-48  # of sums of a few probabilities

DeltaAt = Callable[[float], float]
"""A privacy profile: a delta, never too small, for each epsilon >= 0."""


@dataclass(frozen=True)
class TradeoffCurve:
    """For each false-alarm rate, the smallest missed-detection rate that any test for one unit can have.

    Built from pairs (epsilon, delta) that all hold at once. The values are never above the true ones: no attacker does
    better than the curve (DRS22, Definition 2.1).

    >>> curve = TradeoffCurve(np.array([1.0]), np.array([0.0]))
    >>> round(float(curve.missed_detection(0.1)), 4)
    0.7282
    >>> round(curve.risk(0.01), 4), curve.loss_bound(0.5)
    (0.0272, 1.0)
    """

    epsilons: Floats
    deltas: Floats

    def missed_detection(self, false_alarm: float | Floats) -> Floats:
        """The smallest missed-detection rate at these false-alarm rates (DRS22, Proposition 2.12)."""
        try:
            rate = np.asarray(false_alarm, dtype=np.float64)
        except (TypeError, ValueError):
            rate = np.array(np.nan)
        if not np.all((rate >= 0) & (rate <= 1)):
            raise InvalidRequest("Expected false-alarm rates between 0 and 1", do="Pass probabilities")
        spread = rate[..., None]
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(self.epsilons)
            rise = np.where(spread > 0, growth * spread, 0.0)  # an endless factor times no alarms is none
            lines = np.maximum(1 - self.deltas - rise, (1 - self.deltas - spread) / growth)
        return np.asarray(np.maximum(0.0, np.max(lines, axis=-1) - _ROUNDING))

    def risk(self, without: float) -> float:
        """The largest probability, with a unit's data, of anything that has probability ``without`` without them."""
        return float(1 - self.missed_detection(float(amount_of(without, "without"))))

    def loss_bound(self, failure_probability: float) -> float:
        """A loss that is exceeded with this probability at most: P[L > x] <= delta(e) / (1 - e^(e - x)) for any e < x.

        The epsilon of (epsilon, delta) does not bound the probability of a larger loss by delta; this does. Infinite where
        every pair of the curve has a delta of the failure probability or more.
        """
        allowed = float_down(amount_of(failure_probability, "failure_probability"))
        return bound_by_pairs(self.epsilons, self.deltas, allowed)

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the curve; to a PNG or SVG file if ``path`` is given."""
        return plot_tradeoff(self, path=path, **options)


def plot_tradeoff(
    subject: TradeoffCurve | Mapping[str, TradeoffCurve], *, path: str | None = None, **options: Any
) -> Any:
    """Draw a curve, or several by name, with what is installed for the picture "tradeoff".

    >>> plot_tradeoff({})
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a ...
    """
    return draw("tradeoff", subject, path=path, **options)


def grid_of(largest: float, *corners: float) -> Floats:
    """Epsilons from 0 to ``largest``, and ``corners``: small ones help where alarms are frequent, large ones where they are rare.

    >>> float(grid_of(2.0)[-1])
    2.0
    """
    found = [np.zeros(1), np.array(corners, dtype=np.float64)]
    if largest > 0:
        found += [np.linspace(0, largest, _POINTS), np.geomspace(largest / 1000, largest, _POINTS)]
    return np.unique(np.concatenate(found))


def guess_rate(delta_at: DeltaAt, prior: float = 0.5) -> float:
    """The largest probability of guessing right whether a unit is in the data, starting from this prior.

    >>> round(guess_rate(lambda epsilon: 0.0 if epsilon >= 1 else 0.4621), 3)
    0.731
    """
    check_prior(prior)
    low, high = sorted((prior, 1 - prior))
    return min(1.0, high + low * delta_at(math.log(high / low)) + _ROUNDING)


def check_prior(prior: float) -> None:
    """Refuse a prior that is not strictly between 0 and 1."""
    if not isinstance(prior, float | int | Fraction) or not 0 < prior < 1:
        raise InvalidRequest("Expected a prior between 0 and 1, both excluded", got=prior, do="Pass a probability")
