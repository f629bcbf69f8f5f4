"""The promise before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from expost.core.errors import InvalidRequest
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
    "as_guarantee",
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


def as_guarantee(value: object, name: str = "budget") -> Guarantee:
    """Return the guarantee that a caller wrote as a number, a pair, a dict or a ``Guarantee``.

    Parameters
    ----------
    value : Guarantee, number, (epsilon, delta) pair or dict
        A number is a pure epsilon. A dict has the keys ``epsilon`` (and ``delta``), ``rho`` or ``mu``.
    name : str, default "budget"
        The argument's name, for the error message.

    Returns
    -------
    Guarantee

    Raises
    ------
    InvalidRequest
        If the value is none of these.

    Examples
    --------
    >>> as_guarantee(1)
    PureGuarantee(epsilon=Fraction(1, 1))
    >>> as_guarantee({"epsilon": 1, "delta": 1e-6}) == as_guarantee((1, 1e-6)) == approx(1, 1e-6)
    True
    >>> as_guarantee({"rho": 0.1}) == zcdp(0.1)
    True
    """
    if isinstance(value, Guarantee):
        return value
    if isinstance(value, int | float | Fraction | Decimal) and not isinstance(value, bool):
        return PureGuarantee(rational(value, name))
    if isinstance(value, tuple) and len(value) == 2:
        return epsilon(*value)
    if isinstance(value, Mapping):
        makers: dict[frozenset[str], Callable[..., Guarantee]] = {
            frozenset({"epsilon"}): epsilon,
            frozenset({"rho"}): zcdp,
            frozenset({"mu"}): gdp,
        }
        maker = makers.get(frozenset(value) - {"delta"})
        if maker is epsilon:
            return epsilon(value["epsilon"], value.get("delta", 0))
        if maker is not None and "delta" not in value:
            return maker(**value)
    raise InvalidRequest(
        f"Expected {name} to be a privacy budget",
        got=value,
        do='Pass a number (epsilon), a pair (epsilon, delta), {"rho": ...}, {"mu": ...} or expost.epsilon(...)',
    )
