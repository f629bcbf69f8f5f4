"""Everything that a chain of entries implies: totals, holds and secrets, recomputed on plain fractions.

This is a second reckoning. It shares the prices of ``accounting.budget_rule`` with the writers, and nothing else. Opening a ledger
replays all of its chain; an open handle goes on with the entries that came since, and compares every row it uses.
"""

from __future__ import annotations

import bisect
import functools
import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from expost.accounting.budget_rule import ComposedGuarantee, read_total, round_total, rule_for
from expost.accounting.privacy_event import PrivacyEvent
from expost.core import Adjacency, ExpostError, Guarantee, Loss
from expost.ledger.known_source import KnownSource, add_source
from expost.ledger.ledger_account import LedgerAccount, read_terms
from expost.ledger.ledger_entry import EntryKind, HoldState, LedgerEntry, canonical_json
from expost.ledger.ledger_page import HoldRow, SecretRow, unsound_ledger
from expost.ledger.neighbour_record import (
    NeighbourRecord,
    PastCharge,
    add_past_charges,
    add_up_alike,
    is_separate_name,
    prices_as_added,
    separate_names,
)

__all__ = ["MILESTONE", "ChainReplay", "ReplayedTotal", "WholeChainNeeded"]

MILESTONE = 64
"""Of how many entries one hash is remembered."""

_HASH_BYTES = 32

_SHORT_DENOMINATOR = 10**18  # a positive amount below 10^-18 has a longer one
_MOST_KNOWN = 4096  # charges that an account remembers: the same caps and bills come again and again


class WholeChainNeeded(Exception):
    """An entry can only be checked by a replay from the first entry on. Replays that began at a checkpoint raise it."""


@dataclass(slots=True)
class ReplayedTotal:
    """The running total of one account, what it was charged itself, and what it is a part of.

    ``as_replaced`` is what its own charges would be if every run so far had been priced for a replaced unit. It is None
    from the first run without such a price on, and in an account that counts replaced units, which does not need it.
    """

    budget: Guarantee
    spent: dict[str, Fraction]
    entry: int
    own: dict[str, Fraction]
    part: tuple[str, str, int] | None
    question_cap: Fraction | None = None
    as_replaced: dict[str, Fraction] | None = field(default=None, compare=False)
    _known: dict[Hashable, dict[str, Fraction]] = field(default_factory=dict, compare=False, repr=False)
    _limits: dict[str, Fraction] | None = field(default=None, compare=False, repr=False)
    _prices: dict[Hashable, dict[str, Fraction] | None] = field(default_factory=dict, compare=False, repr=False)

    def charged_amounts(self, stated: Mapping[str, Any], past: _PastRun) -> dict[str, Fraction]:
        """Return what a run is charged; the entry must state no less than the price of what was held or billed."""
        return self._check_charge(stated, past, lambda: past.charge().price(rule_for(self.budget), replaced=False))

    def price_as_replaced(self, past: _PastRun) -> dict[str, Fraction] | None:
        """Return what a run costs for a replaced unit, or None where it has no price. Prices are remembered."""
        if past not in self._prices:
            if len(self._prices) > _MOST_KNOWN:
                self._prices.clear()
            self._prices[past] = _price_as_replaced(self.budget, past)
        return self._prices[past]

    def _check_charge(self, stated: Mapping[str, Any], key: Hashable, price: Callable[[], Loss]) -> dict[str, Fraction]:
        """Return the stated charge if it covers its price. The same charges come again and again: they are remembered."""
        known = (_key_of(stated), key)
        found = self._known.get(known)
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            charge = read_total(stated)
            if not rule_for(self.budget).covers(charge, price()):
                raise ValueError("not the charge of the rule")
            found = self._known[known] = charge.amounts()
        return found

    def fits(self) -> bool:
        """Return whether the total keeps the budget."""
        if isinstance(self.budget, ComposedGuarantee):
            return rule_for(self.budget).fits(rule_for(self.budget).zero.with_amounts(self.spent))
        if self._limits is None:
            self._limits = self.budget.amounts()
        if self._limits.keys() != self.spent.keys():
            return False
        for name, limit in self._limits.items():  # whole numbers are compared three times as fast as fractions
            amount = self.spent[name]
            if amount.numerator * limit.denominator > limit.numerator * amount.denominator:
                return False
        return True


@dataclass(slots=True)
class _PartLane:
    """The totals of the parts by one thing, each number in rising order, so that a thousand parts are not reread."""

    touching: int
    numbers: dict[str, list[Fraction]]

    def move_total(self, old: Mapping[str, Fraction], new: Mapping[str, Fraction]) -> None:
        """Replace the total of one part."""
        for name, ordered in self.numbers.items():
            del ordered[bisect.bisect_left(ordered, old[name])]
            bisect.insort(ordered, new[name])


class ChainReplay:
    """Everything that a chain implies.

    ``pending`` has the open holds by their id, ``lanes`` the totals of an account's parts and ``parts`` their names.
    ``neighbours`` has whom the accounts protect, and ``reserved`` what an open hold added to the totals for replaced units,
    by its id and account. ``latest`` has the newest entry that concerns an account. ``milestones`` has the hashes of the
    entries 0, ``MILESTONE``, 2 ``MILESTONE`` and so on, one after the other: any entry is checked by reading on to the next
    of them. A replay may begin with a checkpoint (``expost.ledger.checkpoint``); it then does not know the holds that were
    closed up to the entry ``base``.
    """

    def __init__(self) -> None:
        self.last: LedgerEntry | None = None
        self.requests: dict[str, int] = {}
        self.parts: dict[str, set[str]] = {}
        self._compared: dict[str, LedgerAccount] = {}  # rows that were found right since their account last changed
        self.totals: dict[str, ReplayedTotal] = {}
        self.holds: dict[int, HoldRow] = {}
        self.pending: dict[str, LedgerEntry] = {}
        self.secrets: dict[str, tuple[int, str, int]] = {}
        self.lanes: dict[str, dict[str, _PartLane]] = {}
        self.neighbours = NeighbourRecord()
        self.reserved: dict[str, dict[str, dict[str, Fraction]]] = {}
        self._separate: dict[str, Counter[_PastRun]] = {}  # the runs of accounts that another one may take over
        self.latest: dict[str, int] = {}
        self.milestones, self.base = bytearray(), -1
        self.sources: dict[str, KnownSource] = {}
        self._steps = {
            EntryKind.BEGIN: self._begin_ledger,
            EntryKind.OPEN: self._open_account,
            EntryKind.BUDGET: self._change_budget,
            EntryKind.HOLD: self._take_hold,
            EntryKind.SETTLE: self._settle_hold,
            EntryKind.TAKE_OVER: self._take_over_hold,
            EntryKind.WRITE_OFF: self._write_off_hold,
            EntryKind.KEEP: self._keep_secret,
            EntryKind.FORGET: self._forget_secret,
            EntryKind.SOURCE: self._bind_source,
            EntryKind.NEIGHBOURS: self._change_neighbours,
        }

    def add_entry(self, entry: LedgerEntry) -> None:
        """Go on with the next entry, or raise ``LedgerUnsound`` if it does not follow from the ones before."""
        number, previous = (0, "") if self.last is None else (self.last.sequence + 1, self.last.hash)
        if entry.sequence != number or entry.previous != previous or not entry.is_intact:
            raise unsound_ledger("its chain of entries is broken")
        try:
            self._apply_entry(entry)
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, ExpostError):
            raise unsound_ledger("an entry does not follow from the ones before") from None
        if number % MILESTONE == 0:
            self.milestones += bytes.fromhex(entry.hash)
        self.last = entry

    def known_hash(self, sequence: int) -> tuple[int, str] | None:
        """Return the number and hash of the first entry from this one on whose hash is remembered."""
        if self.last is None or not 0 <= sequence <= self.last.sequence:
            return None
        number = -(-sequence // MILESTONE)
        if number * MILESTONE > self.last.sequence:
            return self.last.sequence, self.last.hash
        return number * MILESTONE, self.milestones[number * _HASH_BYTES : (number + 1) * _HASH_BYTES].hex()

    def add_to_lane(self, total: ReplayedTotal) -> None:
        """Enter an account that is a part into the totals of all parts by the same thing."""
        assert total.part is not None
        of, by, touching = total.part
        lane = self.lanes.setdefault(of, {}).setdefault(by, _PartLane(touching, {each: [] for each in total.spent}))
        if lane.touching != touching or lane.numbers.keys() != self.totals[of].spent.keys():
            raise ValueError("parts that do not fit together")
        for each, amount in total.spent.items():
            bisect.insort(lane.numbers[each], amount)

    def has_account(self, account: LedgerAccount) -> bool:
        """Return whether the chain leads to this row of an account, in budget, totals and parts."""
        if self._compared.get(account.name) == account:  # quick for a thousand parts, most of which are unchanged
            return True
        part = None if account.part is None else (account.part.of, account.part.by, account.part.touching)
        totals = (account.spent.amounts(), account.entry, account.own.amounts())
        stored = ReplayedTotal(account.budget, *totals, part, account.question_cap)
        if stored != self.totals.get(account.name):
            return False
        self._compared[account.name] = account
        return True

    def own_as_replaced(self, account: LedgerAccount) -> Loss | None:
        """Return what an account's own charges come to if every run is priced for a replaced unit, None without a price."""
        total = self.totals.get(account.name)
        if total is None:  # opened since
            return account.rule.zero
        if total.as_replaced is None or not add_up_alike(total.budget, account.budget):
            return None
        return account.rule.zero.with_amounts(total.as_replaced)

    def has_secret(self, row: SecretRow) -> bool:
        """Return whether the chain vouches for this row of a secret."""
        return self.secrets.get(row.name) == (row.version, row.digest, row.entry)

    def _apply_entry(self, entry: LedgerEntry) -> None:
        """Apply one entry. The totals it states must be the ones it leads to, and within the budgets."""
        self._steps[entry.kind](entry)
        accounts = entry.accounts
        links = entry.body.get("links")  # entries of earlier versions have none
        if links is not None and links != {name: self.latest.get(name) for name in accounts}:
            raise ValueError("not linked to the entry before about the same account")
        for name in accounts:
            self.latest[name] = entry.sequence
        for name, stated in entry.body.get("spent", {}).items():
            self._compared.pop(name, None)
            total = self.totals[name]
            if total.entry != entry.sequence or not _states_amounts(stated, total.spent):
                raise ValueError("a total does not add up")
            if not total.fits():
                raise ValueError("a total exceeds its budget")
        self.neighbours.follow(entry)

    def _begin_ledger(self, entry: LedgerEntry) -> None:
        if entry.sequence != 0:
            raise ValueError("a ledger begins once")

    def _open_account(self, entry: LedgerEntry) -> None:
        name, (budget, cap) = entry.body["account"], read_terms(entry.body["budget"])
        template = entry.body["template"]
        if name in self.totals or (template is not None and self.totals[template].budget != budget):
            raise ValueError("opened twice, or with another budget than its template")
        if isinstance(budget, ComposedGuarantee) and not budget.is_proved:
            raise ValueError("limits that do not prove the budget")
        nothing = rule_for(budget).zero.amounts()
        total = self.totals[name] = ReplayedTotal(budget, nothing, entry.sequence, nothing, None, cap, nothing)
        if "part" not in entry.body:
            return
        of, by, touching = (entry.body["part"][key] for key in ("of", "by", "touching"))
        if self._root_of(of) in self.neighbours.owed:
            raise ValueError("a part of an account that is used up")
        if len(entry.body["part"]) != 3 or budget.definition != self.totals[of].budget.definition:
            raise ValueError("a part in another currency")
        total.part = (of, by, touching)
        self.add_to_lane(total)
        self.parts.setdefault(of, set()).add(name)

    def _change_budget(self, entry: LedgerEntry) -> None:
        total, (budget, cap) = self.totals[entry.body["account"]], read_terms(entry.body["budget"])
        if entry.body["account"] in self.neighbours.owed and "own" in entry.body:
            self._pay_owed(entry)
            return
        if entry.body["account"] in self.neighbours.owed and budget != total.budget:
            raise ValueError("another budget before all that was owed is counted")
        nothing = rule_for(budget).zero.amounts()
        if budget.definition != total.budget.definition:
            raise ValueError("the currency of an account changed")
        if nothing.keys() != total.spent.keys():
            # Only an account on which nothing was spent may go from Renyi orders to plain sums.
            if any(total.spent.values()) or total.part is not None or entry.body["account"] in self.lanes:
                raise ValueError("another sum after a charge")
            # What cost nothing costs nothing in plain sums either.
            unpriced = total.as_replaced is None or any(total.as_replaced.values())
            total = replace(total, spent=nothing, own=nothing, as_replaced=None if unpriced else nothing)
        _check_shares(total.budget, budget)
        self.totals[entry.body["account"]] = replace(
            total, budget=budget, entry=entry.sequence, question_cap=cap, _known={}, _limits=None, _prices={}
        )

    def _take_hold(self, entry: LedgerEntry) -> None:
        replaced, first, run = self._charged_as_replaced(entry), self._extended_hold(entry), _PastRun.held(entry)
        earlier = None if first is None else _PastRun.held(first)
        released = {} if first is None else first.body["charges"]
        before = {} if first is None else self.reserved.pop(first.id, {})
        used_up = self.neighbours.used_up
        for name, stated in entry.body["charges"].items():
            total = self.totals[name]
            past = run.charged_to(name, replaced)
            charge = total.charged_amounts(stated, past)
            if used_up and any(charge.values()) and self._root_of(name) in used_up:
                raise ValueError("a charge to an account that is closed or used up")
            self._count_replaced(entry.id, name, past, freed=before.get(name))
            self._count_separate(name, past, old=earlier and earlier.charged_to(name, replaced))
            freed = _read_amounts(_key_of(released[name])) if name in released else {}
            total.own = {
                each: _add_amount(old, charge[each] - freed[each] if freed else charge[each])
                for each, old in total.own.items()
            }
        self._add_up_totals(entry)
        request = entry.body["request_id"]
        self.holds[entry.sequence] = HoldRow(entry.sequence, request, entry.body["ticket"])
        if request is not None:
            self.requests[request] = entry.sequence
        self.pending[entry.id] = entry

    def _charged_as_replaced(self, entry: LedgerEntry) -> frozenset[str]:
        """Return the accounts that charge a hold for a replaced unit; refuse a hold that does not fit its account."""
        # Entries from before units were kept state none, and one about another account decides nothing.
        stated, listed = entry.body.get("protected"), frozenset(entry.body.get("replaced", ()))
        if "extends" in entry.body:
            return listed  # that of the hold before it, which is compared
        if stated is None or stated["account"] not in entry.accounts:
            if listed:
                raise ValueError("converted without a reason")
            return listed
        root = self._root_of(stated["account"])
        first = self.neighbours.first_stated([stated["account"]])
        counted = self.neighbours.counts([stated["account"], root])
        if first is not None and first["unit"] != stated["unit"]:
            raise ValueError("a hold about another unit")
        if counted is Adjacency.ADD_REMOVE and stated["adjacency"] != counted.value:
            raise ValueError("a hold about replaced units in an account that counts added and removed ones")
        added = counted is Adjacency.REPLACE_ONE and stated["adjacency"] != counted.value
        if listed != {name for name in entry.body["charges"] if added and self._root_of(name) == root}:
            raise ValueError("a hold that is charged for another adjacency than its account's")
        return listed

    def _extended_hold(self, entry: LedgerEntry) -> LedgerEntry | None:
        """Close the hold that this one extends, if any, and return its entry."""
        if "extends" not in entry.body:
            return None
        first = self.pending.pop(entry.body["extends"])
        less, more = (_loss_of(_key_of(each.body["worst_case"])).amounts() for each in (first, entry))
        same = ("question", "before", "event", "up_to", "protected", "replaced")
        if (
            entry.body["charges"].keys() != first.body["charges"].keys()
            or any(entry.body.get(name) != first.body.get(name) for name in same)
            or any(more[name] < amount for name, amount in less.items())
        ):
            raise ValueError("another run than the one it extends, or a smaller charge")
        self.holds[first.sequence] = replace(
            self.holds[first.sequence], state=HoldState.SETTLED, closed_by=entry.sequence
        )
        return first

    def _count_replaced(
        self, hold: str, name: str, past: _PastRun, *, freed: Mapping[str, Fraction] | None, opened: bool = True
    ) -> None:
        """Go on with the total for replaced units: a run is priced for one, and what its hold had added is freed."""
        total, record = self.totals[name], self.neighbours
        if total.as_replaced is None:
            return
        price = None if record.counts([self._root_of(name)]) is Adjacency.REPLACE_ONE else total.price_as_replaced(past)
        if price is None:
            total.as_replaced = None
            return
        total.as_replaced = {
            each: _add_amount(old, price[each] if freed is None else price[each] - freed[each])
            for each, old in total.as_replaced.items()
        }
        if opened:
            self.reserved.setdefault(hold, {})[name] = price

    def _count_separate(self, name: str, past: _PastRun, old: _PastRun | None = None) -> None:
        """Remember the runs of an account that another one, in another currency, may take over."""
        if not is_separate_name(self._root_of(name)):
            return
        runs = self._separate.setdefault(name, Counter())
        runs[past] += 1
        if old is not None:
            runs[old] -= 1
            if not runs[old]:
                del runs[old]

    def _settle_hold(self, entry: LedgerEntry) -> None:
        held = self._close_hold(entry, HoldState.SETTLED)
        if entry.body.get("replaced") != held.body.get("replaced"):
            raise ValueError("settled for another adjacency than held")
        earlier, bill = _PastRun.held(held), _key_of(entry.body["receipt"]["bill"])
        if "up_to" in held.body and not _loss_of(bill).within(_loss_of(_key_of(held.body["worst_case"]))):
            raise ValueError("a bill above the stage that was held")
        outcome = canonical_json(entry.body["outcome"]) if "outcome" in entry.body else ""
        before, replaced = self.reserved.pop(held.id, {}), frozenset(held.body.get("replaced", ()))
        run = earlier._replace(bill=bill, outcome=outcome)
        for name, stated in entry.body["charges"].items():
            # One charge at a time: a question about a thousand windows has a thousand.
            total, reserved = self.totals[name], _read_amounts(_key_of(held.body["charges"][name]))
            past = run.charged_to(name, replaced)
            charge = total.charged_amounts(stated, past)
            self._count_replaced(held.id, name, past, freed=before.get(name), opened=False)
            self._count_separate(name, past, old=earlier.charged_to(name, replaced))
            total.own = {each: _add_amount(old, charge[each] - reserved[each]) for each, old in total.own.items()}
        self._add_up_totals(entry)

    def _take_over_hold(self, entry: LedgerEntry) -> None:
        held = self.pending[entry.body["hold"]]
        row = self.holds[held.sequence]
        if entry.body["before"] != row.ticket or entry.body["charges"] != held.body["charges"]:
            raise ValueError("taken over from somebody who did not have it, or at another charge")
        self.holds[held.sequence] = replace(row, ticket=entry.body["ticket"])

    def _write_off_hold(self, entry: LedgerEntry) -> None:
        self.reserved.pop(self._close_hold(entry, HoldState.WRITTEN_OFF).id, None)

    def _keep_secret(self, entry: LedgerEntry) -> None:
        self.secrets[entry.body["secret"]] = (entry.body["version"], entry.body["digest"], entry.sequence)

    def _forget_secret(self, entry: LedgerEntry) -> None:
        del self.secrets[entry.body["secret"]]

    def _bind_source(self, entry: LedgerEntry) -> None:
        if entry.body["account"] not in self.totals:
            raise ValueError("the source of an account that is not open")
        add_source(self.sources, entry).check_alone(self.sources.values())

    def _change_neighbours(self, entry: LedgerEntry) -> None:
        """Let an account and its parts count replaced units; what the entry states must cover all past runs, priced again."""
        body, root = entry.body, entry.body["of"]
        tree, closed = self._tree_of(root), body.get("closed", [])
        running = {name for held in self.pending.values() for name in held.body["charges"]}
        if (
            self.totals[root].part is not None
            or running & {*tree, *closed}
            or set(closed) & {*tree, *self.neighbours.closed}
        ):
            raise ValueError("an account that goes over while questions run, or takes over what it must not")
        if set(closed) != {each for name in separate_names(root) if name in closed for each in self._tree_of(name)}:
            raise ValueError("an account that is closed without its parts")
        already = self.neighbours.counts([root]) is Adjacency.REPLACE_ONE
        unpriced = body.get("exceeded") and not body["priced"]  # nothing is left, whatever was spent
        for name in tree if not unpriced else ():
            rule, own = rule_for(self.totals[name].budget), self._own_for_replaced(name)
            for other in closed if name == root else ():
                own = None if own is None else self._take_over(root, own, other)
            if own is None or not rule.covers(read_total(body["own"][name]), own):
                raise ValueError("not what the runs of this account cost for replaced units")
        factor, owed = 1 if already or unpriced else 2, self.neighbours.owed.get(root, {}).get("touching", {})
        touched = {
            name: owed.get(name, factor * total.part[2])
            for name in tree
            if (total := self.totals[name]).part is not None
        }
        if body["own"].keys() != set(tree) or body["touching"] != touched:
            raise ValueError("totals that are not stated")
        if not body.get("exceeded"):
            self._set_totals(entry, body["own"], touched)
        for name in (*tree, *closed):
            self.totals[name].as_replaced = None
            self._separate.pop(name, None)

    def _own_for_replaced(self, name: str) -> Loss | None:
        """Return what an account's own charges come to for a replaced unit, or None where a run has no price."""
        root, total = self._root_of(name), self.totals[name]
        owed = self.neighbours.owed.get(root)
        if owed is not None:
            return read_total(owed["own"][name]) if owed["priced"] else None
        amounts = total.own if self.neighbours.counts([root]) is Adjacency.REPLACE_ONE else total.as_replaced
        return None if amounts is None else rule_for(total.budget).zero.with_amounts(amounts)

    def _take_over(self, root: str, own: Loss, other: str) -> Loss | None:
        """Return the charges of an account and those of another one, which it takes over, for replaced units."""
        rule, budget = rule_for(self.totals[root].budget), self.totals[other].budget
        if add_up_alike(rule.budget, budget):
            more = self._own_for_replaced(other)
            return None if more is None else rule.add(own, more)
        if self.base >= 0:
            raise WholeChainNeeded
        if self._root_of(other) in self.neighbours.owed:
            return None
        runs = self._separate.get(other, Counter()).elements()
        added = prices_as_added(self.neighbours, other, self._root_of(other))
        return add_past_charges(rule, (past.charge() for past in runs), replaced=added, start=own)

    def _pay_owed(self, entry: LedgerEntry) -> None:
        """Give an account that took over more than its budget a larger one, and its totals what they really are."""
        root, (budget, cap) = entry.body["account"], read_terms(entry.body["budget"])
        owed, old = self.neighbours.owed[root], self.totals[root].budget
        if not owed["priced"] or entry.body["own"] != owed["own"] or budget.definition != old.definition:
            raise ValueError("not what was owed")
        if rule_for(budget).zero.amounts().keys() != self.totals[root].own.keys():
            raise ValueError("another sum after a charge")
        _check_shares(old, budget)
        cleared: dict[str, Any] = {"_known": {}, "_limits": None, "_prices": {}}
        self.totals[root] = replace(self.totals[root], budget=budget, question_cap=cap, **cleared)
        self._set_totals(entry, owed["own"], owed["touching"])

    def _set_totals(self, entry: LedgerEntry, own: Mapping[str, Any], touching: Mapping[str, int]) -> None:
        """Replace the own charges of an account and its parts, and recompute their totals."""
        tree = self._tree_of(entry.body.get("of") or entry.body["account"])
        if entry.body["spent"].keys() != set(tree):
            raise ValueError("totals that are not stated")
        for name in tree:
            self.totals[name].own = read_total(own[name]).amounts()
            for by, lane in self.lanes.get(name, {}).items():
                parts = [part for part in self.parts[name] if (self.totals[part].part or ("", ""))[1] == by]
                lane.touching = touching[parts[0]]
        for name in reversed(tree):
            total = self.totals[name]
            spent = self._sum_parts(name)
            if total.part is not None:
                of, by, _ = total.part
                self.lanes[of][by].move_total(total.spent, spent)
                total.part = (of, by, touching[name])
            total.spent, total.entry = spent, entry.sequence

    def _tree_of(self, root: str) -> list[str]:
        """Return an account and all its parts, wholes before their parts."""
        found = [root]
        for name in found:
            found += sorted(self.parts.get(name, ()))
        return found

    def _root_of(self, name: str) -> str:
        """Return the account of the whole table."""
        while name in self.totals and (part := self.totals[name].part) is not None:
            name = part[0]
        return name

    def _close_hold(self, entry: LedgerEntry, state: HoldState) -> LedgerEntry:
        """Close the hold that an entry names and return the entry that took it."""
        held = self.pending.pop(entry.body["hold"])
        if entry.body["charges"].keys() != held.body["charges"].keys():
            raise ValueError("closed for other accounts than held")
        row = self.holds[held.sequence]
        self.holds[held.sequence] = HoldRow(row.entry, row.request_id, row.ticket, state, entry.sequence)
        return held

    def _add_up_totals(self, entry: LedgerEntry) -> None:
        """Recompute the charged accounts and all they are parts of; the entry must state exactly these totals."""
        touched = set()
        for charged in entry.body["charges"]:
            name: str | None = charged
            while name is not None:
                total, spent = self.totals[name], self._sum_parts(name)
                touched.add(name)
                name = None
                if total.part is not None:
                    name = total.part[0]
                    self.lanes[name][total.part[1]].move_total(total.spent, spent)
                total.spent, total.entry = spent, entry.sequence
        if touched != entry.body["spent"].keys():
            raise ValueError("totals that are not stated")

    def _sum_parts(self, name: str) -> dict[str, Fraction]:
        """Return what an account has spent: its own charges and, of every partition, the largest parts."""
        own, lanes = self.totals[name].own, self.lanes.get(name, {}).values()
        if not lanes:
            return own
        return {
            each: round_total(amount + sum(sum(lane.numbers[each][-lane.touching :]) for lane in lanes))
            for each, amount in own.items()
        }


class _PastRun(NamedTuple):
    """A run that an account was charged for, as texts; the bill is None until it is settled, or for ever."""

    terms: _Terms
    bill: Hashable
    outcome: str
    replaced: bool

    @classmethod
    def held(cls, entry: LedgerEntry) -> _PastRun:
        """Read the run of a hold. One stage of what it may come to is priced as an outcome of it."""
        terms, stage = _Terms.of(entry), _key_of(entry.body["worst_case"])
        return cls(terms, None if terms.worst_case == stage else stage, "", replaced=False)

    def charged_to(self, name: str, replaced: frozenset[str]) -> _PastRun:
        """Return the run as an account is charged for it."""
        return self._replace(replaced=True) if name in replaced else self

    def charge(self) -> PastCharge:
        """Build what prices are computed from."""
        bill = None if self.bill is None else _loss_of(self.bill)
        details = self.terms.details | {"outcome": _event_of(self.outcome), "replaced": self.replaced}
        return PastCharge(self.terms.loss, bill, **details)


class _Terms(NamedTuple):
    """What a hold states about its run, as texts: equal terms have equal prices."""

    worst_case: Hashable
    event: str
    before: str

    @classmethod
    def of(cls, entry: LedgerEntry) -> _Terms:
        """Read the terms of a hold."""
        event = entry.body.get("event")
        return cls(
            _key_of(entry.body.get("up_to", entry.body["worst_case"])),
            canonical_json(event) if event else "",
            entry.body.get("before", "0"),
        )

    @property
    def loss(self) -> Loss:
        """The worst case."""
        return _loss_of(self.worst_case)

    @property
    def details(self) -> dict[str, Any]:
        """What ``BudgetRule`` takes besides the worst case."""
        return {"event": _event_of(self.event), "before": Fraction(self.before)}


def _event_of(text: str) -> PrivacyEvent | None:
    """Read an event that was stored as JSON; an empty text is none."""
    return PrivacyEvent.from_json(json.loads(text)) if text else None


@functools.lru_cache(maxsize=_MOST_KNOWN)
def _price_as_replaced(budget: Guarantee, past: _PastRun) -> dict[str, Fraction] | None:
    """Return what a run costs for a replaced unit, or None without a price. It is shared: nobody may change it.

    A question about a thousand parts has one price. Only going over depends on it, so no failure here stops a replay.
    """
    try:
        return past.charge().price(rule_for(budget), replaced=True).amounts()
    except (ExpostError, ArithmeticError, ValueError):
        return None


def _check_shares(before: Guarantee, budget: Guarantee) -> None:
    """Refuse a budget over Renyi orders whose orders do not keep their shares of delta."""
    if not isinstance(budget, ComposedGuarantee) or not isinstance(before, ComposedGuarantee):
        return
    allowed = before.changed_to(budget)
    above = (limit > most + 1 for limit, most in zip(budget.limits, allowed.limits, strict=True))
    if budget.failure != allowed.failure or any(above):
        raise ValueError("limits of other shares than the account was opened with")


def _states_amounts(stated: Mapping[str, Any], amounts: Mapping[str, Fraction]) -> bool:
    """Return whether a loss in JSON has these amounts."""
    if "costs" in stated:
        return read_total(stated).amounts() == amounts
    if "curve" in stated:
        return {f"epsilon at order {Fraction(order)}": Fraction(cost) for order, cost in stated["curve"]} == amounts
    # Texts are compared first: reading fractions is slow, and building a checked ``Loss`` ten times slower still.
    if len(stated) == len(amounts) + 1 and all(stated.get(name) == str(amount) for name, amount in amounts.items()):
        return True
    return {name: Fraction(text) for name, text in stated.items() if name != "definition"} == amounts


def _key_of(loss: Mapping[str, Any]) -> Hashable:
    """Return a hashable form of a loss in JSON."""
    return canonical_json(loss) if "curve" in loss or "costs" in loss else tuple(loss.items())


@functools.lru_cache(maxsize=_MOST_KNOWN)
def _read_amounts(key: Hashable) -> dict[str, Fraction]:
    """Return the numbers of a charge. It is shared: nobody may change it."""
    return read_total(json.loads(key) if isinstance(key, str) else dict(key)).amounts()  # type: ignore[call-overload]


def _add_amount(total: Fraction, charge: Fraction) -> Fraction:
    """Return a sum as totals are stored; nothing with a short denominator is so small that it would be rounded."""
    amount = total + charge
    return amount if amount.denominator <= _SHORT_DENOMINATOR else round_total(amount)


def _loss_of(key: Hashable) -> Loss:
    """Build the loss of a key."""
    return Loss.from_json(json.loads(key) if isinstance(key, str) else dict(key))  # type: ignore[call-overload]
