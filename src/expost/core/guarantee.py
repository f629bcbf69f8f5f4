"""The promise before a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.core.rational import rational
from expost.core.terms import (
    ApproxTerms,
    GaussianTerms,
    PureTerms,
    RenyiTerms,
    Terms,
    ZeroConcentratedTerms,
    parameters_from_json,
)

__all__ = [
    "ApproxGuarantee",
    "GaussianGuarantee",
    "Guarantee",
    "PureGuarantee",
    "RenyiGuarantee",
    "ZeroConcentratedGuarantee",
    "approx",
    "epsilon",
    "gdp",
    "zcdp",
]


class Guarantee(Terms):
    """What holds whatever the data and the outcome; also the form of a budget.

    >>> epsilon(1.0)
    PureGuarantee(epsilon=Fraction(1, 1))
    >>> Guarantee.from_json(zcdp(0.5).to_json())
    ZeroConcentratedGuarantee(rho=Fraction(1, 2))
    """

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Guarantee:
        """The guarantee that ``to_json`` wrote."""
        return _KINDS[data["definition"]](**parameters_from_json(data))


@dataclass(frozen=True)
class PureGuarantee(PureTerms, Guarantee):
    """epsilon-differential privacy.

    >>> str(PureGuarantee(0.1))
    'epsilon 0.1'
    """


@dataclass(frozen=True)
class ApproxGuarantee(ApproxTerms, Guarantee):
    """(epsilon, delta)-differential privacy.

    >>> str(ApproxGuarantee(1, 1e-6))
    'epsilon 1, delta 1e-06'
    """


@dataclass(frozen=True)
class ZeroConcentratedGuarantee(ZeroConcentratedTerms, Guarantee):
    """rho-zero-concentrated differential privacy.

    >>> str(ZeroConcentratedGuarantee(0.5))
    'rho 0.5'
    """


@dataclass(frozen=True)
class GaussianGuarantee(GaussianTerms, Guarantee):
    """mu-Gaussian differential privacy, by the square of mu.

    >>> GaussianGuarantee(4).mu
    2.0
    """


@dataclass(frozen=True)
class RenyiGuarantee(RenyiTerms, Guarantee):
    """Renyi differential privacy at each listed order.

    >>> str(RenyiGuarantee(((2, 1), (4, 2))))
    'epsilon at order 2 1, epsilon at order 4 2'
    """


_KINDS: dict[str, type[Guarantee]] = {
    kind.definition: kind
    for kind in (PureGuarantee, ApproxGuarantee, ZeroConcentratedGuarantee, GaussianGuarantee, RenyiGuarantee)
}


def epsilon(value: float | Fraction, delta: float | Fraction = 0) -> Guarantee:
    """A pure budget, or an (epsilon, delta) one when ``delta`` is given.

    >>> epsilon(0.1)
    PureGuarantee(epsilon=Fraction(1, 10))
    >>> epsilon(1, delta=1e-6)
    ApproxGuarantee(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000))
    """
    exact = rational(value, "epsilon")
    if rational(delta, "delta", positive=False) == 0:
        return PureGuarantee(exact)
    return ApproxGuarantee(exact, Fraction(rational(delta, "delta")))


def approx(epsilon: float | Fraction, delta: float | Fraction) -> ApproxGuarantee:
    """An (epsilon, delta) budget.

    >>> approx(1, 1e-6).delta
    Fraction(1, 1000000)
    """
    return ApproxGuarantee(rational(epsilon, "epsilon"), rational(delta, "delta"))


def zcdp(rho: float | Fraction) -> ZeroConcentratedGuarantee:
    """A zero-concentrated budget.

    >>> zcdp(0.1).rho
    Fraction(1, 10)
    """
    return ZeroConcentratedGuarantee(rational(rho, "rho"))


def gdp(mu: float | Fraction) -> GaussianGuarantee:
    """A Gaussian budget, by mu.

    >>> gdp(0.5).mu_squared
    Fraction(1, 4)
    """
    return GaussianGuarantee(rational(mu, "mu") ** 2)
