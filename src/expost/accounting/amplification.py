"""How much random sampling lowers the cost of a mechanism.

Two kinds of sampling, two adjacencies, never mixed: Poisson sampling (each unit is in the sample independently) is
analyzed under add/remove, sampling without replacement under replace-one. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import scipy
from numpy.typing import NDArray

from expost.accounting.rounding import Floats, float_up, read_amount
from expost.core.errors import InvalidRequest
from expost.core.rational import round_up

__all__ = [
    "amplified_epsilon",
    "mixture_renyi",
    "poisson_gaussian_renyi",
    "poisson_renyi",
    "poisson_renyi_symmetric",
    "without_replacement_renyi",
]

RenyiAt = Callable[[tuple[float, ...]], Floats]
"""Renyi divergences of the mechanism that is run on the sample, by orders."""

_FLOAT_ERROR = Fraction(1, 10**11)  # relative, of both forms below: a few units of 2^-52, or e of them over e - 668
_LARGEST_EXPONENT = 700.0  # whose exponential is a float
_SMALLEST_RATE = 1e-290  # with which the value is still above 32 at that exponent
_SMALLEST_VALUE = 1e-300  # products below it lose their digits
_LOG_SLACK = 2.0**-44  # per unit of |log term|: 256 ulps for the handful of roundings in each of them
_ORDERS_AT_A_TIME = 64  # with some hundred nodes each: stays in the cache
_SMALLEST_NOISE = 0.05  # below it an order's integrand needs more than 10^4 nodes, and its epsilon is beyond use


def amplified_epsilon(epsilon: float | Fraction, rate: float | Fraction) -> Fraction:
    """Return the epsilon of a mechanism on a random sample: ln(1 + rate (e^epsilon - 1)), rounded up.

    A delta becomes rate delta. Exact for Poisson sampling under add/remove and for sampling without replacement under
    replace-one (BBG18, Theorems 8 and 9). It holds outcome by outcome, hence for pure ex-post losses too
    (docs/proofs/ex-post-composition.md).

    Parameters
    ----------
    epsilon : number >= 0
        The epsilon of the mechanism on the rows it gets.
    rate : number in [0, 1]
        The share of the units in the sample.

    Returns
    -------
    Fraction

    Raises
    ------
    InvalidRequest
        If a number is negative or the rate is above 1.

    Examples
    --------
    >>> float(amplified_epsilon(5, 0.01)) < 0.9059
    True
    """
    exact, share = read_amount(epsilon, "epsilon"), read_amount(rate, "rate")
    if share > 1:
        raise InvalidRequest("Expected a rate of at most 1", got=share, do="Pass the share of the rows in the sample")
    if share == 0 or exact == 0:
        return Fraction(0)
    if share == 1:
        return exact
    e, q = float_up(exact), float_up(share)
    if e < _LARGEST_EXPONENT:
        value = math.log1p(q * math.expm1(e))
    else:  # without overflow; a rate so small that the two terms cancel is rounded up
        q = max(q, _SMALLEST_RATE)
        value = e + math.log(q + (1 - q) * math.exp(-e))
    return min(exact, round_up(max(value, _SMALLEST_VALUE), relative=_FLOAT_ERROR))


def poisson_renyi_symmetric(orders: tuple[float, ...], rate: float, curve: RenyiAt) -> Floats:
    """Bound Poisson sampling of a mechanism whose worst pair of outputs can be swapped (Laplace, randomized response).

    At whole orders the moment is the binomial average of the mechanism's own moments, and the direction "with the unit
    against without" is the larger one (MTZ19, Theorem 5; docs/proofs/sampling.md). Between whole orders the logarithm
    of the moment is convex in the order, hence below the chord (WBK19, Corollary 10).
    """
    whole = _whole_orders(orders)
    powers, rest, _, _ = _binomial_tables(whole)
    log_excess = _log_expm1(_log_moments(curve, whole[-1]))
    # sum_i C(a, i) q^i (1 - q)^(a - i) (e^m_i - 1): all terms are non-negative, so nothing cancels.
    excess = _sum_terms(whole, powers * math.log(rate) + log_excess, rate, rest * math.log1p(-rate))
    return np.minimum(curve(orders), _interpolate_orders(orders, whole, np.logaddexp(0.0, excess)))


def poisson_renyi(orders: tuple[float, ...], rate: float, curve: RenyiAt) -> Floats:
    """Bound Poisson sampling of any mechanism with these Renyi divergences, each direction by itself."""
    whole = _whole_orders(orders)
    with_unit = poisson_renyi_symmetric(orders, rate, curve)
    every = tuple(float(order) for order in whole)
    a = np.array(every)
    own = (a - 1) * curve(every)
    # Without the unit against with: ln(1 + a (a - 1)/2 q^2 (1 - q)^-(a + 1) (e^R(2) - 1)) ...
    spread = float(_log_expm1(curve((2.0,)))[0])
    second = np.logaddexp(0.0, np.log(a * (a - 1) / 2) + 2 * math.log(rate) - (a + 1) * math.log1p(-rate) + spread)
    # ... or ln(1 - q + q e^m), by joint convexity of the moment m.
    mixture = np.logaddexp(math.log1p(-rate), math.log(rate) + own)
    without = np.minimum(second, mixture)
    return np.minimum(curve(orders), np.maximum(with_unit, _interpolate_orders(orders, whole, without)))


def without_replacement_renyi(orders: tuple[float, ...], rate: float, curve: RenyiAt) -> Floats:
    """Bound sampling without replacement of any mechanism with these divergences (WBK19, Theorem 9, re-derived)."""
    whole = _whole_orders(orders)
    moments = _log_moments(curve, whole[-1])
    weights = math.log(2) + moments
    # The second term: min(4 (e^R - 1), 2 e^R) for the divergence R at order 2.
    weights[2] = min(math.log(4) + float(_log_expm1(moments[2:3])[0]), float(weights[2]))
    weights[:2] = -np.inf
    excess = _sum_terms(whole, np.arange(whole[-1] + 1) * math.log(rate) + weights, rate)
    return np.minimum(curve(orders), _interpolate_orders(orders, whole, np.logaddexp(0.0, excess)))


def mixture_renyi(orders: tuple[float, ...], shares: Sequence[float], curves: Floats) -> Floats:
    """Return ln(sum_i p_i e^((a - 1) R_i(a))) / (a - 1): the divergences of a choice with public probabilities p."""
    at = _array_of(orders)
    sizes, log_shares = (at - 1) * curves, np.log(shares)[:, None]
    # ln(1 + sum_i p_i (e^m_i - 1)): all terms are non-negative, so nothing cancels.
    excess = _log_sums((log_shares + _log_expm1(sizes)).T)
    slack = _LOG_SLACK * (1 + np.abs(log_shares).max() + sizes.max(axis=0))
    found: Floats = np.minimum(np.logaddexp(0.0, excess + slack) / (at - 1), curves.max(axis=0))
    return found


def poisson_gaussian_renyi(orders: tuple[float, ...], rate: float, noise_multiplier: float) -> Floats:
    """Bound the sampled Gaussian mechanism: a finite sum at whole orders, a quadrature between (MTZ19, Section 3).

    The quadrature is the trapezoidal rule on a function analytic in a strip of half-width pi sigma^2, so that its error
    is below e^-45 of the result for the step chosen here (docs/proofs/sampling.md).
    """

    def curve(at: tuple[float, ...]) -> Floats:
        return _array_of(at) / (2 * noise_multiplier**2)

    values = poisson_renyi_symmetric(orders, rate, curve)
    if noise_multiplier < _SMALLEST_NOISE:
        return values
    between = np.flatnonzero(_array_of(orders) % 1)
    for start in range(0, len(between), _ORDERS_AT_A_TIME):
        places = between[start : start + _ORDERS_AT_A_TIME]
        order = _array_of(orders)[places]
        log_moments = np.logaddexp(0.0, _gaussian_excess(order, rate, noise_multiplier))
        values[places] = (log_moments * (1 + _LOG_SLACK)) / (order - 1)
    return values


def _gaussian_excess(orders: Floats, rate: float, sigma: float) -> Floats:
    """Return the log of E[(1 + y)^order - 1 - order y], y = rate (likelihood ratio - 1), without the unit."""
    step = min(sigma / 10, 0.4386 * sigma**2)
    nodes = np.arange(-12 * sigma, orders.max() + 12 * sigma, step)
    log_ratio = (2 * nodes - 1) / (2 * sigma**2)
    log_terms = _log_bernoulli_gap(orders[:, None], rate, log_ratio) - nodes**2 / (2 * sigma**2)
    scale = math.log(step / (sigma * math.sqrt(2 * math.pi)))
    # Every node's term is non-negative, so nothing cancels, and nodes further out than a small order needs only add.
    # The slack covers the size of the logarithms summed.
    return _log_sums(log_terms) + scale + _LOG_SLACK * (orders + 12 * sigma) ** 2 / sigma**2


def _log_bernoulli_gap(order: Floats, rate: float, log_ratio: Floats) -> Floats:
    """Return ln((1 + y)^order - 1 - order y) for y = rate (e^log_ratio - 1), accurate for tiny and for huge y."""
    log_base = np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        y = rate * np.expm1(log_ratio)
        small = np.abs(order * y) < 0.02
        power = order * log_base
        inverse = np.exp(-power)
        large = power + np.log1p(-inverse - order * (np.exp(log_base - power) - inverse))
        middle = np.log(np.expm1(order * np.log1p(y)) - order * y)
        # For small y: ten terms of the binomial series of the gap over order (order - 1) y^2 / 2.
        tail: Floats = np.ones_like(y)
        for k in range(12, 2, -1):
            tail = 1 + (order - k + 1) / k * y * tail
        series = np.log(order * (order - 1) / 2) + 2 * np.log(np.abs(y)) + np.log(tail)
    return np.where(small, series, np.where(power > 1, large, middle))


@functools.lru_cache(maxsize=64)
def _whole_orders(orders: tuple[float, ...]) -> tuple[int, ...]:
    """Return the whole orders around the given ones, 2 included."""
    around = {max(2, end(order)) for order in orders for end in (math.floor, math.ceil)}
    return tuple(sorted({2} | around))


@functools.lru_cache(maxsize=256)
def _array_of(orders: tuple[float, ...]) -> Floats:
    """Return orders as an array."""
    return np.array(orders, dtype=np.float64)


def _log_moments(curve: RenyiAt, highest: int) -> Floats:
    """Return (i - 1) R(i) for i = 0, ..., highest."""
    moments = np.zeros(highest + 1)
    moments[2:] = np.arange(1, highest) * curve(_powers_to(highest))
    return moments


@functools.lru_cache(maxsize=64)
def _powers_to(highest: int) -> tuple[float, ...]:
    """Return 2.0, 3.0, ..., highest: one tuple, so that caches of curves hit."""
    return tuple(float(power) for power in range(2, highest + 1))


def _sum_terms(whole: tuple[int, ...], log_terms: Floats, rate: float, more: Floats | float = 0.0) -> Floats:
    """Return the log of sum_i C(a, i) e^(terms_i + more_ai), with slack for the size of the logarithms."""
    _, _, binomials, absent = _binomial_tables(whole)
    terms = binomials + log_terms + more
    terms[absent] = -np.inf  # powers above the order do not occur, however large (or infinite) their moments are
    return _log_sums(terms) + _LOG_SLACK * (1 + np.array(whole) * (2 + abs(math.log(rate)) + abs(math.log1p(-rate))))


def _log_sums(terms: Floats) -> Floats:
    """Return the log of the sum of e^terms, row by row, also where a largest term is infinite."""
    largest = terms.max(axis=1)
    with np.errstate(invalid="ignore"):
        total: Floats = np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest
    return np.where(np.isfinite(largest), total, largest)


@functools.lru_cache(maxsize=64)
def _binomial_tables(whole: tuple[int, ...]) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Return powers i, exponents a - i, ln C(a, i) and where i exceeds a, for all orders a and powers i."""
    orders = np.array(whole, dtype=np.float64)[:, None]
    powers = np.arange(whole[-1] + 1, dtype=np.float64)
    rest = np.maximum(orders - powers, 0)
    binomials: Floats = np.where(
        powers <= orders,
        scipy.special.gammaln(orders + 1) - scipy.special.gammaln(powers + 1) - scipy.special.gammaln(rest + 1),
        0.0,
    )
    return powers, rest, binomials, powers > orders


def _interpolate_orders(orders: tuple[float, ...], whole: tuple[int, ...], log_moments: Floats) -> Floats:
    """Return divergences at all orders from the log moments at whole ones; the log moment at order 1 is zero."""
    at = _array_of(orders)
    chords: Floats = np.interp(at, [1, *whole], [0.0, *log_moments])
    return chords / (at - 1)


def _log_expm1(value: Floats) -> Floats:
    """Return ln(e^value - 1) without overflow."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(value > 30, value, np.log(np.expm1(np.minimum(value, 30))))
