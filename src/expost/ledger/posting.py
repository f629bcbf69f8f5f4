"""What each operation writes: the rules of the house, the same for every place a ledger is kept in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from expost.core import Guarantee, InvalidRequest, LedgerUnsound, Loss, Receipt
from expost.ledger.account import Account, is_template, template_fits
from expost.ledger.currency import settled_charge
from expost.ledger.entry import Entry, Kind, canonical
from expost.ledger.hold import Hold, HoldState
from expost.ledger.page import HoldRow, Page, unsound

__all__ = ["change_budget", "find_account", "open_account", "read_hold", "settle", "take_hold", "write_off"]


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


def change_budget(page: Page, name: str, budget: Guarantee) -> None:
    """Give an account another budget; the change stands in the chain."""
    account = page.sound_account(name)
    if account is None:
        raise _unknown(name)
    following = page.last().sequence + 1  # type: ignore[union-attr]  # an account implies an entry
    changed = account.with_budget(budget, entry=following)
    page.post(Kind.BUDGET, {"account": name, "budget": budget.to_json(), "spent": _json({name: changed.spent})})
    page.put_account(changed)


def take_hold(
    page: Page, names: Sequence[str], worst_case: Loss, *, question: str, request_id: str | None, ticket: str
) -> Hold:
    """Reserve the worst case in every account at once, or in none."""
    row = None if request_id is None else page.hold(request_id=request_id)
    if row is not None:
        return _repeated(read_hold(page, row), names, worst_case, question=question)
    accounts = [_account_for(page, name) for name in names]
    charges = {account.name: account.price(worst_case) for account in accounts}
    following = page.last().sequence + 1  # type: ignore[union-attr]  # an account implies an entry
    charged = [account.charged(charges[account.name], entry=following) for account in accounts]
    body = {
        "question": question,
        "request_id": request_id,
        "ticket": ticket,
        "worst_case": worst_case.to_json(),
        "charges": _json(charges),
        "spent": _json({account.name: account.spent for account in charged}),
    }
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
        raise _not_settled("Expected the first holder of this request to settle it")
    if row.state is not HoldState.OPEN:
        closing = page.intact(row.closed_by if row.closed_by is not None else -1)
        if closing.body.get("receipt") == stored:
            return closing
        raise _not_settled("Expected an open hold; this one is closed")
    worst_case = Loss.from_json(held.body["worst_case"])
    accounts = [_stored(page, name) for name in held.charges]
    charges = {account.name: settled_charge(account.budget, worst_case, receipt.bill) for account in accounts}
    following = page.last().sequence + 1  # type: ignore[union-attr]  # a hold implies an entry
    charged = [
        account.charged(charges[account.name], entry=following, released=held.charges[account.name])
        for account in accounts
    ]
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
    """The hold of a row, as its chain entry tells it."""
    hold = _hold_of(page.intact(row.entry))
    closed_by = None if row.closed_by is None else page.intact(row.closed_by).id
    return replace(hold, state=row.state, closed_by=closed_by)


def _open(page: Page, name: str, budget: Guarantee, *, template: str | None = None) -> Account:
    last = page.last()
    account = Account.opened(name, budget, entry=0 if last is None else last.sequence + 1)
    body = {"account": name, "budget": budget.to_json(), "template": template, "spent": _json({name: account.spent})}
    page.post(Kind.OPEN, body)
    page.put_account(account)
    return account


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
    return replace(hold, ticket="", repeated=True)


def _storable(receipt: Receipt) -> dict[str, Any]:
    """The receipt as the chain keeps it: without the id that its own entry gives it."""
    stored = receipt.to_dict() | {"ledger_entry": None}
    try:
        canonical(stored)
    except ValueError:
        raise _not_settled("Expected a receipt of finite numbers") from None
    return stored


def _json(losses: dict[str, Loss]) -> dict[str, Any]:
    return {name: loss.to_json() for name, loss in losses.items()}


def _unknown(name: str) -> InvalidRequest:
    return InvalidRequest("Expected an open account", got=name, do="Open it with a budget first")


def _not_settled(expected: str) -> LedgerUnsound:
    return LedgerUnsound(expected, do="Nothing may leave; what was held stays charged at its worst case")
