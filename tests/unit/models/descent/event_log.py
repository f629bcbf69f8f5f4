"""The event log of a receipt, priced twice without the package: by Google's accountant and by short formulas."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import dp_accounting
from dp_accounting import pld
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

_ORDERS = range(2, 400)


@dataclass(frozen=True)
class Steps:
    """So many noisy sums over batches into which a row came with probability ``rate``."""

    count: int
    noise: float
    rate: float


def read_steps(text: str) -> list[Steps]:
    """The steps that a receipt's ``terms["events"]`` speaks of."""

    def walk(event: dict[str, Any], count: int) -> list[Steps]:
        match event["kind"]:
            case "repeat":
                return walk(event["event"], count * event["count"])
            case "sequence":
                return [steps for part in event["events"] for steps in walk(part, count)]
            case "gaussian":
                return [Steps(count, float(Fraction(event["noise_multiplier"])), 1.0)]
            case "poisson-sampled":
                (inner,) = walk(event["event"], count)
                return [Steps(count, inner.noise, float(Fraction(event["rate"])))]
        raise AssertionError(event["kind"])

    return walk(json.loads(text), 1)


def by_dp_accounting(steps: list[Steps], delta: float) -> float:
    """Epsilon by numerical convolution of privacy losses."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for part in steps:
        event: Any = dp_accounting.GaussianDpEvent(part.noise)
        if part.rate < 1:
            event = dp_accounting.PoissonSampledDpEvent(part.rate, event)
        accountant.compose(event, part.count)
    return float(accountant.get_epsilon(delta))


def by_formula(steps: list[Steps], delta: float) -> float:
    """Epsilon by a closed formula: exact without sampling, an upper bound by Renyi moments with it."""
    if all(part.rate == 1 for part in steps):
        # Gaussian DP of parameter mu (DRS22, Corollaries 2.13 and 3.3).
        mu = math.sqrt(sum(part.count / part.noise**2 for part in steps))

        def excess(epsilon: float) -> float:
            return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) - delta

        return float(brentq(excess, 0, 200))
    return min(
        sum(part.count * _moment(part, order) for part in steps)
        + math.log1p(-1 / order)
        - math.log(delta * order) / (order - 1)  # the conversion of CKS20, Proposition 12
        for order in _ORDERS
    )


def _moment(part: Steps, order: int) -> float:
    """The Renyi divergence of a sampled Gaussian at a whole order (MTZ19, section 3.3)."""
    terms = (
        [
            gammaln(order + 1)
            - gammaln(k + 1)
            - gammaln(order - k + 1)
            + (order - k) * math.log1p(-part.rate)
            + k * math.log(part.rate)
            + k * (k - 1) / (2 * part.noise**2)
            for k in range(order + 1)
        ]
        if part.rate < 1
        else [order * (order - 1) / (2 * part.noise**2)]
    )
    return float(logsumexp(terms)) / (order - 1)
