"""The bill after a run (ex post)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from expost.core.errors import InvalidRequest
from expost.core.guarantee import (
    ApproxTerms,
    GaussianTerms,
    Guarantee,
    PureTerms,
    RenyiTerms,
    Terms,
    ZeroConcentratedTerms,
    read_terms,
)

__all__ = ["ApproxLoss", "GaussianLoss", "Loss", "PureLoss", "RenyiLoss", "ZeroConcentratedLoss"]


class Loss(Terms):
    """What one release cost, known only after it ran. Losses of different definitions never add silently.

    The base of ``PureLoss``, ``ApproxLoss``, ``ZeroConcentratedLoss``, ``GaussianLoss`` and ``RenyiLoss``.

    Adding is sound for each definition by its composition theorem: pure ex-post losses because the density
    ratio of a transcript is the product of the conditional ones (LNRWW17, Definition 2.3 with Theorem 2.5;
    docs/proofs/ex-post-composition.md), zCDP by BS16 Lemma 2.3, RDP at equal orders by Mir17 Proposition 1,
    GDP in mu squared by DRS22 Corollary 3.3, (epsilon, delta) by DR14 Theorem 3.16.

    Examples
    --------
    >>> PureLoss(0.1) + PureLoss(0.2)
    PureLoss(epsilon=Fraction(3, 10))
    >>> print(GaussianLoss(9) + GaussianLoss(16), "and", RenyiLoss(((2, 1),)) + RenyiLoss(((2, 3),)))
    mu_squared 25 and epsilon at order 2 4
    >>> PureLoss(0.1) + ZeroConcentratedLoss(0.2)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected losses of one definition, got 'pure and zcdp'. Convert one of them ...
    """

    def __add__(self, other: object) -> Self:
        if not isinstance(other, Loss):
            return NotImplemented
        self._check_same(other)
        # Each definition composes by adding its own numbers; the docstring of the class cites the theorems.
        mine, theirs = self.amounts(), other.amounts()
        return self.with_amounts({name: mine[name] + theirs[name] for name in mine})

    def __sub__(self, other: object) -> Self:
        # What is left of a budget; never below zero.
        if not isinstance(other, Loss):
            return NotImplemented
        self._check_same(other)
        mine, theirs = self.amounts(), other.amounts()
        return self.with_amounts({name: max(mine[name] - theirs[name], type(mine[name])(0)) for name in mine})

    def within(self, budget: Guarantee | Loss) -> bool:
        """Return whether no number of this loss exceeds the budget's.

        Parameters
        ----------
        budget : Guarantee or Loss
            Of the same definition.
        """
        if budget.definition != self.definition:
            raise InvalidRequest(
                "Expected a budget of the same definition",
                got=f"{self.definition} against {budget.definition}",
                do="Convert one of them first",
            )
        # Every number must fit: (epsilon, delta) is not ordered by epsilon alone.
        limits = budget.amounts()
        if limits.keys() != self.amounts().keys():
            raise InvalidRequest("Expected equal Renyi orders", do="Evaluate both at one grid of orders")
        return all(amount <= limits[name] for name, amount in self.amounts().items())

    def as_balance(self, account: str | None = None) -> Self:
        """Return the same loss as what is left of a budget: it prints rounded down, so never more than there is.

        Parameters
        ----------
        account : str, optional
            The account to name in print, where it is not the obvious one.

        Examples
        --------
        >>> left = PureLoss(0.123456).as_balance("analyst:ann")
        >>> print(left, "|", PureLoss(0.123456), "|", left == PureLoss(0.123456))
        epsilon 0.1234 of 'analyst:ann' | epsilon 0.1235 | True
        """
        left = copy.copy(self)
        object.__setattr__(left, "_balance_of", account or "")  # not a field: it is equal to the loss that it is
        return left

    def __str__(self) -> str:
        account = self.__dict__.get("_balance_of")
        if account is None:
            return self.text()
        return self.text(down=True) + (f" of {account!r}" if account else "")

    def zero(self) -> Self:
        """Return nothing, in this definition."""
        return self.with_amounts(dict.fromkeys(self.amounts(), type(next(iter(self.amounts().values())))(0)))

    def promise(self) -> Guarantee:
        """Return the guarantee whose worst case is this loss."""
        # The numbers are the same; only the claim differs: before the run it holds for every outcome.
        return Guarantee.from_json(self.to_json())

    @staticmethod
    def worst_case(guarantee: Guarantee) -> Loss:
        """Return the largest bill that a promise allows.

        Parameters
        ----------
        guarantee : Guarantee
            The promise.
        """
        # A run that crashed is charged this, because nothing shows how far it came.
        return Loss.from_json(guarantee.to_json())

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Loss:
        """Read the loss that ``to_json`` wrote.

        Parameters
        ----------
        data : mapping
            The JSON object.
        """
        return _KINDS[data["definition"]](**read_terms(data))

    def with_amounts(self, amounts: Mapping[str, Any]) -> Self:
        """Return a loss of this definition with other numbers.

        Parameters
        ----------
        amounts : mapping of str to Fraction
            Each number under its name, in the order of ``amounts()``.
        """
        return type(self)(**amounts)

    def _check_same(self, other: Loss) -> None:
        """Refuse a loss of another definition or other Renyi orders."""
        # No silent conversion: adding an epsilon to a rho would be a number without a theorem.
        if other.definition != self.definition:
            raise InvalidRequest(
                "Expected losses of one definition",
                got=f"{self.definition} and {other.definition}",
                do="Convert one of them with expost.accounting first",
            )
        if other.amounts().keys() != self.amounts().keys():
            raise InvalidRequest("Expected equal Renyi orders", do="Evaluate both at one grid of orders")


@dataclass(frozen=True)
class PureLoss(PureTerms, Loss):
    """A pure ex-post loss: the density ratio of the outcome seen is at most e^epsilon."""


@dataclass(frozen=True)
class ApproxLoss(ApproxTerms, Loss):
    """An (epsilon, delta) loss."""


@dataclass(frozen=True)
class ZeroConcentratedLoss(ZeroConcentratedTerms, Loss):
    """A zCDP loss."""


@dataclass(frozen=True)
class GaussianLoss(GaussianTerms, Loss):
    """A Gaussian-DP loss; the squares of mu add."""


@dataclass(frozen=True)
class RenyiLoss(RenyiTerms, Loss):
    """A Renyi loss at each listed order."""

    def with_amounts(self, amounts: Mapping[str, Any]) -> Self:
        # The names of Renyi amounts are texts for people, so the orders come from this curve.
        values = iter(amounts.values())
        return type(self)(tuple((order, next(values)) for order, _ in self.curve))


_KINDS = cast(
    "dict[str, type[Loss]]",
    {kind.definition: kind for kind in (PureLoss, ApproxLoss, ZeroConcentratedLoss, GaussianLoss, RenyiLoss)},
)
