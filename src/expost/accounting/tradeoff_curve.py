"""What follows from pairs (epsilon, delta): the best attack, bounds on the privacy loss, the smallest epsilon.

A pair (e, d) bounds the probability b of any event A that is e^x times likelier with a unit than without:
P(A) - e^e Q(A) <= d, so x <= e - ln(1 - d/b). The smallest of these bounds over all pairs of a mechanism is exact for
everything that can be computed from its output (docs/proofs/interpretation.md, Theorem 1). Where no pair has a delta
below b the bound is infinite, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting.rounding import MARGIN, Floats, float_down, read_amount
from expost.core.errors import InvalidRequest
from expost.core.meaning import approx_loss_bound
from expost.core.release import draw_picture

__all__ = [
    "TradeoffCurve",
    "bound_by_epsilons",
    "bound_by_pairs",
    "check_prior",
    "epsilon_grid",
    "guess_rate",
    "plot_tradeoff",
    "smallest_epsilon",
]

_POINTS = 120
_ROUNDING = 2.0**-48  # of sums of a few probabilities
_LARGEST = 1e18
_CLOSE = 1e-13  # relative width at which the search for an epsilon ends
# Parts of the probability that delta may take; where delta falls like e^(-k epsilon) the best is 1/(1 + k).
_PARTS = (Fraction(0), *(1 / (1 + Fraction(2) ** half) for half in range(-6, 13)))

DeltaAt = Callable[[float], float]
"""A privacy profile: a delta, never too small, for each epsilon >= 0."""


@dataclass(frozen=True)
class TradeoffCurve:
    """The smallest missed-detection rate of any test for one unit, at each false-alarm rate.

    Built from pairs (epsilon, delta) that all hold at once. The values are never above the true ones: no attacker does
    better than the curve (DRS22, Definition 2.1).

    Parameters
    ----------
    epsilons : array of float
        The epsilons of the pairs.
    deltas : array of float
        The delta of each epsilon.

    Examples
    --------
    >>> curve = TradeoffCurve(np.array([1.0]), np.array([0.0]))
    >>> round(float(curve.missed_detection(0.1)), 4)
    0.7282
    >>> round(curve.risk(0.01), 4), curve.loss_bound(0.5)
    (0.0272, 1.0)
    """

    epsilons: Floats
    deltas: Floats

    def missed_detection(self, false_alarm: float | Floats) -> Floats:
        """Return the smallest missed-detection rate at these false-alarm rates (DRS22, Proposition 2.12).

        Parameters
        ----------
        false_alarm : float or array of float in [0, 1]
            The probability that the test accuses a table without the unit.

        Returns
        -------
        array of float
        """
        try:
            rate = np.asarray(false_alarm, dtype=np.float64)
        except (TypeError, ValueError):
            rate = np.array(np.nan)
        if not np.all((rate >= 0) & (rate <= 1)):
            raise InvalidRequest("Expected false-alarm rates between 0 and 1", do="Pass probabilities")
        spread = rate[..., None]
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(self.epsilons)
            rise = np.where(spread > 0, growth * spread, 0.0)  # an infinite factor times no alarms is zero
            # Two lines for each pair, one for each direction; the true curve lies above all of them.
            lines = np.maximum(1 - self.deltas - rise, (1 - self.deltas - spread) / growth)
        return np.asarray(np.maximum(0.0, np.max(lines, axis=-1) - _ROUNDING))

    def risk(self, without: float) -> float:
        """Return the largest probability, with a unit's data, of anything that has probability ``without`` otherwise.

        Parameters
        ----------
        without : float in [0, 1]
            The probability without the unit's data.

        Returns
        -------
        float
        """
        return float(1 - self.missed_detection(float(read_amount(without, "without"))))

    def loss_bound(self, failure_probability: float) -> float:
        """Return a loss that is exceeded with at most this probability: P[L > x] <= delta(e) / (1 - e^(e - x)).

        The epsilon of (epsilon, delta) does not bound the probability of a larger loss by delta; this does.

        Parameters
        ----------
        failure_probability : float >= 0
            The probability that the loss may exceed the bound.

        Returns
        -------
        float
            Infinite if every pair of the curve has a delta of the failure probability or more.
        """
        allowed = float_down(read_amount(failure_probability, "failure_probability"))
        return bound_by_pairs(self.epsilons, self.deltas, allowed)

    def plot(self, path: str | None = None, *, title: str | None = None) -> Any:
        """Draw the curve; needs the extra ``plots``.

        Parameters
        ----------
        path : str, optional
            A PNG or SVG file to write.
        title : str, optional
            The title of the picture; a general one by default.

        Returns
        -------
        object
            The figure.
        """
        return plot_tradeoff(self, path=path, title=title)


def plot_tradeoff(
    subject: TradeoffCurve | Mapping[str, TradeoffCurve], *, path: str | None = None, title: str | None = None
) -> Any:
    """Draw one trade-off curve, or several by name; needs the extra ``plots``.

    Parameters
    ----------
    subject : TradeoffCurve or mapping of str to TradeoffCurve
        What to draw.
    path : str, optional
        A PNG or SVG file to write.
    title : str, optional
        The title of the picture; a general one by default.

    Returns
    -------
    object
        The figure.

    Raises
    ------
    InvalidRequest
        If the subject is not a curve, or the extra is missing.

    Examples
    --------
    >>> plot_tradeoff({})
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a ...
    """
    return draw_picture("tradeoff", subject, path=path, title=title)


def epsilon_grid(largest: float, *corners: float) -> Floats:
    """Return epsilons from 0 to ``largest``, and ``corners``.

    Small epsilons matter where alarms are frequent, large ones where they are rare.

    >>> float(epsilon_grid(2.0)[-1])
    2.0
    """
    found = [np.zeros(1), np.array(corners, dtype=np.float64)]
    if largest > 0:
        found += [np.linspace(0, largest, _POINTS), np.geomspace(largest / 1000, largest, _POINTS)]
    return np.unique(np.concatenate(found))


def guess_rate(delta_at: DeltaAt, prior: float = 0.5) -> float:
    """Return the largest probability of guessing right whether a unit is in the data, starting from this prior.

    >>> round(guess_rate(lambda epsilon: 0.0 if epsilon >= 1 else 0.4621), 3)
    0.731
    """
    check_prior(prior)
    # The best guess compares the laws weighted by the prior: a hockey-stick divergence at ln(high / low).
    low, high = sorted((prior, 1 - prior))
    return min(1.0, high + low * delta_at(math.log(high / low)) + _ROUNDING)


def check_prior(prior: float) -> None:
    """Refuse a prior that is not strictly between 0 and 1."""
    if not isinstance(prior, float | int | Fraction) or not 0 < prior < 1:
        raise InvalidRequest("Expected a prior between 0 and 1, both excluded", got=prior, do="Pass a probability")


def bound_by_pairs(epsilons: Floats, deltas: Floats, failure_probability: float) -> float:
    """Return the smallest loss bound over pairs that all hold; infinite if every delta is too large.

    >>> round(bound_by_pairs(np.array([0.0, 1.0]), np.array([0.5, 1e-6]), 1e-4), 4)
    1.0101
    """
    if failure_probability <= 0:
        # Certainty needs a pair without a delta.
        proved = epsilons[deltas <= 0]
        return float(np.min(proved)) if len(proved) else math.inf
    # Rounded upwards before the logarithm, which is steep near 1.
    ratios = np.where(deltas > 0, np.nextafter(deltas / failure_probability, np.inf), 0.0)
    below = ratios < 1
    if not below.any():
        return math.inf
    return float(np.min(epsilons[below] - np.log1p(-ratios[below]) * (1 + MARGIN)))


def bound_by_epsilons(epsilon_at: Callable[[Fraction], float], failure: Fraction, chance: Fraction) -> float:
    """Return the smallest loss bound over deltas between ``failure``, the least possible delta, and ``chance``.

    >>> round(bound_by_epsilons(lambda delta: 1.0, Fraction(1, 10**6), Fraction(1, 10**4)), 4)
    1.0101
    """
    if chance <= failure:
        return math.inf if failure else epsilon_at(chance)
    least = math.inf
    # Every split of the probability is valid, so the coarse list costs tightness only.
    for part in _PARTS:
        delta = failure + part * (chance - failure)
        epsilon = epsilon_at(delta)
        if math.isfinite(epsilon):
            least = min(least, approx_loss_bound(Fraction(epsilon), delta, chance))
    return least


def smallest_epsilon(delta_at: DeltaAt, delta: float) -> float:
    """Return the smallest epsilon, up to rounding, whose delta is proved to be at most ``delta``.

    The value returned was itself evaluated, so a profile that never understates delta makes it an upper bound.

    >>> round(smallest_epsilon(lambda epsilon: 0.5 - epsilon, 0.25), 9)
    0.25
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    # A profile may end at a positive delta; then no epsilon is enough.
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > _LARGEST:
            return math.inf
    above, below = delta_at(low), delta_at(high)
    first = allowed = high - low
    # OT21: the next point is the secant's, nudged towards the middle so that both ends close in. It stays so near to
    # the middle that the bracket is never more than one halving behind a bisection's; a quarter of its calls suffice.
    while high - low > _CLOSE * high:
        middle, width = (low + high) / 2, high - low
        secant = low + width * _share_down(above, delta, below)
        nudge = max(width**2 / first, _CLOSE * high) / 4
        aim = min(secant + nudge, middle) if secant < middle else max(secant - nudge, middle)
        reach = allowed - width / 2
        point = min(max(aim, middle - reach), middle + reach)
        found = delta_at(point)
        if found <= delta:
            high, below = point, found
        else:
            low, above = point, found
        allowed /= 2
    return high


def _share_down(above: float, delta: float, below: float) -> float:
    """Return how far down from ``above`` to ``below`` this delta is: tails fall like exponentials, ends like lines."""
    if min(delta, below) > 0:
        above, delta, below = math.log(above), math.log(delta), math.log(below)
    return (above - delta) / (above - below) if above > below else 0.5
