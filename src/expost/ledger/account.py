"""A budget and what is charged against it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from expost.core import Guarantee, InvalidRequest, Loss
from expost.ledger.currency import add, left
from expost.ledger.part import Part, rolled_up

__all__ = ["LONGEST_NAME", "Account", "checked_name", "is_template", "template_fits"]

LONGEST_NAME = 200
"""Characters of an account's name."""


@dataclass(frozen=True, slots=True)
class Account:
    """A named budget with its running total; ``entry`` is the line that last changed it.

    ``own`` is what the account itself was charged, ``spent`` adds the largest of its parts, if it has any.

    >>> from expost.core import PureLoss, epsilon
    >>> account = Account.opened("dataset:flights", epsilon(1), entry=1)
    >>> account.charged(PureLoss(0.25)).totalled([], entry=2).remaining
    PureLoss(epsilon=Fraction(3, 4))
    """

    name: str
    budget: Guarantee
    spent: Loss
    entry: int
    own: Loss
    part: Part | None = None

    @classmethod
    def opened(cls, name: str, budget: Guarantee, *, entry: int, part: Part | None = None) -> Account:
        """A new account with nothing spent."""
        nothing = Loss.worst_case(budget).zero()
        return cls(name, budget, nothing, entry, nothing, part)

    @property
    def remaining(self) -> Loss:
        """What a new hold may still ask for."""
        return left(self.budget, self.spent)

    def charged(self, charge: Loss, *, released: Loss | None = None) -> Account:
        """This account after a charge that takes the place of a released hold, if any; its total is not drawn yet."""
        return replace(self, own=add(self.own, charge, released=released))

    def totalled(self, parts: Iterable[Account], *, entry: int) -> Account:
        """This account with the total of its own charges and its parts."""
        return replace(self, spent=rolled_up(self.own, parts), entry=entry)

    def with_budget(self, budget: Guarantee, *, entry: int) -> Account:
        """This account under another budget of the same definition, at least as large as what is spent."""
        if budget.definition != self.budget.definition or budget.amounts().keys() != self.budget.amounts().keys():
            raise InvalidRequest(
                f"Expected a budget in {self.budget.definition}, the currency of account {self.name!r}",
                got=budget.definition,
                do="Open another account",
            )
        if not self.spent.within(budget):
            raise InvalidRequest(
                f"Expected a budget of at least the {self.spent} that is spent", got=str(budget), do="Pass more"
            )
        return replace(self, budget=budget, entry=entry)


def checked_name(name: object, *, template: bool = False) -> str:
    """An account name in its one spelling: short, printable, a star only at the end of a template.

    Spaces around it go, and letters with accents are composed (NFC): names that look alike are one budget, not two.

    >>> checked_name(" window:2013-W05")
    'window:2013-W05'
    """
    text = unicodedata.normalize("NFC", name.strip()) if isinstance(name, str) else ""
    plain = text.removesuffix("*").strip() if template else text
    if not plain or len(text) > LONGEST_NAME or not plain.isprintable() or "*" in plain:
        raise InvalidRequest(
            f"Expected an account name of 1 to {LONGEST_NAME} printable characters",
            got=name,
            do='Pass a name such as "dataset:flights", or "window:*" for one account per window',
        )
    return text


def checked_budget(budget: object) -> Guarantee:
    """A budget an account can have."""
    if not isinstance(budget, Guarantee):
        raise InvalidRequest("Expected a budget", got=budget, do="Pass expost.epsilon(1), zcdp(...) or gdp(...)")
    if all(amount == Fraction(0) for amount in budget.amounts().values()):
        raise InvalidRequest("Expected a budget above zero", got=str(budget), do="Pass a positive budget")
    return budget


def is_template(name: str) -> bool:
    """Whether a name stands for all accounts with its prefix."""
    return name.endswith("*")


def template_fits(template: str, name: str) -> bool:
    """Whether a template opens accounts of this name.

    >>> template_fits("window:*", "window:2013-W05")
    True
    """
    return name.startswith(template[:-1]) and not is_template(name)
