"""How an account goes over from added and removed units to replaced ones, and takes over separate accounts of the same table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from expost.accounting.budget_rule import ComposedLoss, read_total
from expost.accounting.neighbour_change import share_for_added
from expost.core import Adjacency, BudgetExceeded, InvalidRequest, Loss
from expost.ledger.ledger_account import AccountPart, LedgerAccount, left_for_part
from expost.ledger.ledger_entry import EntryKind, LedgerEntry
from expost.ledger.ledger_page import LedgerPage, Protected, unsound_ledger
from expost.ledger.neighbour_record import (
    NeighbourRecord,
    add_past_charges,
    add_up_alike,
    collect_past_charges,
    prices_as_added,
    separate_names,
)

__all__ = [
    "NeighbourTerms",
    "check_not_closed",
    "count_replaced",
    "counted_by",
    "explain_change",
    "find_separate",
    "is_used_up",
    "join_separate_accounts",
    "left_for_run",
    "lineage_of",
    "meet_neighbours",
    "part_as_counted",
    "pay_owed",
    "read_owed",
    "tree_of",
]

_NOTHING_LEFT = ", so nothing is left"


@dataclass(frozen=True, slots=True)
class NeighbourTerms:
    """How a hold is charged. ``replaced`` has the accounts that charge it for a replaced unit though it states another.

    ``note`` tells what happened to the account, and ``exceeded`` whether it thereby took over more than its budget.
    """

    replaced: frozenset[str] = frozenset()
    note: str | None = None
    exceeded: bool = False


def meet_neighbours(page: LedgerPage, protected: Protected, names: Sequence[str]) -> NeighbourTerms:
    """Let a hold about some unit and adjacency meet its account, which goes over to replaced units if it must.

    Raises ``InvalidRequest`` for another unit and while questions are running on an account that must go over, and
    ``BudgetExceeded`` where what was spent before is too much for replaced units.
    """
    note, exceeded = join_separate_accounts(page, protected, strict=True), False
    lineage = lineage_of(page, protected.account)
    protected.check(page)
    counted = page.neighbours().counts(lineage)
    if note is not None:  # the record of this transaction does not have its own entries yet
        counted, exceeded = Adjacency.REPLACE_ONE, note.endswith(_NOTHING_LEFT)
    if _must_go_over(page, lineage[-1], counted, protected):
        note, counted = _go_over(page, lineage[-1], protected), Adjacency.REPLACE_ONE
    added = counted is Adjacency.REPLACE_ONE and protected.adjacency is Adjacency.ADD_REMOVE
    tree = {name for name in names if lineage[-1] in lineage_of(page, name)} if added else set()
    return NeighbourTerms(frozenset(tree), note, exceeded)


def _must_go_over(page: LedgerPage, root: str, counted: Adjacency | None, protected: Protected) -> bool:
    """Return whether an account must count replaced units before a run is charged."""
    if protected.adjacency is Adjacency.ADD_REMOVE or counted is Adjacency.REPLACE_ONE:
        return False
    # Parts may be open for units that lie in one of them, though nothing was asked so far; a replaced one may touch two.
    return counted is not None or any(one.part is not None and one.part.touching == 1 for one in tree_of(page, root))


def part_as_counted(page: LedgerPage, part: AccountPart, known: set[int], protected: Protected | None) -> AccountPart:
    """Return a part with the number of parts that a unit touches in the terms of the account of the whole.

    ``known`` are the numbers of the parts of the same kind that are open. A session about replaced units opens parts of an
    account that counts added and removed ones as those: its first question makes the account go over, with all parts.
    """
    if part.touching in known:
        return part
    counted = counted_by(page, part.of)
    if counted is Adjacency.REPLACE_ONE:
        return replace(part, touching=2 * part.touching if 2 * part.touching in known else max(part.touching, 2))
    swaps = protected is not None and protected.adjacency is Adjacency.REPLACE_ONE
    if swaps and part.touching % 2 == 0 and (counted is not None or part.touching // 2 in known):
        return replace(part, touching=part.touching // 2)
    return part


def counted_by(page: LedgerPage, name: str) -> Adjacency | None:
    """Return what an account counts, or None where no question was asked so far."""
    return page.neighbours().counts(lineage_of(page, name))


def lineage_of(page: LedgerPage, name: str) -> list[str]:
    """Return the account, the account that it is a part of, and so on."""
    found, account = [name], page.sound_account(name)
    while account is not None and account.part is not None:
        found.append(account.part.of)
        account = page.charged_account(account.part.of)
    return found


# What an account would have spent


def count_replaced(page: LedgerPage, root: str, joined: Sequence[str] = ()) -> dict[str, LedgerAccount] | None:
    """Return a table's account and its parts as if they had counted replaced units from their first charge on.

    ``joined`` are accounts whose charges the root takes over. None where a run has no price for a replaced unit.
    Every question is converted by itself, so nothing depends on when the account went over
    (docs/proofs/replace-one-accounts.md, Theorem 2).
    """
    record, tree = page.neighbours(), tree_of(page, root)
    already = record.counts([root]) is Adjacency.REPLACE_ONE
    touching = record.owed.get(root, {}).get("touching", {})
    found: dict[str, LedgerAccount] = {}
    for account in reversed(tree):  # parts before their wholes
        own = _own_for_replaced(page, account, root)
        for name in joined if account.name == root else ():
            own = None if own is None else _take_over(page, account, own, page.charged_account(name))
        if own is None:
            return None
        part = account.part
        if part is not None:  # a replaced unit may change its part
            part = replace(part, touching=touching.get(account.name, part.touching * (1 if already else 2)))
        parts = [found[each.name] for each in page.parts_of(account.name)]
        moved = replace(account, own=own, part=part)
        found[account.name] = moved.with_total(parts, entry=page.next_sequence())
    return found


def _own_for_replaced(page: LedgerPage, account: LedgerAccount, root: str) -> Loss | None:
    """Return what an account's own charges come to for a replaced unit, or None where a run has no price."""
    record = page.neighbours()
    if root in record.owed:
        owed = record.owed[root]
        return read_total(owed["own"][account.name]) if owed["priced"] else None
    return account.own if record.counts([root]) is Adjacency.REPLACE_ONE else page.own_as_replaced(account)


def _take_over(page: LedgerPage, account: LedgerAccount, own: Loss, other: LedgerAccount) -> Loss | None:
    """Return the charges of an account and those of another one, which it takes over, for replaced units."""
    root = lineage_of(page, other.name)[-1]
    if add_up_alike(account.budget, other.budget):
        more = _own_for_replaced(page, other, root)
        return None if more is None else account.rule.add(own, more)
    record = page.neighbours()
    if root in record.owed:
        return None
    past = collect_past_charges(_linked_entries(page), [other.name])[other.name]
    return add_past_charges(account.rule, past, replaced=prices_as_added(record, other.name, root), start=own)


def _linked_entries(page: LedgerPage) -> Iterator[LedgerEntry]:
    """Yield all entries, each checked and chained to the one before."""
    last: LedgerEntry | None = None
    for entry in page.all_entries():
        number, previous = (0, "") if last is None else (last.sequence + 1, last.hash)
        if (entry.sequence, entry.previous) != (number, previous) or not entry.is_intact:
            raise unsound_ledger("its chain of entries is broken")
        last = entry
        yield entry
    if last != page.last_entry():
        raise unsound_ledger("its chain of entries is broken")


def tree_of(page: LedgerPage, root: str) -> list[LedgerAccount]:
    """Return an account and all its parts, wholes before their parts."""
    found = [page.charged_account(root)]
    for account in found:
        found += page.parts_of(account.name)
    return found


def left_for_run(page: LedgerPage, name: str, protected: Protected, remaining: Loss) -> Loss:
    """Return what one more run about this unit and adjacency may cost, in the terms of the run."""
    counted = counted_by(page, name)
    if counted is Adjacency.REPLACE_ONE and protected.adjacency is Adjacency.ADD_REMOVE:
        return share_for_added(remaining)
    if counted is Adjacency.ADD_REMOVE and protected.adjacency is Adjacency.REPLACE_ONE:
        converted = count_replaced(page, lineage_of(page, name)[-1])
        if converted is None or not all(account.rule.fits(account.spent) for account in converted.values()):
            return remaining.zero()
        if any(any(account.spent.amounts().values()) for account in converted.values()):
            return _left_in(converted, converted[name])
    return remaining


def explain_change(page: LedgerPage, protected: Protected) -> str | None:
    """Return how a run about this unit and adjacency would change its account, in words; None if it would not."""
    root = lineage_of(page, protected.account)[-1]
    if protected.adjacency is Adjacency.ADD_REMOVE or counted_by(page, root) is not Adjacency.ADD_REMOVE:
        return None
    account, converted = page.charged_account(root), count_replaced(page, root)
    after = "more than any budget" if converted is None else account.rule.shown(converted[root].spent)
    before = account.rule.shown(account.spent)
    return f"with it this account goes over to {replaced_words(protected)}; {before} spent before counts as {after}"


def _left_in(converted: Mapping[str, LedgerAccount], account: LedgerAccount) -> Loss:
    """Return what is left in an account whose runs are converted."""
    here = account.remaining
    if account.part is None:
        return here
    whole = converted[account.part.of]
    parts = [one for one in converted.values() if one.part is not None and one.part.of == whole.name]
    above = left_for_part(whole, _left_in(converted, whole), parts, account).amounts()
    return here.with_amounts({name: min(rest, above[name]) for name, rest in here.amounts().items()})


# Changes


def _go_over(page: LedgerPage, root: str, protected: Protected) -> str:
    """Let an account count replaced units from now on, and return what to tell people."""
    tree, what = tree_of(page, root), replaced_words(protected)
    _check_idle(page, root, [account.name for account in tree], what)
    converted = count_replaced(page, root)
    before = tree[0].rule.shown(tree[0].spent)
    if converted is None:
        raise InvalidRequest(
            f"Cannot count {what} in account {root!r} because a run so far has no price for them",
            do=f"Use a table of another name, and so another account, for what protects {what}",
        )
    for account in converted.values():
        if not account.rule.fits(account.spent):
            old = next(each for each in tree if each.name == account.name)
            raise BudgetExceeded(
                f"Expected at most {account.budget} in account {account.name!r} once it counts {what}, "
                f"where the {old.rule.shown(old.spent)} spent before counts as more",
                got=str(account.rule.shown(account.spent)),
                do='Describe the dataset with adjacency="add-remove", or have the owner raise the budget',
            )
    return _post_change(page, protected, root, converted, before=before)


def join_separate_accounts(page: LedgerPage, protected: Protected, *, strict: bool) -> str | None:
    """Let the account of a table take over the ones that earlier versions of the command line kept for the same table.

    They are about the same rows under the other adjacency, so their losses add up. Return what to tell people, or None
    if there is nothing to join. Without ``strict`` an account with running questions is left for later.
    """
    root, names = protected.account, find_separate(page, protected)
    if not names:
        return None
    joined = [account.name for name in names for account in tree_of(page, name)]
    tree = tree_of(page, root)
    busy = [*(account.name for account in tree), *joined]
    if not strict and _count_running(page, busy):
        return None
    _check_idle(page, root, busy, replaced_words(protected))
    before = tree[0].rule.shown(tree[0].spent)
    converted = count_replaced(page, root, joined)
    return _post_change(page, protected, root, converted, before=before, joined=joined, names=names)


def find_separate(page: LedgerPage, protected: Protected) -> list[str]:
    """Return the accounts that were kept for the same rows under the other adjacency and were not joined to it yet."""
    root, record = protected.account, page.neighbours()
    # A name that no hold or receipt states was not used, so there is nothing to join.
    names = [name for name in separate_names(root) if name in record.stated and name not in record.closed]
    if not names or root in record.closed or page.sound_account(root) is None:
        return []
    return [name for name in names if _is_separate(record, name, protected)]


def _is_separate(record: NeighbourRecord, name: str, protected: Protected) -> bool:
    """Return whether an account was used for the same unit under the adjacency in its name."""
    stated = record.first_stated([name])
    if stated is None or stated["unit"] != protected.to_json()["unit"]:
        return False
    return name.endswith(f"-{stated['adjacency']}")


def replaced_words(protected: Protected) -> str:
    """Return what an account that went over counts, in words."""
    return "replaced rows" if protected.unit.is_row else "replaced units"


def _post_change(
    page: LedgerPage,
    protected: Protected,
    root: str,
    converted: Mapping[str, LedgerAccount] | None,
    *,
    before: Loss,
    joined: Sequence[str] = (),
    names: Sequence[str] = (),
) -> str:
    """Record that an account counts replaced units from now on, with all its totals, and return what to tell people."""
    counted = {account.name: account for account in tree_of(page, root)} if converted is None else dict(converted)
    fits = converted is not None and all(account.rule.fits(account.spent) for account in counted.values())
    told = f"from now on this account counts {replaced_words(protected)}; {before} spent before"
    if names:
        told += f" and what was spent in {' and '.join(names)}"
    told += (
        f" counts as {'more than its budget' if converted is None else counted[root].rule.shown(counted[root].spent)}"
    )
    body: dict[str, Any] = {
        "of": root,
        "counts": Adjacency.REPLACE_ONE.value,
        "question": told if fits else f"{told}{_NOTHING_LEFT}",
        "own": {name: account.own.to_json() for name, account in counted.items()},
        "touching": {name: account.part.touching for name, account in counted.items() if account.part is not None},
    }
    if joined:
        body["closed"] = list(joined)
    if fits:
        body |= totals_to_json(counted)
    else:
        # A run without a price, such as one with a delta in a pure account, is owed for ever.
        body |= {"account": root, "exceeded": True, "priced": converted is not None}
    page.post(EntryKind.NEIGHBOURS, body)
    for account in counted.values() if fits else ():
        page.put_account(account)
    return str(body["question"])


def totals_to_json(accounts: Mapping[str, LedgerAccount]) -> dict[str, Any]:
    """Return the totals of accounts as an entry states them, and as they are shown to people."""
    shown = {name: one.rule.shown(one.spent) for name, one in accounts.items() if isinstance(one.spent, ComposedLoss)}
    found = {"spent": {name: account.spent.to_json() for name, account in accounts.items()}}
    return found | ({"shown": {name: loss.to_json() for name, loss in shown.items()}} if shown else {})


def read_owed(page: LedgerPage, root: str) -> dict[str, LedgerAccount] | None:
    """Return an account that was joined to more than its budget, and its parts, with what they really spent.

    None where it owes nothing, or a run without a price.
    """
    owed = page.neighbours().owed.get(root)
    if owed is None or not owed["priced"]:
        return None
    found: dict[str, LedgerAccount] = {}
    for one in reversed(tree_of(page, root)):
        part = None if one.part is None else replace(one.part, touching=owed["touching"][one.name])
        moved = replace(one, own=read_total(owed["own"][one.name]), part=part)
        parts = [found[each.name] for each in page.parts_of(one.name)]
        found[one.name] = moved.with_total(parts, entry=page.next_sequence())
    return found


def pay_owed(page: LedgerPage, account: LedgerAccount) -> None:
    """Give an account that owes more than its old budget a new one, which must be enough for all that it owes.

    ``account`` is the stored one with the new budget.
    """
    found = read_owed(page, account.name)
    if found is None:
        raise InvalidRequest(
            f"Cannot change the budget of account {account.name!r} because it took over a run without a price in it",
            do="Use a table of another name, and so another account, with a budget in epsilon and delta",
        )
    found[account.name] = replace(found[account.name], budget=account.budget, question_cap=account.question_cap)
    for one in found.values():
        if not one.rule.fits(one.spent):
            raise InvalidRequest(
                f"Expected a budget of at least the {one.rule.shown(one.spent)} that is spent in {one.name!r}",
                got=str(one.budget),
                do="Pass more",
            )
    own = {name: one.own.to_json() for name, one in found.items()}
    body = {"account": account.name, "budget": account.terms, "own": own}
    page.post(EntryKind.BUDGET, body | totals_to_json(found))
    for one in found.values():
        page.put_account(one)


def is_used_up(page: LedgerPage, name: str) -> bool:
    """Return whether nothing can be charged here any more: joined to more than the budget, or taken over."""
    record = page.neighbours()
    if not record.owed and not record.closed:
        return False
    root = lineage_of(page, name)[-1]
    return root in record.owed or root in record.closed


def check_not_closed(page: LedgerPage, names: Sequence[str]) -> None:
    """Refuse accounts that another account took over."""
    closed = page.neighbours().closed
    for name in names if closed else ():
        root = lineage_of(page, name)[-1]
        if root in closed:
            raise InvalidRequest(
                f"Cannot use account {name!r} because {closed[root]!r} took it over with all it spent",
                do=f"Use {closed[root]!r}",
            )


def _check_idle(page: LedgerPage, root: str, names: Sequence[str], what: str) -> None:
    running = _count_running(page, names)
    if running:
        questions = "a question is" if running == 1 else f"{running} questions are"
        raise InvalidRequest(
            f"Cannot count {what} in account {root!r} because {questions} running on it",
            do="Wait for it, or have the owner close abandoned holds (expost ledger holds, expost ledger write-off)",
        )


def _count_running(page: LedgerPage, names: Sequence[str]) -> int:
    """Return how many open holds charge these accounts."""
    rows = page.open_hold_rows()
    return sum(not page.intact_entry(row.entry).body["charges"].keys().isdisjoint(names) for row in rows)
