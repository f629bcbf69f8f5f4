"""Checkpoints: what a chain leads to up to some entry, vouched for by the owner's key.

Opening a ledger recomputes all totals from its chain. With the key of its owner it begins with the newest checkpoint
instead and reads only the entries after it. The code of a checkpoint (HMAC-SHA256) covers every total, budget, open hold
and secret's digest, and the hash of the entry it stands for. So nobody without the key can make one, change one, or move one
to another ledger, and an old entry that was edited afterwards no longer matters to what is charged. ``verify`` still
reads everything, and compares the checkpoint too.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.accounting.budget_rule import read_budget, rule_for
from expost.core import ExpostError
from expost.ledger.chain_replay import MILESTONE, ChainReplay, ReplayedTotal
from expost.ledger.known_source import KnownSource
from expost.ledger.ledger_entry import EntryKind, HoldState, LedgerEntry, canonical_json
from expost.ledger.ledger_page import HoldRow, unsound_ledger
from expost.ledger.neighbour_record import NeighbourRecord
from expost.ledger.secret import Safe

__all__ = ["CHECKPOINT_EVERY", "LedgerCheckpoint"]

CHECKPOINT_EVERY = 4096
"""How many entries a handle with the owner's key lets pass before it writes the next checkpoint."""

_FORMAT = 3
_HASH_BYTES = 32
_CLOSE = Fraction(1, 10**9)  # relative difference of sums that two machines computed
_LAST_DIGITS = 4096  # by which whole numbers of 2^-40 may differ besides


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The state of a chain after one entry, and the code that the owner's key makes of it.

    Parameters
    ----------
    owner : str
        A name of the key, which reveals nothing about it. Checkpoints of other keys are left alone.
    sequence : int
        The number of the entry.
    state : str
        Everything that the chain leads to, as canonical JSON.
    code : str
        The code over the state.
    """

    owner: str
    sequence: int
    state: str
    code: str

    @classmethod
    def of(cls, replay: ChainReplay, safe: Safe) -> LedgerCheckpoint:
        """Write down what a replay came to."""
        assert replay.last is not None
        state = _write_state(replay)
        return cls(safe.owner, replay.last.sequence, state, safe.certify(state))

    def is_made_with(self, safe: Safe) -> bool:
        """Return whether the key in ``safe`` made the code of exactly this state."""
        return safe.has_key and hmac.compare_digest(self.code.encode(), safe.certify(self.state).encode())

    def agrees_with(self, replay: ChainReplay) -> bool:
        """Return whether a replay of the chain up to the same entry came to this state."""
        text = _write_state(replay)
        if self.state == text:
            return True
        # Totals for replaced units are computed, not stated: at Renyi orders machines differ in their last digits.
        mine, other = json.loads(self.state), json.loads(text)
        numbers = [_flatten_numbers(state.pop("replaced")) for state in (mine, other)]
        return bool(mine == other) and _are_close(*numbers)

    def restore(self, beginning: LedgerEntry, head: LedgerEntry | None) -> ChainReplay | None:
        """Return a replay that goes on after this checkpoint, or None if it is of another ledger or version.

        ``beginning`` is the first entry of the ledger and ``head`` the one whose number the checkpoint has, if there is
        one. Call it only if ``is_made_with`` holds. If the ledger lacks the entry, it lost entries.
        """
        try:
            state = json.loads(self.state)
            if (state["format"], state["beginning"], state["milestone"]) != (_FORMAT, beginning.hash, MILESTONE):
                return None
            replay = _read_state(state)
        except (KeyError, TypeError, ValueError, AttributeError, ExpostError):
            return None
        if replay.last != head:
            raise unsound_ledger(
                "it lacks an entry that its owner's checkpoint covers: entries were removed or replaced"
            )
        return replay


def _write_state(replay: ChainReplay) -> str:
    """Return everything that the next entries, and the rows they use, are compared with."""
    assert replay.last is not None
    return canonical_json(
        {
            "format": _FORMAT,
            "beginning": bytes(replay.milestones[:_HASH_BYTES]).hex(),
            "last": _write_entry(replay.last),
            "totals": {name: _write_total(total) for name, total in replay.totals.items()},
            "pending": [
                [*_write_entry(entry), replay.holds[entry.sequence].ticket]
                for entry in sorted(replay.pending.values(), key=lambda entry: entry.sequence)
            ],
            "secrets": replay.secrets,
            "sources": [source.to_json() for source in replay.sources.values()],
            "neighbours": replay.neighbours.to_json(),
            "replaced": {
                "totals": {name: _write_amounts(total.as_replaced) for name, total in replay.totals.items()},
                "holds": {
                    hold: {name: _write_amounts(amounts) for name, amounts in added.items()}
                    for hold, added in replay.reserved.items()
                },
            },
            "latest": replay.latest,
            "milestone": MILESTONE,
            "milestones": base64.b64encode(replay.milestones).decode(),
        }
    )


def _read_state(state: dict[str, Any]) -> ChainReplay:
    replay = ChainReplay()
    replay.last = _read_entry(*state["last"])
    replay.base = replay.last.sequence
    replay.totals = {name: _read_total(*stored) for name, stored in state["totals"].items()}
    for name, total in replay.totals.items():
        if total.part is not None:
            replay.add_to_lane(total)
            replay.parts.setdefault(total.part[0], set()).add(name)
    for *stored, ticket in state["pending"]:
        entry = _read_entry(*stored)
        request = entry.body["request_id"]
        replay.pending[entry.id] = entry
        replay.holds[entry.sequence] = HoldRow(entry.sequence, request, ticket, HoldState.OPEN)
        if request is not None:
            replay.requests[request] = entry.sequence
    replay.secrets = {name: (version, digest, entry) for name, (version, digest, entry) in state["secrets"].items()}
    sources = map(KnownSource.from_json, state["sources"])
    replay.sources = {source.account: source for source in sources}
    replay.neighbours = NeighbourRecord.from_json(state["neighbours"])
    for name, stored in state["replaced"]["totals"].items():
        total = replay.totals[name]
        total.as_replaced = None if stored is None else {each: Fraction(stored[each]) for each in total.own}
    for hold, added in state["replaced"]["holds"].items():
        replay.reserved[hold] = {name: _read_amounts(stored) or {} for name, stored in added.items()}
    replay.latest = state["latest"]
    replay.milestones = bytearray(base64.b64decode(state["milestones"], validate=True))
    if len(replay.milestones) != _HASH_BYTES * (replay.base // MILESTONE + 1):
        raise ValueError("a hash is missing")
    return replay


def _write_entry(entry: LedgerEntry) -> list[Any]:
    return [entry.sequence, entry.kind.value, entry.recorded, entry.text, entry.previous, entry.hash]


def _read_entry(sequence: int, kind: str, recorded: str, text: str, previous: str, digest: str) -> LedgerEntry:
    return LedgerEntry(sequence, EntryKind(kind), recorded, text=text, previous=previous, hash=digest)


def _write_amounts(amounts: Mapping[str, Fraction] | None) -> dict[str, str] | None:
    return None if amounts is None else {name: str(amount) for name, amount in amounts.items()}


def _read_amounts(stored: Mapping[str, str] | None) -> dict[str, Fraction] | None:
    return None if stored is None else {name: Fraction(text) for name, text in stored.items()}


def _flatten_numbers(replaced: Mapping[str, Any]) -> dict[tuple[str, ...], Fraction | None]:
    """Return every number of the totals for replaced units under its full name."""
    found: dict[tuple[str, ...], Fraction | None] = {}
    for hold, accounts in [("", replaced["totals"]), *replaced["holds"].items()]:
        for name, stored in accounts.items():
            amounts = _read_amounts(stored)
            found |= {(hold, name): None} if amounts is None else {(hold, name, key): amounts[key] for key in amounts}
    return found


def _are_close(one: Mapping[tuple[str, ...], Fraction | None], two: Mapping[tuple[str, ...], Fraction | None]) -> bool:
    """Return whether two machines may have computed these numbers from the same runs."""
    if one.keys() != two.keys():
        return False
    for name, first in one.items():
        second = two[name]
        if first is None or second is None:
            if first is not second:
                return False
        elif abs(first - second) > _CLOSE * max(first, second) + (_LAST_DIGITS if name[-1].startswith("cost ") else 0):
            return False
    return True


def _write_total(total: ReplayedTotal) -> list[Any]:
    spent, own = ([str(amount) for amount in amounts.values()] for amounts in (total.spent, total.own))
    cap = None if total.question_cap is None else str(total.question_cap)
    return [total.budget.to_json(), spent, total.entry, own, total.part, cap]


def _read_total(
    budget: dict[str, Any], spent: list[str], entry: int, own: list[str], part: Any, cap: str | None
) -> ReplayedTotal:
    limit = read_budget(budget)
    names = rule_for(limit).zero.amounts()
    total, charged = (dict(zip(names, map(Fraction, amounts), strict=True)) for amounts in (spent, own))
    of = None if part is None else (part[0], part[1], part[2])
    return ReplayedTotal(limit, total, entry, charged, of, None if cap is None else Fraction(cap))
