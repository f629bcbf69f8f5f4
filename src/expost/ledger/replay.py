"""Recomputing a ledger from its chain, and comparing.

A second reckoning, on plain fractions: it shares the rules of ``currency`` with the writers, and nothing else.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from expost.core import ExpostError, Guarantee, Loss
from expost.ledger.account import Account
from expost.ledger.currency import held_charge, rounded, settled_charge
from expost.ledger.entry import Entry, Kind, canonical
from expost.ledger.hold import HoldState
from expost.ledger.page import HoldRow, Page, unsound

__all__ = ["Report", "verify"]

_MOST_KNOWN = 4096


@dataclass(frozen=True)
class Report:
    """What a sound ledger holds; ``head`` names its newest line and may be written down elsewhere as an anchor.

    >>> print(Report(entries=3, accounts=1, holds=1, open_holds=0, head="2-9f86d081884c7d65"))
    3 entries, 1 account, 1 hold, 0 open, head 2-9f86d081884c7d65
    """

    entries: int
    accounts: int
    holds: int
    open_holds: int
    head: str

    def __str__(self) -> str:
        counted = ", ".join(
            f"{count} {one if count == 1 else many}"
            for count, one, many in (
                (self.entries, "entry", "entries"),
                (self.accounts, "account", "accounts"),
                (self.holds, "hold", "holds"),
            )
        )
        return f"{counted}, {self.open_holds} open, head {self.head}"


@dataclass(slots=True)
class _Total:
    """The running total of one account, what it was charged itself, and what it is a part of."""

    budget: Guarantee
    spent: dict[str, Fraction]
    entry: int
    own: dict[str, Fraction]
    part: tuple[str, str, int] | None
    _known: dict[Hashable, dict[str, Fraction]] = field(default_factory=dict, compare=False, repr=False)

    # The same caps and bills come again and again.

    def held(self, worst_case: Hashable) -> dict[str, Fraction]:
        """What a hold of this worst case is charged."""
        if worst_case not in self._known:
            self._known[worst_case] = held_charge(self.budget, _loss(worst_case)).amounts()
        return self._known[worst_case]

    def settled(self, worst_case: Hashable, bill: Hashable) -> dict[str, Fraction]:
        """What stays charged once the bill is known."""
        if (worst_case, bill) not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[worst_case, bill] = settled_charge(self.budget, _loss(worst_case), _loss(bill)).amounts()
        return self._known[worst_case, bill]

    @property
    def limits(self) -> dict[str, Fraction]:
        """The amounts of the budget."""
        if None not in self._known:
            self._known[None] = self.budget.amounts()
        return self._known[None]


@dataclass(slots=True)
class _Lane:
    """The totals of the parts by one thing, each number in rising order: a thousand parts are not read every time."""

    touching: int
    numbers: dict[str, list[Fraction]]

    def move(self, old: Mapping[str, Fraction], new: Mapping[str, Fraction]) -> None:
        for name, ordered in self.numbers.items():
            del ordered[bisect.bisect_left(ordered, old[name])]
            bisect.insort(ordered, new[name])


@dataclass
class _Books:
    """Everything a chain implies; ``pending`` has the open holds by their id, ``lanes`` the parts of an account.

    ``protected`` has the neighbours and the unit that an account is about from its first hold or receipt on.
    """

    totals: dict[str, _Total] = field(default_factory=dict)
    holds: dict[int, HoldRow] = field(default_factory=dict)
    pending: dict[str, Entry] = field(default_factory=dict)
    secrets: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    lanes: dict[str, dict[str, _Lane]] = field(default_factory=dict)
    protected: dict[str, tuple[str, ...]] = field(default_factory=dict)


def verify(page: Page, *, anchor: str | None = None) -> Report:
    """Recompute every total and the chain; any edited, removed or reordered row is an error.

    ``anchor`` is the id of a line known from elsewhere (a receipt, an earlier report) that must still be there.
    """
    books, last = _replay(page.entries())
    if {one.name: _stored(one) for one in page.accounts()} != books.totals:
        raise unsound("Expected the totals of all accounts to follow from the chain")
    if {row.entry: row for row in page.holds()} != books.holds:
        raise unsound("Expected the holds to follow from the chain")
    if {row.name: (row.version, row.digest, row.entry) for row in page.secrets()} != books.secrets:
        raise unsound("Expected the kept secrets to follow from the chain")
    if anchor is not None and page.named(anchor) is None:
        raise unsound("Expected the anchor to be an entry of this ledger")
    return Report(last.sequence + 1, len(books.totals), len(books.holds), len(books.pending), last.id)


def _stored(account: Account) -> _Total:
    part = None if account.part is None else (account.part.of, account.part.by, account.part.touching)
    return _Total(account.budget, account.spent.amounts(), account.entry, account.own.amounts(), part)


def _replay(entries: Iterable[Entry]) -> tuple[_Books, Entry]:
    books, last = _Books(), None
    for entry in entries:
        number, previous = (0, "") if last is None else (last.sequence + 1, last.hash)
        if entry.sequence != number or entry.previous != previous or not entry.is_intact:
            raise unsound("Expected an unbroken chain of entries")
        try:
            _STEPS[entry.kind](books, entry)
            _check_totals(books, entry)
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, ExpostError):
            raise unsound("Expected every entry to follow from the ones before") from None
        last = entry
    if last is None:
        raise unsound("Expected a ledger to begin with its first entry")
    return books, last


def _check_totals(books: _Books, entry: Entry) -> None:
    """The totals a line states are the ones it leads to, and within the budgets."""
    for name, stated in entry.body.get("spent", {}).items():
        total = books.totals[name]
        limits = total.limits
        if total.entry != entry.sequence or not _states(stated, total.spent):
            raise ValueError("a total does not add up")
        if any(amount > limits[part] for part, amount in total.spent.items()):
            raise ValueError("a total exceeds its budget")


def _begin(books: _Books, entry: Entry) -> None:
    if entry.sequence != 0:
        raise ValueError("a ledger begins once")


def _open(books: _Books, entry: Entry) -> None:
    name, budget = entry.body["account"], Guarantee.from_json(entry.body["budget"])
    template = entry.body["template"]
    if name in books.totals or (template is not None and books.totals[template].budget != budget):
        raise ValueError("opened twice, or not as its template says")
    nothing = dict.fromkeys(budget.amounts(), Fraction(0))
    books.totals[name] = _Total(budget, nothing, entry.sequence, nothing, None)
    if "part" in entry.body:
        _open_part(books, books.totals[name], **entry.body["part"])


def _open_part(books: _Books, total: _Total, *, of: str, by: str, touching: int) -> None:
    """A part has the currency of the whole, and its neighbours say the same of what a unit touches."""
    if total.budget.definition != books.totals[of].budget.definition:
        raise ValueError("a part in another currency")
    lane = books.lanes.setdefault(of, {}).setdefault(by, _Lane(touching, {name: [] for name in total.spent}))
    if lane.touching != touching or lane.numbers.keys() != books.totals[of].spent.keys():
        raise ValueError("parts that do not fit together")
    for name, amount in total.spent.items():
        bisect.insort(lane.numbers[name], amount)
    total.part = (of, by, touching)


def _budget(books: _Books, entry: Entry) -> None:
    total, budget = books.totals[entry.body["account"]], Guarantee.from_json(entry.body["budget"])
    if budget.definition != total.budget.definition:
        raise ValueError("the currency of an account changed")
    books.totals[entry.body["account"]] = replace(total, budget=budget, entry=entry.sequence, _known={})


def _hold(books: _Books, entry: Entry) -> None:
    worst_case = _key(entry.body["worst_case"])
    for name, stated in entry.body["charges"].items():
        _charge(books.totals[name], stated, charge=books.totals[name].held(worst_case))
    _draw_up(books, entry)
    _check_protected(books, entry)
    books.holds[entry.sequence] = HoldRow(entry.sequence, entry.body["request_id"], entry.body["ticket"])
    books.pending[entry.id] = entry


def _settle(books: _Books, entry: Entry) -> None:
    held = _close(books, entry, HoldState.SETTLED)
    worst_case, bill = _key(held.body["worst_case"]), _key(entry.body["receipt"]["bill"])
    for name, stated in entry.body["charges"].items():
        total = books.totals[name]
        reserved, charge = total.held(worst_case), total.settled(worst_case, bill)
        if not _states(stated, charge):
            charge = reserved  # nothing given back: always sound, and how older entries were settled
        _charge(total, stated, charge=charge, released=reserved)
    _draw_up(books, entry)
    for name in entry.accounts:
        books.protected.setdefault(name, _about(entry.body["receipt"]))


def _check_protected(books: _Books, entry: Entry) -> None:
    """The rule of ``Protected``: lines from before units were kept state none, one about another account decides nothing."""
    stated = entry.body.get("protected")
    if stated is None or stated["account"] not in entry.accounts:
        return
    if books.protected.setdefault(stated["account"], _about(stated)) != _about(stated):
        raise ValueError("a hold about another unit or other neighbours")


def _about(stated: Mapping[str, Any]) -> tuple[str, ...]:
    """Neighbours and unit as a hold or a receipt spells them; compared only, so they need not be built."""
    return (stated["adjacency"], *(stated["unit"][name] for name in ("column", "time_column", "window")))


def _take_over(books: _Books, entry: Entry) -> None:
    """An open hold changes hands: from the one that had the ticket, and at the same charge."""
    held = books.pending[entry.body["hold"]]
    row = books.holds[held.sequence]
    if entry.body["before"] != row.ticket or entry.body["charges"] != held.body["charges"]:
        raise ValueError("taken over from somebody who did not have it")
    books.holds[held.sequence] = replace(row, ticket=entry.body["ticket"])


def _write_off(books: _Books, entry: Entry) -> None:
    _close(books, entry, HoldState.WRITTEN_OFF)


def _keep(books: _Books, entry: Entry) -> None:
    body: dict[str, Any] = entry.body
    books.secrets[body["secret"]] = (body["version"], body["digest"], entry.sequence)


def _forget(books: _Books, entry: Entry) -> None:
    del books.secrets[entry.body["secret"]]


def _close(books: _Books, entry: Entry, state: HoldState) -> Entry:
    held = books.pending.pop(entry.body["hold"])
    if entry.body["charges"].keys() != held.body["charges"].keys():
        raise ValueError("closed for other accounts than held")
    row = books.holds[held.sequence]
    books.holds[held.sequence] = HoldRow(row.entry, row.request_id, row.ticket, state, entry.sequence)
    return held


def _charge(
    total: _Total,
    stated: Mapping[str, Any],
    *,
    charge: Mapping[str, Fraction],
    released: Mapping[str, Fraction] | None = None,
) -> None:
    if not _states(stated, charge):
        raise ValueError("charged otherwise than the rule says")
    more = charge if released is None else {part: amount - released[part] for part, amount in charge.items()}
    total.own = {part: rounded(old + more[part]) for part, old in total.own.items()}


def _draw_up(books: _Books, entry: Entry) -> None:
    """The totals of the charged accounts and of all they are parts of; the line must state exactly these."""
    touched = set()
    for name in entry.body["charges"]:
        while True:
            total = books.totals[name]
            spent = _rolled(total, books.lanes.get(name, {}))
            if total.part is not None:
                books.lanes[total.part[0]][total.part[1]].move(total.spent, spent)
            total.spent, total.entry = spent, entry.sequence
            touched.add(name)
            if total.part is None:
                break
            name = total.part[0]
    if touched != entry.body["spent"].keys():
        raise ValueError("totals that are not stated")


def _rolled(total: _Total, lanes: Mapping[str, _Lane]) -> dict[str, Fraction]:
    if not lanes:
        return total.own
    return {
        name: rounded(own + sum(sum(lane.numbers[name][-lane.touching :]) for lane in lanes.values()))
        for name, own in total.own.items()
    }


def _states(stated: Mapping[str, Any], amounts: Mapping[str, Fraction]) -> bool:
    """Whether a loss in JSON has these amounts; its texts are compared first, for reading fractions is slow."""
    plain = len(stated) == len(amounts) + 1 and "curve" not in stated
    if plain and all(stated.get(name) == str(amount) for name, amount in amounts.items()):
        return True
    return _amounts(stated) == amounts


def _amounts(loss: Mapping[str, Any]) -> dict[str, Fraction]:
    """The numbers of a loss in JSON; parsed here, because building a checked ``Loss`` takes ten times as long."""
    if "curve" in loss:
        return {f"epsilon at order {Fraction(order)}": Fraction(amount) for order, amount in loss["curve"]}
    return {name: Fraction(text) for name, text in loss.items() if name != "definition"}


def _key(loss: Mapping[str, Any]) -> Hashable:
    """A loss in JSON as something to remember it by."""
    return canonical(loss) if "curve" in loss else tuple(loss.items())


def _loss(key: Hashable) -> Loss:
    return Loss.from_json(json.loads(key) if isinstance(key, str) else dict(key))  # type: ignore[call-overload]


_STEPS: dict[Kind, Callable[[_Books, Entry], None]] = {
    Kind.BEGIN: _begin,
    Kind.OPEN: _open,
    Kind.BUDGET: _budget,
    Kind.HOLD: _hold,
    Kind.SETTLE: _settle,
    Kind.TAKE_OVER: _take_over,
    Kind.WRITE_OFF: _write_off,
    Kind.KEEP: _keep,
    Kind.FORGET: _forget,
}
