"""What a mechanism promises, and what two probabilities of one event say against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expost.core import (
    ApproxGuarantee,
    GaussianGuarantee,
    Guarantee,
    InvalidRequest,
    PureGuarantee,
    RenyiGuarantee,
    ZeroConcentratedGuarantee,
)

__all__ = ["Claim", "ExPost", "bound_from_cells", "bound_from_event", "limit_of", "unit_of"]

_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 24), np.geomspace(2.2, 200, 24)])


@dataclass(frozen=True)
class ExPost:
    """The promise of an ex-post mechanism: each outcome costs at most the bill that leaves with it, never above the cap.

    >>> str(ExPost(PureGuarantee(1)))
    'the bill, at most epsilon 1'
    """

    cap: PureGuarantee | ZeroConcentratedGuarantee

    def __str__(self) -> str:
        return f"the bill, at most {self.cap}"


Claim = Guarantee | ExPost


def limit_of(claim: Claim) -> float:
    """Return the number a bound must not exceed, in the claim's own unit; for ex-post claims the cap.

    >>> limit_of(PureGuarantee(0.5))
    0.5
    """
    match claim:
        case ExPost(cap):
            return limit_of(cap)
        case PureGuarantee(epsilon) | ApproxGuarantee(epsilon, _):
            return float(epsilon)
        case ZeroConcentratedGuarantee(rho):
            return float(rho)
        case GaussianGuarantee():
            return claim.mu
        case RenyiGuarantee():
            return 1.0  # the bound is measured as a share of the curve, see bound_from_event
    raise InvalidRequest("Expected a known claim", got=type(claim).__name__, do="Pass a Guarantee or ExPost")


def unit_of(claim: Claim) -> str:
    """Return the name of that number.

    >>> unit_of(ZeroConcentratedGuarantee(1))
    'rho'
    """
    match claim:
        case ExPost(cap):
            return unit_of(cap)
        case ZeroConcentratedGuarantee():
            return "rho"
        case GaussianGuarantee():
            return "mu"
        case RenyiGuarantee():
            return "share of the curve"
    return "epsilon"


def bound_from_event(claim: Claim, likely: NDArray[Any], rare: NDArray[Any]) -> NDArray[Any]:
    """Return the least privacy loss compatible with an event of probability >= ``likely`` here and <= ``rare`` there.

    Monotone in both numbers, so confidence bounds on them give a confidence bound on the loss. Zero where the event
    says nothing.

    >>> bound_from_event(PureGuarantee(1), np.array([0.5]), np.array([0.25])).round(4)
    array([0.6931])
    """
    p, q = np.asarray(likely, np.float64), np.maximum(np.asarray(rare, np.float64), 1e-300)
    found = np.nan_to_num(_found(claim, p, q), nan=0.0, posinf=math.inf, neginf=0.0)
    bound: NDArray[Any] = np.where(p > q, np.maximum(found, 0.0), 0.0)
    return bound


def bound_from_cells(claim: Claim, likely: NDArray[Any], rare: NDArray[Any]) -> float:
    """Return the same from several disjoint events together, for claims on a Renyi divergence; others know single events only.

    The divergence is a sum over outcomes of p^order q^(1 - order), and one event's share of it is at least its own term
    (Jensen), which grows with p and falls with q: bounds on both sides of each event give a bound on the sum.

    >>> thirds = np.array([0.5, 0.3, 0.1]), np.array([0.1, 0.3, 0.5])
    >>> bound_from_cells(ZeroConcentratedGuarantee(1), *thirds) > 0.5
    True
    """
    with np.errstate(divide="ignore"):
        p, q = np.log(likely)[:, None], np.log(np.maximum(rare, 1e-300))[:, None]
    match claim:
        case ZeroConcentratedGuarantee() | ExPost(ZeroConcentratedGuarantee()):
            orders, limits = _ORDERS, _ORDERS
        case RenyiGuarantee(curve):
            orders = np.array([float(order) for order, _ in curve])
            limits = np.maximum([float(epsilon) for _, epsilon in curve], 1e-300)
        case _:
            raise InvalidRequest("Expected a claim on a divergence", got=str(claim), do="Use bound_from_event")
    total = special.logsumexp(orders * p + (1 - orders) * q, axis=0) / (orders - 1)
    return max(float(np.max(total / limits)), 0.0)


def _found(claim: Claim, p: NDArray[Any], q: NDArray[Any]) -> Any:
    match claim:
        case PureGuarantee() | ExPost(PureGuarantee()):
            return _log_ratio(p, q)
        case ApproxGuarantee(_, delta):
            return _log_ratio(p - float(delta), q)  # P(S) <= e^epsilon Q(S) + delta
        case ZeroConcentratedGuarantee():
            return np.max(_renyi(p, q) / _ORDERS[:, None], axis=0)  # BS16, Definition 1.1, after post-processing
        case ExPost():
            return np.max(_one_term_renyi(p, q) / _ORDERS[:, None], axis=0)
        case GaussianGuarantee():
            return special.ndtri(np.clip(p, 1e-300, 1)) - special.ndtri(np.clip(q, 1e-300, 1))  # DRS22, Definition 4
        case RenyiGuarantee(curve):
            orders = np.array([[float(order)] for order, _ in curve])
            limits = np.array([[float(epsilon)] for _, epsilon in curve])
            return np.max(_renyi(p, q, orders) / np.maximum(limits, 1e-300), axis=0)
    raise InvalidRequest("Expected a known claim", got=type(claim).__name__, do="Pass a Guarantee or ExPost")


def _log_ratio(p: NDArray[Any], q: NDArray[Any]) -> Any:
    return np.log(np.maximum(p, 1e-300)) - np.log(q)


def _renyi(p: NDArray[Any], q: NDArray[Any], orders: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the Renyi divergence of the two coins that the event makes, one row an order (Mir17, Definition 3)."""
    alpha = _ORDERS[:, None] if orders is None else orders
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = alpha * np.log(p) + (1 - alpha) * np.log(q)
        tails = alpha * np.log1p(-p) + (1 - alpha) * np.log1p(-np.minimum(q, 1 - 1e-16))
        total: NDArray[Any] = np.logaddexp(heads, tails) / (alpha - 1)
    return total


def _one_term_renyi(p: NDArray[Any], q: NDArray[Any]) -> NDArray[Any]:
    """Return the same with the event's own term alone.

    An ex-post bill e promises E[exp((order - 1)(L - order e))] <= 1 over *all* outcomes; the other outcomes have other
    bills, and dropping their terms only weakens the attack.
    """
    alpha = _ORDERS[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        total: NDArray[Any] = (alpha * np.log(p) + (1 - alpha) * np.log(q)) / (alpha - 1)
    return total
