"""Accounts: a named budget, what is charged against it, and accounts of disjoint parts."""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from expost.accounting.budget_rule import (
    BudgetRule,
    ComposedGuarantee,
    ComposedLoss,
    read_budget,
    round_total,
    rule_for,
)
from expost.core import ApproxGuarantee, Guarantee, InvalidRequest, Loss, PureLoss, QuestionCap, as_guarantee
from expost.core.question_cap import DEFAULT_QUESTION_SHARE
from expost.core.rational import rational

__all__ = [
    "LARGEST_QUESTION_CAP",
    "LONGEST_NAME",
    "AccountPart",
    "LedgerAccount",
    "check_budget",
    "check_name",
    "check_question_cap",
    "is_template",
    "left_for_part",
    "read_terms",
    "template_fits",
    "total_with_parts",
]

LARGEST_QUESTION_CAP = 1000
"""The largest epsilon that an account may allow one question."""

LONGEST_NAME = 200
"""The most characters in an account's name."""

_MOST_TOUCHED = 1000


@dataclass(frozen=True, slots=True)
class AccountPart:
    """States that an account is one of several disjoint parts of the account ``of``, told apart by ``by``.

    ``touching`` is the number of parts that a change of one unit can reach: 1 where a unit is added or removed and lies
    in one part, 2 where a unit is replaced. The whole is charged the sum of that many largest parts, and partitions by
    different things add up (docs/proofs/parallel-parts.md, Theorem 1).

    >>> AccountPart.check("dataset:people", "site", 1)
    AccountPart(of='dataset:people', by='site', touching=1)
    """

    of: str
    by: str
    touching: int = 1

    @classmethod
    def check(cls, of: str, by: object, touching: object) -> AccountPart:
        """Build a part whose texts and numbers can be stored, or raise ``InvalidRequest``."""
        if not isinstance(by, str) or not 0 < len(by) <= LONGEST_NAME or not by.isprintable():
            raise InvalidRequest("Expected by to name what the parts differ in", got=by, do='Pass e.g. by="site"')
        if isinstance(touching, bool) or not isinstance(touching, int) or not 1 <= touching <= _MOST_TOUCHED:
            raise InvalidRequest(
                "Expected touching to be the number of parts that one unit can touch",
                got=touching,
                do="Pass 1, or 2 under replace-one",
            )
        return cls(of, by, touching)


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """A named budget with its running total. ``entry`` is the number of the entry that last changed it.

    ``own`` is what the account itself was charged, ``spent`` adds the largest of its parts, if it has any.

    >>> from expost.core import PureLoss, epsilon
    >>> account = LedgerAccount.open_empty("dataset:flights", epsilon(1), entry=1)
    >>> account.add_charge(PureLoss(0.25)).with_total([], entry=2).remaining
    PureLoss(epsilon=Fraction(3, 4))
    """

    name: str
    budget: Guarantee
    spent: Loss
    entry: int
    own: Loss
    part: AccountPart | None = None
    question_cap: Fraction | None = None

    @classmethod
    def open_empty(
        cls,
        name: str,
        budget: Guarantee,
        *,
        entry: int,
        part: AccountPart | None = None,
        question_cap: Fraction | None = None,
    ) -> LedgerAccount:
        """Return a new account with nothing spent."""
        nothing = rule_for(budget).zero
        return cls(name, budget, nothing, entry, nothing, part, question_cap)

    @property
    def terms(self) -> dict[str, Any]:
        """The budget in JSON, with what one question may cost if its owner set that."""
        cap = {} if self.question_cap is None else {"question_cap": str(self.question_cap)}
        return self.budget.to_json() | cap

    def cap_of_question(self) -> QuestionCap:
        """Return the epsilon that one question may cost unless its asker names another."""
        if self.question_cap is not None:
            return QuestionCap(self.question_cap, f"set by the owner of {self.name!r}")
        source = f"a tenth of the budget of {self.name!r}"
        stated = self.budget.amounts()
        if "epsilon" in stated:
            return QuestionCap(stated["epsilon"] * DEFAULT_QUESTION_SHARE, source)
        # In another currency: the largest epsilon whose price there is a tenth of the budget.
        limit = self.rule.zero.with_amounts({name: each * DEFAULT_QUESTION_SHARE for name, each in stated.items()})
        low, high = Fraction(0), Fraction(LARGEST_QUESTION_CAP)
        while high - low > high / 1000:
            middle = (low + high) / 2
            low, high = (middle, high) if self.rule.held(PureLoss(middle)).within(limit) else (low, middle)
        return QuestionCap(low, source)

    @property
    def rule(self) -> BudgetRule:
        """How this account is charged."""
        return rule_for(self.budget)

    @property
    def remaining(self) -> Loss:
        """What a new hold may still charge, by this account's own budget."""
        return self.rule.left(self.spent)

    def add_charge(self, charge: Loss, *, released: Loss | None = None) -> LedgerAccount:
        """Return the account after a charge that replaces a released hold, if any. Its total is still the old one."""
        return replace(self, own=self.rule.add(self.own, charge, released=released))

    def with_total(self, parts: Iterable[LedgerAccount], *, entry: int) -> LedgerAccount:
        """Return the account with the total of its own charges and its parts."""
        return replace(self, spent=total_with_parts(self.own, parts), entry=entry)

    def with_budget(self, budget: Guarantee, *, entry: int) -> LedgerAccount:
        """Return the account under another budget of the same definition, at least as large as what is spent."""
        if budget.definition != self.budget.definition or budget.amounts().keys() != self.budget.amounts().keys():
            raise InvalidRequest(
                f"Expected a budget in {self.budget.definition}, the currency of account {self.name!r}",
                got=budget.definition,
                do="Open another account",
            )
        if isinstance(self.budget, ComposedGuarantee) and isinstance(budget, ApproxGuarantee):
            budget = self.budget.changed_to(budget)
        if not rule_for(budget).fits(self.spent):
            raise InvalidRequest(
                f"Expected a budget of at least the {self.rule.shown(self.spent)} that is spent",
                got=str(budget),
                do="Pass more",
            )
        return replace(self, budget=budget, entry=entry)


def check_name(name: object, *, template: bool = False) -> str:
    """Return an account name in its one spelling, or raise ``InvalidRequest``.

    Surrounding spaces are removed and accented letters are composed (NFC), so that names that print alike are one
    budget. A star is allowed only at the end of a template.

    >>> check_name(" window:2013-W05")
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


def check_budget(budget: object) -> Guarantee:
    """Return a budget that an account can have, in any form that ``core.as_guarantee`` accepts.

    >>> check_budget({"epsilon": 1, "delta": 1e-6}).definition
    'approx'
    """
    found = as_guarantee(budget)
    if not any(found.amounts().values()):
        raise InvalidRequest("Expected a budget above zero", got=str(found), do="Pass a positive budget")
    return found


def read_terms(stored: Mapping[str, Any]) -> tuple[Guarantee, Fraction | None]:
    """Read what ``LedgerAccount.terms`` wrote: the budget, and the cap of a question if there is one.

    >>> read_terms({"definition": "pure", "epsilon": "1", "question_cap": "1/4"})
    (PureGuarantee(epsilon=Fraction(1, 1)), Fraction(1, 4))
    """
    cap = stored.get("question_cap")
    budget = read_budget({name: value for name, value in stored.items() if name != "question_cap"})
    return budget, None if cap is None else Fraction(cap)


def check_question_cap(cap: object) -> Fraction | None:
    """Return the epsilon that an owner allows one question, or None for a tenth of the budget.

    >>> check_question_cap(0.25)
    Fraction(1, 4)
    """
    if cap is None:
        return None
    exact = rational(cap, "question_cap")
    if exact > LARGEST_QUESTION_CAP:
        raise InvalidRequest(f"Expected question_cap of at most {LARGEST_QUESTION_CAP}", got=cap, do="Pass an epsilon")
    return exact


def is_template(name: str) -> bool:
    """Return whether a name stands for all accounts with its prefix."""
    return name.endswith("*")


def template_fits(template: str, name: str) -> bool:
    """Return whether a template opens accounts of this name.

    >>> template_fits("window:*", "window:2013-W05")
    True
    """
    return name.startswith(template[:-1]) and not is_template(name)


def total_with_parts(own: Loss, parts: Iterable[LedgerAccount]) -> Loss:
    """Return what an account has spent: its own charges and, of every partition, the largest parts.

    Each number is added by itself, so the result bounds every choice of parts and is never below the true sum.

    >>> from expost.core import PureLoss, epsilon
    >>> site, loss = AccountPart("s", "site"), PureLoss
    >>> sites = [LedgerAccount(f"s/{n}", epsilon(1), loss(n / 8), 1, loss(n / 8), site) for n in range(4)]
    >>> total_with_parts(PureLoss(0.5), sites)
    PureLoss(epsilon=Fraction(7, 8))
    """
    totals = own.amounts()
    for lane in _group_parts(parts).values():
        for name, amount in _sum_largest(lane, lane[0].part.touching if lane[0].part else 1).items():
            totals[name] += amount
    return own.with_amounts({name: round_total(amount) for name, amount in totals.items()})


def left_for_part(
    whole: LedgerAccount, left_in_whole: Loss, parts: Iterable[LedgerAccount], account: LedgerAccount
) -> Loss:
    """Return how much the part ``account`` may still be charged before ``whole`` has grown by ``left_in_whole``."""
    assert account.part is not None
    lanes = _group_parts(parts)
    siblings = [part for part in lanes.pop(account.part.by, []) if part.name != account.name]
    elsewhere = total_with_parts(whole.own, [part for lane in lanes.values() for part in lane]).amounts()
    larger = _sum_largest(siblings, account.part.touching - 1)
    mine, spent, more = account.spent.amounts(), whole.spent.amounts(), left_in_whole.amounts()
    taken = {name: elsewhere[name] + larger.get(name, 0) + mine[name] for name in mine}
    total = account.spent.with_amounts(taken)
    if isinstance(total, ComposedLoss):
        # By the budget of the whole itself; what is above it is taken as it stands, which is never too much.
        left = whole.rule.left(total, least=whole.spent)
        return (
            left
            if whole.part is None
            else left.with_amounts({name: min(left.amounts()[name], more[name]) for name in more})
        )
    limit = left_in_whole.with_amounts({name: spent[name] + more[name] for name in more}).promise()
    return rule_for(limit).left(total)


def _group_parts(parts: Iterable[LedgerAccount]) -> dict[str, list[LedgerAccount]]:
    """Group parts by what they differ in."""
    lanes: dict[str, list[LedgerAccount]] = {}
    for account in parts:
        if account.part is not None:
            lanes.setdefault(account.part.by, []).append(account)
    return lanes


def _sum_largest(lane: list[LedgerAccount], count: int) -> dict[str, Fraction]:
    """Sum the ``count`` largest totals, number by number."""
    # Of a thousand parts most share one cached loss object, so each object is read at most ``count`` times.
    losses = {id(account.spent): account.spent for account in lane}
    times = Counter(id(account.spent) for account in lane)
    spent = [loss.amounts() for key, loss in losses.items() for _ in range(min(times[key], count))]
    if not spent:
        return {}
    return {name: sum(heapq.nlargest(count, (one[name] for one in spent)), Fraction(0)) for name in spent[0]}
