"""Totals from the charged account up to the whole of which it is a part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from expost.core import BudgetExceeded, Loss
from expost.ledger.account import Account
from expost.ledger.page import Page, unsound
from expost.ledger.part import rolled_up, room

__all__ = ["check_fits", "drawn_up", "remaining"]


def drawn_up(page: Page, charged: Iterable[Account], *, entry: int) -> list[Account]:
    """The charged accounts and all those they are parts of, each with its new total, parts before their wholes."""
    changed = {account.name: account for account in charged}
    depths: dict[str, int] = {}
    for account in list(changed.values()):
        lineage = [account, *_wholes(page, account)]
        for height, each in enumerate(lineage):
            changed.setdefault(each.name, each)
            depths[each.name] = len(lineage) - height
    for name in sorted(changed, key=lambda name: -depths[name]):
        changed[name] = _totalled(page, changed, name, entry)
    return sorted(changed.values(), key=lambda account: -depths[account.name])


def _totalled(page: Page, changed: Mapping[str, Account], name: str, entry: int) -> Account:
    """One account with its new total; the old one must follow from the parts as they are stored."""
    stored, parts = _sound(page, name), page.parts(name)
    if rolled_up(stored.own, parts) != stored.spent:
        raise unsound("Expected the total of an account to follow from its charges and its parts")
    return changed[name].totalled([changed.get(part.name, part) for part in parts], entry=entry)


def _wholes(page: Page, account: Account) -> list[Account]:
    """The account that this one is a part of, the one that is a part of, and so on."""
    found: list[Account] = []
    while account.part is not None:
        account = _sound(page, account.part.of)
        found.append(account)
    return found


def _sound(page: Page, name: str) -> Account:
    account = page.sound_account(name)
    if account is None:
        raise unsound("Expected the accounts of a charge to exist")
    return account


def check_fits(page: Page, charged: Iterable[Account], charges: Mapping[str, Loss]) -> None:
    """Refuse a hold if any total would exceed its budget; ``charges`` are those of the accounts that were named."""
    for account in charged:
        if not account.spent.within(account.budget):
            named = account.name if account.name in charges else _named_below(page, account.name, charges)
            at_most = remaining(page, _sound(page, named)).text(down=True)
            whole = "" if named == account.name else f", a part of {account.name!r}"
            raise BudgetExceeded(
                f"Expected a worst case of at most {at_most} in account {named!r}{whole}",
                got=str(charges[named]),
                do="Ask for less, or have the owner raise the budget",
            )


def _named_below(page: Page, name: str, charges: Mapping[str, Loss]) -> str:
    """The named account whose charge went up to this one."""
    return next(one for one in charges if any(whole.name == name for whole in _wholes(page, _sound(page, one))))


def remaining(page: Page, account: Account) -> Loss:
    """What a new hold may still ask of an account, by its own budget and those of the accounts it is a part of."""
    if account.part is None:
        return account.remaining
    whole = _sound(page, account.part.of)
    above = room(whole, remaining(page, whole), page.parts(whole.name), account).amounts()
    return account.spent._with({name: min(rest, above[name]) for name, rest in account.remaining.amounts().items()})
