"""What each operation reads and writes. These rules are the same for every storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from expost.accounting.budget_rule import PARTS, ComposedGuarantee, ComposedLoss, rule_for
from expost.accounting.neighbour_change import share_for_added
from expost.accounting.privacy_event import PrivacyEvent
from expost.core import (
    Adjacency,
    ApproxGuarantee,
    BudgetExceeded,
    Guarantee,
    InvalidRequest,
    LedgerUnsound,
    Loss,
    Receipt,
)
from expost.ledger.ledger_account import (
    AccountPart,
    LedgerAccount,
    is_template,
    left_for_part,
    template_fits,
    total_with_parts,
)
from expost.ledger.ledger_entry import (
    EntryKind,
    Hold,
    HoldState,
    LedgerEntry,
    canonical_json,
    is_own_ticket,
    new_ticket,
)
from expost.ledger.ledger_page import HoldRow, LedgerPage, Protected, unsound_ledger
from expost.ledger.neighbour_posting import (
    NeighbourTerms,
    check_not_closed,
    counted_by,
    is_used_up,
    lineage_of,
    meet_neighbours,
    part_as_counted,
    pay_owed,
)

__all__ = [
    "change_budget",
    "budget_use",
    "check_take_over",
    "event_in",
    "extend_hold",
    "find_account",
    "open_account",
    "open_holds",
    "open_parts",
    "promise_of",
    "read_chain",
    "read_hold",
    "remaining_budget",
    "settle_hold",
    "take_hold",
    "take_over_hold",
    "write_off_hold",
]

# Accounts


def find_account(page: LedgerPage, name: str) -> LedgerAccount:
    """Return the account as it stands. One that a template would open counts as open with nothing spent."""
    account = page.sound_account(name)
    return replace(_find_template(page, name), name=name) if account is None else account


def open_account(page: LedgerPage, name: str, budget: Guarantee, question_cap: Fraction | None = None) -> None:
    """Open an account, or find it open with the same budget, and with this cap of a question if one is given."""
    account = page.sound_account(name)
    if account is None:
        _write_account(page, name, budget, question_cap=question_cap)
        return
    if question_cap not in (None, account.question_cap):
        raise InvalidRequest(
            f"Expected one question of account {name!r} to cost at most {account.cap_of_question().note}",
            got=float(question_cap or 0),
            do="Leave question_cap, or have the owner call change_budget",
        )
    if promise_of(account.budget) != budget:
        raise InvalidRequest(
            f"Expected account {name!r} to have the budget it was opened with, {account.budget}",
            got=str(budget),
            do="Leave the budget, or have the owner call change_budget",
        )


def open_parts(
    page: LedgerPage,
    names: Sequence[str],
    part: AccountPart,
    budget: Guarantee | None,
    protected: Protected | None = None,
) -> None:
    """Open accounts as parts of another, with its budget unless one is given, or find them open as such parts."""
    whole = page.sound_account(part.of)
    if whole is None or is_template(part.of):
        raise _unknown_account(part.of)
    known = {one.part.touching for one in page.parts_of(part.of) if one.part is not None and one.part.by == part.by}
    part = part_as_counted(page, part, known, protected)
    new = [name for name in names if not _is_part(page, name, part, budget)]
    if not new:
        return
    if (root := lineage_of(page, part.of)[-1]) in page.neighbours().owed:
        raise BudgetExceeded(
            f"Cannot open a part of account {root!r} because it took over more than its budget",
            do="Have the owner raise the budget above what is spent",
        )
    amount = promise_of(whole.budget) if budget is None else budget
    if whole.budget.amounts().keys() != amount.amounts().keys() or whole.budget.definition != amount.definition:
        raise InvalidRequest(
            f"Expected a budget in {whole.budget.definition}, the currency of {whole.name!r}",
            got=amount.definition,
            do="Give the part a budget of the same definition, or none",
        )
    if known - {part.touching}:
        raise InvalidRequest(
            f"Expected parts by {part.by} of which a unit can touch {min(known)}, as those that are open",
            got=part.touching,
            do="Describe the dataset as before",
        )
    for name in new:
        _write_account(page, name, amount, part=part, question_cap=whole.question_cap)


def _is_part(page: LedgerPage, name: str, part: AccountPart, budget: Guarantee | None) -> bool:
    """Return whether an account is open as this part; refuse one that is open as something else."""
    account = page.sound_account(name)
    if account is None:
        return False
    if account.part != part or (budget is not None and promise_of(account.budget) != budget):
        now = "not a part" if account.part is None else f"a part of {account.part.of} by {account.part.by}"
        raise InvalidRequest(
            f"Expected account {name!r} to be what it was opened as, {now}, budget {account.budget}",
            got=f"a part of {part.of} by {part.by}, budget {account.budget if budget is None else budget}",
            do="Leave it as it is, or use another name for the table or the category",
        )
    return True


def change_budget(page: LedgerPage, name: str, budget: Guarantee | None, question_cap: Fraction | None = None) -> None:
    """Give an account another budget or cap of a question, and the parts that had the old ones too.

    The change stands in the chain. What is None stays.
    """
    account = page.sound_account(name)
    if account is None:
        raise _unknown_account(name)
    changed = account.with_budget(promise_of(account.budget) if budget is None else budget, entry=page.next_sequence())
    changed = changed if question_cap is None else replace(changed, question_cap=question_cap)
    if budget is not None and name in page.neighbours().owed:
        # The parts first: what they really spent must fit once the whole has its new budget.
        for part in page.parts_of(name):
            if promise_of(part.budget) == promise_of(account.budget):
                change_budget(page, part.name, budget)
        pay_owed(page, changed)
        return
    page.post(
        EntryKind.BUDGET,
        {"account": name, "budget": changed.terms, "spent": _losses_to_json({name: changed.spent})},
    )
    page.put_account(changed)
    for part in page.parts_of(name):
        same = promise_of(part.budget) == promise_of(account.budget)
        if same or question_cap is not None:
            change_budget(page, part.name, budget if same else None, question_cap)


def remaining_budget(page: LedgerPage, account: LedgerAccount) -> Loss:
    """Return what a new hold may still charge, by the account's budget and those of the accounts it is a part of."""
    if is_used_up(page, account.name):
        return account.remaining.zero()
    if account.part is None:
        # A first hold may take all of an (epsilon, delta): the account then adds up plainly.
        return Loss.worst_case(promise_of(account.budget)) if _may_choose_sum(page, account) else account.remaining
    whole = page.charged_account(account.part.of)
    above = left_for_part(whole, remaining_budget(page, whole), page.parts_of(whole.name), account).amounts()
    here = account.remaining.amounts()
    return account.remaining.with_amounts({name: min(rest, above[name]) for name, rest in here.items()})


def budget_use(
    page: LedgerPage,
    names: Sequence[str],
    worst_case: Loss,
    *,
    protected: Protected | None = None,
    before: Fraction = Fraction(0),
) -> Fraction | None:
    """Return the largest part of a budget that a hold would leave used, or None if it would be refused. Nothing is written.

    None too where the hold would open an account or make one go over to another adjacency.
    """
    swapped = False
    if protected is not None:
        counted = counted_by(page, protected.account)
        if counted is Adjacency.ADD_REMOVE and protected.adjacency is Adjacency.REPLACE_ONE:
            return None
        swapped = counted is Adjacency.REPLACE_ONE and protected.adjacency is Adjacency.ADD_REMOVE
    root = None if protected is None else lineage_of(page, protected.account)[-1]
    charged = []
    for name in names:
        account = page.sound_account(name)
        if account is None or is_used_up(page, name):
            return None
        replaced = swapped and root in lineage_of(page, name)
        try:
            charged.append(account.add_charge(account.rule.held(worst_case, before=before, replaced=replaced)))
        except InvalidRequest:  # this currency has no price for it
            return None
    totals = _add_up_totals(page, charged)
    if not all(account.rule.fits(account.spent) for account in totals):
        return None
    return max(Fraction(account.rule.used(account.spent), PARTS) for account in totals)


def _write_account(
    page: LedgerPage,
    name: str,
    budget: Guarantee,
    *,
    template: str | None = None,
    part: AccountPart | None = None,
    question_cap: Fraction | None = None,
) -> LedgerAccount:
    """Record a new account."""
    # One that a template opens adds up as its template, which version 0.1 may have opened for plain sums.
    if template is None and isinstance(budget, ApproxGuarantee) and not isinstance(budget, ComposedGuarantee):
        # A part adds up over the orders of the whole: the totals of parts enter the total of the whole.
        above = None if part is None else page.charged_account(part.of).budget
        if isinstance(above, ComposedGuarantee):
            budget = ComposedGuarantee.of(budget, orders=above.orders)
        elif above is None and ComposedGuarantee.suits(budget):
            budget = ComposedGuarantee.of(budget)
    account = LedgerAccount.open_empty(name, budget, entry=page.next_sequence(), part=part, question_cap=question_cap)
    spent = _losses_to_json({name: account.spent})
    body: dict[str, Any] = {"account": name, "budget": account.terms, "template": template, "spent": spent}
    if part is not None:
        body["part"] = {"of": part.of, "by": part.by, "touching": part.touching}
    page.post(EntryKind.OPEN, body)
    page.put_account(account)
    return account


def _find_template(page: LedgerPage, name: str) -> LedgerAccount:
    """Return the template with the longest prefix of this name."""
    accounts = page.all_accounts()
    fitting = [one.name for one in accounts if is_template(one.name) and template_fits(one.name, name)]
    template = page.sound_account(max(fitting, key=len)) if fitting else None
    if template is None:
        raise _unknown_account(name)
    return template


# Totals


def _add_up_totals(page: LedgerPage, charged: Iterable[LedgerAccount]) -> list[LedgerAccount]:
    """Return the charged accounts and all those they are parts of with their new totals, parts before their wholes."""
    changed = {account.name: account for account in charged}
    depths: dict[str, int] = {}
    for account in list(changed.values()):
        lineage = [account, *_wholes_of(page, account)]
        for height, each in enumerate(lineage):
            changed.setdefault(each.name, each)
            depths[each.name] = len(lineage) - height
    entry, order = page.next_sequence(), sorted(changed, key=lambda name: -depths[name])
    for name in order:
        stored, parts = page.charged_account(name), page.parts_of(name)
        if total_with_parts(stored.own, parts) != stored.spent:
            raise unsound_ledger("the total of an account does not follow from its charges and its parts")
        changed[name] = changed[name].with_total([changed.get(part.name, part) for part in parts], entry=entry)
    return [changed[name] for name in order]


def _wholes_of(page: LedgerPage, account: LedgerAccount) -> list[LedgerAccount]:
    """Return the account that this one is a part of, the one that that is a part of, and so on."""
    found: list[LedgerAccount] = []
    while account.part is not None:
        account = page.charged_account(account.part.of)
        found.append(account)
    return found


def _check_fits(
    page: LedgerPage,
    charged: Iterable[LedgerAccount],
    charges: Mapping[str, Loss],
    asked: Loss,
    terms: NeighbourTerms,
) -> None:
    """Refuse a hold if any total would exceed its budget. ``charges`` are those of the accounts that were named."""
    for account in charged:
        if account.rule.fits(account.spent):
            continue
        named, whole = account.name, ""
        if named not in charges:  # the charge of a part went up to this account
            lineages = ((part, _wholes_of(page, page.charged_account(part))) for part in charges)
            named = next(part for part, wholes in lineages if any(each.name == account.name for each in wholes))
            whole = f", a part of {account.name!r}"
        left = remaining_budget(page, page.charged_account(named))
        at_most = (share_for_added(left) if named in terms.replaced else left).text(down=True)
        # In the terms of the run; the account may count replaced units.
        whole += f", which has {left.text(down=True)} left for a replaced unit" if named in terms.replaced else ""
        whole += "" if terms.note is None else f" ({terms.note})"
        # A hold of a question that still runs may come back in part: then waiting helps, and no larger budget is needed.
        running = [hold.worst_case for hold in open_holds(page) if named in hold.accounts]
        count = "1 running question" if len(running) == 1 else f"{len(running)} running questions"
        held = f"{' and '.join(map(str, running[:3]))}{' and more' if len(running) > 3 else ''}"
        raise BudgetExceeded(
            f"Expected a worst case of at most {at_most} in account {named!r}{whole}",
            got=str(asked),
            do=(f"Wait for {count}, which hold {held}; or ask for less" if running else "Ask for less")
            + ", or have the owner raise the budget",
        )


# Holds


def take_hold(
    page: LedgerPage,
    names: Sequence[str],
    worst_case: Loss,
    *,
    question: str,
    request_id: str | None,
    protected: Protected | None = None,
    event: PrivacyEvent | None = None,
    before: Fraction = Fraction(0),
    up_to: Loss | None = None,
) -> Hold:
    """Reserve the worst case in every account at once, or in none; ``up_to`` must fit as well and is not reserved."""
    # The ticket is made in the transaction: both sides of a fork before it would have the same one.
    ticket = new_ticket()
    row = None if request_id is None else page.find_hold(request_id=request_id)
    if row is not None:
        hold = read_hold(page, row)
        if (hold.accounts, hold.worst_case, hold.question) != (tuple(sorted(names)), worst_case, question):
            raise InvalidRequest(
                "Expected a request id that belongs to this question",
                got=hold.request_id,
                do="Use a new request id for a new question",
            )
        return replace(hold, repeated=True)
    check_not_closed(page, names)
    accounts = []
    for name in names:
        account = page.sound_account(name)
        if account is None:
            template = _find_template(page, name)
            cap = template.question_cap
            account = _write_account(page, name, template.budget, template=template.name, question_cap=cap)
        accounts.append(account)
    neighbours = NeighbourTerms()
    if protected is not None:
        neighbours = meet_neighbours(page, protected, names)
        accounts = [page.charged_account(name) for name in names]  # the totals may have changed
    terms: dict[str, dict[str, Any]] = {
        name: {"event": event, "before": before, "replaced": name in neighbours.replaced} for name in names
    }
    most = up_to or worst_case
    accounts = [_choose_sum(page, account, most, terms[account.name]) for account in accounts]
    charges = {account.name: account.rule.held(most, **terms[account.name]) for account in accounts}
    _check_not_used_up(page, charges, neighbours)
    charged = _add_up_totals(page, [account.add_charge(charges[account.name]) for account in accounts])
    _check_fits(page, charged, charges, most, neighbours)
    if up_to is not None:
        charges = {
            one.name: one.rule.settled(up_to, worst_case, before=before, replaced=one.name in neighbours.replaced)
            for one in accounts
        }
        charged = _add_up_totals(page, [account.add_charge(charges[account.name]) for account in accounts])
    body: dict[str, Any] = {
        "question": question,
        "request_id": request_id,
        "ticket": ticket,
        "worst_case": worst_case.to_json(),
    }
    if protected is not None:
        body["protected"] = protected.to_json()
    if neighbours.replaced:
        body["replaced"] = sorted(neighbours.replaced)
    if event is not None:
        body["event"] = event.to_json()
    if before:
        body["before"] = str(before)
    if up_to is not None:
        body["up_to"] = up_to.to_json()
    entry = _post_charges(page, EntryKind.HOLD, body, charges=charges, charged=charged)
    page.put_hold(HoldRow(entry.sequence, request_id, ticket))
    return replace(_hold_in(entry), note=neighbours.note)


def _check_not_used_up(page: LedgerPage, charges: Mapping[str, Loss], terms: NeighbourTerms) -> None:
    """Refuse a charge to an account that took over more than its budget. What costs nothing is admitted."""
    for name, charge in charges.items():
        if any(charge.amounts().values()) and (terms.exceeded or is_used_up(page, name)):
            root = lineage_of(page, name)[-1]
            raise BudgetExceeded(
                f"Expected nothing to be charged to account {root!r}, which took over more than its budget",
                got=str(charge),
                do="Have the owner raise the budget above what is spent",
            )


def _choose_sum(page: LedgerPage, account: LedgerAccount, worst_case: Loss, terms: Mapping[str, Any]) -> LedgerAccount:
    """Return an account as its first hold needs it: if that takes all of an (epsilon, delta), by plain sums from now on.

    Over Renyi orders a part of delta pays for composition, so one run at the price of the whole budget would not fit.
    While nothing was lost either sum may be chosen, even if answers with a bill of 0 led to the choice; afterwards the
    account keeps it (docs/proofs/filters.md, Going over to plain sums).
    """
    if not _may_choose_sum(page, account) or account.rule.fits(account.rule.held(worst_case, **terms)):
        return account
    plain = promise_of(account.budget)
    try:
        if not rule_for(plain).fits(rule_for(plain).held(worst_case, **terms)):
            return account
    except InvalidRequest:  # plain sums have no price for it, so it is too large for this account
        return account
    chosen = LedgerAccount.open_empty(
        account.name, plain, entry=page.next_sequence(), question_cap=account.question_cap
    )
    spent = _losses_to_json({account.name: chosen.spent})
    page.post(EntryKind.BUDGET, {"account": account.name, "budget": chosen.terms, "spent": spent})
    page.put_account(chosen)
    return chosen


def _may_choose_sum(page: LedgerPage, account: LedgerAccount) -> bool:
    """Return whether an account over Renyi orders may still go over to plain sums: alone, and with nothing lost."""
    alone = account.part is None and not page.parts_of(account.name)
    return isinstance(account.budget, ComposedGuarantee) and alone and not any(account.spent.amounts().values())


def extend_hold(page: LedgerPage, hold: Hold, worst_case: Loss) -> Hold:
    """Replace an open hold by one with a larger worst case, or raise ``BudgetExceeded`` and leave it as it is.

    One entry releases the old charge and makes the new one, so at no time less is charged than either
    (docs/proofs/staged-holds.md).
    """
    row, held = _find_hold(page, hold.id)
    if hold.repeated or hold.ticket != row.ticket or not is_own_ticket(hold.ticket) or row.state is not HoldState.OPEN:
        raise InvalidRequest("Expected an open hold of this process", got=hold.id, do="Pass the newest hold of the run")
    if "up_to" not in held.body:
        raise InvalidRequest("Expected a hold that was taken with up_to", got=hold.id, do="Pass up_to= to hold()")
    before, released = Fraction(held.body.get("before", 0)), held.charges
    reserved, most = Loss.from_json(held.body["worst_case"]), Loss.from_json(held.body["up_to"])
    if worst_case.definition != reserved.definition or not (reserved.within(worst_case) and worst_case.within(most)):
        raise InvalidRequest(
            f"Expected a worst case from the {reserved} held to {most}", got=str(worst_case), do="Ask for as much"
        )
    accounts = [page.charged_account(name) for name in released]
    # A stage is priced as an outcome of the whole run: at a Renyi order the cap counts, not the stage.
    neighbours = NeighbourTerms(frozenset(held.body.get("replaced", ())))
    charges = {
        one.name: one.rule.settled(most, worst_case, before=before, replaced=one.name in neighbours.replaced)
        for one in accounts
    }
    charged = _add_up_totals(page, [one.add_charge(charges[one.name], released=released[one.name]) for one in accounts])
    _check_fits(page, charged, charges, worst_case, neighbours)
    ticket = new_ticket()
    body: dict[str, Any] = {
        "question": held.body["question"],
        "request_id": None,  # stays with the first hold, so that a retry finds it
        "ticket": ticket,
        "worst_case": worst_case.to_json(),
        "extends": hold.id,
        "up_to": held.body["up_to"],
    }
    body |= {name: held.body[name] for name in ("protected", "replaced") if name in held.body}
    if before:
        body["before"] = str(before)
    entry = _post_charges(page, EntryKind.HOLD, body, charges=charges, charged=charged)
    page.put_hold(replace(row, state=HoldState.SETTLED, closed_by=entry.sequence))
    page.put_hold(HoldRow(entry.sequence, None, ticket))
    return replace(_hold_in(entry), note=hold.note)


def settle_hold(page: LedgerPage, hold: Hold, receipt: Receipt, outcome: PrivacyEvent | None = None) -> LedgerEntry:
    """Record the receipt and give back what the theorem allows."""
    row, held = _find_hold(page, hold.id)
    stored = receipt.to_dict() | {"ledger_entry": None}  # its own entry gives a receipt its id
    try:
        canonical_json(stored).encode()
    except ValueError:
        raise _not_settled("the receipt has numbers that are not finite or texts that are not UTF-8") from None
    if hold.repeated or hold.ticket != row.ticket:
        raise _not_settled("this is neither the first holder of this request nor the last that took it over")
    if not is_own_ticket(hold.ticket):
        # A fork has the same ticket and draws its own noise: one of the two answers would be free.
        raise _not_settled("this is not the process that took this hold")
    if row.state is not HoldState.OPEN:
        closing = page.intact_entry(row.closed_by)
        if closing.body.get("receipt") == stored:
            return closing
        raise _not_settled("this hold is closed")
    if "up_to" in held.body and not receipt.bill.within(Loss.from_json(held.body["worst_case"])):
        raise _not_settled("the bill is above the stage that is held")
    worst_case, released = Loss.from_json(held.body.get("up_to", held.body["worst_case"])), held.charges
    accounts = [page.charged_account(name) for name in released]
    event, before = event_in(held), Fraction(held.body.get("before", 0))
    terms: dict[str, Any] = {"event": event, "outcome": outcome, "before": before}
    charges = {
        one.name: one.rule.settled(
            worst_case, receipt.bill, **terms, replaced=one.name in held.body.get("replaced", ())
        )
        for one in accounts
    }
    charged = _add_up_totals(page, [one.add_charge(charges[one.name], released=released[one.name]) for one in accounts])
    body: dict[str, Any] = {"hold": hold.id, "receipt": stored}
    if "replaced" in held.body:
        body["replaced"] = held.body["replaced"]
    if outcome is not None:
        body["outcome"] = outcome.to_json()
    entry = _post_charges(page, EntryKind.SETTLE, body, charges=charges, charged=charged)
    page.put_hold(replace(row, state=HoldState.SETTLED, closed_by=entry.sequence))
    return entry


def check_take_over(page: LedgerPage, hold: Hold) -> tuple[HoldRow, LedgerEntry]:
    """Refuse a hold that is closed, or that none of the earlier tickets opens."""
    row, held = _find_hold(page, hold.id)
    if row.state is not HoldState.OPEN:
        raise InvalidRequest(
            f"Expected an open hold; this one is {row.state.value}",
            got=hold.id,
            do="Start again, without what was kept",
        )
    if row.ticket not in hold.earlier:
        raise InvalidRequest(
            "Expected the newest copy of this hold; its run was taken over since",
            do="Continue from the newest copy, or start again",
        )
    return row, held


def take_over_hold(page: LedgerPage, hold: Hold) -> Hold:
    """Give an open hold to whoever has one of its earlier tickets, under a new one. Its charge does not change."""
    row, held = check_take_over(page, hold)
    body = {"hold": hold.id, "before": row.ticket, "ticket": hold.ticket, "charges": held.body["charges"]}
    page.post(EntryKind.TAKE_OVER, body)
    page.put_hold(replace(row, ticket=hold.ticket))
    return replace(_hold_in(held), ticket=hold.ticket)


def write_off_hold(page: LedgerPage, hold_id: str) -> LedgerEntry:
    """Close an open hold as spent at its worst case."""
    row, held = _find_hold(page, hold_id)
    if row.state is HoldState.WRITTEN_OFF:
        return page.intact_entry(row.closed_by)
    if row.state is HoldState.SETTLED:
        raise InvalidRequest(
            "Expected an open hold; this one is settled", got=hold_id, do="There is nothing left to do"
        )
    entry = page.post(EntryKind.WRITE_OFF, {"hold": hold_id, "charges": held.body["charges"]})
    page.put_hold(replace(row, state=HoldState.WRITTEN_OFF, closed_by=entry.sequence))
    return entry


def open_holds(page: LedgerPage) -> list[Hold]:
    """Return the holds that are neither settled nor written off, oldest first, without their tickets."""
    return [read_hold(page, row) for row in page.open_hold_rows()]


def read_hold(page: LedgerPage, row: HoldRow) -> Hold:
    """Return the hold of a row as its chain entry records it, without the ticket: for reading only."""
    hold = _hold_in(page.intact_entry(row.entry))
    closed_by = None if row.closed_by is None else page.intact_entry(row.closed_by).id
    return replace(hold, ticket="", state=row.state, closed_by=closed_by)


def read_chain(page: LedgerPage) -> list[LedgerEntry]:
    """Return all entries after checking that each is intact and follows the one before."""
    entries: list[LedgerEntry] = []
    previous = ""
    for entry in page.all_entries():
        if entry.sequence != len(entries) or entry.previous != previous or not entry.is_intact:
            raise unsound_ledger("its chain of entries is broken")
        entries.append(entry)
        previous = entry.hash
    return entries


def _find_hold(page: LedgerPage, hold_id: str) -> tuple[HoldRow, LedgerEntry]:
    """Return the row and the entry of a hold."""
    entry = page.named_entry(hold_id)
    row = None if entry is None else page.find_hold(entry=entry.sequence)
    if entry is None or row is None or entry.kind is not EntryKind.HOLD:
        raise InvalidRequest("Expected a hold of this ledger", got=hold_id, do="Pass a hold that this ledger gave")
    return row, entry


def _hold_in(entry: LedgerEntry) -> Hold:
    """Build the hold that an entry records."""
    body, worst_case = entry.body, Loss.from_json(entry.body["worst_case"])
    return Hold(
        entry.id,
        tuple(sorted(body["charges"])),
        worst_case,
        question=body["question"],
        request_id=body["request_id"],
        ticket=body["ticket"],
        replaced=tuple(body.get("replaced", ())),
    )


def _post_charges(
    page: LedgerPage,
    kind: EntryKind,
    body: dict[str, Any],
    *,
    charges: dict[str, Loss],
    charged: Sequence[LedgerAccount],
) -> LedgerEntry:
    """Record charges and the totals they lead to."""
    body |= {"charges": _losses_to_json(charges), "spent": _losses_to_json({one.name: one.spent for one in charged})}
    shown = {one.name: one.rule.shown(one.spent) for one in charged if isinstance(one.spent, ComposedLoss)}
    entry = page.post(kind, body | ({"shown": _losses_to_json(shown)} if shown else {}))
    for account in charged:
        page.put_account(account)
    return entry


def event_in(entry: LedgerEntry, name: str = "event") -> PrivacyEvent | None:
    """Return the event that an entry states, if any."""
    stored = entry.body.get(name)
    return None if stored is None else PrivacyEvent.from_json(stored)


def promise_of(budget: Guarantee) -> Guarantee:
    """Return a budget as its owner stated it."""
    return budget.plain if isinstance(budget, ComposedGuarantee) else budget


def _losses_to_json(losses: dict[str, Loss]) -> dict[str, Any]:
    return {name: loss.to_json() for name, loss in losses.items()}


def _unknown_account(name: str) -> InvalidRequest:
    return InvalidRequest(
        "Expected an open account",
        got=name,
        do=f"Have the owner open it: expost ledger budget LEDGER {name} --epsilon 1",
    )


def _not_settled(reason: str) -> LedgerUnsound:
    return LedgerUnsound(
        f"Cannot settle because {reason}", do="Nothing may leave; what was held stays charged at its worst case"
    )
