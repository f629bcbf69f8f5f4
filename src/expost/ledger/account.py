"""A budget and what is charged against it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from expost.core import BudgetExceeded, Guarantee, InvalidRequest, Loss
from expost.ledger.currency import add, held_charge, left

__all__ = ["Account", "checked_name", "is_template", "template_fits"]

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Account:
    """A named budget with its running total; ``entry`` is the line that last changed it.

    >>> from expost.core import PureLoss, epsilon
    >>> account = Account.opened("dataset:flights", epsilon(1), entry=1)
    >>> account.charged(PureLoss(0.25), entry=2).remaining
    PureLoss(epsilon=Fraction(3, 4))
    """

    name: str
    budget: Guarantee
    spent: Loss
    entry: int

    @classmethod
    def opened(cls, name: str, budget: Guarantee, *, entry: int) -> Account:
        """A new account with nothing spent."""
        return cls(name, budget, Loss.worst_case(budget).zero(), entry)

    @property
    def remaining(self) -> Loss:
        """What a new hold may still ask for."""
        return left(self.budget, self.spent)

    def price(self, worst_case: Loss) -> Loss:
        """What a hold of this worst case costs here, or a refusal."""
        charge = held_charge(self.budget, worst_case)
        if not add(self.spent, charge).within(self.budget):
            raise BudgetExceeded(
                f"Expected a worst case of at most {self.remaining.text(down=True)} in account {self.name!r}",
                got=str(charge),
                do="Ask for less, or have the owner raise the budget",
            )
        return charge

    def charged(self, charge: Loss, *, entry: int, released: Loss | None = None) -> Account:
        """This account after a charge that takes the place of a released hold, if any."""
        return replace(self, spent=add(self.spent, charge, released=released), entry=entry)

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
    """An account name the ledger accepts: short, printable, a star only at the end of a template.

    >>> checked_name("window:2013-W05")
    'window:2013-W05'
    """
    plain = name[:-1] if template and isinstance(name, str) and name.endswith("*") else name
    if (
        not isinstance(name, str)
        or not isinstance(plain, str)
        or not plain
        or len(name) > _LONGEST_NAME
        or not plain.isprintable()
        or plain != plain.strip()
        or "*" in plain
    ):
        raise InvalidRequest(
            f"Expected an account name of 1 to {_LONGEST_NAME} printable characters",
            got=name,
            do='Pass a name such as "dataset:flights", or "window:*" for one account per window',
        )
    return name


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
