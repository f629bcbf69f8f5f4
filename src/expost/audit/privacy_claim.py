"""What a mechanism promises, and the loss that two probabilities of one event prove."""

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
    """The promise of an ex-post mechanism: each outcome costs at most the bill that leaves with it, never above the cap."""

    cap: PureGuarantee | ZeroConcentratedGuarantee

    def __str__(self) -> str:
        return f"the bill, at most {self.cap}"


Claim = Guarantee | ExPost


def limit_of(claim: Claim) -> float:
    """Read the number a bound must not exceed, in the unit of the claim; for ex-post claims the cap."""
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
    """Name the unit of the number that ``limit_of`` returns."""
    units = {ZeroConcentratedGuarantee: "rho", GaussianGuarantee: "mu", RenyiGuarantee: "share of the curve"}
    return units.get(type(claim.cap if isinstance(claim, ExPost) else claim), "epsilon")


def bound_from_event(claim: Claim, likely: NDArray[Any], rare: NDArray[Any]) -> NDArray[Any]:
    """Compute the least privacy loss compatible with an event of probability >= ``likely`` here and <= ``rare`` there.

    It is monotone in both numbers, so confidence bounds on them give a confidence bound on the loss. It is zero where
    the event shows no loss.
    """
    p, q = np.asarray(likely, np.float64), np.maximum(np.asarray(rare, np.float64), 1e-300)
    found = np.nan_to_num(_loss_from_event(claim, p, q), nan=0.0, posinf=math.inf, neginf=0.0)
    bound: NDArray[Any] = np.where(p > q, np.maximum(found, 0.0), 0.0)
    return bound


def bound_from_cells(claim: Claim, likely: NDArray[Any], rare: NDArray[Any]) -> float:
    """Compute the least privacy loss compatible with several disjoint events together, for claims on a Renyi divergence.

    The divergence is a sum over outcomes of p^order q^(1 - order), and one event's share of it is at least its own term
    (Jensen), which grows with p and falls with q: bounds on both sides of each event give a bound on the sum.
    """
    with np.errstate(divide="ignore"):
        p, q = np.log(likely)[:, None], np.log(np.maximum(rare, 1e-300))[:, None]
    match claim:
        case ZeroConcentratedGuarantee() | ExPost(ZeroConcentratedGuarantee()):
            orders, limits = _ORDERS, _ORDERS
        case RenyiGuarantee(curve):
            orders, limits = np.maximum(np.array(curve, np.float64).T, 1e-300)
        case _:
            raise InvalidRequest("Expected a claim on a divergence", got=str(claim), do="Use bound_from_event")
    total = special.logsumexp(orders * p + (1 - orders) * q, axis=0) / (orders - 1)
    return max(float(np.max(total / limits)), 0.0)


def _loss_from_event(claim: Claim, p: NDArray[Any], q: NDArray[Any]) -> Any:
    """Compute the loss before it is limited to events that are likelier here than there."""
    match claim:
        case PureGuarantee() | ExPost(PureGuarantee()):
            return np.log(np.maximum(p, 1e-300)) - np.log(q)
        case ApproxGuarantee(_, delta):
            return np.log(np.maximum(p - float(delta), 1e-300)) - np.log(q)  # P(S) <= e^epsilon Q(S) + delta
        case ZeroConcentratedGuarantee():
            orders = _ORDERS[:, None]
            return np.max(_event_divergence(p, q, orders) / orders, axis=0)  # BS16, Definition 1.1, post-processed
        case ExPost():
            # A bill e promises E[exp((order - 1)(L - order e))] <= 1 over *all* outcomes. The other outcomes have other
            # bills; dropping their terms only weakens the attack.
            orders = _ORDERS[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                total = (orders * np.log(p) + (1 - orders) * np.log(q)) / (orders - 1)
            return np.max(total / orders, axis=0)
        case GaussianGuarantee():
            return special.ndtri(np.clip(p, 1e-300, 1)) - special.ndtri(np.clip(q, 1e-300, 1))  # DRS22, Definition 4
        case RenyiGuarantee(curve):
            orders, limits = np.array(curve, np.float64).T[:, :, None]
            return np.max(_event_divergence(p, q, orders) / np.maximum(limits, 1e-300), axis=0)
    raise InvalidRequest("Expected a known claim", got=type(claim).__name__, do="Pass a Guarantee or ExPost")


def _event_divergence(p: NDArray[Any], q: NDArray[Any], orders: NDArray[Any]) -> NDArray[Any]:
    """Compute the Renyi divergence of the two coins that the event makes, one row per order (Mir17, Definition 3)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = orders * np.log(p) + (1 - orders) * np.log(q)
        tails = orders * np.log1p(-p) + (1 - orders) * np.log1p(-np.minimum(q, 1 - 1e-16))
        total: NDArray[Any] = np.logaddexp(heads, tails) / (orders - 1)
    return total
