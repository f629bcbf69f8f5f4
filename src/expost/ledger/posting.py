"""What each operation writes: the rules of the house, the same for every place a ledger is kept in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from expost.core import Guarantee, InvalidRequest, LedgerUnsound, Loss, Receipt
from expost.ledger.account import Account, is_template, template_fits
from expost.ledger.currency import held_charge, settled_charge
from expost.ledger.entry import Entry, Kind, canonical
from expost.ledger.hold import Hold, HoldState
from expost.ledger.page import HoldRow, Page, unsound
from expost.ledger.part import Part
from expost.ledger.protected import Protected
from expost.ledger.ticket import is_of_this_process
from expost.ledger.totals import check_fits, drawn_up

__all__ = [
    "change_budget",
    "check_take_over",
    "find_account",
    "open_account",
    "open_part",
    "read_hold",
    "settle",
    "take_hold",
    "take_over",
    "write_off",
]


def open_account(page: Page, name: str, budget: Guarantee) -> None:
    """Open an account, or find it open with the same budget."""
    account = page.sound_account(name)
    if account is None:
        _open(page, name, budget)
    elif account.budget != budget:
        raise InvalidRequest(
            f"Expected account {name!r} to have the budget it was opened with, {account.budget}",
            got=str(budget),
            do="Leave the budget, or have the owner call change_budget",
        )


def open_part(page: Page, name: str, part: Part, budget: Guarantee | None) -> None:
    """Open an account as a part of another, with its budget unless one is given, or find it open as that part."""
    whole, account = page.sound_account(part.of), page.sound_account(name)
    if whole is None or is_template(part.of):
        raise _unknown(part.of)
    if account is None:
        amount = whole.budget if budget is None else budget
        _check_part(page, part, whole, amount)
        _open(page, name, amount, part=part)
    elif account.part != part or (budget is not None and account.budget != budget):
        now = "no part of another" if account.part is None else f"a part of {account.part.of} by {account.part.by}"
        raise InvalidRequest(
            f"Expected account {name!r} to be what it was opened as, {now}, budget {account.budget}",
            got=f"a part of {part.of} by {part.by}, budget {account.budget if budget is None else budget}",
            do="Leave it as it is, or use another name for the table or the category",
        )


def _check_part(page: Page, part: Part, whole: Account, budget: Guarantee) -> None:
    if whole.budget.amounts().keys() != budget.amounts().keys() or whole.budget.definition != budget.definition:
        raise InvalidRequest(
            f"Expected a budget in {whole.budget.definition}, the currency of {whole.name!r}",
            got=budget.definition,
            do="Give the part a budget of the same definition, or none",
        )
    beside = {one.part.touching for one in page.parts(part.of) if one.part is not None and one.part.by == part.by}
    if beside - {part.touching}:
        raise InvalidRequest(
            f"Expected parts by {part.by} of which a unit can touch {min(beside)}, as those that are open",
            got=part.touching,
            do="Describe the dataset as before",
        )


def change_budget(page: Page, name: str, budget: Guarantee) -> None:
    """Give an account another budget; the change stands in the chain. Parts that had the old one follow."""
    account = page.sound_account(name)
    if account is None:
        raise _unknown(name)
    changed = account.with_budget(budget, entry=_following(page))
    page.post(Kind.BUDGET, {"account": name, "budget": budget.to_json(), "spent": _json({name: changed.spent})})
    page.put_account(changed)
    for part in page.parts(name):
        if part.budget == account.budget:
            change_budget(page, part.name, budget)


def take_hold(
    page: Page,
    names: Sequence[str],
    worst_case: Loss,
    *,
    question: str,
    request_id: str | None,
    ticket: str,
    protected: Protected | None = None,
) -> Hold:
    """Reserve the worst case in every account at once, or in none."""
    row = None if request_id is None else page.hold(request_id=request_id)
    if row is not None:
        return _repeated(read_hold(page, row), names, worst_case, question=question)
    if protected is not None:
        protected.check(page)
    accounts = [_account_for(page, name) for name in names]
    charges = {account.name: held_charge(account.budget, worst_case) for account in accounts}
    charged = drawn_up(page, [account.charged(charges[account.name]) for account in accounts], entry=_following(page))
    check_fits(page, charged, charges)
    body = {
        "question": question,
        "request_id": request_id,
        "ticket": ticket,
        "worst_case": worst_case.to_json(),
        "charges": _json(charges),
        "spent": _json({account.name: account.spent for account in charged}),
    }
    if protected is not None:
        body["protected"] = protected.to_json()
    entry = page.post(Kind.HOLD, body)
    for account in charged:
        page.put_account(account)
    page.put_hold(HoldRow(entry.sequence, request_id, ticket))
    return _hold_of(entry)


def settle(page: Page, hold: Hold, receipt: Receipt) -> Entry:
    """Record the receipt and give back what the theorem allows."""
    row, held = _find_hold(page, hold.id)
    stored = _storable(receipt)
    if hold.repeated or hold.ticket != row.ticket:
        raise _not_settled("Expected the first holder of this request to settle it, or the last that took it over")
    if not is_of_this_process(hold.ticket):
        # A fork has the same ticket and draws its own noise: of the two answers one would be free.
        raise _not_settled("Expected the process that took this hold to settle it")
    if row.state is not HoldState.OPEN:
        closing = page.intact(row.closed_by if row.closed_by is not None else -1)
        if closing.body.get("receipt") == stored:
            return closing
        raise _not_settled("Expected an open hold; this one is closed")
    worst_case = Loss.from_json(held.body["worst_case"])
    accounts = [_stored(page, name) for name in held.charges]
    charges = {account.name: settled_charge(account.budget, worst_case, receipt.bill) for account in accounts}
    settled = [account.charged(charges[account.name], released=held.charges[account.name]) for account in accounts]
    charged = drawn_up(page, settled, entry=_following(page))
    body = {
        "hold": hold.id,
        "receipt": stored,
        "charges": _json(charges),
        "spent": _json({account.name: account.spent for account in charged}),
    }
    entry = page.post(Kind.SETTLE, body)
    for account in charged:
        page.put_account(account)
    page.put_hold(replace(row, state=HoldState.SETTLED, closed_by=entry.sequence))
    return entry


def check_take_over(page: Page, hold: Hold) -> tuple[HoldRow, Entry]:
    """Refuse a hold that is closed, or that none of the earlier tickets opens."""
    row, held = _find_hold(page, hold.id)
    if row.state is not HoldState.OPEN:
        raise InvalidRequest(
            f"Expected an open hold; this one is {row.state.value}", got=hold.id, do="Begin anew, without what was kept"
        )
    if row.ticket not in hold.earlier:
        raise InvalidRequest(
            "Expected the newest copy of this hold; its run was taken over since", do="Go on from there, or begin anew"
        )
    return row, held


def take_over(page: Page, hold: Hold) -> Hold:
    """Give an open hold to whoever has one of its earlier tickets, under a new one; it stays charged as it was."""
    row, held = check_take_over(page, hold)
    body = {"hold": hold.id, "before": row.ticket, "ticket": hold.ticket, "charges": held.body["charges"]}
    page.post(Kind.TAKE_OVER, body)
    page.put_hold(replace(row, ticket=hold.ticket))
    return replace(_hold_of(held), ticket=hold.ticket)


def write_off(page: Page, hold_id: str) -> Entry:
    """Close an open hold as spent at its worst case."""
    row, held = _find_hold(page, hold_id)
    if row.state is HoldState.WRITTEN_OFF:
        return page.intact(row.closed_by if row.closed_by is not None else -1)
    if row.state is HoldState.SETTLED:
        raise InvalidRequest("Expected an open hold; this one is settled", got=hold_id, do="Nothing is left to do")
    entry = page.post(Kind.WRITE_OFF, {"hold": hold_id, "charges": held.body["charges"]})
    page.put_hold(replace(row, state=HoldState.WRITTEN_OFF, closed_by=entry.sequence))
    return entry


def find_account(page: Page, name: str) -> Account:
    """The account as it stands; one that a template would open counts as open with nothing spent."""
    account = page.sound_account(name)
    if account is not None:
        return account
    return replace(_template(page, name), name=name)


def read_hold(page: Page, row: HoldRow) -> Hold:
    """The hold of a row, as its chain entry tells it; for reading, so without the ticket."""
    hold = _hold_of(page.intact(row.entry))
    closed_by = None if row.closed_by is None else page.intact(row.closed_by).id
    return replace(hold, ticket="", state=row.state, closed_by=closed_by)


def _open(
    page: Page, name: str, budget: Guarantee, *, template: str | None = None, part: Part | None = None
) -> Account:
    account = Account.opened(name, budget, entry=_following(page), part=part)
    body = {"account": name, "budget": budget.to_json(), "template": template, "spent": _json({name: account.spent})}
    if part is not None:
        body["part"] = {"of": part.of, "by": part.by, "touching": part.touching}
    page.post(Kind.OPEN, body)
    page.put_account(account)
    return account


def _following(page: Page) -> int:
    """The number of the next line."""
    last = page.last()
    return 0 if last is None else last.sequence + 1


def _account_for(page: Page, name: str) -> Account:
    account = page.sound_account(name)
    if account is not None:
        return account
    template = _template(page, name)
    return _open(page, name, template.budget, template=template.name)


def _template(page: Page, name: str) -> Account:
    """The template with the longest prefix of this name."""
    fitting = [
        account for account in page.accounts() if is_template(account.name) and template_fits(account.name, name)
    ]
    if not fitting:
        raise _unknown(name)
    longest = max(fitting, key=lambda account: len(account.name))
    return page.sound_account(longest.name) or longest


def _stored(page: Page, name: str) -> Account:
    account = page.sound_account(name)
    if account is None:
        raise unsound("Expected the accounts of a hold to exist")
    return account


def _find_hold(page: Page, hold_id: str) -> tuple[HoldRow, Entry]:
    entry = page.named(hold_id)
    row = None if entry is None else page.hold(entry=entry.sequence)
    if entry is None or row is None or entry.kind is not Kind.HOLD:
        raise InvalidRequest("Expected a hold of this ledger", got=hold_id, do="Pass a hold that this ledger gave")
    return row, entry


def _hold_of(entry: Entry) -> Hold:
    body = entry.body
    worst_case = Loss.from_json(body["worst_case"])
    accounts = tuple(sorted(body["charges"]))
    return Hold(entry.id, accounts, worst_case, body["question"], body["request_id"], ticket=body["ticket"])


def _repeated(hold: Hold, names: Sequence[str], worst_case: Loss, *, question: str) -> Hold:
    if (hold.accounts, hold.worst_case, hold.question) != (tuple(sorted(names)), worst_case, question):
        raise InvalidRequest(
            "Expected a request id that belongs to this question",
            got=hold.request_id,
            do="Use a new request id for a new question",
        )
    return replace(hold, repeated=True)


def _storable(receipt: Receipt) -> dict[str, Any]:
    """The receipt as the chain keeps it: without the id that its own entry gives it."""
    stored = receipt.to_dict() | {"ledger_entry": None}
    try:
        canonical(stored).encode()
    except ValueError:
        raise _not_settled("Expected a receipt of finite numbers and of texts in UTF-8") from None
    return stored


def _json(losses: dict[str, Loss]) -> dict[str, Any]:
    return {name: loss.to_json() for name, loss in losses.items()}


def _unknown(name: str) -> InvalidRequest:
    return InvalidRequest("Expected an open account", got=name, do="Open it with a budget first")


def _not_settled(expected: str) -> LedgerUnsound:
    return LedgerUnsound(expected, do="Nothing may leave; what was held stays charged at its worst case")
