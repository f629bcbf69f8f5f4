"""Whom the accounts of a ledger protect, by its chain: units that are added and removed, or units that are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

from expost.accounting.budget_rule import BudgetRule, ComposedGuarantee, round_total, rule_for
from expost.accounting.privacy_event import PrivacyEvent
from expost.core import Adjacency, Guarantee, InvalidRequest, Loss
from expost.ledger.ledger_entry import EntryKind, LedgerEntry

__all__ = [
    "NeighbourRecord",
    "PastCharge",
    "add_past_charges",
    "add_up_alike",
    "collect_past_charges",
    "is_separate_name",
    "prices_as_added",
    "separate_names",
]

_SUFFIXES = tuple(f"-{each.value}" for each in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE))
_STATING = (EntryKind.HOLD, EntryKind.SETTLE)


@dataclass(slots=True)
class NeighbourRecord:
    """What the entries so far state about adjacency and units.

    ``stated`` has what the oldest hold or receipt of an account states, as JSON. ``replaced`` has the accounts that went
    over to replaced units, ``closed`` the accounts that another one took over, and ``owed`` the body of the entry that
    joined accounts to more than their budget, by the account of the whole.
    """

    stated: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    closed: dict[str, str] = field(default_factory=dict)
    owed: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def follow(self, entry: LedgerEntry) -> None:
        """Go on with the next entry."""
        if entry.kind in _STATING:
            self._read_stated(entry)
        elif entry.kind is EntryKind.NEIGHBOURS:
            self.replaced |= entry.body["own"].keys()
            for name in entry.body.get("closed", ()):
                self.closed[name] = entry.body["of"]
            if entry.body.get("exceeded"):
                self.owed[entry.body["of"]] = entry.body
        elif entry.kind is EntryKind.BUDGET and "own" in entry.body:
            self.owed.pop(entry.body["account"], None)

    def _read_stated(self, entry: LedgerEntry) -> None:
        held = entry.body.get("protected")
        if held is not None and held["account"] in entry.accounts:
            self.stated.setdefault(held["account"], held)
        if entry.kind is EntryKind.SETTLE:
            for name in entry.accounts:
                if name not in self.stated:
                    receipt = entry.body["receipt"]
                    self.stated[name] = {"account": name, "adjacency": receipt["adjacency"], "unit": receipt["unit"]}

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON, with one spelling."""
        return {
            "stated": self.stated,
            "replaced": sorted(self.replaced),
            "closed": self.closed,
            "owed": self.owed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        return cls(dict(data["stated"]), set(data["replaced"]), dict(data["closed"]), dict(data["owed"]))

    @property
    def used_up(self) -> set[str]:
        """The accounts to which nothing can be charged: joined to more than their budget, or taken over."""
        return self.owed.keys() | self.closed.keys()

    def counts(self, names: Sequence[str]) -> Adjacency | None:
        """Return what an account counts; ``names`` are the account and those it is a part of. None: nothing so far."""
        if not self.replaced.isdisjoint(names):
            return Adjacency.REPLACE_ONE
        found = self.first_stated(names)
        return None if found is None else Adjacency(found["adjacency"])

    def first_stated(self, names: Sequence[str]) -> Mapping[str, Any] | None:
        """Return what the account states, or else the nearest account that it is a part of."""
        return next((self.stated[name] for name in names if name in self.stated), None)


@dataclass(frozen=True, slots=True)
class PastCharge:
    """A run that an account was charged for. ``bill`` is None where the worst case stays charged.

    ``replaced`` is whether the run states what an added or removed unit loses and was charged for a replaced one.
    """

    worst_case: Loss
    bill: Loss | None
    event: PrivacyEvent | None = None
    outcome: PrivacyEvent | None = None
    before: Fraction = Fraction(0)
    replaced: bool = False

    def price(self, rule: BudgetRule, *, replaced: bool) -> Loss:
        """Return what the run is charged by a rule; with ``replaced`` for a replaced unit, whatever it states."""
        terms: dict[str, Any] = {"event": self.event, "before": self.before, "replaced": replaced or self.replaced}
        if self.bill is None:
            return rule.held(self.worst_case, **terms)
        return rule.settled(self.worst_case, self.bill, outcome=self.outcome, **terms)


def add_past_charges(rule: BudgetRule, charges: Iterable[PastCharge], *, replaced: bool, start: Loss) -> Loss | None:
    """Return ``start`` and all that was charged, added up by a rule, or None where the rule has no price for a run."""
    total = start.amounts()
    known: dict[PastCharge, dict[str, Fraction]] = {}  # the same caps and bills come again and again
    for charge in charges:
        if charge not in known:
            try:
                known[charge] = charge.price(rule, replaced=replaced).amounts()
            except InvalidRequest:
                return None
        total = {name: amount + known[charge][name] for name, amount in total.items()}
    return start.with_amounts({name: round_total(amount) for name, amount in total.items()})


def collect_past_charges(entries: Iterable[LedgerEntry], names: Iterable[str]) -> dict[str, list[PastCharge]]:
    """Return what each of these accounts was charged for, in the order of the holds."""
    wanted = set(names)
    held: dict[str, LedgerEntry] = {}
    settled: dict[str, LedgerEntry] = {}
    for entry in entries:
        if entry.kind is EntryKind.HOLD and not wanted.isdisjoint(entry.body["charges"]):
            held.pop(entry.body.get("extends", ""), None)  # a later stage of the same run takes its place
            held[entry.id] = entry
        elif entry.kind is EntryKind.SETTLE and entry.body["hold"] in held:
            settled[entry.body["hold"]] = entry
    found: dict[str, list[PastCharge]] = {name: [] for name in wanted}
    for key, entry in held.items():
        for name in wanted & entry.body["charges"].keys():
            found[name].append(read_past_charge(entry.body, settled[key].body if key in settled else None, name))
    return found


def read_past_charge(hold: Mapping[str, Any], closing: Mapping[str, Any] | None, name: str) -> PastCharge:
    """Read a run from the bodies of its hold and of the entry that settled it, if any.

    A stage that was never settled is an outcome of the run that it is a stage of.
    """
    bill = hold["worst_case"] if "up_to" in hold else None
    bill = bill if closing is None else closing["receipt"]["bill"]
    return PastCharge(
        Loss.from_json(hold.get("up_to", hold["worst_case"])),
        None if bill is None else Loss.from_json(bill),
        _read_event(hold.get("event")),
        None if closing is None else _read_event(closing.get("outcome")),
        Fraction(hold.get("before", 0)),
        name in hold.get("replaced", ()),
    )


def add_up_alike(one: Guarantee, two: Guarantee) -> bool:
    """Return whether charges in accounts with these budgets are numbers of the same kind, so that they can be added."""
    if rule_for(one).zero.amounts().keys() != rule_for(two).zero.amounts().keys():
        return False
    orders = [each.orders if isinstance(each, ComposedGuarantee) else () for each in (one, two)]
    return one.definition == two.definition and orders[0] == orders[1]


def prices_as_added(record: NeighbourRecord, name: str, root: str) -> bool:
    """Return whether runs of an account must be priced for replaced units though some may state such a price already.

    ``root`` is the account of the whole. One that went over has runs of both kinds; all of them count as added ones.
    """
    return name in record.replaced or record.counts([root]) is not Adjacency.REPLACE_ONE


def is_separate_name(account: str) -> bool:
    """Return whether an account has a name that earlier versions of the command line gave for one of two adjacencies."""
    return account.startswith("dataset:") and account.endswith(_SUFFIXES)


def separate_names(account: str) -> tuple[str, ...]:
    """Return the accounts that earlier versions of the command line opened for the other adjacency.

    >>> separate_names("dataset:flights")
    ('dataset:flights-replace-one', 'dataset:flights-add-remove')
    """
    if not account.startswith("dataset:"):
        return ()
    return tuple(f"{account}{suffix}" for suffix in _SUFFIXES)


def _read_event(stored: Mapping[str, Any] | None) -> PrivacyEvent | None:
    return None if stored is None else PrivacyEvent.from_json(stored)
