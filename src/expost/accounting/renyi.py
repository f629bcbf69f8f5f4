"""Renyi privacy over a grid of orders: the moments accountant, with every curve rounded up."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accounting.amplification import (
    mixture_renyi,
    poisson_gaussian_renyi,
    poisson_renyi,
    poisson_renyi_symmetric,
    without_replacement_renyi,
)
from expost.accounting.composition import approx_cost_of, pure_cost_of
from expost.accounting.concentrated import amplifies_failure, failure_of, rdp_to_delta, rdp_to_epsilon
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
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
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.rounding import Floats, add_up, float_down, float_up, widen
from expost.accounting.scenario import SampledEvent, Scenario
from expost.accounting.tradeoff_curve import bound_by_epsilons
from expost.core.errors import InvalidRequest
from expost.core.meaning import renyi_loss_bound

__all__ = ["ORDERS", "RenyiTotal", "ex_post_divergences", "renyi_divergences", "sum_renyi"]

ORDERS: tuple[float, ...] = tuple(
    [1 + tenths / 10 for tenths in range(1, 100)] + [float(order) for order in (*range(11, 64), 128, 256, 512, 1024)]
)
"""The usual grid: tenths up to 11, whole numbers to 63, then powers of two."""

_NEAR_RANDOMIZED_RESPONSE = (
    LaplaceEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    PermuteAndFlipEvent,
    PoissonSampled,
    SampledWithoutReplacement,
)
_LARGEST_SINH = 600.0
_TINY = Fraction(1, 4096)  # below it the absolute slack of a log moment would show
_MOMENT_SLACK = 2.0**-46  # absolute error of a log moment whose moment is near 1: 64 ulps


@dataclass(frozen=True)
class RenyiTotal:
    """Renyi divergences of a whole scenario, outside an event of probability ``failure``.

    >>> round(RenyiTotal((2.0, 8.0), np.array([0.2, 0.8]), Fraction(0)).epsilon(Fraction(1, 1000)), 3)
    1.356
    """

    orders: tuple[float, ...]
    costs: Floats
    failure: Fraction

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta by the best order of the grid (CKS20, Proposition 12)."""
        if not self.costs.any() and delta >= self.failure:
            return 0.0
        if delta <= self.failure:
            return math.inf
        return float(np.min(rdp_to_epsilon(np.array(self.orders), self.costs, float_down(delta - self.failure))))

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon by the best order of the grid (CKS20, Proposition 12)."""
        if not self.costs.any():
            return float_up(self.failure)
        best = float(np.min(rdp_to_delta(np.array(self.orders), self.costs, float_down(epsilon))))
        return min(1.0, math.nextafter(best + float_up(self.failure), math.inf))

    def loss_bound(self, chance: Fraction) -> float:
        """Return the loss exceeded with at most this probability: Chernoff's bound, where nothing else can fail."""
        if self.failure:
            return bound_by_epsilons(self.epsilon, self.failure, chance)
        if not self.costs.any():
            return 0.0
        return renyi_loss_bound(zip(self.orders, self.costs.tolist(), strict=True), chance)


def sum_renyi(scenario: Scenario, orders: tuple[float, ...] = ORDERS) -> RenyiTotal | None:
    """Add divergences over all leaves at each order (Mir17, Proposition 1); None where no order has a finite sum."""
    costs, failure = np.zeros(len(orders)), Fraction(0)
    for leaf, count in scenario.leaves:
        costs = add_up(costs, widen(renyi_divergences(leaf, orders) * count))
        failure += failure_of(leaf) * count  # outside it the divergences hold; a union bound over the leaves
    return RenyiTotal(orders, costs, failure) if np.isfinite(costs).any() and failure < 1 else None


@functools.lru_cache(maxsize=4096)
def renyi_divergences(event: PrivacyEvent, orders: tuple[float, ...]) -> Floats:
    """Return upper bounds on the Renyi divergences of a leaf, both directions; infinite where none is known.

    >>> renyi_divergences(GaussianEvent(2), (8.0,)).round(9).tolist()
    [1.0]
    """
    grid, curve = _grid_of(orders), _CURVES.get(type(event))
    bound = widen(np.full(len(grid), np.inf) if curve is None else curve(event, grid))
    if isinstance(event, _NEAR_RANDOMIZED_RESPONSE):
        epsilon = pure_cost_of(event)
        if epsilon is not None and (epsilon < _TINY or not event.is_leaf):
            # No pure mechanism is worse than randomized response (KOV15, Theorem 2.1), whose formula keeps all digits.
            bound = np.minimum(bound, widen(_randomized_response(float_up(epsilon), grid)))
    bound.flags.writeable = False
    return bound


def ex_post_divergences(loss: Fraction, cap: Fraction, orders: tuple[float, ...]) -> Floats:
    """Return the charge of a pure ex-post step at each order: its loss, or its cap's divergence if that is less.

    That the smaller one may be taken after the fact is docs/proofs/ex-post-renyi.md, Theorem 1.

    >>> ex_post_divergences(Fraction(1, 10), Fraction(1), (2.0, 64.0)).round(3).tolist()
    [0.1, 0.1]
    """
    return np.minimum(widen(_randomized_response(float_up(cap), _grid_of(orders))), float_up(loss))


@functools.lru_cache(maxsize=256)
def _grid_of(orders: tuple[float, ...]) -> Floats:
    """Return orders as a read-only array; refuse those that are not above 1."""
    grid = np.array(orders, dtype=np.float64)
    if not np.all(grid > 1):
        raise InvalidRequest("Expected Renyi orders above 1", do="Drop the others")
    grid.flags.writeable = False
    return grid


def _inner_curve(event: Sequence | Repeat, orders: Floats) -> Floats:
    """Return the divergences of a sequence or a repetition inside a sampled event."""
    grid = tuple(orders.tolist())
    if isinstance(event, Repeat):
        return renyi_divergences(event.event, grid) * event.count
    return functools.reduce(add_up, (renyi_divergences(inner, grid) for inner in event.events), np.zeros(len(grid)))


def _sampled_curve(event: SampledEvent, grid: Floats) -> Floats:
    """Return the divergences of a sampled event by the tightest theorem that applies."""
    inner, rate, orders = event.event, float_up(event.rate), tuple(grid.tolist())

    def curve(at: tuple[float, ...]) -> Floats:
        return renyi_divergences(inner, at)

    # Amplification of Renyi curves is proved without failures; with one, only the pair or no amplification is left.
    if failure_of(event) > 0:
        pair = approx_cost_of(event) if amplifies_failure(event) else None
        return curve(orders) if pair is None else _randomized_response(float_up(pair[0]), _grid_of(orders))
    if isinstance(event, SampledWithoutReplacement):
        return without_replacement_renyi(orders, rate, curve)
    if isinstance(inner, GaussianEvent):
        # The multiplier is rounded down by two ulps: less noise costs more.
        return poisson_gaussian_renyi(orders, rate, float(inner.noise_multiplier) * (1 - 2.0**-52))
    # Their worst pairs can be swapped, so one direction bounds both (docs/proofs/sampling.md).
    if isinstance(inner, PureEvent | LaplaceEvent | DiscreteLaplaceEvent | PermuteAndFlipEvent):
        return poisson_renyi_symmetric(orders, rate, curve)
    return poisson_renyi(orders, rate, curve)


def _mixture_curve(event: Mixture, grid: Floats) -> Floats:
    """Return the divergences of a mixture: moments average (docs/proofs/sampling.md)."""
    orders = tuple(grid.tolist())
    curves = np.array([renyi_divergences(part, orders) for _, part in event.parts])
    # Given that nothing failed the probabilities of the parts are others, so only the largest divergence is left.
    if failure_of(event) > 0:
        largest: Floats = curves.max(axis=0)
        return largest
    return mixture_renyi(orders, [float_up(share) for share, _ in event.parts], curves)


def _randomized_response(epsilon: float, orders: Floats) -> Floats:
    """Return log(cosh((a - 1/2) e) / cosh(e / 2)) / (a - 1), the worst case of pure DP (docs/proofs/pure-to-zcdp.md)."""
    if epsilon == 0:
        return np.zeros_like(orders)
    high, low = _log_cosh((orders - 0.5) * epsilon), float(_log_cosh(np.array([epsilon / 2]))[0])
    # A difference of two roundings: move both ends apart by 16 ulps. Never above epsilon itself.
    return np.minimum((high * (1 + 2.0**-48) - low * (1 - 2.0**-48)) / (orders - 1), epsilon)


def _log_cosh(x: Floats) -> Floats:
    """Return log cosh x for x >= 0, without cancellation near 0 and without overflow."""
    if x[-1] < _LARGEST_SINH and x[0] < _LARGEST_SINH:
        return np.asarray(np.log1p(2 * np.sinh(x / 2) ** 2))
    return np.where(x < 1, np.log1p(2 * np.sinh(np.minimum(x, 1) / 2) ** 2), x + np.log1p(np.exp(-2 * x)) - math.log(2))


def _laplace_curve(epsilon: float, orders: Floats) -> Floats:
    """Return log(a/(2a - 1) e^((a - 1) e) + (a - 1)/(2a - 1) e^(-a e)) / (a - 1) (Mir17, Proposition 6)."""
    top = (orders - 1) * epsilon
    # Factored by its largest term, which cannot overflow.
    log_moment = top + np.log((orders + (orders - 1) * np.exp(-top - orders * epsilon)) / (2 * orders - 1))
    return _divide_log_moment(log_moment, orders, top)


def _discrete_laplace_curve(scale: float, sensitivity: int, orders: Floats) -> Floats:
    """Return a geometric sum over the losses (s - 2j)/scale of the lattice (docs/proofs/laplace-domination.md)."""
    epsilon = sensitivity / scale
    top = (orders - 1) * epsilon
    log_total = math.log1p(math.exp(-1 / scale))
    ends = np.logaddexp(top, -orders * epsilon)
    if sensitivity > 1:
        ratio = -(2 * orders - 1) / scale  # ln of the geometric ratio
        inner = (
            top + np.log(np.expm1(-1 / scale) / np.expm1(ratio)) + ratio + np.log(-np.expm1(ratio * (sensitivity - 1)))
        )
        ends = np.logaddexp(ends, inner)
    return _divide_log_moment(ends - log_total, orders, top)


def _bounded_range_curve(epsilon: float, orders: Floats) -> Floats:
    """Return the worst divergence of a loss within an interval of length epsilon (docs/proofs/bounded-range.md)."""
    if epsilon == 0:
        return np.zeros_like(orders)
    log_a = epsilon + np.log(-np.expm1(-orders * epsilon))
    log_b = np.log(-np.expm1(-(orders - 1) * epsilon))
    log_y = np.log1p(-1 / orders) + log_a - log_b
    log_moment = (orders - 1) * log_y + log_a - np.log(orders) - (epsilon + math.log(-math.expm1(-epsilon)))
    sharp = _divide_log_moment(log_moment, orders, (orders - 1) * (np.abs(log_y) + 2))
    return np.minimum(sharp, orders * epsilon**2 / 8)


def _divide_log_moment(log_moment: Floats, orders: Floats, size: Floats) -> Floats:
    """Return a divergence from its log moment, whose absolute error grows with the size of the terms in it."""
    return np.maximum(log_moment + _MOMENT_SLACK * (1 + size), 0.0) / (orders - 1)


def _listed_curve(curve: tuple[tuple[Fraction, Fraction], ...], orders: Floats) -> Floats:
    """Interpolate a listed curve: (a - 1) R(a) is convex and vanishes at 1, so chords bound it (WBK19, Corollary 10)."""
    known = np.array([1.0, *(float(order) for order, _ in curve)])
    moments = np.array([0.0, *(float_up((order - 1) * cost) for order, cost in curve)])
    chords = np.interp(orders, known, moments) / (orders - 1)
    return np.where(orders <= known[-1], chords, np.inf)


_CURVES: dict[type[PrivacyEvent], Callable[[Any, Floats], Floats]] = {
    PureEvent: lambda event, orders: _randomized_response(float_up(event.epsilon), orders),
    ApproxEvent: lambda event, orders: _randomized_response(float_up(event.epsilon), orders),
    ConcentratedEvent: lambda event, orders: orders * float_up(event.rho),
    GaussianEvent: lambda event, orders: orders * float_up(event.mu_squared / 2),  # Mir17, Proposition 7
    DiscreteGaussianEvent: lambda event, orders: orders * float_up(event.rho),  # CKS20, Theorems 4 and 14
    RenyiEvent: lambda event, orders: _listed_curve(event.curve, orders),
    LaplaceEvent: lambda event, orders: _laplace_curve(float_up(1 / event.noise_multiplier), orders),
    DiscreteLaplaceEvent: lambda event, orders: _discrete_laplace_curve(float(event.scale), event.sensitivity, orders),
    ExponentialEvent: lambda event, orders: _bounded_range_curve(float_up(event.epsilon), orders),
    PermuteAndFlipEvent: lambda event, orders: _laplace_curve(float_up(event.epsilon), orders),
    Sequence: _inner_curve,
    Repeat: _inner_curve,
    Mixture: _mixture_curve,
    PoissonSampled: _sampled_curve,
    SampledWithoutReplacement: _sampled_curve,
}
