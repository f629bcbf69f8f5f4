"""Definitions of privacy as exact numbers, and the promise before a run that is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from expost.core.errors import InvalidRequest
from expost.core.rational import decimal_text, rational, read_amount

__all__ = [
    "ApproxGuarantee",
    "ApproxTerms",
    "GaussianGuarantee",
    "GaussianTerms",
    "Guarantee",
    "GuaranteeLike",
    "PureGuarantee",
    "PureTerms",
    "RenyiGuarantee",
    "RenyiTerms",
    "Terms",
    "ZeroConcentratedGuarantee",
    "ZeroConcentratedTerms",
    "approx",
    "as_guarantee",
    "epsilon",
    "gdp",
    "read_terms",
    "zcdp",
]


_NAMES: dict[type[Any], tuple[str, ...]] = {}  # of the numbers of a definition; a ledger reads them for every charge


def _names_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the numbers of a definition."""
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in fields(kind))
    return _NAMES[kind]


@dataclass(frozen=True)
class Terms:
    """The numbers of one definition of privacy; ``definition`` names it."""

    definition: ClassVar[str]

    def __post_init__(self) -> None:
        for name in _names_of(type(self)):
            # Exact from here on: sums of floats would drift, and a budget must end where it was set.
            object.__setattr__(self, name, read_amount(getattr(self, name), name))

    def amounts(self) -> dict[str, Fraction]:
        """Return each number under its name."""
        return {name: getattr(self, name) for name in _names_of(type(self))}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, with rationals as ``"p/q"``, so nothing is lost."""
        return {"definition": self.definition} | {name: str(amount) for name, amount in self.amounts().items()}

    def __str__(self) -> str:
        return self.text()

    def text(self, *, down: bool = False) -> str:
        """Return the numbers for people: a cost rounded up, what is left of a budget rounded ``down``."""
        return ", ".join(f"{name} {decimal_text(amount, down=down)}" for name, amount in self.amounts().items())


@dataclass(frozen=True)
class PureTerms(Terms):
    """Pure differential privacy (DMNS06, Definition 1)."""

    definition: ClassVar[str] = "pure"
    epsilon: Fraction


@dataclass(frozen=True)
class ApproxTerms(Terms):
    """Approximate differential privacy (DKMMN06, Definition 1)."""

    definition: ClassVar[str] = "approx"
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta >= 1:
            # At delta 1 everything is "private", including publishing the table.
            raise InvalidRequest("Expected delta below 1", got=self.delta, do="Pass a small delta such as 1e-6")


@dataclass(frozen=True)
class ZeroConcentratedTerms(Terms):
    """Zero-concentrated differential privacy (BS16, Definition 1.1)."""

    definition: ClassVar[str] = "zcdp"
    rho: Fraction


@dataclass(frozen=True)
class GaussianTerms(Terms):
    """Gaussian differential privacy (DRS22, Definition 4); stored as mu squared, which adds."""

    definition: ClassVar[str] = "gdp"
    mu_squared: Fraction

    @property
    def mu(self) -> float:
        """The root of the stored square."""
        return math.sqrt(self.mu_squared)


@dataclass(frozen=True)
class RenyiTerms(Terms):
    """Renyi differential privacy at several orders (Mir17, Definition 4)."""

    definition: ClassVar[str] = "rdp"
    curve: tuple[tuple[Fraction, Fraction], ...]

    def __post_init__(self) -> None:
        # Sorted orders make two curves comparable number by number.
        curve = tuple((rational(order, "order"), read_amount(epsilon, "epsilon")) for order, epsilon in self.curve)
        orders = [order for order, _ in curve]
        if not curve or any(order <= 1 for order in orders) or sorted(set(orders)) != orders:
            raise InvalidRequest("Expected increasing Renyi orders above 1", do="Sort the orders and drop repeats")
        object.__setattr__(self, "curve", curve)

    def amounts(self) -> dict[str, Fraction]:
        # The order is part of the name, so that costs at different orders can never be added.
        return {f"epsilon at order {order}": epsilon for order, epsilon in self.curve}

    def to_json(self) -> dict[str, Any]:
        return {"definition": self.definition, "curve": [[str(order), str(epsilon)] for order, epsilon in self.curve]}


def read_terms(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments that ``to_json`` stored."""
    # A Renyi curve is the only definition that is stored as a list.
    if data["definition"] == RenyiTerms.definition:
        return {"curve": tuple((Fraction(order), Fraction(epsilon)) for order, epsilon in data["curve"])}
    return {name: Fraction(text) for name, text in data.items() if name != "definition"}


class Guarantee(Terms):
    """A privacy guarantee that holds whatever the data and the outcome; also the form of a budget.

    The base of ``PureGuarantee``, ``ApproxGuarantee``, ``ZeroConcentratedGuarantee``, ``GaussianGuarantee`` and
    ``RenyiGuarantee``. Make one with ``epsilon``, ``approx``, ``zcdp`` or ``gdp``.

    Examples
    --------
    >>> epsilon(1.0)
    PureGuarantee(epsilon=Fraction(1, 1))
    >>> Guarantee.from_json(zcdp(0.5).to_json())
    ZeroConcentratedGuarantee(rho=Fraction(1, 2))
    >>> print(approx(1, 1e-6), "and", RenyiGuarantee(((2, 1), (4, 2))))
    epsilon 1, delta 1e-06 and epsilon at order 2 1, epsilon at order 4 2
    """

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Guarantee:
        """Read the guarantee that ``to_json`` wrote.

        Parameters
        ----------
        data : mapping
            The JSON object.
        """
        return _KINDS[data["definition"]](**read_terms(data))


@dataclass(frozen=True)
class PureGuarantee(PureTerms, Guarantee):
    """epsilon-differential privacy."""


@dataclass(frozen=True)
class ApproxGuarantee(ApproxTerms, Guarantee):
    """(epsilon, delta)-differential privacy."""


@dataclass(frozen=True)
class ZeroConcentratedGuarantee(ZeroConcentratedTerms, Guarantee):
    """rho-zero-concentrated differential privacy."""


@dataclass(frozen=True)
class GaussianGuarantee(GaussianTerms, Guarantee):
    """mu-Gaussian differential privacy, by the square of mu: ``GaussianGuarantee(4).mu`` is 2."""


@dataclass(frozen=True)
class RenyiGuarantee(RenyiTerms, Guarantee):
    """Renyi differential privacy at each listed order."""


_KINDS: dict[str, type[Guarantee]] = {
    kind.definition: kind
    for kind in (PureGuarantee, ApproxGuarantee, ZeroConcentratedGuarantee, GaussianGuarantee, RenyiGuarantee)
}


def epsilon(value: float | Fraction, delta: float | Fraction = 0) -> Guarantee:
    """Return a pure budget, or an (epsilon, delta) one when ``delta`` is given.

    Parameters
    ----------
    value : float or Fraction
        Epsilon, above 0. A float is taken by its shortest decimal: 0.1 is one tenth.
    delta : float or Fraction, default 0
        Delta, in [0, 1).

    Returns
    -------
    Guarantee

    Examples
    --------
    >>> epsilon(0.1)
    PureGuarantee(epsilon=Fraction(1, 10))
    >>> epsilon(1, delta=1e-6)
    ApproxGuarantee(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000))
    """
    exact = rational(value, "epsilon")
    # A delta of zero is a pure promise, which is stronger and composes exactly.
    if rational(delta, "delta", positive=False) == 0:
        return PureGuarantee(exact)
    return ApproxGuarantee(exact, Fraction(rational(delta, "delta")))


def approx(epsilon: float | Fraction, delta: float | Fraction) -> ApproxGuarantee:
    """Return an (epsilon, delta) budget.

    Parameters
    ----------
    epsilon : float or Fraction
        Epsilon, above 0.
    delta : float or Fraction
        Delta, in (0, 1).

    Returns
    -------
    ApproxGuarantee

    Examples
    --------
    >>> approx(1, 1e-6).delta
    Fraction(1, 1000000)
    """
    return ApproxGuarantee(rational(epsilon, "epsilon"), rational(delta, "delta"))


def zcdp(rho: float | Fraction) -> ZeroConcentratedGuarantee:
    """Return a zero-concentrated budget.

    Parameters
    ----------
    rho : float or Fraction
        Rho, above 0.

    Returns
    -------
    ZeroConcentratedGuarantee

    Examples
    --------
    >>> zcdp(0.1).rho
    Fraction(1, 10)
    """
    return ZeroConcentratedGuarantee(rational(rho, "rho"))


def gdp(mu: float | Fraction) -> GaussianGuarantee:
    """Return a Gaussian budget.

    Parameters
    ----------
    mu : float or Fraction
        Mu, above 0. It is stored squared, because squares add.

    Returns
    -------
    GaussianGuarantee

    Examples
    --------
    >>> gdp(0.5).mu_squared
    Fraction(1, 4)
    """
    # Squares of mu add over releases (DRS22, Corollary 3.3), and the square of a rational is exact.
    return GaussianGuarantee(rational(mu, "mu") ** 2)


GuaranteeLike = Guarantee | float | Fraction | Decimal | tuple[Any, Any] | Mapping[str, Any]
"""The forms in which ``as_guarantee`` reads a budget."""


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
    # bool is a subclass of int: budget=True is a mistake, not an epsilon of 1.
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
        # By the exact set of keys: {"epsilon": 1, "rho": 1} is ambiguous and must not be guessed.
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
