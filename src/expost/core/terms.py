"""Definitions of privacy as exact numbers; promises and bills are made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

from expost.core.errors import InvalidRequest
from expost.core.rational import decimal_text, rational

__all__ = ["ApproxTerms", "GaussianTerms", "PureTerms", "RenyiTerms", "Terms", "ZeroConcentratedTerms"]


@dataclass(frozen=True)
class Terms:
    """The numbers of one definition of privacy; ``definition`` names it."""

    definition: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _amount(getattr(self, field.name), field.name))

    def amounts(self) -> dict[str, Fraction]:
        """Each number under its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_json(self) -> dict[str, Any]:
        """A JSON object; rationals as ``"p/q"``, so nothing is lost."""
        return {"definition": self.definition} | {name: str(amount) for name, amount in self.amounts().items()}

    def __str__(self) -> str:
        return self.text()

    def text(self, *, down: bool = False) -> str:
        """The numbers for people; a cost is rounded up, what is left is rounded ``down``."""
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
        """The root of the stored square, for people and formulas."""
        return math.sqrt(self.mu_squared)


@dataclass(frozen=True)
class RenyiTerms(Terms):
    """Renyi differential privacy at several orders (Mir17, Definition 4)."""

    definition: ClassVar[str] = "rdp"
    curve: tuple[tuple[Fraction, Fraction], ...]

    def __post_init__(self) -> None:
        curve = tuple((rational(order, "order"), _amount(epsilon, "epsilon")) for order, epsilon in self.curve)
        orders = [order for order, _ in curve]
        if not curve or any(order <= 1 for order in orders) or sorted(set(orders)) != orders:
            raise InvalidRequest("Expected increasing Renyi orders above 1", do="Sort the orders and drop repeats")
        object.__setattr__(self, "curve", curve)

    def amounts(self) -> dict[str, Fraction]:
        return {f"epsilon at order {order}": epsilon for order, epsilon in self.curve}

    def to_json(self) -> dict[str, Any]:
        return {"definition": self.definition, "curve": [[str(order), str(epsilon)] for order, epsilon in self.curve]}


def _amount(value: object, name: str) -> Fraction:
    # Computed amounts are exact already and may be tinier than anything a caller would type.
    if isinstance(value, Fraction) and value >= 0:
        return value
    return rational(value, name, positive=False)


def parameters_from_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor arguments stored by ``to_json``."""
    if data["definition"] == RenyiTerms.definition:
        return {"curve": tuple((Fraction(order), Fraction(epsilon)) for order, epsilon in data["curve"])}
    return {name: Fraction(text) for name, text in data.items() if name != "definition"}
