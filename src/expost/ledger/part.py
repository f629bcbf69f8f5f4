"""Accounts of disjoint parts: each counts for itself, the whole counts the largest."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from expost.core import InvalidRequest, Loss
from expost.ledger.currency import left, rounded

if TYPE_CHECKING:
    from expost.ledger.account import Account

__all__ = ["Part", "rolled_up", "room"]

_MOST_TOUCHED = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """One of several disjoint parts of the account ``of``, told apart by ``by``.

    ``touching`` is the number of parts that a change of one unit can reach: 1 where a unit is added or removed and lies
    in one part, 2 where a unit is replaced. The whole is charged the sum of that many largest parts, and partitions by
    different things add up (docs/proofs/parallel-parts.md, Theorem 1).

    >>> Part.checked("dataset:people", "site", 1)
    Part(of='dataset:people', by='site', touching=1)
    """

    of: str
    by: str
    touching: int = 1

    @classmethod
    def checked(cls, of: str, by: object, touching: object) -> Part:
        """A part whose texts and numbers can be stored."""
        if not isinstance(by, str) or not by or len(by) > 200 or not by.isprintable():
            raise InvalidRequest("Expected the name of what parts differ by", got=by, do='Pass e.g. by="site"')
        whole = isinstance(touching, int) and not isinstance(touching, bool)
        if not whole or not 1 <= int(str(touching)) <= _MOST_TOUCHED:
            raise InvalidRequest(
                "Expected the number of parts that one unit can touch",
                got=touching,
                do="Pass 1, or 2 under replace-one",
            )
        return cls(of, by, int(str(touching)))


def rolled_up(own: Loss, parts: Iterable[Account]) -> Loss:
    """What an account has spent: its own charges, and of every partition the largest parts; never below the true sum.

    Number by number, so that the result bounds every choice of parts.

    >>> from expost.core import PureLoss, epsilon
    >>> from expost.ledger.account import Account
    >>> sites = [Account(f"s/{n}", epsilon(1), PureLoss(n / 8), 1, PureLoss(n / 8), Part("s", "site")) for n in range(4)]
    >>> rolled_up(PureLoss(0.5), sites)
    PureLoss(epsilon=Fraction(7, 8))
    """
    totals = own.amounts()
    for lane in _lanes(parts).values():
        for name, amount in _largest(lane, lane[0].part.touching if lane[0].part else 1).items():
            totals[name] += amount
    return own._with({name: rounded(amount) for name, amount in totals.items()})


def room(parent: Account, parent_room: Loss, parts: Iterable[Account], account: Account) -> Loss:
    """How much a part may still be charged before its parent has grown by ``parent_room``."""
    assert account.part is not None
    lanes = _lanes(parts)
    siblings = [part for part in lanes.pop(account.part.by, []) if part.name != account.name]
    elsewhere = rolled_up(parent.own, [part for lane in lanes.values() for part in lane]).amounts()
    beside = _largest(siblings, account.part.touching - 1)
    mine, spent, more = account.spent.amounts(), parent.spent.amounts(), parent_room.amounts()
    taken = {name: elsewhere[name] + beside.get(name, 0) + mine[name] for name in mine}
    limit = parent_room._with({name: spent[name] + more[name] for name in more}).promise()
    return left(limit, account.spent._with(taken))


def _lanes(parts: Iterable[Account]) -> dict[str, list[Account]]:
    """The parts by what they differ by."""
    lanes: dict[str, list[Account]] = {}
    for account in parts:
        if account.part is not None:
            lanes.setdefault(account.part.by, []).append(account)
    return lanes


def _largest(lane: list[Account], count: int) -> dict[str, Fraction]:
    """The sum of the largest totals, number by number; of a thousand parts most have spent the same."""
    losses = {id(account.spent): account.spent for account in lane}
    times = Counter(id(account.spent) for account in lane)
    spent = [loss.amounts() for key, loss in losses.items() for _ in range(min(times[key], count))]
    if not spent:
        return {}
    return {name: sum(heapq.nlargest(count, (one[name] for one in spent)), Fraction(0)) for name in spent[0]}
