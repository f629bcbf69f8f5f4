"""What a random sample takes off the price.

Two ways of sampling, two adjacencies, never mixed: Poisson sampling (each unit in the sample by its own coin) is analysed
under add/remove, sampling without replacement under replace-one. Proofs of the Renyi bounds: docs/proofs/sampling.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from expost.accounting.rounding import Floats, float_up
from expost.accounting.typed import amount_of
from expost.core.errors import InvalidRequest
from expost.core.rational import round_up

__all__ = [
    "amplified_epsilon",
    "poisson_gaussian_renyi",
    "poisson_renyi",
    "poisson_renyi_symmetric",
    "without_replacement_renyi",
]

Curve = Callable[[tuple[float, ...]], Floats]
"""Renyi divergences of the mechanism that is run on the sample, by orders."""

_FLOAT_ERROR = Fraction(1, 10**11)  # relative, of both forms below: a few units of 2^-52, or e of them over e - 668
_LARGEST_EXPONENT = 700.0  # whose exponential is a float
_SMALLEST_RATE = 1e-290  # with which the value is still above 32 at that exponent
_SMALLEST_VALUE = 1e-300  # products below it lose their digits
_LOG_SLACK = 2.0**-44  # per unit of |log term|: 256 ulps for the handful of roundings in each of them
_ORDERS_AT_A_TIME = 64  # with some hundred nodes each: stays in the cache
_SMALLEST_NOISE = 0.05  # below it an order's integrand needs more than 10^4 nodes, and its epsilon is beyond use


def amplified_epsilon(epsilon: Fraction, rate: Fraction) -> Fraction:
    """The epsilon of a mechanism on a random sample: ln(1 + rate (e^epsilon - 1)), rounded up; delta becomes rate delta.

    Exact for Poisson sampling under add/remove and for sampling without replacement under replace-one (BBG18,
    Theorems 8 and 9). It holds outcome by outcome too, hence for pure ex-post losses (docs/proofs/ex-post-composition.md).

    >>> float(amplified_epsilon(Fraction(5), Fraction(1, 100))) < 0.9059
    True
    """
    epsilon, rate = amount_of(epsilon, "epsilon"), amount_of(rate, "rate")
    if rate > 1:
        raise InvalidRequest("Expected a rate of at most 1", got=rate, do="Pass the share of the rows in the sample")
    if rate == 0 or epsilon == 0:
        return Fraction(0)
    if rate == 1:
        return epsilon
    e, q = float_up(epsilon), float_up(rate)
    if e < _LARGEST_EXPONENT:
        value = math.log1p(q * math.expm1(e))
    else:  # without overflow; a rate so small that the two terms cancel is rounded up
        q = max(q, _SMALLEST_RATE)
        value = e + math.log(q + (1 - q) * math.exp(-e))
    return min(epsilon, round_up(max(value, _SMALLEST_VALUE), relative=_FLOAT_ERROR))


def poisson_renyi_symmetric(orders: tuple[float, ...], rate: float, curve: Curve) -> Floats:
    """Poisson sampling of a mechanism whose worst pair of outputs can be swapped (Laplace, randomised response).

    At whole orders the moment is the binomial average of the mechanism's own moments, and the direction "with the unit
    against without" is the larger one (MTZ19, Theorem 5; docs/proofs/sampling.md). Between whole orders the logarithm of
    the moment is convex in the order, hence below the chord (WBK19, Corollary 10).
    """
    whole = _whole_orders(orders)
    excess = _binomial_excess(whole, rate, _log_expm1(_log_moments(curve, whole[-1])))
    return np.minimum(curve(orders), _interpolated(orders, whole, np.logaddexp(0.0, excess)))


def poisson_renyi(orders: tuple[float, ...], rate: float, curve: Curve) -> Floats:
    """Poisson sampling of any mechanism with these Renyi divergences; both directions bounded separately."""
    whole = _whole_orders(orders)
    with_unit = poisson_renyi_symmetric(orders, rate, curve)
    every = tuple(float(order) for order in whole)
    own = (np.array(every) - 1) * curve(every)
    without = np.minimum(_second_order(np.array(every), rate, curve), _log_mixture(rate, own))
    return np.minimum(curve(orders), np.maximum(with_unit, _interpolated(orders, whole, without)))


def without_replacement_renyi(orders: tuple[float, ...], rate: float, curve: Curve) -> Floats:
    """Sampling without replacement of any mechanism with these Renyi divergences (WBK19, Theorem 9, re-derived)."""
    whole = _whole_orders(orders)
    moments = _log_moments(curve, whole[-1])
    weights = math.log(2) + moments
    # The second term: min(4 (e^R - 1), 2 e^R) for the divergence R at order 2.
    weights[2] = min(math.log(4) + float(_log_expm1(moments[2:3])[0]), float(weights[2]))
    weights[:2] = -np.inf
    excess = _sum_terms(whole, np.arange(whole[-1] + 1) * math.log(rate) + weights, rate)
    return np.minimum(curve(orders), _interpolated(orders, whole, np.logaddexp(0.0, excess)))


def poisson_gaussian_renyi(orders: tuple[float, ...], rate: float, noise_multiplier: float) -> Floats:
    """The sampled Gaussian mechanism: a finite sum at whole orders, a quadrature between them (MTZ19, Section 3).

    The quadrature is the trapezoidal rule on a function analytic in a strip of half-width pi sigma^2, so that its error is
    below e^-45 of the result for the step chosen here (docs/proofs/sampling.md).
    """

    def curve(at: tuple[float, ...]) -> Floats:
        return _array(at) / (2 * noise_multiplier**2)

    values = poisson_renyi_symmetric(orders, rate, curve)
    if noise_multiplier < _SMALLEST_NOISE:
        return values
    between = np.flatnonzero(_array(orders) % 1)
    for start in range(0, len(between), _ORDERS_AT_A_TIME):
        places = between[start : start + _ORDERS_AT_A_TIME]
        order = _array(orders)[places]
        log_moments = np.logaddexp(0.0, _gaussian_excess(order, rate, noise_multiplier))
        values[places] = (log_moments * (1 + _LOG_SLACK)) / (order - 1)
    return values


def _gaussian_excess(orders: Floats, rate: float, sigma: float) -> Floats:
    """Log of E[(1 + y)^order - 1 - order y], y = rate (likelihood ratio - 1), under the law without the unit."""
    step = min(sigma / 10, 0.4386 * sigma**2)
    nodes = np.arange(-12 * sigma, orders.max() + 12 * sigma, step)
    log_ratio = (2 * nodes - 1) / (2 * sigma**2)
    log_terms = _log_bernoulli_gap(orders[:, None], rate, log_ratio) - nodes**2 / (2 * sigma**2)
    scale = math.log(step / (sigma * math.sqrt(2 * math.pi)))
    # Every node's term is non-negative, so nothing cancels, and nodes further out than a small order needs only add; the
    # slack covers the size of the logarithms summed.
    return _log_sums(log_terms) + scale + _LOG_SLACK * (orders + 12 * sigma) ** 2 / sigma**2


def _log_bernoulli_gap(order: Floats, rate: float, log_ratio: Floats) -> Floats:
    """ln((1 + y)^order - 1 - order y) for y = rate (e^log_ratio - 1), accurate for tiny and for huge y."""
    log_base = np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        y = rate * np.expm1(log_ratio)
        small = np.abs(order * y) < 0.02
        power = order * log_base
        inverse = np.exp(-power)
        large = power + np.log1p(-inverse - order * (np.exp(log_base - power) - inverse))
        middle = np.log(np.expm1(order * np.log1p(y)) - order * y)
        series = np.log(order * (order - 1) / 2) + 2 * np.log(np.abs(y)) + np.log(_tail_series(order, y))
    return np.where(small, series, np.where(power > 1, large, middle))


def _tail_series(order: Floats, y: Floats) -> Floats:
    """((1 + y)^order - 1 - order y) / (order (order - 1) y^2 / 2) by ten terms of the binomial series."""
    total: Floats = np.ones_like(y)
    for k in range(12, 2, -1):
        total = 1 + (order - k + 1) / k * y * total
    return total


def _second_order(orders: Floats, rate: float, curve: Curve) -> Floats:
    """ln(1 + a (a - 1)/2 q^2 (1 - q)^-(a + 1) (e^R(2) - 1)): the direction "without the unit against with"."""
    excess = float(_log_expm1(curve((2.0,)))[0])
    return np.logaddexp(
        0.0, np.log(orders * (orders - 1) / 2) + 2 * math.log(rate) - (orders + 1) * math.log1p(-rate) + excess
    )


def _log_mixture(rate: float, log_moment: Floats) -> Floats:
    """ln(1 - q + q e^m): joint convexity of the moment."""
    return np.logaddexp(math.log1p(-rate), math.log(rate) + log_moment)


@functools.lru_cache(maxsize=64)
def _whole_orders(orders: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(
        sorted({2} | {max(2, math.floor(order)) for order in orders} | {max(2, math.ceil(order)) for order in orders})
    )


def _log_moments(curve: Curve, highest: int) -> Floats:
    """(i - 1) R(i) for i = 0, ..., highest."""
    moments = np.zeros(highest + 1)
    moments[2:] = np.arange(1, highest) * curve(_powers(highest))
    return moments


@functools.lru_cache(maxsize=256)
def _array(orders: tuple[float, ...]) -> Floats:
    return np.array(orders, dtype=np.float64)


@functools.lru_cache(maxsize=64)
def _powers(highest: int) -> tuple[float, ...]:
    return tuple(float(power) for power in range(2, highest + 1))


def _binomial_excess(whole: tuple[int, ...], rate: float, log_excess: Floats) -> Floats:
    """Log of sum_i C(a, i) q^i (1 - q)^(a - i) (e^m_i - 1) for each whole order a; all terms are non-negative."""
    powers, rest, _, _ = _tables(whole)
    return _sum_terms(whole, powers * math.log(rate) + log_excess, rate, rest * math.log1p(-rate))


def _sum_terms(whole: tuple[int, ...], log_terms: Floats, rate: float, more: Floats | float = 0.0) -> Floats:
    """Log of sum_i C(a, i) e^(terms_i + more_ai), with slack for the size of the logarithms."""
    _, _, binomials, absent = _tables(whole)
    terms = binomials + log_terms + more
    terms[absent] = -np.inf  # powers above the order do not occur, however large (or infinite) their moments are
    return _log_sums(terms) + _LOG_SLACK * (1 + np.array(whole) * (2 + abs(math.log(rate)) + abs(math.log1p(-rate))))


def _log_sums(terms: Floats) -> Floats:
    """Log of the sum of e^terms, row by row, also where a largest term is infinite."""
    largest = terms.max(axis=1)
    with np.errstate(invalid="ignore"):
        total: Floats = np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest
    return np.where(np.isfinite(largest), total, largest)


@functools.lru_cache(maxsize=64)
def _tables(whole: tuple[int, ...]) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Powers i, exponents a - i, ln C(a, i) and where i exceeds a, for all orders a and powers i."""
    orders = np.array(whole, dtype=np.float64)[:, None]
    powers = np.arange(whole[-1] + 1, dtype=np.float64)
    rest = np.maximum(orders - powers, 0)
    binomials: Floats = np.where(powers <= orders, gammaln(orders + 1) - gammaln(powers + 1) - gammaln(rest + 1), 0.0)
    return powers, rest, binomials, powers > orders


def _interpolated(orders: tuple[float, ...], whole: tuple[int, ...], log_moments: Floats) -> Floats:
    """Divergences at all orders from the log moments at whole ones; the log moment at order 1 is zero."""
    at = _array(orders)
    chords: Floats = np.interp(at, [1, *whole], [0.0, *log_moments])
    return chords / (at - 1)


def _log_expm1(value: Floats) -> Floats:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(value > 30, value, np.log(np.expm1(np.minimum(value, 30))))
